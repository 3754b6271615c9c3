//! Creation: what is written, and who may use a key when.

use futures_util::future::join_all;
use task_broker_core::{Limits, NewTask, Quota, Rejection};

use super::{
    TTL_MS, alice, carried_out, created, created_by, head, id, in_parallel, insert, insertion, keyed, limits,
    new_task, payload, position, set_ttl, subject, usage, whole, worker,
};
use super::{assert_holds, set_meta};
use crate::clock::Clock;
use crate::store::{Inserted, Store};
use std::time::Duration;
use task_broker_core::Command;

pub(in crate::store) async fn a_task_reads_back_as_it_was_decided(store: &dyn Store, clock: &Clock) {
    let new = NewTask { meta: Some(payload(r#"{"trace":"1"}"#)), ..keyed(1, "key") };
    let Inserted::Created(applied) = insert(store, &worker(), new.clone()).await else {
        panic!("the task was not created");
    };
    assert_eq!((applied.now, applied.replayed), (clock.now(), false));
    let task = applied.task;
    assert_eq!((task.id, task.revision, task.ttl_ms), (id(1), 1, TTL_MS));
    assert_eq!((&task.creator, &task.owner), (&worker(), &alice()));
    assert_eq!(task.created_at, clock.now());

    let reading = whole(store, id(1)).await.unwrap();
    assert_eq!((&reading.task, reading.now), (&task, clock.now()));
    assert_holds(&reading, &task.arguments, &new.arguments);
    assert_holds(&reading, &task.meta.unwrap(), &new.meta.unwrap());
    assert_eq!(head(store, id(1)).await.unwrap(), task);
}

pub(in crate::store) async fn a_create_key_is_taken_while_its_task_lives(store: &dyn Store, clock: &Clock) {
    let first = created(store, keyed(1, "key")).await;
    let before = usage(store, &alice()).await;
    clock.advance(Duration::from_millis(TTL_MS - 1));
    let mut again = insertion(&worker(), keyed(2, "key"), limits());
    again.decide = Box::new(|_| panic!("a create call whose key is taken decides nothing"));
    match store.insert(again).await.unwrap() {
        Inserted::Existing(existing) => assert_eq!(existing, first.id),
        other => panic!("the key was taken: {other:?}"),
    }
    assert!(head(store, id(2)).await.is_none());
    assert_eq!(usage(store, &alice()).await, before);
}

pub(in crate::store) async fn a_create_key_is_free_for_another_creator(store: &dyn Store, _clock: &Clock) {
    for (number, creator) in (1..).zip([worker(), subject("another"), subject(""), None]) {
        created_by(store, &creator, keyed(number, "key")).await;
        match insert(store, &creator, keyed(100, "key")).await {
            Inserted::Existing(existing) => assert_eq!(existing, id(number), "{creator:?}"),
            other => panic!("the key of {creator:?} was taken: {other:?}"),
        }
    }
    created(store, keyed(50, "another key")).await;
}

pub(in crate::store) async fn a_create_key_is_free_from_the_instant_its_task_expires(
    store: &dyn Store,
    clock: &Clock,
) {
    created(store, keyed(1, "key")).await;
    clock.advance(Duration::from_millis(TTL_MS));
    created(store, keyed(2, "key")).await;
    // Whether the old task is still there or not, its removal must not give the key of the new one away.
    store.sweep(10).await.unwrap();
    assert!(head(store, id(1)).await.is_none());
    match insert(store, &worker(), keyed(3, "key")).await {
        Inserted::Existing(existing) => assert_eq!(existing, id(2)),
        other => panic!("the key belongs to the second task: {other:?}"),
    }
    assert_eq!(usage(store, &alice()).await.owner_tasks, 1);
}

pub(in crate::store) async fn a_create_key_is_free_when_its_task_is_discarded(
    store: &dyn Store,
    _clock: &Clock,
) {
    for number in 1..=3 {
        created(store, keyed(number, "key")).await;
        carried_out(store, id(number), Command::Discard).await;
    }
    created(store, keyed(4, "key")).await;
}

pub(in crate::store) async fn a_create_key_follows_a_ttl_that_was_moved(store: &dyn Store, clock: &Clock) {
    created(store, keyed(1, "longer")).await;
    created(store, keyed(2, "shorter")).await;
    carried_out(store, id(1), set_ttl(3 * TTL_MS)).await;
    carried_out(store, id(2), set_ttl(TTL_MS / 2)).await;
    clock.advance(Duration::from_millis(TTL_MS / 2));
    created(store, keyed(3, "shorter")).await;
    clock.advance(Duration::from_millis(TTL_MS));
    assert!(matches!(insert(store, &worker(), keyed(4, "longer")).await, Inserted::Existing(_)));
}

pub(in crate::store) async fn a_rejected_insertion_writes_nothing(store: &dyn Store, _clock: &Clock) {
    created(store, new_task(1)).await;
    let before = (usage(store, &alice()).await, position(store, &worker()).await);
    let full = Limits { quota: Quota { tasks_per_owner: 1, ..limits().quota }, ..limits() };
    let rejected = store.insert(insertion(&worker(), keyed(2, "key"), full)).await.unwrap();
    assert!(matches!(rejected, Inserted::Rejected(Rejection::LimitExceeded { .. })), "{rejected:?}");
    assert!(whole(store, id(2)).await.is_none());
    assert_eq!((usage(store, &alice()).await, position(store, &worker()).await), before);
    // Its key stays free, and its id as well.
    created(store, keyed(2, "key")).await;
    carried_out(store, id(2), set_meta("{}")).await;
}

pub(in crate::store) async fn of_many_insertions_under_one_key_one_creates(
    store: &dyn Store,
    _clock: &Clock,
) {
    let (creator, group) = (worker(), 16);
    let groups = (0..4).map(|thread| {
        let creator = &creator;
        join_all((0..group).map(move |n| insert(store, creator, keyed(thread * group + n, "key"))))
    });
    let mut made = Vec::new();
    let mut found = Vec::new();
    for inserted in in_parallel(groups.collect()).into_iter().flatten() {
        match inserted {
            Inserted::Created(applied) => made.push(applied.task.id),
            Inserted::Existing(id) => found.push(id),
            Inserted::Rejected(rejection) => panic!("rejected: {rejection}"),
        }
    }
    assert_eq!(made.len(), 1);
    assert_eq!(found.len(), 63);
    assert!(found.iter().all(|id| *id == made[0]));
    assert_eq!(usage(store, &alice()).await.total_tasks, 1);
}
