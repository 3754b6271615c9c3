//! What idempotent calls have answered.

use std::sync::Arc;

use crate::digest::Digest;
use crate::limits::count;
use crate::{Detail, Limits, Outcome, Rejection};

/// The idempotency key of a call together with what the call said.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct IdempotencyKey {
    key: Arc<str>,
    /// Digest of the method and its params.
    pub call: Digest,
}

impl IdempotencyKey {
    /// Takes a key and the digest of the call that carries it.
    ///
    /// # Errors
    /// [`Rejection::InvalidParams`] when the key is not 1 to 128 bytes long.
    pub fn new(key: &str, call: Digest) -> Result<Self, Rejection> {
        if key.is_empty() || key.len() > Limits::MAX_IDEMPOTENCY_KEY_BYTES {
            return Err(Rejection::invalid("idempotencyKey", "must have from 1 to 128 bytes"));
        }
        Ok(Self { key: Arc::from(key), call })
    }

    /// The key itself.
    #[must_use]
    pub const fn key(&self) -> &Arc<str> {
        &self.key
    }
}

/// The key under which a task was created. It lives as long as the task.
pub type CreateKey = IdempotencyKey;

/// The idempotency memory of one task.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Replay {
    /// The key of the create call, if it had one.
    pub create: Option<CreateKey>,
    /// The newest outcomes, oldest first, at most [`Limits::MAX_OUTCOMES`].
    pub outcomes: Vec<Remembered>,
}

/// The first outcome of a call with an idempotency key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remembered {
    /// The key and what the call said.
    pub key: IdempotencyKey,
    /// What it answered.
    pub outcome: Outcome,
}

impl Replay {
    /// The outcome of an earlier call under the same key.
    ///
    /// # Errors
    /// [`Rejection::IdempotencyMismatch`] when that call said something else.
    pub fn find(&self, key: &IdempotencyKey) -> Result<Option<&Outcome>, Rejection> {
        match self.outcomes.iter().find(|remembered| remembered.key.key == key.key) {
            None => Ok(None),
            Some(remembered) if remembered.key.call == key.call => Ok(Some(&remembered.outcome)),
            Some(_) => Err(Rejection::IdempotencyMismatch),
        }
    }

    /// What the names in the outcomes take, in bytes. They are the only part of this that a caller can make large.
    pub(crate) fn key_bytes(&self) -> u64 {
        let names = |outcome: &Outcome| match &outcome.detail {
            Detail::Inputs { accepted, outstanding } => {
                accepted.iter().chain(outstanding).fold(0u64, |sum, key| sum.saturating_add(count(key.len())))
            }
            Detail::None | Detail::Ttl { .. } => 0,
        };
        self.outcomes.iter().fold(0, |sum, remembered| sum.saturating_add(names(&remembered.outcome)))
    }

    /// Keeps the outcome of a call; the oldest one goes when there are too many.
    pub(crate) fn remember(&mut self, key: IdempotencyKey, outcome: Outcome) {
        let surplus = self.outcomes.len().saturating_add(1).saturating_sub(Limits::MAX_OUTCOMES);
        self.outcomes.drain(..surplus);
        self.outcomes.push(Remembered { key, outcome });
    }
}
