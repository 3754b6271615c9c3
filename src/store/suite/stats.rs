//! Numbers for operators: they tell what readers see.

use std::time::Duration;

use task_broker_core::{NewTask, Status, TtlWish};

use super::{
    TTL_MS, answer, ask, cancel, carried_out, complete, created, head, id, new_task, payload, set_meta,
    set_ttl,
};
use crate::clock::Clock;
use crate::store::Store;

/// Tasks in the order of [`Status::ALL`], and those that have expired.
async fn counted(store: &dyn Store) -> ([u64; 5], u64) {
    let stats = store.stats().await;
    (stats.tasks, stats.expired)
}

pub(in crate::store) async fn tasks_are_counted_by_status_until_they_are_removed(
    store: &dyn Store,
    clock: &Clock,
) {
    let all = [Status::Working, Status::InputRequired, Status::Completed, Status::Failed, Status::Cancelled];
    assert_eq!(all, Status::ALL, "the order below");
    assert_eq!(counted(store).await, ([0; 5], 0));
    for number in 0..4 {
        created(store, new_task(number)).await;
    }
    created(store, NewTask { ttl: TtlWish::Millis(2 * TTL_MS), ..new_task(4) }).await;
    carried_out(store, id(1), ask([("k", "{}")])).await;
    carried_out(store, id(2), complete(&payload("{}"))).await;
    carried_out(store, id(3), cancel()).await;
    assert_eq!(counted(store).await, ([2, 1, 1, 0, 1], 0));
    carried_out(store, id(1), answer([("k", "{}")])).await;
    assert_eq!(counted(store).await, ([3, 0, 1, 0, 1], 0));
    clock.advance(Duration::from_millis(TTL_MS));
    // Expired is told by whatever happens next.
    assert_eq!(store.sweep(1).await.unwrap().removed, 1);
    let (tasks, expired) = counted(store).await;
    assert_eq!((tasks.iter().sum::<u64>(), expired), (4, 3));
    store.sweep(10).await.unwrap();
    assert_eq!(counted(store).await, ([1, 0, 0, 0, 0], 0));
}

pub(in crate::store) async fn bytes_are_those_of_the_tasks(store: &dyn Store, _clock: &Clock) {
    let bytes = async || store.stats().await.task_bytes;
    assert_eq!(bytes().await, 0);
    created(store, new_task(1)).await;
    created(store, new_task(2)).await;
    carried_out(store, id(2), set_meta("{}")).await;
    let heads = [head(store, id(1)).await.unwrap(), head(store, id(2)).await.unwrap()];
    assert_eq!(bytes().await, heads[0].footprint() + heads[1].footprint());
    carried_out(store, id(1), set_ttl(0)).await;
    store.sweep(10).await.unwrap();
    assert_eq!(bytes().await, heads[1].footprint());
}
