//! The data directory: who holds it, and which generation of the data is the current one.
//!
//! ```text
//! data/LOCK            held with flock while a process uses the directory; contains its process id
//! data/CURRENT         the name of the current generation; written beside, synced, renamed
//! data/generation-1/   sled's files
//! ```

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};

/// How long a start waits for a process that is just ending.
pub(super) const LOCK_PATIENCE: Duration = Duration::from_secs(5);
pub(super) const LOCK_STEP: Duration = Duration::from_millis(20);

/// In a generation that is not complete yet: nothing was ever acknowledged from it.
const INCOMPLETE: &str = "INCOMPLETE";
const CURRENT: &str = "CURRENT";
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
    #[error("{} holds no store, and --existing-store-only forbids making one", .0.display())]
    Missing(PathBuf),
    /// There is something, but not a store.
    #[error("{} is not empty but has no readable CURRENT file: it is not a store, or a damaged one. Nothing was \
             changed. Restore CURRENT (it names the generation directory), restore a backup, or choose an empty \
             directory", .0.display())]
    NotAStore(PathBuf),
}

fn io(path: &Path, what: &'static str) -> impl FnOnce(io::Error) -> DirectoryError {
    let path = path.to_owned();
    move |error| DirectoryError::Io { path, what, error }
}

/// A data directory that this process holds.
#[derive(Debug)]
pub(super) struct Directory {
    root: PathBuf,
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
        if !root.exists() {
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
        let lock = take_lock(root)?;
        let (generation, fresh) = match look(root, existing_only)? {
            Some(generation) => {
                remove_mark(&generation)?;
                (generation, false)
            }
            None => (make_first_generation(root)?, true),
        };
        Ok(Self { root: root.to_owned(), _lock: lock, generation, fresh })
    }

    /// Makes a fresh generation the current one. Everything in it must be durable.
    pub(super) fn complete(&mut self) -> Result<(), DirectoryError> {
        sync_directory(&self.generation)?;
        let current = self.root.join(CURRENT);
        let beside = self.root.join("CURRENT.new");
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&beside)
            .map_err(io(&beside, "cannot create"))?;
        file.write_all(format!("{FIRST}\n").as_bytes())
            .and_then(|()| file.sync_all())
            .map_err(io(&beside, "cannot write"))?;
        fs::rename(&beside, &current).map_err(io(&current, "cannot rename"))?;
        sync_directory(&self.root)?;
        remove_mark(&self.generation)?;
        self.fresh = false;
        Ok(())
    }
}

fn take_lock(root: &Path) -> Result<File, DirectoryError> {
    let path = root.join("LOCK");
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(&path)
        .map_err(io(&path, "cannot open the lock file"))?;
    let mut waited = Duration::ZERO;
    // The lock belongs to the open file and goes with the process, so a file left behind never blocks. A process
    // that was just killed may need a moment to let go.
    while let Err(error) = flock(&file, FlockOperation::NonBlockingLockExclusive) {
        if error != rustix::io::Errno::WOULDBLOCK && error != rustix::io::Errno::INTR {
            return Err(io(&path, "cannot lock")(error.into()));
        }
        if waited >= LOCK_PATIENCE {
            let mut holder = String::new();
            let read = (&file).take(32).read_to_string(&mut holder);
            let known = read.is_ok() && holder.trim().parse::<u32>().is_ok();
            let holder = if known { format!("process {}", holder.trim()) } else { "another process".into() };
            return Err(DirectoryError::InUse { path: root.to_owned(), holder });
        }
        std::thread::sleep(LOCK_STEP);
        waited += LOCK_STEP;
    }
    file.set_len(0)
        .and_then(|()| file.write_all(std::process::id().to_string().as_bytes()))
        .map_err(io(&path, "cannot write"))?;
    Ok(file)
}

fn generation_named(root: &Path, name: &str) -> Result<PathBuf, DirectoryError> {
    let name = name.trim_end_matches('\n');
    let number = name.strip_prefix("generation-").and_then(|number| number.parse::<u64>().ok());
    let generation = root.join(name);
    // Only a name that this program writes: CURRENT must not lead anywhere else.
    if number.is_none() || !generation.join("db").is_file() {
        return Err(DirectoryError::NotAStore(root.to_owned()));
    }
    Ok(generation)
}

/// The current generation, or nothing where a store may be made. Changes nothing.
fn look(root: &Path, existing_only: bool) -> Result<Option<PathBuf>, DirectoryError> {
    let current = root.join(CURRENT);
    match fs::read_to_string(&current) {
        Ok(name) => generation_named(root, &name).map(Some),
        Err(error) if error.kind() == io::ErrorKind::NotFound && existing_only => {
            Err(DirectoryError::Missing(root.to_owned()))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => refuse_foreign(root).map(|()| None),
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            Err(DirectoryError::NotAStore(root.to_owned()))
        }
        Err(error) => Err(io(&current, "cannot read")(error)),
    }
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
        fs::remove_dir_all(&generation).map_err(io(&generation, "cannot remove"))?;
    }
    DirBuilder::new().mode(0o700).create(&generation).map_err(io(&generation, "cannot create"))?;
    let mark = generation.join(INCOMPLETE);
    File::create(&mark).and_then(|file| file.sync_all()).map_err(io(&mark, "cannot create"))?;
    sync_directory(&generation)?;
    sync_directory(root)?;
    Ok(generation)
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
