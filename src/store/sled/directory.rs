//! The data directory: who holds it, and which generation of the data is the current one.
//!
//! ```text
//! data/LOCK            held with flock while a process uses the directory; contains its process id
//! data/CURRENT         the name of the current generation; written beside, synced, renamed
//! data/generation-1/   the data: sled's files and the journal
//! ```
//!
//! A generation that is being written beside the current one has the mark INCOMPLETE in it, and so has one that is being
//! removed: whatever has it may be thrown away. The mark is the first thing in and the last thing out.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{Access, AtFlags, CWD, FlockOperation, accessat, flock};
use rustix::io::Errno;

/// How long a start waits for a process that is just ending.
pub(super) const LOCK_PATIENCE: Duration = Duration::from_secs(5);
pub(super) const LOCK_STEP: Duration = Duration::from_millis(20);

/// In a generation that is not complete yet, or not complete any more: nothing in it is needed.
const INCOMPLETE: &str = "INCOMPLETE";
const CURRENT: &str = "CURRENT";
const LOCK: &str = "LOCK";
const FIRST: &str = "generation-1";

/// Why a data directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DirectoryError {
    /// The operating system says no.
    #[error("{path}: {what}: {error} (uid {uid})", path = .path.display(), uid = rustix::process::getuid().as_raw())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// What was tried.
        what: &'static str,
        /// What the system said.
        error: io::Error,
    },
    /// Another process uses it.
    #[error("the data directory {} is in use by {holder}; stop that process or choose another directory", .path.display())]
    InUse {
        /// The data directory.
        path: PathBuf,
        /// Who, as far as is known.
        holder: String,
    },
    /// There is no store, and none may be made.
    #[error("{} holds no store: it is not there, or empty but for what an interrupted start leaves", .0.display())]
    Missing(PathBuf),
    /// There is something, but not a store.
    #[error("{} is not empty but has no readable CURRENT file: it is not a store, or a damaged one. Nothing was \
             changed. Restore CURRENT (it names the generation directory), restore a backup, or choose an empty \
             directory", .0.display())]
    NotAStore(PathBuf),
    /// CURRENT names something that is not there.
    #[error("{}: CURRENT names {generation}, and {missing}. Nothing was changed. Restore what is missing from a backup, \
             or correct CURRENT if the data is under another name", .path.display())]
    NoGeneration {
        /// The data directory.
        path: PathBuf,
        /// The generation.
        generation: String,
        /// What of it is missing.
        missing: &'static str,
    },
}

fn io(path: &Path, what: &'static str) -> impl FnOnce(io::Error) -> DirectoryError {
    let path = path.to_owned();
    move |error| DirectoryError::Io { path, what, error }
}

/// A data directory that this process holds.
#[derive(Debug)]
pub(super) struct Directory {
    pub(super) root: PathBuf,
    /// Held until the process ends or this is dropped.
    _lock: File,
    /// The generation in use.
    pub(super) generation: PathBuf,
    /// Whether the generation was made just now and is to be completed.
    pub(super) fresh: bool,
}

impl Directory {
    /// Takes the directory, making it and a first generation if there is nothing and that is allowed.
    pub(super) fn hold(root: &Path, existing_only: bool) -> Result<Self, DirectoryError> {
        if !is_there(root)? {
            if existing_only {
                return Err(DirectoryError::Missing(root.to_owned()));
            }
            DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(root)
                .map_err(io(root, "cannot create the data directory"))?;
            sync_parent(root)?;
        }
        // First without a trace: in a directory that is refused not even a lock file may appear.
        look(root, existing_only)?;
        may_write(root)?;
        let lock = take_lock(root)?;
        let (generation, fresh) = match look(root, existing_only)? {
            Some(generation) => {
                may_write(&generation)?;
                remove_mark(&generation)?;
                (generation, false)
            }
            None => (make_first_generation(root)?, true),
        };
        Ok(Self { root: root.to_owned(), _lock: lock, generation, fresh })
    }

    /// Makes a fresh generation the current one. Everything in it must be durable.
    pub(super) fn complete(&mut self) -> Result<(), DirectoryError> {
        let generation = self.generation.clone();
        self.turn_to(generation)
    }

    /// Makes this generation the current one. Everything in it must be durable, and proved.
    pub(super) fn turn_to(&mut self, generation: PathBuf) -> Result<(), DirectoryError> {
        sync_directory(&generation)?;
        let name = generation.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let current = self.root.join(CURRENT);
        let beside = self.root.join("CURRENT.new");
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&beside)
            .map_err(io(&beside, "cannot create"))?;
        file.write_all(format!("{name}\n").as_bytes())
            .and_then(|()| file.sync_all())
            .map_err(io(&beside, "cannot write"))?;
        fs::rename(&beside, &current).map_err(io(&current, "cannot rename"))?;
        sync_directory(&self.root)?;
        remove_mark(&generation)?;
        self.generation = generation;
        self.fresh = false;
        Ok(())
    }

    /// The number of the generation in use.
    fn number(&self) -> Option<u64> {
        self.generation.file_name().and_then(|name| number_of(&name.to_string_lossy()))
    }

    /// Whether CURRENT names this generation now. After a [`Directory::turn_to`] that failed that is not certain to stay.
    pub(super) fn is_current(&self, generation: &Path) -> bool {
        let named = fs::read_to_string(self.root.join(CURRENT));
        named.is_ok_and(|name| generation.ends_with(name.trim_end_matches('\n')))
    }

    /// Removes generations that were never completed: they take room that may be needed.
    pub(super) fn discard_interrupted(&self) -> Result<(), DirectoryError> {
        let current = self.number();
        for (number, path) in others(&self.root)? {
            if Some(number) != current && is_interrupted(&path)? {
                discard(&path)?;
            }
        }
        Ok(())
    }

    /// Makes a directory for the next generation, beside the current one, with the mark in it.
    pub(super) fn draft(&self) -> Result<PathBuf, DirectoryError> {
        let current = self.number();
        // What an earlier try has left takes room that this one may need.
        self.discard_interrupted()?;
        let newest = others(&self.root)?.into_iter().map(|(number, _)| number).max();
        let number = newest.max(current).unwrap_or_default().saturating_add(1);
        let generation = self.root.join(format!("generation-{number}"));
        make_generation(&self.root, &generation)?;
        Ok(generation)
    }

    /// Removes the generations that nobody needs: those that were never completed, and those before the current one,
    /// which must have been opened and proved. Anything else is left alone. Gives what was removed.
    pub(super) fn tidy(&self) -> Result<Vec<PathBuf>, DirectoryError> {
        let current = self.number();
        let mut removed = Vec::new();
        for (number, path) in others(&self.root)? {
            if Some(number) == current {
                continue;
            }
            if Some(number) < current || is_interrupted(&path)? {
                discard(&path)?;
                removed.push(path);
            } else {
                tracing::warn!(path = %path.display(), "a generation that CURRENT does not name is left alone");
            }
        }
        Ok(removed)
    }
}

/// A data directory that is looked at and not changed: nobody else can use it meanwhile.
#[derive(Debug)]
pub(super) struct Watched {
    _locks: Vec<File>,
    /// The generation in use.
    pub(super) generation: PathBuf,
}

/// Holds a directory without writing anything, not even who holds it.
pub(super) fn watch(root: &Path) -> Result<Watched, DirectoryError> {
    if !is_there(root)? {
        return Err(DirectoryError::Missing(root.to_owned()));
    }
    // First, so that of a place that is no directory nothing is said about a lock.
    look(root, true)?;
    let mut locks = Vec::new();
    let lock = root.join(LOCK);
    match File::open(&lock) {
        Ok(file) => {
            wait_for(&file, root, &lock)?;
            locks.push(file);
        }
        // Then no broker runs here; one that starts meets the lock on sled's file.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(io(&lock, "cannot open the lock file")(error)),
    }
    let Some(generation) = look(root, true)? else { return Err(DirectoryError::Missing(root.to_owned())) };
    let db = generation.join("db");
    let file = File::open(&db).map_err(io(&db, "cannot open"))?;
    wait_for(&file, root, &db)?;
    locks.push(file);
    Ok(Watched { _locks: locks, generation })
}

fn take_lock(root: &Path) -> Result<File, DirectoryError> {
    let path = root.join(LOCK);
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(&path)
        .map_err(io(&path, "cannot open the lock file"))?;
    wait_for(&file, root, &path)?;
    file.set_len(0)
        .and_then(|()| file.write_all(std::process::id().to_string().as_bytes()))
        .map_err(io(&path, "cannot write"))?;
    Ok(file)
}

/// Locks a file. The lock belongs to the open file and goes with the process, so a file left behind never blocks. A
/// process that was just killed may need a moment to let go.
fn wait_for(file: &File, root: &Path, path: &Path) -> Result<(), DirectoryError> {
    let mut waited = Duration::ZERO;
    while let Err(error) = flock(file, FlockOperation::NonBlockingLockExclusive) {
        if error != rustix::io::Errno::WOULDBLOCK && error != rustix::io::Errno::INTR {
            return Err(io(path, "cannot lock")(error.into()));
        }
        if waited >= LOCK_PATIENCE {
            return Err(DirectoryError::InUse { path: root.to_owned(), holder: holder(root) });
        }
        std::thread::sleep(LOCK_STEP);
        waited += LOCK_STEP;
    }
    Ok(())
}

/// Who holds the directory, as far as is known: whoever only looks at it leaves no name.
fn holder(root: &Path) -> String {
    let mut text = String::new();
    let read = File::open(root.join(LOCK)).and_then(|file| file.take(32).read_to_string(&mut text));
    let process = text.trim();
    let lives = process.parse::<u32>().is_ok() && Path::new("/proc").join(process).exists();
    if read.is_ok() && lives { format!("process {process}") } else { "another process".into() }
}

/// The number of a generation of this name.
fn number_of(name: &str) -> Option<u64> {
    let number = name.strip_prefix("generation-")?;
    // Only a name that this program writes: CURRENT must not lead anywhere else.
    number.parse().ok().filter(|parsed: &u64| parsed.to_string() == number)
}

/// All generations, whether they are needed or not.
fn others(root: &Path) -> Result<Vec<(u64, PathBuf)>, DirectoryError> {
    let mut found = Vec::new();
    for entry in fs::read_dir(root).map_err(io(root, "cannot read"))? {
        let entry = entry.map_err(io(root, "cannot read"))?;
        if let Some(number) = number_of(&entry.file_name().to_string_lossy())
            && entry.path().is_dir()
        {
            found.push((number, entry.path()));
        }
    }
    Ok(found)
}

fn generation_named(root: &Path, name: &str) -> Result<PathBuf, DirectoryError> {
    let name = name.trim_end_matches('\n');
    if number_of(name).is_none() {
        return Err(DirectoryError::NotAStore(root.to_owned()));
    }
    let generation = root.join(name);
    let missing = |missing| {
        Err(DirectoryError::NoGeneration { path: root.to_owned(), generation: name.to_owned(), missing })
    };
    if !generation.is_dir() {
        return missing("there is no such directory");
    }
    match fs::metadata(generation.join("db")) {
        Ok(db) if !db.is_file() => missing("the file db in it is no file"),
        // sled would take it for a new database.
        Ok(db) if db.len() == 0 => missing("the file db in it is empty"),
        Ok(_) => Ok(generation),
        Err(error) if error.kind() == io::ErrorKind::NotFound => missing("the file db in it is missing"),
        Err(error) => Err(io(&generation.join("db"), "cannot read")(error)),
    }
}

/// The current generation, or nothing where a store may be made. Changes nothing.
fn look(root: &Path, existing_only: bool) -> Result<Option<PathBuf>, DirectoryError> {
    let current = root.join(CURRENT);
    match fs::read_to_string(&current) {
        Ok(name) => generation_named(root, &name).map(Some),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            refuse_foreign(root)?;
            if existing_only { Err(DirectoryError::Missing(root.to_owned())) } else { Ok(None) }
        }
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            Err(DirectoryError::NotAStore(root.to_owned()))
        }
        Err(error) => Err(io(&current, "cannot read")(error)),
    }
}

/// Whether there is anything at this place. Not being able to look is an error.
fn is_there(root: &Path) -> Result<bool, DirectoryError> {
    root.try_exists().map_err(io(root, "cannot look at the data directory"))
}

/// Refuses a directory in which this process may not make files. Those that a start opens may all be there already;
/// those that are made later would be missed too late.
fn may_write(directory: &Path) -> Result<(), DirectoryError> {
    may(directory, Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK)
        .map_err(io(directory, "cannot write in the directory"))
}

/// Whether this process may do that, as far as the system tells: an error of another kind proves nothing.
pub(super) fn may(path: &Path, access: Access) -> io::Result<()> {
    match accessat(CWD, path, access, AtFlags::EACCESS) {
        Err(error @ (Errno::ACCESS | Errno::ROFS)) => Err(error.into()),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Whether there may have been a store: CURRENT or a generation is left of it.
pub(super) fn is_remnant(root: &Path) -> bool {
    root.join(CURRENT).exists() || others(root).is_ok_and(|found| !found.is_empty())
}

/// Refuses a directory that holds anything but what an interrupted first start leaves.
fn refuse_foreign(root: &Path) -> Result<(), DirectoryError> {
    let generation = root.join(FIRST);
    for entry in fs::read_dir(root).map_err(io(root, "cannot read"))? {
        let entry = entry.map_err(io(root, "cannot read"))?;
        let name = entry.file_name();
        let ours = name == "LOCK" || name == "CURRENT.new" || name == "lost+found";
        let interrupted = entry.path() == generation && is_interrupted(&generation)?;
        if !ours && !interrupted {
            return Err(DirectoryError::NotAStore(root.to_owned()));
        }
    }
    Ok(())
}

fn make_first_generation(root: &Path) -> Result<PathBuf, DirectoryError> {
    let generation = root.join(FIRST);
    if generation.exists() {
        discard(&generation)?;
    }
    make_generation(root, &generation)?;
    Ok(generation)
}

fn make_generation(root: &Path, generation: &Path) -> Result<(), DirectoryError> {
    DirBuilder::new().mode(0o700).create(generation).map_err(io(generation, "cannot create"))?;
    set_mark(generation)?;
    sync_directory(root)
}

fn set_mark(generation: &Path) -> Result<(), DirectoryError> {
    let mark = generation.join(INCOMPLETE);
    File::create(&mark).and_then(|file| file.sync_all()).map_err(io(&mark, "cannot create"))?;
    sync_directory(generation)
}

/// Removes a generation that was never completed and is not going to be.
pub(super) fn abandon(generation: &Path) {
    if let Err(error) = discard(generation) {
        tracing::warn!(%error, "an unfinished generation could not be removed; the next start does it");
    }
}

/// Removes a generation. The mark is there from the first removal to the last, so that wherever this is cut, the rest
/// is known for what it is.
pub(super) fn discard(generation: &Path) -> Result<(), DirectoryError> {
    discard_in_steps(generation, &mut || {})
}

fn discard_in_steps(generation: &Path, step: &mut dyn FnMut()) -> Result<(), DirectoryError> {
    set_mark(generation)?;
    step();
    for entry in fs::read_dir(generation).map_err(io(generation, "cannot read"))? {
        let path = entry.map_err(io(generation, "cannot read"))?.path();
        if path.ends_with(INCOMPLETE) {
            continue;
        }
        let removed = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        removed.map_err(io(&path, "cannot remove"))?;
        step();
    }
    // The mark must not go before the others have, durably.
    sync_directory(generation)?;
    remove_mark(generation)?;
    step();
    fs::remove_dir(generation).map_err(io(generation, "cannot remove"))?;
    sync_parent(generation)
}

/// A generation that CURRENT names is complete. A mark that is left in it by an unlucky stop would say, should CURRENT
/// ever be lost, that its data may be thrown away.
fn remove_mark(generation: &Path) -> Result<(), DirectoryError> {
    let mark = generation.join(INCOMPLETE);
    match fs::remove_file(&mark) {
        Ok(()) => sync_directory(generation),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(io(&mark, "cannot remove")(error)),
    }
}

/// Whether a first start was interrupted here: then nothing in it was ever acknowledged.
fn is_interrupted(generation: &Path) -> Result<bool, DirectoryError> {
    let empty = || fs::read_dir(generation).map(|mut entries| entries.next().is_none());
    Ok(generation.join(INCOMPLETE).exists() || empty().map_err(io(generation, "cannot read"))?)
}

/// How many bytes this process may still write to the file system that `path` is on.
pub(super) fn free_bytes(path: &Path) -> io::Result<u64> {
    let found = rustix::fs::statvfs(path)?;
    Ok(found.f_bavail.saturating_mul(found.f_frsize))
}

fn sync_directory(path: &Path) -> Result<(), DirectoryError> {
    File::open(path).and_then(|directory| directory.sync_all()).map_err(io(path, "cannot sync"))
}

fn sync_parent(path: &Path) -> Result<(), DirectoryError> {
    match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => sync_directory(Path::new(".")),
        Some(parent) => sync_directory(parent),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wherever_a_removal_is_cut_the_next_start_goes_on_with_it() {
        let names = |root: &Path| {
            let mut names: Vec<_> =
                fs::read_dir(root).unwrap().map(|entry| entry.unwrap().file_name()).collect();
            names.sort();
            names
        };
        let directory = tempfile::tempdir().unwrap();
        let generation = directory.path().join(FIRST);
        fs::create_dir_all(generation.join("blobs")).unwrap();
        for name in ["conf", "db", "journal-0", "journal-1", "snap.0", INCOMPLETE] {
            fs::write(generation.join(name), "x").unwrap();
        }
        let mut steps = 0;
        discard_in_steps(&generation, &mut || {
            steps += 1;
            assert!(is_interrupted(&generation).unwrap(), "{:?}", names(&generation));
            refuse_foreign(directory.path()).unwrap();
        })
        .unwrap();
        assert_eq!(steps, 8);
        assert!(!generation.exists());
    }
}
