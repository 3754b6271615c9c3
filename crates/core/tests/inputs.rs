//! Questions and answers: keys that are asked again under both promises, superseded keys, hidden questions.
//! The bounds of both are in `input_limits.rs`.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that panics has failed, as it should; clippy.toml covers only functions marked as tests"
)]

mod support;

use support::*;
use task_broker_core::{Command, Detail, Effect, Phase, Rejection, Status, Task};

/// The question that most tests ask first.
const FIRST: &str = r#"{"method":"elicitation/create","params":{"message":"first?","max":1}}"#;
/// Another one.
const SECOND: &str = r#"{"method":"elicitation/create","params":{"message":"second?","max":1}}"#;

/// What an applyInput accepted and what is still open after it.
fn tally(task: &Task, command: &Command) -> (Vec<String>, Vec<String>) {
    let transition = decide(task, command).unwrap();
    let Detail::Inputs { accepted, outstanding } = transition.outcome.detail else {
        panic!("an applyInput tells what it accepted: {:?}", transition.outcome)
    };
    let text = |keys: Vec<_>| keys.iter().map(ToString::to_string).collect();
    (text(accepted), text(outstanding))
}

fn strings(keys: &[&str]) -> Vec<String> {
    keys.iter().map(ToString::to_string).collect()
}

fn shown(task: &Task) -> Vec<&str> {
    keys(task.shown_questions())
}

fn answered() -> Task {
    after_all(&task(), &[require_input(&[("k", FIRST)], AskAgain), apply_input(&[("k", ANSWER)])])
}

#[test]
fn every_open_question_is_shown_and_not_only_the_newest() {
    let asked = after(&task(), &require_input(&[("region", FIRST), ("approval", SECOND)], AskAgain));
    assert_eq!(shown(&asked), ["approval", "region"]);
    assert_eq!(asked.status(), Status::InputRequired);
    assert!(question_of(&asked, "region").matches(FIRST.as_bytes()));
    assert!(question_of(&asked, "approval").matches(SECOND.as_bytes()));
}

#[test]
fn a_partial_answer_leaves_the_rest_open_and_the_last_answer_resumes_the_task() {
    let asked = after(&task(), &require_keys(["a", "b", "c"]));
    let part = answer_keys(["c", "a"]);
    assert_eq!(tally(&asked, &part), (strings(&["a", "c"]), strings(&["b"])), "both sorted");
    let partly = after(&asked, &part);
    assert_eq!((partly.status(), shown(&partly)), (Status::InputRequired, vec!["b"]));

    let rest = answer_keys(["b"]);
    assert_eq!(tally(&partly, &rest), (strings(&["b"]), vec![]));
    let resumed = after(&partly, &rest);
    assert_eq!((resumed.status(), &*resumed.message), (Status::Working, "Task resumed"));
    assert_eq!(keys(resumed.answers()), ["a", "b", "c"]);
}

#[test]
fn unknown_answered_and_superseded_keys_are_ignored() {
    let asked = after_all(
        &task(),
        &[require_keys(["approval", "stale"]), answer_keys(["approval"]), require_keys(["region"])],
    );
    let late = answer_keys(["never-issued", "approval", "stale"]);
    assert_eq!(tally(&asked, &late), (vec![], strings(&["region"])));
    let transition = decide(&asked, &late).unwrap();
    assert!(transition.outcome.applied, "the task is live, so the command was carried out");
    assert_eq!(transition.effect, Effect::None, "an update that is ignored as a whole changes nothing");

    let mixed = apply_input(&[("stale", r#""late""#), ("approval", r#""late""#), ("region", r#""new""#)]);
    assert_eq!(tally(&asked, &mixed), (strings(&["region"]), vec![]));
    let next = after(&asked, &mixed);
    assert_eq!(answer_of(&next, "approval"), answer_of(&asked, "approval"), "an earlier answer stays");
    assert_eq!(answer_of(&next, "stale"), None);
}

#[test]
fn no_answers_at_all_change_nothing() {
    for before in [task(), after(&task(), &require_keys(["a"]))] {
        let transition = decide(&before, &answer_keys([""; 0])).unwrap();
        assert_eq!((transition.outcome.applied, transition.effect), (true, Effect::None));
    }
}

#[test]
fn a_key_that_is_left_out_of_the_next_question_is_superseded() {
    let first = after(&task(), &require_keys(["a", "b"]));
    let transition = decide(&first, &require_keys(["b", "c"])).unwrap();
    let (_, dropped) = payload_changes(&transition);
    assert_eq!(dropped, [question_of(&first, "a")], "its question goes, the carried one stays where it is");
    let second = written(transition);
    assert_eq!((open_keys(&second), spent_keys(&second)), (vec!["b", "c"], vec!["a"]));
    assert_eq!(question_of(&second, "b"), question_of(&first, "b"));
    assert_eq!(tally(&second, &answer_keys(["a"])), (vec![], strings(&["b", "c"])));
}

#[test]
fn answers_of_earlier_rounds_are_kept_for_the_resumed_handler() {
    let done = after_all(
        &task(),
        &[
            require_keys(["one"]),
            apply_input(&[("one", r#""first""#)]),
            require_keys(["two"]),
            apply_input(&[("two", r#""second""#)]),
        ],
    );
    assert_eq!(keys(done.answers()), ["one", "two"]);
    assert!(answer_of(&done, "one").unwrap().matches(br#""first""#));
    assert!(answer_of(&done, "two").unwrap().matches(br#""second""#));
}

// Promise one: ask again.

#[test]
fn asking_again_makes_a_fresh_question_and_drops_the_earlier_answer() {
    let before = answered();
    let earlier = answer_of(&before, "k").unwrap();
    let transition = decide(&before, &require_input(&[("k", SECOND)], AskAgain)).unwrap();
    let (new, dropped) = payload_changes(&transition);
    assert_eq!((new.len(), dropped), (1, vec![earlier]));
    let again = written(transition);
    assert_eq!((open_keys(&again), spent_keys(&again)), (vec!["k"], vec![]));
    assert_eq!(
        answer_of(&again, "k"),
        None,
        "the answer to the first question is never the answer to the second"
    );

    let answer = apply_input(&[("k", r#""newer""#)]);
    assert_eq!(tally(&again, &answer), (strings(&["k"]), vec![]));
    assert!(answer_of(&after(&again, &answer), "k").unwrap().matches(br#""newer""#));
}

#[test]
fn asking_the_very_same_question_again_after_its_answer_is_a_fresh_question_too() {
    let again = after(&answered(), &require_input(&[("k", FIRST)], AskAgain));
    assert_eq!((again.status(), answer_of(&again, "k")), (Status::InputRequired, None));
    assert_eq!(tally(&again, &answer_keys(["k"])), (strings(&["k"]), vec![]));
}

#[test]
fn asking_again_brings_a_superseded_key_back() {
    let again = after_all(&task(), &[require_keys(["a"]), require_keys(["b"]), require_keys(["a"])]);
    assert_eq!((open_keys(&again), spent_keys(&again)), (vec!["a"], vec!["b"]));
}

#[test]
fn asking_something_else_under_an_open_key_replaces_the_question() {
    let before = after(&task(), &require_input(&[("k", FIRST)], AskAgain));
    let transition = decide(&before, &require_input(&[("k", SECOND)], AskAgain)).unwrap();
    let (new, dropped) = payload_changes(&transition);
    assert_eq!(dropped, [question_of(&before, "k")]);
    let next = written(transition);
    assert_eq!(new, [question_of(&next, "k")]);
    assert!(question_of(&next, "k").matches(SECOND.as_bytes()));
    assert_eq!(spent_keys(&next), [""; 0], "the key is open, not used up");
}

#[test]
fn asking_the_same_open_question_again_changes_nothing() {
    let before = after(&task(), &require_input(&[("k", FIRST)], AskAgain));
    for on_spent in [AskAgain, Reject] {
        let transition = decide(&before, &require_input(&[("k", FIRST)], on_spent)).unwrap();
        assert_eq!((transition.outcome.applied, transition.effect), (true, Effect::None));
    }
    let transition = decide(&before, &require_input_saying(&[("k", FIRST)], "Well?")).unwrap();
    assert_eq!(payload_changes(&transition), (vec![], vec![]), "the question is kept where it is");
    let next = written(transition);
    assert_eq!((next.revision, &*next.message), (before.revision + 1, "Well?"), "only the message changed");
}

// Promise two: reject.

fn refused(before: &Task, questions: &[(&str, &str)], why: &str) {
    let decided = decide(before, &require_input(questions, Reject));
    assert!(is_invalid_transition(&decided), "{why}: {decided:?}");
}

#[test]
fn reject_refuses_a_key_that_was_answered() {
    refused(&answered(), &[("k", SECOND)], "another question under an answered key");
    refused(&answered(), &[("k", FIRST)], "the same question under an answered key");
}

#[test]
fn reject_refuses_a_key_that_was_superseded() {
    let before = after_all(&task(), &[require_keys(["a"]), require_keys(["b"])]);
    refused(&before, &[("a", QUESTION)], "a superseded key");
    refused(&before, &[("a", QUESTION), ("b", QUESTION)], "a superseded key beside an open one");
}

#[test]
fn reject_refuses_another_question_under_an_open_key() {
    let before = after(&task(), &require_input(&[("k", FIRST)], Reject));
    refused(&before, &[("k", SECOND)], "another question");
    for (other, why) in [
        (r#"{"method":"elicitation/create","params":{"message":"first?","max":1.0}}"#, "1 is not 1.0"),
        (r#"{"method":"elicitation/create","params":{"message":"first?","max":1e0}}"#, "1 is not 1e0"),
        (r#"{"method":"elicitation/create","params":{"message":"first?","max":"1"}}"#, "1 is not a string"),
        (r#"{"method":"elicitation/create","params":{"message":"first?","max":[1]}}"#, "1 is not an array"),
        (r#"{"method":"elicitation/create","params":{"message":"first?"}}"#, "a member less"),
        (
            r#"{"method":"elicitation/create","params":{"message":"first?","max":1,"x":null}}"#,
            "a member more",
        ),
        (
            r#"{"method":"elicitation/create","params":{"message":"first? ","max":1}}"#,
            "space inside a string",
        ),
    ] {
        refused(&before, &[("k", other)], why);
    }
}

#[test]
fn numbers_of_a_carried_question_are_compared_by_their_text() {
    for (first, second) in [("100", "1e2"), ("0", "-0"), ("12345678901234567890", "12345678901234567891")] {
        let question = |number: &str| format!(r#"{{"method":"m","n":{number}}}"#);
        let before = after(&task(), &require_input(&[("k", &question(first))], Reject));
        refused(&before, &[("k", &question(second))], "the text of a number changed");
    }
}

#[test]
fn reject_carries_an_open_question_whatever_its_white_space_and_member_order() {
    let before = after(&task(), &require_input(&[("k", FIRST)], Reject));
    for same in [
        FIRST,
        "{\"params\": {\"max\": 1, \"message\": \"first?\"},\r\n\t\"method\": \"elicitation/create\"}",
        r#"{"method":"elicitation\/create","params":{"message":"\u0066irst?","max":1}}"#,
    ] {
        let next = after(&before, &require_input(&[("k", same), ("more", SECOND)], Reject));
        assert_eq!(open_keys(&next), ["k", "more"], "{same}");
        assert!(question_of(&next, "k").matches(same.as_bytes()), "what was sent last is shown: {same}");
        assert_eq!(answer_of(&next, "k"), None);
    }
}

#[test]
fn reject_changes_nothing_at_all_when_one_of_many_keys_is_used() {
    let before = after_all(&task(), &[require_keys(["used"]), answer_keys(["used"]), require_keys(["open"])]);
    let copy = before.clone();
    refused(&before, &[("fresh", QUESTION), ("open", QUESTION), ("used", QUESTION)], "one of three");
    assert_eq!(before, copy);
    let next = after(&before, &require_input(&[("fresh", QUESTION), ("open", QUESTION)], Reject));
    assert_eq!(open_keys(&next), ["fresh", "open"], "the same call without that key is fine");
}

#[test]
fn reject_lets_new_keys_through_and_supersedes_those_left_out() {
    let before = after(&task(), &require_input(&[("a", FIRST)], Reject));
    let next = after(&before, &require_input(&[("b", FIRST)], Reject));
    assert_eq!((open_keys(&next), spent_keys(&next)), (vec!["b"], vec!["a"]));
    refused(&next, &[("a", FIRST)], "a is used up now");
}

#[test]
fn a_key_that_was_asked_again_counts_as_open_for_reject() {
    let before = after(&answered(), &require_input(&[("k", SECOND)], AskAgain));
    let same = decide(&before, &require_input(&[("k", SECOND)], Reject)).unwrap();
    assert!(same.outcome.applied, "an open question can be carried, however its key came to be open");
    refused(&before, &[("k", FIRST)], "the open question is the second one");
}

// Working with open questions.

#[test]
fn set_status_working_hides_open_questions_and_keeps_them_answerable() {
    let asked = after(&task(), &require_keys(["a", "b"]));
    let hidden = after(&asked, &set_status(Status::Working, Some("Looking elsewhere")));
    assert_eq!((hidden.status(), shown(&hidden)), (Status::Working, vec![]));
    assert_eq!(open_keys(&hidden), ["a", "b"]);
    assert_eq!(tally(&hidden, &answer_keys(["nothing"])), (vec![], strings(&["a", "b"])), "still listed");

    let partly = after(&hidden, &answer_keys(["a"]));
    assert_eq!((partly.phase, &*partly.message), (Phase::Working, "Looking elsewhere"));
    assert_eq!(keys(partly.answers()), ["a"]);

    let shown_again = after(&partly, &set_status(Status::InputRequired, None));
    assert_eq!((shown_again.status(), shown(&shown_again)), (Status::InputRequired, vec!["b"]));

    let all = after(&partly, &answer_keys(["b"]));
    assert_eq!((all.phase, &*all.message), (Phase::Working, "Looking elsewhere"), "it was working all along");
    assert!(is_invalid_transition(&decide(&all, &set_status(Status::InputRequired, None))));
}

#[test]
fn asking_again_while_the_questions_are_hidden_shows_them() {
    let hidden = after_all(
        &task(),
        &[require_keys(["a"]), set_status(Status::Working, Some("Awaiting client input"))],
    );
    let transition = decide(&hidden, &require_keys(["a"])).unwrap();
    assert_eq!(payload_changes(&transition), (vec![], vec![]));
    let next = written(transition);
    assert_eq!((next.status(), shown(&next), next.revision), (Status::InputRequired, vec!["a"], 4));
}

// The end.

#[test]
fn the_end_of_a_task_closes_its_questions_and_keeps_its_answers() {
    let asked = after_all(&task(), &[require_keys(["a", "b", "c"]), answer_keys(["a"])]);
    let hidden = after(&asked, &set_status(Status::Working, None));
    for before in [asked, hidden] {
        for ending in endings() {
            let transition = decide(&before, &ending).unwrap();
            let (_, dropped) = payload_changes(&transition);
            assert_eq!(dropped, [question_of(&before, "b"), question_of(&before, "c")], "{ending:?}");
            let ended = written(transition);
            assert_eq!((open_keys(&ended), shown(&ended)), (vec![], vec![]), "{ending:?}");
            assert_eq!(spent_keys(&ended), ["a", "b", "c"], "{ending:?}");
            assert_eq!(keys(ended.answers()), ["a"], "{ending:?}");
        }
    }
}

#[test]
fn after_the_end_nothing_is_asked_and_every_answer_is_ignored() {
    for ending in endings() {
        let ended = after_all(&task(), &[require_keys(["a"]), ending]);
        let late = decide(&ended, &answer_keys(["a"])).unwrap();
        assert_eq!((late.outcome.applied, &late.effect), (false, &Effect::None));
        let nothing = Detail::Inputs { accepted: vec![], outstanding: vec![] };
        assert_eq!(late.outcome.detail, nothing, "everything is ignored");
        for on_spent in [AskAgain, Reject] {
            let late = decide(&ended, &require_input(&[("a", FIRST)], on_spent)).unwrap();
            assert_eq!((late.outcome.applied, &late.effect), (false, &Effect::None));
        }
    }
}

#[test]
fn a_call_that_asks_nothing_is_refused_in_every_status() {
    let asked = after(&task(), &require_keys(["a"]));
    for before in [task(), asked.clone(), after(&asked, &complete())] {
        let rejection = decide(&before, &require_keys([""; 0])).unwrap_err();
        assert_eq!(member_at_fault(&rejection), Some("inputRequests"), "{rejection:?}");
        assert!(matches!(rejection, Rejection::InvalidParams { .. }));
    }
}
