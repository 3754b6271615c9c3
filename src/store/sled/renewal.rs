//! Writing sled's files anew while the store serves, so that they are as large as what they hold.
//!
//! sled gives room back from the end of its file only, so under a live set that is replaced again and again the file
//! grows to several times what it holds. A renewal copies every record, in the order of the keys, into a second sled
//! beside the first; what the follower changes meanwhile in the part that was copied it changes in both. Then the copy is
//! closed, opened again and compared with the original, every byte of it. As both hold the same, the same checkpoint and
//! the same journal complete either of them: the journal's files are linked into the new generation, and CURRENT
//! decides. Whatever goes wrong before that, the old generation is as good as it was.

use std::collections::HashMap;
use std::fs::File;
use std::ops::Bound;
use std::path::{Path, PathBuf};

use ::sled::{Db, IVec};

use super::checkpoint::Checkpoint;
use super::database::open_sled;
use super::directory::DirectoryError;
use super::journal::{SLOTS, path_of};
use super::open::OpenError;
use super::tree::{REMOVAL_BYTES, Tree, TreeError, bounded};
use super::{keys, seal};

/// How many records make a step, and how many bytes end one earlier: about a millisecond's work.
const STEP_RECORDS: usize = 64;
const STEP_BYTES: usize = 256 << 10;

/// Why a renewal was given up. The store is as it was.
#[derive(Debug, thiserror::Error)]
pub(super) enum GivenUp {
    #[error("there is no room on the disk")]
    NoRoom,
    #[error("too much was changed meanwhile")]
    Load,
    #[error(transparent)]
    Sled(#[from] TreeError),
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    #[error("the record with the key {key}: {what}")]
    Broken { key: String, what: seal::Broken },
    #[error("the copy is not the same behind the key {0}")]
    Differs(String),
    #[error("the journal cannot be linked into a new generation: {0}")]
    Link(std::io::Error),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Records up to and with `at` are in the copy.
    Copying,
    /// All are. Those up to and with `at` were found the same.
    Comparing,
    /// All were.
    Done,
}

/// See the module. It must be told of every change to the original: [`Renewal::insert`], [`Renewal::remove`].
#[derive(Debug)]
pub(super) struct Renewal {
    path: PathBuf,
    cache_bytes: u64,
    copy: Tree,
    phase: Phase,
    at: Vec<u8>,
    /// Why a change could not be made in the copy too.
    failed: Option<GivenUp>,
    /// How many bytes may be written to the original until it is given up: a copy that has to follow too much is as full of
    /// garbage as the original when it is done.
    patience: u64,
}

impl Renewal {
    /// Begins in a directory that holds nothing but its mark, beside the generation in `original`.
    pub(super) fn begin(
        path: &Path,
        original: &Path,
        cache_bytes: u64,
        patience: u64,
    ) -> Result<Self, GivenUp> {
        // Better now than after all the work: there are file systems without links.
        link_journal(original, path)?;
        let copy = open_copy(path, cache_bytes)?;
        let (phase, at) = (Phase::Copying, Vec::new());
        Ok(Self { path: path.to_owned(), cache_bytes, copy, phase, at, failed: None, patience })
    }

    /// The directory of the copy.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether original and copy hold the same.
    pub(super) fn is_done(&self) -> bool {
        self.phase == Phase::Done
    }

    /// A record was written to the original.
    pub(super) fn insert(&mut self, key: &[u8], value: &IVec) {
        self.patience = self.patience.saturating_sub((key.len() + value.len()) as u64);
        self.follow(key, |copy| copy.put(key, value.clone()));
    }

    /// A record was removed from the original.
    pub(super) fn remove(&mut self, key: &[u8]) {
        self.patience = self.patience.saturating_sub((key.len() + REMOVAL_BYTES) as u64);
        self.follow(key, |copy| copy.remove(key));
    }

    fn follow(&mut self, key: &[u8], act: impl FnOnce(&mut Tree) -> Result<(), TreeError>) {
        if self.failed.is_some() || (self.phase == Phase::Copying && key > self.at.as_slice()) {
            return;
        }
        // The original must not suffer from it; the next step tells.
        self.failed = self.change(act).err();
    }

    /// Writes to the copy, where there is room for it.
    fn change(&mut self, act: impl FnOnce(&mut Tree) -> Result<(), TreeError>) -> Result<(), GivenUp> {
        bounded(|| if self.copy.hold_room()? { act(&mut self.copy) } else { Err(TreeError::NoRoom) }).map_err(
            |error| match error {
                TreeError::NoRoom => GivenUp::NoRoom,
                error => error.into(),
            },
        )
    }

    /// Some more of the work. After an error there is nothing left but the directory.
    pub(super) fn step(mut self, original: &Db) -> Result<Self, GivenUp> {
        if let Some(failed) = self.failed {
            return Err(failed);
        }
        if self.patience == 0 {
            return Err(GivenUp::Load);
        }
        match self.phase {
            Phase::Copying => return self.copy_some(original),
            Phase::Comparing => self.compare_some(original)?,
            Phase::Done => {}
        }
        Ok(self)
    }

    fn copy_some(mut self, original: &Db) -> Result<Self, GivenUp> {
        let records = some_records(original, &self.at)?;
        let Some(last) = records.last().map(|(key, _)| key.to_vec()) else { return self.open_again() };
        for (key, value) in records {
            seal::open(&key, &value)
                .map_err(|what| GivenUp::Broken { key: key.escape_ascii().to_string(), what })?;
            // The checkpoint comes when all is done, and until then a copy is no store.
            if *key != *keys::CHECKPOINT {
                self.change(|copy| copy.put(&key, value))?;
            }
        }
        self.at = last;
        Ok(self)
    }

    /// All is copied. What counts is not what sled has in memory of it, but what it finds in its files.
    fn open_again(mut self) -> Result<Self, GivenUp> {
        self.change(Tree::sync)?;
        // sled writes it once, and never syncs it.
        let conf = File::open(self.path.join("conf")).and_then(|conf| conf.sync_all());
        conf.map_err(TreeError::from)?;
        let Self { path, cache_bytes, copy, failed, patience, .. } = self;
        drop(copy);
        let copy = open_copy(&path, cache_bytes)?;
        Ok(Self { path, cache_bytes, copy, phase: Phase::Comparing, at: Vec::new(), failed, patience })
    }

    fn compare_some(&mut self, original: &Db) -> Result<(), GivenUp> {
        let expected = some_records(original, &self.at)?;
        let last = expected.last().map(|(key, _)| key.to_vec());
        let end = last.as_deref().map_or(Bound::Unbounded, Bound::Included);
        let found = self.copy.db().range::<&[u8], _>((Bound::Excluded(self.at.as_slice()), end));
        // One that is too many is enough.
        let found = found.take(expected.len() + 1).collect::<Result<Vec<_>, _>>().map_err(TreeError::from)?;
        if !found.iter().eq(expected.iter().filter(|(key, _)| **key != *keys::CHECKPOINT)) {
            return Err(GivenUp::Differs(self.at.escape_ascii().to_string()));
        }
        match last {
            Some(last) => self.at = last,
            None => self.phase = Phase::Done,
        }
        Ok(())
    }

    /// Completes the copy with the checkpoint of the original. When this returns, CURRENT may name it, and from then on it
    /// alone may be written to.
    pub(super) fn finish(mut self, original: &Path, checkpoint: &Checkpoint) -> Result<Tree, GivenUp> {
        if let Some(failed) = self.failed {
            return Err(failed);
        }
        self.change(|copy| copy.checkpoint(checkpoint))?;
        link_journal(original, &self.path)?;
        Ok(self.copy)
    }
}

fn open_copy(path: &Path, cache_bytes: u64) -> Result<Tree, OpenError> {
    let db = open_sled(path, cache_bytes)?;
    Tree::new(db, path, HashMap::default()).map_err(|error| OpenError::Io { path: path.to_owned(), error })
}

/// The records behind `at`: as many as make a step.
fn some_records(db: &Db, at: &[u8]) -> Result<Vec<(IVec, IVec)>, TreeError> {
    let mut records = Vec::new();
    let mut bytes = 0;
    for record in db.range::<&[u8], _>((Bound::Excluded(at), Bound::Unbounded)) {
        let (key, value) = record?;
        bytes += key.len() + value.len();
        records.push((key, value));
        if records.len() >= STEP_RECORDS || bytes >= STEP_BYTES {
            break;
        }
    }
    Ok(records)
}

/// Gives the journal's files a second name each, in another generation: both are the same files.
fn link_journal(from: &Path, to: &Path) -> Result<(), GivenUp> {
    for slot in 0..SLOTS {
        let link = path_of(to, slot);
        match std::fs::remove_file(&link) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(GivenUp::Link(error)),
            Ok(()) | Err(_) => {}
        }
        std::fs::hard_link(path_of(from, slot), link).map_err(GivenUp::Link)?;
    }
    Ok(())
}
