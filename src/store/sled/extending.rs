//! Deadlines that are being moved.
//!
//! A TTL may be extended shortly before it runs out, and become durable shortly after. A reader in between would
//! find the task expired, and the next one would find it alive again: back from the dead. So the writer names a
//! task here before it looks at the clock for the last time, and a reader that finds a task expired asks here
//! before it says so. Whichever comes first, only one of them goes on:
//!
//! - the reader asked before the writer named it: then the reader's time is earlier, the writer finds the task
//!   expired too, and the extension is refused;
//! - the writer named it first: the reader waits until the new deadline is durable and looks again.

use std::collections::HashSet;

use parking_lot::Mutex;
use task_broker_core::TaskId;
use tokio::sync::Notify;

/// The tasks whose deadline is being moved in the current group.
#[derive(Debug, Default)]
pub(super) struct Extending {
    tasks: Mutex<HashSet<TaskId>>,
    done: Notify,
}

impl Extending {
    /// The writer is about to extend this task, if it still finds it alive after this.
    pub(super) fn begin(&self, id: TaskId) {
        self.tasks.lock().insert(id);
    }

    /// All extensions of the group are shown to readers, or have come to nothing.
    pub(super) fn finish(&self) {
        let mut tasks = self.tasks.lock();
        if !tasks.is_empty() {
            tasks.clear();
            drop(tasks);
            self.done.notify_waiters();
        }
    }

    /// Whether the task's deadline was being moved; comes back when that is over.
    pub(super) async fn settle(&self, id: TaskId) -> bool {
        let mut was_moving = false;
        loop {
            let mut done = std::pin::pin!(self.done.notified());
            done.as_mut().enable();
            if !self.tasks.lock().contains(&id) {
                return was_moving;
            }
            was_moving = true;
            done.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_reader_waits_only_for_a_deadline_that_is_being_moved() {
        let extending = Extending::default();
        let (moved, other) = (TaskId::from_bytes([1; 16]), TaskId::from_bytes([2; 16]));
        extending.begin(moved);
        assert!(!extending.settle(other).await);
        let (settled, ()) = tokio::join!(extending.settle(moved), async {
            tokio::task::yield_now().await;
            extending.finish();
        });
        assert!(settled);
        assert!(!extending.settle(moved).await);
    }
}
