//! What a crash has left behind while sled followed. A start finds it ([`super::proof`]); the follower removes it while it has
//! nothing to carry.

use super::tree::{Tree, TreeError};
use super::writer::Shared;

/// How many keys are looked at in one step.
const STEP: usize = 64;

/// Beginnings of keys that no task named at the start, but for those that are done.
#[derive(Debug)]
pub(super) struct Orphans(Vec<Vec<u8>>);

impl Orphans {
    pub(super) const fn new(orphans: Vec<Vec<u8>>) -> Self {
        Self(orphans)
    }

    /// Whether there is nothing to do.
    pub(super) const fn is_done(&self) -> bool {
        self.0.is_empty()
    }

    /// One step. An error is final for sled.
    pub(super) fn step(&mut self, tree: &mut Tree, shared: &Shared) -> Result<(), TreeError> {
        let mut left = STEP;
        while left > 0
            && let Some(prefix) = self.0.pop()
        {
            let (seen, all) = tree.remove_orphans(&prefix, left, |id| shared.index.get(id))?;
            if !all {
                self.0.push(prefix);
            }
            left = left.saturating_sub(seen.max(1));
        }
        Ok(())
    }
}
