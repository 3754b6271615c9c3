//! The memory driver: everything under one lock, nothing durable.
//!
//! It exists to keep the [`Store`] trait honest (a second driver with nothing in common with the first but the
//! contract) and to make tests fast. `--store memory:` says loudly that a restart loses every task.

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use task_broker_core::{
    Effect, OwnerFrom, PayloadRef, Rejection, Status, Subject, Task, TaskId, Timestamp, Usage,
};
use tokio::sync::broadcast;

use super::changelog::ChangeLog;
use super::{
    Applied, Changes, Health, Hint, Inserted, Insertion, ListPlace, ListQuery, Page, Payloads, Reading,
    Select, Situation, Store, StoreError, StoreStats, Swept, Update, Updated,
};
use crate::clock::Clock;

/// A store that forgets everything when the process ends.
#[derive(Debug)]
pub struct MemoryStore {
    clock: Clock,
    id: String,
    owner_from: OwnerFrom,
    state: Mutex<State>,
    hints: broadcast::Sender<Arc<[Hint]>>,
}

#[derive(Debug)]
struct State {
    tasks: HashMap<TaskId, Kept>,
    log: ChangeLog,
    closed: bool,
}

#[derive(Debug)]
struct Kept {
    task: Arc<Task>,
    payloads: HashMap<PayloadRef, Bytes>,
}

impl Kept {
    fn find(&self, wanted: &[PayloadRef]) -> Result<Payloads, StoreError> {
        let find = |reference: &PayloadRef| match self.payloads.get(reference) {
            Some(bytes) => Ok((*reference, bytes.clone())),
            None => {
                Err(StoreError::Damaged { place: format!("payload {reference:?} of task {}", self.task.id) })
            }
        };
        wanted.iter().map(find).collect()
    }
}

impl MemoryStore {
    /// An empty store. `id` names it; no two stores share one.
    #[must_use]
    pub fn new(clock: Clock, id: String) -> Self {
        let state = State { tasks: HashMap::new(), log: ChangeLog::new(id.clone()), closed: false };
        let hints = broadcast::channel(1024).0;
        Self { clock, id, owner_from: OwnerFrom::default(), state: Mutex::new(state), hints }
    }

    /// The same store for subjects that are made from tokens in this way.
    #[must_use]
    pub fn with_owner_from(self, owner_from: OwnerFrom) -> Self {
        Self { owner_from, ..self }
    }

    fn with_state<T>(&self, act: impl FnOnce(&mut State) -> T) -> Result<T, StoreError> {
        let mut state = self.state.lock();
        if state.closed { Err(StoreError::Broken) } else { Ok(act(&mut state)) }
    }

    /// Carries out a decision and tells who listens. Nobody can see the state before the lock is released.
    fn carry_out(
        &self,
        state: &mut State,
        id: TaskId,
        before: Option<Arc<Task>>,
        effect: Effect,
    ) -> Option<Arc<Task>> {
        let (task, event) = match effect {
            Effect::None => return before,
            Effect::Write { task, payloads, dropped, event } => {
                let task = Arc::<Task>::from(task);
                let kept = state
                    .tasks
                    .entry(id)
                    .or_insert_with(|| Kept { task: Arc::clone(&task), payloads: HashMap::new() });
                kept.task = Arc::clone(&task);
                kept.payloads.extend(payloads);
                kept.payloads.retain(|payload, _| !dropped.contains(payload));
                (Some(task), event)
            }
            Effect::Remove { event } => {
                (state.tasks.remove(&id).map(|kept| kept.task).or(before), Some(event))
            }
        };
        if let (Some(event), Some(task)) = (event, &task) {
            state.log.push(&task.creator, id, event);
            // Nobody listening is fine: hints may be lost.
            drop(self.hints.send(Arc::from([Hint { id, creator: task.creator.clone() }])));
        }
        task
    }
}

impl State {
    fn usage(&self, owner: &Subject) -> Usage {
        let mut usage = Usage { total_tasks: self.tasks.len() as u64, ..Usage::default() };
        if owner.is_some() {
            for kept in self.tasks.values().filter(|kept| kept.task.owner == *owner) {
                usage.owner_tasks += 1;
                usage.owner_bytes += kept.task.footprint();
            }
        }
        usage
    }
}

#[async_trait]
impl Store for MemoryStore {
    async fn insert(&self, insertion: Insertion) -> Result<Inserted, StoreError> {
        self.with_state(|state| {
            let now = self.clock.now();
            if let Some(key) = &insertion.key {
                let taken = state.tasks.values().find(|kept| {
                    let create = kept.task.replay.as_ref().and_then(|replay| replay.create.as_ref());
                    kept.task.creator == insertion.creator
                        && !kept.task.is_expired(now)
                        && create.is_some_and(|create| create.key() == key.key())
                });
                if let Some(kept) = taken {
                    return Inserted::Existing(kept.task.id);
                }
            }
            let situation = Situation { now, usage: state.usage(&insertion.owner) };
            let transition = match (insertion.decide)(&situation) {
                Ok(transition) => transition,
                Err(rejection) => return Inserted::Rejected(rejection),
            };
            let changed = transition.is_change();
            let (outcome, replayed) = (transition.outcome, transition.replayed);
            match self.carry_out(state, insertion.id, None, transition.effect) {
                Some(task) => Inserted::Created(Applied {
                    outcome,
                    replayed,
                    changed,
                    task,
                    payloads: Payloads::default(),
                    now,
                }),
                None => Inserted::Rejected(Rejection::invalid("taskId", "a new task was not written")),
            }
        })
    }

    async fn update(&self, update: Update) -> Result<Updated, StoreError> {
        self.with_state(|state| {
            let now = self.clock.now();
            let Some(before) = state.tasks.get(&update.id).map(|kept| Arc::clone(&kept.task)) else {
                return Ok(Updated::Absent);
            };
            let situation = Situation { now, usage: state.usage(&before.owner) };
            let transition = match (update.decide)(&before, &situation) {
                Ok(transition) => transition,
                Err(rejection) => return Ok(Updated::Rejected(rejection)),
            };
            let changed = transition.is_change();
            let (outcome, replayed) = (transition.outcome, transition.replayed);
            let Some(task) = self.carry_out(state, update.id, Some(before), transition.effect) else {
                return Ok(Updated::Absent);
            };
            let payloads = match (update.show, state.tasks.get(&update.id)) {
                (Some(show), Some(kept)) => kept.find(&show(&task))?,
                _ => Payloads::default(),
            };
            Ok(Updated::Applied(Applied { outcome, replayed, changed, task, payloads, now }))
        })?
    }

    async fn read(
        &self,
        id: TaskId,
        select: Select<'_>,
    ) -> Result<Option<Result<Reading, Rejection>>, StoreError> {
        self.with_state(|state| {
            let now = self.clock.now();
            let Some(kept) = state.tasks.get(&id) else { return Ok(None) };
            let wanted = match select(&kept.task, now) {
                Ok(wanted) => wanted,
                Err(rejection) => return Ok(Some(Err(rejection))),
            };
            let payloads = kept.find(&wanted)?;
            Ok(Some(Ok(Reading { task: Arc::clone(&kept.task), payloads, now })))
        })?
    }

    async fn heads(&self, ids: &[TaskId]) -> Result<(Vec<Option<Arc<Task>>>, Timestamp), StoreError> {
        self.with_state(|state| {
            let find = |id: &TaskId| state.tasks.get(id).map(|kept| Arc::clone(&kept.task));
            (ids.iter().map(find).collect(), self.clock.now())
        })
    }

    async fn list(&self, query: &ListQuery) -> Result<Page, StoreError> {
        self.with_state(|state| {
            let now = self.clock.now();
            let behind = |task: &Task| query.after.is_none_or(|after| ListPlace::of(task) < after);
            let mut tasks: Vec<_> = state
                .tasks
                .values()
                .map(|kept| Arc::clone(&kept.task))
                .filter(|task| behind(task) && query.wants(task) && !task.is_expired(now))
                .collect();
            tasks.sort_by_key(|task| std::cmp::Reverse(ListPlace::of(task)));
            let more = tasks.len() > query.limit;
            tasks.truncate(query.limit);
            Page { tasks, more, now }
        })
    }

    async fn changes(
        &self,
        creator: &Subject,
        since: Option<&str>,
        max: usize,
    ) -> Result<Changes, StoreError> {
        self.with_state(|state| state.log.read(creator, since, max, self.clock.now()))
    }

    fn hints(&self) -> broadcast::Receiver<Arc<[Hint]>> {
        self.hints.subscribe()
    }

    async fn part(&self, number: usize) -> Result<Option<Vec<TaskId>>, StoreError> {
        // Everything is in memory anyway: one part.
        self.with_state(|state| (number == 0).then(|| state.tasks.keys().copied().collect()))
    }

    async fn sweep(&self, max: usize) -> Result<Swept, StoreError> {
        self.with_state(|state| {
            let now = self.clock.now();
            let due = |kept: &&Kept| kept.task.is_expired(now);
            let expired: Vec<_> =
                state.tasks.values().filter(due).map(|kept| Arc::clone(&kept.task)).take(max + 1).collect();
            for task in expired.iter().take(max) {
                let effect = Effect::Remove { event: super::expired(task) };
                self.carry_out(state, task.id, Some(Arc::clone(task)), effect);
            }
            Swept { removed: expired.len().min(max), more: expired.len() > max }
        })
    }

    fn health(&self) -> Health {
        if self.state.lock().closed { Health::Closed } else { Health::Ready }
    }

    async fn stats(&self) -> StoreStats {
        let kept = self.state.lock();
        let now = self.clock.now();
        let mut stats = StoreStats::default();
        for task in kept.tasks.values().map(|kept| &kept.task) {
            for (status, count) in Status::ALL.iter().zip(&mut stats.tasks) {
                *count += u64::from(task.status() == *status);
            }
            stats.task_bytes += task.footprint();
            stats.expired += u64::from(task.is_expired(now));
        }
        stats
    }

    fn store_id(&self) -> &str {
        &self.id
    }

    fn owner_from(&self) -> OwnerFrom {
        self.owner_from
    }

    async fn close(&self) {
        self.state.lock().closed = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::suite;

    fn open(clock: &Clock) -> (MemoryStore, ()) {
        (MemoryStore::new(clock.clone(), "memory".into()), ())
    }

    suite::contract!(crate::store::memory::tests::open);
}
