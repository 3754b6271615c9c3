//! sled's files, opened with care: they may be damaged, and sled does not take that well.

use std::fs;
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

use ::sled::Db;

use super::directory::{DirectoryError, LOCK_PATIENCE, LOCK_STEP};
use super::open::OpenError;
use crate::panics;

/// How long sled may take to open. A million tasks take a few seconds; some damage makes it hang.
pub(super) const OPEN_LIMIT: Duration = Duration::from_mins(5);

/// How often sled's own thread works, in milliseconds. It cleans at most one segment of 4 MiB each time (sled 0.34.7,
/// `SegmentCleaner::pop` says that there was nothing when it has done with one), in 3 to 7 ms of one processor without a
/// pause. With 100 ms that was most of what reads felt of a million tasks that expire (`bench expiry`). The price: while
/// 100,000 tasks are replaced 20 times without a pause, the directory has up to 10 times their bytes instead of 5.3 (`bench
/// turnover`). At rest what is left is compacted.
const CLEAN_EVERY_MS: u64 = 2000;

/// sled panics where its files are damaged.
pub(super) fn bounded<T>(path: &Path, read: impl FnOnce() -> Result<T, OpenError>) -> Result<T, OpenError> {
    let panicked = |_panic| OpenError::Damaged {
        path: path.to_owned(),
        what: "sled panicked while reading its files".into(),
    };
    panics::catch(read).map_err(panicked)?
}

/// sled refuses to open beside the leftovers of a snapshot that was being written; removing them loses nothing
/// (measured).
pub(super) fn remove_stale_snapshots(path: &Path) -> Result<(), OpenError> {
    let io = |error| OpenError::Io { path: path.to_owned(), error };
    for entry in fs::read_dir(path).map_err(io)? {
        let entry = entry.map_err(io)?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.starts_with("snap.") && name.ends_with(".generating") {
            fs::remove_file(entry.path()).map_err(io)?;
        }
    }
    Ok(())
}

/// Opens sled on a thread of its own: damage can make it panic or hang, and neither may be the last word.
pub(super) fn open_sled(path: &Path, cache_bytes: u64) -> Result<Db, OpenError> {
    let config = ::sled::Config::new()
        .path(path)
        .cache_capacity(cache_bytes)
        .segment_size(4 << 20)
        .flush_every_ms(Some(CLEAN_EVERY_MS));
    let (tell, told) = mpsc::sync_channel(1);
    let opening = move || {
        let opened = panics::catch(|| open_patiently(&config));
        // Nobody listens any more if the time limit has passed; the process is ending then.
        drop(tell.send(opened));
    };
    let io = |error| OpenError::Io { path: path.to_owned(), error };
    std::thread::Builder::new().name("sled-open".into()).spawn(opening).map_err(io)?;
    let damaged = |what: String| OpenError::Damaged { path: path.to_owned(), what };
    match told.recv_timeout(OPEN_LIMIT) {
        Ok(Ok(Ok(db))) => Ok(db),
        // sled's own lock, which is in the way for long only if somebody removed the directory's lock file.
        Ok(Ok(Err(error))) if is_locked(&error) => {
            let path = path.parent().unwrap_or(path).to_owned();
            Err(DirectoryError::InUse { path, holder: "another process".into() }.into())
        }
        Ok(Ok(Err(::sled::Error::Io(error)))) if !is_damage(&error) => Err(io(error)),
        Ok(Ok(Err(error))) => Err(damaged(sled_says(&error))),
        Ok(Err(_panic)) => Err(damaged("sled panicked while opening its files".into())),
        Err(mpsc::RecvTimeoutError::Timeout) => Err(OpenError::TimedOut { path: path.to_owned() }),
        Err(mpsc::RecvTimeoutError::Disconnected) => Err(damaged("sled's thread ended".into())),
    }
}

/// Opens sled, waiting a moment for its own lock: a process that dies gives the directory's lock and this one back in
/// no certain order, and sled's threads may let go of it after its last handle is gone.
pub(super) fn open_patiently(config: &::sled::Config) -> ::sled::Result<Db> {
    let mut waited = Duration::ZERO;
    loop {
        match config.open() {
            Err(error) if is_locked(&error) && waited < LOCK_PATIENCE => {
                std::thread::sleep(LOCK_STEP);
                waited += LOCK_STEP;
            }
            opened => return opened,
        }
    }
}

/// Whether somebody else holds sled's files. sled has no kind of error for it, only a text.
fn is_locked(error: &::sled::Error) -> bool {
    matches!(error, ::sled::Error::Io(error) if error.to_string().contains("could not acquire lock"))
}

/// Whether sled speaks of damage with an error of the operating system.
fn is_damage(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::InvalidData | std::io::ErrorKind::UnexpectedEof)
        || error.to_string().contains("orrupt")
}

/// What sled says, in words for an operator.
pub(super) fn sled_says(error: &::sled::Error) -> String {
    let text = match error {
        ::sled::Error::Corruption { at: Some(at), .. } => {
            let at = format!("{at:?}");
            let digits: String =
                at.chars().skip_while(|c| !c.is_ascii_digit()).take_while(char::is_ascii_digit).collect();
            return format!("what stands at offset {digits} of db cannot be read");
        }
        ::sled::Error::Corruption { at: None, .. } => return "a part of db cannot be read".to_owned(),
        other => other.to_string(),
    };
    let text = text.replace("backtrace ()", "");
    text.trim().to_owned()
}
