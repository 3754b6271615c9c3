//! `tasks/update`: answers from the owner (SEP-2663).

use serde::{Deserialize, Serialize};

use super::{Method, MethodName, apply_input};

/// `tasks/update`
#[derive(Debug, Clone, Copy)]
pub struct TasksUpdate;

/// The answers; the same as those of `store/applyInput`.
pub type Params = apply_input::Params;

impl Method for TasksUpdate {
    const METHOD: MethodName = MethodName::TasksUpdate;
    type Params = Params;
    type Result = Acknowledged;
}

/// `{"resultType": "complete"}`: the wish was taken. Says nothing about what became of it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Acknowledged {
    /// Always "complete"; a client takes an absent one for it, as MCP says.
    #[serde(default)]
    pub result_type: ResultType,
}

/// The value of `resultType`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResultType {
    /// The result is whole.
    #[default]
    Complete,
}
