//! The heads of all live tasks, as readers see them: only what is durable.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use parking_lot::RwLock;
use task_broker_core::{Subject, Task, TaskId};

use crate::store::{ListPlace, Listed};

/// Enough shards that a reader seldom meets the writer.
const SHARDS: usize = 64;

/// Shared by the writer, which alone publishes, and all readers.
#[derive(Debug)]
pub(super) struct Index {
    shards: Vec<RwLock<HashMap<TaskId, Arc<Task>>>>,
    order: RwLock<Order>,
}

#[derive(Debug, Default)]
struct Order {
    created: HashMap<Subject, BTreeSet<ListPlace>>,
    owned: HashMap<Subject, BTreeSet<ListPlace>>,
}

impl Index {
    pub(super) fn new() -> Self {
        Self { shards: (0..SHARDS).map(|_| RwLock::default()).collect(), order: RwLock::default() }
    }

    fn shard(&self, id: TaskId) -> Option<&RwLock<HashMap<TaskId, Arc<Task>>>> {
        // Ids are random bits, so any byte spreads them evenly.
        self.shards.get(usize::from(id.as_bytes().last().copied().unwrap_or(0)) % SHARDS)
    }

    /// The newest durable state of a task.
    pub(super) fn get(&self, id: TaskId) -> Option<Arc<Task>> {
        self.shard(id)?.read().get(&id).map(Arc::clone)
    }

    /// How many tasks there are.
    pub(super) fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.read().len()).sum()
    }

    /// Shows a new state of a task to readers. It must be durable.
    pub(super) fn publish(&self, task: &Arc<Task>) {
        let Some(shard) = self.shard(task.id) else { return };
        let before = shard.write().insert(task.id, Arc::clone(task));
        if before.is_none() {
            let mut order = self.order.write();
            let place = ListPlace::of(task);
            order.created.entry(task.creator.clone()).or_default().insert(place);
            order.owned.entry(task.owner.clone()).or_default().insert(place);
        }
    }

    /// Takes a task away from readers. That must be durable.
    pub(super) fn withdraw(&self, id: TaskId) {
        let Some(shard) = self.shard(id) else { return };
        let Some(task) = shard.write().remove(&id) else { return };
        let mut order = self.order.write();
        let place = ListPlace::of(&task);
        let Order { created, owned } = &mut *order;
        for (subject, places) in [(&task.creator, created), (&task.owner, owned)] {
            if let Some(set) = places.get_mut(subject) {
                set.remove(&place);
                if set.is_empty() {
                    places.remove(subject);
                }
            }
        }
    }

    /// At most `max` places behind `after`, newest first.
    pub(super) fn places(&self, whose: &Listed, after: Option<ListPlace>, max: usize) -> Vec<ListPlace> {
        let order = self.order.read();
        let set = match whose {
            Listed::CreatedBy(subject) => order.created.get(subject),
            Listed::OwnedBy(subject) => order.owned.get(subject),
        };
        let Some(set) = set else { return Vec::new() };
        match after {
            Some(after) => set.range(..after).rev().take(max).copied().collect(),
            None => set.iter().rev().take(max).copied().collect(),
        }
    }
}
