//! A key set in a file, which is read again.
//!
//! By time and not by notifications of the file system: these do not see a change behind a symbolic link, which is how
//! a container is given a new version of a secret, nor one on a network file system.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::MissedTickBehavior;

use super::{Complaints, take};
use crate::auth::{JwksError, Keyring, MAX_JWKS_BYTES, Source, read_bounded};
use crate::clock::Clock;

/// How often a file is looked at.
pub const FILE_EVERY: Duration = Duration::from_secs(2);

/// Why a file gave no keys.
#[derive(Debug, thiserror::Error)]
#[error("{}: {fault}", path.display())]
pub struct FileError {
    path: PathBuf,
    fault: Fault,
}

#[derive(Debug, thiserror::Error)]
enum Fault {
    #[error("cannot be read: {0}")]
    Unreadable(std::io::Error),
    #[error(transparent)]
    Content(#[from] JwksError),
}

/// A file with a key set.
#[derive(Debug)]
pub struct KeyFile {
    path: PathBuf,
    /// What it held the last time it was good.
    last: Vec<u8>,
}

/// The content of a file with a key set.
fn content(path: &Path) -> Result<Vec<u8>, Fault> {
    let content = read_bounded(path, MAX_JWKS_BYTES).map_err(Fault::Unreadable)?;
    content.ok_or(Fault::Content(JwksError::TooLarge))
}

impl KeyFile {
    /// Reads the file for the first time.
    ///
    /// # Errors
    /// [`FileError`] names the file.
    pub fn read(path: &Path, keyring: &Keyring, clock: &Clock) -> Result<Self, FileError> {
        let read = || {
            let last = content(path)?;
            take(keyring, Source::File, &last, clock)?;
            Ok(Self { path: path.to_owned(), last })
        };
        read().map_err(|fault| FileError { path: path.to_owned(), fault })
    }

    /// Reads the file again and again; never ends.
    pub(super) async fn run(self, keyring: &Keyring, clock: &Clock) {
        let Self { path, mut last } = self;
        let mut complaints = Complaints::default();
        let mut ticks = tokio::time::interval(FILE_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let path = path.clone();
            // A file system that hangs must not take a thread of the runtime with it.
            let Ok(read) = tokio::task::spawn_blocking(move || content(&path)).await else { continue };
            let taken = read.and_then(|content| {
                if content == last {
                    keyring.confirm(Source::File, clock.now());
                    return Ok(());
                }
                take(keyring, Source::File, &content, clock)?;
                last = content;
                Ok(())
            });
            match taken {
                Ok(()) => complaints.worked("the file with the key set is good again"),
                Err(fault) => {
                    // It was read before the broker started.
                    complaints.failed("the file with the key set cannot be used", true, &fault);
                }
            }
        }
    }
}
