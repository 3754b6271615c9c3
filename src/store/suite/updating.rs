//! Changes: each is decided on the state that the one before it has left, and is carried out whole or not at all.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use task_broker_core::{
    Command, Detail, Effect, Event, EventKind, Guard, HistoryEntry, NewTask, Outcome, Rejection, Status,
    Task, Transition,
};

use super::{
    TTL_MS, alice, all_pages, assert_holds, cancel, carried_out, carried_out_guarded, complete, created,
    everything, guarded, head, id, in_parallel, new_task, payload, payload_of, position, set_meta, update,
    usage, whole, worker,
};
use crate::clock::Clock;
use crate::store::{Listed, Situation, Store, Update, Updated};

pub(in crate::store) async fn a_decision_is_made_on_the_newest_state(store: &dyn Store, clock: &Clock) {
    let mut expected = created(store, new_task(1)).await;
    for step in 1..=5 {
        clock.advance(Duration::from_millis(7));
        let (known, now) = (Arc::clone(&expected), clock.now());
        let mut update = update(id(1), set_meta(&format!(r#"{{"step":{step}}}"#)), Guard::default());
        let decide = update.decide;
        update.decide = Box::new(move |task: &Task, situation: &Situation| {
            assert_eq!((task, situation.now), (&*known, now));
            decide(task, situation)
        });
        let Updated::Applied(applied) = store.update(update).await.unwrap() else { panic!("not applied") };
        assert_eq!((applied.task.revision, applied.now), (step + 1, now));
        assert_eq!(applied.outcome.revision, step + 1);
        expected = applied.task;
    }
    assert_eq!(head(store, id(1)).await.unwrap(), expected);
}

pub(in crate::store) async fn an_update_of_an_unknown_task_is_absent_and_decides_nothing(
    store: &dyn Store,
    _clock: &Clock,
) {
    created(store, new_task(1)).await;
    let decide = Box::new(|_: &Task, _: &Situation| panic!("there is nothing to decide about"));
    let update = Update { id: id(2), payload_bytes: 0, decide, show: None };
    assert!(matches!(store.update(update).await.unwrap(), Updated::Absent));
    assert!(head(store, id(2)).await.is_none());
}

pub(in crate::store) async fn a_rejected_update_writes_nothing(store: &dyn Store, clock: &Clock) {
    let before = created(store, new_task(1)).await;
    let known = (usage(store, &alice()).await, position(store, &worker()).await);
    clock.advance(Duration::from_millis(10));
    let stale = Guard { key: None, expected_revision: Some(7) };
    let rejected = store.update(update(id(1), complete(&payload("{}")), stale)).await.unwrap();
    assert!(
        matches!(rejected, Updated::Rejected(Rejection::RevisionConflict { revision: 1 })),
        "{rejected:?}"
    );
    let reading = whole(store, id(1)).await.unwrap();
    assert_eq!(reading.task, before);
    assert_holds(&reading, &before.arguments, &new_task(1).arguments);
    assert_eq!((usage(store, &alice()).await, position(store, &worker()).await), known);
}

pub(in crate::store) async fn a_command_that_changes_nothing_keeps_the_task_as_it_is(
    store: &dyn Store,
    clock: &Clock,
) {
    created(store, new_task(1)).await;
    let ended = carried_out(store, id(1), complete(&payload("{}"))).await;
    assert!(ended.outcome.applied);
    clock.advance(Duration::from_millis(10));
    let again = carried_out(store, id(1), complete(&payload(r#"{"late":true}"#))).await;
    assert!(!again.outcome.applied);
    assert_eq!((&again.task, again.now), (&ended.task, clock.now()));
    assert_eq!(head(store, id(1)).await.unwrap(), ended.task);
}

pub(in crate::store) async fn an_outcome_is_remembered_without_a_revision(store: &dyn Store, clock: &Clock) {
    created(store, new_task(1)).await;
    // Nothing to change, but the call has a key: the outcome is written all the same.
    let same_ttl = || super::set_ttl(TTL_MS);
    let first = carried_out_guarded(store, id(1), same_ttl(), guarded("key")).await;
    assert_eq!((first.replayed, first.task.revision), (false, 1));
    clock.advance(Duration::from_millis(10));
    carried_out(store, id(1), set_meta("{}")).await;
    let replay = carried_out_guarded(store, id(1), same_ttl(), guarded("key")).await;
    assert!(replay.replayed);
    assert_eq!(replay.outcome, first.outcome);
    assert_eq!(replay.task.revision, 2, "the task is shown as it is now");
}

pub(in crate::store) async fn a_removed_task_is_gone_for_everybody(store: &dyn Store, _clock: &Clock) {
    created(store, new_task(1)).await;
    let kept = created(store, new_task(2)).await;
    let last = carried_out(store, id(1), set_meta("{}")).await.task;
    let removed = carried_out(store, id(1), Command::Discard).await;
    assert_eq!(removed.task, last, "of a removed task the last state is shown");
    assert!(whole(store, id(1)).await.is_none());
    assert!(head(store, id(1)).await.is_none());
    let again = store.update(update(id(1), Command::Discard, Guard::default())).await.unwrap();
    assert!(matches!(again, Updated::Absent));
    for whose in [Listed::CreatedBy(worker()), Listed::OwnedBy(alice())] {
        assert_eq!(all_pages(store, &everything(whose)).await, [kept.id]);
    }
}

/// A driver has no rules: what an expired task is to a caller, the decision says.
pub(in crate::store) async fn an_expired_task_is_there_until_somebody_removes_it(
    store: &dyn Store,
    clock: &Clock,
) {
    let task = created(store, new_task(1)).await;
    clock.advance(Duration::from_millis(TTL_MS));
    assert!(task.is_expired(clock.now()));
    assert_eq!(whole(store, id(1)).await.unwrap().task, task);
    assert_eq!(head(store, id(1)).await.unwrap(), task);
    let refused = store.update(update(id(1), cancel(), Guard::default())).await.unwrap();
    assert!(matches!(refused, Updated::Rejected(Rejection::Expired)), "the decision sees the store's time");
    let remove = |task: &Task, _: &Situation| {
        let event = Event::of(EventKind::Discard, task);
        Ok(Transition { outcome: outcome(task), replayed: false, effect: Effect::Remove { event } })
    };
    let removal = Update { id: id(1), payload_bytes: 0, decide: Box::new(remove), show: None };
    assert!(matches!(store.update(removal).await.unwrap(), Updated::Applied(_)));
    assert!(head(store, id(1)).await.is_none());
}

/// Whatever comes right after it: the payloads of the answer are those of the state of the answer.
pub(in crate::store) async fn an_update_shows_the_payloads_of_the_state_that_it_made(
    store: &dyn Store,
    _clock: &Clock,
) {
    for number in 1..=20 {
        created(store, NewTask { meta: Some(payload(r#"{"n":0}"#)), ..new_task(number) }).await;
        let shown = |n: u64, length: usize| {
            let meta = if length == 0 { payload(&format!(r#"{{"n":{n}}}"#)) } else { payload_of(length, n) };
            let change = update(id(number), Command::SetMeta { meta: meta.clone() }, Guard::default());
            let change = Update { show: Some(|task| task.meta.into_iter().collect()), ..change };
            async move { (meta, store.update(change).await) }
        };
        // Handed over at once, so that a driver that works in groups has them in one.
        let (first, second, gone) = tokio::join!(
            shown(1, 0),
            shown(2, 50_000),
            store.update(update(id(number), Command::Discard, Guard::default())),
        );
        assert!(matches!(gone, Ok(Updated::Applied(_))));
        for (meta, updated) in [first, second] {
            let Ok(Updated::Applied(applied)) = updated else { panic!("{updated:?}") };
            let reference = applied.task.meta.unwrap();
            assert_eq!(applied.payloads.get(&reference), Some(meta.bytes()));
        }
        assert!(whole(store, id(number)).await.is_none());
    }
}

fn outcome(task: &Task) -> Outcome {
    Outcome { applied: true, status: task.status(), revision: task.revision, detail: Detail::None }
}

/// Counts up in the task's message: a decision that is made on any state but the newest loses a count.
fn count_up() -> Update {
    let decide = |task: &Task, situation: &Situation| {
        let count = task.message.parse::<u64>().unwrap_or(0);
        let revision = task.revision + 1;
        let entry = HistoryEntry {
            revision,
            at: situation.now,
            kind: EventKind::SetStatus,
            by: task_broker_core::Actor::Creator,
        };
        let message = Cow::Owned((count + 1).to_string());
        let next = Task { message, revision, history: Box::new([entry]), ..task.clone() };
        let event = Some(Event::of(EventKind::SetStatus, &next));
        let outcome = outcome(&next);
        let effect = Effect::Write { task: Box::new(next), payloads: Vec::new(), dropped: Vec::new(), event };
        Ok(Transition { outcome, replayed: false, effect })
    };
    Update { id: id(1), payload_bytes: 0, decide: Box::new(decide), show: None }
}

fn count(task: &Task) -> u64 {
    task.message.parse().unwrap()
}

pub(in crate::store) async fn concurrent_updates_lose_nothing(store: &dyn Store, _clock: &Clock) {
    created(store, new_task(1)).await;
    let thread = || async {
        let mut counts = Vec::new();
        for _ in 0..5 {
            let group = join_all((0..10).map(|_| store.update(count_up()))).await;
            for updated in group {
                let Updated::Applied(applied) = updated.unwrap() else { panic!("not applied") };
                assert_eq!(applied.outcome.revision, count(&applied.task) + 1);
                counts.push(count(&applied.task));
            }
        }
        counts
    };
    let counts: Vec<_> = in_parallel((0..4).map(|_| thread()).collect()).into_iter().flatten().collect();
    let distinct: BTreeSet<_> = counts.iter().copied().collect();
    assert_eq!(distinct, (1..=200).collect(), "each count was given out once");
    assert_eq!(counts.len(), 200);
    assert_eq!(count(&head(store, id(1)).await.unwrap()), 200);
}

pub(in crate::store) async fn of_many_writes_that_expect_one_revision_one_is_carried_out(
    store: &dyn Store,
    _clock: &Clock,
) {
    created(store, new_task(1)).await;
    for revision in 1..=3 {
        let stale = Guard { key: None, expected_revision: Some(revision) };
        let group = |thread: u64| {
            let guard = &stale;
            join_all((0..8).map(move |n| {
                let meta = set_meta(&format!(r#"{{"by":{},"at":{revision}}}"#, thread * 8 + n));
                store.update(update(id(1), meta, guard.clone()))
            }))
        };
        let updates: Vec<_> = in_parallel((0..4).map(group).collect()).into_iter().flatten().collect();
        let mut carried_out = 0;
        for updated in updates {
            match updated.unwrap() {
                Updated::Applied(applied) => {
                    assert_eq!(applied.task.revision, revision + 1);
                    carried_out += 1;
                }
                Updated::Rejected(Rejection::RevisionConflict { revision: actual }) => {
                    assert_eq!(actual, revision + 1);
                }
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(carried_out, 1);
        assert_eq!(head(store, id(1)).await.unwrap().revision, revision + 1);
    }
}

pub(in crate::store) async fn what_was_answered_is_seen_by_every_later_read(
    store: &dyn Store,
    _clock: &Clock,
) {
    let start = position(store, &worker()).await;
    created(store, new_task(1)).await;
    let (start, worker) = (&start, &worker());
    let by_worker = &everything(Listed::CreatedBy(worker.clone()));
    let thread = || async move {
        for _ in 0..20 {
            let Updated::Applied(applied) = store.update(count_up()).await.unwrap() else {
                panic!("not applied")
            };
            let answered = applied.task.revision;
            assert!(whole(store, id(1)).await.unwrap().task.revision >= answered);
            assert!(head(store, id(1)).await.unwrap().revision >= answered);
            assert!(store.list(by_worker).await.unwrap().tasks[0].revision >= answered);
            let changes = store.changes(worker, Some(start), 1_000).await.unwrap();
            assert!(changes.events.last().unwrap().event.revision >= answered);
        }
    };
    in_parallel((0..3).map(|_| thread()).collect());
    assert_eq!(head(store, id(1)).await.unwrap().status(), Status::Working);
}
