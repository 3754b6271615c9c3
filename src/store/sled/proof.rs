//! Proving at a start that every chunk of every payload is there, and finding those that are nobody's. Small payloads are
//! proved with their heads.
//!
//! sled does not tell when records are gone. What is not proved here would be found by whoever reads it, which may be
//! weeks after the last backup that still had it.

use std::collections::{HashMap, HashSet};

use ::sled::Db;
use task_broker_core::{PayloadRef, Task, TaskId};
use xxhash_rust::xxh3::Xxh3;

use super::database::sled_says;
use super::index::Index;
use super::overlay::Layer;
use super::stored::read_payload;
use super::{keys, seal};
use crate::store::{ListPlace, StoreError};

/// What sled has under the keys of one large payload.
#[derive(Clone, Copy, Debug)]
struct Found {
    place: ListPlace,
    revision: u64,
    ordinal: u16,
    length: u64,
    checksum: u64,
}

/// All that only means something while a task names it.
#[derive(Debug, Default)]
pub(super) struct LargePayloads {
    /// In the order of their keys.
    found: Vec<Found>,
    /// The keys of pieces of tasks.
    pieces: Vec<Vec<u8>>,
    /// Keys that this program never makes.
    strange: Vec<Vec<u8>>,
}

impl LargePayloads {
    /// Reads all chunks, one after the other: many times as fast as payload by payload.
    ///
    /// # Errors
    /// What sled says where it cannot read on.
    pub(super) fn read(db: &Db) -> Result<Self, String> {
        let mut all = Self::default();
        let mut hash = Xxh3::new();
        for entry in db.scan_prefix([keys::CHUNK]) {
            let (key, value) =
                entry.map_err(|error| format!("reading large payloads: {}", sled_says(&error)))?;
            let Some((place, revision, ordinal)) = keys::chunk_of(&key) else {
                all.strange.push(key.to_vec());
                continue;
            };
            let body = seal::peek(&value);
            let same = |found: &&mut Found| {
                (found.place, found.revision, found.ordinal) == (place, revision, ordinal)
            };
            if let Some(found) = all.found.last_mut().filter(same) {
                hash.update(body);
                found.length += body.len() as u64;
                found.checksum = hash.digest();
                continue;
            }
            hash.reset();
            hash.update(body);
            let (length, checksum) = (body.len() as u64, hash.digest());
            all.found.push(Found { place, revision, ordinal, length, checksum });
        }
        for key in db.scan_prefix([keys::OVERFLOW]).keys() {
            let key = key.map_err(|error| format!("reading pieces of tasks: {}", sled_says(&error)))?;
            all.pieces.push(key.to_vec());
        }
        Ok(all)
    }

    fn has(&self, place: ListPlace, payload: &PayloadRef) -> bool {
        let wanted = (place, payload.revision, payload.place());
        let found =
            self.found.binary_search_by_key(&wanted, |found| (found.place, found.revision, found.ordinal));
        found
            .ok()
            .and_then(|at| self.found.get(at))
            .is_some_and(|found| found.length == u64::from(payload.len) && found.checksum == payload.checksum)
    }

    /// Looks for every large payload that a task names and the journal does not bring. What is missing is told to `fault`,
    /// which says whether to go on.
    pub(super) fn prove<E>(
        &self,
        db: &Db,
        index: &Index,
        layer: &Layer,
        fault: &mut impl FnMut(String) -> Result<(), E>,
    ) -> Result<(), E> {
        for id in index.all() {
            let Some(task) = index.get(id) else { continue };
            let place = ListPlace::of(&task);
            let pending = layer.get(place);
            for payload in task.payloads().filter(|payload| !keys::is_small(payload)) {
                let comes = pending.is_some_and(|pending| pending.payload(payload).is_some());
                if comes || self.has(place, payload) {
                    continue;
                }
                if let Some(what) = what_is_wrong(db, &task, payload) {
                    fault(what)?;
                }
            }
        }
        Ok(())
    }

    /// Beginnings of keys that no task names: what a crash has left behind while sled followed.
    pub(super) fn orphans(&self, index: &Index, overflows: &HashMap<TaskId, Vec<Vec<u8>>>) -> Vec<Vec<u8>> {
        let named = |found: &&Found| {
            index.get(found.place.id).is_some_and(|task| {
                ListPlace::of(&task) == found.place
                    && task.payloads().any(|payload| {
                        (payload.revision, payload.place()) == (found.revision, found.ordinal)
                            && !keys::is_small(payload)
                    })
            })
        };
        let unnamed = self.found.iter().filter(|found| !named(found));
        let chunks = unnamed.map(|found| keys::chunk_stem(found.place, found.revision, found.ordinal));
        let kept: HashSet<_> = overflows.values().flatten().collect();
        let pieces = self.pieces.iter().filter(|piece| !kept.contains(piece)).cloned();
        chunks.chain(pieces).chain(self.strange.iter().cloned()).collect()
    }
}

/// The exact place, for an operator; nothing if the payload is there, with leftovers beside it.
fn what_is_wrong(db: &Db, task: &Task, payload: &PayloadRef) -> Option<String> {
    let (id, revision, ordinal) = (task.id, payload.revision, payload.place());
    match read_payload(db, ListPlace::of(task), payload) {
        Ok(Some(_)) => None,
        Ok(None) => Some(format!("payload {revision}/{ordinal} of task {id} is missing")),
        Err(StoreError::Damaged { place }) => Some(place),
        Err(other) => Some(format!("payload {revision}/{ordinal} of task {id}: {other}")),
    }
}
