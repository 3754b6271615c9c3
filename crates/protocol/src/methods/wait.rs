//! `store/wait`: one task, as soon as there is something to tell.

use bytes::Bytes;
use serde::{Deserialize, Deserializer, Serialize};

use super::{Decode, Method, MethodName};
use crate::json::read_twice;
use crate::members::{Members, ParamError};
use crate::shapes::Snapshot;

/// `store/wait`
#[derive(Debug, Clone, Copy)]
pub struct Wait;

impl Method for Wait {
    const METHOD: MethodName = MethodName::Wait;
    type Params = Params;
    type Result = Waited;
}

/// Which task, how long, and since when.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Params {
    /// The task.
    pub task_id: String,
    /// The longest to wait, in milliseconds; 0 answers at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// Answer as soon as the revision is above this one. Without it only the end of the task answers early.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since_revision: Option<u64>,
}

impl Decode for Params {
    fn decode(members: &Members<'_>, _body: &Bytes) -> Result<Self, ParamError> {
        Ok(Self {
            task_id: members.string("taskId")?,
            timeout_ms: members.optional_unsigned("timeoutMs")?,
            since_revision: members.optional_unsigned("sinceRevision")?,
        })
    }
}

/// The task: a snapshot's members and `timedOut`, flat.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Waited {
    /// The task.
    #[serde(flatten)]
    pub snapshot: Snapshot,
    /// Time was up (or the broker is draining) before there was something to tell.
    pub timed_out: bool,
}

impl<'de> Deserialize<'de> for Waited {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Extra {
            timed_out: bool,
        }
        let (snapshot, Extra { timed_out }) = read_twice(deserializer)?;
        Ok(Self { snapshot, timed_out })
    }
}
