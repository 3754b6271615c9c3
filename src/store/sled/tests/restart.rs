//! A start finds what an earlier process has left, however it ended.

use super::*;
use crate::store::suite::{head, position};
use task_broker_core::Timestamp;

#[tokio::test]
async fn a_store_that_was_closed_shows_the_same_after_a_start() {
    let clock = new_clock();
    let (store, directory) = open(&clock);
    populate(&store, &clock).await;
    let (before, name) = (Picture::of(&store).await, store.store_id().to_owned());
    store.close().await;
    drop(store);
    for _ in 0..3 {
        let store = open_at(directory.path(), &clock);
        assert_eq!(Picture::of(&store).await, before);
        assert_eq!(store.store_id(), name);
        nothing_is_left(&store).await;
        store.close().await;
    }
}

#[tokio::test]
async fn a_store_that_was_killed_shows_the_same_after_a_start() {
    let clock = new_clock();
    let (store, directory) = open(&clock);
    populate(&store, &clock).await;
    let before = Picture::of(&store).await;
    let copy = copy(directory.path());
    store.close().await;

    let store = open_at(copy.path(), &clock);
    assert_eq!(Picture::of(&store).await, before);
    nothing_is_left(&store).await;
    assert_eq!(Picture::of(&store).await, before, "only leftovers were deleted");
    // It goes on as if nothing had been.
    carried_out(&store, id(1), complete(&payload_of(70_000, 9))).await;
    carried_out(&store, id(10), Command::Discard).await;
    let after = Picture::of(&store).await;
    store.close().await;
    let store = open_at(copy.path(), &clock);
    assert_eq!(Picture::of(&store).await, after);
    nothing_is_left(&store).await;
}

#[tokio::test]
async fn a_store_that_was_dropped_without_close_shows_the_same_after_a_start() {
    let clock = new_clock();
    let (store, directory) = open(&clock);
    populate(&store, &clock).await;
    let before = Picture::of(&store).await;
    drop(store);
    // The writer may still be at its end; the start waits for it.
    let store = open_at(directory.path(), &clock);
    assert_eq!(Picture::of(&store).await, before);
    store.close().await;
}

#[tokio::test]
async fn a_closed_store_gives_its_directory_back_while_its_handle_lives() {
    let clock = new_clock();
    let directory = TempDir::new().unwrap();
    let mut handles = Vec::new();
    for round in 0..5 {
        let store = open_at(directory.path(), &clock);
        created(&store, new_task(round)).await;
        store.close().await;
        handles.push(store);
    }
    let store = open_at(directory.path(), &clock);
    for round in 0..5 {
        assert!(head(&store, id(round)).await.is_some(), "{round}");
    }
}

#[tokio::test]
async fn an_outcome_and_a_create_key_are_remembered_across_a_start() {
    let clock = new_clock();
    let (store, directory) = open(&clock);
    created(&store, keyed(1, "key")).await;
    let first = carried_out_guarded(&store, id(1), set_ttl(1_000), guarded("call")).await;
    store.close().await;
    let store = open_at(directory.path(), &clock);
    let again = carried_out_guarded(&store, id(1), set_ttl(1_000), guarded("call")).await;
    assert!(again.replayed);
    assert_eq!(again.outcome, first.outcome);
    assert_eq!(owner_of_key(&store, &worker(), "key").await, Some(id(1)));
    clock.advance(Duration::from_secs(1));
    assert_eq!(owner_of_key(&store, &worker(), "key").await, None, "its deadline was kept too");
    store.close().await;
}

#[tokio::test]
async fn a_position_of_an_earlier_process_is_a_reset() {
    let clock = new_clock();
    let (store, directory) = open(&clock);
    let before = position(&store, &worker()).await;
    store.close().await;
    let store = open_at(directory.path(), &clock);
    let changes = store.changes(&worker(), Some(&before), 10).await.unwrap();
    assert!(changes.reset, "what happened in between is not known");
    store.close().await;
}

#[tokio::test]
async fn every_store_has_a_name_of_its_own() {
    let clock = new_clock();
    let (first, second) = (open(&clock), open(&clock));
    assert_ne!(first.0.store_id(), second.0.store_id());
}

/// A clock that was set back, as after an empty battery.
fn late_clock() -> Clock {
    Clock::manual(Timestamp::from_millis(1))
}

#[tokio::test]
async fn the_clock_is_not_before_the_newest_task() {
    let clock = new_clock();
    let (store, directory) = open(&clock);
    created(&store, new_task(1)).await;
    clock.advance(Duration::from_millis(700));
    carried_out(&store, id(1), set_meta("{}")).await;
    store.close().await;
    let late = late_clock();
    let store = open_at(directory.path(), &late);
    assert!(late.now() >= clock.now());
    store.close().await;
}

#[tokio::test]
async fn the_clock_is_not_before_a_removal_that_left_no_task() {
    let clock = new_clock();
    let (store, directory) = open(&clock);
    created(&store, new_task(1)).await;
    clock.advance(Duration::from_millis(suite::TTL_MS));
    assert_eq!(store.sweep(10).await.unwrap().removed, 1);
    let killed = copy(directory.path());
    store.close().await;
    for root in [directory.path(), killed.path()] {
        let late = late_clock();
        let store = open_at(root, &late);
        assert!(late.now() >= clock.now(), "{:?} < {:?}", late.now(), clock.now());
        store.close().await;
    }
}

#[tokio::test]
async fn a_clock_that_is_ahead_is_not_moved_back() {
    let clock = new_clock();
    let (store, directory) = open(&clock);
    created(&store, new_task(1)).await;
    store.close().await;
    let ahead = Clock::manual(suite::START.saturating_add(suite::TTL_MS));
    let store = open_at(directory.path(), &ahead);
    assert_eq!(ahead.now(), suite::START.saturating_add(suite::TTL_MS));
    assert_eq!(store.sweep(10).await.unwrap().removed, 1, "what expired meanwhile has expired");
    store.close().await;
}
