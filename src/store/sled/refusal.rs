//! What an operator must know beyond what the system says when it refuses: which file, how much room there was.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use rustix::fs::Access;

use super::compaction::size_of;
use super::directory::{DirectoryError, may};
use super::open::OpenError;

/// What a new store takes, in bytes: two files of the journal of 1 MiB, and sled's first segment of 4 MiB. More than was
/// measured.
const NEW_BYTES: u64 = 8 << 20;
/// How many files and directories a new store consists of while it is made. More than was measured.
const NEW_FILES: u64 = 16;
/// What a start of a store may take beside what it carries over, in bytes: the room that is held for sled, and what is
/// left alone.
const START_BYTES: u64 = 32 << 20;

/// The room on the disk of a data directory, before anything was written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Before {
    bytes: u64,
    /// Not known where a file system makes them as it needs them.
    files: Option<u64>,
    /// What the journal of the store has, in bytes; nothing where there was no store.
    journal: Option<u64>,
}

impl Before {
    /// Nothing where the disk cannot be asked.
    pub(super) fn of(root: &Path) -> Option<Self> {
        // A directory that is going to be made comes to lie on the disk of the nearest one that is there.
        let there =
            root.ancestors().map(|part| if part.as_os_str().is_empty() { Path::new(".") } else { part });
        let found = there.filter(|part| part.exists()).find_map(|part| rustix::fs::statvfs(part).ok())?;
        let files = (found.f_files > 0).then_some(found.f_favail);
        let bytes = found.f_bavail.saturating_mul(found.f_frsize);
        Some(Self { bytes, files, journal: journal_bytes(root) })
    }

    /// What is needed and what there was.
    fn told(self) -> String {
        let needed = match self.journal {
            // sled writes what it is given at up to twice its size.
            Some(bytes) => format!("a start needs up to {} bytes", START_BYTES + 2 * bytes),
            None => format!("a new store needs up to {NEW_BYTES} bytes and {NEW_FILES} files"),
        };
        let files = self.files.map_or_else(String::new, |files| format!(" and {files} files (inodes)"));
        format!("{needed}; {} bytes{files} were free", self.bytes)
    }
}

fn journal_bytes(root: &Path) -> Option<u64> {
    let generation = root.join(std::fs::read_to_string(root.join("CURRENT")).ok()?.trim_end());
    Some(["journal-0", "journal-1"].iter().map(|file| size_of(&generation.join(file))).sum())
}

/// Says more about an error, where more is known.
pub(super) fn explained(error: OpenError, root: &Path, before: Option<Before>) -> OpenError {
    match error {
        OpenError::Io { path, error } | OpenError::Directory(DirectoryError::Io { path, error, .. })
            if is_full(&error) =>
        {
            let place = place(path.strip_prefix(root).unwrap_or(&path));
            let told = before.map_or_else(|| "what was free is not known".to_owned(), Before::told);
            OpenError::Full { path: root.to_owned(), place, error, told }
        }
        OpenError::Io { path, error } if error.kind() == ErrorKind::PermissionDenied => {
            OpenError::Io { path: denied(&path).unwrap_or(path), error }
        }
        other => other,
    }
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
}

/// The first thing in a generation that this process may not use. sled does not tell which one it was.
fn denied(path: &Path) -> Option<PathBuf> {
    let files = std::fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut all: Vec<_> = files.collect();
    all.sort();
    std::iter::once(path.to_owned()).chain(all).find(|path| is_denied(path))
}

fn is_denied(path: &Path) -> bool {
    let both = Access::READ_OK | Access::WRITE_OK;
    let needed = if path.is_dir() { both | Access::EXEC_OK } else { both };
    may(path, needed).is_err()
}

/// A place in the data directory, as it stands in a message that names the directory.
pub(super) fn place(within: &Path) -> String {
    if within.as_os_str().is_empty() { String::new() } else { format!("{}: ", within.display()) }
}
