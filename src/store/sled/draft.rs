//! A generation in the making: how a store comes to be, is made smaller, migrated, or filled from an export.
//!
//! All of these write records into an empty generation beside the current one, prove what they wrote, and only then let
//! CURRENT name it. The facts about the store come last: a draft without them never opens.

use std::path::{Path, PathBuf};

use ::sled::Db;
use bytes::Bytes;
use task_broker_core::{OwnerFrom, PayloadRef, Timestamp};

use super::census::Census;
use super::checkpoint::Checkpoint;
use super::database::{bounded, open_sled, sled_says};
use super::directory::free_bytes;
use super::journal::{SECTOR, SLOTS, Segment};
use super::loading::{FORMAT, open_segments, read_all, read_facts, read_journal};
use super::open::{OpenError, failed, leave_open, root_of};
use super::overlay::{Layer, Pending};
use super::tree::{Tree, TreeError};
use super::{keys, seal};
use crate::panics;
use crate::store::ListPlace;

/// How large the files of a new journal are, in sectors: 1 MiB each. They grow under load.
const FIRST_SECTORS: u64 = (1 << 20) / SECTOR as u64;

/// Room that a draft leaves alone, in bytes: sled must never meet a full disk.
const SPARE_BYTES: u64 = 32 << 20;
/// After how many tasks the room is looked at.
const LOOK_EVERY: u64 = 16;

/// See the module.
#[derive(Debug)]
pub(super) struct Draft {
    path: PathBuf,
    cache_bytes: u64,
    db: Db,
    tree: Tree,
    census: Census,
}

impl Draft {
    /// Begins in a directory that holds nothing but its mark.
    pub(super) fn new(path: &Path, cache_bytes: u64) -> Result<Self, OpenError> {
        let db = open_sled(path, cache_bytes)?;
        let tree = Tree::new(db.clone(), path, std::collections::HashMap::default());
        let tree = tree.map_err(|error| OpenError::Io { path: path.to_owned(), error })?;
        Ok(Self { path: path.to_owned(), cache_bytes, db, tree, census: Census::default() })
    }

    fn damaged(&self, what: String) -> OpenError {
        OpenError::Damaged { path: self.path.clone(), what }
    }

    fn failed(&self, error: TreeError) -> OpenError {
        failed(&self.path, error)
    }

    /// Takes a task: its encoded head, and all its payloads.
    pub(super) fn put(
        &mut self,
        place: ListPlace,
        head: Bytes,
        payloads: Vec<(PayloadRef, Bytes)>,
    ) -> Result<(), OpenError> {
        if self.census.count.is_multiple_of(LOOK_EVERY) {
            let bytes: usize = payloads.iter().map(|(_, bytes)| bytes.len()).sum();
            self.look_for_room(bytes as u64)?;
        }
        if self.db.contains_key(keys::head(place)).map_err(|error| self.damaged(sled_says(&error)))? {
            return Err(OpenError::Twice(place.id));
        }
        self.census.add(place.id, &head);
        let pending = Pending { head: Some(head), payloads, dropped: Vec::new() };
        let mut layer = Layer::default();
        layer.follow(vec![(place, pending)]);
        self.tree.carry(&layer, |_| Ok(())).map_err(|error| self.failed(error))
    }

    fn look_for_room(&self, bytes: u64) -> Result<(), OpenError> {
        let io = |error| OpenError::Io { path: self.path.clone(), error };
        let (needed, free) = (SPARE_BYTES + 2 * bytes, free_bytes(&self.path).map_err(io)?);
        if free < needed {
            return Err(OpenError::NoRoom { path: root_of(&self.path).to_owned(), needed, free });
        }
        Ok(())
    }

    /// Makes everything durable, with its facts, closes it, and reads all of it again. `clock` is the lowest time at
    /// which it may open.
    pub(super) fn finish(
        mut self,
        store_id: &str,
        owner_from: OwnerFrom,
        clock: Timestamp,
    ) -> Result<Census, OpenError> {
        // sled panics where the disk fails under it, also while it is closed.
        let gave_up = |path: &Path| {
            let error = std::io::Error::other("Input/output error: sled could not sync its files");
            OpenError::Io { path: path.to_owned(), error }
        };
        let sealed = panics::catch(|| self.seal(store_id, owner_from, clock));
        let sealed = sealed.unwrap_or_else(|_panic| Err(gave_up(&self.path)));
        if let Err(error) = sealed {
            leave_open(&self.db);
            return Err(error);
        }
        let Self { path, cache_bytes, db, tree, census } = self;
        panics::catch(|| drop((db, tree))).map_err(|_panic| gave_up(&path))?;
        if census.count > 0 {
            prove(&path, cache_bytes, census)?;
        }
        Ok(census)
    }

    /// Writes the facts about the store and its journal, durably.
    fn seal(&mut self, store_id: &str, owner_from: OwnerFrom, clock: Timestamp) -> Result<(), OpenError> {
        let io = |error| OpenError::Io { path: self.path.clone(), error };
        let mut key = [0; 8];
        getrandom::fill(&mut key).map_err(std::io::Error::other).map_err(io)?;
        let key = u64::from_le_bytes(key);
        for slot in 0..SLOTS {
            Segment::make(&self.path, slot, key, 0, FIRST_SECTORS).map_err(io)?;
        }
        let mut checkpoint = Checkpoint::first(key, [FIRST_SECTORS; SLOTS]);
        checkpoint.census = self.census;
        checkpoint.not_before(clock);
        checkpoint.clean = true;
        self.tree.checkpoint(&checkpoint).map_err(|error| self.failed(error))?;
        let write = |key: &[u8], body: &[u8]| self.db.insert(key, seal::seal(key, body));
        write(keys::STORE_ID, store_id.as_bytes())
            .and_then(|_old| write(keys::OWNER_FROM, owner_from.as_str().as_bytes()))
            .and_then(|_old| write(keys::FORMAT, &FORMAT.to_be_bytes()))
            .and_then(|_old| self.db.flush())
            .map_err(|error| self.failed(error.into()))?;
        for name in ["db", "conf"] {
            std::fs::File::open(self.path.join(name)).and_then(|file| file.sync_all()).map_err(io)?;
        }
        Ok(())
    }
}

/// Opens a finished draft and reads all that is in it.
fn prove(path: &Path, cache_bytes: u64, census: Census) -> Result<(), OpenError> {
    let damaged = |what: String| OpenError::Damaged { path: path.to_owned(), what };
    let db = open_sled(path, cache_bytes)?;
    let facts = bounded(path, || read_facts(&db, path))?;
    let replayed = read_journal(&open_segments(path, &facts.checkpoint)?, &facts)?;
    let loaded = read_all(&db, path, &replayed.layer)?;
    let missed = [facts.checkpoint.census, loaded.census].into_iter().find_map(|found| census.misses(found));
    if let Some(what) = missed {
        return Err(damaged(what));
    }
    Ok(())
}
