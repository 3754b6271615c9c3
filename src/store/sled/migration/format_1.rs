//! Format 1: everything in sled, which was synced for each group, and no journal.
//!
//! What is here is how that format was, as far as the step needs it; [`super::older`] has what format 2 had too.

use std::path::Path;

use ::sled::Db;
use task_broker_core::{OwnerFrom, TaskId, Timestamp};

use super::super::database::{bounded, sled_says};
use super::super::draft::Draft;
use super::super::open::OpenError;
use super::older::{Fault, Record, Take, damaged, fact, fill};

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
    let mut draft = Draft::new(new, cache_bytes)?;
    let (store_id, clock) = bounded(path, || {
        let store_id = fact(db, path, STORE_ID)?.and_then(|id| String::from_utf8(id).ok());
        let store_id = store_id.ok_or_else(|| damaged(path, "the store's id is missing".into()))?;
        let clock = fact(db, path, CLOCK)?.map(|clock| clock.try_into().map(u64::from_be_bytes)).transpose();
        let clock = clock.map_err(|_length| damaged(path, "the clock's mark: wrong length".into()))?;
        Ok((store_id, clock.unwrap_or_default()))
    })?;
    let clock = Timestamp::from_millis(clock);
    let (tasks, clock) = fill(&mut draft, path, clock, step, |fault, take| for_each(db, fault, take))?;
    // There was no choice then.
    draft.finish(&store_id, OwnerFrom::Sub, clock)?;
    Ok(tasks)
}

/// Reads all tasks. What is wrong is told to `fault`, which says whether to go on.
pub(in super::super) fn for_each(
    db: &Db,
    fault: &mut Fault<'_>,
    take: &mut Take<'_>,
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
