//! What is in sled: one tree, which follows the journal.

use std::collections::HashMap;
use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ::sled::{Db, IVec};
use bytes::{Bytes, BytesMut};
use task_broker_core::{PayloadRef, Task, TaskId};
use xxhash_rust::xxh3::xxh3_128;

use super::checkpoint::Checkpoint;
use super::database::sled_says;
use super::intern::Interner;
use super::overlay::{Layer, Pending};
use super::seal::Broken;
use super::{keys, record, seal};
use crate::store::StoreError;

/// How much may be written to sled between two syncs: it reuses segments that it believes synced, so unsynced
/// bytes are kept few.
const SYNC_EVERY_BYTES: usize = 1 << 20;

/// A head that is longer than this is kept in pieces, with only a pointer under its key.
const INLINE_HEAD_BYTES: usize = 16 * 1024;

/// Why sled could not follow. Final for this process: what is in its files now is unknown.
#[derive(Debug, thiserror::Error)]
pub(super) enum TreeError {
    #[error("sled: {}", sled_says(.0))]
    Sled(#[from] ::sled::Error),
    #[error("fdatasync: {0}")]
    Sync(#[from] std::io::Error),
    #[error("a record cannot be encoded")]
    Encode,
    #[error("sled panicked")]
    Panicked,
    #[error("there is no room on the disk")]
    NoRoom,
}

/// The one side that writes to sled.
#[derive(Debug)]
pub(super) struct Tree {
    db: Db,
    file: File,
    path: PathBuf,
    /// The pieces of heads that are too large for one value, by task.
    overflows: HashMap<TaskId, Vec<Vec<u8>>>,
    unsynced: usize,
}

/// sled panics where it does not know better; a panic is an error like any other.
fn bounded<T>(act: impl FnOnce() -> Result<T, TreeError>) -> Result<T, TreeError> {
    catch_unwind(AssertUnwindSafe(act)).unwrap_or(Err(TreeError::Panicked))
}

impl Tree {
    /// `overflows` names the pieces of the heads that are in pieces.
    pub(super) fn new(
        db: Db,
        directory: &Path,
        overflows: HashMap<TaskId, Vec<Vec<u8>>>,
    ) -> std::io::Result<Self> {
        let path = directory.join("db");
        let file = File::open(&path)?;
        Ok(Self { db, file, path, overflows, unsynced: 0 })
    }

    /// Carries the newest state of one task into sled.
    pub(super) fn carry(&mut self, id: TaskId, pending: &Pending) -> Result<(), TreeError> {
        bounded(|| {
            let (payloads, dropped) = pending.settle();
            for (reference, bytes) in payloads {
                for (key, range) in keys::payload(id, reference) {
                    let piece = bytes.get(range).ok_or(TreeError::Encode)?;
                    self.insert(&key, piece)?;
                }
            }
            let mut garbage = self.write_head(id, pending.head.as_deref())?;
            for reference in dropped {
                garbage.extend(keys::payload(id, reference).map(|(key, _)| IVec::from(key)));
            }
            for key in garbage {
                self.remove(&key)?;
            }
            Ok(())
        })
    }

    /// Carries all of a layer; `breathe` is called before each task.
    pub(super) fn carry_all(
        &mut self,
        layer: &Layer,
        mut breathe: impl FnMut() -> Result<(), TreeError>,
    ) -> Result<(), TreeError> {
        layer.iter().try_for_each(|(id, pending)| {
            breathe()?;
            self.carry(id, pending)
        })
    }

    /// Makes everything that was carried durable, then says so, durably.
    pub(super) fn checkpoint(&mut self, checkpoint: &Checkpoint) -> Result<(), TreeError> {
        bounded(|| {
            self.sync()?;
            let value = checkpoint.seal().map_err(|_what| TreeError::Encode)?;
            self.db.insert(keys::CHECKPOINT, value)?;
            self.sync()
        })
    }

    /// Writes a head, and gives the keys that mean nothing any more.
    fn write_head(&mut self, id: TaskId, head: Option<&[u8]>) -> Result<Vec<IVec>, TreeError> {
        let key = keys::head(id);
        let mut garbage: Vec<_> = self.overflows.remove(&id).into_iter().flatten().map(IVec::from).collect();
        let Some(head) = head else {
            self.remove(&key)?;
            return Ok(garbage);
        };
        if head.len() <= INLINE_HEAD_BYTES {
            let mut body = vec![INLINE];
            body.extend_from_slice(head);
            self.insert(&key, &body)?;
            return Ok(garbage);
        }
        let digest = xxh3_128(head);
        let mut pieces = Vec::new();
        for (key, range) in keys::overflow(id, digest, head.len()) {
            self.insert(&key, head.get(range).ok_or(TreeError::Encode)?)?;
            pieces.push(key);
        }
        // A head that came back to an earlier state has the same pieces; they are not garbage then.
        garbage.retain(|old| !pieces.iter().any(|piece| piece.as_slice() == &**old));
        self.overflows.insert(id, pieces);
        self.insert(&key, &pointer(digest, head.len()))?;
        Ok(garbage)
    }

    fn insert(&mut self, key: &[u8], body: &[u8]) -> Result<(), TreeError> {
        let value = seal::seal(key, body);
        let written = key.len() + value.len();
        self.db.insert(key, value)?;
        self.wrote(written)
    }

    fn remove(&mut self, key: &[u8]) -> Result<(), TreeError> {
        self.db.remove(key)?;
        self.wrote(key.len())
    }

    fn wrote(&mut self, bytes: usize) -> Result<(), TreeError> {
        self.unsynced += bytes;
        if self.unsynced >= SYNC_EVERY_BYTES { self.sync() } else { Ok(()) }
    }

    fn sync(&mut self) -> Result<(), TreeError> {
        self.db.flush()?;
        self.file.sync_data()?;
        self.unsynced = 0;
        Ok(())
    }

    /// Looks at up to `max` keys behind `from` that only mean something while a head names them, and deletes
    /// those that none does. Returns where to go on, or nothing at the end. `find` must know every state that was
    /// carried, or a later one.
    pub(super) fn remove_orphans(
        &mut self,
        from: &[u8],
        max: usize,
        find: impl Fn(TaskId) -> Option<Arc<Task>>,
    ) -> Result<Option<Vec<u8>>, TreeError> {
        bounded(|| {
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
                self.remove(&key)?;
            }
            // The first key behind the last one that was seen.
            Ok(last.map(|last| [&*last, &[0]].concat()))
        })
    }

    /// Whether a head names this key.
    pub(super) fn is_named(&self, key: &[u8], find: &impl Fn(TaskId) -> Option<Arc<Task>>) -> bool {
        let Some(id) = keys::task_of(key) else { return false };
        if self.overflows.get(&id).is_some_and(|pieces| pieces.iter().any(|piece| piece == key)) {
            return true;
        }
        find(id).is_some_and(|task| {
            task.payloads().any(|payload| keys::payload(id, payload).any(|(named, _)| named == key))
        })
    }

    /// The file that is synced, for messages.
    pub(super) fn path(&self) -> &Path {
        &self.path
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

/// A head as it is stored.
#[derive(Debug)]
pub(super) struct StoredHead {
    /// The encoded head.
    pub(super) bytes: IVec,
    /// The keys of its pieces, if it did not fit into one value.
    pub(super) pieces: Vec<Vec<u8>>,
}

impl StoredHead {
    /// Reads the head that `value` under `key` is, or points to.
    pub(super) fn read(db: &Db, id: TaskId, key: &[u8], value: &IVec) -> Result<Self, Broken> {
        let body = seal::open(key, value)?;
        match body.split_first() {
            Some((&INLINE, head)) => {
                Ok(Self { bytes: value.subslice(value.len() - head.len(), head.len()), pieces: Vec::new() })
            }
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
                Ok(Self { bytes: head.into(), pieces })
            }
            Some(_) | None => Err(Broken::Content),
        }
    }

    /// The task that it is the head of.
    pub(super) fn task(&self, id: TaskId, names: &mut Interner) -> Result<Task, Broken> {
        record::decode(id, &self.bytes, names)
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
            .map_err(|error| damaged(&sled_says(&error)))?;
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
