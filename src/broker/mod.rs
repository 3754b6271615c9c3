//! The one place that authorises and executes: caller and wish in, outcome or refusal out.
//!
//! It knows no HTTP and no database. Rules are the core's; what is here is the order of things: look, let the
//! core decide inside the store's atomic step, wait, wake, sweep.

mod export;
mod hub;
mod refusal;
mod seats;
mod sweeper;
mod wait;
mod watch;

use std::sync::Arc;

use task_broker_core::{
    Caller, Limits, NewTask, OwnerFrom, PayloadRef, Phase, Rejection, Request, Right, Task, TaskId,
    Timestamp, create, execute, may_see, replay_create,
};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use self::hub::Hub;
use self::seats::Seats;
use crate::store::{
    Applied, Health, Inserted, Insertion, ListQuery, Page, Payloads, Reading, Show, Store, StoreError,
    StoreStats, Update, Updated,
};

pub use self::export::Export;
pub use self::refusal::Refusal;
pub use self::seats::{Seat, SeatLimits};
pub use self::wait::{Wait, Waited};
pub use self::watch::{Watch, WatchMessage};

/// How often a create call is tried when tasks keep expiring under its key.
const CREATE_TRIES: usize = 3;

/// How many expired tasks one sweep removes when a quota is full.
const SWEEP_FOR_ROOM: usize = 1000;

/// See the module.
#[derive(Debug)]
pub struct Broker {
    store: Arc<dyn Store>,
    limits: Limits,
    hub: Hub,
    waits: Seats,
    streams: Seats,
    /// One export at a time.
    exporting: Arc<Semaphore>,
    /// Set when the process is about to end: waits answer what there is, streams end.
    draining: CancellationToken,
}

/// Everything that one read of a task shows: one instant, one revision.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The task.
    pub task: Arc<Task>,
    /// The payloads that belong to this view.
    pub payloads: Payloads,
    /// The store's time of the read.
    pub now: Timestamp,
}

/// A created task, or the one that an earlier call with the same key has created.
#[derive(Debug)]
pub struct Created {
    /// The task.
    pub snapshot: Snapshot,
    /// Whether this call has created it.
    pub created: bool,
}

/// Numbers for operators.
#[derive(Clone, Debug)]
pub struct BrokerStats {
    /// Open waits.
    pub waits: usize,
    /// Open streams.
    pub streams: usize,
    /// What the store tells.
    pub store: StoreStats,
}

/// Which payloads a view shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum View {
    /// What `store/get` and `tasks/get` show: meta, result or error, open questions.
    Snapshot,
    /// What a worker needs to go on: arguments and answers.
    Resume,
}

impl View {
    fn payloads(self, task: &Task) -> Vec<PayloadRef> {
        match self {
            Self::Snapshot => {
                let end = match &task.phase {
                    Phase::Completed(payload) | Phase::Failed(payload) => Some(*payload),
                    Phase::Working | Phase::InputRequired | Phase::Cancelled => None,
                };
                let questions = task.shown_questions().map(|(_, payload)| *payload);
                task.meta.into_iter().chain(end).chain(questions).collect()
            }
            Self::Resume => {
                std::iter::once(task.arguments).chain(task.answers().map(|(_, payload)| *payload)).collect()
            }
        }
    }
}

impl Broker {
    /// A broker on a store.
    #[must_use]
    pub fn new(store: Arc<dyn Store>, limits: Limits, waits: SeatLimits, streams: SeatLimits) -> Self {
        Self {
            store,
            limits,
            hub: Hub::new(),
            waits: Seats::new(waits),
            streams: Seats::new(streams),
            exporting: Arc::new(Semaphore::new(1)),
            draining: CancellationToken::new(),
        }
    }

    /// Passes the store's hints on and removes expired tasks, until it is dropped. Exactly one must run.
    pub async fn run(&self) {
        tokio::join!(self.hub.listen(self.store.hints()), sweeper::run(&*self.store));
    }

    /// The limits in force.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// The id of the store.
    #[must_use]
    pub fn store_id(&self) -> &str {
        self.store.store_id()
    }

    /// What makes the subjects of the store.
    #[must_use]
    pub fn owner_from(&self) -> OwnerFrom {
        self.store.owner_from()
    }

    /// Whether the store can take and keep a command.
    #[must_use]
    pub fn health(&self) -> Health {
        self.store.health()
    }

    /// Numbers for operators.
    pub async fn stats(&self) -> BrokerStats {
        let store = self.store.stats().await;
        BrokerStats { waits: self.waits.taken(), streams: self.streams.taken(), store }
    }

    /// Lets waits answer and streams end; both refuse to begin from now on.
    pub fn drain(&self) {
        self.draining.cancel();
    }

    /// Waits until no wait and no stream is open.
    pub async fn no_long_calls(&self) {
        tokio::join!(self.waits.empty(), self.streams.empty());
    }

    /// Finishes what was handed to the store and closes it.
    pub async fn close(&self) {
        self.store.close().await;
    }

    /// Creates a task.
    ///
    /// # Errors
    /// What the core rejects; [`Refusal::Unavailable`] when the store cannot take it.
    pub async fn create(&self, caller: &Caller, new: NewTask) -> Result<Created, Refusal> {
        self.limits.check_new(&new)?;
        for _ in 0..CREATE_TRIES {
            let inserted = match self.insert(caller, &new).await? {
                Inserted::Rejected(Rejection::LimitExceeded { .. }) if self.make_room().await? => {
                    self.insert(caller, &new).await?
                }
                inserted => inserted,
            };
            match inserted {
                Inserted::Created(Applied { task, now, .. }) => {
                    // Not read again: a task that expires at once is gone by then, and its creator must learn
                    // its id all the same.
                    let meta = new.meta.as_ref().map(|meta| meta.bytes().clone());
                    let payloads = task.meta.into_iter().zip(meta).collect();
                    return Ok(Created { snapshot: Snapshot { task, payloads, now }, created: true });
                }
                Inserted::Rejected(rejection) => return Err(rejection.into()),
                Inserted::Existing(id) => match self.get(caller, Right::Creator, id, View::Snapshot).await {
                    Ok(snapshot) => {
                        replay_create(&snapshot.task, &new, caller, &self.limits)?;
                        return Ok(Created { snapshot, created: false });
                    }
                    // It has expired since, and so has its claim on the key.
                    Err(Refusal::NotFound) => {}
                    Err(other) => return Err(other),
                },
            }
        }
        Err(Refusal::Unavailable { retry_after_ms: 100 })
    }

    async fn insert(&self, caller: &Caller, new: &NewTask) -> Result<Inserted, StoreError> {
        let (id, owner, key) = (new.id, new.owner.clone(), new.key.clone());
        let payload_bytes = new.payload_bytes();
        let (new, caller, limits) = (new.clone(), caller.clone(), self.limits.clone());
        let creator = caller.subject.clone();
        let decide = Box::new(move |situation: &crate::store::Situation| {
            create(new.clone(), &caller, &limits, &situation.usage, situation.now)
        });
        self.store.insert(Insertion { id, creator, owner, key, payload_bytes, decide }).await
    }

    /// Removes tasks that have expired but still count. Says whether there were any.
    async fn make_room(&self) -> Result<bool, StoreError> {
        let mut any = false;
        loop {
            let swept = self.store.sweep(SWEEP_FOR_ROOM).await?;
            any |= swept.removed > 0;
            if !swept.more {
                return Ok(any);
            }
        }
    }

    /// Carries out a command.
    ///
    /// # Errors
    /// [`Refusal::NotFound`] for an unknown, expired or foreign task; what the core rejects;
    /// [`Refusal::Unavailable`] when the store cannot take it.
    pub async fn execute(&self, id: TaskId, request: Request) -> Result<Applied, Refusal> {
        self.decide(id, request, None).await
    }

    /// Carries out a command and shows the task as the command has left it: outcome and snapshot are one instant.
    ///
    /// # Errors
    /// As for [`Broker::execute`].
    pub async fn execute_and_show(&self, id: TaskId, request: Request) -> Result<Applied, Refusal> {
        self.decide(id, request, Some(|task| View::Snapshot.payloads(task))).await
    }

    async fn decide(&self, id: TaskId, request: Request, show: Option<Show>) -> Result<Applied, Refusal> {
        self.limits.check_command(&request.command)?;
        let payload_bytes = request.command.payload_bytes();
        let limits = self.limits.clone();
        let decide = Box::new(move |task: &Task, situation: &crate::store::Situation| {
            execute(task, &request, &limits, &situation.usage, situation.now)
        });
        match self.store.update(Update { id, payload_bytes, decide, show }).await? {
            Updated::Applied(applied) => Ok(applied),
            Updated::Absent => Err(Refusal::NotFound),
            Updated::Rejected(rejection) => Err(rejection.into()),
        }
    }

    /// Reads a task.
    ///
    /// # Errors
    /// [`Refusal::NotFound`] for an unknown, expired or foreign task.
    pub async fn get(
        &self,
        caller: &Caller,
        right: Right,
        id: TaskId,
        view: View,
    ) -> Result<Snapshot, Refusal> {
        self.get_unless(caller, right, id, view, |_task| false).await
    }

    /// Reads a task as [`Broker::get`] does, but without its payloads if `known` says of its state that the caller has
    /// them.
    ///
    /// # Errors
    /// As for [`Broker::get`].
    pub async fn get_unless(
        &self,
        caller: &Caller,
        right: Right,
        id: TaskId,
        view: View,
        known: impl Fn(&Task) -> bool + Sync,
    ) -> Result<Snapshot, Refusal> {
        let select = |task: &Task, now: Timestamp| {
            may_see(task, caller, right, now)?;
            Ok(if known(task) { Vec::new() } else { view.payloads(task) })
        };
        match self.store.read(id, &select).await? {
            None => Err(Refusal::NotFound),
            Some(Err(rejection)) => Err(rejection.into()),
            Some(Ok(Reading { task, payloads, now })) => Ok(Snapshot { task, payloads, now }),
        }
    }

    /// The tasks with these ids as far as the caller created them.
    ///
    /// # Errors
    /// Only those of the store.
    pub async fn heads(
        &self,
        caller: &Caller,
        ids: &[TaskId],
    ) -> Result<(Vec<Option<Arc<Task>>>, Timestamp), Refusal> {
        let (mut heads, now) = self.store.heads(ids).await?;
        for head in &mut heads {
            *head = head.take().filter(|task| may_see(task, caller, Right::Creator, now).is_ok());
        }
        Ok((heads, now))
    }

    /// A page of the caller's tasks. `query.whose` must name the caller: it comes from [`crate::http`], which
    /// knows no other subject.
    ///
    /// # Errors
    /// Only those of the store.
    pub async fn list(&self, query: &ListQuery) -> Result<Page, Refusal> {
        Ok(self.store.list(query).await?)
    }

    /// The `meta` of a task in a page, `None` when it has none or is gone since.
    ///
    /// # Errors
    /// Only those of the store.
    pub async fn row(&self, task: &Arc<Task>) -> Result<Option<Snapshot>, Refusal> {
        let select = |task: &Task, now: Timestamp| {
            if task.is_expired(now) { Err(Rejection::Expired) } else { Ok(task.meta.into_iter().collect()) }
        };
        match self.store.read(task.id, &select).await? {
            None | Some(Err(_)) => Ok(None),
            Some(Ok(Reading { task, payloads, now })) => Ok(Some(Snapshot { task, payloads, now })),
        }
    }
}

#[cfg(test)]
mod tests;
