//! `store/setStatus`: back to work, or back to waiting for answers.

use bytes::Bytes;
use serde::Serialize;

use super::{Decode, Method, MethodName};
use crate::members::{Members, ParamError};
use crate::shapes::{Guard, Outcome, Status};

/// `store/setStatus`
#[derive(Debug, Clone, Copy)]
pub struct SetStatus;

impl Method for SetStatus {
    const METHOD: MethodName = MethodName::SetStatus;
    type Params = Params;
    type Result = Outcome;
}

/// The status wished for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Params {
    /// The task.
    pub task_id: String,
    /// Any status can be said here; which ones are allowed is not decided here.
    pub status: Status,
    /// A sentence about it; without one the message stays.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Idempotency key and expected revision.
    #[serde(flatten)]
    pub guard: Guard,
}

impl Decode for Params {
    fn decode(members: &Members<'_>, _body: &Bytes) -> Result<Self, ParamError> {
        Ok(Self {
            task_id: members.string("taskId")?,
            status: members.word("status", Status::EXPECTED, Status::from_word)?,
            message: members.optional_string("message")?,
            guard: Guard::decode(members)?,
        })
    }
}
