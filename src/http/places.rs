//! Places among the calls that are worked on, and how long a request waits for them.
//!
//! A queue that takes up a burst is good, one that stands is not: everybody in it waits as long as anybody is willing to,
//! and most of them are refused after that. So, once somebody has waited in vain, the next ones wait for a moment only,
//! until there is a place at once again; close to the controlled delay of "Fail at Scale" (ACM Queue 13, 8, 2015), but
//! clients that all have their turn in time are never refused.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// How long a request waits.
const PATIENCE: Duration = Duration::from_millis(500);

/// How long it waits in a queue that stands. Not nothing: a refusal costs as much as many a call, and clients that come again
/// at once would leave the broker no time for those that it can serve.
const STANDING: Duration = Duration::from_millis(20);

/// The places.
#[derive(Debug)]
pub(super) struct Places {
    room: Arc<Semaphore>,
    all: u32,
    /// Somebody has waited in vain since there last was a place at once.
    stands: AtomicBool,
}

impl Places {
    /// So many of them, at least one.
    pub(super) fn new(all: usize) -> Self {
        let all = u32::try_from(all.clamp(1, Semaphore::MAX_PERMITS)).unwrap_or(u32::MAX);
        Self { room: Arc::new(Semaphore::new(all as usize)), all, stands: AtomicBool::new(false) }
    }

    /// Takes `count` places, or all if there are not so many, if they are there soon. Who came first has them first,
    /// whatever the count.
    pub(super) async fn take(&self, count: usize) -> Option<OwnedSemaphorePermit> {
        let count = u32::try_from(count).unwrap_or(u32::MAX).min(self.all);
        // Nobody else waits if this succeeds: what is given back goes to those who wait.
        if let Ok(permit) = Arc::clone(&self.room).try_acquire_many_owned(count) {
            if self.stands.load(Ordering::Relaxed) {
                self.stands.store(false, Ordering::Relaxed);
            }
            return Some(permit);
        }
        Box::pin(self.wait_for(count)).await
    }

    async fn wait_for(&self, count: u32) -> Option<OwnedSemaphorePermit> {
        let patience = if self.stands.load(Ordering::Relaxed) { STANDING } else { PATIENCE };
        let room = Arc::clone(&self.room);
        if let Ok(taken) = timeout(patience, room.acquire_many_owned(count)).await {
            return taken.ok();
        }
        self.stands.store(true, Ordering::Relaxed);
        None
    }

    /// How many are taken.
    pub(super) fn taken(&self) -> usize {
        (self.all as usize).saturating_sub(self.room.available_permits())
    }

    /// Waits until nobody has one, and nobody who waits for one is left.
    pub(super) async fn all_back(&self) {
        // The semaphore is never closed, so this ends only with all places.
        drop(self.room.acquire_many(self.all).await);
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::{Instant, sleep};

    use super::*;

    /// How long this many places take to be refused.
    async fn refused_after(places: &Places, count: usize) -> Duration {
        let began = Instant::now();
        assert!(places.take(count).await.is_none());
        began.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn in_a_burst_everybody_waits_and_in_a_queue_that_stands_for_a_moment_only() {
        let places = Places::new(2);
        let held = places.take(2).await.unwrap();
        assert_eq!(refused_after(&places, 1).await, PATIENCE, "nobody has waited in vain before");
        assert_eq!(refused_after(&places, 1).await, STANDING);
        let (taken, ()) = tokio::join!(places.take(2), async {
            sleep(STANDING / 2).await;
            drop(held);
        });
        let held = taken.expect("it was given back in time");
        assert_eq!(refused_after(&places, 1).await, STANDING, "everybody has waited since");
        drop(held);
        drop(places.take(1).await.unwrap());
        let _held = places.take(2).await.unwrap();
        assert_eq!(refused_after(&places, 1).await, PATIENCE, "there was a place at once");
    }

    #[tokio::test(start_paused = true)]
    async fn who_came_first_is_first_whatever_the_count() {
        let places = Places::new(4);
        let held = places.take(1).await.unwrap();
        // More than there are: all of them.
        let mut all = std::pin::pin!(places.take(100));
        let soon = STANDING / 2;
        assert!(tokio::time::timeout(soon, &mut all).await.is_err());
        assert_eq!(places.taken(), 4, "what is free is kept for the one that waits");
        assert!(tokio::time::timeout(soon, places.take(1)).await.is_err());
        drop(held);
        assert_eq!(all.await.map(|permit| permit.num_permits()), Some(4));
        places.all_back().await;
        assert_eq!(places.taken(), 0);
    }
}
