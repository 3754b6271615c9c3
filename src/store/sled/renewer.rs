//! When sled's files are written anew while the store serves, and what makes the new ones those in use.

use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use task_broker_core::Timestamp;

use super::checkpoint::Checkpoint;
use super::compaction::{room_for, size_of};
use super::directory::{self, Directory, abandon};
use super::files::Files;
use super::open::SledOptions;
use super::renewal::{GivenUp, Renewal};
use super::tree::{Tree, TreeError};
use crate::panics;

/// How many times as large as what it holds sled's file must be. Less, and a live set that is replaced all the time would be
/// written anew all the time: freshly written it has up to twice its bytes.
const WORTH_TIMES: u64 = 3;

/// How long it rests after a renewal that was given up, in milliseconds; and after one that met too much load, which may
/// be over soon.
const REST_MS: u64 = 10 * 60 * 1000;
const REST_AFTER_LOAD_MS: u64 = 5_000;

/// With more expired tasks that are still to be removed none begins: the copy would have them too.
pub(super) const MANY_EXPIRED: u64 = 1024;

/// So many bytes may always be written to the original meanwhile; otherwise half of what lives.
const MIN_PATIENCE: u64 = 16 << 20;

/// See the module.
#[derive(Debug)]
pub(super) struct Renewer {
    directory: Arc<Mutex<Directory>>,
    files: Arc<Files>,
    cache_bytes: u64,
    /// Room on the disk that is left alone.
    spare_bytes: u64,
    /// How large sled's file must be at least, in bytes; never without a number.
    above: Option<u64>,
    /// What it must have grown to since the last time: otherwise one that stays large would be written anew for ever.
    grown: u64,
    /// Not before this time.
    rests_until: Timestamp,
    working: Option<Working>,
}

/// What is told when it is done.
#[derive(Clone, Copy, Debug)]
struct Working {
    before: u64,
    live_bytes: u64,
}

impl Renewer {
    pub(super) fn new(directory: Arc<Mutex<Directory>>, files: Arc<Files>, options: &SledOptions) -> Self {
        let SledOptions { cache_bytes, spare_bytes, compact_above: above, .. } = *options;
        let (rests_until, working) = (Timestamp::default(), None);
        Self { directory, files, cache_bytes, spare_bytes, above, grown: 0, rests_until, working }
    }

    /// Whether there is nothing to do.
    pub(super) const fn is_idle(&self) -> bool {
        self.working.is_none()
    }

    /// Begins if that pays, with so many tasks, of so many bytes, in the store, and so many of them expired.
    pub(super) fn look(
        &mut self,
        tree: &mut Tree,
        tasks: u64,
        expired: u64,
        live_bytes: u64,
        now: Timestamp,
    ) {
        let Some(above) = self.above.filter(|_| self.is_idle() && expired <= MANY_EXPIRED) else { return };
        let before = size_of(tree.path());
        if now < self.rests_until
            || before <= above.max(self.grown).max(live_bytes.saturating_mul(WORTH_TIMES))
        {
            return;
        }
        let needed = room_for(tasks, live_bytes).saturating_add(self.spare_bytes);
        let free = directory::free_bytes(tree.path()).unwrap_or_default();
        if free < needed {
            self.rests_until = now.saturating_add(REST_MS);
            tracing::warn!(before, live_bytes, needed, free, "no room to compact the store, which would pay");
            return;
        }
        tracing::info!(tasks, before, live_bytes, "compacting the store while it serves");
        self.working = Some(Working { before, live_bytes });
        if let Err(error) = self.begin(tree, live_bytes / 2) {
            self.give_up(&error, None, now);
        }
    }

    fn begin(&self, tree: &mut Tree, patience: u64) -> Result<(), GivenUp> {
        let path = self.directory.lock().draft()?;
        let begun = panics::catch(|| {
            Renewal::begin(&path, tree.directory(), self.cache_bytes, patience.max(MIN_PATIENCE))
        });
        match begun.unwrap_or(Err(TreeError::Panicked.into())) {
            Ok(renewal) => {
                tree.renew(renewal);
                Ok(())
            }
            Err(error) => {
                abandon(&path);
                Err(error)
            }
        }
    }

    /// One step. Says whether the store is in another generation now. An error is final: which generation it is in is
    /// unknown then.
    pub(super) fn step(
        &mut self,
        tree: &mut Tree,
        checkpoint: &Checkpoint,
        now: Timestamp,
    ) -> Result<bool, TreeError> {
        let Some(renewal) = tree.take_renewal() else {
            // It was given up where room was needed.
            self.working = None;
            return Ok(false);
        };
        let path = renewal.path().to_owned();
        let stepped = panics::catch(|| {
            if directory::free_bytes(&path).is_ok_and(|free| free < self.spare_bytes) {
                return Err(GivenUp::NoRoom);
            }
            renewal.step(tree.db())
        });
        match stepped.unwrap_or(Err(TreeError::Panicked.into())) {
            Ok(renewal) if !renewal.is_done() => {
                tree.renew(renewal);
            }
            Ok(renewal) => {
                let finished = panics::catch(|| renewal.finish(tree.directory(), checkpoint));
                match finished.unwrap_or(Err(TreeError::Panicked.into())) {
                    Ok(copy) => return self.turn(tree, copy, &path, now),
                    Err(error) => self.give_up(&error, Some(&path), now),
                }
            }
            Err(error) => self.give_up(&error, Some(&path), now),
        }
        Ok(false)
    }

    /// Makes the copy the store, if that can be.
    fn turn(&mut self, tree: &mut Tree, copy: Tree, path: &Path, now: Timestamp) -> Result<bool, TreeError> {
        let mut directory = self.directory.lock();
        match directory.turn_to(path.to_owned()) {
            Ok(()) => {}
            // Nothing has changed: the copy was for nothing.
            Err(error) if directory.is_current(tree.directory()) => {
                drop(directory);
                close(copy);
                self.give_up(&error.into(), Some(path), now);
                return Ok(false);
            }
            Err(error) => return Err(TreeError::Damaged(error.to_string())),
        }
        self.files.replace(copy.db().clone(), copy.path())?;
        close(tree.become_copy(copy));
        if let Err(error) = directory.tidy() {
            tracing::warn!(%error, "an old generation could not be removed; the next start does it");
        }
        let after = size_of(tree.path());
        self.grown = after.saturating_add(after / 2);
        if let Some(Working { before, live_bytes }) = self.working.take() {
            tracing::info!(before, after, live_bytes, "compacted the store");
        }
        Ok(true)
    }

    /// Ends what is not done: the process is about to end.
    pub(super) fn end(&mut self, tree: &mut Tree) {
        self.working = None;
        make_room(tree);
    }

    fn give_up(&mut self, why: &GivenUp, left: Option<&Path>, now: Timestamp) {
        self.working = None;
        if matches!(why, GivenUp::Load) {
            self.rests_until = now.saturating_add(REST_AFTER_LOAD_MS);
            tracing::info!("too much load to compact the store; tried again when there is less");
        } else {
            self.rests_until = now.saturating_add(REST_MS);
            tracing::warn!(error = %why, "the store could not be compacted; it is served as it is");
        }
        if let Some(path) = left {
            abandon(path);
        }
    }
}

/// Gives up what takes room that is needed.
pub(super) fn make_room(tree: &mut Tree) {
    let Some(renewal) = tree.take_renewal() else { return };
    let path = renewal.path().to_owned();
    close(renewal);
    abandon(&path);
}

/// Closes files that nobody needs any more; sled panics meanwhile where a disk has failed under them.
fn close<T>(files: T) {
    if panics::catch(|| drop(files)).is_err() {
        tracing::warn!("sled panicked while files were closed that are not needed any more");
    }
}
