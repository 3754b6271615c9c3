//! What is in sled: one tree, which follows the journal.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ::sled::{Db, IVec};
use task_broker_core::{PayloadRef, Task, TaskId};
use xxhash_rust::xxh3::xxh3_128;

use super::checkpoint::Checkpoint;
use super::database::sled_says;
use super::intern::Interner;
use super::journal::Position;
use super::overlay::{Layer, Pending};
use super::renewal::Renewal;
use super::room::LOOK_EVERY_BYTES;
use super::stored::{INLINE, Stored, pointer};
use super::{bundle, keys, reached, record, room, seal};
use crate::panics;
use crate::store::ListPlace;

/// How much may be written to sled between two syncs: it reuses segments that it believes synced, so unsynced
/// bytes are kept few.
const SYNC_EVERY_BYTES: usize = 1 << 20;

/// As what a removal counts beside its key, in bytes: leaves that become empty are merged and written anew. Counted by the
/// keys alone, some 26,000 removals would go by between two syncs, and in one of 39 power cuts a start met a page that
/// could not be read (`scripts/crash.sh power`, with removals spread over time; docs/crash-tests.md).
pub(super) const REMOVAL_BYTES: usize = 4096;

/// A task whose bundle is longer than this is kept in pieces, with only a pointer under its key.
const INLINE_BYTES: usize = 16 * 1024;

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
    #[error("{0}")]
    Damaged(String),
    #[error("there is no room on the disk")]
    NoRoom,
}

/// Small payloads, new ones as the journal has them.
type Gathered<'a> = Vec<(PayloadRef, Cow<'a, [u8]>)>;

/// The one side that writes to sled.
#[derive(Debug)]
pub(super) struct Tree {
    db: Db,
    file: File,
    path: PathBuf,
    /// The pieces of tasks that are too large for one value.
    overflows: HashMap<TaskId, Vec<Vec<u8>>>,
    unsynced: usize,
    /// What was handed to sled since room was last taken for it, in bytes.
    written: u64,
    /// A copy of all this that is being made.
    renewal: Option<Box<Renewal>>,
}

/// sled panics where it does not know better; a panic is an error like any other.
pub(super) fn bounded<T>(act: impl FnOnce() -> Result<T, TreeError>) -> Result<T, TreeError> {
    panics::catch(act).unwrap_or(Err(TreeError::Panicked))
}

impl Tree {
    /// `overflows` names the pieces of the tasks that are in pieces.
    pub(super) fn new(
        db: Db,
        directory: &Path,
        overflows: HashMap<TaskId, Vec<Vec<u8>>>,
    ) -> std::io::Result<Self> {
        let path = directory.join("db");
        let file = OpenOptions::new().read(true).write(true).open(&path)?;
        Ok(Self { db, file, path, overflows, unsynced: 0, written: LOOK_EVERY_BYTES, renewal: None })
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
            self.write_chunks(place, pending, &mut garbage, &mut breathe)?;
        }
        for (place, pending) in layer.iter() {
            breathe(self)?;
            bounded(|| self.write_task(place, pending, &mut garbage))?;
        }
        for key in &garbage {
            breathe(self)?;
            bounded(|| self.remove(key))?;
        }
        Ok(())
    }

    fn write_chunks(
        &mut self,
        place: ListPlace,
        pending: &Pending,
        garbage: &mut Vec<Vec<u8>>,
        breathe: &mut impl FnMut(&mut Self) -> Result<(), TreeError>,
    ) -> Result<(), TreeError> {
        let (payloads, dropped) = pending.settle();
        for (reference, bytes) in payloads {
            for (key, range) in keys::chunks(place, reference) {
                breathe(self)?;
                bounded(|| self.insert(&key, bytes.get(range).ok_or(TreeError::Encode)?))?;
            }
        }
        for reference in dropped {
            garbage.extend(keys::chunks(place, reference).map(|(key, _)| key));
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

    /// Notes, durably, how far the journal has come.
    pub(super) fn note(&mut self, position: &Position) -> Result<(), TreeError> {
        bounded(|| {
            let body = reached::encode(position).map_err(|_what| TreeError::Encode)?;
            self.insert(keys::REACHED, &body)?;
            self.sync()
        })
    }

    /// Writes a task, and collects the keys that mean nothing any more.
    fn write_task(
        &mut self,
        place: ListPlace,
        pending: &Pending,
        garbage: &mut Vec<Vec<u8>>,
    ) -> Result<(), TreeError> {
        let key = keys::head(place);
        let Some(head) = &pending.head else {
            garbage.extend(self.overflows.remove(&place.id).unwrap_or_default());
            return self.remove(&key);
        };
        let bundle = if pending.is_whole() {
            let (payloads, _dropped) = pending.settle();
            bundle::encode(head, &small(payloads.into_iter().map(|(reference, bytes)| (*reference, bytes))))
        } else {
            let payloads = self.gather(place, &key, head, pending)?;
            bundle::encode(head, &payloads)
        };
        let old = self.overflows.remove(&place.id).unwrap_or_default();
        if bundle.len() <= INLINE_BYTES {
            garbage.extend(old);
            let mut body = Vec::with_capacity(1 + bundle.len());
            body.push(INLINE);
            body.extend_from_slice(&bundle);
            return self.insert(&key, &body);
        }
        let digest = xxh3_128(&bundle);
        let mut pieces = Vec::new();
        for (key, range) in keys::overflow(place, digest, bundle.len()) {
            self.insert(&key, bundle.get(range).ok_or(TreeError::Encode)?)?;
            pieces.push(key);
        }
        // A task that came back to an earlier state has the same pieces; they are not garbage then.
        garbage.extend(old.into_iter().filter(|old| !pieces.contains(old)));
        self.overflows.insert(place.id, pieces);
        self.insert(&key, &pointer(digest, bundle.len()))
    }

    /// The small payloads that a head names: new ones, and those that sled has had before.
    fn gather<'a>(
        &self,
        place: ListPlace,
        key: &[u8],
        head: &[u8],
        pending: &'a Pending,
    ) -> Result<Gathered<'a>, TreeError> {
        let id = place.id;
        let damaged = |what: &dyn std::fmt::Display| TreeError::Damaged(format!("task {id}: {what}"));
        let task = record::decode(id, head, &mut Interner::default()).map_err(|_broken| TreeError::Encode)?;
        let mut before = None;
        let mut gathered = Vec::new();
        for reference in task.payloads().filter(|payload| keys::is_small(payload)) {
            if let Some(bytes) = pending.payload(reference) {
                gathered.push((*reference, Cow::Borrowed(&**bytes)));
                continue;
            }
            if before.is_none() {
                let value = self.db.get(key)?.ok_or_else(|| damaged(&"it is missing in db"))?;
                before = Some(Stored::read(&self.db, place, key, &value).map_err(|broken| damaged(&broken))?);
            }
            let bundle =
                before.as_ref().map(Stored::bundle).transpose().map_err(|broken| damaged(&broken))?;
            let bytes =
                bundle.and_then(|bundle| bundle.get(reference)).filter(|bytes| reference.matches(bytes));
            let (revision, ordinal) = (reference.revision, reference.place());
            let bytes = bytes.ok_or_else(|| damaged(&format!("payload {revision}/{ordinal} is missing")))?;
            gathered.push((*reference, Cow::Owned(bytes.to_vec())));
        }
        Ok(gathered)
    }

    fn insert(&mut self, key: &[u8], body: &[u8]) -> Result<(), TreeError> {
        let value = IVec::from(seal::seal(key, body));
        if let Some(renewal) = &mut self.renewal {
            renewal.insert(key, &value);
        }
        self.put(key, value)
    }

    /// Writes a value that has its seal.
    pub(super) fn put(&mut self, key: &[u8], value: IVec) -> Result<(), TreeError> {
        let written = key.len() + value.len();
        self.db.insert(key, value)?;
        self.wrote(written)
    }

    /// Removes a record.
    pub(super) fn remove(&mut self, key: &[u8]) -> Result<(), TreeError> {
        if let Some(renewal) = &mut self.renewal {
            renewal.remove(key);
        }
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

    /// Removes up to `max` keys that begin with `prefix`, if no task names them. Says how many it has seen, and whether
    /// those were all. `find` must know every state that was carried, or a later one.
    pub(super) fn remove_orphans(
        &mut self,
        prefix: &[u8],
        max: usize,
        find: impl Fn(TaskId) -> Option<Arc<Task>>,
    ) -> Result<(usize, bool), TreeError> {
        bounded(|| {
            let keys: Vec<_> = self.db.scan_prefix(prefix).keys().take(max).collect::<Result<_, _>>()?;
            let orphans: Vec<_> = keys.iter().filter(|key| !self.is_named(key, &find)).collect();
            for key in &orphans {
                self.remove(key)?;
            }
            Ok((keys.len(), keys.len() < max || orphans.is_empty()))
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
                && task.payloads().any(|payload| keys::chunks(place, payload).any(|(named, _)| named == key))
        })
    }

    /// Lets a renewal follow every change from now on.
    pub(super) fn renew(&mut self, renewal: Renewal) {
        self.renewal = Some(Box::new(renewal));
    }

    /// Takes the renewal back. Until it is given again nothing may be changed.
    pub(super) fn take_renewal(&mut self) -> Option<Renewal> {
        self.renewal.take().map(|renewal| *renewal)
    }

    /// Goes on in a copy that holds the same. Gives what it was.
    pub(super) fn become_copy(&mut self, copy: Self) -> Self {
        let overflows = std::mem::take(&mut self.overflows);
        std::mem::replace(self, Self { overflows, ..copy })
    }

    /// The database.
    pub(super) const fn db(&self) -> &Db {
        &self.db
    }

    /// The generation.
    pub(super) fn directory(&self) -> &Path {
        self.path.parent().unwrap_or_else(|| Path::new("."))
    }

    /// The file that is synced, for messages.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

/// Those that are kept with the head.
fn small<B>(payloads: impl Iterator<Item = (PayloadRef, B)>) -> Vec<(PayloadRef, B)> {
    payloads.filter(|(reference, _)| keys::is_small(reference)).collect()
}
