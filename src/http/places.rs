//! Places among the calls that are worked on, and how long a request waits for them.
//!
//! A queue that takes up a burst is good, one that stands is not: everybody in it waits as long as anybody is willing to,
//! and most of them are refused after that. So, once somebody has waited in vain, the next ones wait for a moment only,
//! until there is a place at once again; close to the controlled delay of "Fail at Scale" (ACM Queue 13, 8, 2015), but
//! clients that all have their turn in time are never refused.
//!
//! Half of the places are for bursts. While the queue stands, they are kept back as they are given back: the other half are
//! as many as the store works on while as many wait for it, and each more would only make all wait longer for their answers
//! (docs/measurements.md, Neighbours and overload).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
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
    /// How many there are while the queue stands.
    standing: u32,
    line: Arc<Line>,
}

/// The requests that wait.
#[derive(Debug)]
struct Line {
    /// Somebody has waited in vain since there last was a place at once.
    stands: AtomicBool,
    kept: Mutex<Kept>,
}

/// Places that are kept back.
#[derive(Debug)]
struct Kept {
    count: u32,
    /// How many are at most.
    most: u32,
}

/// Some places, given back when this is dropped.
#[derive(Debug)]
pub(super) struct Taken {
    permit: OwnedSemaphorePermit,
    line: Arc<Line>,
}

impl Places {
    /// So many of them, at least one.
    pub(super) fn new(all: usize) -> Self {
        let all = u32::try_from(all.clamp(1, Semaphore::MAX_PERMITS)).unwrap_or(u32::MAX);
        let standing = all.div_ceil(2);
        let kept = Kept { count: 0, most: all - standing };
        let line = Line { stands: AtomicBool::new(false), kept: Mutex::new(kept) };
        Self { room: Arc::new(Semaphore::new(all as usize)), all, standing, line: Arc::new(line) }
    }

    /// Takes `count` places, or half of all if that is less, if they are there soon. Who came first has them first, whatever
    /// the count.
    pub(super) async fn take(&self, count: usize) -> Option<Taken> {
        // More would never be there while the queue stands.
        let count = u32::try_from(count).unwrap_or(u32::MAX).min(self.standing);
        // Nobody else waits if this succeeds: what is given back goes to those who wait.
        let permit = if let Ok(permit) = Arc::clone(&self.room).try_acquire_many_owned(count) {
            if self.line.stands.load(Ordering::Relaxed) {
                self.moves(&mut self.line.kept.lock());
            }
            permit
        } else {
            Box::pin(self.wait_for(count)).await?
        };
        Some(Taken { permit, line: Arc::clone(&self.line) })
    }

    async fn wait_for(&self, count: u32) -> Option<OwnedSemaphorePermit> {
        let patience = if self.line.stands.load(Ordering::Relaxed) { STANDING } else { PATIENCE };
        let room = Arc::clone(&self.room);
        if let Ok(taken) = timeout(patience, room.acquire_many_owned(count)).await {
            return taken.ok();
        }
        self.line.stands.store(true, Ordering::Relaxed);
        None
    }

    /// The queue no longer stands.
    fn moves(&self, kept: &mut Kept) {
        self.line.stands.store(false, Ordering::Relaxed);
        self.room.add_permits(std::mem::take(&mut kept.count) as usize);
    }

    /// How many are taken.
    pub(super) fn taken(&self) -> usize {
        let kept = self.line.kept.lock();
        (self.all.saturating_sub(kept.count) as usize).saturating_sub(self.room.available_permits())
    }

    /// Waits until nobody has one, and nobody who waits for one is left.
    pub(super) async fn all_back(&self) {
        {
            let mut kept = self.line.kept.lock();
            kept.most = 0;
            self.moves(&mut kept);
        }
        // The semaphore is never closed, so this ends only with all places.
        drop(self.room.acquire_many(self.all).await);
    }
}

impl Taken {
    /// Gives back all but so many.
    pub(super) fn keep(&mut self, count: usize) {
        if let Some(permit) = self.permit.split(self.permit.num_permits().saturating_sub(count)) {
            drop(Self { permit, line: Arc::clone(&self.line) });
        }
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        if !self.line.stands.load(Ordering::Relaxed) {
            return;
        }
        let mut kept = self.line.kept.lock();
        // Looked at once more: when the queue has moved, nothing may be kept back any more.
        if self.line.stands.load(Ordering::Relaxed) {
            let back = u32::try_from(self.permit.num_permits()).unwrap_or(u32::MAX);
            let more = back.min(kept.most.saturating_sub(kept.count));
            if let Some(permit) = self.permit.split(more as usize) {
                kept.count += more;
                permit.forget();
            }
        }
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
        let held = [places.take(1).await.unwrap(), places.take(1).await.unwrap()];
        assert_eq!(refused_after(&places, 1).await, PATIENCE, "nobody has waited in vain before");
        assert_eq!(refused_after(&places, 1).await, STANDING);
        let (taken, ()) = tokio::join!(places.take(1), async {
            sleep(STANDING / 2).await;
            drop(held);
        });
        let held = taken.expect("it was given back in time");
        assert_eq!(refused_after(&places, 1).await, STANDING, "everybody has waited since");
        drop(held);
        drop(places.take(1).await.unwrap());
        let _held = [places.take(1).await.unwrap(), places.take(1).await.unwrap()];
        assert_eq!(refused_after(&places, 1).await, PATIENCE, "there was a place at once");
    }

    #[tokio::test(start_paused = true)]
    async fn who_came_first_is_first_whatever_the_count() {
        let places = Places::new(4);
        let held = [places.take(2).await.unwrap(), places.take(1).await.unwrap()];
        // More than there are while the queue stands: as many as those.
        let mut most = std::pin::pin!(places.take(100));
        let soon = STANDING / 2;
        assert!(timeout(soon, &mut most).await.is_err());
        assert_eq!(places.taken(), 4, "what is free is kept for the one that waits");
        assert!(timeout(soon, places.take(1)).await.is_err());
        drop(held);
        assert_eq!(most.await.map(|taken| taken.permit.num_permits()), Some(2));
        places.all_back().await;
        assert_eq!(places.taken(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn while_the_queue_stands_half_of_the_places_are_kept_back_and_all_are_there_after_it() {
        let places = Places::new(5);
        let mut held = Vec::new();
        for _ in 0..5 {
            held.push(places.take(1).await.unwrap());
        }
        refused_after(&places, 1).await;
        held.truncate(2);
        assert_eq!(places.taken(), 2);
        held.push(places.take(1).await.unwrap());
        // Nobody had to wait for that one, so it stands no longer.
        held.push(places.take(1).await.unwrap());
        held.push(places.take(1).await.unwrap());
        assert_eq!(places.taken(), 5);

        refused_after(&places, 1).await;
        let (waited, ()) = tokio::join!(places.take(2), async {
            sleep(STANDING / 2).await;
            held.truncate(1);
        });
        let mut waited = waited.expect("of four given back, two are kept");
        assert_eq!(places.taken(), 3);
        assert_eq!(refused_after(&places, 1).await, STANDING, "there are three while the queue stands");
        waited.keep(1);
        let (last, ()) = tokio::join!(places.take(1), async { drop(waited) });
        assert!(last.is_some(), "what is given back in part goes to those who wait");
    }

    #[tokio::test(start_paused = true)]
    async fn the_end_waits_for_all_that_are_taken_and_for_none_that_is_kept_back() {
        let places = Places::new(4);
        let mut held = [places.take(2).await, places.take(2).await];
        refused_after(&places, 1).await;
        held[0] = None;
        let mut end = std::pin::pin!(places.all_back());
        assert!(timeout(PATIENCE, &mut end).await.is_err(), "two are taken");
        assert_eq!(refused_after(&places, 1).await, PATIENCE, "who comes now stands behind the end");
        held[1] = None;
        end.await;
        assert_eq!(places.taken(), 0);
    }
}
