//! `store/setTtl`: another time to live, also for a task that has ended.

use bytes::Bytes;
use serde::{Deserialize, Deserializer, Serialize};

use super::{Decode, Method, MethodName};
use crate::json::read_twice;
use crate::members::{Members, ParamError};
use crate::shapes::{Guard, Outcome};

/// `store/setTtl`
#[derive(Debug, Clone, Copy)]
pub struct SetTtl;

impl Method for SetTtl {
    const METHOD: MethodName = MethodName::SetTtl;
    type Params = Params;
    type Result = TtlOutcome;
}

/// The time to live wished for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Params {
    /// The task.
    pub task_id: String,
    /// Milliseconds from the task's creation; 0 expires it at once. `null` means something at `store/create` only.
    pub ttl_ms: u64,
    /// Idempotency key and expected revision.
    #[serde(flatten)]
    pub guard: Guard,
}

impl Decode for Params {
    fn decode(members: &Members<'_>, _body: &Bytes) -> Result<Self, ParamError> {
        Ok(Self {
            task_id: members.string("taskId")?,
            ttl_ms: members.unsigned("ttlMs")?,
            guard: Guard::decode(members)?,
        })
    }
}

/// An outcome's members and the time to live in force, flat.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TtlOutcome {
    /// What was done.
    #[serde(flatten)]
    pub outcome: Outcome,
    /// The time to live in force, in milliseconds from creation; less than the wish when that was above the maximum.
    pub ttl_ms: u64,
    /// Milliseconds until the task expires.
    pub remaining_ms: u64,
}

impl<'de> Deserialize<'de> for TtlOutcome {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Extra {
            ttl_ms: u64,
            remaining_ms: u64,
        }
        let (outcome, Extra { ttl_ms, remaining_ms }) = read_twice(deserializer)?;
        Ok(Self { outcome, ttl_ms, remaining_ms })
    }
}
