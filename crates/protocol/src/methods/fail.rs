//! `store/fail`: the end with an error.

use bytes::Bytes;
use serde::Serialize;

use super::{Decode, Method, MethodName};
use crate::members::{Members, ParamError};
use crate::shapes::{Guard, Outcome, TaskError};

/// `store/fail`
#[derive(Debug, Clone, Copy)]
pub struct Fail;

impl Method for Fail {
    const METHOD: MethodName = MethodName::Fail;
    type Params = Params;
    type Result = Outcome;
}

/// The JSON-RPC error that the tool call ended with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Params {
    /// The task.
    pub task_id: String,
    /// The error.
    pub error: TaskError,
    /// Idempotency key and expected revision.
    #[serde(flatten)]
    pub guard: Guard,
}

impl Decode for Params {
    fn decode(members: &Members<'_>, body: &Bytes) -> Result<Self, ParamError> {
        Ok(Self {
            task_id: members.string("taskId")?,
            error: TaskError::decode(members, "error", body)?,
            guard: Guard::decode(members)?,
        })
    }
}
