//! Places among the calls that are worked on, and how long a request waits for them.
//!
//! A queue that takes up a burst is good, one that stands is not: everybody in it waits as long as anybody is willing to,
//! and most of them are refused after that. So, once somebody has waited in vain, the next ones wait for a moment only,
//! until there is a place at once again; close to the controlled delay of "Fail at Scale" (ACM Queue 13, 8, 2015), but
//! clients that all have their turn in time are never refused.
//!
//! Large requests stand in a line of their own, and have seven of eight places at most: who needs one place must not wait
//! behind others that need a hundred each, however many of them come.

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
    all: Line,
    large: Line,
}

/// Some places, given back when this is dropped.
#[derive(Debug)]
pub(super) struct Taken {
    all: OwnedSemaphorePermit,
    large: Option<OwnedSemaphorePermit>,
}

/// What a request needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    /// So many places, which are few.
    Few(usize),
    /// So many, and it stands in the line of large ones.
    Many(usize),
}

impl Places {
    /// So many of them, at least one.
    pub(super) fn new(all: usize) -> Self {
        Self { all: Line::new(all), large: Line::new(all.saturating_sub(all.div_ceil(8))) }
    }

    /// Takes places, or as many as there are at all, if they are there soon. Of each line, who came first has them first.
    pub(super) async fn take(&self, need: Need) -> Option<Taken> {
        match need {
            Need::Few(count) => Some(Taken { all: self.all.take(count).await?, large: None }),
            Need::Many(count) => {
                let large = self.large.take(count).await?;
                Some(Taken { all: self.all.take(large.num_permits()).await?, large: Some(large) })
            }
        }
    }

    /// How many are taken.
    pub(super) fn taken(&self) -> usize {
        (self.all.places as usize).saturating_sub(self.all.room.available_permits())
    }

    /// Waits until nobody has one, and nobody who waits for one is left.
    pub(super) async fn all_back(&self) {
        // Semaphores that are never closed, so this ends only with all places. Who stands in the line of large ones stands in
        // the other one after that.
        drop(self.large.room.acquire_many(self.large.places).await);
        drop(self.all.room.acquire_many(self.all.places).await);
    }
}

impl Taken {
    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.all.num_permits()
    }

    /// Gives back all but so many, at least one. What is kept counts as few.
    pub(super) fn keep_few(&mut self, count: usize) {
        drop(self.all.split(self.count().saturating_sub(count.max(1))));
        self.large = None;
    }

    /// The same, but stays among the large ones.
    pub(super) fn keep(&mut self, count: usize) {
        drop(self.all.split(self.count().saturating_sub(count.max(1))));
        if let Some(large) = &mut self.large {
            drop(large.split(large.num_permits().saturating_sub(count.max(1))));
        }
    }
}

/// The requests that wait for places, and the places.
#[derive(Debug)]
struct Line {
    room: Arc<Semaphore>,
    places: u32,
    /// Somebody has waited in vain since there last was a place at once.
    stands: AtomicBool,
}

impl Line {
    fn new(places: usize) -> Self {
        let places = u32::try_from(places.clamp(1, Semaphore::MAX_PERMITS)).unwrap_or(u32::MAX);
        Self { room: Arc::new(Semaphore::new(places as usize)), places, stands: AtomicBool::new(false) }
    }

    async fn take(&self, count: usize) -> Option<OwnedSemaphorePermit> {
        let count = u32::try_from(count).unwrap_or(u32::MAX).min(self.places);
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
}

#[cfg(test)]
mod tests {
    use tokio::time::{Instant, sleep};

    use super::*;

    /// How long this takes to be refused.
    async fn refused_after(places: &Places, need: Need) -> Duration {
        let began = Instant::now();
        assert!(places.take(need).await.is_none());
        began.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn in_a_burst_everybody_waits_and_in_a_queue_that_stands_for_a_moment_only() {
        let places = Places::new(2);
        let held = places.take(Need::Few(2)).await.unwrap();
        assert_eq!(refused_after(&places, Need::Few(1)).await, PATIENCE, "nobody has waited in vain before");
        assert_eq!(refused_after(&places, Need::Few(1)).await, STANDING);
        let (taken, ()) = tokio::join!(places.take(Need::Few(2)), async {
            sleep(STANDING / 2).await;
            drop(held);
        });
        let held = taken.expect("it was given back in time");
        assert_eq!(refused_after(&places, Need::Few(1)).await, STANDING, "everybody has waited since");
        drop(held);
        drop(places.take(Need::Few(1)).await.unwrap());
        let _held = places.take(Need::Few(2)).await.unwrap();
        assert_eq!(refused_after(&places, Need::Few(1)).await, PATIENCE, "there was a place at once");
    }

    #[tokio::test(start_paused = true)]
    async fn who_came_first_is_first_whatever_the_count() {
        let places = Places::new(4);
        let held = places.take(Need::Few(1)).await.unwrap();
        // More than there are: all of them.
        let mut all = std::pin::pin!(places.take(Need::Few(100)));
        let soon = STANDING / 2;
        assert!(timeout(soon, &mut all).await.is_err());
        assert_eq!(places.taken(), 4, "what is free is kept for the one that waits");
        assert!(timeout(soon, places.take(Need::Few(1))).await.is_err());
        drop(held);
        assert_eq!(all.await.map(|taken| taken.count()), Some(4));
        places.all_back().await;
        assert_eq!(places.taken(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn large_ones_wait_for_each_other_and_nobody_else_waits_for_them() {
        let places = Places::new(16);
        let mut held = places.take(Need::Many(100)).await.unwrap();
        assert_eq!(held.count(), 14, "as many as large ones have at all");
        assert_eq!(refused_after(&places, Need::Many(1)).await, PATIENCE);
        let few = places.take(Need::Few(2)).await.unwrap();
        assert_eq!(refused_after(&places, Need::Few(1)).await, PATIENCE, "the line of the others stood not");
        // With its work done, a large one is like others.
        held.keep_few(2);
        assert_eq!(places.taken(), 4);
        let large = places.take(Need::Many(12)).await.unwrap();
        assert_eq!(large.count(), 12);
        drop((few, held));
        // What it does not need others may have, large ones too.
        let mut large = large;
        large.keep(4);
        assert_eq!(places.take(Need::Many(10)).await.map(|taken| taken.count()), Some(10));
        assert_eq!(places.taken(), 4);
    }

    #[tokio::test(start_paused = true)]
    async fn the_end_waits_for_those_who_wait_in_either_line() {
        let places = Places::new(8);
        let held = places.take(Need::Many(7)).await.unwrap();
        let (waited, (), ()) = tokio::join!(
            async {
                let taken = places.take(Need::Many(7)).await.expect("it stands before the end");
                sleep(PATIENCE).await;
                drop(taken);
                Instant::now()
            },
            async {
                places.all_back().await;
                assert_eq!(places.taken(), 0);
            },
            async {
                sleep(PATIENCE / 2).await;
                drop(held);
            }
        );
        assert_eq!(Instant::now(), waited, "not before it has gone");
    }

    #[tokio::test]
    async fn one_place_is_enough_for_everybody() {
        let places = Places::new(1);
        for need in [Need::Few(1), Need::Many(100), Need::Few(13)] {
            assert_eq!(places.take(need).await.map(|taken| taken.count()), Some(1), "{need:?}");
        }
    }
}
