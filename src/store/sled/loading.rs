//! What a generation holds: the facts about the store, its journal, and the heads of all tasks.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use ::sled::Db;
use task_broker_core::{OwnerFrom, Task, TaskId, Timestamp};

use super::census::Census;
use super::checkpoint::Checkpoint;
use super::database::sled_says;
use super::index::Index;
use super::intern::Interner;
use super::journal::{Replayed, SECTOR, SLOTS, Segment, replay};
use super::ledger::Ledger;
use super::open::OpenError;
use super::overlay::Layer;
use super::seal::Broken;
use super::tree::StoredHead;
use super::{keys, record, seal};
use crate::store::ListPlace;

/// The version of the layout on disk. See migrations/README.md.
pub(super) const FORMAT: u64 = 2;

/// Opens the journal's files. A file that is missing, or shorter than it was made, held what nobody knows now.
pub(super) fn open_segments(path: &Path, checkpoint: &Checkpoint) -> Result<[Segment; SLOTS], OpenError> {
    let open = |slot: usize| {
        let segment = Segment::open(path, slot).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => {
                OpenError::Damaged { path: path.to_owned(), what: format!("journal-{slot} is missing") }
            }
            _ => OpenError::Io { path: path.to_owned(), error },
        })?;
        let made = checkpoint.sectors.get(slot).copied().unwrap_or_default();
        if segment.sectors() < made {
            return Err(OpenError::Damaged {
                path: path.to_owned(),
                what: format!(
                    "journal-{slot} was cut: it has {} bytes of {}",
                    segment.sectors() * SECTOR as u64,
                    made * SECTOR as u64
                ),
            });
        }
        Ok(segment)
    };
    Ok([open(0)?, open(1)?])
}

/// Reads what sled may not have yet.
pub(super) fn read_journal(
    segments: &[Segment; SLOTS],
    checkpoint: &Checkpoint,
) -> Result<Replayed, OpenError> {
    let replayed = replay(segments, checkpoint.key, checkpoint.position)
        .map_err(|(path, error)| OpenError::Io { path, error })?
        .map_err(|damage| OpenError::Damaged {
            what: format!("offset {}: {}", damage.offset, damage.what),
            path: damage.path,
        })?;
    if let Some(cut) = &replayed.cut {
        tracing::warn!(
            file = %cut.path.display(),
            offset = cut.offset,
            length = cut.length,
            "the newest group was torn by a crash before anybody was told of it; it is cut off"
        );
    }
    Ok(replayed)
}

pub(super) struct Facts {
    pub(super) store_id: String,
    pub(super) owner_from: OwnerFrom,
    pub(super) checkpoint: Checkpoint,
}

/// A fact about the store.
pub(super) fn fact(db: &Db, path: &Path, key: &'static [u8], name: &str) -> Result<Vec<u8>, OpenError> {
    let damaged = |what: String| OpenError::Damaged { path: path.to_owned(), what };
    let value = db.get(key).map_err(|error| damaged(format!("{name}: {}", sled_says(&error))))?;
    let value = value.ok_or_else(|| damaged(format!("the record of {name} is missing")))?;
    seal::open(key, &value).map(<[u8]>::to_vec).map_err(|broken| damaged(format!("{name}: {broken}")))
}

/// What makes the subjects of the store. There are stores from before there was a choice.
fn read_owner_from(db: &Db, path: &Path) -> Result<OwnerFrom, OpenError> {
    let damaged = |what: String| OpenError::Damaged { path: path.to_owned(), what };
    let name = "the mode of owners";
    let kept = db.contains_key(keys::OWNER_FROM);
    if !kept.map_err(|error| damaged(format!("{name}: {}", sled_says(&error))))? {
        return Ok(OwnerFrom::Sub);
    }
    let text = String::from_utf8(fact(db, path, keys::OWNER_FROM, name)?).ok();
    let mode = text.and_then(|text| text.parse().ok());
    mode.ok_or_else(|| damaged(format!("{name} is none that this program knows")))
}

/// The version of the layout. It was always kept in the same place.
pub(super) fn read_format(db: &Db, path: &Path) -> Result<u64, OpenError> {
    let format = fact(db, path, keys::FORMAT, "the format")?.try_into().map(u64::from_be_bytes);
    let what = || "the format: wrong length".to_owned();
    format.map_err(|_length| OpenError::Damaged { path: path.to_owned(), what: what() })
}

/// Reads what is known about the store itself.
pub(super) fn read_facts(db: &Db, path: &Path) -> Result<Facts, OpenError> {
    let damaged = |what: String| OpenError::Damaged { path: path.to_owned(), what };
    let store_id = String::from_utf8(fact(db, path, keys::STORE_ID, "the store's id")?);
    let store_id = store_id.map_err(|_text| damaged("the store's id is no text".into()))?;
    let checkpoint = Checkpoint::decode(&fact(db, path, keys::CHECKPOINT, "the checkpoint")?);
    let checkpoint = checkpoint.map_err(|broken| damaged(format!("the checkpoint: {broken}")))?;
    Ok(Facts { store_id, owner_from: read_owner_from(db, path)?, checkpoint })
}

/// What the heads say.
#[derive(Debug, Default)]
pub(super) struct Loaded {
    pub(super) index: Index,
    pub(super) ledger: Ledger,
    pub(super) names: Interner,
    pub(super) overflows: HashMap<TaskId, Vec<Vec<u8>>>,
    pub(super) census: Census,
    pub(super) floor: Timestamp,
    /// What heads and payloads have, in bytes.
    pub(super) live_bytes: u64,
}

impl Loaded {
    fn take(
        &mut self,
        place: ListPlace,
        head: &[u8],
        decode: impl Fn(&mut Interner) -> Result<Task, Broken>,
    ) -> Result<(), Broken> {
        let task = decode(&mut self.names)?;
        if ListPlace::of(&task) != place {
            return Err(Broken::Content);
        }
        self.census.add(place.id, head);
        self.floor = self.floor.max(task.updated_at);
        let payloads: u64 = task.payloads().map(|payload| u64::from(payload.len)).sum();
        self.live_bytes += payloads + head.len() as u64;
        self.ledger.follow(None, Some(&task));
        self.index.publish(&Arc::new(task));
        Ok(())
    }
}

/// Reads all heads, the newer ones from the journal. Payloads are proved when they are read.
pub(super) fn read_heads(db: &Db, path: &Path, layer: &Layer) -> Result<Loaded, OpenError> {
    let mut loaded = Loaded::default();
    loaded.read(db, layer, &mut |what| Err(OpenError::Damaged { path: path.to_owned(), what }))?;
    Ok(loaded)
}

impl Loaded {
    /// Takes in all heads, the newer ones from the journal. What is wrong is told to `fault`, which says whether to go
    /// on.
    pub(super) fn read<E>(
        &mut self,
        db: &Db,
        layer: &Layer,
        fault: &mut impl FnMut(String) -> Result<(), E>,
    ) -> Result<(), E> {
        for entry in db.scan_prefix([keys::HEAD]) {
            let (key, value) = match entry {
                Ok(entry) => entry,
                // There is no going on behind a page that cannot be read.
                Err(error) => return fault(format!("reading heads: {}", sled_says(&error))),
            };
            let Some(place) = keys::place_of(&key).filter(|_| key.len() == keys::HEAD_BYTES) else {
                fault(format!("a head has a key of {} bytes", key.len()))?;
                continue;
            };
            let id = place.id;
            let stored = StoredHead::read(db, place, &key, &value);
            if layer.get(place).is_some() {
                // It is about to be written anew, so what is wrong with it does not matter; its pieces do.
                self.overflows
                    .extend(stored.ok().filter(|head| !head.pieces.is_empty()).map(|head| (id, head.pieces)));
                continue;
            }
            let taken = stored.and_then(|stored| {
                self.take(place, &stored.bytes, |names| stored.task(id, names))?;
                if !stored.pieces.is_empty() {
                    self.overflows.insert(id, stored.pieces);
                }
                Ok(())
            });
            if let Err(broken) = taken {
                fault(format!("the head of task {id}: {broken}"))?;
            }
        }
        for (place, pending) in layer.iter() {
            let id = place.id;
            let Some(head) = &pending.head else { continue };
            if let Err(broken) = self.take(place, head, |names| record::decode(id, head, names)) {
                fault(format!("the head of task {id} in the journal: {broken}"))?;
            }
        }
        Ok(())
    }
}
