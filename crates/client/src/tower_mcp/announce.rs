//! The broker's events for the subscribers of this instance.

use std::collections::{HashSet, VecDeque};

use ::tower_mcp::McpRouter;
use task_broker_protocol::methods::watch::EventKind;
use tokio::sync::broadcast::{self, error::RecvError};
use tokio::task::JoinHandle;

use super::follow::Happened;
use super::store::RemoteTaskStore;

/// Tasks that wait to be announced. Each is announced in the state that it has then, so one that changes again
/// meanwhile waits only once; above the bound the ones that wait longest are left out.
const MAX_WAITING: usize = 4096;

/// A bridge from the broker's events to the subscribers of a router; see [`RemoteTaskStore::announce_to`]. It stands
/// until this is dropped.
#[derive(Debug)]
#[must_use = "the bridge is taken down when this is dropped"]
pub struct Announcer {
    work: JoinHandle<()>,
}

impl Drop for Announcer {
    fn drop(&mut self) {
        self.work.abort();
    }
}

impl RemoteTaskStore {
    /// Tells the subscribers of `router` what happens to tasks, wherever it happens.
    ///
    /// A router announces only the transitions that it drives itself: a client that listens on one instance hears
    /// nothing of a task that another one completes. With this it does, by
    /// [`McpRouter::notify_task_status_changed`] for each event of the broker. What this router has announced itself
    /// may be announced twice, in the same state.
    ///
    /// Each event costs one read of the task, also when nobody has subscribed to it. Notifications are best effort,
    /// as they are in tower-mcp: under a flood of events some are left out.
    ///
    /// ```
    /// use task_broker_client::RemoteTaskStore;
    /// use tower_mcp::McpRouter;
    ///
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let store = RemoteTaskStore::new("http://127.0.0.1:8420", "")?;
    /// let router = McpRouter::new().task_store(store.clone().into()).with_tasks();
    /// // As long as this is held:
    /// let _announcer = store.announce_to(router.clone());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn announce_to(&self, router: McpRouter) -> Announcer {
        let events = self.running().events.subscribe();
        Announcer { work: tokio::spawn(announce(events, router)) }
    }
}

async fn announce(mut events: broadcast::Receiver<Happened>, router: McpRouter) {
    let mut waiting = Waiting::default();
    loop {
        match events.recv().await {
            Ok(event) => waiting.add(event),
            Err(RecvError::Lagged(missed)) => tracing::debug!(missed, "events were not announced"),
            Err(RecvError::Closed) => return,
        }
        // Whatever has come meanwhile is taken in first, so that a task that changes often is read once.
        while let Ok(event) = events.try_recv() {
            waiting.add(event);
        }
        while let Some(task_id) = waiting.next() {
            router.notify_task_status_changed(&task_id).await;
            while let Ok(event) = events.try_recv() {
                waiting.add(event);
            }
        }
    }
}

/// Task ids in the order in which they came, each once.
#[derive(Debug, Default)]
struct Waiting {
    order: VecDeque<String>,
    ids: HashSet<String>,
}

impl Waiting {
    fn add(&mut self, event: Happened) {
        if !is_announced(&event.kind) || !self.ids.insert(event.task_id.clone()) {
            return;
        }
        self.order.push_back(event.task_id);
        if self.order.len() > MAX_WAITING {
            drop(self.next());
        }
    }

    fn next(&mut self) -> Option<String> {
        let id = self.order.pop_front()?;
        self.ids.remove(&id);
        Some(id)
    }
}

/// What a subscriber wants to hear of. A creation is told by the answer to the call; of a task that is gone there is
/// nothing to show.
fn is_announced(kind: &EventKind) -> bool {
    !matches!(kind, EventKind::Create | EventKind::Discard | EventKind::Expired)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(kind: EventKind, id: &str) -> Happened {
        Happened { kind, task_id: id.to_owned() }
    }

    #[test]
    fn a_task_waits_once_and_in_turn() {
        let mut waiting = Waiting::default();
        for (kind, id) in [
            (EventKind::Create, "a"),
            (EventKind::Complete, "b"),
            (EventKind::SetStatus, "a"),
            (EventKind::SetMeta, "b"),
            (EventKind::Expired, "c"),
        ] {
            waiting.add(event(kind, id));
        }
        assert_eq!(std::iter::from_fn(|| waiting.next()).collect::<Vec<_>>(), ["b", "a"]);
    }

    #[test]
    fn a_flood_leaves_out_the_oldest() {
        let mut waiting = Waiting::default();
        for number in 0..=MAX_WAITING {
            waiting.add(event(EventKind::Complete, &number.to_string()));
        }
        assert_eq!(waiting.order.len(), MAX_WAITING);
        assert_eq!(waiting.next().as_deref(), Some("1"));
    }
}
