//! `store/resume`: what a worker needs to run the tool again with the answers it has.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Method, MethodName, TaskOnly};
use crate::json::Json;

/// `store/resume`
#[derive(Debug, Clone, Copy)]
pub struct Resume;

/// Which task.
pub type Params = TaskOnly;

impl Method for Resume {
    const METHOD: MethodName = MethodName::Resume;
    type Params = Params;
    type Result = Context;
}

/// The call and its answers so far.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Context {
    /// The tool.
    pub tool_name: String,
    /// Its arguments, as they were handed in; `{}` when none were.
    pub arguments: Json,
    /// The answers to questions, by key.
    pub input_responses: BTreeMap<String, Json>,
    /// Counts the transitions, from 1.
    pub revision: u64,
    /// Milliseconds until the task expires.
    pub remaining_ms: u64,
    /// Whether somebody asked to cancel it.
    pub cancel_requested: bool,
}
