//! What the wire shows of a task against the task that the core has made. An error says what differs.

use std::collections::BTreeMap;
use std::fmt::Debug;

use task_broker_core::{PayloadRef, Phase, Task, Transition};
use task_broker_protocol::Json;
use task_broker_protocol::methods::{resume, statuses, tasks_get};
use task_broker_protocol::shapes::{self, Outcome, Row, Snapshot};

use crate::call::word;

type Check = Result<(), String>;

/// A time of the wire in milliseconds.
pub(crate) fn millis(time: &str) -> Result<u64, String> {
    let at: jiff::Timestamp = time.parse().map_err(|error| format!("{time}: {error}"))?;
    u64::try_from(at.as_millisecond()).map_err(|_negative| format!("{time} is before 1970"))
}

/// The broker's time at which this much of the TTL remains.
pub(crate) fn now(task: &Task, remaining_ms: u64) -> u64 {
    task.expires_at().as_millis().saturating_sub(remaining_ms)
}

pub(crate) fn same<T: PartialEq + Debug>(what: &str, told: &T, core: &T) -> Check {
    if told == core { Ok(()) } else { Err(format!("{what} {told:?} is told, and the core says {core:?}")) }
}

pub(crate) fn outcome(transition: &Transition, told: &Outcome) -> Check {
    same("revision", &told.revision, &transition.outcome.revision)?;
    same("status", &told.status.as_str(), &word(transition.outcome.status))?;
    same("applied", &told.applied, &transition.outcome.applied)?;
    same("replayed", &told.replayed, &transition.replayed)
}

pub(crate) fn snapshot(task: &Task, told: &Snapshot, now: u64) -> Check {
    same("revision", &told.revision, &task.revision)?;
    view(task, told, now)
}

/// All but the revision.
pub(crate) fn view(task: &Task, told: &Snapshot, now: u64) -> Check {
    let Snapshot {
        task: shown,
        owner,
        tool_name,
        revision: _,
        remaining_ms,
        cancel_requested,
        result,
        error,
        input_requests,
    } = told;
    head(task, shown)?;
    around(task, owner.as_deref(), tool_name, *remaining_ms, *cancel_requested, now)?;
    end(task, result.as_ref(), error.as_ref())?;
    payloads("inputRequests", input_requests, &task.shown_questions().map(|(key, at)| (&**key, at)).collect())
}

pub(crate) fn row(task: &Task, told: &Row, now: u64) -> Check {
    let Row { task: shown, owner, tool_name, revision, remaining_ms, cancel_requested } = told;
    same("revision", revision, &task.revision)?;
    head(task, shown)?;
    around(task, owner.as_deref(), tool_name, *remaining_ms, *cancel_requested, now)
}

pub(crate) fn owner(task: &Task, told: &tasks_get::DetailedTask) -> Check {
    let tasks_get::DetailedTask { task: shown, input_requests, result, error } = told;
    head(task, shown)?;
    end(task, result.as_ref(), error.as_ref())?;
    payloads("inputRequests", input_requests, &task.shown_questions().map(|(key, at)| (&**key, at)).collect())
}

pub(crate) fn resume(task: &Task, told: &resume::Context) -> Check {
    let resume::Context {
        tool_name,
        arguments,
        input_responses,
        revision,
        remaining_ms: _,
        cancel_requested,
    } = told;
    same("revision", revision, &task.revision)?;
    same("toolName", &tool_name.as_str(), &&*task.tool_name)?;
    same("cancelRequested", cancel_requested, &task.cancel_requested)?;
    payload("arguments", Some(arguments), Some(&task.arguments))?;
    payloads("inputResponses", input_responses, &task.answers().map(|(key, at)| (&**key, at)).collect())
}

pub(crate) fn state(task: &Task, told: &statuses::State) -> Check {
    let statuses::State { status, revision, remaining_ms: _, cancel_requested } = told;
    same("revision", revision, &task.revision)?;
    same("status", &status.as_str(), &word(task.status()))?;
    same("cancelRequested", cancel_requested, &task.cancel_requested)
}

fn head(task: &Task, told: &shapes::Task) -> Check {
    let shapes::Task {
        task_id,
        status,
        status_message,
        created_at,
        last_updated_at,
        ttl_ms,
        poll_interval_ms,
        meta,
    } = told;
    same("status", &status.as_str(), &word(task.status()))?;
    same("statusMessage", &status_message.as_deref(), &Some(&*task.message))?;
    same("ttlMs", ttl_ms, &task.ttl_ms)?;
    same("lastUpdatedAt", &millis(last_updated_at)?, &task.updated_at.as_millis())?;
    same("createdAt", &millis(created_at)?, &task.created_at.as_millis())?;
    same("pollIntervalMs", poll_interval_ms, &u64::from(task.poll_interval_ms))?;
    same("taskId", task_id, &task.id.to_string())?;
    payload("_meta", meta.as_ref(), task.meta.as_ref())
}

fn around(task: &Task, owner: Option<&str>, tool: &str, left: u64, cancel: bool, now: u64) -> Check {
    same("owner", &owner, &task.owner.as_deref())?;
    same("toolName", &tool, &&*task.tool_name)?;
    same("cancelRequested", &cancel, &task.cancel_requested)?;
    same("remainingMs", &left, &task.expires_at().as_millis().saturating_sub(now))
}

fn end(task: &Task, result: Option<&Json>, error: Option<&Json>) -> Check {
    let (completed, failed) = match &task.phase {
        Phase::Completed(at) => (Some(at), None),
        Phase::Failed(at) => (None, Some(at)),
        Phase::Working | Phase::InputRequired | Phase::Cancelled => (None, None),
    };
    payload("result", result, completed)?;
    payload("error", error, failed)
}

fn payload(what: &str, told: Option<&Json>, core: Option<&PayloadRef>) -> Check {
    match (told, core) {
        (None, None) => Ok(()),
        (Some(told), Some(core)) if core.matches(told.as_bytes()) => Ok(()),
        (told, core) => {
            let told = told
                .map(|json| String::from_utf8_lossy(json.as_bytes()).chars().take(60).collect::<String>());
            Err(format!("{what} {told:?} is told, and the core says {core:?}"))
        }
    }
}

fn payloads(what: &str, told: &BTreeMap<String, Json>, core: &BTreeMap<&str, &PayloadRef>) -> Check {
    same(what, &told.keys().map(String::as_str).collect::<Vec<_>>(), &core.keys().copied().collect())?;
    told.values().zip(core.values()).try_for_each(|(told, core)| payload(what, Some(told), Some(core)))
}
