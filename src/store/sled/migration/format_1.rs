//! Format 1: everything in sled, which was synced for each group, and no journal.
//!
//! What is here is how that format was, as far as the step needs it; [`super::older`] has what format 2 had too.

use std::path::Path;

use ::sled::Db;
use task_broker_core::{OwnerFrom, TaskId, Timestamp};

use super::super::compaction::room_for;
use super::super::database::{bounded, sled_says};
use super::super::directory::free_bytes;
use super::super::draft::Draft;
use super::super::open::{OpenError, root_of};
use super::older::{Record, damaged, fact};

/// Its number.
pub(in super::super) const FORMAT: u64 = 1;

const STORE_ID: &[u8] = b"mid";
const CLOCK: &[u8] = b"mclock";

/// Copies all tasks into a new generation, and says how many.
pub(super) fn copy(
    db: &Db,
    path: &Path,
    new: &Path,
    cache_bytes: u64,
    step: &mut dyn FnMut(u64),
) -> Result<u64, OpenError> {
    let root = root_of(path);
    let free = free_bytes(root).map_err(|error| OpenError::Io { path: root.to_owned(), error })?;
    // How much of the old files is garbage is not known before all of them were read.
    let needed = room_for(0, 0);
    if free < needed {
        return Err(OpenError::NoRoom { path: root.to_owned(), needed, free });
    }
    let mut draft = Draft::new(new, cache_bytes)?;
    let (store_id, clock) = bounded(path, || {
        let store_id = fact(db, path, STORE_ID)?.and_then(|id| String::from_utf8(id).ok());
        let store_id = store_id.ok_or_else(|| damaged(path, "the store's id is missing".into()))?;
        let clock = fact(db, path, CLOCK)?.map(|clock| clock.try_into().map(u64::from_be_bytes)).transpose();
        let clock = clock.map_err(|_length| damaged(path, "the clock's mark: wrong length".into()))?;
        Ok((store_id, clock.unwrap_or_default()))
    })?;
    let mut clock = Timestamp::from_millis(clock);
    let mut tasks = 0;
    bounded(path, || {
        for_each(db, &mut |what| Err(damaged(path, what)), &mut |record| {
            clock = clock.max(record.updated_at);
            draft.put(record.place, record.head, record.payloads)?;
            tasks += 1;
            step(tasks);
            Ok(())
        })
    })?;
    // There was no choice then.
    draft.finish(&store_id, OwnerFrom::Sub, clock)?;
    Ok(tasks)
}

/// Reads all tasks. What is wrong is told to `fault`, which says whether to go on.
pub(in super::super) fn for_each(
    db: &Db,
    fault: &mut dyn FnMut(String) -> Result<(), OpenError>,
    take: &mut dyn FnMut(Record) -> Result<(), OpenError>,
) -> Result<(), OpenError> {
    for entry in db.scan_prefix(b"h") {
        let (key, value) = match entry {
            Ok(entry) => entry,
            Err(error) => return fault(format!("reading heads: {}", sled_says(&error))),
        };
        let id = <[u8; 16]>::try_from(key.get(1..).unwrap_or_default()).map(TaskId::from_bytes);
        let Ok(id) = id else {
            fault("a head has a wrong key".into())?;
            continue;
        };
        match Record::read(db, id, id.as_bytes(), &value) {
            Ok(record) => take(record)?,
            Err(what) => fault(format!("task {id}: {what}"))?,
        }
    }
    Ok(())
}
