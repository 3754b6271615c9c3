//! `store/requireInput`: questions to the owner.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde::Serialize;

use super::{Decode, Method, MethodName};
use crate::json::Json;
use crate::members::{Members, ParamError};
use crate::shapes::{Guard, Outcome, is_default};

/// `store/requireInput`
#[derive(Debug, Clone, Copy)]
pub struct RequireInput;

impl Method for RequireInput {
    const METHOD: MethodName = MethodName::RequireInput;
    type Params = Params;
    type Result = Outcome;
}

/// The questions that shall be outstanding from now on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Params {
    /// The task.
    pub task_id: String,
    /// The questions by key, each an object with a string member `method`. Whether there may be none is not decided
    /// here.
    pub input_requests: BTreeMap<String, Json>,
    /// A sentence for the owner.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// What happens to a key that was used before.
    #[serde(skip_serializing_if = "is_default")]
    pub on_spent_key: OnSpentKey,
    /// Idempotency key and expected revision.
    #[serde(flatten)]
    pub guard: Guard,
}

impl Decode for Params {
    fn decode(members: &Members<'_>, body: &Bytes) -> Result<Self, ParamError> {
        let on_spent_key =
            members.optional_word("onSpentKey", "askAgain or reject", OnSpentKey::from_word)?;
        Ok(Self {
            task_id: members.string("taskId")?,
            input_requests: members.requests("inputRequests", body)?,
            message: members.optional_string("message")?,
            on_spent_key: on_spent_key.unwrap_or_default(),
            guard: Guard::decode(members)?,
        })
    }
}

/// What happens to a key that was used before.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum OnSpentKey {
    /// It is a fresh question, and its earlier answer is dropped.
    #[default]
    AskAgain,
    /// The command is refused.
    Reject,
}

impl OnSpentKey {
    fn from_word(word: &str) -> Option<Self> {
        match word {
            "askAgain" => Some(Self::AskAgain),
            "reject" => Some(Self::Reject),
            _ => None,
        }
    }
}
