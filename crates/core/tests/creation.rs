//! What a new task is.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that panics has failed, as it should; clippy.toml covers only functions marked as tests"
)]

mod support;

use std::sync::Arc;

use support::*;
use task_broker_core::digest::Digest;
use task_broker_core::{
    Actor, Caller, Detail, Effect, Event, EventKind, HistoryEntry, IdempotencyKey, NewTask, Outcome, Phase,
    Status, Task, Transition, TtlWish, check, create,
};

fn with_everything() -> NewTask {
    NewTask {
        meta: Some(payload(r#"{"io.example/trace":"abc","n":{"k":[1,2]}}"#)),
        key: Some(IdempotencyKey::new("first", Digest(1)).unwrap()),
        poll_interval_ms: Some(500),
        ttl: TtlWish::Maximum,
        ..new_task()
    }
}

fn decided(new: NewTask) -> Transition {
    create(new, &worker(), &limits(), &NO_USAGE, START).unwrap()
}

#[test]
fn a_new_task_is_what_its_creator_wished_and_otherwise_empty() {
    let transition = decided(with_everything());
    let first = Outcome { applied: true, status: Status::Working, revision: 1, detail: Detail::None };
    assert_eq!((&transition.outcome, transition.replayed), (&first, false));
    let task = written(transition);
    check(&task).unwrap();
    let expected = Task {
        id: with_everything().id,
        tool_name: Arc::from("report"),
        creator: Some(Arc::from("worker")),
        owner: Some(Arc::from("alice")),
        phase: Phase::Working,
        message: "Task started".into(),
        created_at: START,
        updated_at: START,
        ttl_ms: MAX_TTL_MS,
        poll_interval_ms: 500,
        revision: 1,
        cancel_requested: false,
        arguments: task.arguments,
        meta: task.meta,
        inputs: None,
        replay: task.replay.clone(),
        history: [HistoryEntry { revision: 1, at: START, kind: EventKind::Create, by: Actor::Creator }]
            .into(),
    };
    assert_eq!(task, expected);
    let replay = task.replay.unwrap();
    assert_eq!((&replay.create, replay.outcomes.len()), (&with_everything().key, 0));
}

#[test]
fn arguments_and_meta_are_written_under_references_of_their_own() {
    let new = with_everything();
    let (arguments, meta) = (new.arguments.clone(), new.meta.clone().unwrap());
    let Effect::Write { task, payloads, dropped, event } = decided(new).effect else { panic!("not written") };
    let kept_meta = task.meta.unwrap();
    let expected = [(task.arguments, arguments.bytes().clone()), (kept_meta, meta.bytes().clone())];
    assert_eq!((payloads.as_slice(), dropped), (&expected[..], vec![]));
    assert!(task.arguments.matches(arguments.bytes()) && kept_meta.matches(meta.bytes()));
    assert_eq!((task.arguments.revision, kept_meta.revision), (1, 1));
    assert_ne!(task.arguments.place(), kept_meta.place());
    assert_eq!(event, Some(Event::of(EventKind::Create, &task)));
}

#[test]
fn equal_texts_are_kept_apart() {
    let new = NewTask { arguments: payload("{}"), meta: Some(payload("{}")), ..new_task() };
    let task = written(decided(new));
    assert_ne!(Some(task.arguments), task.meta, "one can be dropped without the other");
    let next = decide(&task, &set_meta(r#"{"a":1}"#)).unwrap();
    assert_eq!(payload_changes(&next).1, [task.meta.unwrap()]);
}

#[test]
fn without_meta_and_key_nothing_is_kept_for_them() {
    let transition = decided(new_task());
    assert_eq!(payload_changes(&transition).0.len(), 1);
    let task = written(transition);
    assert_eq!((task.meta, task.replay), (None, None));
    assert_eq!((task.ttl_ms, task.poll_interval_ms), (TTL_MS, 2_000));
}

#[test]
fn any_json_text_may_be_the_arguments() {
    for text in ["null", "[]", "7", r#""x""#, r#"{"n":123456789012345678901234567890}"#, r#""\ud800""#] {
        let task = create_as(NewTask { arguments: payload(text), ..new_task() }, &worker());
        assert!(task.arguments.matches(text.as_bytes()), "{text}");
    }
}

#[test]
fn the_creator_is_the_caller_and_the_owner_is_the_one_named() {
    let new = NewTask { owner: Some(Arc::from("carol")), ..new_task() };
    let task = create_as(new, &Caller::named("carol"));
    assert_eq!((&task.creator, &task.owner), (&Some(Arc::from("carol")), &Some(Arc::from("carol"))));
    let task = create_as(NewTask { owner: None, ..new_task() }, &Caller::anonymous());
    assert_eq!((task.creator, task.owner), (None, None));
}
