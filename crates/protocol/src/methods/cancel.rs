//! `store/cancel`: the end by wish of the worker's side, and the signal to whoever does the work.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{Decode, Method, MethodName};
use crate::json::{Json, read_twice};
use crate::members::{Members, ParamError};
use crate::shapes::{Guard, Outcome, Snapshot, Status, Task, is_default};

/// `store/cancel`
#[derive(Debug, Clone, Copy)]
pub struct Cancel;

impl Method for Cancel {
    const METHOD: MethodName = MethodName::Cancel;
    type Params = Params;
    type Result = Cancelled;
}

/// Which task, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Params {
    /// The task.
    pub task_id: String,
    /// A sentence that becomes part of the task's message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Idempotency key and expected revision.
    #[serde(flatten)]
    pub guard: Guard,
}

impl Decode for Params {
    fn decode(members: &Members<'_>, _body: &Bytes) -> Result<Self, ParamError> {
        Ok(Self {
            task_id: members.string("taskId")?,
            reason: members.optional_string("reason")?,
            guard: Guard::decode(members)?,
        })
    }
}

/// An outcome's members and a snapshot's, flat.
///
/// Both have a `revision`, and the wire has room for one. It is the outcome's, so that a replay answers what the
/// first call answered; reading an answer puts it into both.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cancelled {
    /// What was done.
    pub outcome: Outcome,
    /// The task afterwards.
    pub snapshot: Snapshot,
}

impl Serialize for Cancelled {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Flat<'a> {
            applied: bool,
            status: Status,
            revision: u64,
            #[serde(skip_serializing_if = "is_default")]
            replayed: bool,
            task: &'a Task,
            owner: &'a Option<String>,
            tool_name: &'a str,
            remaining_ms: u64,
            cancel_requested: bool,
            #[serde(skip_serializing_if = "Option::is_none")]
            result: &'a Option<Json>,
            #[serde(skip_serializing_if = "Option::is_none")]
            error: &'a Option<Json>,
            input_requests: &'a BTreeMap<String, Json>,
        }
        // Taken apart in full, so that a new member of either shape cannot be forgotten here.
        let Outcome { applied, status, revision, replayed } = self.outcome;
        let Snapshot {
            task,
            owner,
            tool_name,
            revision: _,
            remaining_ms,
            cancel_requested,
            result,
            error,
            input_requests,
        } = &self.snapshot;
        let (remaining_ms, cancel_requested) = (*remaining_ms, *cancel_requested);
        Flat {
            applied,
            status,
            revision,
            replayed,
            task,
            owner,
            tool_name,
            remaining_ms,
            cancel_requested,
            result,
            error,
            input_requests,
        }
        .serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Cancelled {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (outcome, snapshot) = read_twice(deserializer)?;
        Ok(Self { outcome, snapshot })
    }
}
