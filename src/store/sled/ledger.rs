//! What the writer knows beside the tasks: who keeps how much, what expires next, which create keys are taken.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use task_broker_core::{Subject, Task, TaskId, Timestamp, Usage};

/// Belongs to the writer alone, so it needs no lock. It follows the newest decided states, which may be ahead of
/// what readers are shown.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    tasks: u64,
    owners: HashMap<Arc<str>, Share>,
    expiry: BTreeSet<(Timestamp, TaskId)>,
    create_keys: HashMap<(Subject, Arc<str>), TaskId>,
}

#[derive(Debug, Default)]
struct Share {
    tasks: u64,
    bytes: u64,
}

impl Ledger {
    /// Follows one task from one state to the next.
    pub(super) fn follow(&mut self, before: Option<&Task>, after: Option<&Task>) {
        if let Some(task) = before {
            self.tasks -= 1;
            self.expiry.remove(&(task.expires_at(), task.id));
            self.release(task);
            if after.is_none()
                && let Some(key) = create_key(task)
                && self.create_keys.get(&key) == Some(&task.id)
            {
                // An export that was made while keys were reused may have brought two tasks with one key.
                self.create_keys.remove(&key);
            }
        }
        if let Some(task) = after {
            self.tasks += 1;
            self.expiry.insert((task.expires_at(), task.id));
            if let Some(owner) = &task.owner {
                let share = self.owners.entry(Arc::clone(owner)).or_default();
                share.tasks += 1;
                share.bytes += task.footprint();
            }
            if before.is_none()
                && let Some(key) = create_key(task)
            {
                self.create_keys.insert(key, task.id);
            }
        }
    }

    fn release(&mut self, task: &Task) {
        let Some(owner) = &task.owner else { return };
        let Some(share) = self.owners.get_mut(owner) else { return };
        share.tasks -= 1;
        share.bytes = share.bytes.saturating_sub(task.footprint());
        if share.tasks == 0 {
            self.owners.remove(owner);
        }
    }

    /// What this owner, and all, keep.
    pub(super) fn usage(&self, owner: &Subject) -> Usage {
        let share = owner.as_ref().and_then(|owner| self.owners.get(owner));
        Usage {
            owner_tasks: share.map_or(0, |share| share.tasks),
            owner_bytes: share.map_or(0, |share| share.bytes),
            total_tasks: self.tasks,
        }
    }

    /// The task that was created under this key by this creator.
    pub(super) fn created_under(&self, creator: &Subject, key: &Arc<str>) -> Option<TaskId> {
        self.create_keys.get(&(creator.clone(), Arc::clone(key))).copied()
    }

    /// Tasks that have expired at `now`, at most `max`, oldest deadline first.
    pub(super) fn due(&self, now: Timestamp, max: usize) -> Vec<TaskId> {
        self.expiry.iter().take_while(|(at, _)| *at <= now).take(max).map(|(_, id)| *id).collect()
    }

    /// Whether anything has expired at `now`.
    pub(super) fn any_due(&self, now: Timestamp) -> bool {
        self.expiry.first().is_some_and(|(at, _)| *at <= now)
    }
}

fn create_key(task: &Task) -> Option<(Subject, Arc<str>)> {
    let key = task.replay.as_ref()?.create.as_ref()?;
    Some((task.creator.clone(), Arc::clone(key.key())))
}
