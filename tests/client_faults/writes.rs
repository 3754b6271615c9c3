//! The calls of the driver that change a task which is there.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;
use tower_mcp::async_task::TaskStoreError;
use tower_mcp::protocol::TaskStatus;

use crate::driver::{Driver, Method};
use crate::values::{self, as_json};

impl Driver {
    pub(crate) async fn write(&mut self, method: Method, at: usize) {
        match method {
            Method::RequireInput => self.require(at).await,
            Method::ApplyInputResponses => self.apply(at).await,
            Method::SetTtl => self.set_ttl(at).await,
            Method::CancelTask => self.cancel(at).await,
            _ => {
                let was_gone = self.tasks[at].gone;
                let (said, expected) = self.simple(method, at).await;
                let said = said.unwrap_or_else(|error| panic!("{error}: {}", self.doing()));
                // A discard that found nothing may be the second half of one that did.
                let unclear = method == Method::DiscardTask && was_gone && self.may_be_repeated();
                assert!(said == expected || unclear, "said {said}: {}", self.doing());
            }
        }
    }

    /// What answers with yes or no and leaves no room for doubt: what the store said, and what it should say.
    async fn simple(&mut self, method: Method, at: usize) -> (Result<bool, TaskStoreError>, bool) {
        let store = Arc::clone(&self.store);
        let id = self.tasks[at].id.clone();
        let (rng, task) = (&mut self.rng, &mut self.tasks[at]);
        match method {
            Method::SetTaskMeta => {
                let meta = values::meta(rng);
                (store.set_task_meta(&id, meta.clone()).await, task.set_meta(meta))
            }
            Method::DiscardTask => (store.discard_task(&id).await, task.discard()),
            Method::SetStatus => {
                // While there are questions the task waits for input, otherwise it works.
                let status =
                    if task.questions.is_empty() { TaskStatus::Working } else { TaskStatus::InputRequired };
                let message = rng.bool().then(|| format!("step {}", rng.u16(..)));
                (store.set_status(&id, status, message.as_deref()).await, task.set_status(message.as_deref()))
            }
            Method::CompleteTask => {
                let result = values::result(rng);
                (store.complete_task(&id, result.clone()).await, task.complete(as_json(&result)))
            }
            Method::FailTask => {
                let error = values::error(rng);
                (store.fail_task(&id, error.clone()).await, task.fail(&error.message, as_json(&error)))
            }
            other => panic!("{other:?} is not a simple one"),
        }
    }

    async fn require(&mut self, at: usize) {
        let (rng, task) = (&mut self.rng, &mut self.tasks[at]);
        let mut questions = BTreeMap::new();
        // Some of the open ones carried on, some new ones, and now and then one that must be refused.
        for (key, question) in &task.questions {
            if rng.bool() {
                questions.insert(key.clone(), question.clone());
            }
        }
        for _ in 0..rng.usize(1..4) {
            let key = format!("key / {}", rng.u32(..));
            questions.insert(key.clone(), values::question(&key));
        }
        if rng.u8(..6) == 0 {
            let reused = task.spent.iter().chain(task.questions.keys()).next().cloned();
            questions.extend(reused.map(|key| (key, values::question("another question"))));
        }
        let message = rng.bool().then(|| format!("asked {}", rng.u16(..)));
        let asked =
            self.store.require_input(&task.id, values::requests(&questions), message.as_deref()).await;
        // As they look when they have been read once.
        let questions: BTreeMap<_, _> = values::requests(&questions)
            .iter()
            .map(|(key, request)| (key.clone(), as_json(request)))
            .collect();
        match (asked, task.require(&questions, message.as_deref())) {
            (Ok(said), Ok(expected)) => assert_eq!(said, expected, "{}", self.doing()),
            (Err(TaskStoreError::InvalidTransition(_)), Err(())) => {}
            (said, expected) => panic!("{said:?} and not {expected:?}: {}", self.doing()),
        }
    }

    async fn apply(&mut self, at: usize) {
        if self.tasks[at].is_live() && self.tasks[at].questions.is_empty() && self.rng.u8(..3) > 0 {
            self.require(at).await;
        }
        let (rng, task) = (&mut self.rng, &mut self.tasks[at]);
        let mut answers = BTreeMap::new();
        for key in task.questions.keys() {
            if rng.u8(..3) > 0 {
                answers.insert(key.clone(), values::answer(key));
            }
        }
        if rng.bool() {
            let stale = task.spent.iter().next().cloned().unwrap_or_else(|| "never asked".to_owned());
            answers.insert(stale, values::answer("too late"));
        }
        let applied = self.store.apply_input_responses(&task.id, values::responses(&answers)).await;
        let answers: BTreeMap<String, Value> =
            values::responses(&answers).iter().map(|(key, answer)| (key.clone(), as_json(answer))).collect();
        let expected = task.apply(&answers);
        let applied = applied.unwrap_or_else(|error| panic!("{error}: {}", self.doing()));
        assert_eq!(applied, expected, "{}", self.doing());
    }

    async fn set_ttl(&mut self, at: usize) {
        let (was_gone, id) = (self.tasks[at].gone, self.tasks[at].id.clone());
        let ttl = if self.rng.u8(..5) == 0 { 0 } else { self.rng.u64(400_000..2_000_000) };
        let said = self.store.set_ttl(&id, ttl).await;
        let said = said.unwrap_or_else(|error| panic!("{error}: {}", self.doing()));
        let expected = self.tasks[at].set_ttl(ttl);
        // One that ends the task may be the second half of one that did.
        let unclear = ttl == 0 && was_gone && self.may_be_repeated();
        assert!(said == expected || unclear, "said {said}: {}", self.doing());
        self.expect_signal(&self.tasks[at]).await;
    }

    async fn cancel(&mut self, at: usize) {
        let reason = self.rng.bool().then(|| format!("reason {}", self.rng.u16(..)));
        let task = &mut self.tasks[at];
        let object = self.store.cancel_task(&task.id, reason.as_deref()).await;
        task.cancel(reason.as_deref());
        let object = object.unwrap_or_else(|error| panic!("{error}: {}", self.doing()));
        let task = &mut self.tasks[at];
        assert_eq!(object.is_none(), task.gone, "{task:?}");
        if let Some(object) = object {
            // Before the call returned, not some time after.
            assert!(task.token.is_cancelled(), "{task:?}");
            task.check(&object);
        }
    }
}
