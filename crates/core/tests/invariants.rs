//! A stored record that breaks a rule is damage, and `check` must see it: each rule is broken once.
#![allow(
    clippy::unwrap_used,
    reason = "a test that panics has failed, as it should; clippy.toml covers only functions marked as tests"
)]

mod support;

use std::collections::BTreeSet;
use std::sync::Arc;

use support::*;
use task_broker_core::digest::Digest;
use task_broker_core::{
    Guard, HistoryEntry, IdempotencyKey, Inputs, Phase, Question, Replay, Request, Task, Violation, check,
};

/// A task that has a bit of everything: revision 4, an answered key, an open one, a remembered outcome.
fn sound() -> Task {
    let asked = after_all(&task(), &[require_keys(["answered", "open"]), answer_keys(["answered"])]);
    let guard = Guard { key: Some(IdempotencyKey::new("k", Digest(1)).unwrap()), expected_revision: None };
    written(run(&asked, &Request { guard, ..by_worker(set_meta("{}")) }).unwrap())
}

fn inputs(task: &mut Task) -> &mut Inputs {
    Arc::make_mut(task.inputs.as_mut().unwrap())
}

fn replay(task: &mut Task) -> &mut Replay {
    Arc::make_mut(task.replay.as_mut().unwrap())
}

fn any_question(task: &Task) -> Question {
    Question { payload: question_of(task, "open"), digest: Digest(1) }
}

fn entry(task: &Task, revision: u64) -> HistoryEntry {
    HistoryEntry { revision, ..*task.history.last().unwrap() }
}

#[test]
fn a_task_that_the_core_made_breaks_no_rule() {
    assert_eq!(check(&sound()), Ok(()));
}

#[test]
fn each_broken_rule_is_found_and_named() {
    type Damage = fn(&mut Task);
    let damages: [(&str, Damage); 23] = [
        ("the revision counts from 1", |task| task.revision = 0),
        ("a task is not updated before it was created", |task| task.updated_at = at(0)),
        ("a task is not updated before it was created", |task| task.created_at = at(2_000)),
        ("the history is bounded", |task| {
            let long = (1..=33).map(|revision| entry(task, revision)).collect();
            (task.history, task.revision) = (long, 33);
        }),
        ("the newest entry of the history is the current revision", |task| task.history = Box::new([])),
        ("the newest entry of the history is the current revision", |task| task.revision += 1),
        ("the newest entry of the history is the current revision", |task| task.revision -= 1),
        ("the history is in order", |task| {
            task.history = [1, 3, 2, 4].map(|revision| entry(task, revision)).into();
        }),
        ("the history is in order", |task| {
            task.history = [3, 4, 4].map(|revision| entry(task, revision)).into();
        }),
        ("a cancelled task knows it was asked", |task| task.phase = Phase::Cancelled),
        ("no payload is newer than the task", |task| task.arguments.revision = 5),
        ("no payload is newer than the task", |task| task.arguments.revision = 0),
        ("no payload is newer than the task", |task| task.meta.as_mut().unwrap().revision = 5),
        ("no payload is newer than the task", |task| {
            inputs(task).answers.get_mut("answered").unwrap().revision = 5;
        }),
        ("idempotency outcomes are bounded", |task| {
            let one = replay(task).outcomes.first().cloned().unwrap();
            replay(task).outcomes = vec![one; 33];
        }),
        ("no outcome is newer than the task", |task| {
            replay(task).outcomes.first_mut().unwrap().outcome.revision = 5;
        }),
        ("input_required has an open question", |task| task.inputs = None),
        ("input_required has an open question", |task| inputs(task).outstanding.clear()),
        ("a task that ended has no open question", |task| task.phase = Phase::Completed(task.arguments)),
        ("open questions are bounded", |task| {
            let question = any_question(task);
            inputs(task).outstanding.extend((0..64).map(|key| (Arc::from(key.to_string()), question)));
        }),
        ("input keys are bounded", |task| {
            inputs(task).spent.extend((0..1_023).map(|key| Arc::from(key.to_string())));
        }),
        ("a key is open or spent, not both", |task| {
            inputs(task).spent.insert(Arc::from("open"));
        }),
        ("an answered key is spent", |task| {
            inputs(task).spent.clear();
        }),
    ];
    for (number, (rule, damage)) in damages.into_iter().enumerate() {
        let mut task = sound();
        // The clock of the sound task has moved, so that a time before its creation can be told apart.
        task.created_at = at(500);
        assert_eq!(check(&task), Ok(()));
        damage(&mut task);
        assert_eq!(check(&task), Err(Violation(rule)), "damage {number}");
    }
    let rules: BTreeSet<_> = damages.iter().map(|(rule, _)| *rule).collect();
    assert_eq!(rules.len(), 15, "a rule of `check` has no damage here, or one too many");
}

#[test]
fn a_task_that_fills_every_bound_is_sound() {
    let mut task = sound();
    let question = any_question(&task);
    inputs(&mut task).outstanding.extend((0..63).map(|key| (Arc::from(key.to_string()), question)));
    inputs(&mut task).spent.extend((1_000..1_959).map(|key| Arc::from(key.to_string())));
    assert_eq!((open_keys(&task).len(), spent_keys(&task).len()), (64, 960));
    let one = replay(&mut task).outcomes.first().cloned().unwrap();
    replay(&mut task).outcomes = vec![one; 32];
    let history = (1..=32).map(|revision| entry(&task, revision)).collect();
    (task.history, task.revision) = (history, 32);
    assert_eq!(check(&task), Ok(()));
}
