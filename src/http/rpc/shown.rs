//! Answers to `tasks/get` that were written a moment ago. Whoever polls a task asks for the same answer again and again,
//! and reading the payloads of a task and writing them costs more than all the rest of such a call (`bench get`).
//!
//! A text is kept together with the state of the task that it shows, and is good for that very state only, not for one
//! that looks like it: so no rule about tasks, and none about revisions, decides here. Whether the caller may see the task
//! at all is asked each time, before.

use std::sync::{Arc, Weak};

use bytes::Bytes;
use foldhash::quality::RandomState;
use quick_cache::Weighter;
use quick_cache::sync::{Cache, DefaultLifecycle};
use task_broker_core::{Task, TaskId};

/// How much memory the texts may take, in bytes.
const ALL_BYTES: u64 = 32 << 20;
/// The longest text that is kept, in bytes: a long one costs more to send than to write.
const MAX_BYTES: usize = 64 << 10;
/// What a text takes beside itself, in bytes: its place, and the memory of a state that is gone.
const BESIDE: u64 = 512;
/// For how many texts places are made at first.
const PLACES: usize = 1024;

/// A text that was written.
#[derive(Clone, Debug)]
pub(super) struct Shown {
    /// The state that it shows. As long as this lives, no other state can be at its address.
    state: Weak<Task>,
    text: Bytes,
}

impl Shown {
    /// Whether it shows this state.
    pub(super) fn shows(&self, task: &Task) -> bool {
        std::ptr::eq(self.state.as_ptr(), task)
    }

    /// The text.
    pub(super) fn into_text(self) -> Bytes {
        self.text
    }
}

#[derive(Clone, Debug)]
struct ByBytes;

impl Weighter<TaskId, Shown> for ByBytes {
    fn weight(&self, _id: &TaskId, shown: &Shown) -> u64 {
        u64::try_from(shown.text.len()).unwrap_or(u64::MAX).saturating_add(BESIDE)
    }
}

/// See the module.
#[derive(Debug)]
pub(in crate::http) struct ShownTasks(Cache<TaskId, Shown, ByBytes, RandomState>);

impl Default for ShownTasks {
    fn default() -> Self {
        Self(Cache::with(PLACES, ALL_BYTES, ByBytes, RandomState::default(), DefaultLifecycle::default()))
    }
}

impl ShownTasks {
    /// What was written about a task last.
    pub(super) fn get(&self, id: TaskId) -> Option<Shown> {
        self.0.get(&id)
    }

    /// Keeps a text for as long as the task stays as it is, or until there is no room.
    pub(super) fn keep(&self, task: &Arc<Task>, text: &Bytes) {
        if text.len() <= MAX_BYTES {
            self.0.insert(task.id, Shown { state: Arc::downgrade(task), text: text.clone() });
        }
    }
}

#[cfg(test)]
mod tests {
    use task_broker_core::{
        Caller, Effect, Limits, NewTask, Payload, Quota, Timestamp, TtlWish, Usage, create,
    };

    use super::*;

    fn task(number: u128) -> Arc<Task> {
        let limits = Limits {
            default_ttl_ms: 1000,
            max_ttl_ms: 1000,
            default_poll_interval_ms: 1000,
            max_payload_bytes: 1000,
            quota: Quota { tasks_per_owner: 1, bytes_per_owner: 10_000, max_tasks: 1 },
        };
        let new = NewTask {
            id: TaskId::from_bytes(number.to_be_bytes()),
            tool_name: "report".into(),
            arguments: Payload::new(Bytes::from_static(b"{}")),
            ttl: TtlWish::Default,
            owner: Some("alice".into()),
            poll_interval_ms: None,
            meta: None,
            key: None,
        };
        let caller = Caller::named("alice");
        let created = create(new, &caller, &limits, &Usage::default(), Timestamp::from_millis(1)).unwrap();
        let Effect::Write { task, .. } = created.effect else { panic!("a task is written") };
        Arc::from(task)
    }

    #[test]
    fn a_text_is_good_for_the_very_state_that_it_was_written_for() {
        let shown = ShownTasks::default();
        let first = task(1);
        shown.keep(&first, &Bytes::from_static(b"first"));
        let kept = shown.get(first.id).unwrap();
        assert!(kept.shows(&first));
        let same = Arc::new((*first).clone());
        assert_eq!(same, first);
        assert!(!kept.shows(&same), "it may look the same");
        drop(first);
        assert!(!kept.shows(&same));
        assert_eq!(kept.into_text(), "first");
    }

    #[test]
    fn what_is_kept_has_a_bound() {
        let shown = ShownTasks::default();
        let large = Bytes::from(vec![b'x'; MAX_BYTES]);
        for number in 0..2000 {
            shown.keep(&task(number), &large);
        }
        assert!(shown.0.weight() <= ALL_BYTES);
        assert!(shown.0.len() > 100);
        let one_more = task(5000);
        shown.keep(&one_more, &Bytes::from(vec![b'x'; MAX_BYTES + 1]));
        assert!(shown.get(one_more.id).is_none());
    }
}
