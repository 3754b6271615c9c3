//! The heads of all live tasks, as readers see them: only what is durable.

use std::collections::{BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::Arc;

use foldhash::quality::RandomState;
use parking_lot::RwLock;
use task_broker_core::{Subject, Task, TaskId};

use super::meter::Tally;
use crate::store::{ListPlace, Listed};

/// Enough shards that a reader seldom meets the writer.
const SHARDS: usize = 64;

/// Heads by id. Ids are random bits that a broker has drawn, and the hash has a seed of its own, so nobody can choose ones that meet.
type Heads = HashMap<TaskId, Arc<Task>, RandomState>;

/// Shared by the writer, which alone publishes, and all readers.
#[derive(Debug)]
pub(super) struct Index {
    shards: Vec<RwLock<Heads>>,
    order: RwLock<Order>,
    tally: Tally,
}

/// The order of lists. A task stands once if its creator is its owner, which most are: a place costs about 48 bytes.
#[derive(Debug, Default)]
struct Order {
    created: HashMap<Subject, BTreeSet<ListPlace>>,
    /// Only tasks that somebody else created.
    owned: HashMap<Subject, BTreeSet<ListPlace>>,
}

impl Order {
    fn insert(&mut self, task: &Task) {
        let place = ListPlace::of(task);
        self.created.entry(task.creator.clone()).or_default().insert(place);
        if task.owner != task.creator {
            self.owned.entry(task.owner.clone()).or_default().insert(place);
        }
    }

    fn remove(&mut self, task: &Task) {
        let place = ListPlace::of(task);
        for (places, subject) in [(&mut self.created, &task.creator), (&mut self.owned, &task.owner)] {
            if let Some(set) = places.get_mut(subject)
                && set.remove(&place)
                && set.is_empty()
            {
                places.remove(subject);
            }
        }
    }
}

impl Default for Index {
    fn default() -> Self {
        Self {
            shards: (0..SHARDS).map(|_| RwLock::default()).collect(),
            order: RwLock::default(),
            tally: Tally::default(),
        }
    }
}

impl Index {
    fn shard(&self, id: TaskId) -> Option<&RwLock<Heads>> {
        // Ids are random bits, so any byte spreads them evenly.
        self.shards.get(usize::from(id.as_bytes().last().copied().unwrap_or(0)) % SHARDS)
    }

    /// The newest durable state of a task.
    pub(super) fn get(&self, id: TaskId) -> Option<Arc<Task>> {
        self.shard(id)?.read().get(&id).map(Arc::clone)
    }

    /// The ids of one part of the tasks; nothing behind the last part. A task stays in its part as long as it is there.
    pub(super) fn part(&self, number: usize) -> Option<Vec<TaskId>> {
        Some(self.shards.get(number)?.read().keys().copied().collect())
    }

    /// The ids of all tasks, part by part.
    pub(super) fn all(&self) -> impl Iterator<Item = TaskId> {
        (0..SHARDS).filter_map(|number| self.part(number)).flatten()
    }

    /// How many tasks there are.
    pub(super) fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.read().len()).sum()
    }

    /// How many there are in each status, and what they take.
    pub(super) fn tally(&self) -> &Tally {
        &self.tally
    }

    /// Shows a new state of a task to readers. It must be durable.
    pub(super) fn publish(&self, task: &Arc<Task>) {
        let Some(shard) = self.shard(task.id) else { return };
        let before = shard.write().insert(task.id, Arc::clone(task));
        self.tally.add(task);
        match before {
            None => self.order.write().insert(task),
            Some(before) => self.tally.remove(&before),
        }
    }

    /// Takes a task away from readers. That must be durable.
    pub(super) fn withdraw(&self, id: TaskId) {
        let Some(shard) = self.shard(id) else { return };
        let Some(task) = shard.write().remove(&id) else { return };
        self.tally.remove(&task);
        self.order.write().remove(&task);
    }

    /// At most `max` places behind `after`, newest first. Among those of an owner are places of tasks that it only
    /// created; whoever asks looks at the task anyway.
    pub(super) fn places(&self, whose: &Listed, after: Option<ListPlace>, max: usize) -> Vec<ListPlace> {
        let order = self.order.read();
        let (created, owned) = match whose {
            Listed::CreatedBy(subject) => (order.created.get(subject), None),
            Listed::OwnedBy(subject) => (order.created.get(subject), order.owned.get(subject)),
        };
        let mut places: Vec<_> = newest(created, after, max).chain(newest(owned, after, max)).collect();
        if owned.is_some() {
            places.sort_unstable_by(|a, b| b.cmp(a));
            places.truncate(max);
        }
        places
    }
}

fn newest(
    set: Option<&BTreeSet<ListPlace>>,
    after: Option<ListPlace>,
    max: usize,
) -> impl Iterator<Item = ListPlace> {
    let end = after.map_or(Bound::Unbounded, Bound::Excluded);
    set.into_iter().flat_map(move |set| set.range((Bound::Unbounded, end)).rev().take(max)).copied()
}
