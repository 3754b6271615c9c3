//! Opening: from a directory to a store that serves.

use std::collections::HashMap;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use ::sled::Db;
use task_broker_core::{TaskId, Timestamp};

use super::directory::{Directory, DirectoryError, LOCK_PATIENCE, LOCK_STEP};
use super::disk::{Disk, read_head};
use super::index::Index;
use super::intern::Interner;
use super::ledger::Ledger;
use super::{keys, seal};
use crate::store::random_name;

/// The version of the layout on disk. See migrations/README.md.
const FORMAT: u64 = 1;

/// How long sled may take to open. A million tasks take a few seconds; some damage makes it hang.
const OPEN_LIMIT: Duration = Duration::from_mins(5);

/// How an embedded store is opened.
#[derive(Clone, Debug)]
pub struct SledOptions {
    /// The data directory.
    pub path: PathBuf,
    /// Refuse to make a new store.
    pub existing_only: bool,
    /// sled's cache in bytes. Its real use of memory is a multiple of this.
    pub cache_bytes: u64,
}

impl SledOptions {
    /// The options with which the broker opens a store by default.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), existing_only: false, cache_bytes: 64 << 20 }
    }
}

/// Why a store cannot be opened. The text tells an operator where and what.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The directory.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    /// Stored data is missing or wrong.
    #[error("the store in {} is damaged: {what}. No task was changed; restore a backup", .path.display())]
    Damaged {
        /// The generation.
        path: PathBuf,
        /// What is wrong, and where.
        what: String,
    },
    /// Written by another version of this program.
    #[error("the store in {} has format {found}, this program knows format {known}", .path.display(), known = FORMAT)]
    Format {
        /// The generation.
        path: PathBuf,
        /// Its format.
        found: u64,
    },
    /// sled did not come back.
    #[error("the store in {} did not open within {} s", .path.display(), OPEN_LIMIT.as_secs())]
    TimedOut {
        /// The generation.
        path: PathBuf,
    },
    /// The operating system says no.
    #[error("cannot open the store in {}: {error}", .path.display())]
    Io {
        /// The generation.
        path: PathBuf,
        /// What the system said.
        error: std::io::Error,
    },
}

/// Everything that an open store is made of.
pub(super) struct Opened {
    pub(super) directory: Directory,
    pub(super) db: Db,
    pub(super) disk: Disk,
    pub(super) index: Index,
    pub(super) ledger: Ledger,
    pub(super) names: Interner,
    pub(super) store_id: String,
    pub(super) clean: bool,
    /// The highest time that was persisted.
    pub(super) floor: Timestamp,
    pub(super) fresh: bool,
}

/// Opens the store, or says what is wrong with it.
pub(super) fn open(options: &SledOptions) -> Result<Opened, OpenError> {
    let mut directory = Directory::hold(&options.path, options.existing_only)?;
    let fresh = directory.fresh;
    let path = directory.generation.clone();
    remove_stale_snapshots(&path)?;
    let db = open_sled(&path, options.cache_bytes)?;
    if fresh {
        initialise(&db, &path)?;
        directory.complete()?;
    }
    let damaged = |what: String| OpenError::Damaged { path: path.clone(), what };
    let read = catch_unwind(AssertUnwindSafe(|| read_all(&db, &path)));
    let mut loaded = read.map_err(|_panic| damaged("sled panicked while reading".into()))??;
    if fs::read_dir(path.join("blobs")).is_ok_and(|mut blobs| blobs.next().is_some()) {
        return Err(damaged("there are files in blobs/, which this program never makes".into()));
    }
    let io = |error| OpenError::Io { path: path.clone(), error };
    let mut disk = Disk::new(db.clone(), &path).map_err(io)?;
    for (id, pieces) in loaded.overflows.drain() {
        disk.know_overflow(id, pieces);
    }
    if loaded.clean {
        // From here on a stop is unclean until it is marked clean again, durably.
        let unmark = || db.remove(keys::CLEAN).and_then(|_old| db.flush());
        unmark().map_err(|error| damaged(error.to_string()))?;
        fs::File::open(path.join("db")).and_then(|file| file.sync_data()).map_err(io)?;
    }
    Ok(Opened {
        directory,
        db,
        disk,
        index: loaded.index,
        ledger: loaded.ledger,
        names: loaded.names,
        store_id: loaded.store_id,
        clean: loaded.clean,
        floor: loaded.floor,
        fresh,
    })
}

/// sled refuses to open beside the leftovers of a snapshot that was being written; removing them loses nothing
/// (measured).
fn remove_stale_snapshots(path: &Path) -> Result<(), OpenError> {
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
fn open_sled(path: &Path, cache_bytes: u64) -> Result<Db, OpenError> {
    let config = ::sled::Config::new()
        .path(path)
        .cache_capacity(cache_bytes)
        .segment_size(4 << 20)
        .flush_every_ms(Some(500));
    let (tell, told) = mpsc::sync_channel(1);
    let opening = move || {
        let opened = catch_unwind(AssertUnwindSafe(|| open_patiently(&config)));
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
        Ok(Ok(Err(::sled::Error::Io(error)))) => Err(io(error)),
        Ok(Ok(Err(error))) => Err(damaged(error.to_string())),
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

/// Writes the facts about a new store, durably.
fn initialise(db: &Db, path: &Path) -> Result<(), OpenError> {
    let io = |error| OpenError::Io { path: path.to_owned(), error };
    let id = random_name().map_err(io)?;
    let write = |key: &[u8], body: &[u8]| db.insert(key, seal::seal(key, body));
    write(keys::FORMAT, &FORMAT.to_be_bytes())
        .and_then(|_old| write(keys::STORE_ID, id.as_bytes()))
        .and_then(|_old| db.flush())
        .map_err(|error| OpenError::Damaged { path: path.to_owned(), what: error.to_string() })?;
    for name in ["db", "conf"] {
        fs::File::open(path.join(name)).and_then(|file| file.sync_all()).map_err(io)?;
    }
    Ok(())
}

struct Loaded {
    index: Index,
    ledger: Ledger,
    names: Interner,
    overflows: HashMap<TaskId, Vec<Vec<u8>>>,
    store_id: String,
    clean: bool,
    floor: Timestamp,
}

/// Reads the facts and all heads. Payloads are proved when they are read.
fn read_all(db: &Db, path: &Path) -> Result<Loaded, OpenError> {
    let damaged = |what: String| OpenError::Damaged { path: path.to_owned(), what };
    let fact = |key: &'static [u8]| -> Result<Option<Vec<u8>>, OpenError> {
        let name = String::from_utf8_lossy(key);
        let value = db.get(key).map_err(|error| damaged(format!("{name}: {error}")))?;
        let body = value.map(|value| seal::open(key, &value).map(<[u8]>::to_vec)).transpose();
        body.map_err(|broken| damaged(format!("{name}: {broken}")))
    };
    let number = |key: &'static [u8]| -> Result<Option<u64>, OpenError> {
        let wrong = |_length| damaged(format!("{}: wrong length", String::from_utf8_lossy(key)));
        fact(key)?.map(|body| body.try_into().map(u64::from_be_bytes).map_err(wrong)).transpose()
    };
    match number(keys::FORMAT)? {
        Some(FORMAT) => {}
        Some(found) => return Err(OpenError::Format { path: path.to_owned(), found }),
        None => return Err(damaged("the record of the format is missing".into())),
    }
    let store_id = fact(keys::STORE_ID)?.and_then(|body| String::from_utf8(body).ok());
    let store_id = store_id.ok_or_else(|| damaged("the record of the store's id is missing".into()))?;
    let mut loaded = Loaded {
        index: Index::new(),
        ledger: Ledger::default(),
        names: Interner::default(),
        overflows: HashMap::new(),
        store_id,
        clean: fact(keys::CLEAN)?.is_some(),
        floor: Timestamp::from_millis(number(keys::CLOCK)?.unwrap_or(0)),
    };
    for entry in db.scan_prefix([keys::HEAD]) {
        let (key, value) = entry.map_err(|error| damaged(format!("reading heads: {error}")))?;
        let id = keys::task_of(&key).filter(|_| key.len() == 17);
        let id = id.ok_or_else(|| damaged(format!("a head has a key of {} bytes", key.len())))?;
        let (task, pieces) = read_head(db, id, &key, &value, &mut loaded.names)
            .map_err(|broken| damaged(format!("the head of task {id}: {broken}")))?;
        if !pieces.is_empty() {
            loaded.overflows.insert(id, pieces);
        }
        loaded.floor = loaded.floor.max(task.updated_at);
        loaded.ledger.follow(None, Some(&task));
        loaded.index.publish(&Arc::new(task));
    }
    Ok(loaded)
}
