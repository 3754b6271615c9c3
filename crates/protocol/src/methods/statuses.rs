//! `store/statuses`: the short state of many tasks at once, for a worker that was away.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::{Decode, Method, MethodName};
use crate::members::{Members, ParamError};
use crate::shapes::Status;

/// How many tasks one call may ask about.
pub const MAX_TASK_IDS: usize = 1000;

/// `store/statuses`
#[derive(Debug, Clone, Copy)]
pub struct Statuses;

impl Method for Statuses {
    const METHOD: MethodName = MethodName::Statuses;
    type Params = Params;
    type Result = States;
}

/// Which tasks.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Params {
    /// At most [`MAX_TASK_IDS`]; more is refused already while they are read.
    pub task_ids: Vec<String>,
}

impl Decode for Params {
    fn decode(members: &Members<'_>, _body: &Bytes) -> Result<Self, ParamError> {
        Ok(Self { task_ids: members.strings("taskIds", MAX_TASK_IDS)? })
    }
}

/// The state of each task that was asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct States {
    /// By task id; `None` (`null` on the wire) for a task that is not found.
    pub statuses: BTreeMap<String, Option<State>>,
}

/// The short state of one task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct State {
    /// Where it stands.
    pub status: Status,
    /// Counts the transitions, from 1.
    pub revision: u64,
    /// Milliseconds until it expires.
    pub remaining_ms: u64,
    /// Whether somebody asked to cancel it.
    pub cancel_requested: bool,
}
