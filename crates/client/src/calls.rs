//! Every method of the broker, typed.

use std::collections::BTreeMap;
use std::time::Duration;

use task_broker_protocol::methods::{
    apply_input, cancel, complete, create, discard, fail, get, info, list, require_input, resume, set_meta,
    set_status, set_ttl, statuses, tasks_cancel, tasks_get, tasks_update, wait,
};
use task_broker_protocol::shapes::{Outcome, Snapshot};

use crate::client::{Client, Ending, ensure_key};
use crate::error::Error;

/// What the broker waits for when a call does not say: WIRE.md's default for `timeoutMs`.
const DEFAULT_WAIT_MS: u64 = 30_000;

/// What a `discard` or a `setTtl` did to a task that it may have ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended<T> {
    /// The broker's answer.
    Answered(T),
    /// There is no such task any more, and an earlier attempt of this call whose answer was lost may be the reason.
    ///
    /// For a `discard` that is what was wanted. For a `setTtl` it is when the new time was already over.
    Gone,
}

impl<T> Ended<T> {
    /// The broker's answer, if there was one.
    pub fn answered(self) -> Option<T> {
        match self {
            Self::Answered(answer) => Some(answer),
            Self::Gone => None,
        }
    }
}

/// What the broker is, and reading tasks.
impl Client {
    /// `store/info`: what the broker is and which limits are in force.
    ///
    /// # Errors
    /// See [`Error`]. A good first call: it shows whether there is a broker and whether it takes the token.
    ///
    /// # Cancellation safety
    /// Safe: it changes nothing.
    pub async fn info(&self) -> Result<info::Description, Error> {
        let description = self.call::<info::Info>(&info::Params {}).await?;
        self.learn_limits(&description.limits);
        Ok(description)
    }

    /// `store/get`: one task, everything at one instant.
    ///
    /// # Errors
    /// See [`Error`]; `task_not_found` for a task that is not the caller's to see.
    ///
    /// # Cancellation safety
    /// Safe: it changes nothing.
    pub async fn get(&self, task_id: &str) -> Result<Snapshot, Error> {
        self.call::<get::Get>(&get::Params { task_id: task_id.to_owned() }).await
    }

    /// `store/wait`: one task, as soon as it has ended, or is newer than `since_revision`, or the time is up
    /// (`timed_out`). The broker cuts `timeout_ms` at its `maxWaitMs`, 50 s.
    ///
    /// ```no_run
    /// # async fn example(client: task_broker_client::Client) -> Result<(), task_broker_client::Error> {
    /// use task_broker_client::methods::wait;
    ///
    /// let params = wait::Params { task_id: "8c1f…".to_owned(), timeout_ms: Some(20_000), since_revision: None };
    /// let ended = loop {
    ///     let waited = client.wait(params.clone()).await?;
    ///     if !waited.timed_out {
    ///         break waited.snapshot;
    ///     }
    /// };
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// See [`Error`]; `task_not_found` at the moment when the task expires.
    ///
    /// # Cancellation safety
    /// Safe: it changes nothing, and the state of a task is there for the next call.
    pub async fn wait(&self, params: wait::Params) -> Result<wait::Waited, Error> {
        let patience = Duration::from_millis(params.timeout_ms.unwrap_or(DEFAULT_WAIT_MS).min(60_000));
        self.call_patiently::<wait::Wait>(&params, patience).await
    }

    /// `store/list`: one page of the caller's tasks, newest first.
    ///
    /// # Errors
    /// See [`Error`].
    ///
    /// # Cancellation safety
    /// Safe: it changes nothing.
    pub async fn list(&self, params: list::Params) -> Result<list::Page, Error> {
        self.call::<list::List>(&params).await
    }

    /// `store/statuses`: the short state of many tasks; `None` for one that is not found. More than
    /// [`statuses::MAX_TASK_IDS`] are asked for in several calls, one after the other, so that only the tasks of one
    /// call are seen at one instant.
    ///
    /// # Errors
    /// See [`Error`]; the first call that fails ends it.
    ///
    /// # Cancellation safety
    /// Safe: it changes nothing.
    pub async fn statuses<I>(&self, task_ids: I) -> Result<BTreeMap<String, Option<statuses::State>>, Error>
    where
        I: IntoIterator,
        I::Item: Into<String>,
    {
        let mut task_ids = task_ids.into_iter().map(Into::into);
        let mut all = BTreeMap::new();
        loop {
            let task_ids: Vec<String> = task_ids.by_ref().take(statuses::MAX_TASK_IDS).collect();
            if task_ids.is_empty() {
                return Ok(all);
            }
            let mut states = self.call::<statuses::Statuses>(&statuses::Params { task_ids }).await?;
            all.append(&mut states.statuses);
        }
    }

    /// `store/resume`: what is needed to run the tool again with the answers so far.
    ///
    /// # Errors
    /// See [`Error`].
    ///
    /// # Cancellation safety
    /// Safe: it changes nothing.
    pub async fn resume(&self, task_id: &str) -> Result<resume::Context, Error> {
        self.call::<resume::Resume>(&resume::Params { task_id: task_id.to_owned() }).await
    }

    /// `tasks/get`: one task as its owner sees it.
    ///
    /// # Errors
    /// See [`Error`].
    ///
    /// # Cancellation safety
    /// Safe: it changes nothing.
    pub async fn tasks_get(&self, task_id: &str) -> Result<tasks_get::DetailedTask, Error> {
        self.call::<tasks_get::TasksGet>(&tasks_get::Params { task_id: task_id.to_owned() }).await
    }
}

/// A call that changes a task: at its end, whatever that is, a task store of this process must not show what it read
/// before.
#[cfg(feature = "tower-mcp")]
fn writing(task_id: &str) -> impl Drop + use<> {
    crate::tower_mcp::Knowledge::learnt_at_the_end(task_id)
}

/// Without a task store nobody keeps what was read.
#[cfg(not(feature = "tower-mcp"))]
fn writing(_task_id: &str) -> NothingKept {
    NothingKept
}

#[cfg(not(feature = "tower-mcp"))]
struct NothingKept;

/// Creating tasks.
impl Client {
    /// `store/create`: a new task.
    ///
    /// ```no_run
    /// # async fn example(client: task_broker_client::Client) -> Result<(), task_broker_client::Error> {
    /// use task_broker_client::methods::create;
    ///
    /// let mut params = create::Params::new("report");
    /// params.owner = create::Owner::Subject("alice".to_owned());
    /// let created = client.create(params).await?;
    /// println!("{} lives {} ms", created.snapshot.task.task_id, created.snapshot.remaining_ms);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// See [`Error`].
    ///
    /// # Cancellation safety
    /// A call that is dropped may have created a task, which then lives until its time is over. With an idempotency
    /// key of one's own in the params, the same call again answers with that task.
    pub async fn create(&self, mut params: create::Params) -> Result<create::Created, Error> {
        ensure_key(&mut params.guard)?;
        self.call::<create::Create>(&params).await
    }
}

/// Declares the calls that change a task and are the same but for their names.
macro_rules! changing {
    ($($(#[$doc:meta])* $name:ident($module:ident::$method:ident) -> $result:ty;)*) => {
        /// Changing tasks. Params without an idempotency key get one; see the [crate's page](crate).
        impl Client {
            $(
                $(#[$doc])*
                ///
                /// # Errors
                /// See [`Error`].
                ///
                /// # Cancellation safety
                /// A call that is dropped may have been carried out. With an idempotency key of one's own in the
                /// params, the same call again answers what the first one did.
                pub async fn $name(&self, mut params: $module::Params) -> Result<$result, Error> {
                    let _writing = writing(&params.task_id);
                    ensure_key(&mut params.guard)?;
                    self.call::<$module::$method>(&params).await
                }
            )*
        }
    };
}

changing! {
    /// `store/requireInput`: questions to the owner; they replace the outstanding ones.
    require_input(require_input::RequireInput) -> Outcome;
    /// `store/applyInput`: answers from the owner, handed in by the worker's side.
    apply_input(apply_input::ApplyInput) -> apply_input::Applied;
    /// `store/setStatus`: back to work, or back to waiting for answers.
    set_status(set_status::SetStatus) -> Outcome;
    /// `store/setMeta`: another `_meta`, replaced whole.
    set_meta(set_meta::SetMeta) -> Outcome;
    /// `store/complete`: the end with a result.
    complete(complete::Complete) -> Outcome;
    /// `store/fail`: the end with an error.
    fail(fail::Fail) -> Outcome;
    /// `store/cancel`: the end by wish of the worker's side, and the signal to whoever does the work.
    cancel(cancel::Cancel) -> cancel::Cancelled;
    /// `tasks/update`: answers from the owner.
    tasks_update(tasks_update::TasksUpdate) -> tasks_update::Acknowledged;
    /// `tasks/cancel`: the owner wants the task to end.
    tasks_cancel(tasks_cancel::TasksCancel) -> tasks_update::Acknowledged;
}

/// Ending the time of tasks.
impl Client {
    /// `store/setTtl`: another time to live, counted from the task's creation.
    ///
    /// # Errors
    /// See [`Error`].
    ///
    /// # Cancellation safety
    /// As with every changing call: a call that is dropped may have been carried out.
    pub async fn set_ttl(&self, mut params: set_ttl::Params) -> Result<Ended<set_ttl::TtlOutcome>, Error> {
        let _writing = writing(&params.task_id);
        ensure_key(&mut params.guard)?;
        ended(self.call_in_doubt::<set_ttl::SetTtl>(&params).await)
    }

    /// `store/discard`: the task is gone, as if it had expired.
    ///
    /// # Errors
    /// See [`Error`].
    ///
    /// # Cancellation safety
    /// As with every changing call: a call that is dropped may have been carried out.
    pub async fn discard(&self, mut params: discard::Params) -> Result<Ended<Outcome>, Error> {
        let _writing = writing(&params.task_id);
        ensure_key(&mut params.guard)?;
        ended(self.call_in_doubt::<discard::Discard>(&params).await)
    }
}

fn ended<T>(ending: Ending<T>) -> Result<Ended<T>, Error> {
    match ending.result {
        Ok(answer) => Ok(Ended::Answered(answer)),
        // The outcomes of a task go with it, so no idempotency key can tell more.
        Err(error) if ending.in_doubt && error.is_task_not_found() => Ok(Ended::Gone),
        Err(error) => Err(error),
    }
}
