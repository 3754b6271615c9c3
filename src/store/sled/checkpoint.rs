//! The record in sled that says how far sled has followed the journal.

use serde::{Deserialize, Serialize};
use task_broker_core::Timestamp;

use super::census::Census;
use super::journal::{Position, SLOTS};
use super::keys;
use super::seal::{self, Broken};

/// Written when everything up to `position` is in sled, durably. It names the journal: one that is missing, shorter than
/// it was made, or that does not continue here is damage, not an empty journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Checkpoint {
    /// The journal's secret; see [`super::journal::Header`].
    pub(super) key: u64,
    pub(super) position: Position,
    pub(super) census: Census,
    /// The highest time that was persisted, in milliseconds.
    clock: u64,
    /// The lengths of the journal's files in sectors.
    pub(super) sectors: [u64; SLOTS],
    /// The stop was clean: everything is in sled, and nothing is in it that no head names.
    pub(super) clean: bool,
}

impl Checkpoint {
    /// The first one of a store.
    pub(super) fn first(key: u64, sectors: [u64; SLOTS]) -> Self {
        let (position, census) = (Position::default(), Census::default());
        Self { key, position, census, clock: 0, sectors, clean: false }
    }

    /// The highest time that was persisted.
    pub(super) fn clock(&self) -> Timestamp {
        Timestamp::from_millis(self.clock)
    }

    /// Moves the clock mark up.
    pub(super) fn not_before(&mut self, clock: Timestamp) {
        self.clock = self.clock.max(clock.as_millis());
    }

    /// The value to store under [`keys::CHECKPOINT`].
    pub(super) fn seal(&self) -> Result<Vec<u8>, Broken> {
        let body = postcard::to_stdvec(self).map_err(|_what| Broken::Content)?;
        Ok(seal::seal(keys::CHECKPOINT, &body))
    }

    /// What is stored there.
    pub(super) fn decode(body: &[u8]) -> Result<Self, Broken> {
        match postcard::take_from_bytes(body) {
            Ok((checkpoint, [])) => Ok(checkpoint),
            _ => Err(Broken::Content),
        }
    }
}
