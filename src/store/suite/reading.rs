//! Reads: a task and payloads of one revision, whoever writes meanwhile.

use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use futures_util::FutureExt as _;
use task_broker_core::{Command, NewTask, Payload, PayloadRef, Rejection, Task, Timestamp};

use super::{
    assert_holds, carried_out, complete, created, head, id, in_parallel, new_task, payload, read_whole, whole,
};
use crate::clock::Clock;
use crate::store::Store;

pub(in crate::store) async fn an_unknown_task_reads_as_absent(store: &dyn Store, _clock: &Clock) {
    created(store, new_task(1)).await;
    let select = |_: &Task, _: Timestamp| -> Result<Vec<PayloadRef>, Rejection> {
        panic!("there is nothing to select from")
    };
    assert!(store.read(id(2), &select).await.unwrap().is_none());
    assert!(head(store, id(2)).await.is_none());
}

pub(in crate::store) async fn a_read_brings_the_payloads_that_were_asked_for_and_no_others(
    store: &dyn Store,
    clock: &Clock,
) {
    let meta = payload(r#"{"trace":"1"}"#);
    let task = created(store, NewTask { meta: Some(meta.clone()), ..new_task(1) }).await;
    let only_meta = |task: &Task, now| {
        assert_eq!(now, clock.now());
        Ok(task.meta.into_iter().collect())
    };
    let reading = store.read(id(1), &only_meta).await.unwrap().unwrap().unwrap();
    assert_holds(&reading, &task.meta.unwrap(), &meta);
    assert!(reading.payloads.get(&task.arguments).is_none());
    let nothing = |_: &Task, _| Ok(Vec::new());
    let reading = store.read(id(1), &nothing).await.unwrap().unwrap().unwrap();
    assert!(reading.payloads.get(&task.arguments).is_none());
    assert_eq!((reading.task, reading.now), (task, clock.now()));
}

pub(in crate::store) async fn a_read_can_be_refused_by_whoever_selects(store: &dyn Store, _clock: &Clock) {
    created(store, new_task(1)).await;
    let refuse = |_: &Task, _: Timestamp| Err(Rejection::Foreign);
    let refused = store.read(id(1), &refuse).await.unwrap();
    assert!(matches!(refused, Some(Err(Rejection::Foreign))), "{refused:?}");
}

pub(in crate::store) async fn heads_come_in_the_order_of_their_ids(store: &dyn Store, clock: &Clock) {
    for number in 1..=3 {
        created(store, new_task(number)).await;
    }
    let asked = [id(3), id(9), id(1), id(2), id(3)];
    let (heads, now) = store.heads(&asked).await.unwrap();
    assert_eq!(now, clock.now());
    let found: Vec<_> = heads.iter().map(|head| head.as_ref().map(|task| task.id)).collect();
    assert_eq!(found, [Some(id(3)), None, Some(id(1)), Some(id(2)), Some(id(3))]);
    assert!(store.heads(&[]).await.unwrap().0.is_empty());
}

/// A meta that names the revision that wrote it; its length changes from one to the next, across the border between
/// one piece and several.
fn meta_of(revision: u64) -> Payload {
    let filling = if revision.is_multiple_of(2) { 100 } else { 40_000 + usize::try_from(revision).unwrap() };
    payload(&format!(r#"{{"revision":{revision},"filling":"{}"}}"#, "x".repeat(filling)))
}

fn revision_in(meta: &Bytes) -> u64 {
    let text = std::str::from_utf8(meta).unwrap();
    let digits = text.strip_prefix(r#"{"revision":"#).unwrap().split(',').next().unwrap();
    digits.parse().unwrap()
}

pub(in crate::store) async fn a_reading_is_of_one_revision_while_a_writer_replaces_payloads(
    store: &dyn Store,
    _clock: &Clock,
) {
    const LAST: u64 = 150;
    let arguments = payload(&format!(r#"{{"large":"{}"}}"#, "y".repeat(50_000)));
    let new = NewTask { meta: Some(meta_of(1)), arguments: arguments.clone(), ..new_task(1) };
    created(store, new).await;
    let (done, arguments) = (&AtomicBool::new(false), &arguments);
    let write = async move {
        for revision in 2..LAST {
            carried_out(store, id(1), Command::SetMeta { meta: meta_of(revision) }).await;
        }
        carried_out(store, id(1), complete(&meta_of(LAST))).await;
        done.store(true, Ordering::Release);
    };
    let read = || async move {
        let mut newest = 0;
        loop {
            let last_round = done.load(Ordering::Acquire);
            let reading = read_whole(store, id(1)).await.unwrap().unwrap();
            let revision = reading.task.revision;
            assert!(revision >= newest, "a reader never goes back in time");
            newest = revision;
            assert_holds(&reading, &reading.task.arguments, arguments);
            let meta = reading.payloads.get(&reading.task.meta.unwrap()).unwrap();
            assert_eq!(revision_in(meta), revision.min(LAST - 1));
            if let task_broker_core::Phase::Completed(result) = &reading.task.phase {
                assert_holds(&reading, result, &meta_of(LAST));
            }
            if last_round {
                assert_eq!(newest, LAST);
                return;
            }
            tokio::task::yield_now().await;
        }
    };
    in_parallel(vec![write.boxed(), read().boxed(), read().boxed()]);
}

pub(in crate::store) async fn a_task_that_is_removed_is_read_whole_or_not_at_all(
    store: &dyn Store,
    _clock: &Clock,
) {
    const TASKS: u64 = 60;
    let (done, large) = (&AtomicBool::new(false), &payload(&"z".repeat(70_000)));
    let write = async move {
        for number in 0..TASKS {
            created(store, NewTask { arguments: large.clone(), ..new_task(number) }).await;
            carried_out(store, id(number), Command::Discard).await;
        }
        done.store(true, Ordering::Release);
    };
    let read = async move {
        while !done.load(Ordering::Acquire) {
            for number in 0..TASKS {
                if let Some(reading) = whole(store, id(number)).await {
                    assert_holds(&reading, &reading.task.arguments, large);
                }
            }
            tokio::task::yield_now().await;
        }
    };
    in_parallel(vec![write.boxed(), read.boxed()]);
}
