//! Values of the wire as those of tower-mcp, and back.
//!
//! The wire keeps payloads as bytes and can hold what a `serde_json::Value` cannot: lone surrogate escapes, numbers
//! beyond its range. Reading such a payload is a decode error of that task and of no other.

use std::collections::BTreeMap;
use std::fmt::Display;

use ::tower_mcp::async_task::{Result, TaskSnapshot, TaskStoreError};
use ::tower_mcp::error::JsonRpcError;
use ::tower_mcp::protocol::{InputRequests, InputResponses, TaskObject, TaskStatus};
use serde::Serialize;
use serde::de::DeserializeOwned;
use task_broker_protocol::Json;
use task_broker_protocol::shapes::{Snapshot, Status, Task, TaskError};

/// Writes a payload.
pub(crate) fn encode<T: Serialize + ?Sized>(what: &str, value: &T) -> Result<Json> {
    Json::of(value).map_err(|error| TaskStoreError::Encode(format!("{what}: {error}")))
}

/// Writes payloads by key.
pub(crate) fn encode_map<T: Serialize>(
    what: &str,
    map: &BTreeMap<String, T>,
) -> Result<BTreeMap<String, Json>> {
    map.iter().map(|(key, value)| Ok((key.clone(), encode(what, value)?))).collect()
}

fn broken(task_id: &str, what: &str, error: &dyn Display) -> TaskStoreError {
    TaskStoreError::Decode(format!("the {what} of task {task_id}: {error}"))
}

fn decode<T: DeserializeOwned>(task_id: &str, what: &str, payload: &Json) -> Result<T> {
    payload.read().map_err(|error| broken(task_id, what, &error))
}

/// A task without its payloads. Its `_meta` is read, and can be what cannot be.
pub(crate) fn task_object(task: &Task) -> Result<TaskObject> {
    let meta = task.meta.as_ref().map(|meta| decode(&task.task_id, "_meta", meta)).transpose()?;
    Ok(TaskObject { meta, ..without_meta(task) })
}

/// A task as a list shows it: what cannot be read is left out, because one task must not spoil a list of others.
pub(crate) fn listed(task: &Task) -> TaskObject {
    task_object(task).unwrap_or_else(|error| {
        tracing::warn!(task_id = task.task_id, %error, "a task is listed without its _meta");
        without_meta(task)
    })
}

fn without_meta(task: &Task) -> TaskObject {
    TaskObject {
        task_id: task.task_id.clone(),
        status: status_from_wire(task.status),
        status_message: task.status_message.clone(),
        created_at: task.created_at.clone(),
        last_updated_at: task.last_updated_at.clone(),
        ttl: Some(task.ttl_ms),
        poll_interval: Some(task.poll_interval_ms),
        result: None,
        error: None,
        meta: None,
    }
}

/// A task with its result or its error.
pub(crate) fn task_snapshot(snapshot: &Snapshot) -> Result<TaskSnapshot> {
    let id = &snapshot.task.task_id;
    let result = snapshot.result.as_ref().map(|result| decode(id, "result", result)).transpose()?;
    let error = snapshot.error.as_ref().map(|error| json_rpc_error(id, error)).transpose()?;
    Ok((task_object(&snapshot.task)?, result, error))
}

/// By way of the wire's own type, because there a `data` that is `null` is not absent.
fn json_rpc_error(id: &str, error: &Json) -> Result<JsonRpcError> {
    let TaskError { code, message, data } = decode(id, "error", error)?;
    let data = data.as_ref().map(|data| decode(id, "error", data)).transpose()?;
    Ok(JsonRpcError { code, message, data })
}

pub(crate) fn task_error(error: &JsonRpcError) -> Result<TaskError> {
    let data = error.data.as_ref().map(|data| encode("the data of an error", data)).transpose()?;
    Ok(TaskError { code: error.code, message: error.message.clone(), data })
}

pub(crate) fn questions(snapshot: &Snapshot) -> Result<InputRequests> {
    read_map(&snapshot.task.task_id, "input requests", &snapshot.input_requests)
}

pub(crate) fn answers(task_id: &str, answers: &BTreeMap<String, Json>) -> Result<InputResponses> {
    read_map(task_id, "input responses", answers)
}

pub(crate) fn arguments(task_id: &str, arguments: &Json) -> Result<serde_json::Value> {
    decode(task_id, "arguments", arguments)
}

fn read_map<T: DeserializeOwned>(
    task_id: &str,
    what: &str,
    map: &BTreeMap<String, Json>,
) -> Result<BTreeMap<String, T>> {
    map.iter().map(|(key, payload)| Ok((key.clone(), decode(task_id, what, payload)?))).collect()
}

fn status_from_wire(status: Status) -> TaskStatus {
    match status {
        Status::Working => TaskStatus::Working,
        Status::InputRequired => TaskStatus::InputRequired,
        Status::Completed => TaskStatus::Completed,
        Status::Failed => TaskStatus::Failed,
        Status::Cancelled => TaskStatus::Cancelled,
    }
}

pub(crate) fn status_to_wire(status: TaskStatus) -> Result<Status> {
    match status {
        TaskStatus::Working => Ok(Status::Working),
        TaskStatus::InputRequired => Ok(Status::InputRequired),
        TaskStatus::Completed => Ok(Status::Completed),
        TaskStatus::Failed => Ok(Status::Failed),
        TaskStatus::Cancelled => Ok(Status::Cancelled),
        // tower-mcp may get more of them.
        other => Err(TaskStoreError::Encode(format!("the broker has no status {other}"))),
    }
}

#[cfg(test)]
#[path = "convert_tests.rs"]
mod tests;
