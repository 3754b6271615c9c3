//! Expiry: what a sweep removes, and what it leaves alone.

use std::time::Duration;

use futures_util::future::join_all;
use task_broker_core::{EventKind, NewTask, Status, TtlWish};

use super::{
    TTL_MS, carried_out, created, head, id, in_parallel, keyed, new_task, payload, position, set_ttl, whole,
    worker,
};
use crate::clock::Clock;
use crate::store::{Store, Swept};

fn ttl(number: u64, ttl_ms: u64) -> NewTask {
    NewTask { ttl: TtlWish::Millis(ttl_ms), ..new_task(number) }
}

async fn sweep(store: &dyn Store, max: usize) -> (usize, bool) {
    let Swept { removed, more } = store.sweep(max).await.unwrap();
    (removed, more)
}

pub(in crate::store) async fn a_sweep_removes_so_many_at_most_and_says_whether_more_are_due(
    store: &dyn Store,
    clock: &Clock,
) {
    assert_eq!(sweep(store, 4).await, (0, false), "of an empty store");
    for number in 0..10 {
        created(store, new_task(number)).await;
    }
    for number in 10..13 {
        created(store, ttl(number, 2 * TTL_MS)).await;
    }
    assert_eq!(sweep(store, 4).await, (0, false), "before their time");
    clock.advance(Duration::from_millis(TTL_MS));
    assert_eq!(sweep(store, 4).await, (4, true));
    assert_eq!(sweep(store, 4).await, (4, true));
    assert_eq!(sweep(store, 2).await, (2, false), "exactly the last ones");
    assert_eq!(sweep(store, 4).await, (0, false));
    for number in 0..13 {
        assert_eq!(head(store, id(number)).await.is_some(), number >= 10, "{number}");
    }
}

pub(in crate::store) async fn a_sweep_takes_a_task_from_the_instant_it_expires_and_no_earlier(
    store: &dyn Store,
    clock: &Clock,
) {
    created(store, new_task(1)).await;
    created(store, ttl(2, 0)).await;
    assert_eq!(sweep(store, 10).await, (1, false), "a TTL of 0 has run out at once");
    assert!(head(store, id(2)).await.is_none());
    clock.advance(Duration::from_millis(TTL_MS - 1));
    assert_eq!(sweep(store, 10).await, (0, false));
    clock.advance(Duration::from_millis(1));
    assert_eq!(sweep(store, 10).await, (1, false));
    assert!(head(store, id(1)).await.is_none());
}

pub(in crate::store) async fn a_swept_task_is_gone_and_its_end_is_an_event(store: &dyn Store, clock: &Clock) {
    created(store, keyed(1, "key")).await;
    let last = carried_out(store, id(1), super::complete(&payload("{}"))).await.task;
    let start = position(store, &worker()).await;
    clock.advance(Duration::from_millis(TTL_MS));
    assert_eq!(sweep(store, 10).await, (1, false));
    assert!(whole(store, id(1)).await.is_none());
    let changes = store.changes(&worker(), Some(&start), 10).await.unwrap();
    let [change] = &changes.events[..] else { panic!("one event: {changes:?}") };
    assert_eq!(change.id, id(1));
    assert_eq!(change.event.kind, EventKind::Expired);
    assert_eq!((change.event.status, change.event.revision), (Status::Completed, last.revision));
    assert_eq!(change.event.expires_at, last.expires_at());
    created(store, keyed(2, "key")).await;
}

pub(in crate::store) async fn a_ttl_that_was_moved_in_the_meantime_is_respected(
    store: &dyn Store,
    clock: &Clock,
) {
    for number in 1..=4 {
        created(store, new_task(number)).await;
    }
    carried_out(store, id(1), set_ttl(3 * TTL_MS)).await;
    carried_out(store, id(2), set_ttl(TTL_MS / 2)).await;
    carried_out(store, id(3), set_ttl(TTL_MS / 2)).await;
    carried_out(store, id(3), set_ttl(2 * TTL_MS)).await;
    clock.advance(Duration::from_millis(TTL_MS / 2));
    assert_eq!(sweep(store, 10).await, (1, false));
    assert!(head(store, id(2)).await.is_none(), "shortened");
    clock.advance(Duration::from_millis(TTL_MS / 2));
    assert_eq!(sweep(store, 10).await, (1, false));
    assert!(head(store, id(4)).await.is_none(), "never moved");
    clock.advance(Duration::from_millis(TTL_MS));
    assert_eq!(sweep(store, 10).await, (1, false));
    assert!(head(store, id(3)).await.is_none(), "shortened, then extended");
    clock.advance(Duration::from_millis(TTL_MS));
    assert_eq!(sweep(store, 10).await, (1, false));
    assert!(head(store, id(1)).await.is_none(), "extended");
}

pub(in crate::store) async fn concurrent_sweeps_remove_each_task_once(store: &dyn Store, clock: &Clock) {
    const TASKS: u64 = 200;
    join_all((0..TASKS).map(|number| created(store, new_task(number)))).await;
    let start = position(store, &worker()).await;
    clock.advance(Duration::from_millis(TTL_MS));
    let sweeper = || async {
        let mut total = 0;
        loop {
            let (removed, more) = sweep(store, 7).await;
            assert!(removed <= 7);
            total += removed;
            if !more {
                return total;
            }
        }
    };
    let removed: usize = in_parallel((0..4).map(|_| sweeper()).collect()).into_iter().sum();
    assert_eq!(removed, 200);
    let changes = store.changes(&worker(), Some(&start), 1_000).await.unwrap();
    let mut expired: Vec<_> = changes.events.iter().map(|change| change.id).collect();
    expired.sort_unstable();
    expired.dedup();
    assert_eq!((expired.len(), changes.events.len()), (200, 200));
}
