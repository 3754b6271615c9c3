//! TTL and clock, the length of messages, the history, and the bounds of what a call carries.
//! Quotas are in `quotas.rs`, the bounds of input keys in `input_limits.rs`.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that panics has failed, as it should; clippy.toml covers only functions marked as tests"
)]

mod support;

use std::sync::Arc;

use support::*;
use task_broker_core::{
    Actor, Command, Detail, Effect, EventKind, Limits, NewTask, Rejection, Request, Status, Task, Timestamp,
    TtlWish, apply, create, execute, may_see, standard_message,
};

fn unbounded_ttl() -> Limits {
    Limits { max_ttl_ms: u64::MAX, ..limits() }
}

fn with_ttl(ttl: TtlWish, limits: &Limits) -> Task {
    written(create(NewTask { ttl, ..new_task() }, &worker(), limits, &NO_USAGE, START).unwrap())
}

fn ttl_told(task: &Task, ttl_ms: u64, limits: &Limits, now: Timestamp) -> (u64, u64) {
    let transition = execute(task, &by_worker(set_ttl(ttl_ms)), limits, &NO_USAGE, now).unwrap();
    let Detail::Ttl { ttl_ms, remaining_ms } = transition.outcome.detail else {
        panic!("a setTtl tells the TTL in force: {:?}", transition.outcome)
    };
    (ttl_ms, remaining_ms)
}

fn seen_at(task: &Task, now: Timestamp) -> Result<(), Rejection> {
    may_see(task, &worker(), task_broker_core::Right::Creator, now)
}

// The TTL.

#[test]
fn the_ttl_in_force_is_the_wish_cut_to_the_maximum() {
    for (wish, in_force) in [
        (TtlWish::Default, TTL_MS),
        (TtlWish::Maximum, MAX_TTL_MS),
        (TtlWish::Millis(1), 1),
        (TtlWish::Millis(MAX_TTL_MS), MAX_TTL_MS),
        (TtlWish::Millis(MAX_TTL_MS + 1), MAX_TTL_MS),
        (TtlWish::Millis(u64::MAX), MAX_TTL_MS),
    ] {
        assert_eq!(with_ttl(wish, &limits()).ttl_ms, in_force, "{wish:?}");
    }
    let contradiction = Limits { default_ttl_ms: MAX_TTL_MS + 1, ..limits() };
    assert_eq!(with_ttl(TtlWish::Default, &contradiction).ttl_ms, MAX_TTL_MS);
}

#[test]
fn set_ttl_is_cut_in_the_same_way_and_tells_what_is_in_force() {
    let task = task();
    for (wish, told) in [
        (0, (0, 0)),
        (500, (500, 0)),
        (1_000, (1_000, 0)),
        (1_001, (1_001, 1)),
        (MAX_TTL_MS, (MAX_TTL_MS, MAX_TTL_MS - 1_000)),
        (MAX_TTL_MS + 1, (MAX_TTL_MS, MAX_TTL_MS - 1_000)),
        (u64::MAX, (MAX_TTL_MS, MAX_TTL_MS - 1_000)),
    ] {
        assert_eq!(ttl_told(&task, wish, &limits(), at(1_000)), told, "{wish}");
    }
    let longest = after(&task, &set_ttl(u64::MAX));
    let again = decide(&longest, &set_ttl(u64::MAX - 1)).unwrap();
    assert_eq!((again.outcome.applied, again.effect), (true, Effect::None), "cut, both are the same TTL");
}

#[test]
fn a_task_is_gone_from_the_first_millisecond_after_its_ttl() {
    for ttl in [1, 2_147_483_648, 4_294_967_296, 9_007_199_254_740_993, 9_223_372_036_854_775_807] {
        let task = with_ttl(TtlWish::Millis(ttl), &unbounded_ttl());
        assert_eq!(seen_at(&task, at(ttl - 1)), Ok(()), "{ttl}");
        assert_eq!(task.remaining_ms(at(ttl - 1)), 1, "{ttl}");
        assert_eq!(seen_at(&task, at(ttl)), Err(Rejection::Expired), "{ttl}");
        assert_eq!((task.remaining_ms(at(ttl)), task.remaining_ms(at(ttl + 1))), (0, 0), "{ttl}");
    }
}

#[test]
fn the_largest_ttl_stops_at_the_end_of_time_and_never_wraps() {
    for (start, ttl) in [(1_000_000, u64::MAX), (u64::MAX - 10, 11), (u64::MAX - 10, u64::MAX), (1, u64::MAX)]
    {
        let new = NewTask { ttl: TtlWish::Millis(ttl), ..new_task() };
        let start = Timestamp::from_millis(start);
        let task = written(create(new, &worker(), &unbounded_ttl(), &NO_USAGE, start).unwrap());
        assert_eq!((task.ttl_ms, task.expires_at()), (ttl, Timestamp::from_millis(u64::MAX)));
        for now in [start, Timestamp::from_millis(u64::MAX - 1)] {
            assert_eq!(seen_at(&task, now), Ok(()), "{start:?} + {ttl} at {now:?}");
            assert_eq!(task.remaining_ms(now), u64::MAX - now.as_millis());
        }
    }
    assert_eq!(
        ttl_told(&task(), u64::MAX, &unbounded_ttl(), at(1_000)),
        (u64::MAX, u64::MAX - at(1_000).as_millis())
    );
}

#[test]
fn a_ttl_of_zero_is_legal_and_expires_at_once() {
    let dead = with_ttl(TtlWish::Millis(0), &limits());
    assert_eq!(seen_at(&dead, START), Err(Rejection::Expired));

    let now = at(1_000);
    let transition = execute(&task(), &by_worker(set_ttl(0)), &limits(), &NO_USAGE, now).unwrap();
    assert!(transition.outcome.applied);
    assert_eq!(transition.outcome.detail, Detail::Ttl { ttl_ms: 0, remaining_ms: 0 });
    let dead = written(transition);
    for command in [set_ttl(TTL_MS), cancel(None), complete(), set_meta("{}"), Command::Discard] {
        let decided = execute(&dead, &by_worker(command), &limits(), &NO_USAGE, now);
        assert_eq!(decided.unwrap_err(), Rejection::Expired, "nothing brings it back");
    }
}

#[test]
fn the_ttl_counts_from_creation_and_only_set_ttl_moves_the_end() {
    let asked = after(&task(), &require_keys(["k"]));
    for command in [
        require_keys(["other"]),
        answer_keys(["k"]),
        set_status(Status::Working, None),
        set_meta("{}"),
        complete(),
        fail("broken"),
        cancel(None),
    ] {
        let next = written(apply(&asked, &command, Actor::Creator, &limits(), at(50_000)).unwrap());
        assert_eq!(next.expires_at(), at(TTL_MS), "{command:?}");
        assert_eq!(seen_at(&next, at(TTL_MS)), Err(Rejection::Expired), "{command:?}");
    }
    let longer = written(apply(&asked, &set_ttl(90_000), Actor::Creator, &limits(), at(50_000)).unwrap());
    assert_eq!(longer.expires_at(), at(90_000), "not counted from the call");
}

#[test]
fn a_ttl_shorter_than_the_task_is_old_ends_it() {
    let shorter = after(&task(), &set_ttl(10));
    assert_eq!(seen_at(&shorter, at(1_000)), Err(Rejection::Expired));
}

#[test]
fn the_ttl_of_an_ended_task_can_still_be_changed() {
    for ending in endings() {
        let ended = after(&task(), &ending);
        let transition = decide(&ended, &set_ttl(90_000)).unwrap();
        assert!(transition.outcome.applied, "{ending:?}");
        let next = written(transition);
        assert_eq!((next.revision, next.expires_at()), (ended.revision + 1, at(90_000)));
        assert_eq!((next.phase, &next.message), (ended.phase, &ended.message), "and nothing else");
    }
}

#[test]
fn an_expired_task_carries_out_nothing_whatever_its_status() {
    let mut tasks = vec![task(), after(&task(), &require_keys(["k"]))];
    tasks.extend(endings().map(|ending| after(&task(), &ending)));
    for task in tasks {
        for command in [
            require_keys(["k"]),
            answer_keys(["k"]),
            set_status(Status::Working, None),
            set_ttl(MAX_TTL_MS),
            set_meta("{}"),
            complete(),
            fail("late"),
            cancel(None),
            Command::Discard,
            // Not even that a call is malformed is told.
            require_keys([""; 0]),
            set_status(Status::Completed, None),
        ] {
            let decided = execute(&task, &by_worker(command), &limits(), &NO_USAGE, at(TTL_MS));
            assert_eq!(decided.unwrap_err(), Rejection::Expired);
        }
    }
}

// The clock.

#[test]
fn a_clock_that_steps_back_moves_no_time_backwards() {
    let steps = [(5_000, 5_000), (3_000, 5_000), (0, 5_000), (5_001, 5_001), (4_999, 5_001)];
    let mut task = task();
    for (number, (now, updated)) in steps.into_iter().enumerate() {
        let command = set_meta(&format!("{{\"n\":{number}}}"));
        task = written(apply(&task, &command, Actor::Creator, &limits(), at(now)).unwrap());
        assert_eq!((task.created_at, task.updated_at), (START, at(updated)), "at {now}");
        assert_eq!(task.history.last().unwrap().at, at(updated), "the history agrees");
    }
    let before_creation = Timestamp::from_millis(1);
    let next = written(apply(&task, &complete(), Actor::Creator, &limits(), before_creation).unwrap());
    assert_eq!((next.created_at, next.updated_at), (START, at(5_001)));
    assert_eq!(seen_at(&next, before_creation), Ok(()), "it is not expired, it is not even created yet");
}

#[test]
fn a_command_that_changes_nothing_does_not_move_the_time_of_the_last_change() {
    let ended = after(&task(), &complete());
    let noted = written(apply(&ended, &cancel(None), Actor::Owner, &limits(), at(40_000)).unwrap());
    assert_eq!((noted.updated_at, noted.revision), (ended.updated_at, ended.revision));
    assert_eq!(noted.history, ended.history, "a cancel after the end is no transition");
}

#[test]
fn the_history_keeps_the_newest_32_transitions() {
    let mut task = task();
    for number in 0..40 {
        assert_eq!(task.history.len(), (number + 1).min(32));
        task = after(&task, &set_ttl(50_000 + u64::try_from(number).unwrap()));
    }
    let revisions: Vec<_> = task.history.iter().map(|entry| entry.revision).collect();
    assert_eq!(revisions, (10..=41).collect::<Vec<_>>());
    assert!(task.history.iter().all(|entry| entry.kind == EventKind::SetTtl));
}

// Messages.

/// Texts and what is left of them: 1024 bytes at most, cut between two characters.
fn long_texts() -> Vec<(String, String)> {
    vec![
        ("x".repeat(1_024), "x".repeat(1_024)),
        ("x".repeat(1_025), "x".repeat(1_024)),
        ("é".repeat(600), "é".repeat(512)),
        (format!("x{}", "é".repeat(600)), format!("x{}", "é".repeat(511))),
        (format!("xxx{}", "🦀".repeat(300)), format!("xxx{}", "🦀".repeat(255))),
        ("x".repeat(1_000_000), "x".repeat(1_024)),
        (String::new(), String::new()),
    ]
}

#[test]
fn a_message_or_reason_is_cut_at_1024_bytes_between_two_characters_and_never_refused() {
    let asked = after(&task(), &require_keys(["k"]));
    for (text, kept) in long_texts() {
        for (command, message) in [
            (require_input_saying(&[("other", QUESTION)], &text), kept.clone()),
            (set_status(Status::Working, Some(&text)), kept.clone()),
            (set_status(Status::InputRequired, Some(&text)), kept.clone()),
            (fail(&text), format!("Task failed: {kept}")),
            (cancel(Some(&text)), format!("Cancelled: {kept}")),
        ] {
            assert_eq!(after(&asked, &command).message, message, "{} bytes", text.len());
        }
    }
}

#[test]
fn the_same_long_message_again_changes_nothing() {
    let text = "é".repeat(5_000);
    for command in [set_status(Status::Working, Some(&text)), require_input_saying(&[("k", QUESTION)], &text)]
    {
        let once = after(&task(), &command);
        assert_eq!(decide(&once, &command).unwrap().effect, Effect::None);
    }
}

#[test]
fn without_a_message_the_commands_speak_for_themselves() {
    let asked = after(&task(), &require_keys(["k"]));
    let messages = [
        task(),
        asked.clone(),
        after(&asked, &answer_keys(["k"])),
        after(&asked, &set_status(Status::Working, None)),
        after(&asked, &complete()),
        after(&asked, &fail("no disk")),
        after(&asked, &cancel(None)),
        after(&asked, &cancel(Some("enough"))),
    ]
    .map(|task| task.message.into_owned());
    assert_eq!(
        messages,
        [
            "Task started",
            "Awaiting client input",
            "Task resumed",
            "Awaiting client input",
            "Task completed",
            "Task failed: no disk",
            "Task cancelled",
            "Cancelled: enough",
        ]
    );
    for message in &messages {
        let standard = !message.contains(": ");
        assert_eq!(standard_message(message).is_some(), standard, "{message}");
        assert!(standard_message(message).is_none_or(|copy| copy == message));
    }
}

// What a call carries.

/// What carries a payload: its name, the command with so many bytes of it, and the name of its limit.
type Carrier<'a> = (&'static str, &'a dyn Fn(u64) -> Command, &'static str);

#[test]
fn a_payload_may_have_the_largest_size_and_not_one_byte_more() {
    let tight = Limits { max_payload_bytes: 1_000, ..limits() };
    let asked = after(&task(), &require_keys(["a", "b"]));
    let ended = after(&asked, &complete());
    let question = |bytes| {
        let text = String::from_utf8(payload_of(bytes).bytes().to_vec()).unwrap();
        require_input(&[("a", QUESTION), ("b", &text)], AskAgain)
    };
    let answer = |bytes| Command::ApplyInput {
        responses: [("a", payload(ANSWER)), ("b", payload_of(bytes))]
            .map(|(key, text)| (Arc::from(key), text))
            .into(),
    };
    let carriers: [Carrier; 5] = [
        ("question", &question, "maxPayloadBytes"),
        ("answer", &answer, "maxPayloadBytes"),
        ("result", &|bytes| Command::Complete { result: payload_of(bytes) }, "maxPayloadBytes"),
        (
            "error",
            &|bytes| Command::Fail { error: payload_of(bytes), message: String::new() },
            "maxPayloadBytes",
        ),
        ("meta", &|bytes| Command::SetMeta { meta: payload_of(bytes) }, "maxMetaBytes"),
    ];
    for (what, carrying, limit) in carriers {
        let fits = apply(&asked, &carrying(1_000), Actor::Creator, &tight, at(1)).unwrap();
        assert_eq!(fits.outcome.revision, asked.revision + 1, "{what}");
        for before in [&asked, &ended] {
            let decided = apply(before, &carrying(1_001), Actor::Creator, &tight, at(1));
            assert_eq!(decided.unwrap_err(), exceeded(limit, 1_000), "{what}");
        }
    }
    let new = |bytes| NewTask { arguments: payload_of(bytes), ..new_task() };
    assert!(create(new(1_000), &worker(), &tight, &NO_USAGE, START).is_ok());
    let decided = create(new(1_001), &worker(), &tight, &NO_USAGE, START);
    assert_eq!(decided.unwrap_err(), exceeded("maxPayloadBytes", 1_000));
}

#[test]
fn meta_may_have_64_kib_and_not_one_byte_more() {
    for (bytes, fits) in [(65_536, true), (65_537, false)] {
        let expected = if fits { Ok(()) } else { Err(exceeded("maxMetaBytes", 65_536)) };
        let decided = decide(&task(), &Command::SetMeta { meta: payload_of(bytes) });
        assert_eq!(decided.map(|_| ()), expected);
        let new = NewTask { meta: Some(payload_of(bytes)), ..new_task() };
        assert_eq!(create(new, &worker(), &limits(), &NO_USAGE, START).map(|_| ()), expected);
    }
}

#[test]
fn a_command_knows_how_many_payload_bytes_it_carries() {
    let question_bytes = 2 * QUESTION.len();
    for (command, bytes) in [
        (require_keys(["a", "b"]), question_bytes),
        (answer_keys(["a", "b", "c"]), 3 * ANSWER.len()),
        (set_status(Status::Working, Some("message")), 0),
        (set_ttl(1), 0),
        (set_meta("{}"), 2),
        (complete(), r#"{"content":[]}"#.len()),
        (fail("message"), r#"{"code":-32603,"message":"as told"}"#.len()),
        (cancel(Some("reason")), 0),
        (Command::Discard, 0),
    ] {
        assert_eq!(command.payload_bytes(), u64::try_from(bytes).unwrap(), "{command:?}");
    }
    let new = NewTask { meta: Some(payload("{}")), ..new_task() };
    assert_eq!(new.payload_bytes(), 2 + u64::try_from(r#"{"q":1}"#.len()).unwrap());
}

#[test]
fn the_members_of_a_create_call_have_their_bounds() {
    let invalid = |member| Err(Some(member));
    let fine: Result<(), Option<&str>> = Ok(());
    let named = |bytes: usize| NewTask { tool_name: Arc::from("é".repeat(bytes / 2)), ..new_task() };
    let owned = |bytes: usize| NewTask { owner: Some(Arc::from("é".repeat(bytes / 2))), ..new_task() };
    let polled = |ms| NewTask { poll_interval_ms: Some(ms), ..new_task() };
    for (new, expected) in [
        (named(0), invalid("toolName")),
        (named(2), fine),
        (named(256), fine),
        (owned(0), fine),
        (owned(512), fine),
        (owned(514), invalid("owner")),
        (polled(0), invalid("pollIntervalMs")),
        (polled(99), invalid("pollIntervalMs")),
        (polled(100), fine),
        (polled(3_600_000), fine),
        (polled(3_600_001), invalid("pollIntervalMs")),
        (polled(4_294_967_296 + 100), invalid("pollIntervalMs")),
        (polled(u64::MAX), invalid("pollIntervalMs")),
    ] {
        let decided = create(new.clone(), &worker(), &limits(), &NO_USAGE, START).map(|_| ());
        let fault = decided.as_ref().map_err(member_at_fault);
        assert_eq!(fault, expected.as_ref().map_err(|member| *member), "{new:?}");
    }
    let decided = create(named(258), &worker(), &limits(), &NO_USAGE, START);
    assert_eq!(decided.unwrap_err(), exceeded("maxToolNameBytes", 256));
}

#[test]
fn a_poll_interval_is_the_creators_or_the_default() {
    for (wish, in_force) in [(None, 2_000), (Some(100), 100), (Some(3_600_000), 3_600_000)] {
        let task = create_as(NewTask { poll_interval_ms: wish, ..new_task() }, &worker());
        assert_eq!(task.poll_interval_ms, in_force);
    }
}

#[test]
fn what_is_malformed_is_refused_before_the_status_is_looked_at_and_after_the_revision() {
    let ended = after(&task(), &complete());
    let oversized = Command::Complete { result: payload_of(5 * 1024 * 1024) };
    let mut request = Request { ..by_worker(oversized) };
    assert_eq!(run(&ended, &request).unwrap_err(), exceeded("maxPayloadBytes", 4 * 1024 * 1024));
    request.guard.expected_revision = Some(1);
    assert_eq!(run(&ended, &request).unwrap_err(), Rejection::RevisionConflict { revision: 2 });
}
