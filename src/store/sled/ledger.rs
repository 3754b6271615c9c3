//! What the writer knows beside the tasks: who keeps how much, what expires next, which create keys are taken.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use task_broker_core::{Subject, Task, TaskId, Timestamp, Usage};

use crate::store::ListPlace;

/// How many tasks are noted as expired at once, so that a million that expire together do not hold up the commands.
const NOTED: usize = 8192;

/// Belongs to the writer alone, so it needs no lock. It follows the newest decided states, which may be ahead of
/// what readers are shown.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    tasks: u64,
    owners: HashMap<Arc<str>, Share>,
    /// What is still to expire.
    expiry: BTreeSet<(Timestamp, ListPlace)>,
    /// What has expired and is still to be removed, in the order in which sled has it: whoever removes a million tasks
    /// that expire together in the order of their deadlines has sled read a leaf for each, over and over.
    overdue: BTreeSet<ListPlace>,
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
            let place = ListPlace::of(task);
            if !self.expiry.remove(&(task.expires_at(), place)) {
                self.overdue.remove(&place);
            }
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
            self.expiry.insert((task.expires_at(), ListPlace::of(task)));
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

    /// Takes note of what has expired by `now`, a bounded part of it each time. Says whether that was all.
    fn note_expired(&mut self, now: Timestamp) -> bool {
        for _ in 0..NOTED {
            let Some((_, place)) = self.expiry.first().copied().filter(|(at, _)| *at <= now) else {
                return true;
            };
            self.expiry.pop_first();
            self.overdue.insert(place);
        }
        self.expiry.first().is_none_or(|(at, _)| *at > now)
    }

    /// Tasks that have expired at `now`, at most `max`, oldest task first; none as long as not all of them are known.
    pub(super) fn due(&mut self, now: Timestamp, max: usize) -> Vec<TaskId> {
        if !self.note_expired(now) {
            return Vec::new();
        }
        self.overdue.iter().take(max).map(|place| place.id).collect()
    }

    /// How many tasks are known to have expired at `now`: all of them, unless very many have just done so.
    pub(super) fn overdue(&mut self, now: Timestamp) -> u64 {
        self.note_expired(now);
        u64::try_from(self.overdue.len()).unwrap_or(u64::MAX)
    }

    /// Whether anything has expired at `now`.
    pub(super) fn any_due(&self, now: Timestamp) -> bool {
        !self.overdue.is_empty() || self.expiry.first().is_some_and(|(at, _)| *at <= now)
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

    #[test]
    fn what_expires_together_is_removed_in_the_order_of_creation_and_only_when_all_of_it_is_known() {
        let mut ledger = Ledger::default();
        let at = Timestamp::from_millis;
        let mut tasks: Vec<_> = (0..NOTED as u64 + 10)
            .map(|number| {
                // The youngest expires first.
                let created_at = at(1_000 + number);
                let id = TaskId::from_bytes(u128::from(number).to_be_bytes());
                Task { id, created_at, ttl_ms: 2 * (NOTED as u64 + 10 - number), ..task(1, 0) }
            })
            .collect();
        for task in &tasks {
            ledger.follow(None, Some(task));
        }
        let now = at(1_000_000);
        assert!(ledger.due(now, 3).is_empty());
        assert!(ledger.any_due(now));
        let first: Vec<_> = tasks.iter().take(3).map(|task| task.id).collect();
        assert_eq!(ledger.due(now, 3), first);
        for task in tasks.drain(..) {
            ledger.follow(Some(&task), None);
        }
        assert!(!ledger.any_due(now));
        assert_eq!(ledger.overdue(now), 0);
    }
}
