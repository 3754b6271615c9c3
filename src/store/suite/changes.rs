//! Changes and hints: what a stream is told, in which order, and from where it goes on.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::FutureExt as _;
use task_broker_core::{Command, EventKind, NewTask, Status, Subject, TaskId, TtlWish};
use tokio::sync::broadcast::error::RecvError;

use super::{
    TTL_MS, answer, ask, cancel, carried_out, carried_out_guarded, complete, created, created_by, guarded,
    head, id, in_parallel, new_task, payload, position, set_meta, set_ttl, subject, update, worker,
};
use crate::clock::Clock;
use crate::store::{Change, Changes, Store};

async fn changes(store: &dyn Store, since: &str, max: usize) -> Changes {
    store.changes(&worker(), Some(since), max).await.unwrap()
}

/// All events since a position, so many at a time.
async fn events(store: &dyn Store, creator: &Subject, since: &str, max: usize) -> Vec<Change> {
    let mut position = since.to_owned();
    let mut all = Vec::new();
    loop {
        let changes = store.changes(creator, Some(&position), max).await.unwrap();
        assert!(!changes.reset && changes.events.len() <= max);
        all.extend(changes.events);
        position = changes.position;
        if !changes.more {
            return all;
        }
    }
}

pub(in crate::store) async fn without_a_position_a_reader_is_reset_and_stands_at_the_end(
    store: &dyn Store,
    clock: &Clock,
) {
    created(store, new_task(1)).await;
    let first = store.changes(&worker(), None, 10).await.unwrap();
    assert!(first.reset && first.events.is_empty() && !first.more);
    assert_eq!(first.now, clock.now());
    let next = changes(store, &first.position, 10).await;
    assert!(!next.reset && next.events.is_empty() && !next.more);
    created(store, new_task(2)).await;
    let next = changes(store, &first.position, 10).await;
    assert_eq!(next.events.len(), 1);
    assert_eq!(next.events[0].id, id(2));
}

pub(in crate::store) async fn every_change_comes_in_order_with_what_it_left(
    store: &dyn Store,
    _clock: &Clock,
) {
    let start = position(store, &worker()).await;
    created(store, new_task(1)).await;
    let commands = [
        ask([("a", r#"{"method":"q"}"#)]),
        answer([("a", "{}")]),
        Command::SetStatus { status: Status::Working, message: Some("half way".into()) },
        set_ttl(2 * TTL_MS),
        set_meta("{}"),
        complete(&payload("{}")),
        // After the end it leaves a sign and no revision, and watchers are told.
        cancel(),
        Command::Discard,
    ];
    for command in commands {
        carried_out(store, id(1), command).await;
    }
    let told: Vec<_> = events(store, &worker(), &start, 100)
        .await
        .iter()
        .map(|Change { id: of, event, .. }| {
            assert_eq!(*of, id(1));
            (event.kind, event.revision, event.status, event.cancel_requested)
        })
        .collect();
    let expected = [
        (EventKind::Create, 1, Status::Working, false),
        (EventKind::RequireInput, 2, Status::InputRequired, false),
        (EventKind::ApplyInput, 3, Status::Working, false),
        (EventKind::SetStatus, 4, Status::Working, false),
        (EventKind::SetTtl, 5, Status::Working, false),
        (EventKind::SetMeta, 6, Status::Working, false),
        (EventKind::Complete, 7, Status::Completed, false),
        (EventKind::Cancel, 7, Status::Completed, true),
        (EventKind::Discard, 8, Status::Completed, true),
    ];
    assert_eq!(told, expected);
}

pub(in crate::store) async fn a_reader_goes_on_from_any_position_it_was_given(
    store: &dyn Store,
    _clock: &Clock,
) {
    let start = position(store, &worker()).await;
    for number in 0..7 {
        created(store, new_task(number)).await;
        created_by(store, &subject("another"), new_task(100 + number)).await;
    }
    let all = events(store, &worker(), &start, 100).await;
    let expected: Vec<_> = (0..7).map(id).collect();
    assert_eq!(all.iter().map(|change| change.id).collect::<Vec<_>>(), expected);
    for max in 1..=8 {
        assert_eq!(events(store, &worker(), &start, max).await, all, "{max} at a time");
        let first = changes(store, &start, max).await;
        assert_eq!(first.more, max < 7, "{max} at a time");
    }
    for (place, change) in all.iter().enumerate() {
        let rest = events(store, &worker(), &change.position, 3).await;
        assert_eq!(rest, all[place + 1..], "after event {place}");
    }
}

pub(in crate::store) async fn only_changes_to_tasks_of_the_creator_are_told(
    store: &dyn Store,
    _clock: &Clock,
) {
    let people = [worker(), subject("another"), subject(""), None];
    let mut starts = Vec::new();
    for person in &people {
        starts.push(position(store, person).await);
    }
    for (number, person) in (0..).zip(&people) {
        created_by(store, person, new_task(number)).await;
        carried_out(store, id(number), cancel()).await;
    }
    for (number, (person, start)) in (0..).zip(people.iter().zip(&starts)) {
        let told = events(store, person, start, 100).await;
        assert_eq!(told.len(), 2, "{person:?}");
        assert!(told.iter().all(|change| change.id == id(number)), "{person:?}");
    }
    let stranger = store.changes(&subject("stranger"), Some(&starts[0]), 100).await.unwrap();
    assert!(stranger.events.is_empty() && !stranger.reset);
}

pub(in crate::store) async fn a_command_that_changes_nothing_is_no_event(store: &dyn Store, _clock: &Clock) {
    created(store, new_task(1)).await;
    carried_out(store, id(1), complete(&payload("{}"))).await;
    let start = position(store, &worker()).await;
    carried_out(store, id(1), complete(&payload("{}"))).await;
    carried_out(store, id(1), set_ttl(TTL_MS)).await;
    // Written, but for the sake of a repetition only.
    carried_out_guarded(store, id(1), set_ttl(TTL_MS), guarded("key")).await;
    carried_out_guarded(store, id(1), set_ttl(TTL_MS), guarded("key")).await;
    let stale = task_broker_core::Guard { key: None, expected_revision: Some(1) };
    store.update(update(id(1), set_meta("{}"), stale)).await.unwrap();
    assert_eq!(events(store, &worker(), &start, 100).await, []);
}

pub(in crate::store) async fn an_unknown_position_is_a_reset(store: &dyn Store, _clock: &Clock) {
    created(store, new_task(1)).await;
    let end = position(store, &worker()).await;
    let ahead = format!("{end}9");
    for unknown in ["", "-", "0", "rubbish", "00000000000000000000000000000000-0", &ahead, "💥"] {
        let answer = changes(store, unknown, 10).await;
        assert!(answer.reset && answer.events.is_empty() && !answer.more, "{unknown:?}: {answer:?}");
        created(store, new_task(2)).await;
        assert_eq!(changes(store, &answer.position, 10).await.events.len(), 1, "it can go on from there");
        carried_out(store, id(2), Command::Discard).await;
    }
}

pub(in crate::store) async fn concurrent_changes_come_in_revision_order_for_each_task(
    store: &dyn Store,
    _clock: &Clock,
) {
    const TASKS: u64 = 6;
    const CHANGES: u64 = 20;
    let start = position(store, &worker()).await;
    let thread = |thread: u64| async move {
        for number in (0..TASKS).filter(|number| number % 2 == thread % 2) {
            if thread < 2 {
                created(store, new_task(number)).await;
            }
        }
        for change in 0..CHANGES {
            for number in 0..TASKS {
                let command = set_meta(&format!(r#"{{"by":{thread},"n":{change}}}"#));
                let guard = task_broker_core::Guard::default();
                // The other thread may not have created it yet.
                store.update(update(id(number), command, guard)).await.unwrap();
            }
        }
    };
    in_parallel((0..3).map(thread).collect());
    let mut newest: HashMap<TaskId, u64> = HashMap::new();
    for Change { id, event, .. } in events(store, &worker(), &start, 16).await {
        let before = newest.insert(id, event.revision).unwrap_or(0);
        assert!(event.revision == before + 1, "{id}: {before}, then {}", event.revision);
    }
    for number in 0..TASKS {
        assert_eq!(newest[&id(number)], head(store, id(number)).await.unwrap().revision);
    }
}

pub(in crate::store) async fn no_event_comes_before_the_state_it_tells_of(store: &dyn Store, _clock: &Clock) {
    let start = &position(store, &worker()).await;
    created(store, new_task(1)).await;
    let done = &AtomicBool::new(false);
    let write = async move {
        for n in 0..100 {
            carried_out(store, id(1), set_meta(&format!("{n}"))).await;
        }
        done.store(true, Ordering::Release);
    };
    let follow = async move {
        let mut position = start.clone();
        loop {
            let last_round = done.load(Ordering::Acquire);
            let changes = changes(store, &position, 10).await;
            for Change { id, event, .. } in &changes.events {
                assert!(head(store, *id).await.unwrap().revision >= event.revision);
            }
            position = changes.position;
            if last_round && !changes.more {
                return;
            }
            tokio::task::yield_now().await;
        }
    };
    in_parallel(vec![write.boxed(), follow.boxed()]);
}

pub(in crate::store) async fn a_hint_arrives_for_every_change(store: &dyn Store, clock: &Clock) {
    let mut hints = store.hints();
    let mut hinted = async |expected: &[(u64, Subject)], what: &str| {
        let mut missing: HashSet<_> =
            expected.iter().map(|(number, creator)| (id(*number), creator.clone())).collect();
        while !missing.is_empty() {
            let next = tokio::time::timeout(Duration::from_secs(10), hints.recv()).await;
            match next.unwrap_or_else(|_late| panic!("no hint of {what}")) {
                Ok(batch) => batch.iter().for_each(|hint| {
                    missing.remove(&(hint.id, hint.creator.clone()));
                }),
                Err(RecvError::Lagged(_)) => panic!("nothing was lost here"),
                Err(RecvError::Closed) => panic!("the store is open"),
            }
        }
    };
    created(store, new_task(1)).await;
    created_by(store, &None, NewTask { ttl: TtlWish::Millis(2 * TTL_MS), ..new_task(2) }).await;
    hinted(&[(1, worker()), (2, None)], "a creation").await;
    carried_out(store, id(1), set_meta("{}")).await;
    hinted(&[(1, worker())], "a change").await;
    carried_out(store, id(2), Command::Discard).await;
    hinted(&[(2, None)], "a discard").await;
    clock.advance(Duration::from_millis(TTL_MS));
    store.sweep(10).await.unwrap();
    hinted(&[(1, worker())], "an expiry").await;
}
