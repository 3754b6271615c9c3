//! `store/applyInput`: answers from the owner.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde::{Deserialize, Deserializer, Serialize};

use super::{Decode, Method, MethodName};
use crate::json::{Json, read_twice};
use crate::members::{Members, ParamError};
use crate::shapes::{Guard, Outcome};

/// `store/applyInput`
#[derive(Debug, Clone, Copy)]
pub struct ApplyInput;

impl Method for ApplyInput {
    const METHOD: MethodName = MethodName::ApplyInput;
    type Params = Params;
    type Result = Applied;
}

/// Answers to questions; `tasks/update` takes the same.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Params {
    /// The task.
    pub task_id: String,
    /// The answers by key, any JSON.
    pub input_responses: BTreeMap<String, Json>,
    /// Idempotency key and expected revision.
    #[serde(flatten)]
    pub guard: Guard,
}

impl Decode for Params {
    fn decode(members: &Members<'_>, body: &Bytes) -> Result<Self, ParamError> {
        Ok(Self {
            task_id: members.string("taskId")?,
            input_responses: members.payloads("inputResponses", body)?,
            guard: Guard::decode(members)?,
        })
    }
}

/// What became of the answers: an outcome's members and three sorted arrays of keys, flat.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Applied {
    /// What was done.
    #[serde(flatten)]
    pub outcome: Outcome,
    /// The keys whose questions are answered now.
    pub accepted: Vec<String>,
    /// The keys that were not outstanding.
    pub ignored: Vec<String>,
    /// The keys that still wait for an answer.
    pub still_outstanding: Vec<String>,
}

impl<'de> Deserialize<'de> for Applied {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Extra {
            accepted: Vec<String>,
            ignored: Vec<String>,
            still_outstanding: Vec<String>,
        }
        let (outcome, Extra { accepted, ignored, still_outstanding }) = read_twice(deserializer)?;
        Ok(Self { outcome, accepted, ignored, still_outstanding })
    }
}
