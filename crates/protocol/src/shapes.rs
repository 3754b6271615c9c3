//! The objects that several methods share (WIRE.md, Shapes).
//!
//! Times are RFC 3339 texts in UTC with three decimals; durations are milliseconds.

use std::collections::BTreeMap;
use std::fmt;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::json::Json;
use crate::members::{MAX_MEMBERS, Members, ParamError};

/// Where a task stands in its life. The last three are terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Work goes on.
    Working,
    /// Questions to the owner are outstanding.
    InputRequired,
    /// Ended with a result.
    Completed,
    /// Ended with an error.
    Failed,
    /// Ended by a wish of owner or creator.
    Cancelled,
}

impl Status {
    /// Every status, in the order of a life.
    pub const ALL: [Self; 5] =
        [Self::Working, Self::InputRequired, Self::Completed, Self::Failed, Self::Cancelled];

    /// What a wrong word should have been, for error messages.
    pub(crate) const EXPECTED: &str = "one of working, input_required, completed, failed, cancelled";

    /// The word on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Working => "working",
            Self::InputRequired => "input_required",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    /// The status that a word stands for; words are case-sensitive.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == word)
    }

    /// Whether the status can never change again.
    #[must_use]
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Cancelled)
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// **Task**: what MCP shows of a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Task {
    /// 32 lower-case hex digits.
    pub task_id: String,
    /// Where the task stands.
    pub status: Status,
    /// A sentence about the status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status_message: Option<String>,
    /// When the task was created.
    pub created_at: String,
    /// When the task last changed; a read is no change.
    pub last_updated_at: String,
    /// The time to live in force, in milliseconds from creation.
    pub ttl_ms: u64,
    /// How often to poll, in milliseconds.
    pub poll_interval_ms: u64,
    /// What `meta` set, an object; absent when nothing did.
    #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Json>,
}

/// **row**: a task as a list shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Row {
    /// The task itself.
    pub task: Task,
    /// The subject it belongs to; `null` on the wire when nobody owns it, and `""` is somebody.
    pub owner: Option<String>,
    /// The tool whose call it is.
    pub tool_name: String,
    /// Counts the transitions, from 1.
    pub revision: u64,
    /// Milliseconds until it expires.
    pub remaining_ms: u64,
    /// Whether somebody asked to cancel it, also after its end.
    pub cancel_requested: bool,
}

/// **snapshot**: everything one read of a task shows, at one instant. A row's members and three more, flat.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Snapshot {
    /// The task itself.
    pub task: Task,
    /// As [`Row::owner`].
    pub owner: Option<String>,
    /// As [`Row::tool_name`].
    pub tool_name: String,
    /// As [`Row::revision`].
    pub revision: u64,
    /// As [`Row::remaining_ms`].
    pub remaining_ms: u64,
    /// As [`Row::cancel_requested`].
    pub cancel_requested: bool,
    /// The result of a completed task, an object, as it was handed in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Json>,
    /// The error of a failed task: `{code, message, data?}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Json>,
    /// The outstanding questions by key; empty unless the status is `input_required`.
    #[serde(default)]
    pub input_requests: BTreeMap<String, Json>,
}

impl Snapshot {
    /// A snapshot without result, error and questions.
    #[must_use]
    pub fn of(row: Row) -> Self {
        let Row { task, owner, tool_name, revision, remaining_ms, cancel_requested } = row;
        Self {
            task,
            owner,
            tool_name,
            revision,
            remaining_ms,
            cancel_requested,
            result: None,
            error: None,
            input_requests: BTreeMap::new(),
        }
    }

    /// The row's part of it.
    #[must_use]
    pub fn into_row(self) -> Row {
        let Self { task, owner, tool_name, revision, remaining_ms, cancel_requested, .. } = self;
        Row { task, owner, tool_name, revision, remaining_ms, cancel_requested }
    }
}

/// **outcome**: what a changing method did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Outcome {
    /// The task was live and the command was carried out. `false`: it was terminal already.
    pub applied: bool,
    /// The status afterwards.
    pub status: Status,
    /// The revision afterwards.
    pub revision: u64,
    /// The idempotency key was seen before and this is the first answer again. Written only when true.
    #[serde(default, skip_serializing_if = "is_default")]
    pub replayed: bool,
}

/// The parameter `error` of `store/fail`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskError {
    /// A JSON-RPC error code.
    pub code: i32,
    /// The error in words.
    pub message: String,
    /// Anything more. `null` is not the same as absent.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present_json")]
    pub data: Option<Json>,
}

impl TaskError {
    /// Reads the object in the member `name`. Members it does not know are ignored.
    ///
    /// # Errors
    /// When it is missing or no object, has a duplicate, or `code`, `message` or `data` has the wrong shape (named
    /// as `error.code`).
    pub fn decode(members: &Members<'_>, name: &str, body: &Bytes) -> Result<Self, ParamError> {
        let inner = members.members(name, MAX_MEMBERS)?;
        Ok(Self {
            code: inner.signed32("code")?,
            message: inner.string("message")?,
            data: inner.optional_payload("data", body)?,
        })
    }
}

/// What every changing method may carry (WIRE.md, Idempotency).
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Guard {
    /// Makes a repeated call answer what the first one did. 1 to 128 bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
    /// The revision that the task must have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected_revision: Option<u64>,
}

impl Guard {
    /// Reads `idempotencyKey` and `expectedRevision`.
    ///
    /// # Errors
    /// When one of them has the wrong type.
    pub fn decode(members: &Members<'_>) -> Result<Self, ParamError> {
        Ok(Self {
            idempotency_key: members.optional_string("idempotencyKey")?,
            expected_revision: members.optional_unsigned("expectedRevision")?,
        })
    }
}

/// For `skip_serializing_if`: an absent member reads as the default, so the default need not be written.
pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Reads a member that is there, `null` included; `Option` alone would make `null` absent.
fn present_json<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Json>, D::Error> {
    Json::deserialize(deserializer).map(Some)
}
