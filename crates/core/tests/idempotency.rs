//! Repeated and stale calls: idempotency keys and expected revisions.
#![allow(
    clippy::unwrap_used,
    reason = "a test that panics has failed, as it should; clippy.toml covers only functions marked as tests"
)]

mod support;

use std::sync::Arc;

use support::*;
use task_broker_core::digest::{Digest, canonical};
use task_broker_core::{
    Caller, Command, Detail, Effect, Guard, IdempotencyKey, NewTask, Rejection, Request, Right, Status, Task,
    Transition, execute, replay_create,
};

fn key(name: &str, says: &str) -> IdempotencyKey {
    IdempotencyKey::new(name, canonical(says.as_bytes()).unwrap()).unwrap()
}

/// The worker's call of a command, under a key. What the call says is told apart by `says`, a JSON text.
fn keyed(command: Command, name: &str, says: &str) -> Request {
    let guard = Guard { key: Some(key(name, says)), expected_revision: None };
    Request { guard, ..by_worker(command) }
}

fn expecting(revision: u64, request: Request) -> Request {
    Request { guard: Guard { expected_revision: Some(revision), ..request.guard }, ..request }
}

fn remembered(task: &Task) -> Vec<&str> {
    let outcomes = task.replay.iter().flat_map(|replay| &replay.outcomes);
    outcomes.map(|remembered| &**remembered.key.key()).collect()
}

fn is_replay_of(first: &Transition, again: &Transition) -> bool {
    again.replayed && again.outcome == first.outcome && again.effect == Effect::None
}

#[test]
fn a_repeated_call_gets_the_first_outcome_again_and_has_no_effect() {
    let before = after(&task(), &require_keys(["a", "b"]));
    for command in [
        require_keys(["c"]),
        answer_keys(["a"]),
        set_status(Status::Working, Some("On it")),
        set_ttl(50_000),
        set_meta("{}"),
        complete(),
        fail("broken"),
        cancel(Some("enough")),
    ] {
        let request = keyed(command, "k", "1");
        let first = run(&before, &request).unwrap();
        assert!(first.outcome.applied && !first.replayed);
        let task = written(first.clone());
        let again = execute(&task, &request, &limits(), &NO_USAGE, at(9_000)).unwrap();
        assert!(is_replay_of(&first, &again), "{:?}: {again:?}", request.command);

        // And once more after the task has moved on.
        let moved = after(&task, &set_ttl(40_000));
        let moved = after(&moved, &cancel(None));
        let again = execute(&moved, &request, &limits(), &NO_USAGE, at(9_000)).unwrap();
        assert!(is_replay_of(&first, &again), "{:?}: {again:?}", request.command);
    }
}

#[test]
fn a_replay_tells_details_as_they_were() {
    let asked = after(&task(), &require_keys(["a", "b"]));
    let answer = keyed(answer_keys(["a"]), "answer", "1");
    let first = run(&asked, &answer).unwrap();
    let all = after(&written(first), &answer_keys(["b"]));
    let detail = Detail::Inputs { accepted: vec![Arc::from("a")], outstanding: vec![Arc::from("b")] };
    let again = run(&all, &answer).unwrap();
    assert_eq!((again.outcome.status, again.outcome.detail), (Status::InputRequired, detail));

    let ttl = keyed(set_ttl(50_000), "ttl", "1");
    let task = written(run(&asked, &ttl).unwrap());
    let again = execute(&task, &ttl, &limits(), &NO_USAGE, at(30_000)).unwrap();
    assert_eq!(again.outcome.detail, Detail::Ttl { ttl_ms: 50_000, remaining_ms: 49_000 });
}

#[test]
fn the_same_key_with_another_call_is_a_mismatch_and_changes_nothing() {
    let task = written(run(&task(), &keyed(set_meta("{}"), "k", "1")).unwrap());
    for request in [keyed(set_meta("{}"), "k", "2"), keyed(complete(), "k", "[1]")] {
        assert_eq!(run(&task, &request).unwrap_err(), Rejection::IdempotencyMismatch);
    }
    for other in ["K", "k ", "kk"] {
        let transition = run(&task, &keyed(complete(), other, "2")).unwrap();
        assert!(!transition.replayed, "keys are compared byte by byte: {other:?}");
    }
}

#[test]
fn the_key_is_stored_in_the_same_write_as_the_transition() {
    let transition = run(&task(), &keyed(complete(), "k", "1")).unwrap();
    let outcome = transition.outcome.clone();
    let task = written(transition);
    let replay = task.replay.as_ref().unwrap();
    assert_eq!(task.status(), Status::Completed);
    assert_eq!(replay.outcomes.len(), 1);
    assert_eq!((&replay.outcomes[0].key, &replay.outcomes[0].outcome), (&key("k", "1"), &outcome));
}

#[test]
fn the_key_is_looked_at_before_the_expected_revision() {
    let first = expecting(1, keyed(set_meta("{}"), "k", "1"));
    let task = written(run(&task(), &first).unwrap());
    assert_eq!(task.revision, 2);
    assert!(run(&task, &first).unwrap().replayed, "the first call moved the revision itself");
    let other = expecting(1, keyed(set_meta("{}"), "k", "2"));
    assert_eq!(run(&task, &other).unwrap_err(), Rejection::IdempotencyMismatch);
    let fresh = expecting(1, keyed(set_meta("{}"), "another", "1"));
    assert_eq!(run(&task, &fresh).unwrap_err(), Rejection::RevisionConflict { revision: 2 });
}

#[test]
fn the_expected_revision_must_be_the_one_the_task_has() {
    let live = after_all(&task(), &[set_meta("{}"), set_ttl(1_000_000)]);
    let ended = after(&live, &complete());
    for (task, revision) in [(live, 3), (ended, 4)] {
        for other in [0, revision - 1, revision + 1, u64::MAX] {
            for command in [cancel(None), complete(), Command::Discard, set_status(Status::Failed, None)] {
                let decided = run(&task, &expecting(other, by_worker(command)));
                assert_eq!(decided.unwrap_err(), Rejection::RevisionConflict { revision });
            }
        }
        assert!(run(&task, &expecting(revision, by_worker(cancel(None)))).is_ok());
    }
}

#[test]
fn a_replay_needs_the_same_rights_and_a_living_task() {
    let request = keyed(set_meta("{}"), "k", "1");
    let task = written(run(&task(), &request).unwrap());
    let stranger = Request { caller: Caller::named("bob"), ..request.clone() };
    assert_eq!(run(&task, &stranger).unwrap_err(), Rejection::Foreign);
    let late = execute(&task, &request, &limits(), &NO_USAGE, at(TTL_MS));
    assert_eq!(late.unwrap_err(), Rejection::Expired);
}

#[test]
fn a_key_belongs_to_the_task_and_not_to_the_caller() {
    let request = keyed(cancel(None), "k", "1");
    let first = run(&task(), &request).unwrap();
    let task = written(first.clone());
    let by_owner = Request { caller: Caller::named("alice"), right: Right::Owner, ..request };
    assert!(is_replay_of(&first, &run(&task, &by_owner).unwrap()));
}

#[test]
fn rejections_are_not_stored() {
    let before = task();
    let tight = {
        let mut limits = limits();
        limits.max_payload_bytes = 4;
        limits
    };
    let refused = keyed(set_status(Status::InputRequired, None), "k", "1");
    assert!(is_invalid_transition(&run(&before, &refused)));
    let refused = expecting(7, keyed(complete(), "k", "2"));
    assert!(run(&before, &refused).is_err());
    let refused = keyed(complete(), "k", "3");
    assert!(execute(&before, &refused, &tight, &NO_USAGE, at(1)).is_err());

    let carried_out = run(&before, &keyed(set_meta("{}"), "k", "4")).unwrap();
    assert!(!carried_out.replayed, "the key is still free");
    // The other way round: what was refused once may be carried out under its key later.
    let asked = after_all(&before, &[require_keys(["a"]), set_status(Status::Working, None)]);
    let again = run(&asked, &keyed(set_status(Status::InputRequired, None), "k", "1")).unwrap();
    assert_eq!((again.outcome.applied, again.replayed), (true, false));
}

#[test]
fn a_command_that_changed_nothing_is_stored_without_revision_or_event() {
    let before = after(&task(), &set_meta("{}"));
    for command in [set_ttl(TTL_MS), set_meta("{}"), set_status(Status::Working, None), answer_keys(["x"])] {
        let request = keyed(command, "k", "1");
        let first = run(&before, &request).unwrap();
        assert_eq!((first.outcome.applied, event_of(&first)), (true, None), "{:?}", request.command);
        assert_eq!(payload_changes(&first), (vec![], vec![]));
        let task = written(first.clone());
        assert_eq!(Task { replay: before.replay.clone(), ..task.clone() }, before, "nothing else is written");
        let moved = after(&task, &set_ttl(TTL_MS + 1));
        assert!(is_replay_of(&first, &run(&moved, &request).unwrap()), "{:?}", request.command);
    }
}

#[test]
fn a_command_that_came_too_late_is_stored_too() {
    let ended = after(&task(), &complete());
    let late = keyed(fail("late"), "k", "1");
    let first = run(&ended, &late).unwrap();
    assert_eq!((first.outcome.applied, event_of(&first)), (false, None));
    assert!(is_replay_of(&first, &run(&written(first.clone()), &late).unwrap()));

    let cancel = keyed(cancel(None), "c", "1");
    let first = run(&ended, &cancel).unwrap();
    let noted = written(first.clone());
    assert!(event_of(&first).is_some() && noted.cancel_requested && noted.revision == ended.revision);
    assert!(is_replay_of(&first, &run(&noted, &cancel).unwrap()), "the sign goes out once");
}

#[test]
fn without_a_key_nothing_is_stored() {
    assert_eq!(written(run(&task(), &by_worker(complete())).unwrap()).replay, None);
    assert_eq!(run(&task(), &by_worker(set_ttl(TTL_MS))).unwrap().effect, Effect::None);
}

/// A task that has seen keyed calls `k00`, `k01`, ... each of which changed its TTL.
fn with_outcomes(count: u64) -> Task {
    (0..count).fold(task(), |task, number| {
        written(run(&task, &keyed(set_ttl(10_000 + number), &format!("k{number:02}"), "1")).unwrap())
    })
}

#[test]
fn a_task_keeps_its_newest_32_outcomes() {
    let full = with_outcomes(32);
    assert_eq!(remembered(&full).len(), 32);
    let oldest = keyed(set_ttl(10_000), "k00", "1");
    assert!(run(&full, &oldest).unwrap().replayed);

    let more = with_outcomes(33);
    assert_eq!((remembered(&more).len(), remembered(&more)[0], remembered(&more)[31]), (32, "k01", "k32"));
    let forgotten = run(&more, &oldest).unwrap();
    assert_eq!((forgotten.replayed, forgotten.outcome.revision), (false, more.revision + 1));
    assert!(run(&more, &keyed(set_ttl(10_001), "k01", "1")).unwrap().replayed);
    let other_call = run(&more, &keyed(complete(), "k00", "2")).unwrap();
    assert!(other_call.outcome.applied, "a forgotten key is a free key");
}

#[test]
fn a_replay_makes_its_key_no_younger() {
    let full = with_outcomes(32);
    let oldest = keyed(set_ttl(10_000), "k00", "1");
    let replayed = run(&full, &oldest).unwrap();
    assert_eq!((replayed.replayed, replayed.effect), (true, Effect::None));
    let more = written(run(&full, &keyed(cancel(None), "new", "1")).unwrap());
    assert!(!remembered(&more).contains(&"k00"));
}

#[test]
fn outcomes_that_changed_nothing_take_their_place_among_the_32() {
    let full = with_outcomes(32);
    let same = keyed(set_ttl(full.ttl_ms), "same", "1");
    let next = written(run(&full, &same).unwrap());
    assert_eq!((remembered(&next).len(), next.revision), (32, full.revision));
    assert_eq!(remembered(&next)[31], "same");
}

#[test]
fn a_discarded_task_takes_its_outcomes_along() {
    let before = with_outcomes(3);
    let transition = run(&before, &keyed(Command::Discard, "k", "1")).unwrap();
    assert!(matches!(transition.effect, Effect::Remove { .. }), "nothing is left to keep a key in");
    assert_eq!((transition.outcome.applied, transition.outcome.revision), (true, before.revision + 1));
}

fn created_under(name: &str, says: &str) -> (Task, NewTask) {
    let new = NewTask { key: Some(key(name, says)), ..new_task() };
    (create_as(new.clone(), &worker()), new)
}

#[test]
fn the_same_create_call_finds_its_task_whatever_became_of_it() {
    let (task, new) = created_under("k", "1");
    let ended = after_all(&task, &[set_meta("{}"), complete(), set_ttl(70_000)]);
    for existing in [task, ended] {
        assert_eq!(replay_create(&existing, &new, &worker(), &limits()), Ok(()));
        let full = {
            let mut limits = limits();
            limits.quota.max_tasks = 0;
            limits.quota.tasks_per_owner = 0;
            limits
        };
        assert_eq!(replay_create(&existing, &new, &worker(), &full), Ok(()), "no quota: nothing is created");
    }
}

#[test]
fn another_create_call_under_the_same_key_is_a_mismatch() {
    let (existing, _) = created_under("k", "1");
    let other = NewTask { key: Some(key("k", "2")), ..new_task() };
    let mismatch = Err(Rejection::IdempotencyMismatch);
    assert_eq!(replay_create(&existing, &other, &worker(), &limits()), mismatch);
    assert_eq!(replay_create(&existing, &new_task(), &worker(), &limits()), mismatch, "a call without a key");
    let (_, new) = created_under("k", "1");
    assert_eq!(replay_create(&task(), &new, &worker(), &limits()), mismatch, "a task without a key");
}

#[test]
fn a_create_call_that_would_be_refused_is_refused_under_a_used_key_too() {
    let (existing, new) = created_under("k", "1");
    let without_scope = Caller::named("worker");
    assert_eq!(
        replay_create(&existing, &new, &without_scope, &limits()),
        Err(Rejection::Forbidden { scope: "tasks:delegate" })
    );
    let malformed = NewTask { poll_interval_ms: Some(99), ..new.clone() };
    let rejection = replay_create(&existing, &malformed, &worker(), &limits()).unwrap_err();
    assert_eq!(member_at_fault(&rejection), Some("pollIntervalMs"));
    let oversized = NewTask { meta: Some(payload_of(64 * 1024 + 1)), ..new };
    let rejection = replay_create(&existing, &oversized, &worker(), &limits()).unwrap_err();
    assert_eq!(rejection, exceeded("maxMetaBytes", 64 * 1024));
}

#[test]
fn a_create_key_is_kept_apart_from_the_keys_of_commands_and_lives_as_long_as_the_task() {
    let (mut task, new) = created_under("k", "1");
    assert_eq!(remembered(&task), [""; 0]);
    let transition = run(&task, &keyed(set_meta("{}"), "k", "2")).unwrap();
    assert!(!transition.replayed, "the key of the create call is free for a command");
    for number in 0..40 {
        let request = keyed(set_ttl(50_000 + number), &format!("k{number}"), "1");
        task = written(run(&task, &request).unwrap());
    }
    assert_eq!(remembered(&task).len(), 32);
    assert_eq!(replay_create(&task, &new, &worker(), &limits()), Ok(()));
}

#[test]
fn a_key_has_from_1_to_128_bytes() {
    for (text, fits) in [
        (String::new(), false),
        ("x".to_owned(), true),
        (" ".to_owned(), true),
        ("x".repeat(128), true),
        ("x".repeat(129), false),
        ("é".repeat(64), true),
        (format!("{}x", "é".repeat(64)), false),
    ] {
        match IdempotencyKey::new(&text, Digest(1)) {
            Ok(key) => {
                assert!(fits, "{text}");
                assert_eq!(&**key.key(), text);
            }
            Err(rejection) => {
                assert!(!fits, "{text}");
                assert_eq!(member_at_fault(&rejection), Some("idempotencyKey"));
            }
        }
    }
}
