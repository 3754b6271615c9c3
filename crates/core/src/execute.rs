//! The one way in: access, expiry, idempotency, expected revision, then the life cycle.

use std::sync::Arc;

use crate::access::{allows, may_create_for};
use crate::{
    Actor, Caller, Command, CreateKey, Effect, IdempotencyKey, Limits, NewTask, Rejection, Right, Task,
    Timestamp, Transition, Usage, apply,
};

/// What makes a repeated or a stale call safe.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Guard {
    /// The same key with the same call gets the first outcome again.
    pub key: Option<IdempotencyKey>,
    /// The command is carried out only on this revision.
    pub expected_revision: Option<u64>,
}

/// A command with everything that decides whether it may be carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Who asks.
    pub caller: Caller,
    /// In which role.
    pub right: Right,
    /// Idempotency key and expected revision.
    pub guard: Guard,
    /// What is wished.
    pub command: Command,
}

/// Decides about a command on an existing task.
///
/// The order is part of the contract: a caller that may not see the task, or comes after its end of life, learns
/// nothing else; a replay is recognised before the expected revision is looked at, because the first call may
/// have moved it.
///
/// # Errors
/// Every [`Rejection`]. A rejected command changes nothing and is not remembered under its key.
pub fn execute(
    task: &Task,
    request: &Request,
    limits: &Limits,
    usage: &Usage,
    now: Timestamp,
) -> Result<Transition, Rejection> {
    may_see(task, &request.caller, request.right, now)?;
    if let (Some(key), Some(replay)) = (&request.guard.key, &task.replay)
        && let Some(outcome) = replay.find(key)?
    {
        return Ok(Transition { outcome: outcome.clone(), replayed: true, effect: Effect::None });
    }
    if request.guard.expected_revision.is_some_and(|expected| expected != task.revision) {
        return Err(Rejection::RevisionConflict { revision: task.revision });
    }
    let by = match request.right {
        Right::Creator => Actor::Creator,
        Right::Owner => Actor::Owner,
    };
    let mut transition = apply(task, &request.command, by, limits, now)?;
    if let Effect::Write { task: after, .. } = &transition.effect {
        limits.quota.admit_growth(task, after, usage)?;
    }
    if let Some(key) = &request.guard.key {
        remember(task, key, &mut transition);
    }
    Ok(transition)
}

/// Whether `caller` may know about `task` at all.
///
/// # Errors
/// [`Rejection::Foreign`] or [`Rejection::Expired`], which look alike from outside.
pub fn may_see(task: &Task, caller: &Caller, right: Right, now: Timestamp) -> Result<(), Rejection> {
    if !allows(task, caller, right) {
        return Err(Rejection::Foreign);
    }
    if task.is_expired(now) {
        return Err(Rejection::Expired);
    }
    Ok(())
}

/// Puts the outcome into the state that is written with the transition: one durable write for both.
fn remember(before: &Task, key: &IdempotencyKey, transition: &mut Transition) {
    let outcome = transition.outcome.clone();
    match &mut transition.effect {
        Effect::Write { task, .. } => {
            Arc::make_mut(task.replay.get_or_insert_default()).remember(key.clone(), outcome);
        }
        Effect::None => {
            let mut task = Box::new(before.clone());
            Arc::make_mut(task.replay.get_or_insert_default()).remember(key.clone(), outcome);
            transition.effect =
                Effect::Write { task, payloads: Vec::new(), dropped: Vec::new(), event: None };
        }
        // A discarded task takes its outcomes along.
        Effect::Remove { .. } => {}
    }
}

/// Decides about a create call whose key is taken by a live task of the same creator.
///
/// # Errors
/// [`Rejection::IdempotencyMismatch`] when the key was used for another call, and what the call itself would
/// have been refused for.
pub fn replay_create(
    existing: &Task,
    new: &NewTask,
    caller: &Caller,
    limits: &Limits,
) -> Result<(), Rejection> {
    limits.check_new(new)?;
    may_create_for(caller, &new.owner)?;
    let same = |first: &CreateKey| new.key.as_ref().is_some_and(|key| key.call == first.call);
    if existing.replay.as_ref().and_then(|replay| replay.create.as_ref()).is_some_and(same) {
        Ok(())
    } else {
        Err(Rejection::IdempotencyMismatch)
    }
}
