//! Questions to the client and their answers (SEP-2663 `input_required`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::PayloadRef;
use crate::digest::Digest;
use crate::limits::count;

/// The questions and answers of one task over its life.
///
/// A key is in at most one of `outstanding` and `spent`; `answers` holds the newest answer of keys that are spent
/// because they were answered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inputs {
    /// Open questions.
    pub outstanding: BTreeMap<Arc<str>, Question>,
    /// Answers that were accepted.
    pub answers: BTreeMap<Arc<str>, PayloadRef>,
    /// Keys that were answered, superseded, or open when the task ended.
    pub spent: BTreeSet<Arc<str>>,
}

/// One open question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Question {
    /// The request object.
    pub payload: PayloadRef,
    /// What the request asks, without regard to white space and member order; see [`crate::digest::canonical`].
    pub digest: Digest,
}

impl Inputs {
    /// How many keys are in use or used up.
    #[must_use]
    pub fn keys(&self) -> usize {
        self.outstanding.len().saturating_add(self.spent.len())
    }

    pub(crate) fn key_bytes(&self) -> u64 {
        self.outstanding.keys().chain(&self.spent).fold(0, |sum, key| sum.saturating_add(count(key.len())))
    }

    /// Closes all open questions without an answer; their keys are spent. Returns the payloads nobody needs now.
    pub(crate) fn close(&mut self) -> Vec<PayloadRef> {
        let open = std::mem::take(&mut self.outstanding);
        let dropped = open.values().map(|question| question.payload).collect();
        self.spent.extend(open.into_keys());
        dropped
    }
}
