//! `tasks/cancel`: the owner wants the task to end (SEP-2663).

use bytes::Bytes;
use serde::Serialize;

use super::tasks_update::Acknowledged;
use super::{Decode, Method, MethodName};
use crate::members::{Members, ParamError};
use crate::shapes::Guard;

/// `tasks/cancel`
#[derive(Debug, Clone, Copy)]
pub struct TasksCancel;

impl Method for TasksCancel {
    const METHOD: MethodName = MethodName::TasksCancel;
    type Params = Params;
    type Result = Acknowledged;
}

/// Which task. SEP-2663 has no reason here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Params {
    /// The task.
    pub task_id: String,
    /// Idempotency key and expected revision.
    #[serde(flatten)]
    pub guard: Guard,
}

impl Decode for Params {
    fn decode(members: &Members<'_>, _body: &Bytes) -> Result<Self, ParamError> {
        Ok(Self { task_id: members.string("taskId")?, guard: Guard::decode(members)? })
    }
}
