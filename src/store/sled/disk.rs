//! What is on disk: one sled tree, made durable group by group.
//!
//! [`Disk::commit`] is the seam behind which the way to durability can change. Today: payloads, then heads, into
//! sled; `flush`; fdatasync of sled's file (`flush` alone only hands the bytes to the kernel, measured).

use std::collections::HashMap;
use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ::sled::{Db, IVec};
use bytes::{Bytes, BytesMut};
use task_broker_core::{PayloadRef, Task, TaskId, Timestamp};
use xxhash_rust::xxh3::xxh3_128;

use super::intern::Interner;
use super::seal::Broken;
use super::{keys, record, seal};
use crate::store::StoreError;

/// How much may be written to sled between two syncs: it reuses segments that it believes synced, so unsynced
/// bytes are kept few.
const SYNC_EVERY_BYTES: usize = 1 << 20;

/// A head that is longer than this is kept in pieces, with only a pointer under its key.
const INLINE_HEAD_BYTES: usize = 16 * 1024;

/// The newest state of one task that a group changed.
#[derive(Debug)]
pub(super) struct AfterImage {
    /// The task.
    pub(super) id: TaskId,
    /// Its head; `None` when it is gone.
    pub(super) head: Option<Arc<Task>>,
    /// Payloads that are new and still wanted.
    pub(super) payloads: Vec<(PayloadRef, Bytes)>,
    /// Payloads on disk that nobody wants once this is durable.
    pub(super) dropped: Vec<PayloadRef>,
}

/// Why a commit failed. Every failure is final for this process: what is on disk now is unknown.
#[derive(Debug, thiserror::Error)]
pub(super) enum CommitError {
    #[error("sled: {0}")]
    Sled(#[from] ::sled::Error),
    #[error("fdatasync: {0}")]
    Sync(#[from] std::io::Error),
    #[error("a head cannot be encoded")]
    Encode,
    #[error("sled panicked")]
    Panicked,
}

/// The writer's side.
#[derive(Debug)]
pub(super) struct Disk {
    db: Db,
    file: File,
    path: PathBuf,
    /// Keys that mean nothing any more; deleted with the next group or when there is nothing else to do.
    garbage: Vec<IVec>,
    /// The pieces of heads that were too large for one value, by task.
    overflows: HashMap<TaskId, Vec<Vec<u8>>>,
    unsynced: usize,
    clock_mark: Timestamp,
}

impl Disk {
    pub(super) fn new(db: Db, path: &Path) -> std::io::Result<Self> {
        let path = path.join("db");
        let file = File::open(&path)?;
        Ok(Self {
            db,
            file,
            path,
            garbage: Vec::new(),
            overflows: HashMap::new(),
            unsynced: 0,
            clock_mark: Timestamp::default(),
        })
    }

    /// Makes a group durable, all of it. `now` is kept as the lowest time at which the store may open again.
    pub(super) fn commit(&mut self, group: &[AfterImage], now: Timestamp) -> Result<(), CommitError> {
        // sled panics where it does not know better; a panic here is a failed commit like any other.
        catch_unwind(AssertUnwindSafe(|| self.try_commit(group, now))).unwrap_or(Err(CommitError::Panicked))
    }

    fn try_commit(&mut self, group: &[AfterImage], now: Timestamp) -> Result<(), CommitError> {
        // What the groups before this one left behind is durably unreferenced by now.
        self.collect_garbage()?;
        for image in group {
            for (reference, bytes) in &image.payloads {
                for (key, range) in keys::payload(image.id, reference) {
                    let piece = bytes.get(range).ok_or(CommitError::Encode)?;
                    self.insert(&key, piece)?;
                }
            }
        }
        let mut garbage = Vec::new();
        for image in group {
            self.write_head(image, &mut garbage)?;
        }
        if now.saturating_since(self.clock_mark) >= 1000 {
            self.insert(keys::CLOCK, &now.as_millis().to_be_bytes())?;
            self.clock_mark = now;
        }
        self.sync()?;
        self.garbage = garbage;
        Ok(())
    }

    fn write_head(&mut self, image: &AfterImage, garbage: &mut Vec<IVec>) -> Result<(), CommitError> {
        let key = keys::head(image.id);
        garbage.extend(self.overflows.remove(&image.id).into_iter().flatten().map(IVec::from));
        for reference in &image.dropped {
            garbage.extend(keys::payload(image.id, reference).map(|(key, _)| IVec::from(key)));
        }
        let Some(task) = &image.head else {
            self.db.remove(key)?;
            return Ok(());
        };
        let head = record::encode(task).map_err(|_what| CommitError::Encode)?;
        if head.len() <= INLINE_HEAD_BYTES {
            let mut body = vec![INLINE];
            body.extend_from_slice(&head);
            return self.insert(&key, &body);
        }
        let digest = xxh3_128(&head);
        let mut pieces = Vec::new();
        for (key, range) in keys::overflow(image.id, digest, head.len()) {
            self.insert(&key, head.get(range).ok_or(CommitError::Encode)?)?;
            pieces.push(key);
        }
        // A head that came back to an earlier state has the same pieces; they are not garbage then.
        garbage.retain(|old| !pieces.iter().any(|piece| piece.as_slice() == &**old));
        self.overflows.insert(image.id, pieces);
        self.insert(&key, &pointer(digest, head.len()))
    }

    fn insert(&mut self, key: &[u8], body: &[u8]) -> Result<(), CommitError> {
        let value = seal::seal(key, body);
        self.unsynced += value.len();
        self.db.insert(key, value)?;
        if self.unsynced >= SYNC_EVERY_BYTES {
            self.sync()?;
        }
        Ok(())
    }

    fn sync(&mut self) -> Result<(), CommitError> {
        self.db.flush()?;
        self.file.sync_data()?;
        self.unsynced = 0;
        Ok(())
    }

    /// Whether there is something to delete.
    pub(super) fn has_garbage(&self) -> bool {
        !self.garbage.is_empty()
    }

    /// Deletes what means nothing any more. Needs no sync: after a crash it is found again as orphans.
    pub(super) fn collect_garbage(&mut self) -> Result<(), CommitError> {
        for key in std::mem::take(&mut self.garbage) {
            self.db.remove(key)?;
        }
        Ok(())
    }

    /// Looks at up to `max` keys behind `from` that only mean something while a head names them, and deletes
    /// those that none does. Returns where to go on, or nothing at the end.
    pub(super) fn remove_orphans(
        &mut self,
        from: &[u8],
        max: usize,
        find: impl Fn(TaskId) -> Option<Arc<Task>>,
    ) -> Result<Option<Vec<u8>>, CommitError> {
        let result = catch_unwind(AssertUnwindSafe(|| {
            let prefix = from.first().copied().unwrap_or(0);
            let mut last = None;
            let mut orphans = Vec::new();
            for key in self.db.range(from.to_vec()..).keys().take(max) {
                let key = key?;
                if key.first() != Some(&prefix) {
                    break;
                }
                if !self.is_named(&key, &find) {
                    orphans.push(key.clone());
                }
                last = Some(key);
            }
            for key in orphans {
                self.db.remove(key)?;
            }
            // The first key behind the last one that was seen.
            Ok(last.map(|last| [&*last, &[0]].concat()))
        }));
        result.unwrap_or(Err(CommitError::Panicked))
    }

    fn is_named(&self, key: &[u8], find: &impl Fn(TaskId) -> Option<Arc<Task>>) -> bool {
        let Some(id) = keys::task_of(key) else { return false };
        if self.overflows.get(&id).is_some_and(|pieces| pieces.iter().any(|piece| piece == key)) {
            return true;
        }
        find(id).is_some_and(|task| {
            task.payloads().any(|payload| keys::payload(id, payload).any(|(named, _)| named == key))
        })
    }

    /// Ends. Everything handed over is durable when it returns. If no orphans were left to be found, the stop is
    /// marked as clean: nothing on disk is without a head then.
    pub(super) fn close(&mut self, no_orphans: bool) -> Result<(), CommitError> {
        let closing = catch_unwind(AssertUnwindSafe(|| {
            self.collect_garbage()?;
            if no_orphans {
                self.insert(keys::CLEAN, &[])?;
            }
            self.sync()
        }));
        closing.unwrap_or(Err(CommitError::Panicked))
    }

    /// The file that is synced, for messages.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Remembers the pieces of a head that was read in pieces.
    pub(super) fn know_overflow(&mut self, id: TaskId, pieces: Vec<Vec<u8>>) {
        self.overflows.insert(id, pieces);
    }
}

/// The first byte of a stored head: all of it follows.
const INLINE: u8 = 0;
/// The first byte of a stored head: digest and length follow, the head is in pieces.
const POINTER: u8 = 1;

fn pointer(digest: u128, length: usize) -> Vec<u8> {
    let mut body = vec![POINTER];
    body.extend_from_slice(&digest.to_be_bytes());
    body.extend_from_slice(&u64::try_from(length).unwrap_or(u64::MAX).to_be_bytes());
    body
}

/// The largest head that is believed; a task at all of its limits has about 700 KiB.
const MAX_HEAD_BYTES: u64 = 4 << 20;

/// Reads the head under `key`. The second part names the pieces of a head that did not fit into one value.
pub(super) fn read_head(
    db: &Db,
    id: TaskId,
    key: &[u8],
    value: &[u8],
    names: &mut Interner,
) -> Result<(Task, Vec<Vec<u8>>), Broken> {
    let body = seal::open(key, value)?;
    match body.split_first() {
        Some((&INLINE, head)) => Ok((record::decode(id, head, names)?, Vec::new())),
        Some((&POINTER, pointer)) => {
            let (digest, length) = pointer.split_at_checked(16).ok_or(Broken::Content)?;
            let digest = u128::from_be_bytes(digest.try_into().map_err(|_length| Broken::Content)?);
            let length = u64::from_be_bytes(length.try_into().map_err(|_length| Broken::Content)?);
            if length > MAX_HEAD_BYTES {
                return Err(Broken::Content);
            }
            let mut head = Vec::new();
            let mut pieces = Vec::new();
            for (key, _) in keys::overflow(id, digest, usize::try_from(length).unwrap_or(usize::MAX)) {
                let piece = db.get(&key).ok().flatten().ok_or(Broken::Short)?;
                head.extend_from_slice(seal::open(&key, &piece)?);
                pieces.push(key);
            }
            if xxh3_128(&head) != digest {
                return Err(Broken::Checksum);
            }
            Ok((record::decode(id, &head, names)?, pieces))
        }
        Some(_) | None => Err(Broken::Content),
    }
}

/// Reads a payload. `Ok(None)` when a piece of it is not there, which is damage only if its task still names it.
pub(super) fn read_payload(db: &Db, id: TaskId, reference: &PayloadRef) -> Result<Option<Bytes>, StoreError> {
    let damaged = |why: &dyn std::fmt::Display| StoreError::Damaged {
        place: format!("payload {}/{} of task {id}: {why}", reference.revision, reference.place()),
    };
    let length = usize::try_from(reference.len).unwrap_or(usize::MAX);
    let mut bytes = BytesMut::with_capacity(length);
    let mut values = Vec::new();
    for (key, _) in keys::payload(id, reference) {
        // A read of damaged data can panic inside sled; the request must get an answer all the same.
        let value = catch_unwind(AssertUnwindSafe(|| db.get(&key)))
            .map_err(|_panic| damaged(&"sled panicked"))?
            .map_err(|error| damaged(&error))?;
        let Some(value) = value else { return Ok(None) };
        bytes.extend_from_slice(seal::peek(&value));
        values.push((key, value));
    }
    // The head's checksum of the whole proves all pieces at once; theirs only tell which one is wrong.
    if reference.matches(&bytes) {
        return Ok(Some(bytes.freeze()));
    }
    let wrong = values.iter().find_map(|(key, value)| seal::open(key, value).err());
    Err(wrong.map_or_else(|| damaged(&"other bytes"), |broken| damaged(&broken)))
}
