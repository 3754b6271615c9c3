//! What a command does: an outcome for the caller, an effect for the store.

use std::sync::Arc;

use bytes::Bytes;

use crate::{PayloadRef, Status, Task, Timestamp};

/// A decided command. Nothing of it is true before the store has made the effect durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transition {
    /// What the caller is told.
    pub outcome: Outcome,
    /// Whether the outcome is the one of an earlier call with the same idempotency key.
    pub replayed: bool,
    /// What the store has to write.
    pub effect: Effect,
}

impl Transition {
    /// Whether the task is another one afterwards, and not only shown, or told an idempotency key.
    #[must_use]
    pub const fn is_change(&self) -> bool {
        matches!(self.effect, Effect::Write { event: Some(_), .. } | Effect::Remove { .. })
    }
}

/// What the caller of a command is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The task was live and the command was carried out, even if nothing changed.
    pub applied: bool,
    /// The status afterwards (of a discarded task: its last one).
    pub status: Status,
    /// The revision afterwards.
    pub revision: u64,
    /// What only some commands tell.
    pub detail: Detail,
}

/// What only some commands tell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Detail {
    /// Nothing more.
    #[default]
    None,
    /// For answers. What was ignored is every other key of the call; it is not kept, because a replay carries the
    /// same keys again.
    Inputs {
        /// Keys that were answered by this call, sorted.
        accepted: Vec<Arc<str>>,
        /// Keys that are still open, sorted.
        outstanding: Vec<Arc<str>>,
    },
    /// For a changed TTL.
    Ttl {
        /// The TTL in force, in milliseconds.
        ttl_ms: u64,
        /// What was left of it, in milliseconds.
        remaining_ms: u64,
    },
}

/// What a store has to write, all of it or nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Nothing.
    None,
    /// The task as it is from now on.
    Write {
        /// The new state.
        task: Box<Task>,
        /// Payloads that are new.
        payloads: Vec<(PayloadRef, Bytes)>,
        /// Payloads that nobody needs any more. They are deleted only after the new state is durable.
        dropped: Vec<PayloadRef>,
        /// What watchers are told; none when only an idempotency outcome was added.
        event: Option<Event>,
    },
    /// The task goes, with all its payloads.
    Remove {
        /// What watchers are told.
        event: Event,
    },
}

/// The fact that something happened to a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// What happened.
    pub kind: EventKind,
    /// The status afterwards.
    pub status: Status,
    /// The revision afterwards.
    pub revision: u64,
    /// Whether a cancel was ever asked for.
    pub cancel_requested: bool,
    /// When the task expires.
    pub expires_at: Timestamp,
}

impl Event {
    /// The event that leaves `task` as it is given.
    #[must_use]
    pub fn of(kind: EventKind, task: &Task) -> Self {
        Self {
            kind,
            status: task.status(),
            revision: task.revision,
            cancel_requested: task.cancel_requested,
            expires_at: task.expires_at(),
        }
    }
}

/// What happened to a task: the name of the command, or its expiry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EventKind {
    /// It was created.
    Create,
    /// Questions were asked.
    RequireInput,
    /// Answers came.
    ApplyInput,
    /// Its status was set.
    SetStatus,
    /// Its TTL was set.
    SetTtl,
    /// Its meta was set.
    SetMeta,
    /// It completed.
    Complete,
    /// It failed.
    Fail,
    /// It was cancelled, or a cancel was asked for after its end.
    Cancel,
    /// It was discarded.
    Discard,
    /// Its TTL ran out.
    Expired,
}
