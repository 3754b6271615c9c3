//! What is too much.

use crate::{Command, NewTask, Payload, Rejection, Status, Task};

/// Growth that a failure is granted even beyond the quota, in bytes.
const SMALL_ERROR_BYTES: u64 = 4096;

/// The limits of a broker, in one place. Each is a setting; `store/info` shows them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The TTL of a task whose creator named none, in milliseconds.
    pub default_ttl_ms: u64,
    /// The largest TTL in force, in milliseconds; a larger one is cut to it.
    pub max_ttl_ms: u64,
    /// The poll interval of a task whose creator named none, in milliseconds.
    pub default_poll_interval_ms: u32,
    /// The largest payload, in bytes (each of arguments, result, error, one question, one answer).
    pub max_payload_bytes: u64,
    /// Quotas.
    pub quota: Quota,
}

impl Limits {
    /// The longest tool name, in bytes.
    pub const MAX_TOOL_NAME_BYTES: usize = 256;
    /// The largest `meta`, in bytes. It is part of every view of a task, lists included.
    pub const MAX_META_BYTES: u64 = 64 * 1024;
    /// The longest subject of an owner or caller, in bytes.
    pub const MAX_SUBJECT_BYTES: usize = 512;
    /// The longest key of an input request, in bytes.
    pub const MAX_INPUT_KEY_BYTES: usize = 128;
    /// The longest idempotency key, in bytes.
    pub const MAX_IDEMPOTENCY_KEY_BYTES: usize = 128;
    /// How many questions may be open at once.
    pub const MAX_OUTSTANDING: usize = 64;
    /// How many input keys a task may use up over its life. Open questions count, because they will be spent:
    /// so neither an answer nor the end of a task can ever be refused for this limit.
    pub const MAX_SPENT: usize = 1024;
    /// How many outcomes of idempotent calls a task keeps, the newest ones.
    pub const MAX_OUTCOMES: usize = 32;
    /// How many transitions a task's history keeps, the newest ones.
    pub const MAX_HISTORY: usize = 32;
    /// The bounds of a poll interval, in milliseconds.
    pub const POLL_INTERVAL_MS: std::ops::RangeInclusive<u32> = 100..=3_600_000;

    /// The TTL in force for a wished one.
    #[must_use]
    pub fn cut_ttl(&self, ttl_ms: u64) -> u64 {
        ttl_ms.min(self.max_ttl_ms)
    }

    pub(crate) fn check_payload(&self, payload: &Payload) -> Result<(), Rejection> {
        at_most("maxPayloadBytes", payload.len(), self.max_payload_bytes)
    }

    /// The largest `meta` in force, in bytes: it is a payload too.
    #[must_use]
    pub fn max_meta_bytes(&self) -> u64 {
        Self::MAX_META_BYTES.min(self.max_payload_bytes)
    }

    pub(crate) fn check_meta(&self, meta: &Payload) -> Result<(), Rejection> {
        at_most("maxMetaBytes", meta.len(), self.max_meta_bytes())
    }

    /// Checks all of a command that does not depend on the task it is meant for.
    ///
    /// # Errors
    /// [`Rejection::InvalidParams`] or [`Rejection::LimitExceeded`], naming what is at fault.
    pub fn check_command(&self, command: &Command) -> Result<(), Rejection> {
        match command {
            Command::RequireInput { requests, .. } => {
                if requests.is_empty() {
                    return Err(Rejection::invalid("inputRequests", "at least one request is needed"));
                }
                at_most("maxOutstandingInputs", count(requests.len()), count(Self::MAX_OUTSTANDING))?;
                for (key, ask) in requests {
                    check_input_key("inputRequests", key)?;
                    self.check_payload(&ask.payload)?;
                }
                Ok(())
            }
            Command::ApplyInput { responses } => {
                for (key, answer) in responses {
                    check_input_key("inputResponses", key)?;
                    self.check_payload(answer)?;
                }
                Ok(())
            }
            Command::SetMeta { meta } => self.check_meta(meta),
            Command::Complete { result } => self.check_payload(result),
            Command::Fail { error, .. } => self.check_payload(error),
            Command::SetStatus { .. }
            | Command::SetTtl { .. }
            | Command::Cancel { .. }
            | Command::Discard => Ok(()),
        }
    }

    /// Checks all of a new task that does not depend on what is stored.
    ///
    /// # Errors
    /// [`Rejection::InvalidParams`] or [`Rejection::LimitExceeded`], naming what is at fault.
    pub fn check_new(&self, new: &NewTask) -> Result<(), Rejection> {
        if new.tool_name.is_empty() {
            return Err(Rejection::invalid("toolName", "must not be empty"));
        }
        at_most("maxToolNameBytes", count(new.tool_name.len()), count(Self::MAX_TOOL_NAME_BYTES))?;
        if new.owner.as_ref().is_some_and(|owner| owner.len() > Self::MAX_SUBJECT_BYTES) {
            return Err(Rejection::invalid("owner", "must be at most 512 bytes"));
        }
        if new.poll_interval_ms.is_some_and(|wish| !in_poll_bounds(wish)) {
            return Err(Rejection::invalid("pollIntervalMs", "must be from 100 to 3600000"));
        }
        self.check_payload(&new.arguments)?;
        new.meta.as_ref().map_or(Ok(()), |meta| self.check_meta(meta))
    }
}

fn in_poll_bounds(wish: u64) -> bool {
    u32::try_from(wish).is_ok_and(|wish| Limits::POLL_INTERVAL_MS.contains(&wish))
}

fn check_input_key(member: &'static str, key: &str) -> Result<(), Rejection> {
    if key.len() > Limits::MAX_INPUT_KEY_BYTES {
        return Err(Rejection::invalid(member, "a key must have at most 128 bytes"));
    }
    Ok(())
}

pub(crate) fn at_most(limit: &'static str, value: u64, maximum: u64) -> Result<(), Rejection> {
    if value > maximum { Err(Rejection::LimitExceeded { limit, maximum }) } else { Ok(()) }
}

pub(crate) fn count(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}

/// How much one owner, and all together, may keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    /// Live tasks of one owner. Tasks without an owner count only against [`Quota::max_tasks`].
    pub tasks_per_owner: u64,
    /// Bytes of one owner, measured by [`Task::footprint`].
    pub bytes_per_owner: u64,
    /// Live tasks of all owners together.
    pub max_tasks: u64,
}

/// What is kept now, as the store counts it in the same atomic step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Live tasks of the task's owner; 0 for a task without one.
    pub owner_tasks: u64,
    /// Bytes of the task's owner; 0 for a task without one.
    pub owner_bytes: u64,
    /// Live tasks of all owners.
    pub total_tasks: u64,
}

impl Quota {
    /// Whether one more task may be kept.
    ///
    /// # Errors
    /// [`Rejection::LimitExceeded`] with the quota that is used up.
    pub fn admit_new(&self, task: &Task, usage: &Usage) -> Result<(), Rejection> {
        at_most("maxTasks", usage.total_tasks.saturating_add(1), self.max_tasks)?;
        if task.owner.is_some() {
            at_most("quotaTasksPerOwner", usage.owner_tasks.saturating_add(1), self.tasks_per_owner)?;
            let bytes = usage.owner_bytes.saturating_add(task.footprint());
            at_most("quotaBytesPerOwner", bytes, self.bytes_per_owner)?;
        }
        Ok(())
    }

    /// Whether a task may grow from `before` to `after`. One that shrinks or stays may always, and so may one
    /// that fails with a small error: otherwise a worker whose result no longer fits could not even say so. That
    /// grant is for the step into the failure, not for what happens to a failed task later.
    ///
    /// # Errors
    /// [`Rejection::LimitExceeded`] with the quota that is used up.
    pub fn admit_growth(&self, before: &Task, after: &Task, usage: &Usage) -> Result<(), Rejection> {
        let growth = after.footprint().saturating_sub(before.footprint());
        let fails = before.status() != Status::Failed && after.status() == Status::Failed;
        let small_failure = fails && growth <= SMALL_ERROR_BYTES;
        if after.owner.is_none() || growth == 0 || small_failure {
            return Ok(());
        }
        at_most("quotaBytesPerOwner", usage.owner_bytes.saturating_add(growth), self.bytes_per_owner)
    }
}
