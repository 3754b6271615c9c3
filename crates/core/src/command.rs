//! Commands: wishes to change a task.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::digest::Digest;
use crate::{EventKind, Payload, Status};

/// A wish to change an existing task. Creation is [`crate::create`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Ask the client; replaces the open questions.
    RequireInput {
        /// The questions by key; at least one.
        requests: BTreeMap<Arc<str>, Ask>,
        /// The status message; "Awaiting client input" without one.
        message: Option<String>,
        /// What to do with keys that were used before.
        on_spent: OnSpentKey,
    },
    /// Answer open questions; other keys are ignored.
    ApplyInput {
        /// The answers by key.
        responses: BTreeMap<Arc<str>, Payload>,
    },
    /// Set a status that is not final.
    SetStatus {
        /// The status wished for.
        status: Status,
        /// The new message; the old one stays without.
        message: Option<String>,
    },
    /// Set the TTL, counted from creation.
    SetTtl {
        /// Milliseconds; cut to the maximum.
        ttl_ms: u64,
    },
    /// Replace the protocol's `_meta`.
    SetMeta {
        /// A JSON object.
        meta: Payload,
    },
    /// End with a result, also one that says `isError`.
    Complete {
        /// A JSON object.
        result: Payload,
    },
    /// End with a JSON-RPC error.
    Fail {
        /// The error object.
        error: Payload,
        /// Its message, for the status message.
        message: String,
    },
    /// Cancel, or leave a sign for the worker when the task has ended already.
    Cancel {
        /// Why.
        reason: Option<String>,
    },
    /// Remove the task.
    Discard,
}

impl Command {
    /// The kind of event the command makes.
    #[must_use]
    pub const fn kind(&self) -> EventKind {
        match self {
            Self::RequireInput { .. } => EventKind::RequireInput,
            Self::ApplyInput { .. } => EventKind::ApplyInput,
            Self::SetStatus { .. } => EventKind::SetStatus,
            Self::SetTtl { .. } => EventKind::SetTtl,
            Self::SetMeta { .. } => EventKind::SetMeta,
            Self::Complete { .. } => EventKind::Complete,
            Self::Fail { .. } => EventKind::Fail,
            Self::Cancel { .. } => EventKind::Cancel,
            Self::Discard => EventKind::Discard,
        }
    }

    /// How many payload bytes the command carries.
    #[must_use]
    pub fn payload_bytes(&self) -> u64 {
        let sum = |payloads: &mut dyn Iterator<Item = &Payload>| {
            payloads.fold(0u64, |sum, payload| sum.saturating_add(payload.len()))
        };
        match self {
            Self::RequireInput { requests, .. } => sum(&mut requests.values().map(|ask| &ask.payload)),
            Self::ApplyInput { responses } => sum(&mut responses.values()),
            Self::SetMeta { meta: payload }
            | Self::Complete { result: payload }
            | Self::Fail { error: payload, .. } => payload.len(),
            Self::SetStatus { .. } | Self::SetTtl { .. } | Self::Cancel { .. } | Self::Discard => 0,
        }
    }
}

/// One question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    /// The request object.
    pub payload: Payload,
    /// What it asks; see [`crate::digest::canonical`].
    pub digest: Digest,
}

/// What `RequireInput` does with a key that was used before. Two published versions of the trait this service
/// implements promise different things, so the caller says which one it wants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnSpentKey {
    /// A fresh question; the earlier answer is dropped.
    #[default]
    AskAgain,
    /// An invalid transition, as is another question under an open key.
    Reject,
}
