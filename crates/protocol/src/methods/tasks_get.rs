//! `tasks/get`: one task as the owner sees it (SEP-2663).

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{Method, MethodName, TaskOnly};
use crate::json::{Json, read_twice};
use crate::shapes::{Snapshot, Status, Task};

/// `tasks/get`
#[derive(Debug, Clone, Copy)]
pub struct TasksGet;

/// Which task.
pub type Params = TaskOnly;

impl Method for TasksGet {
    const METHOD: MethodName = MethodName::TasksGet;
    type Params = Params;
    type Result = DetailedTask;
}

/// A task with what belongs to its status, flat, beside `resultType: "complete"`.
///
/// Written by hand, because the status decides which members there are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DetailedTask {
    /// The task.
    pub task: Task,
    /// The outstanding questions; on the wire only in `input_required`.
    pub input_requests: BTreeMap<String, Json>,
    /// The result; on the wire only when completed.
    pub result: Option<Json>,
    /// The error; on the wire only when failed.
    pub error: Option<Json>,
}

impl From<Snapshot> for DetailedTask {
    fn from(snapshot: Snapshot) -> Self {
        let Snapshot { task, input_requests, result, error, .. } = snapshot;
        Self { task, input_requests, result, error }
    }
}

impl Serialize for DetailedTask {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Flat<'a> {
            result_type: &'static str,
            #[serde(flatten)]
            task: &'a Task,
            #[serde(skip_serializing_if = "Option::is_none")]
            input_requests: Option<&'a BTreeMap<String, Json>>,
            #[serde(skip_serializing_if = "Option::is_none")]
            result: Option<&'a Json>,
            #[serde(skip_serializing_if = "Option::is_none")]
            error: Option<&'a Json>,
        }
        let status = self.task.status;
        Flat {
            result_type: "complete",
            task: &self.task,
            input_requests: (status == Status::InputRequired).then_some(&self.input_requests),
            result: self.result.as_ref().filter(|_| status == Status::Completed),
            error: self.error.as_ref().filter(|_| status == Status::Failed),
        }
        .serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for DetailedTask {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase", default)]
        #[derive(Default)]
        struct Extra {
            input_requests: BTreeMap<String, Json>,
            result: Option<Json>,
            error: Option<Json>,
        }
        let (task, Extra { input_requests, result, error }) = read_twice(deserializer)?;
        Ok(Self { task, input_requests, result, error })
    }
}
