//! What is in sled: one tree, which follows the journal.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
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
use super::room::LOOK_EVERY_BYTES;
use super::seal::Broken;
use super::{keys, record, room, seal};
use crate::store::{ListPlace, StoreError};

/// How much may be written to sled between two syncs: it reuses segments that it believes synced, so unsynced
/// bytes are kept few.
const SYNC_EVERY_BYTES: usize = 1 << 20;

/// As what a removal counts beside its key, in bytes: leaves that become empty are merged and written anew. Counted by the
/// keys alone, some 26,000 removals would go by between two syncs, and in one of 39 power cuts a start met a page that
/// could not be read (`scripts/crash.sh power`, with removals spread over time; docs/crash-tests.md).
const REMOVAL_BYTES: usize = 4096;

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
    /// What was handed to sled since room was last taken for it, in bytes.
    written: u64,
}

/// sled panics where it does not know better; a panic is an error like any other.
pub(super) fn bounded<T>(act: impl FnOnce() -> Result<T, TreeError>) -> Result<T, TreeError> {
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
        let file = OpenOptions::new().read(true).write(true).open(&path)?;
        Ok(Self { db, file, path, overflows, unsynced: 0, written: LOOK_EVERY_BYTES })
    }

    /// Carries a layer into sled; `breathe` is called before each step. In three passes, each in the order of the keys:
    /// one write then finds the page of the one before in the processor's cache.
    pub(super) fn carry(
        &mut self,
        layer: &Layer,
        mut breathe: impl FnMut(&mut Self) -> Result<(), TreeError>,
    ) -> Result<(), TreeError> {
        let mut garbage = Vec::new();
        for (place, pending) in layer.iter() {
            breathe(self)?;
            self.write_payloads(place, pending, &mut garbage, &mut breathe)?;
        }
        for (place, pending) in layer.iter() {
            breathe(self)?;
            bounded(|| self.write_head(place, pending.head.as_deref(), &mut garbage))?;
        }
        for key in &garbage {
            breathe(self)?;
            bounded(|| self.remove(key))?;
        }
        Ok(())
    }

    fn write_payloads(
        &mut self,
        place: ListPlace,
        pending: &Pending,
        garbage: &mut Vec<Vec<u8>>,
        breathe: &mut impl FnMut(&mut Self) -> Result<(), TreeError>,
    ) -> Result<(), TreeError> {
        let (payloads, dropped) = pending.settle();
        for (reference, bytes) in payloads {
            for (key, range) in keys::payload(place, reference) {
                breathe(self)?;
                bounded(|| self.insert(&key, bytes.get(range).ok_or(TreeError::Encode)?))?;
            }
        }
        for reference in dropped {
            garbage.extend(keys::payload(place, reference).map(|(key, _)| key));
        }
        Ok(())
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

    /// Writes a head, and collects the keys that mean nothing any more.
    fn write_head(
        &mut self,
        place: ListPlace,
        head: Option<&[u8]>,
        garbage: &mut Vec<Vec<u8>>,
    ) -> Result<(), TreeError> {
        let key = keys::head(place);
        let old = self.overflows.remove(&place.id).unwrap_or_default();
        let Some(head) = head else {
            garbage.extend(old);
            return self.remove(&key);
        };
        if head.len() <= INLINE_HEAD_BYTES {
            garbage.extend(old);
            let mut body = Vec::with_capacity(1 + head.len());
            body.push(INLINE);
            body.extend_from_slice(head);
            return self.insert(&key, &body);
        }
        let digest = xxh3_128(head);
        let mut pieces = Vec::new();
        for (key, range) in keys::overflow(place, digest, head.len()) {
            self.insert(&key, head.get(range).ok_or(TreeError::Encode)?)?;
            pieces.push(key);
        }
        // A head that came back to an earlier state has the same pieces; they are not garbage then.
        garbage.extend(old.into_iter().filter(|old| !pieces.contains(old)));
        self.overflows.insert(place.id, pieces);
        self.insert(&key, &pointer(digest, head.len()))
    }

    fn insert(&mut self, key: &[u8], body: &[u8]) -> Result<(), TreeError> {
        let value = seal::seal(key, body);
        let written = key.len() + value.len();
        self.db.insert(key, value)?;
        self.wrote(written)
    }

    fn remove(&mut self, key: &[u8]) -> Result<(), TreeError> {
        self.db.remove(key)?;
        self.wrote(key.len() + REMOVAL_BYTES)
    }

    fn wrote(&mut self, bytes: usize) -> Result<(), TreeError> {
        self.unsynced += bytes;
        self.written += bytes as u64;
        if self.unsynced >= SYNC_EVERY_BYTES { self.sync() } else { Ok(()) }
    }

    /// Takes room for what sled may write next, if that is due. Says whether there is enough.
    pub(super) fn hold_room(&mut self) -> Result<bool, TreeError> {
        if self.written >= LOOK_EVERY_BYTES {
            if !room::hold(&self.file)? {
                return Ok(false);
            }
            self.written = 0;
        }
        Ok(true)
    }

    /// Makes everything that was carried durable.
    pub(super) fn sync(&mut self) -> Result<(), TreeError> {
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
        let Some(place) = keys::place_of(key) else { return false };
        if self.overflows.get(&place.id).is_some_and(|pieces| pieces.iter().any(|piece| piece == key)) {
            return true;
        }
        find(place.id).is_some_and(|task| {
            task.created_at == place.created_at
                && task.payloads().any(|payload| keys::payload(place, payload).any(|(named, _)| named == key))
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
    pub(super) fn read(db: &Db, place: ListPlace, key: &[u8], value: &IVec) -> Result<Self, Broken> {
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
                for (key, _) in keys::overflow(place, digest, usize::try_from(length).unwrap_or(usize::MAX)) {
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
pub(super) fn read_payload(
    db: &Db,
    place: ListPlace,
    reference: &PayloadRef,
) -> Result<Option<Bytes>, StoreError> {
    let damaged = |why: &dyn std::fmt::Display| StoreError::Damaged {
        place: format!("payload {}/{} of task {}: {why}", reference.revision, reference.place(), place.id),
    };
    let length = usize::try_from(reference.len).unwrap_or(usize::MAX);
    let mut bytes = BytesMut::with_capacity(length);
    let mut values = Vec::new();
    for (key, _) in keys::payload(place, reference) {
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
