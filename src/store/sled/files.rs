//! sled's files as they are in use. A renewal puts others in their place while the store serves.

use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use ::sled::Db;
use parking_lot::RwLock;

/// See the module. sled holds its files while one of these lives.
#[derive(Debug)]
pub(super) struct Files {
    db: RwLock<Db>,
    /// Under a lock of its own: whoever asks whether it is gone must not have to wait for a read that hangs.
    identity: RwLock<Identity>,
}

/// The file that sled writes to, and where it must be found: a process can go on writing to a file that somebody has
/// deleted or moved away, and everything it acknowledges then is lost.
#[derive(Clone, Debug)]
struct Identity {
    path: PathBuf,
    device: u64,
    inode: u64,
}

impl Identity {
    fn of(path: &Path) -> std::io::Result<Self> {
        let found = std::fs::metadata(path)?;
        Ok(Self { device: found.dev(), inode: found.ino(), path: path.to_owned() })
    }
}

impl Files {
    /// A database, and the file that it is in.
    pub(super) fn new(db: Db, path: &Path) -> std::io::Result<Self> {
        Ok(Self { db: RwLock::new(db), identity: RwLock::new(Identity::of(path)?) })
    }

    /// Puts others in their place, when nobody is reading. What held the old ones is dropped, outside the lock.
    pub(super) fn replace(&self, db: Db, path: &Path) -> std::io::Result<()> {
        *self.identity.write() = Identity::of(path)?;
        let old = std::mem::replace(&mut *self.db.write(), db);
        drop(old);
        Ok(())
    }

    /// Reads from the database.
    pub(super) fn read<T>(&self, read: impl FnOnce(&Db) -> T) -> T {
        read(&self.db.read())
    }

    /// Where the file is that is gone, if another one or none is there now. Not being able to look proves nothing.
    pub(super) fn gone(&self) -> Option<PathBuf> {
        // A disk that hangs must hang nobody but whoever asks.
        let identity = self.identity.read().clone();
        let gone = match std::fs::metadata(&identity.path) {
            Ok(found) => (found.dev(), found.ino()) != (identity.device, identity.inode),
            Err(error) => error.kind() == ErrorKind::NotFound,
        };
        // It may have been replaced, and removed, in between.
        (gone && self.identity.read().path == identity.path).then_some(identity.path)
    }
}
