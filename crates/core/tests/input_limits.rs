//! How many questions may be open, and how many keys a task may use up: at their boundaries.
#![allow(
    clippy::unwrap_used,
    reason = "a test that panics has failed, as it should; clippy.toml covers only functions marked as tests"
)]

mod support;

use support::*;
use task_broker_core::{Effect, Status, Task};

/// So many different keys, from `first` on.
fn numbered(first: usize, count: usize) -> Vec<String> {
    (first..first + count).map(|number| format!("key-{number:04}")).collect()
}

/// A task whose keys 0 to `count - 1` are all used: answered in rounds of 64.
fn used_up(count: usize) -> Task {
    let mut task = task();
    for first in (0..count).step_by(64) {
        let round = numbered(first, 64.min(count - first));
        task = after_all(&task, &[require_keys(&round), answer_keys(&round)]);
    }
    assert_eq!(spent_keys(&task).len(), count);
    task
}

#[test]
fn sixty_four_questions_may_be_open_and_one_more_may_not() {
    let full = after(&task(), &require_keys(numbered(0, 64)));
    assert_eq!(open_keys(&full).len(), 64);
    let decided = decide(&task(), &require_keys(numbered(0, 65)));
    assert_eq!(decided.unwrap_err(), exceeded("maxOutstandingInputs", 64));
}

#[test]
fn open_questions_are_replaced_and_do_not_add_up() {
    let full = after(&task(), &require_keys(numbered(0, 64)));
    let next = after(&full, &require_keys(numbered(32, 64)));
    assert_eq!((open_keys(&next).len(), spent_keys(&next).len()), (64, 32));
}

#[test]
fn a_task_may_use_1024_keys_and_not_one_more() {
    let full = used_up(1024);
    for on_spent in [AskAgain, Reject] {
        let decided = decide(&full, &require_input(&[("one-more", QUESTION)], on_spent));
        assert_eq!(decided.unwrap_err(), exceeded("maxSpentInputs", 1024));
    }
    let one_less = used_up(1023);
    let asked = after(&one_less, &require_keys(["the-last"]));
    assert_eq!((open_keys(&asked).len(), spent_keys(&asked).len()), (1, 1023));
    assert!(decide(&one_less, &require_keys(["the-last", "one-more"])).is_err());
}

#[test]
fn open_questions_count_because_they_will_be_spent() {
    let open = after(&used_up(1000), &require_keys(numbered(1000, 24)));
    let copy = open.clone();
    let decided = decide(&open, &require_keys(["one-more"]));
    assert_eq!(decided.unwrap_err(), exceeded("maxSpentInputs", 1024), "the 24 would be superseded");
    assert_eq!(open, copy, "and they are still open");
    let fewer = after(&open, &require_keys(numbered(1000, 12)));
    assert_eq!((open_keys(&fewer).len(), spent_keys(&fewer).len()), (12, 1012));
    assert!(decide(&fewer, &require_keys(["one-more"])).is_err(), "a superseded key stays used");
}

#[test]
fn a_task_that_has_used_all_its_keys_may_ask_under_them_again() {
    let again = after(&used_up(1024), &require_keys(numbered(500, 64)));
    assert_eq!((open_keys(&again).len(), spent_keys(&again).len()), (64, 960));
    let answered = after(&again, &answer_keys(numbered(500, 64)));
    assert_eq!((answered.status(), spent_keys(&answered).len()), (Status::Working, 1024));
}

#[test]
fn neither_an_answer_nor_the_end_of_a_task_is_ever_refused_for_its_keys() {
    let full = after(&used_up(960), &require_keys(numbered(960, 64)));
    assert_eq!((open_keys(&full).len(), spent_keys(&full).len()), (64, 960));
    for ending in endings() {
        assert_eq!(spent_keys(&after(&full, &ending)).len(), 1024, "{ending:?}");
    }
    let some = after(&full, &answer_keys(numbered(960, 10)));
    assert_eq!((open_keys(&some).len(), spent_keys(&some).len()), (54, 970));
    let all = after(&some, &answer_keys(numbered(960, 64)));
    assert_eq!((all.status(), spent_keys(&all).len()), (Status::Working, 1024));
    for ending in endings() {
        assert!(after(&all, &ending).status().is_terminal(), "{ending:?}");
    }
}

#[test]
fn answers_under_any_number_of_unknown_keys_are_ignored_not_refused() {
    let asked = after(&task(), &require_keys(["a"]));
    let transition = decide(&asked, &answer_keys(numbered(0, 5000))).unwrap();
    assert_eq!((transition.outcome.applied, transition.effect), (true, Effect::None));
}

#[test]
fn an_input_key_may_have_128_bytes_and_not_one_more() {
    // Two bytes each: bytes count, not characters.
    let (longest, too_long) = ("é".repeat(64), format!("{}x", "é".repeat(64)));
    let asked = after(&task(), &require_keys([&longest]));
    assert_eq!(after(&asked, &answer_keys([&longest])).status(), Status::Working);

    for before in [&asked, &after(&asked, &complete())] {
        let rejection = decide(before, &require_keys(["short", &too_long])).unwrap_err();
        assert_eq!(member_at_fault(&rejection), Some("inputRequests"));
        let rejection = decide(before, &answer_keys(["short", &too_long])).unwrap_err();
        assert_eq!(member_at_fault(&rejection), Some("inputResponses"));
    }
}
