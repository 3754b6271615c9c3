//! The task: all that is needed to decide about it.

use std::borrow::Cow;
use std::sync::Arc;

use crate::limits::count;
use crate::{EventKind, Inputs, Limits, PayloadRef, Phase, Replay, Status, TaskId, Timestamp};

/// The `sub` claim of a verified token, or nobody.
pub type Subject = Option<Arc<str>>;

/// A task without its payloads, which it only refers to: deciding about a task never needs them.
///
/// Parts that most tasks do not have are behind a pointer and shared between revisions, because a store keeps
/// one of these in memory for every live task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// The id.
    pub id: TaskId,
    /// The tool that was called.
    pub tool_name: Arc<str>,
    /// Who created it: normally an MCP server's service account.
    pub creator: Subject,
    /// Whose task it is.
    pub owner: Subject,
    /// The status with its data.
    pub phase: Phase,
    /// The status message.
    pub message: Cow<'static, str>,
    /// When it was created. Never changes.
    pub created_at: Timestamp,
    /// When it last changed. Never before `created_at`, never backwards.
    pub updated_at: Timestamp,
    /// The TTL in force, in milliseconds from creation.
    pub ttl_ms: u64,
    /// The suggested poll interval in milliseconds.
    pub poll_interval_ms: u32,
    /// How many transitions there were, creation included.
    pub revision: u64,
    /// Whether anybody ever asked to cancel it, also after its end.
    pub cancel_requested: bool,
    /// The arguments of the call.
    pub arguments: PayloadRef,
    /// The protocol's `_meta`, if any was set.
    pub meta: Option<PayloadRef>,
    /// Questions and answers, if there ever was a question.
    pub inputs: Option<Arc<Inputs>>,
    /// What idempotent calls have answered, if there was one.
    pub replay: Option<Arc<Replay>>,
    /// The newest transitions, oldest first, at most [`Limits::MAX_HISTORY`].
    pub history: Box<[HistoryEntry]>,
}

/// One transition in a task's history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HistoryEntry {
    /// The revision that it made.
    pub revision: u64,
    /// When.
    pub at: Timestamp,
    /// What happened.
    pub kind: EventKind,
    /// Who asked for it.
    pub by: Actor,
}

/// In which role somebody changed a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Actor {
    /// Through a worker method (`store/*`).
    Creator,
    /// Through an owner's method (`tasks/*`).
    Owner,
}

impl Task {
    /// The revision that a creation makes. Its arguments are written with it and stay for good, so whoever has a payload of this
    /// revision that is still wanted has the task's whole life in hand.
    pub const FIRST_REVISION: u64 = 1;

    /// The status.
    #[must_use]
    pub const fn status(&self) -> Status {
        self.phase.status()
    }

    /// The first instant at which the task is gone: creation plus TTL (SEP-2663 counts from creation).
    #[must_use]
    pub const fn expires_at(&self) -> Timestamp {
        self.created_at.saturating_add(self.ttl_ms)
    }

    /// Whether the task is gone at `now`. An expired task reads as absent, whether or not it was removed.
    #[must_use]
    pub fn is_expired(&self, now: Timestamp) -> bool {
        now >= self.expires_at()
    }

    /// Milliseconds until the task expires, 0 when it has.
    #[must_use]
    pub const fn remaining_ms(&self, now: Timestamp) -> u64 {
        self.expires_at().saturating_since(now)
    }

    /// The questions that a reader is shown: the open ones, and only while the task waits for them.
    pub fn shown_questions(&self) -> impl Iterator<Item = (&Arc<str>, &PayloadRef)> {
        let inputs = match self.phase {
            Phase::InputRequired => self.inputs.as_deref(),
            Phase::Working | Phase::Completed(_) | Phase::Failed(_) | Phase::Cancelled => None,
        };
        inputs
            .into_iter()
            .flat_map(|inputs| inputs.outstanding.iter().map(|(key, question)| (key, &question.payload)))
    }

    /// The answers so far, by key.
    pub fn answers(&self) -> impl Iterator<Item = (&Arc<str>, &PayloadRef)> {
        self.inputs.as_deref().into_iter().flat_map(|inputs| inputs.answers.iter())
    }

    /// Every payload the task keeps.
    pub fn payloads(&self) -> impl Iterator<Item = &PayloadRef> {
        let end = match &self.phase {
            Phase::Completed(payload) | Phase::Failed(payload) => Some(payload),
            Phase::Working | Phase::InputRequired | Phase::Cancelled => None,
        };
        let questions = self
            .inputs
            .as_deref()
            .into_iter()
            .flat_map(|inputs| inputs.outstanding.values().map(|question| &question.payload));
        std::iter::once(&self.arguments)
            .chain(&self.meta)
            .chain(end)
            .chain(questions)
            .chain(self.answers().map(|(_, payload)| payload))
    }

    /// What the task counts against its owner's quota, in bytes: its payloads, the names that came with them, and a
    /// fixed share for the record itself. Messages and history are small and part of that share, so that a cancel
    /// can never be refused for the quota.
    #[must_use]
    pub fn footprint(&self) -> u64 {
        const RECORD_BYTES: u64 = 512;
        let payloads = self.payloads().map(|payload| u64::from(payload.len));
        let names = [
            count(self.tool_name.len()),
            self.inputs.as_deref().map_or(0, Inputs::key_bytes),
            self.replay.as_deref().map_or(0, Replay::key_bytes),
        ];
        payloads.chain(names).fold(RECORD_BYTES, u64::saturating_add)
    }

    /// Makes this a task at the next revision: the one place where revision, time and history move.
    pub(crate) fn advance(&mut self, kind: EventKind, by: Actor, now: Timestamp) {
        self.revision = self.revision.saturating_add(1);
        self.updated_at = self.updated_at.max(now);
        let entry = HistoryEntry { revision: self.revision, at: self.updated_at, kind, by };
        let surplus = self.history.len().saturating_add(1).saturating_sub(Limits::MAX_HISTORY);
        self.history = self.history.iter().copied().skip(surplus).chain(std::iter::once(entry)).collect();
    }
}
