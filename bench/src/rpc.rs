//! JSON-RPC calls and their answers, as far as the load scripts look into them.

use anyhow::{Context as _, Result, bail, ensure};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::connection::{Connection, excerpt, post};

/// The path of the broker's JSON-RPC endpoint.
pub(crate) const PATH: &str = "/rpc";

/// Stands for a task id in a request that is made ready before the id is known.
pub(crate) const PLACEHOLDER_ID: &str = "00000000000000000000000000000000";

/// The text of a call with the id 1.
pub(crate) fn call(method: &str, params: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{params}}}"#)
}

/// The params of a method that takes a task id alone.
pub(crate) fn by_id(task_id: &str) -> String {
    format!(r#"{{"taskId":"{task_id}"}}"#)
}

/// A JSON-RPC answer.
#[derive(Debug, Deserialize)]
pub(crate) struct Answer<'a> {
    #[serde(borrow)]
    result: Option<&'a RawValue>,
    error: Option<RpcError>,
}

/// The error of an answer.
#[derive(Debug, Deserialize)]
pub(crate) struct RpcError {
    code: i64,
    message: String,
    data: Option<ErrorData>,
}

#[derive(Debug, Deserialize)]
struct ErrorData {
    kind: String,
}

impl<'a> Answer<'a> {
    /// Reads an answer to a single call.
    pub(crate) fn read(body: &'a [u8]) -> Result<Self> {
        serde_json::from_slice(body).with_context(|| format!("not a JSON-RPC answer: {}", excerpt(body)))
    }

    /// The result; an error answer is an error here.
    pub(crate) fn result<T: Deserialize<'a>>(&self) -> Result<T> {
        if let Some(error) = &self.error {
            bail!("error {}: {}", error.code, error.message);
        }
        let result = self.result.context("an answer without a result")?;
        serde_json::from_str(result.get()).with_context(|| format!("unexpected result {}", result.get()))
    }

    /// Whether this is the error `unavailable`: too much at the moment.
    pub(crate) fn is_unavailable(&self) -> bool {
        let data = self.error.as_ref().and_then(|error| error.data.as_ref());
        data.is_some_and(|data| data.kind == "unavailable")
    }

    /// Fails unless this is the error `task_not_found`.
    pub(crate) fn must_be_not_found(&self) -> Result<()> {
        let Some(error) = &self.error else {
            bail!("a result in place of \"Task not found\": {}", self.result.map_or("none", RawValue::get));
        };
        let kind = error.data.as_ref().map(|data| data.kind.as_str());
        ensure!(kind == Some("task_not_found"), "error {}: {}", error.code, error.message);
        Ok(())
    }
}

/// The result of an answer to a single call; an error answer is an error here.
pub(crate) fn result<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T> {
    Answer::read(body)?.result()
}

/// One call on a connection, where speed does not matter.
pub(crate) async fn call_on<'a, T: Deserialize<'a>>(
    connection: &'a mut Connection,
    method: &str,
    params: &str,
) -> Result<T> {
    let body = connection.exchange(&post(PATH, &call(method, params))).await?;
    result(body).with_context(|| method.to_owned())
}

/// The result of `store/create`.
#[derive(Debug, Deserialize)]
pub(crate) struct Created<'a> {
    created: bool,
    #[serde(borrow)]
    task: TaskRef<'a>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct TaskRef<'a> {
    task_id: &'a str,
    created_at: &'a str,
    ttl_ms: u64,
}

impl<'a> Created<'a> {
    /// The new task's id; fails when no task was created.
    pub(crate) fn task_id(&self) -> Result<&'a str> {
        let id = self.task.task_id;
        ensure!(self.created, "the task {id} was not created now");
        ensure!(id.len() == PLACEHOLDER_ID.len(), "{id} is not a task id");
        Ok(id)
    }

    /// When the task expires, in milliseconds since 1970.
    pub(crate) fn expires_at_ms(&self) -> Result<u64> {
        let created: jiff::Timestamp = self.task.created_at.parse().context("createdAt")?;
        Ok(u64::try_from(created.as_millisecond())? + self.task.ttl_ms)
    }
}

/// The outcome of a changing command.
#[derive(Debug, Deserialize)]
pub(crate) struct Outcome<'a> {
    applied: bool,
    status: &'a str,
}

impl Outcome<'_> {
    /// Fails unless the command was carried out.
    pub(crate) fn must_be_applied(&self) -> Result<()> {
        ensure!(self.applied, "not applied, status {}", self.status);
        Ok(())
    }

    /// Fails unless the command was carried out and left this status.
    pub(crate) fn must_have_left(&self, status: &str) -> Result<()> {
        ensure!(self.applied && self.status == status, "applied: {}, status {}", self.applied, self.status);
        Ok(())
    }
}

/// The flat result of `tasks/get`.
#[derive(Debug, Deserialize)]
pub(crate) struct Flat<'a> {
    status: &'a str,
    #[serde(borrow)]
    result: Option<&'a RawValue>,
}

impl Flat<'_> {
    /// Fails unless the task is completed with this result, byte for byte.
    pub(crate) fn must_be_completed_with(&self, result: &str) -> Result<()> {
        ensure!(self.status == "completed", "status {}", self.status);
        ensure!(self.result.map(RawValue::get) == Some(result), "another result than the one that was given");
        Ok(())
    }
}
