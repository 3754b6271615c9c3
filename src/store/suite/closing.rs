//! The end: what was begun is finished, and nothing is begun any more.

use futures_util::future::join_all;
use task_broker_core::Guard;
use tokio::task::unconstrained;

use super::{
    created, everything, id, insertion, limits, new_task, read_whole, set_meta, subject, update, worker,
};
use crate::clock::Clock;
use crate::store::{Health, Inserted, Listed, Store, StoreError, Updated};

pub(in crate::store) async fn after_close_every_call_fails_with_broken(store: &dyn Store, _clock: &Clock) {
    assert_eq!(store.health(), Health::Ready);
    let name = store.store_id().to_owned();
    assert!(!name.is_empty());
    created(store, new_task(1)).await;
    for round in 1..=2 {
        store.close().await;
        assert_eq!(store.health(), Health::Closed, "after close number {round}");
        let broken = Some(StoreError::Broken);
        assert_eq!(store.insert(insertion(&worker(), new_task(2), limits())).await.err(), broken);
        assert_eq!(store.update(update(id(1), set_meta("{}"), Guard::default())).await.err(), broken);
        assert_eq!(read_whole(store, id(1)).await.err(), broken);
        assert_eq!(store.heads(&[id(1)]).await.err(), broken);
        assert_eq!(store.list(&everything(Listed::CreatedBy(worker()))).await.err(), broken);
        assert_eq!(store.changes(&worker(), None, 1).await.err(), broken);
        assert_eq!(store.sweep(1).await.err(), broken);
        assert_eq!(store.store_id(), name);
    }
}

pub(in crate::store) async fn what_was_handed_over_before_close_is_carried_out(
    store: &dyn Store,
    _clock: &Clock,
) {
    created(store, new_task(0)).await;
    let by_another = subject("another");
    let insertions =
        join_all((1..=20).map(|number| store.insert(insertion(&by_another, new_task(number), limits()))));
    let changes =
        join_all((0..20).map(|n| store.update(update(id(0), set_meta(&format!("{n}")), Guard::default()))));
    // Polled in this order and without pause: when the close begins, all of it was handed over.
    let (inserted, updated, ()) =
        unconstrained(async { tokio::join!(biased; insertions, changes, store.close()) }).await;
    assert!(inserted.iter().all(|inserted| matches!(inserted, Ok(Inserted::Created(_)))));
    let mut revisions: Vec<_> = updated
        .into_iter()
        .map(|updated| match updated {
            Ok(Updated::Applied(applied)) => applied.outcome.revision,
            other => panic!("not carried out: {other:?}"),
        })
        .collect();
    revisions.sort_unstable();
    assert_eq!(revisions, (2..=21).collect::<Vec<_>>());
}
