//! What the writer knows beside the tasks: who keeps how much, what expires next, which create keys are taken.

use std::collections::{BTreeSet, HashMap};
use std::ops::Bound;
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
    /// Up to when expired tasks were counted, and how many of them there are.
    counted_to: Timestamp,
    overdue: u64,
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
            self.overdue -= u64::from(task.expires_at() <= self.counted_to);
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
            self.overdue += u64::from(task.expires_at() <= self.counted_to);
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

    /// How many tasks have expired at `now`. Each is counted once, when its time comes, however often this is asked.
    pub(super) fn overdue(&mut self, now: Timestamp) -> u64 {
        let last = TaskId::from_bytes([0xff; 16]);
        let (from, to) = ((self.counted_to, last), (now, last));
        if from < to {
            let newly = self.expiry.range((Bound::Excluded(from), Bound::Included(to))).count();
            self.overdue += u64::try_from(newly).unwrap_or(u64::MAX);
            self.counted_to = now;
        }
        self.overdue
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

#[cfg(test)]
mod tests {
    use task_broker_core::{Caller, NewTask, Payload, TtlWish, create};

    use super::*;
    use crate::store::suite::limits;

    fn task(id: u8, ttl_ms: u64) -> Task {
        let new = NewTask {
            id: TaskId::from_bytes([id; 16]),
            tool_name: Arc::from("tool"),
            arguments: Payload::new("{}".into()),
            ttl: TtlWish::Millis(ttl_ms),
            owner: None,
            poll_interval_ms: None,
            meta: None,
            key: None,
        };
        let now = Timestamp::from_millis(1_000);
        let made = create(new, &Caller::default(), &limits(), &Usage::default(), now).unwrap();
        let task_broker_core::Effect::Write { task, .. } = made.effect else { panic!("{made:?}") };
        *task
    }

    #[test]
    fn expired_tasks_are_counted_until_they_are_gone_also_those_that_come_expired_or_live_on() {
        let mut ledger = Ledger::default();
        let at = Timestamp::from_millis;
        let tasks = [task(1, 10), task(2, 20), task(3, 30)];
        for task in &tasks {
            ledger.follow(None, Some(task));
        }
        assert_eq!(ledger.overdue(at(1_009)), 0);
        assert_eq!(ledger.overdue(at(1_010)), 1);
        assert_eq!(ledger.overdue(at(1_025)), 2);
        assert_eq!(ledger.overdue(at(1_005)), 2, "it does not go back");
        ledger.follow(Some(&tasks[0]), None);
        assert_eq!(ledger.overdue(at(1_025)), 1);
        ledger.follow(Some(&tasks[1]), Some(&task(2, 100)));
        assert_eq!(ledger.overdue(at(1_025)), 0, "it lives on");
        ledger.follow(None, Some(&task(4, 5)));
        assert_eq!(ledger.overdue(at(1_025)), 1, "it has come expired");
        assert_eq!(ledger.overdue(at(2_000)), 3);
    }
}
