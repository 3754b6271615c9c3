//! What a method's handler is given.

use task_broker_core::digest::{self, Digest};
use task_broker_core::{Caller, Command, Guard, IdempotencyKey, Request, Right, TaskId};
use task_broker_protocol::{ErrorObject, Members, shapes};

use super::failure::Failure;
use crate::broker::Refusal;
use crate::http::App;
use crate::store::Applied;

/// One call: who sends it, and what it says.
#[derive(Clone, Copy)]
pub(super) struct Context<'a> {
    pub(super) app: &'a App,
    pub(super) caller: &'a Caller,
    pub(super) method: &'a str,
    pub(super) members: &'a Members<'a>,
}

impl Context<'_> {
    /// The idempotency key of the call, with what the call says.
    pub(super) fn key(&self, guard: &shapes::Guard) -> Result<Option<IdempotencyKey>, Failure> {
        let Some(key) = &guard.idempotency_key else { return Ok(None) };
        Ok(Some(IdempotencyKey::new(key, self.digest()?)?))
    }

    fn digest(&self) -> Result<Digest, Failure> {
        // `_meta` is about the request, not about what it asks for: a retry has its own trace id.
        let says = self.members.iter().filter(|(name, _)| *name != "_meta");
        let members = says.map(|(name, value)| (name, value.get().as_bytes()));
        // Payloads are refused above 100 levels before this; only a member that nobody reads can be deeper.
        digest::call(self.method, members)
            .map_err(|_too_deep| ErrorObject::invalid_params("params", "is nested too deep").into())
    }

    /// Carries out a command on a task.
    pub(super) async fn execute(
        &self,
        right: Right,
        task_id: &str,
        guard: &shapes::Guard,
        command: Command,
    ) -> Result<Applied, Failure> {
        let request = self.request(right, guard, command)?;
        Ok(self.app.broker.execute(task(task_id)?, request).await?)
    }

    /// Carries out a command of the creator on a task, and shows the task as the command has left it.
    pub(super) async fn execute_and_show(
        &self,
        task_id: &str,
        guard: &shapes::Guard,
        command: Command,
    ) -> Result<Applied, Failure> {
        let request = self.request(Right::Creator, guard, command)?;
        Ok(self.app.broker.execute_and_show(task(task_id)?, request).await?)
    }

    fn request(&self, right: Right, guard: &shapes::Guard, command: Command) -> Result<Request, Failure> {
        let guard = Guard { key: self.key(guard)?, expected_revision: guard.expected_revision };
        // Bad params are told before an unknown id is, so that the answer never depends on whether the id is known.
        self.app.broker.limits().check_command(&command)?;
        Ok(Request { caller: self.caller.clone(), right, guard, command })
    }
}

/// The task of this id. A text that is no id is simply unknown.
pub(super) fn task(id: &str) -> Result<TaskId, Refusal> {
    TaskId::parse(id).ok_or(Refusal::NotFound)
}
