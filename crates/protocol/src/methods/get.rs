//! `store/get`: one task, at one instant.

use super::{Method, MethodName, TaskOnly};
use crate::shapes::Snapshot;

/// `store/get`
#[derive(Debug, Clone, Copy)]
pub struct Get;

/// Which task.
pub type Params = TaskOnly;

impl Method for Get {
    const METHOD: MethodName = MethodName::Get;
    type Params = Params;
    type Result = Snapshot;
}
