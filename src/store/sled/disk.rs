//! The seam behind which a group becomes durable: a frame in the journal, one sync. sled follows later.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use task_broker_core::{PayloadRef, Task, Timestamp};

use super::census::Census;
use super::follower::{Follower, Stopped};
use super::journal::{Image, Journal, decode_body, encode_body, sectors_for, slot_of};
use super::payloads::PayloadReader;
use super::record;
use crate::store::{ListPlace, StoreError};

/// The newest state of one task that a group changed.
#[derive(Debug)]
pub(super) struct AfterImage {
    /// The task.
    pub(super) place: ListPlace,
    /// What was durable before.
    pub(super) before: Option<Arc<Task>>,
    /// The task and its encoded head; `None` when it is gone.
    pub(super) head: Option<(Arc<Task>, Vec<u8>)>,
    /// Payloads that are new and still wanted.
    pub(super) payloads: Vec<(PayloadRef, Bytes)>,
    /// Payloads of earlier groups that nobody wants once this is durable.
    pub(super) dropped: Vec<PayloadRef>,
}

/// Why a group was not made durable.
#[derive(Debug, thiserror::Error)]
pub(super) enum CommitError {
    /// Nothing was written; it may work later.
    #[error("there is no room on the disk")]
    NoRoom,
    /// Final: what is on disk now is unknown.
    #[error("{}: {error}", .path.display())]
    Journal { path: PathBuf, error: std::io::Error },
    /// Final.
    #[error(transparent)]
    Stopped(Stopped),
    /// Final: it can only be a mistake in this program.
    #[error("a group cannot be encoded")]
    Encode,
}

impl From<Stopped> for CommitError {
    fn from(stopped: Stopped) -> Self {
        match stopped {
            Stopped::NoRoom => Self::NoRoom,
            Stopped::Failed | Stopped::Stuck => Self::Stopped(stopped),
        }
    }
}

/// How long what is in the journal may wait for sled while there is little to do, in milliseconds: it takes memory, and
/// the next start after a crash has to read it.
const REST_MS: u64 = 10_000;

/// How many tasks wait for sled at most before it is given them, if it has nothing else to do, and before what can wait
/// has to. A removed task takes far less of the journal than of the overlay, so the length of the journal alone is no bound
/// for what a sweep has in memory.
const LAYER_TASKS: usize = 16 * 1024;

/// The writer's side.
#[derive(Debug)]
pub(super) struct Disk {
    journal: Journal,
    payloads: PayloadReader,
    follower: Follower,
    /// What the store holds, the newest frame included.
    census: Census,
    /// When the first frame was written that sled has not been handed; nothing if there is none.
    waiting_since: Option<Timestamp>,
    /// How many tasks wait for sled.
    waiting_tasks: usize,
}

impl Disk {
    pub(super) fn new(journal: Journal, payloads: PayloadReader, follower: Follower, census: Census) -> Self {
        Self { journal, payloads, follower, census, waiting_since: None, waiting_tasks: 0 }
    }

    /// Makes a group durable, all of it, or none of it when there is no room. `now` is kept as the lowest time at which
    /// the store may open again.
    pub(super) fn commit(&mut self, group: &[AfterImage], now: Timestamp) -> Result<(), CommitError> {
        let images = group.iter().map(|image| Image {
            place: image.place,
            head: image.head.as_ref().map(|(_, head)| head.as_slice()),
            payloads: &image.payloads,
            dropped: &image.dropped,
        });
        let body = encode_body(images).ok_or(CommitError::Encode)?;
        let mut census = self.census;
        for image in group {
            if let Some(before) = &image.before {
                let head = record::encode(before).map_err(|_what| CommitError::Encode)?;
                census.remove(image.place.id, &head);
            }
            if let Some((_, head)) = &image.head {
                census.add(image.place.id, head);
            }
        }
        self.make_room(sectors_for(body.len()), now)?;
        self.journal.append(&body, census, now).map_err(|error| {
            let path = self.journal.path().to_owned();
            CommitError::Journal { path, error }
        })?;
        self.follower.has_come_to(self.journal.position());
        self.census = census;
        self.waiting_since.get_or_insert(now);
        // Parts of the frame, not of the requests: what waits for sled is then as large as the journal, at most.
        let images = decode_body(&body).ok_or(CommitError::Encode)?;
        self.waiting_tasks = self.payloads.overlay.add(images);
        Ok(())
    }

    /// Makes sure that a frame of so many sectors fits.
    fn make_room(&mut self, sectors: u64, now: Timestamp) -> Result<(), CommitError> {
        while !self.journal.has_room(sectors) {
            self.follower.settle()?;
            self.take_remade();
            if self.journal.next_room() < sectors {
                let slot = slot_of(self.journal.position().generation + 1);
                self.follower.enlarge(slot, sectors.next_power_of_two())?;
                self.take_remade();
            }
            self.hand_over(now, false);
        }
        Ok(())
    }

    /// The bytes of a payload that is durable and that the newest state of its task names.
    pub(super) fn payload(&self, task: &Task, reference: &PayloadRef) -> Result<Option<Bytes>, StoreError> {
        self.payloads.read(task, reference)
    }

    /// Whether there is room for what can wait.
    pub(super) fn has_room_to_spare(&self) -> bool {
        (self.journal.is_half_empty() && self.waiting_tasks < LAYER_TASKS) || self.follower.is_idle()
    }

    /// How many bytes of the journal's current file are written, and how many it has.
    pub(super) fn fill(&self) -> (u64, u64) {
        self.journal.fill()
    }

    /// Lets sled follow if what it does not have has waited for long, or is much.
    pub(super) fn rest(&mut self, now: Timestamp) {
        let waited = self.waiting_since.map_or(0, |since| now.saturating_since(since));
        if (waited < REST_MS && self.waiting_tasks < LAYER_TASKS) || !self.follower.is_idle() {
            return;
        }
        self.take_remade();
        self.hand_over(now, false);
    }

    /// Lets sled follow, and waits until it has.
    #[cfg(test)]
    pub(super) fn follow(&mut self, now: Timestamp) -> Result<(), CommitError> {
        self.follower.settle()?;
        self.take_remade();
        self.hand_over(now, false);
        self.follower.settle().map_err(CommitError::from)
    }

    fn take_remade(&mut self) {
        if let Some((slot, segment)) = self.follower.take_remade() {
            self.journal.replace(slot, segment);
        }
        if let Some(directory) = self.follower.take_moved() {
            self.journal.moved_to(&directory);
        }
    }

    /// Lets sled follow up to the newest frame, and begins a new generation of the journal. The follower must have
    /// settled.
    fn hand_over(&mut self, now: Timestamp, last: bool) {
        self.follower.carry(
            self.payloads.overlay.hand_over(),
            self.journal.position(),
            self.census,
            now,
            last,
        );
        self.journal.turn();
        self.waiting_since = None;
        self.waiting_tasks = 0;
    }

    /// Ends. Everything handed over is in sled when it returns, or in the journal where sled has no room for it.
    pub(super) fn close(&mut self, now: Timestamp) -> Result<(), CommitError> {
        match self.follower.settle() {
            Ok(()) => {
                self.hand_over(now, true);
                // Told when it closes.
                drop(self.follower.settle());
            }
            Err(Stopped::NoRoom) => {}
            Err(stopped) => return Err(stopped.into()),
        }
        match self.follower.close() {
            Ok(()) | Err(Stopped::NoRoom) => Ok(()),
            Err(stopped) => Err(stopped.into()),
        }
    }

    /// The file that is written to, for messages.
    pub(super) fn path(&self) -> &Path {
        self.journal.path()
    }
}
