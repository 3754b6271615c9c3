//! What a task must look like: the rules of a task store, written down once more and without any fault.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use tower_mcp::async_task::{AppliedInputResponses, CancellationToken, TaskOwner};
use tower_mcp::protocol::{TaskObject, TaskStatus};

use crate::values::as_json;

/// The TTL of a task that was created without one.
const DEFAULT_TTL_MS: u64 = 300_000;
const DEFAULT_POLL_INTERVAL_MS: u64 = 2_000;

/// One task as it should be.
#[derive(Debug)]
pub(crate) struct Task {
    pub(crate) id: String,
    pub(crate) tool: String,
    pub(crate) arguments: Value,
    pub(crate) owner: TaskOwner,
    pub(crate) token: CancellationToken,
    pub(crate) status: TaskStatus,
    message: String,
    ttl: u64,
    meta: Option<Value>,
    pub(crate) questions: BTreeMap<String, Value>,
    pub(crate) spent: BTreeSet<String>,
    pub(crate) answers: BTreeMap<String, Value>,
    pub(crate) result: Option<Value>,
    pub(crate) error: Option<Value>,
    /// Discarded or expired.
    pub(crate) gone: bool,
    /// The token must be raised. A task that was discarded promises nothing.
    pub(crate) signalled: bool,
    /// Its revision: one more for each call that changed something.
    pub(crate) revision: u64,
    /// The times that were read first and last.
    times: Option<(String, String)>,
}

impl Task {
    pub(crate) fn new(
        id: String,
        token: CancellationToken,
        tool: &str,
        arguments: Value,
        ttl: Option<u64>,
        owner: TaskOwner,
    ) -> Self {
        let expired = ttl == Some(0);
        Self {
            id,
            tool: tool.to_owned(),
            arguments,
            owner,
            token,
            status: TaskStatus::Working,
            message: "Task started".to_owned(),
            ttl: ttl.unwrap_or(DEFAULT_TTL_MS),
            meta: None,
            questions: BTreeMap::new(),
            spent: BTreeSet::new(),
            answers: BTreeMap::new(),
            result: None,
            error: None,
            gone: expired,
            signalled: expired,
            revision: 1,
            times: None,
        }
    }

    pub(crate) fn is_live(&self) -> bool {
        !self.gone && !self.status.is_terminal()
    }

    /// What `discard_task` must say.
    pub(crate) fn discard(&mut self) -> bool {
        !std::mem::replace(&mut self.gone, true)
    }

    /// What `set_ttl` must say.
    pub(crate) fn set_ttl(&mut self, ttl: u64) -> bool {
        if self.gone {
            return false;
        }
        self.changed(self.ttl != ttl);
        self.ttl = ttl;
        if ttl == 0 {
            (self.gone, self.signalled) = (true, true);
        }
        true
    }

    pub(crate) fn set_meta(&mut self, meta: Value) -> bool {
        if !self.gone {
            let meta = Some(meta);
            self.changed(self.meta != meta);
            self.meta = meta;
        }
        !self.gone
    }

    /// What `require_input` must say; an error stands for a transition that is not valid.
    pub(crate) fn require(
        &mut self,
        questions: &BTreeMap<String, Value>,
        message: Option<&str>,
    ) -> Result<bool, ()> {
        if !self.is_live() {
            return Ok(false);
        }
        let reused = questions.iter().any(|(key, question)| {
            self.spent.contains(key) || self.questions.get(key).is_some_and(|live| live != question)
        });
        if reused {
            return Err(());
        }
        // There is always a new question among them.
        self.changed(true);
        let superseded = self.questions.keys().filter(|key| !questions.contains_key(*key)).cloned();
        self.spent.extend(superseded.collect::<Vec<_>>());
        self.questions.clone_from(questions);
        self.status = TaskStatus::InputRequired;
        message.unwrap_or("Awaiting client input").clone_into(&mut self.message);
        Ok(true)
    }

    /// What `apply_input_responses` must say.
    pub(crate) fn apply(&mut self, answers: &BTreeMap<String, Value>) -> Option<AppliedInputResponses> {
        if !self.is_live() {
            return None;
        }
        let mut applied = AppliedInputResponses::default();
        for (key, answer) in answers {
            if self.questions.remove(key).is_some() {
                self.spent.insert(key.clone());
                self.answers.insert(key.clone(), answer.clone());
                applied.accepted.insert(key.clone());
            } else {
                applied.ignored.insert(key.clone());
            }
        }
        self.changed(!applied.accepted.is_empty());
        applied.still_outstanding = self.questions.keys().cloned().collect();
        if self.questions.is_empty() && self.status == TaskStatus::InputRequired {
            self.status = TaskStatus::Working;
            "Task resumed".clone_into(&mut self.message);
        }
        Some(applied)
    }

    pub(crate) fn set_status(&mut self, message: Option<&str>) -> bool {
        if self.is_live()
            && let Some(message) = message
        {
            self.changed(self.message != message);
            message.clone_into(&mut self.message);
        }
        self.is_live()
    }

    pub(crate) fn complete(&mut self, result: Value) -> bool {
        self.end(TaskStatus::Completed, "Task completed".to_owned(), |task| task.result = Some(result))
    }

    pub(crate) fn fail(&mut self, message: &str, error: Value) -> bool {
        self.end(TaskStatus::Failed, format!("Task failed: {message}"), |task| task.error = Some(error))
    }

    /// Raises the token, of a task that has ended too.
    pub(crate) fn cancel(&mut self, reason: Option<&str>) {
        let message = reason.map_or("Task cancelled".to_owned(), |reason| format!("Cancelled: {reason}"));
        self.signalled |= !self.gone;
        self.end(TaskStatus::Cancelled, message, |_| {});
    }

    fn end(&mut self, status: TaskStatus, message: String, record: impl FnOnce(&mut Self)) -> bool {
        let live = self.is_live();
        if live {
            self.spent.extend(std::mem::take(&mut self.questions).into_keys());
            (self.status, self.message) = (status, message);
            self.changed(true);
            record(self);
        }
        live
    }

    fn changed(&mut self, really: bool) {
        self.revision += u64::from(really);
    }

    /// Checks a view of this task, but for result and error, which are read beside it.
    pub(crate) fn check(&mut self, object: &TaskObject) {
        assert_eq!(object.task_id, self.id);
        assert_eq!(object.status, self.status, "status of {}", self.id);
        assert_eq!(object.status_message.as_deref(), Some(self.message.as_str()), "message of {}", self.id);
        assert_eq!(object.ttl, Some(self.ttl), "TTL of {}", self.id);
        assert_eq!(object.poll_interval, Some(DEFAULT_POLL_INTERVAL_MS));
        assert_eq!(object.meta, self.meta, "_meta of {}", self.id);
        assert_eq!((as_json(&object.result), as_json(&object.error)), (Value::Null, Value::Null));
        let (created, updated) = (object.created_at.clone(), object.last_updated_at.clone());
        assert!(created <= updated, "{created} {updated}");
        if let Some((first, last)) = &self.times {
            assert_eq!(created, *first, "createdAt of {}", self.id);
            assert!(updated >= *last, "lastUpdatedAt of {} went from {last} to {updated}", self.id);
        }
        self.times = Some((created, updated));
    }
}
