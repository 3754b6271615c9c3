//! Who may do what: the two matrices, written out.

mod support;

use std::sync::Arc;

use support::*;
use task_broker_core::access::{DELEGATE_SCOPE, allows};
use task_broker_core::{Actor, Caller, Effect, NewTask, Rejection, Request, Right, Subject, Task, may_see};

type Name = Option<&'static str>;

const NONE: Name = None;
const ALICE: Name = Some("alice");
const BOB: Name = Some("bob");
const WORKER: Name = Some("worker");

fn subject(name: Name) -> Subject {
    name.map(Arc::from)
}

fn caller(name: Name) -> Caller {
    name.map_or_else(Caller::anonymous, Caller::named)
}

fn task_of(creator: Name, owner: Name) -> Task {
    let new = NewTask { owner: subject(owner), ..new_task() };
    create_as(new, &caller(creator).with_delegation())
}

/// What the pure function says; `may_see` and `execute` must say the same.
fn may(task: &Task, by: &Caller, right: Right) -> bool {
    let allowed = allows(task, by, right);
    let expected = if allowed { Ok(()) } else { Err(Rejection::Foreign) };
    assert_eq!(may_see(task, by, right, at(1_000)), expected);
    let request = Request { caller: by.clone(), right, ..by_worker(cancel(None)) };
    assert_eq!(run(task, &request).map(|_| ()), expected);
    allowed
}

#[test]
fn an_owner_is_matched_by_equality() {
    for (owner, by, allowed) in [
        (NONE, NONE, true),
        (ALICE, ALICE, true),
        (ALICE, BOB, false),
        (ALICE, NONE, false),
        (NONE, ALICE, false),
    ] {
        // Made by somebody else, so that nobody has the rights of a creator.
        let task = task_of(WORKER, owner);
        assert_eq!(may(&task, &caller(by), Right::Owner), allowed, "owner {owner:?}, caller {by:?}");
    }
}

#[test]
fn a_creator_is_matched_by_equality() {
    for (creator, by, allowed) in [
        (NONE, NONE, true),
        (ALICE, ALICE, true),
        (ALICE, BOB, false),
        (ALICE, NONE, false),
        (NONE, ALICE, false),
    ] {
        // Owned by somebody else, so that nobody has the rights of an owner.
        let task = task_of(creator, WORKER);
        assert_eq!(may(&task, &caller(by), Right::Creator), allowed, "creator {creator:?}, caller {by:?}");
    }
}

#[test]
fn a_creator_with_a_subject_may_use_the_owners_methods_and_an_owner_never_the_creators() {
    for (creator, owner, by, as_owner, as_creator) in [
        (WORKER, ALICE, WORKER, true, true),
        (WORKER, ALICE, ALICE, true, false),
        (WORKER, ALICE, NONE, false, false),
        (WORKER, NONE, WORKER, true, true),
        (WORKER, NONE, NONE, true, false),
        (WORKER, WORKER, WORKER, true, true),
        // A creator without a subject is nobody in particular: as an owner it only has what belongs to nobody.
        (NONE, ALICE, NONE, false, true),
        (NONE, ALICE, ALICE, true, false),
        (NONE, NONE, NONE, true, true),
        (NONE, NONE, WORKER, false, false),
    ] {
        let task = task_of(creator, owner);
        let row = format!("creator {creator:?}, owner {owner:?}, caller {by:?}");
        assert_eq!(may(&task, &caller(by), Right::Owner), as_owner, "{row}, as owner");
        assert_eq!(may(&task, &caller(by), Right::Creator), as_creator, "{row}, as creator");
    }
}

#[test]
fn the_right_to_name_owners_opens_no_task() {
    let task = task_of(WORKER, ALICE);
    for right in [Right::Creator, Right::Owner] {
        assert!(!may(&task, &caller(BOB).with_delegation(), right));
        assert!(!may(&task, &caller(NONE).with_delegation(), right));
    }
}

#[test]
fn subjects_are_compared_byte_by_byte() {
    for (owner, look_alike) in [
        ("", " "),
        ("alice", "Alice"),
        ("alice", "alice "),
        ("alice", "alice\0"),
        ("alice", "alic\u{0435}"),
        ("caf\u{e9}", "cafe\u{301}"),
    ] {
        let task = task_of(Some("another"), Some(owner));
        assert!(may(&task, &caller(Some(owner)), Right::Owner));
        assert!(!may(&task, &caller(Some(look_alike)), Right::Owner), "{owner:?} and {look_alike:?}");
    }
}

#[test]
fn nobody_is_not_the_empty_subject() {
    let of_nobody = task_of(NONE, NONE);
    let of_empty = task_of(Some(""), Some(""));
    for right in [Right::Creator, Right::Owner] {
        assert!(may(&of_nobody, &caller(NONE), right));
        assert!(!may(&of_nobody, &caller(Some("")), right));
        assert!(may(&of_empty, &caller(Some("")), right));
        assert!(!may(&of_empty, &caller(NONE), right));
    }
    let new = |owner| NewTask { owner: subject(owner), ..new_task() };
    assert_eq!(create_as(new(Some("")), &worker()).owner, Some(Arc::from("")), "and it is kept as it is");
    assert_eq!(create_as(new(NONE), &worker()).owner, None);
}

#[test]
fn creating_for_anybody_but_oneself_needs_the_scope() {
    for (creator, owner, without_scope) in [
        (ALICE, ALICE, true),
        (ALICE, BOB, false),
        (ALICE, NONE, false),
        (ALICE, Some(""), false),
        (NONE, NONE, true),
        (NONE, ALICE, false),
        (NONE, Some(""), false),
        (Some(""), NONE, false),
    ] {
        let new = || NewTask { owner: subject(owner), ..new_task() };
        let make = |by: Caller| task_broker_core::create(new(), &by, &limits(), &NO_USAGE, START);
        let row = format!("{creator:?} for {owner:?}");

        let plain = make(caller(creator)).map(written);
        assert_eq!(plain.is_ok(), without_scope, "{row}");
        if let Err(rejection) = plain {
            assert_eq!(rejection, Rejection::Forbidden { scope: "tasks:delegate" }, "{row}");
        }
        let delegated = make(caller(creator).with_delegation()).map(written).unwrap();
        assert_eq!((delegated.creator, delegated.owner), (subject(creator), subject(owner)), "{row}");
    }
    assert_eq!(DELEGATE_SCOPE, "tasks:delegate");
}

#[test]
fn history_tells_in_which_role_a_task_was_changed() {
    let asked = after(&task_of(WORKER, ALICE), &require_keys(["k"]));
    let request = Request { caller: caller(ALICE), right: Right::Owner, ..by_worker(answer_keys(["k"])) };
    let answered = written(run(&asked, &request).unwrap());
    assert_eq!(
        answered.history.iter().map(|entry| entry.by).collect::<Vec<_>>(),
        [Actor::Creator, Actor::Creator, Actor::Owner]
    );
    // A creator that uses an owner's method acts as an owner.
    let request = Request { right: Right::Owner, ..by_worker(cancel(None)) };
    let cancelled = written(run(&answered, &request).unwrap());
    assert_eq!(cancelled.history.last().map(|entry| entry.by), Some(Actor::Owner));
}

#[test]
fn a_foreign_caller_learns_nothing_but_that_whatever_it_tries() {
    let ended = after_all(&task_of(WORKER, ALICE), &[require_keys(["k"]), complete()]);
    for task in [task_of(WORKER, ALICE), ended] {
        for command in [
            require_keys([""; 0]),
            answer_keys(["k"]),
            set_status(task_broker_core::Status::Completed, None),
            set_ttl(0),
            set_meta("{}"),
            complete(),
            fail("x"),
            cancel(None),
            task_broker_core::Command::Discard,
        ] {
            // Not even that the revision is another one, that the call is malformed, or that the task has expired.
            let mut request = Request { caller: caller(BOB), ..by_worker(command) };
            request.guard.expected_revision = Some(99);
            for now in [at(1_000), at(TTL_MS)] {
                let decided = task_broker_core::execute(&task, &request, &limits(), &NO_USAGE, now);
                assert_eq!(decided.unwrap_err(), Rejection::Foreign, "{:?}", request.command);
            }
        }
        let seen = run(&task, &by_worker(set_ttl(1))).unwrap();
        assert!(matches!(seen.effect, Effect::Write { .. }), "the worker's own call goes through");
    }
}

#[test]
fn only_an_administrator_may_export_and_delegation_is_not_enough() {
    use task_broker_core::access::{ADMIN_SCOPE, may_export};
    for caller in [Caller::anonymous(), Caller::named("alice"), Caller::named("server").with_delegation()] {
        assert_eq!(may_export(&caller), Err(Rejection::Forbidden { scope: ADMIN_SCOPE }), "{caller:?}");
    }
    assert_eq!(may_export(&Caller::named("boss").with_administration()), Ok(()));
}
