//! Format 2: a journal before sled, and every payload under a key of its own.
//!
//! The journal, the facts and the heads are what they are in format 3; [`super::older`] has how heads and payloads stood
//! in sled.

use std::path::Path;

use ::sled::Db;
use task_broker_core::{PayloadRef, TaskId};

use super::super::database::{bounded, sled_says};
use super::super::draft::Draft;
use super::super::keys::place_of;
use super::super::loading::{Facts, open_segments, read_facts, read_journal};
use super::super::open::OpenError;
use super::super::overlay::{Layer, Pending};
use super::older::{Fault, Record, Take, damaged, fill, read_payload};
use crate::store::ListPlace;

/// Its number.
pub(in super::super) const FORMAT: u64 = 2;

/// The length of a head's key.
const HEAD_BYTES: usize = 1 + 8 + 16;

/// Copies all tasks into a new generation, and says how many.
pub(super) fn copy(
    db: &Db,
    path: &Path,
    new: &Path,
    cache_bytes: u64,
    step: &mut dyn FnMut(u64),
) -> Result<u64, OpenError> {
    let facts = bounded(path, || read_facts(db, path))?;
    let replayed = read_journal(&open_segments(path, &facts.checkpoint)?, &facts)?;
    let Facts { store_id, owner_from, checkpoint, .. } = facts;
    let (census, clock) = replayed.newest.unwrap_or((checkpoint.census, checkpoint.clock()));
    let mut draft = Draft::new(new, cache_bytes)?;
    let clock = clock.max(checkpoint.clock());
    let (tasks, clock) =
        fill(&mut draft, path, clock, step, |fault, take| for_each(db, &replayed.layer, fault, take))?;
    let copied = draft.finish(&store_id, owner_from, clock)?;
    match census.misses(copied) {
        Some(what) => Err(damaged(path, what)),
        None => Ok(tasks),
    }
}

/// Reads all tasks, the newer ones from the journal. What is wrong is told to `fault`, which says whether to go on.
pub(in super::super) fn for_each(
    db: &Db,
    layer: &Layer,
    fault: &mut Fault<'_>,
    take: &mut Take<'_>,
) -> Result<(), OpenError> {
    for entry in db.scan_prefix(b"h") {
        let (key, value) = match entry {
            Ok(entry) => entry,
            Err(error) => return fault(format!("reading heads: {}", sled_says(&error))),
        };
        let Some(place) = place_of(&key).filter(|_| key.len() == HEAD_BYTES) else {
            fault("a head has a wrong key".into())?;
            continue;
        };
        if layer.get(place).is_some() {
            continue;
        }
        let at = key.get(1..).unwrap_or_default();
        told(place.id, Record::read(db, place.id, at, &value), fault, take)?;
    }
    for (place, pending) in layer.iter() {
        let Some(head) = &pending.head else { continue };
        let record = Record::of(place.id, head.clone(), |payload| newest(db, place, pending, payload));
        told(place.id, record, fault, take)?;
    }
    Ok(())
}

/// A payload of a task that changed, from the journal or from sled.
fn newest(
    db: &Db,
    place: ListPlace,
    pending: &Pending,
    payload: &PayloadRef,
) -> Result<bytes::Bytes, String> {
    if let Some(bytes) = pending.payload(payload) {
        return Ok(bytes.clone());
    }
    let at = [&place.created_at.as_millis().to_be_bytes()[..], place.id.as_bytes()].concat();
    read_payload(db, &at, payload)
}

fn told(
    id: TaskId,
    read: Result<Record, String>,
    fault: &mut Fault<'_>,
    take: &mut Take<'_>,
) -> Result<(), OpenError> {
    match read {
        Ok(record) => take(record),
        Err(what) => fault(format!("task {id}: {what}")),
    }
}
