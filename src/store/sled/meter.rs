//! Numbers about the store for whoever asks: kept while the work is done, so that asking costs the writer nothing.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use task_broker_core::{Status, Task};

use super::directory;
use crate::histogram::{Histogram, MICROSECONDS, POWERS_OF_TWO};

/// What the writer tells.
#[derive(Debug)]
pub(super) struct Meter {
    /// How long commits took.
    pub(super) commits: Histogram,
    /// How many commands shared one.
    pub(super) group_commands: Histogram,
    /// How much of the current file of the journal is written, in bytes.
    pub(super) journal: AtomicU64,
    /// How long that file is.
    pub(super) journal_capacity: AtomicU64,
    /// How many tasks have expired and are still there.
    pub(super) expired: AtomicU64,
}

impl Default for Meter {
    fn default() -> Self {
        Self {
            commits: Histogram::new(MICROSECONDS),
            group_commands: Histogram::new(POWERS_OF_TWO),
            journal: AtomicU64::new(0),
            journal_capacity: AtomicU64::new(0),
            expired: AtomicU64::new(0),
        }
    }
}

impl Meter {
    /// Whether less than half of the journal's current file was written when that was last told.
    pub(super) fn journal_is_half_empty(&self) -> bool {
        self.journal.load(Ordering::Relaxed) * 2 < self.journal_capacity.load(Ordering::Relaxed)
    }
}

/// How many tasks readers see, by status, and what they take.
#[derive(Debug, Default)]
pub(super) struct Tally {
    tasks: [AtomicU64; Status::ALL.len()],
    bytes: AtomicU64,
}

impl Tally {
    fn of(&self, task: &Task) -> Option<&AtomicU64> {
        let status = task.status();
        let at = Status::ALL.iter().position(|known| *known == status)?;
        self.tasks.get(at)
    }

    /// Counts a task in.
    pub(super) fn add(&self, task: &Task) {
        if let Some(count) = self.of(task) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        self.bytes.fetch_add(task.footprint(), Ordering::Relaxed);
    }

    /// Counts a task out that was counted in like this.
    pub(super) fn remove(&self, task: &Task) {
        if let Some(count) = self.of(task) {
            count.fetch_sub(1, Ordering::Relaxed);
        }
        self.bytes.fetch_sub(task.footprint(), Ordering::Relaxed);
    }

    /// Tasks by status, and their bytes.
    pub(super) fn read(&self) -> ([u64; Status::ALL.len()], u64) {
        let mut tasks = [0; Status::ALL.len()];
        for (read, count) in tasks.iter_mut().zip(&self.tasks) {
            *read = count.load(Ordering::Relaxed);
        }
        (tasks, self.bytes.load(Ordering::Relaxed))
    }
}

/// How long whoever asks waits for the disk. A disk that hangs is told by what was last known.
const PATIENCE: Duration = Duration::from_millis(500);

/// How deep directories are looked into.
const DEPTH: u32 = 4;

/// What the store takes on the disk. Looked at by one thread at a time, however many ask and however long it takes.
#[derive(Debug)]
pub(super) struct Room {
    directory: PathBuf,
    looking: AtomicBool,
    known: Mutex<Known>,
}

/// Used and free bytes, as far as they are known.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Known {
    pub(super) used: Option<u64>,
    pub(super) free: Option<u64>,
}

impl Room {
    pub(super) fn new(directory: PathBuf) -> Self {
        Self { directory, looking: AtomicBool::new(false), known: Mutex::default() }
    }

    /// Looks, and gives what is known.
    pub(super) async fn look(self: &Arc<Self>) -> Known {
        if !self.looking.swap(true, Ordering::AcqRel) {
            let this = Arc::clone(self);
            let looked = tokio::task::spawn_blocking(move || {
                let used = used_bytes(&this.directory, DEPTH).ok();
                let free = directory::free_bytes(&this.directory).ok();
                *this.known.lock() = Known { used, free };
                this.looking.store(false, Ordering::Release);
            });
            // Late or broken: what is known stays.
            drop(tokio::time::timeout(PATIENCE, looked).await);
        }
        *self.known.lock()
    }
}

fn used_bytes(directory: &Path, depth: u32) -> std::io::Result<u64> {
    use std::os::unix::fs::MetadataExt;

    /// What `st_blocks` counts in.
    const BLOCK: u64 = 512;
    let mut used = 0_u64;
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        // A file may go while the others are looked at.
        let Ok(found) = entry.metadata() else { continue };
        used = used.saturating_add(found.blocks().saturating_mul(BLOCK));
        if found.is_dir() && depth > 0 {
            used = used.saturating_add(used_bytes(&entry.path(), depth - 1)?);
        }
    }
    Ok(used)
}
