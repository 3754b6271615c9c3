//! `store/discard`: the task is gone, as if it had expired.

use bytes::Bytes;
use serde::Serialize;

use super::{Decode, Method, MethodName};
use crate::members::{Members, ParamError};
use crate::shapes::{Guard, Outcome};

/// `store/discard`
#[derive(Debug, Clone, Copy)]
pub struct Discard;

impl Method for Discard {
    const METHOD: MethodName = MethodName::Discard;
    type Params = Params;
    type Result = Outcome;
}

/// Which task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Params {
    /// The task.
    pub task_id: String,
    /// Idempotency key and expected revision. A key does not help here: it goes with the task.
    #[serde(flatten)]
    pub guard: Guard,
}

impl Decode for Params {
    fn decode(members: &Members<'_>, _body: &Bytes) -> Result<Self, ParamError> {
        Ok(Self { task_id: members.string("taskId")?, guard: Guard::decode(members)? })
    }
}
