//! Who waits for which task, and whom a hint wakes.
//!
//! A hint is never the truth: whoever waits registers first, then reads, then waits, and reads again after a
//! while even if nothing came.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;

use parking_lot::Mutex;
use task_broker_core::{Subject, TaskId};
use tokio::sync::{Notify, broadcast};

use crate::store::Hint;

/// Enough shards that waits do not meet each other.
const SHARDS: usize = 32;

/// Everybody who waits.
#[derive(Debug)]
pub(super) struct Hub {
    tasks: Bells<TaskId>,
    creators: Bells<Subject>,
}

impl Hub {
    pub(super) fn new() -> Self {
        Self { tasks: Bells::new(), creators: Bells::new() }
    }

    /// A bell that rings when the task changes.
    pub(super) fn on_task(&self, id: TaskId) -> Registration<'_, TaskId> {
        self.tasks.register(id)
    }

    /// A bell that rings when any task of the creator changes.
    pub(super) fn on_creator(&self, creator: Subject) -> Registration<'_, Subject> {
        self.creators.register(creator)
    }

    /// Passes hints on until the store is gone.
    pub(super) async fn listen(&self, mut hints: broadcast::Receiver<Arc<[Hint]>>) {
        loop {
            match hints.recv().await {
                Ok(hints) => {
                    for hint in hints.iter() {
                        self.tasks.ring(&hint.id);
                        self.creators.ring(&hint.creator);
                    }
                }
                // Which ones were lost is unknown: everybody looks for himself.
                Err(broadcast::error::RecvError::Lagged(_)) => {
                    self.tasks.ring_all();
                    self.creators.ring_all();
                }
                Err(broadcast::error::RecvError::Closed) => return,
            }
        }
    }
}

#[derive(Debug)]
struct Bells<K> {
    shards: Vec<Mutex<HashMap<K, Bell>>>,
    hasher: RandomState,
}

#[derive(Debug)]
struct Bell {
    notify: Arc<Notify>,
    listeners: usize,
}

impl<K: Hash + Eq + Clone> Bells<K> {
    fn new() -> Self {
        Self { shards: (0..SHARDS).map(|_| Mutex::default()).collect(), hasher: RandomState::new() }
    }

    fn shard(&self, key: &K) -> Option<&Mutex<HashMap<K, Bell>>> {
        let hash = usize::try_from(self.hasher.hash_one(key) % SHARDS as u64).unwrap_or(0);
        self.shards.get(hash)
    }

    fn register(&self, key: K) -> Registration<'_, K> {
        let notify = self.shard(&key).map_or_else(Arc::default, |shard| {
            let mut bells = shard.lock();
            let bell =
                bells.entry(key.clone()).or_insert_with(|| Bell { notify: Arc::default(), listeners: 0 });
            bell.listeners += 1;
            Arc::clone(&bell.notify)
        });
        Registration { bells: self, key, notify }
    }

    fn ring(&self, key: &K) {
        let Some(shard) = self.shard(key) else { return };
        if let Some(bell) = shard.lock().get(key) {
            bell.notify.notify_waiters();
        }
    }

    fn ring_all(&self) {
        for shard in &self.shards {
            shard.lock().values().for_each(|bell| bell.notify.notify_waiters());
        }
    }
}

/// A place at a bell; given up when dropped.
#[derive(Debug)]
pub(super) struct Registration<'a, K: Hash + Eq + Clone> {
    bells: &'a Bells<K>,
    key: K,
    notify: Arc<Notify>,
}

impl<K: Hash + Eq + Clone> Registration<'_, K> {
    /// The bell. Call [`Notify::notified`] and enable it before reading what is waited for.
    pub(super) fn bell(&self) -> &Notify {
        &self.notify
    }
}

impl<K: Hash + Eq + Clone> Drop for Registration<'_, K> {
    fn drop(&mut self) {
        let Some(shard) = self.bells.shard(&self.key) else { return };
        let mut bells = shard.lock();
        if let Some(bell) = bells.get_mut(&self.key) {
            bell.listeners -= 1;
            if bell.listeners == 0 {
                bells.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_hint_rings_the_bells_of_its_task_and_creator_only() {
        let hub = Hub::new();
        let (mine, other) = (TaskId::from_bytes([1; 16]), TaskId::from_bytes([2; 16]));
        let (mine_bell, other_bell) = (hub.on_task(mine), hub.on_task(other));
        let creator = hub.on_creator(None);
        let mut rung = std::pin::pin!(mine_bell.bell().notified());
        let mut silent = std::pin::pin!(other_bell.bell().notified());
        let mut by_creator = std::pin::pin!(creator.bell().notified());
        rung.as_mut().enable();
        silent.as_mut().enable();
        by_creator.as_mut().enable();
        let (send, receive) = broadcast::channel(4);
        send.send(Arc::from([Hint { id: mine, creator: None }])).unwrap();
        drop(send);
        hub.listen(receive).await;
        rung.await;
        by_creator.await;
        assert!(!silent.enable(), "nothing happened to the other task");
    }

    #[tokio::test]
    async fn lost_hints_wake_everybody() {
        let hub = Hub::new();
        let bell = hub.on_task(TaskId::from_bytes([1; 16]));
        let mut woken = std::pin::pin!(bell.bell().notified());
        woken.as_mut().enable();
        let (send, receive) = broadcast::channel(1);
        for n in 2..5 {
            send.send(Arc::from([Hint { id: TaskId::from_bytes([n; 16]), creator: None }])).unwrap();
        }
        drop(send);
        hub.listen(receive).await;
        woken.await;
    }

    #[test]
    fn a_bell_goes_with_its_last_listener() {
        let hub = Hub::new();
        let id = TaskId::from_bytes([1; 16]);
        let (first, second) = (hub.on_task(id), hub.on_task(id));
        drop(first);
        assert_eq!(hub.tasks.shard(&id).unwrap().lock().len(), 1);
        drop(second);
        assert_eq!(hub.tasks.shard(&id).unwrap().lock().len(), 0);
    }
}
