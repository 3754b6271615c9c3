//! The twenty methods.

use std::collections::BTreeSet;
use std::time::Duration;

use ::tower_mcp::async_task::{
    AppliedInputResponses, CancellationToken, Result, TaskOwner, TaskPresence, TaskResumeContext,
    TaskSnapshot, TaskStore, TaskStoreError,
};
use ::tower_mcp::error::JsonRpcError;
use ::tower_mcp::protocol::{CallToolResult, InputRequests, InputResponses, TaskObject, TaskStatus};
use async_trait::async_trait;
use task_broker_protocol::Json;
use task_broker_protocol::methods::require_input::OnSpentKey;
use task_broker_protocol::methods::{
    apply_input, cancel, complete, create, discard, fail, list, require_input, set_meta, set_status, set_ttl,
    wait,
};
use task_broker_protocol::shapes::{Guard, Outcome, Status, TaskError};
use tokio::time::Instant;

use super::convert;
use super::failure::{from_client, too_many_held};
use super::handoff::{Part, Read};
use super::knowledge::Knowledge;
use super::registry::Seen;
use super::store::{Core, RemoteTaskStore, seen};
use crate::calls::Ended;
use crate::error::Error;
use crate::retry::{backoff, random};

/// Rows of one page, the most that a broker gives.
const PAGE: u64 = 1000;

/// Rows that `list_tasks` collects. All of them are in memory at once, so there has to be an end; a store with more
/// live tasks is listed through [`crate::Client::list`], page by page.
const MAX_LISTED: usize = 100_000;

/// How long the broker is asked to wait in one call. Proxies seldom cut a request that is shorter.
const WAIT_MS: u64 = 25_000;

/// An answer to a wait that comes sooner, and says nothing, is that of a broker that is about to stop.
const EARLY: Duration = Duration::from_secs(1);

/// What stands in for a payload that is too large to be kept.
const TOO_LARGE: &str = "The task's payload is larger than the task broker keeps";

#[async_trait]
impl TaskStore for RemoteTaskStore {
    async fn create_task(
        &self,
        tool_name: &str,
        arguments: serde_json::Value,
        ttl: Option<u64>,
        owner: TaskOwner,
    ) -> Result<(String, CancellationToken)> {
        let core = self.running();
        let arguments = convert::encode("the arguments", &arguments)?;
        core.know_limits(arguments.as_bytes().len()).await?;
        let params = create::Params {
            arguments: Some(arguments),
            ttl: ttl.map_or(create::Ttl::Default, create::Ttl::Millis),
            owner: owner.map_or(create::Owner::Nobody, create::Owner::Subject),
            ..create::Params::new(tool_name)
        };
        let place = core.registry.place(None).map_err(|full| too_many_held(full.maximum))?;
        let asked = Instant::now();
        let created = core.client.create(params).await.map_err(|error| from_client(&error))?;
        let snapshot = std::sync::Arc::new(created.snapshot);
        let id = snapshot.task.task_id.clone();
        let token = place.fill(&id, seen(&snapshot));
        let knowledge = Knowledge::now(&id);
        core.handoff.leave_created(&id, Read { snapshot, knowledge, asked });
        Ok((id, token))
    }

    async fn task_owner(&self, task_id: &str) -> Result<Option<TaskOwner>> {
        let read = self.running().read(task_id).await?;
        Ok(read.map(|read| read.snapshot.owner.clone()))
    }

    async fn get_task(&self, task_id: &str) -> Result<Option<TaskObject>> {
        let core = self.running();
        let snapshot = match core.handoff.take(task_id, Part::Task) {
            Some(snapshot) => Some(snapshot),
            None => core.read(task_id).await?.map(|read| read.snapshot),
        };
        snapshot.map(|snapshot| convert::task_object(&snapshot.task)).transpose()
    }

    async fn set_task_meta(&self, task_id: &str, meta: serde_json::Value) -> Result<bool> {
        if !meta.is_object() {
            return Err(TaskStoreError::Encode("_meta must be an object".to_owned()));
        }
        let meta = convert::encode("_meta", &meta)?;
        let params = set_meta::Params { task_id: task_id.to_owned(), meta, guard: Guard::default() };
        let core = self.running();
        // Metadata is kept for tasks that have ended too, where the outcome says `applied: false` only of commands
        // about the life of a task.
        let outcome = core.found(task_id, core.client.set_meta(params).await)?;
        if let Some(outcome) = outcome {
            core.wrote(task_id, &outcome);
        }
        Ok(outcome.is_some())
    }

    async fn discard_task(&self, task_id: &str) -> Result<bool> {
        let core = self.running();
        let params = discard::Params { task_id: task_id.to_owned(), guard: Guard::default() };
        let ended = core.found(task_id, core.client.discard(params).await)?;
        core.gone(task_id);
        Ok(ended.is_some())
    }

    async fn get_task_result(&self, task_id: &str) -> Result<Option<TaskSnapshot>> {
        let core = self.running();
        let snapshot = match core.handoff.take(task_id, Part::Result) {
            Some(snapshot) => snapshot,
            None => match core.read(task_id).await? {
                Some(read) => read.snapshot,
                None => return Ok(None),
            },
        };
        let shown = convert::task_snapshot(&snapshot)?;
        if snapshot.task.status == Status::InputRequired {
            core.handoff.pin(task_id, snapshot);
        }
        Ok(Some(shown))
    }

    async fn wait_for_completion(&self, task_id: &str) -> Result<Option<TaskSnapshot>> {
        let core = self.running();
        let params =
            wait::Params { task_id: task_id.to_owned(), timeout_ms: Some(WAIT_MS), since_revision: None };
        loop {
            let began = Instant::now();
            let Some(waited) = core.found(task_id, core.client.wait(params.clone()).await)? else {
                Knowledge::learnt(task_id);
                return Ok(None);
            };
            core.saw(task_id, &waited.snapshot);
            if waited.snapshot.task.status.is_terminal() {
                Knowledge::learnt(task_id);
                return convert::task_snapshot(&waited.snapshot).map(Some);
            }
            // A broker that is about to stop answers before the time. It must not be asked again and again until then.
            if began.elapsed() < EARLY {
                tokio::time::sleep(backoff(1, random())).await;
            }
        }
    }

    async fn list_tasks(&self, status_filter: Option<TaskStatus>) -> Result<Vec<TaskObject>> {
        let status = status_filter.map(convert::status_to_wire).transpose()?.map(|status| vec![status]);
        let core = self.running();
        let mut params = list::Params { status, limit: Some(PAGE), ..list::Params::default() };
        let mut tasks = Vec::new();
        loop {
            let page = core.client.list(params.clone()).await.map_err(|error| from_client(&error))?;
            tasks.extend(page.tasks.iter().map(|row| convert::listed(&row.task)));
            let Some(cursor) = page.next_cursor else { return Ok(tasks) };
            if tasks.len() >= MAX_LISTED {
                return Err(TaskStoreError::Backend(format!(
                    "there are more than {MAX_LISTED} tasks to list"
                )));
            }
            params.cursor = Some(cursor);
        }
    }

    async fn require_input(
        &self,
        task_id: &str,
        requests: InputRequests,
        message: Option<&str>,
    ) -> Result<bool> {
        let input_requests = convert::encode_map("an input request", &requests)?;
        let core = self.running();
        core.know_limits(input_requests.values().map(|request| request.as_bytes().len()).sum()).await?;
        let params = require_input::Params {
            task_id: task_id.to_owned(),
            input_requests,
            message: message.map(str::to_owned),
            on_spent_key: OnSpentKey::Reject,
            guard: Guard::default(),
        };
        core.applied(task_id, core.client.require_input(params)).await
    }

    async fn outstanding_input_requests(&self, task_id: &str) -> Result<Option<InputRequests>> {
        let pinned = self.core().handoff.pinned(task_id);
        let core = self.running();
        let snapshot = match pinned.or_else(|| core.handoff.take(task_id, Part::Questions)) {
            Some(snapshot) => Some(snapshot),
            None => core.read(task_id).await?.map(|read| read.snapshot),
        };
        snapshot.map(|snapshot| convert::questions(&snapshot)).transpose()
    }

    async fn apply_input_responses(
        &self,
        task_id: &str,
        responses: InputResponses,
    ) -> Result<Option<AppliedInputResponses>> {
        let input_responses = convert::encode_map("an input response", &responses)?;
        let core = self.running();
        core.know_limits(input_responses.values().map(|response| response.as_bytes().len()).sum()).await?;
        let params =
            apply_input::Params { task_id: task_id.to_owned(), input_responses, guard: Guard::default() };
        let applied = core.found(task_id, core.client.apply_input(params).await)?;
        if let Some(apply_input::Applied { outcome, .. }) = &applied {
            core.wrote(task_id, outcome);
        }
        Ok(applied.filter(|applied| applied.outcome.applied).map(|applied| AppliedInputResponses {
            accepted: as_set(applied.accepted),
            ignored: as_set(applied.ignored),
            still_outstanding: as_set(applied.still_outstanding),
        }))
    }

    async fn task_presence(&self, task_id: &str) -> Result<TaskPresence> {
        let core = self.running();
        // The broker does not tell an expired task from one that never was, so there is no `Expired`.
        let Some(read) = core.read(task_id).await? else { return Ok(TaskPresence::Missing) };
        let owner = read.snapshot.owner.clone();
        core.handoff.leave(task_id, read, &[Part::Task, Part::Result, Part::Questions]);
        Ok(TaskPresence::Present { owner })
    }

    async fn input_responses(&self, task_id: &str) -> Result<Option<InputResponses>> {
        let core = self.running();
        let context = core.found(task_id, core.client.resume(task_id).await)?;
        context.map(|context| convert::answers(task_id, &context.input_responses)).transpose()
    }

    async fn set_status(&self, task_id: &str, status: TaskStatus, message: Option<&str>) -> Result<bool> {
        let status = convert::status_to_wire(status)?;
        if status.is_terminal() {
            return Err(TaskStoreError::InvalidTransition(format!(
                "set_status reports progress; a task becomes {status} by complete_task, fail_task or cancel_task"
            )));
        }
        let params = set_status::Params {
            task_id: task_id.to_owned(),
            status,
            message: message.map(str::to_owned),
            guard: Guard::default(),
        };
        let core = self.running();
        core.applied(task_id, core.client.set_status(params)).await
    }

    async fn resume_context(&self, task_id: &str) -> Result<Option<TaskResumeContext>> {
        let core = self.running();
        let place = core.registry.place(Some(task_id)).map_err(|full| too_many_held(full.maximum))?;
        let Some(context) = core.found(task_id, core.client.resume(task_id).await)? else { return Ok(None) };
        let arguments = convert::arguments(task_id, &context.arguments)?;
        let answers = convert::answers(task_id, &context.input_responses)?;
        let seen = Seen::now(None, context.revision, context.remaining_ms, context.cancel_requested);
        let token = place.fill(task_id, seen);
        let resume = TaskResumeContext::new(context.tool_name, arguments, answers);
        Ok(Some(resume.with_cancellation_token(token)))
    }

    async fn set_ttl(&self, task_id: &str, ttl_ms: u64) -> Result<bool> {
        let core = self.running();
        let age = core.registry.age(task_id);
        let began = Instant::now();
        let params = set_ttl::Params { task_id: task_id.to_owned(), ttl_ms, guard: Guard::default() };
        match core.found(task_id, core.client.set_ttl(params).await)? {
            None => Ok(false),
            Some(Ended::Answered(answer)) => {
                let Outcome { status, revision, replayed, .. } = answer.outcome;
                // The numbers of a replayed answer are as old as the first one, which was lost.
                if !replayed || answer.remaining_ms == 0 {
                    core.registry
                        .learn(task_id, Seen::now(Some(status), revision, answer.remaining_ms, false));
                } else {
                    core.registry.look(task_id, Instant::now());
                }
                Ok(true)
            }
            // The task has gone between two attempts. If the new time is over by now, the first one has ended it.
            Some(Ended::Gone) => {
                core.gone(task_id);
                let age = age.unwrap_or_default().saturating_add(began.elapsed());
                Ok(Duration::from_millis(ttl_ms) <= age)
            }
        }
    }

    async fn complete_task(&self, task_id: &str, result: CallToolResult) -> Result<bool> {
        let result = convert::encode("the result", &result)?;
        let core = self.running();
        core.know_limits(result.as_bytes().len()).await?;
        let params = complete::Params { task_id: task_id.to_owned(), result, guard: Guard::default() };
        let ended = core.applied(task_id, core.client.complete(params)).await;
        core.or_fail_bounded(task_id, ended).await
    }

    async fn fail_task(&self, task_id: &str, error: JsonRpcError) -> Result<bool> {
        let error = convert::task_error(&error)?;
        let core = self.running();
        let data = error.data.as_ref().map_or(0, |data| data.as_bytes().len());
        core.know_limits(data.saturating_add(error.message.len())).await?;
        let params = fail::Params { task_id: task_id.to_owned(), error, guard: Guard::default() };
        let ended = core.applied(task_id, core.client.fail(params)).await;
        core.or_fail_bounded(task_id, ended).await
    }

    async fn cancel_task(&self, task_id: &str, reason: Option<&str>) -> Result<Option<TaskObject>> {
        let core = self.running();
        let asked = Instant::now();
        let params = cancel::Params {
            task_id: task_id.to_owned(),
            reason: reason.map(str::to_owned),
            guard: Guard::default(),
        };
        let Some(cancelled) = core.found(task_id, core.client.cancel(params).await)? else { return Ok(None) };
        core.registry.raise(task_id);
        let object = convert::task_object(&cancelled.snapshot.task)?;
        // The router reads the task to tell its subscribers. A replayed answer has the revision of the first one
        // beside the task of now, so it is not handed on.
        if !cancelled.outcome.replayed {
            core.saw(task_id, &cancelled.snapshot);
            let read =
                Read { snapshot: cancelled.snapshot.into(), knowledge: Knowledge::now(task_id), asked };
            core.handoff.leave(task_id, read, &[Part::Result]);
        }
        Ok(Some(object))
    }
}

impl Core {
    /// A command about the life of a task: whether it was carried out, `false` for a task that is not there.
    async fn applied(
        &self,
        task_id: &str,
        command: impl Future<Output = std::result::Result<Outcome, Error>> + Send,
    ) -> Result<bool> {
        let Some(outcome) = self.found(task_id, command.await)? else { return Ok(false) };
        self.wrote(task_id, &outcome);
        Ok(outcome.applied)
    }

    /// A payload that is too large must not leave the task working for ever: nobody hands in another one. As the
    /// in-memory store does, the task fails with an error of known size, and the caller gets the error too.
    async fn or_fail_bounded(&self, task_id: &str, ended: Result<bool>) -> Result<bool> {
        let Err(error @ TaskStoreError::RetentionLimitExceeded { .. }) = ended else { return ended };
        let record = TaskError { code: -32603, message: TOO_LARGE.to_owned(), data: None::<Json> };
        let params = fail::Params { task_id: task_id.to_owned(), error: record, guard: Guard::default() };
        match self.applied(task_id, self.client.fail(params)).await {
            // It had ended before, so nothing was lost.
            Ok(false) => Ok(false),
            Ok(true) => Err(error),
            Err(second) => {
                tracing::warn!(task_id, error = %second, "a task with an oversize payload could not be failed");
                Err(error)
            }
        }
    }
}

fn as_set(keys: Vec<String>) -> BTreeSet<String> {
    keys.into_iter().collect()
}
