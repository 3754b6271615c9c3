//! What one owner, and all together, may keep: at the boundaries.
#![allow(
    clippy::unwrap_used,
    reason = "a test that panics has failed, as it should; clippy.toml covers only functions marked as tests"
)]

mod support;

use std::sync::Arc;

use support::*;
use task_broker_core::{
    Command, Limits, NewTask, Quota, Rejection, Status, Task, Transition, Usage, create, execute,
};

const QUOTA: Quota = Quota { tasks_per_owner: 10, bytes_per_owner: 100_000, max_tasks: 50 };

fn tight() -> Limits {
    Limits { quota: QUOTA, ..limits() }
}

fn owned() -> NewTask {
    new_task()
}

fn ownerless() -> NewTask {
    NewTask { owner: None, ..new_task() }
}

fn make(new: NewTask, usage: Usage) -> Result<Transition, Rejection> {
    create(new, &worker(), &tight(), &usage, START)
}

/// Usage of an owner whose bytes are used up but for `free`.
fn all_but(free: u64) -> Usage {
    Usage { owner_tasks: 1, owner_bytes: QUOTA.bytes_per_owner - free, total_tasks: 1 }
}

fn change(task: &Task, command: &Command, usage: Usage) -> Result<Transition, Rejection> {
    execute(task, &by_worker(command.clone()), &tight(), &usage, at(1_000))
}

fn bytes_used_up() -> Rejection {
    exceeded("quotaBytesPerOwner", QUOTA.bytes_per_owner)
}

/// More than the quota allows, as after a restart with a smaller one.
const FAR_OVER: Usage = Usage { owner_tasks: 1_000, owner_bytes: u64::MAX, total_tasks: u64::MAX };

fn length(text: &str) -> u64 {
    u64::try_from(text.len()).unwrap()
}

#[test]
fn a_task_counts_its_payloads_its_names_and_a_fixed_share() {
    let fixed = 512 + length("report");
    let arguments = length(r#"{"q":1}"#);
    let plain = task();
    assert_eq!(plain.footprint(), fixed + arguments);
    let asked = after(&plain, &require_keys(["key", "other"]));
    assert_eq!(asked.footprint(), fixed + arguments + 2 * length(QUESTION) + length("keyother"));
    let partly = after(&asked, &apply_input(&[("key", ANSWER)]));
    let inputs = length(QUESTION) + length(ANSWER) + length("keyother");
    assert_eq!(partly.footprint(), fixed + arguments + inputs, "an answer takes the place of its question");
    let ended = after(&partly, &complete());
    let result = length(r#"{"content":[]}"#);
    assert_eq!(ended.footprint(), fixed + arguments + length(ANSWER) + length("keyother") + result);
    let with_meta = after(&ended, &set_meta(r#"{"a":1}"#));
    assert_eq!(with_meta.footprint(), ended.footprint() + 7);
}

#[test]
fn messages_history_and_outcomes_do_not_count() {
    let long = "x".repeat(1_024);
    let plain = task();
    assert_eq!(after(&plain, &cancel(Some(&long))).footprint(), plain.footprint());
    assert_eq!(after(&plain, &set_status(Status::Working, Some(&long))).footprint(), plain.footprint());
}

#[test]
fn an_owner_may_have_so_many_tasks_and_not_one_more() {
    let usage = |owner_tasks| Usage { owner_tasks, owner_bytes: 0, total_tasks: 0 };
    assert!(make(owned(), usage(9)).is_ok());
    assert_eq!(make(owned(), usage(10)).unwrap_err(), exceeded("quotaTasksPerOwner", 10));
    assert_eq!(make(owned(), usage(u64::MAX)).unwrap_err(), exceeded("quotaTasksPerOwner", 10));
}

#[test]
fn all_owners_together_may_have_so_many_tasks_and_not_one_more() {
    let usage = |total_tasks| Usage { owner_tasks: 0, owner_bytes: 0, total_tasks };
    for new in [owned(), ownerless()] {
        assert!(make(new.clone(), usage(49)).is_ok());
        assert_eq!(make(new.clone(), usage(50)).unwrap_err(), exceeded("maxTasks", 50));
        assert_eq!(make(new, usage(u64::MAX)).unwrap_err(), exceeded("maxTasks", 50));
    }
}

#[test]
fn a_new_task_must_fit_into_its_owners_bytes() {
    let footprint = task().footprint();
    assert!(make(owned(), all_but(footprint)).is_ok());
    assert_eq!(make(owned(), all_but(footprint - 1)).unwrap_err(), bytes_used_up());
    let mut over = FAR_OVER;
    (over.owner_tasks, over.total_tasks) = (0, 0);
    assert_eq!(make(owned(), over).unwrap_err(), bytes_used_up());
}

#[test]
fn a_task_without_an_owner_counts_only_against_the_total() {
    let usage = Usage { owner_tasks: u64::MAX, owner_bytes: u64::MAX, total_tasks: 49 };
    let task = written(make(ownerless(), usage).unwrap());
    assert_eq!(task.owner, None);
    for command in [set_meta(r#"{"a":1}"#), require_keys(["k"]), complete()] {
        assert!(change(&task, &command, FAR_OVER).is_ok(), "{command:?}");
    }
    let empty = NewTask { owner: Some(Arc::from("")), ..new_task() };
    assert!(make(empty, usage).is_err(), "the empty subject is an owner like any other");
}

#[test]
fn a_task_may_grow_into_the_last_byte_and_not_further() {
    let asked = after(&task(), &require_input(&[("k", r#"{"m":1}"#)], AskAgain));
    for (command, growth) in [
        (set_meta(r#"{"a":1}"#), 7),
        (require_input(&[("k", r#"{"m":1}"#), ("new", r#"{"m":2}"#)], AskAgain), 7 + 3),
        (require_input(&[("other", r#"{"m":1}"#)], AskAgain), 5),
        (apply_input(&[("k", r#"{"m":1,"n":2}"#)]), 6),
        (Command::Complete { result: payload_of(100) }, 100 - 7),
    ] {
        assert!(change(&asked, &command, all_but(growth)).is_ok(), "{command:?}");
        let decided = change(&asked, &command, all_but(growth - 1));
        assert_eq!(decided.unwrap_err(), bytes_used_up(), "{command:?}");
    }
}

#[test]
fn a_task_that_shrinks_or_stays_is_never_refused() {
    let asked = after_all(&task(), &[set_meta(r#"{"long":"meta"}"#), require_keys(["k", "l"])]);
    for command in [
        set_meta("{}"),
        require_keys(["k"]),
        answer_keys(["k"]),
        answer_keys(["nothing"]),
        set_status(Status::Working, Some("Going on")),
        set_ttl(1_234),
        complete(),
        fail("broken"),
        cancel(Some("enough")),
        Command::Discard,
    ] {
        assert!(change(&asked, &command, FAR_OVER).is_ok(), "{command:?}");
    }
}

#[test]
fn a_cancel_is_never_refused_for_the_quota() {
    let asked = after(&task(), &require_keys(["k"]));
    for before in [task(), asked.clone(), after(&asked, &complete()), after(&asked, &cancel(None))] {
        for reason in [None, Some("x".repeat(5_000))] {
            assert!(change(&before, &cancel(reason.as_deref()), FAR_OVER).is_ok());
        }
    }
}

#[test]
fn a_small_failure_is_never_refused_so_that_a_worker_can_say_that_its_result_did_not_fit() {
    let task = task();
    let failing = |bytes| Command::Fail { error: payload_of(bytes), message: String::new() };
    let completing = |bytes| Command::Complete { result: payload_of(bytes) };
    assert!(change(&task, &completing(2), FAR_OVER).is_err(), "no such grant for a result");
    assert!(change(&task, &failing(4_096), FAR_OVER).is_ok());
    assert!(change(&task, &failing(4_097), FAR_OVER).is_err());
    assert!(change(&task, &failing(4_097), all_but(4_097)).is_ok(), "a larger one must fit");
    assert!(change(&task, &failing(4_097), all_but(4_096)).is_err());

    let ended = after(&task, &failing(10));
    let meta = set_meta(r#"{"a":1}"#);
    let decided = change(&ended, &meta, FAR_OVER);
    // The grant is for failing, not for a task that has failed.
    assert_eq!(decided.unwrap_err(), bytes_used_up());
}

#[test]
fn a_repeated_call_is_not_measured_again() {
    use task_broker_core::digest::Digest;
    use task_broker_core::{Guard, IdempotencyKey, Request};
    let guard = Guard { key: Some(IdempotencyKey::new("k", Digest(1)).unwrap()), expected_revision: None };
    let request = Request { guard, ..by_worker(set_meta(r#"{"a":1}"#)) };
    let first = execute(&task(), &request, &tight(), &NO_USAGE, at(1_000)).unwrap();
    let again = execute(&written(first.clone()), &request, &tight(), &FAR_OVER, at(1_000)).unwrap();
    assert_eq!((again.replayed, again.outcome), (true, first.outcome));
}
