//! The seam between the broker and what keeps tasks.
//!
//! A store knows no commands. It loads a task, lets a function decide, and writes what the function returns; so a
//! rule never lives in a driver. The contract is on [`Store`]; the behaviour suite in `suite` holds every driver
//! to it.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use task_broker_core::{
    CreateKey, Event, Outcome, OwnerFrom, PayloadRef, Rejection, Status, Subject, Task, TaskId, Timestamp,
    Transition, Usage,
};
use tokio::sync::broadcast;

mod changelog;
pub mod memory;
pub mod sled;
mod stats;
#[cfg(test)]
mod suite;

pub use changelog::{Change, Changes};
pub use stats::{EmbeddedStats, FOLLOWER_STAGES, StoreStats};

/// What a decision needs to know beside the task: read in the same atomic step.
#[derive(Clone, Copy, Debug)]
pub struct Situation {
    /// The store's time.
    pub now: Timestamp,
    /// What the task's owner, and all owners, keep.
    pub usage: Usage,
}

/// Decides about a task that exists. It may be called more than once (a driver may have to try a step again), so
/// it must not have effects of its own.
pub type Decide = Box<dyn Fn(&Task, &Situation) -> Result<Transition, Rejection> + Send + Sync>;

/// Decides about a task that does not exist yet; see [`Decide`].
pub type DecideNew = Box<dyn Fn(&Situation) -> Result<Transition, Rejection> + Send + Sync>;

/// Looks at a task and says which of its payloads are wanted, or refuses the read.
pub type Select<'a> = &'a (dyn Fn(&Task, Timestamp) -> Result<Vec<PayloadRef>, Rejection> + Send + Sync);

/// A task to be inserted.
pub struct Insertion {
    /// The fresh random id.
    pub id: TaskId,
    /// Who creates it.
    pub creator: Subject,
    /// Whose task it will be: whose usage [`Situation::usage`] shows.
    pub owner: Subject,
    /// The idempotency key of the call.
    pub key: Option<CreateKey>,
    /// Payload bytes that the decision carries, for the bound of a driver's queue.
    pub payload_bytes: u64,
    /// Decides.
    pub decide: DecideNew,
}

impl fmt::Debug for Insertion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Insertion").field("id", &self.id).finish_non_exhaustive()
    }
}

/// A change to an existing task.
pub struct Update {
    /// The task.
    pub id: TaskId,
    /// Payload bytes that the decision carries, for the bound of a driver's queue.
    pub payload_bytes: u64,
    /// Decides.
    pub decide: Decide,
    /// Which payloads of the task, as the decision leaves it, come with the answer. Read in the same atomic step: a read
    /// after it would show a later state, or none.
    pub show: Option<Show>,
}

/// Chooses payloads of a task.
pub type Show = fn(&Task) -> Vec<PayloadRef>;

impl fmt::Debug for Update {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Update").field("id", &self.id).finish_non_exhaustive()
    }
}

/// What became of an [`Insertion`].
#[derive(Debug)]
pub enum Inserted {
    /// It is stored.
    Created(Applied),
    /// A live task of the same creator was created under the same key. Nothing was written.
    Existing(TaskId),
    /// The decision was no. Nothing was written.
    Rejected(Rejection),
}

/// What became of an [`Update`].
#[derive(Debug)]
pub enum Updated {
    /// The decision was carried out.
    Applied(Applied),
    /// There is no task with this id.
    Absent,
    /// The decision was no. Nothing was written.
    Rejected(Rejection),
}

/// A decision that was carried out, durably.
#[derive(Debug)]
pub struct Applied {
    /// What the caller is told.
    pub outcome: Outcome,
    /// Whether it is the outcome of an earlier call.
    pub replayed: bool,
    /// Whether the task is another one since.
    pub changed: bool,
    /// The task as it is after the decision; of a removed task its last state.
    pub task: Arc<Task>,
    /// The payloads that the update asked for.
    pub payloads: Payloads,
    /// The store's time of the decision.
    pub now: Timestamp,
}

/// A task as it was read, with the payloads that were asked for: all of one revision.
#[derive(Clone, Debug)]
pub struct Reading {
    /// The task.
    pub task: Arc<Task>,
    /// The payloads.
    pub payloads: Payloads,
    /// The store's time of the read.
    pub now: Timestamp,
}

/// Payloads of one task. `Debug` shows no content.
#[derive(Clone, Default)]
pub struct Payloads(Vec<(PayloadRef, Bytes)>);

impl Payloads {
    /// The bytes under this reference, if they were asked for.
    #[must_use]
    pub fn get(&self, reference: &PayloadRef) -> Option<&Bytes> {
        self.0.iter().find(|(kept, _)| kept == reference).map(|(_, bytes)| bytes)
    }

    /// How long they are together, in bytes.
    #[must_use]
    pub fn total_bytes(&self) -> usize {
        self.0.iter().map(|(_, bytes)| bytes.len()).sum()
    }
}

impl FromIterator<(PayloadRef, Bytes)> for Payloads {
    fn from_iter<I: IntoIterator<Item = (PayloadRef, Bytes)>>(payloads: I) -> Self {
        Self(payloads.into_iter().collect())
    }
}

impl fmt::Debug for Payloads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Payloads({})", self.0.len())
    }
}

/// Whose tasks a list shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listed {
    /// Tasks that this subject created.
    CreatedBy(Subject),
    /// Tasks that belong to this subject.
    OwnedBy(Subject),
}

/// A page of a list: newest first by (`created_at`, id), which never changes, so that a task that changes while
/// somebody pages is neither shown twice nor missed.
#[derive(Clone, Debug)]
pub struct ListQuery {
    /// Whose tasks.
    pub whose: Listed,
    /// Only tasks of this owner.
    pub owner: Option<Subject>,
    /// Only these statuses; all when empty.
    pub statuses: Vec<Status>,
    /// Only tasks behind this place.
    pub after: Option<ListPlace>,
    /// How many tasks at most; at least 1.
    pub limit: usize,
}

impl ListQuery {
    /// Whether a task is one of those that are asked for; where the page begins is another question.
    #[must_use]
    pub fn wants(&self, task: &Task) -> bool {
        let listed = match &self.whose {
            Listed::CreatedBy(subject) => task.creator == *subject,
            Listed::OwnedBy(subject) => task.owner == *subject,
        };
        listed
            && self.owner.as_ref().is_none_or(|owner| *owner == task.owner)
            && (self.statuses.is_empty() || self.statuses.contains(&task.status()))
    }
}

/// A place in a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ListPlace {
    /// When the task was created.
    pub created_at: Timestamp,
    /// Its id, which breaks ties.
    pub id: TaskId,
}

impl ListPlace {
    /// The place of a task.
    #[must_use]
    pub fn of(task: &Task) -> Self {
        Self { created_at: task.created_at, id: task.id }
    }
}

/// A page of tasks.
#[derive(Debug)]
pub struct Page {
    /// The tasks, newest first.
    pub tasks: Vec<Arc<Task>>,
    /// Whether there is at least one more behind the last one.
    pub more: bool,
    /// The store's time.
    pub now: Timestamp,
}

/// Something happened to this task, or to a task of this creator.
#[derive(Clone, Debug)]
pub struct Hint {
    /// The task.
    pub id: TaskId,
    /// Its creator.
    pub creator: Subject,
}

/// What a sweep did.
#[derive(Clone, Copy, Debug, Default)]
pub struct Swept {
    /// How many tasks were removed.
    pub removed: usize,
    /// Whether more are due already.
    pub more: bool,
}

/// Whether the store can take and keep a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    /// It can.
    Ready,
    /// Not now; it may come back by itself. The text is for operators.
    Unavailable(&'static str),
    /// Never again in this process. The text is for operators.
    Failed(&'static str),
    /// It was closed.
    Closed,
}

/// Why a store could not do something. None of these says anything about a task.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// Not now; nothing was changed.
    #[error("the store cannot take this now; try again in {retry_after_ms} ms")]
    Unavailable {
        /// When to try again, in milliseconds.
        retry_after_ms: u64,
    },
    /// The change may or may not have become durable; a retry with the same idempotency key tells.
    #[error("the store failed while it made the change durable; the outcome is unknown")]
    OutcomeUnknown,
    /// Stored data is missing or wrong.
    #[error("stored data is damaged: {place}")]
    Damaged {
        /// Where; for operators, never for a client.
        place: String,
    },
    /// There is no room.
    #[error("the store has no room left")]
    Full,
    /// The store has failed for good.
    #[error("the store has failed; the process must be restarted")]
    Broken,
}

/// What keeps tasks.
///
/// # Contract
/// - **Linearizable per task.** [`insert`](Store::insert) and [`update`](Store::update) on one task happen one
///   after the other, each on the state that the one before has left.
/// - **Durable on return.** When `insert`, `update` or `sweep` returns, what it did survives whatever the driver
///   promises to survive. (The memory driver promises nothing and says so.)
/// - **Only durable state is shown.** No read, page, change or hint reveals a state that a crash could take back.
///   That includes rejections: one that was decided against a state not yet durable is answered after it is.
/// - **One revision.** A [`Reading`] holds a task and payloads of the same revision. A payload that its unchanged
///   task refers to and that is not there, or is not what was stored, is [`StoreError::Damaged`], never "absent".
/// - **No rules.** A driver neither filters expired tasks on its own (the decision does) nor checks access.
///   Only [`list`](Store::list) leaves out tasks that have expired at the store's time, and
///   [`insert`](Store::insert) treats the key of an expired task as free.
/// - **All or nothing.** An effect is written whole or not at all, also across a crash.
/// - Futures may be dropped at any time; a change that was handed over may then still happen.
#[async_trait]
pub trait Store: Send + Sync + fmt::Debug {
    /// Stores a new task if its key is free for its creator, otherwise answers the live task that has it.
    async fn insert(&self, insertion: Insertion) -> Result<Inserted, StoreError>;

    /// Lets `update.decide` decide on the newest state of a task and carries out what it says.
    async fn update(&self, update: Update) -> Result<Updated, StoreError>;

    /// Reads a task and the payloads that `select` asks for. `Ok(None)` when there is no such task, `Ok(Some(Err))`
    /// when `select` refused.
    async fn read(
        &self,
        id: TaskId,
        select: Select<'_>,
    ) -> Result<Option<Result<Reading, Rejection>>, StoreError>;

    /// The tasks with these ids, in their order, without payloads.
    async fn heads(&self, ids: &[TaskId]) -> Result<(Vec<Option<Arc<Task>>>, Timestamp), StoreError>;

    /// A page of live tasks.
    async fn list(&self, query: &ListQuery) -> Result<Page, StoreError>;

    /// What happened to the tasks of a creator after `since` (a [`Changes::position`] of earlier), at most `max`
    /// events: at least once, in revision order per task. [`Changes::reset`] says that events may be missing.
    async fn changes(
        &self,
        creator: &Subject,
        since: Option<&str>,
        max: usize,
    ) -> Result<Changes, StoreError>;

    /// Ids that changed. Hints may be lost or late: whoever relies on them reads before it waits, and reads again
    /// after a while.
    fn hints(&self) -> broadcast::Receiver<Arc<[Hint]>>;

    /// The ids of one part of all tasks, expired ones included, by the number of the part from 0; nothing behind the last
    /// part. A task that is there all the while is in exactly one part. A part is small beside the whole, so that whoever
    /// walks over everything holds little.
    async fn part(&self, number: usize) -> Result<Option<Vec<TaskId>>, StoreError>;

    /// Removes at most `max` expired tasks and reports each as an event of the kind `Expired`.
    async fn sweep(&self, max: usize) -> Result<Swept, StoreError>;

    /// Whether the store can take and keep a command. Cheap: probes ask often.
    fn health(&self) -> Health;

    /// Numbers for operators. Cheap, whatever the store holds; what cannot be had soon is left out or is not the newest.
    async fn stats(&self) -> StoreStats;

    /// The id of the store, made when it was created.
    fn store_id(&self) -> &str;

    /// What in a token made the subjects that are in this store: what it was made with, for good.
    fn owner_from(&self) -> OwnerFrom;

    /// Finishes what was handed over and releases the data. Later calls fail with [`StoreError::Broken`].
    async fn close(&self);
}

/// The state that `task` leaves when it expires, for the change log.
fn expired(task: &Task) -> Event {
    Event::of(task_broker_core::EventKind::Expired, task)
}

/// 128 random bits in hex, for names that must never come twice.
pub(crate) fn random_name() -> std::io::Result<String> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(std::io::Error::other)?;
    Ok(TaskId::from_bytes(bytes).to_string())
}
