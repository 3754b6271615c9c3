//! `store/setMeta`: another `_meta`, replaced whole, also for a task that has ended.

use bytes::Bytes;
use serde::Serialize;

use super::{Decode, Method, MethodName};
use crate::json::Json;
use crate::members::{Members, ParamError};
use crate::shapes::{Guard, Outcome};

/// `store/setMeta`
#[derive(Debug, Clone, Copy)]
pub struct SetMeta;

impl Method for SetMeta {
    const METHOD: MethodName = MethodName::SetMeta;
    type Params = Params;
    type Result = Outcome;
}

/// The `_meta` wished for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Params {
    /// The task.
    pub task_id: String,
    /// An object.
    pub meta: Json,
    /// Idempotency key and expected revision.
    #[serde(flatten)]
    pub guard: Guard,
}

impl Decode for Params {
    fn decode(members: &Members<'_>, body: &Bytes) -> Result<Self, ParamError> {
        Ok(Self {
            task_id: members.string("taskId")?,
            meta: members.object("meta", body)?,
            guard: Guard::decode(members)?,
        })
    }
}
