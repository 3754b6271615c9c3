//! `store/complete`: the end with a result.

use bytes::Bytes;
use serde::Serialize;

use super::{Decode, Method, MethodName};
use crate::json::Json;
use crate::members::{Members, ParamError};
use crate::shapes::{Guard, Outcome};

/// `store/complete`
#[derive(Debug, Clone, Copy)]
pub struct Complete;

impl Method for Complete {
    const METHOD: MethodName = MethodName::Complete;
    type Params = Params;
    type Result = Outcome;
}

/// The result of the tool call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Params {
    /// The task.
    pub task_id: String,
    /// An object; one with `isError: true` completes the task like any other.
    pub result: Json,
    /// Idempotency key and expected revision.
    #[serde(flatten)]
    pub guard: Guard,
}

impl Decode for Params {
    fn decode(members: &Members<'_>, body: &Bytes) -> Result<Self, ParamError> {
        Ok(Self {
            task_id: members.string("taskId")?,
            result: members.object("result", body)?,
            guard: Guard::decode(members)?,
        })
    }
}
