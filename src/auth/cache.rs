//! Tokens that were verified a moment ago: most callers send the same one with every request, and a check of an RSA
//! signature costs ten times as much as everything else that is done with a token.
//!
//! A cache belongs to one set of keys and goes with it, so nothing in it can outlive a key that was taken away. What it
//! holds is what a check has shown, never that a check has failed: whoever sends bad tokens fills nothing.

use std::fmt;

use aws_lc_rs::digest::{SHA256, digest};
use foldhash::quality::RandomState;
use quick_cache::UnitWeighter;
use quick_cache::sync::{Cache, DefaultLifecycle};
use task_broker_core::Timestamp;

use super::{Unauthorized, Verified};

/// How many tokens are kept. With the longest subjects that is about 12 MiB.
const MAX_TOKENS: usize = 16 * 1024;

/// The name of a token in the cache: its SHA-256, of which nobody can make two tokens, and which does not give the token
/// away, so that the memory of the process holds no list of tokens.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct TokenName([u8; 32]);

impl TokenName {
    /// The name of this token.
    pub(super) fn of(token: &str) -> Option<Self> {
        digest(&SHA256, token.as_bytes()).as_ref().try_into().ok().map(Self)
    }
}

/// What is known about a token.
#[derive(Clone)]
pub(super) struct Known {
    pub(super) verified: Verified,
    /// The first instant at which it is good, leeway included.
    pub(super) valid_from: Option<Timestamp>,
}

impl Known {
    /// What the token is worth now.
    pub(super) fn at(self, now: Timestamp) -> Result<Verified, Unauthorized> {
        if self.verified.valid_until.is_some_and(|end| end <= now) {
            return Err(Unauthorized::EXPIRED);
        }
        if self.valid_from.is_some_and(|start| now < start) {
            return Err(Unauthorized::NOT_YET);
        }
        Ok(self.verified)
    }
}

/// The verified tokens of one set of keys.
pub(super) struct TokenCache(Cache<TokenName, Known, UnitWeighter, RandomState>);

impl TokenCache {
    pub(super) fn new() -> Self {
        let (most, hash) = (MAX_TOKENS as u64, RandomState::default());
        Self(Cache::with(MAX_TOKENS, most, UnitWeighter, hash, DefaultLifecycle::default()))
    }

    /// What is known about the token of this name.
    pub(super) fn get(&self, name: &TokenName) -> Option<Known> {
        self.0.get(name)
    }

    pub(super) fn insert(&self, name: TokenName, known: Known) {
        self.0.insert(name, known);
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

impl fmt::Debug for TokenCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TokenCache({})", self.0.len())
    }
}
