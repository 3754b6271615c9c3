//! Usage: what a decision is told that is kept is what is kept.

use std::time::Duration;

use futures_util::future::join_all;
use task_broker_core::{Command, Limits, NewTask, Quota, Rejection, Subject, TtlWish, Usage};

use super::{
    TTL_MS, alice, answer, ask, carried_out, complete, created, head, id, in_parallel, insert, insertion,
    keyed, limits, new_task, payload, payload_of, set_meta, set_ttl, subject, update, usage, worker,
};
use crate::clock::Clock;
use crate::store::{Inserted, Store};

/// What is kept by the tasks themselves, added up.
async fn counted(store: &dyn Store, owner: &Subject, numbers: std::ops::Range<u64>) -> Usage {
    let mut usage = Usage::default();
    for number in numbers {
        let Some(task) = head(store, id(number)).await else { continue };
        usage.total_tasks += 1;
        if owner.is_some() && task.owner == *owner {
            usage.owner_tasks += 1;
            usage.owner_bytes += task.footprint();
        }
    }
    usage
}

async fn assert_exact(store: &dyn Store, step: &str) {
    for owner in [alice(), subject("bob"), subject("stranger"), None] {
        assert_eq!(usage(store, &owner).await, counted(store, &owner, 0..10).await, "{owner:?} after {step}");
    }
}

pub(in crate::store) async fn usage_is_exact_after_every_step(store: &dyn Store, clock: &Clock) {
    assert_exact(store, "nothing").await;
    created(store, NewTask { meta: Some(payload("{}")), ..keyed(1, "key") }).await;
    created(store, new_task(2)).await;
    created(store, NewTask { owner: subject("bob"), ..new_task(3) }).await;
    created(store, NewTask { owner: None, ..new_task(4) }).await;
    created(store, NewTask { ttl: TtlWish::Millis(2 * TTL_MS), ..new_task(5) }).await;
    assert_exact(store, "creation").await;
    assert_eq!(usage(store, &alice()).await.owner_tasks, 3);
    insert(store, &worker(), keyed(6, "key")).await;
    assert_exact(store, "a create call that found its task").await;

    let before = usage(store, &alice()).await.owner_bytes;
    carried_out(store, id(1), Command::SetMeta { meta: payload_of(10_002, 1) }).await;
    assert_eq!(usage(store, &alice()).await.owner_bytes, before + 10_000);
    carried_out(store, id(1), set_meta("{}")).await;
    assert_eq!(usage(store, &alice()).await.owner_bytes, before);
    let question = r#"{"method":"q"}"#;
    carried_out(store, id(1), ask([("a", question), ("b", question)])).await;
    assert_exact(store, "questions").await;
    carried_out(store, id(1), answer([("a", "{}")])).await;
    assert_exact(store, "an answer").await;
    carried_out(store, id(1), complete(&payload_of(50_000, 2))).await;
    assert_exact(store, "a result").await;
    let refused = store.update(update(id(1), ask([]), task_broker_core::Guard::default())).await.unwrap();
    assert!(matches!(refused, crate::store::Updated::Rejected(_)));
    assert_exact(store, "a refusal").await;

    carried_out(store, id(1), Command::Discard).await;
    assert_exact(store, "a discard").await;
    assert_eq!(usage(store, &alice()).await.owner_tasks, 2);
    clock.advance(Duration::from_millis(TTL_MS));
    store.sweep(2).await.unwrap();
    assert_exact(store, "half a sweep").await;
    store.sweep(10).await.unwrap();
    assert_exact(store, "a sweep").await;
    let bob = usage(store, &subject("bob")).await;
    assert_eq!((bob.owner_tasks, bob.owner_bytes, bob.total_tasks), (0, 0, 1));
    carried_out(store, id(5), set_ttl(0)).await;
    store.sweep(10).await.unwrap();
    assert_eq!(usage(store, &alice()).await, Usage::default());
}

pub(in crate::store) async fn a_task_without_an_owner_counts_in_the_total_only(
    store: &dyn Store,
    _clock: &Clock,
) {
    for number in 0..3 {
        created(store, NewTask { owner: None, ..new_task(number) }).await;
    }
    let unowned = Usage { owner_tasks: 0, owner_bytes: 0, total_tasks: 3 };
    assert_eq!(usage(store, &None).await, unowned);
    created(store, NewTask { owner: subject(""), ..new_task(3) }).await;
    assert_eq!(usage(store, &None).await.owner_tasks, 0);
    assert_eq!(usage(store, &subject("")).await.owner_tasks, 1, "the empty subject is somebody");
}

pub(in crate::store) async fn tasks_that_have_expired_count_until_they_are_removed(
    store: &dyn Store,
    clock: &Clock,
) {
    for number in 0..4 {
        created(store, new_task(number)).await;
    }
    let before = usage(store, &alice()).await;
    clock.advance(Duration::from_millis(TTL_MS));
    assert_eq!(usage(store, &alice()).await, before, "else an owner could keep more than the quota");
    store.sweep(10).await.unwrap();
    assert_eq!(usage(store, &alice()).await, Usage::default());
}

pub(in crate::store) async fn of_concurrent_creations_only_as_many_as_fit_are_admitted(
    store: &dyn Store,
    _clock: &Clock,
) {
    let tight = Limits { quota: Quota { tasks_per_owner: 5, ..limits().quota }, ..limits() };
    let (tight, worker) = (&tight, &worker());
    let group = |thread: u64| {
        join_all(
            (0..10).map(move |n| store.insert(insertion(worker, new_task(thread * 10 + n), tight.clone()))),
        )
    };
    let inserted: Vec<_> = in_parallel((0..4).map(group).collect()).into_iter().flatten().collect();
    let mut admitted = 0;
    for inserted in inserted {
        match inserted.unwrap() {
            Inserted::Created(_) => admitted += 1,
            Inserted::Rejected(Rejection::LimitExceeded { maximum: 5, .. }) => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(admitted, 5);
    assert_eq!(usage(store, &alice()).await, counted(store, &alice(), 0..40).await);
}
