//! Creation of a task.

use std::borrow::Cow;
use std::sync::Arc;

use crate::access::may_create_for;
use crate::text;
use crate::{
    Actor, Caller, CreateKey, Detail, Effect, Event, EventKind, HistoryEntry, Limits, Outcome, Payload,
    Phase, Rejection, Replay, Status, Subject, Task, TaskId, Timestamp, Transition, Usage,
};

/// What a creator wishes for.
#[derive(Clone, Debug)]
pub struct NewTask {
    /// A fresh random id.
    pub id: TaskId,
    /// The tool that was called.
    pub tool_name: Arc<str>,
    /// The arguments of the call.
    pub arguments: Payload,
    /// The TTL.
    pub ttl: TtlWish,
    /// Whose task it is to be.
    pub owner: Subject,
    /// The poll interval in milliseconds; the default without one.
    pub poll_interval_ms: Option<u64>,
    /// The protocol's `_meta`.
    pub meta: Option<Payload>,
    /// The idempotency key.
    pub key: Option<CreateKey>,
}

/// The TTL a creator wishes for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TtlWish {
    /// None named.
    Default,
    /// As long as possible.
    Maximum,
    /// This many milliseconds; cut to the maximum.
    Millis(u64),
}

impl NewTask {
    /// How many payload bytes the task carries.
    #[must_use]
    pub fn payload_bytes(&self) -> u64 {
        self.meta.as_ref().map_or(0, Payload::len).saturating_add(self.arguments.len())
    }
}

/// Decides about a new task. The store inserts it if the key is free for this creator.
///
/// # Errors
/// [`Rejection::Forbidden`] for another owner without the scope, [`Rejection::LimitExceeded`] when a quota is
/// used up, and whatever [`Limits::check_new`] finds.
pub fn create(
    new: NewTask,
    caller: &Caller,
    limits: &Limits,
    usage: &Usage,
    now: Timestamp,
) -> Result<Transition, Rejection> {
    limits.check_new(&new)?;
    may_create_for(caller, &new.owner)?;
    let ttl_ms = match new.ttl {
        TtlWish::Default => limits.cut_ttl(limits.default_ttl_ms),
        TtlWish::Maximum => limits.max_ttl_ms,
        TtlWish::Millis(wish) => limits.cut_ttl(wish),
    };
    let poll = new.poll_interval_ms.and_then(|wish| u32::try_from(wish).ok());
    let first =
        HistoryEntry { revision: Task::FIRST_REVISION, at: now, kind: EventKind::Create, by: Actor::Creator };
    let arguments = new.arguments.reference(Task::FIRST_REVISION, 0);
    let meta = new.meta.as_ref().map(|meta| meta.reference(Task::FIRST_REVISION, 1));
    let task = Task {
        id: new.id,
        tool_name: new.tool_name,
        creator: caller.subject.clone(),
        owner: new.owner,
        phase: Phase::Working,
        message: Cow::Borrowed(text::STARTED),
        created_at: now,
        updated_at: now,
        ttl_ms,
        poll_interval_ms: poll.unwrap_or(limits.default_poll_interval_ms),
        revision: Task::FIRST_REVISION,
        cancel_requested: false,
        arguments,
        meta,
        inputs: None,
        replay: new.key.map(|key| Arc::new(Replay { create: Some(key), outcomes: Vec::new() })),
        history: Box::new([first]),
    };
    limits.quota.admit_new(&task, usage)?;
    let mut payloads = vec![(arguments, new.arguments.bytes().clone())];
    payloads.extend(meta.zip(new.meta.map(|meta| meta.bytes().clone())));
    let event = Event::of(EventKind::Create, &task);
    Ok(Transition {
        outcome: Outcome {
            applied: true,
            status: Status::Working,
            revision: Task::FIRST_REVISION,
            detail: Detail::None,
        },
        replayed: false,
        effect: Effect::Write { task: Box::new(task), payloads, dropped: Vec::new(), event: Some(event) },
    })
}
