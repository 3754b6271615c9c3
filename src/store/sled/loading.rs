//! What a generation holds: the facts about the store, its journal, and the heads of all tasks.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use ::sled::Db;
use task_broker_core::{OwnerFrom, TaskId, Timestamp};

use super::bundle::Bundle;
use super::census::Census;
use super::checkpoint::Checkpoint;
use super::database::{bounded, sled_says};
use super::index::Index;
use super::intern::Interner;
use super::journal::{Position, Replayed, SECTOR, SLOTS, Segment, replay, slot_of};
use super::ledger::Ledger;
use super::open::OpenError;
use super::overlay::Layer;
use super::proof::LargePayloads;
use super::seal::Broken;
use super::stored::Stored;
use super::{keys, reached, record, seal};
use crate::store::ListPlace;

/// The version of the layout on disk. See migrations/README.md.
pub(super) const FORMAT: u64 = 3;

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
    Facts { checkpoint, reached, .. }: &Facts,
) -> Result<Replayed, OpenError> {
    let replayed = replay(segments, checkpoint.key, checkpoint.position)
        .map_err(|(path, error)| OpenError::Io { path, error })?
        .map_err(|damage| OpenError::Damaged {
            what: format!("offset {}: {}", damage.offset, damage.what),
            path: damage.path,
        })?;
    if let Some(what) = reached::missing(*reached, &replayed) {
        return Err(OpenError::Damaged { path: newest_file(segments, *reached).to_owned(), what });
    }
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

/// The file in which the group is that was noted last.
pub(super) fn newest_file(segments: &[Segment; SLOTS], reached: Option<Position>) -> &Path {
    let [first, second] = segments;
    let slot = slot_of(reached.unwrap_or_default().generation);
    if slot == 0 { first.path() } else { second.path() }
}

pub(super) struct Facts {
    pub(super) store_id: String,
    pub(super) owner_from: OwnerFrom,
    pub(super) checkpoint: Checkpoint,
    /// How far the journal had come when that was noted last.
    pub(super) reached: Option<Position>,
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
    let reached = reached::read(db).map_err(damaged)?;
    Ok(Facts { store_id, owner_from: read_owner_from(db, path)?, checkpoint, reached })
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
    /// Beginnings of keys that no task names.
    pub(super) orphans: Vec<Vec<u8>>,
}

impl Loaded {
    fn take(&mut self, place: ListPlace, head: &[u8], bundle: Option<&Bundle<'_>>) -> Result<(), Broken> {
        let task = record::decode(place.id, head, &mut self.names)?;
        if ListPlace::of(&task) != place || bundle.is_some_and(|bundle| !bundle.is_complete_for(&task)) {
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

/// Reads everything: all heads, the newer ones from the journal, and all payloads that are not in the journal.
pub(super) fn read_all(db: &Db, path: &Path, layer: &Layer) -> Result<Loaded, OpenError> {
    let damaged = |what| OpenError::Damaged { path: path.to_owned(), what };
    let mut loaded = Loaded::default();
    let large = std::thread::scope(|scope| {
        // Beside the heads: two streams of reads keep a disk, and two cores, busy.
        let large = scope.spawn(|| bounded(path, || LargePayloads::read(db).map_err(damaged)));
        bounded(path, || loaded.read(db, layer, &mut |what| Err(damaged(what))))?;
        large.join().unwrap_or_else(|_panic| Err(damaged("reading large payloads: panicked".into())))
    })?;
    bounded(path, || large.prove(db, &loaded.index, layer, &mut |what| Err(damaged(what))))?;
    loaded.orphans = large.orphans(&loaded.index, &loaded.overflows);
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
            let stored = Stored::read(db, place, &key, &value);
            if layer.get(place).is_some() {
                // It is about to be written anew, with what is still wanted of it; its pieces will go.
                self.overflows
                    .extend(stored.ok().filter(|task| !task.pieces.is_empty()).map(|task| (id, task.pieces)));
                continue;
            }
            let taken = stored.and_then(|stored| {
                let bundle = stored.bundle()?;
                self.take(place, bundle.head, Some(&bundle))?;
                if !stored.pieces.is_empty() {
                    self.overflows.insert(id, stored.pieces);
                }
                Ok(())
            });
            if let Err(broken) = taken {
                fault(format!("task {id}: {broken}"))?;
            }
        }
        for (place, pending) in layer.iter() {
            let id = place.id;
            let Some(head) = &pending.head else { continue };
            if let Err(broken) = self.take(place, head, None) {
                fault(format!("task {id} in the journal: {broken}"))?;
            }
        }
        Ok(())
    }
}
