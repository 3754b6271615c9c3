//! The transition table, written out: every situation of a task against every kind of command.
//!
//! A cell is what WIRE.md says, not what the code computes. A new status or command fails to compile in
//! `support::variants!`; once it is listed there, this test fails until the table has its rows.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that panics has failed, as it should; clippy.toml covers only functions marked as tests"
)]

mod support;

use std::collections::BTreeSet;

use support::*;
use task_broker_core::{
    Actor, Command, Detail, Effect, Event, Rejection, Status, Task, Transition, apply, check,
};

/// `+` is the step of the revision. An event without a step is the sign that a cancel came after the end.
const TABLE: &str = "
before         | wish             | answer   | status        | +  | message                    | event

Working        | AskNew           | applied  | InputRequired | 1  | Awaiting client input      | RequireInput
WorkingAsked   | AskNew           | applied  | InputRequired | 1  | Awaiting client input      | RequireInput
InputRequired  | AskNew           | applied  | InputRequired | 1  | Awaiting client input      | RequireInput
Completed      | AskNew           | too late | Completed     | 0  | Task completed             | -
Failed         | AskNew           | too late | Failed        | 0  | Task failed: broken        | -
Cancelled      | AskNew           | too late | Cancelled     | 0  | Task cancelled             | -
CompletedNoted | AskNew           | too late | Completed     | 0  | Task completed             | -

Working        | AskSaying        | applied  | InputRequired | 1  | Which region?              | RequireInput
WorkingAsked   | AskSaying        | applied  | InputRequired | 1  | Which region?              | RequireInput
InputRequired  | AskSaying        | applied  | InputRequired | 1  | Which region?              | RequireInput
Completed      | AskSaying        | too late | Completed     | 0  | Task completed             | -
Failed         | AskSaying        | too late | Failed        | 0  | Task failed: broken        | -
Cancelled      | AskSaying        | too late | Cancelled     | 0  | Task cancelled             | -
CompletedNoted | AskSaying        | too late | Completed     | 0  | Task completed             | -

Working        | AskTheSame       | applied  | InputRequired | 1  | Awaiting client input      | RequireInput
WorkingAsked   | AskTheSame       | applied  | InputRequired | 1  | Awaiting client input      | RequireInput
InputRequired  | AskTheSame       | applied  | InputRequired | 0  | Awaiting client input      | -
Completed      | AskTheSame       | too late | Completed     | 0  | Task completed             | -
Failed         | AskTheSame       | too late | Failed        | 0  | Task failed: broken        | -
Cancelled      | AskTheSame       | too late | Cancelled     | 0  | Task cancelled             | -
CompletedNoted | AskTheSame       | too late | Completed     | 0  | Task completed             | -

Working        | AskSpentAgain    | applied  | InputRequired | 1  | Awaiting client input      | RequireInput
WorkingAsked   | AskSpentAgain    | applied  | InputRequired | 1  | Awaiting client input      | RequireInput
InputRequired  | AskSpentAgain    | applied  | InputRequired | 1  | Awaiting client input      | RequireInput
Completed      | AskSpentAgain    | too late | Completed     | 0  | Task completed             | -
Failed         | AskSpentAgain    | too late | Failed        | 0  | Task failed: broken        | -
Cancelled      | AskSpentAgain    | too late | Cancelled     | 0  | Task cancelled             | -
CompletedNoted | AskSpentAgain    | too late | Completed     | 0  | Task completed             | -

Working        | AskSpentReject   | refused  | Working       | 0  | Task resumed               | -
WorkingAsked   | AskSpentReject   | refused  | Working       | 0  | Going on                   | -
InputRequired  | AskSpentReject   | refused  | InputRequired | 0  | Awaiting client input      | -
Completed      | AskSpentReject   | too late | Completed     | 0  | Task completed             | -
Failed         | AskSpentReject   | too late | Failed        | 0  | Task failed: broken        | -
Cancelled      | AskSpentReject   | too late | Cancelled     | 0  | Task cancelled             | -
CompletedNoted | AskSpentReject   | too late | Completed     | 0  | Task completed             | -

Working        | AskOtherReject   | applied  | InputRequired | 1  | Awaiting client input      | RequireInput
WorkingAsked   | AskOtherReject   | refused  | Working       | 0  | Going on                   | -
InputRequired  | AskOtherReject   | refused  | InputRequired | 0  | Awaiting client input      | -
Completed      | AskOtherReject   | too late | Completed     | 0  | Task completed             | -
Failed         | AskOtherReject   | too late | Failed        | 0  | Task failed: broken        | -
Cancelled      | AskOtherReject   | too late | Cancelled     | 0  | Task cancelled             | -
CompletedNoted | AskOtherReject   | too late | Completed     | 0  | Task completed             | -

Working        | AnswerAll        | applied  | Working       | 0  | Task resumed               | -
WorkingAsked   | AnswerAll        | applied  | Working       | 1  | Going on                   | ApplyInput
InputRequired  | AnswerAll        | applied  | Working       | 1  | Task resumed               | ApplyInput
Completed      | AnswerAll        | too late | Completed     | 0  | Task completed             | -
Failed         | AnswerAll        | too late | Failed        | 0  | Task failed: broken        | -
Cancelled      | AnswerAll        | too late | Cancelled     | 0  | Task cancelled             | -
CompletedNoted | AnswerAll        | too late | Completed     | 0  | Task completed             | -

Working        | AnswerSome       | applied  | Working       | 0  | Task resumed               | -
WorkingAsked   | AnswerSome       | applied  | Working       | 1  | Going on                   | ApplyInput
InputRequired  | AnswerSome       | applied  | InputRequired | 1  | Awaiting client input      | ApplyInput
Completed      | AnswerSome       | too late | Completed     | 0  | Task completed             | -
Failed         | AnswerSome       | too late | Failed        | 0  | Task failed: broken        | -
Cancelled      | AnswerSome       | too late | Cancelled     | 0  | Task cancelled             | -
CompletedNoted | AnswerSome       | too late | Completed     | 0  | Task completed             | -

Working        | AnswerUnknown    | applied  | Working       | 0  | Task resumed               | -
WorkingAsked   | AnswerUnknown    | applied  | Working       | 0  | Going on                   | -
InputRequired  | AnswerUnknown    | applied  | InputRequired | 0  | Awaiting client input      | -
Completed      | AnswerUnknown    | too late | Completed     | 0  | Task completed             | -
Failed         | AnswerUnknown    | too late | Failed        | 0  | Task failed: broken        | -
Cancelled      | AnswerUnknown    | too late | Cancelled     | 0  | Task cancelled             | -
CompletedNoted | AnswerUnknown    | too late | Completed     | 0  | Task completed             | -

Working        | SetWorking       | applied  | Working       | 0  | Task resumed               | -
WorkingAsked   | SetWorking       | applied  | Working       | 0  | Going on                   | -
InputRequired  | SetWorking       | applied  | Working       | 1  | Awaiting client input      | SetStatus
Completed      | SetWorking       | too late | Completed     | 0  | Task completed             | -
Failed         | SetWorking       | too late | Failed        | 0  | Task failed: broken        | -
Cancelled      | SetWorking       | too late | Cancelled     | 0  | Task cancelled             | -
CompletedNoted | SetWorking       | too late | Completed     | 0  | Task completed             | -

Working        | SetWorkingSaying | applied  | Working       | 1  | Half way                   | SetStatus
WorkingAsked   | SetWorkingSaying | applied  | Working       | 1  | Half way                   | SetStatus
InputRequired  | SetWorkingSaying | applied  | Working       | 1  | Half way                   | SetStatus
Completed      | SetWorkingSaying | too late | Completed     | 0  | Task completed             | -
Failed         | SetWorkingSaying | too late | Failed        | 0  | Task failed: broken        | -
Cancelled      | SetWorkingSaying | too late | Cancelled     | 0  | Task cancelled             | -
CompletedNoted | SetWorkingSaying | too late | Completed     | 0  | Task completed             | -

Working        | SetInputRequired | refused  | Working       | 0  | Task resumed               | -
WorkingAsked   | SetInputRequired | applied  | InputRequired | 1  | Going on                   | SetStatus
InputRequired  | SetInputRequired | applied  | InputRequired | 0  | Awaiting client input      | -
Completed      | SetInputRequired | too late | Completed     | 0  | Task completed             | -
Failed         | SetInputRequired | too late | Failed        | 0  | Task failed: broken        | -
Cancelled      | SetInputRequired | too late | Cancelled     | 0  | Task cancelled             | -
CompletedNoted | SetInputRequired | too late | Completed     | 0  | Task completed             | -

Working        | SetCompleted     | refused  | Working       | 0  | Task resumed               | -
WorkingAsked   | SetCompleted     | refused  | Working       | 0  | Going on                   | -
InputRequired  | SetCompleted     | refused  | InputRequired | 0  | Awaiting client input      | -
Completed      | SetCompleted     | refused  | Completed     | 0  | Task completed             | -
Failed         | SetCompleted     | refused  | Failed        | 0  | Task failed: broken        | -
Cancelled      | SetCompleted     | refused  | Cancelled     | 0  | Task cancelled             | -
CompletedNoted | SetCompleted     | refused  | Completed     | 0  | Task completed             | -

Working        | TtlOther         | applied  | Working       | 1  | Task resumed               | SetTtl
WorkingAsked   | TtlOther         | applied  | Working       | 1  | Going on                   | SetTtl
InputRequired  | TtlOther         | applied  | InputRequired | 1  | Awaiting client input      | SetTtl
Completed      | TtlOther         | applied  | Completed     | 1  | Task completed             | SetTtl
Failed         | TtlOther         | applied  | Failed        | 1  | Task failed: broken        | SetTtl
Cancelled      | TtlOther         | applied  | Cancelled     | 1  | Task cancelled             | SetTtl
CompletedNoted | TtlOther         | applied  | Completed     | 1  | Task completed             | SetTtl

Working        | TtlSame          | applied  | Working       | 0  | Task resumed               | -
WorkingAsked   | TtlSame          | applied  | Working       | 0  | Going on                   | -
InputRequired  | TtlSame          | applied  | InputRequired | 0  | Awaiting client input      | -
Completed      | TtlSame          | applied  | Completed     | 0  | Task completed             | -
Failed         | TtlSame          | applied  | Failed        | 0  | Task failed: broken        | -
Cancelled      | TtlSame          | applied  | Cancelled     | 0  | Task cancelled             | -
CompletedNoted | TtlSame          | applied  | Completed     | 0  | Task completed             | -

Working        | MetaOther        | applied  | Working       | 1  | Task resumed               | SetMeta
WorkingAsked   | MetaOther        | applied  | Working       | 1  | Going on                   | SetMeta
InputRequired  | MetaOther        | applied  | InputRequired | 1  | Awaiting client input      | SetMeta
Completed      | MetaOther        | applied  | Completed     | 1  | Task completed             | SetMeta
Failed         | MetaOther        | applied  | Failed        | 1  | Task failed: broken        | SetMeta
Cancelled      | MetaOther        | applied  | Cancelled     | 1  | Task cancelled             | SetMeta
CompletedNoted | MetaOther        | applied  | Completed     | 1  | Task completed             | SetMeta

Working        | MetaSame         | applied  | Working       | 0  | Task resumed               | -
WorkingAsked   | MetaSame         | applied  | Working       | 0  | Going on                   | -
InputRequired  | MetaSame         | applied  | InputRequired | 0  | Awaiting client input      | -
Completed      | MetaSame         | applied  | Completed     | 0  | Task completed             | -
Failed         | MetaSame         | applied  | Failed        | 0  | Task failed: broken        | -
Cancelled      | MetaSame         | applied  | Cancelled     | 0  | Task cancelled             | -
CompletedNoted | MetaSame         | applied  | Completed     | 0  | Task completed             | -

Working        | Complete         | applied  | Completed     | 1  | Task completed             | Complete
WorkingAsked   | Complete         | applied  | Completed     | 1  | Task completed             | Complete
InputRequired  | Complete         | applied  | Completed     | 1  | Task completed             | Complete
Completed      | Complete         | too late | Completed     | 0  | Task completed             | -
Failed         | Complete         | too late | Failed        | 0  | Task failed: broken        | -
Cancelled      | Complete         | too late | Cancelled     | 0  | Task cancelled             | -
CompletedNoted | Complete         | too late | Completed     | 0  | Task completed             | -

Working        | Fail             | applied  | Failed        | 1  | Task failed: no disk       | Fail
WorkingAsked   | Fail             | applied  | Failed        | 1  | Task failed: no disk       | Fail
InputRequired  | Fail             | applied  | Failed        | 1  | Task failed: no disk       | Fail
Completed      | Fail             | too late | Completed     | 0  | Task completed             | -
Failed         | Fail             | too late | Failed        | 0  | Task failed: broken        | -
Cancelled      | Fail             | too late | Cancelled     | 0  | Task cancelled             | -
CompletedNoted | Fail             | too late | Completed     | 0  | Task completed             | -

Working        | Cancel           | applied  | Cancelled     | 1  | Task cancelled             | Cancel
WorkingAsked   | Cancel           | applied  | Cancelled     | 1  | Task cancelled             | Cancel
InputRequired  | Cancel           | applied  | Cancelled     | 1  | Task cancelled             | Cancel
Completed      | Cancel           | too late | Completed     | 0  | Task completed             | Cancel
Failed         | Cancel           | too late | Failed        | 0  | Task failed: broken        | Cancel
Cancelled      | Cancel           | too late | Cancelled     | 0  | Task cancelled             | -
CompletedNoted | Cancel           | too late | Completed     | 0  | Task completed             | -

Working        | CancelSaying     | applied  | Cancelled     | 1  | Cancelled: no longer needed | Cancel
WorkingAsked   | CancelSaying     | applied  | Cancelled     | 1  | Cancelled: no longer needed | Cancel
InputRequired  | CancelSaying     | applied  | Cancelled     | 1  | Cancelled: no longer needed | Cancel
Completed      | CancelSaying     | too late | Completed     | 0  | Task completed             | Cancel
Failed         | CancelSaying     | too late | Failed        | 0  | Task failed: broken        | Cancel
Cancelled      | CancelSaying     | too late | Cancelled     | 0  | Task cancelled             | -
CompletedNoted | CancelSaying     | too late | Completed     | 0  | Task completed             | -

Working        | Discard          | removed  | Working       | 1  | Task resumed               | Discard
WorkingAsked   | Discard          | removed  | Working       | 1  | Going on                   | Discard
InputRequired  | Discard          | removed  | InputRequired | 1  | Awaiting client input      | Discard
Completed      | Discard          | removed  | Completed     | 1  | Task completed             | Discard
Failed         | Discard          | removed  | Failed        | 1  | Task failed: broken        | Discard
Cancelled      | Discard          | removed  | Cancelled     | 1  | Task cancelled             | Discard
CompletedNoted | Discard          | removed  | Completed     | 1  | Task completed             | Discard
";

/// Something to make, by its name in the table.
type Named<T> = (&'static str, fn() -> T);

/// The situations. All of them have meta, and a key `old` that was answered.
const SITUATIONS: [Named<Task>; 7] = [
    ("Working", working),
    ("WorkingAsked", || after(&input_required(), &set_status(Status::Working, Some("Going on")))),
    ("InputRequired", input_required),
    ("Completed", || after(&working(), &complete())),
    ("Failed", || after(&working(), &fail("broken"))),
    ("Cancelled", || after(&working(), &cancel(None))),
    ("CompletedNoted", || after_all(&working(), &[complete(), cancel(None)])),
];

/// The wishes: every command, in each form that makes a difference.
const WISHES: [Named<Command>; 22] = [
    ("AskNew", || require_keys(["c"])),
    ("AskSaying", || require_input_saying(&[("c", QUESTION)], "Which region?")),
    ("AskTheSame", || require_keys(["a", "b"])),
    ("AskSpentAgain", || require_keys(["old"])),
    ("AskSpentReject", || require_input(&[("old", QUESTION)], Reject)),
    ("AskOtherReject", || require_input(&[("a", r#"{"method":"other"}"#)], Reject)),
    ("AnswerAll", || answer_keys(["a", "b"])),
    ("AnswerSome", || answer_keys(["a"])),
    ("AnswerUnknown", || answer_keys(["old", "never"])),
    ("SetWorking", || set_status(Status::Working, None)),
    ("SetWorkingSaying", || set_status(Status::Working, Some("Half way"))),
    ("SetInputRequired", || set_status(Status::InputRequired, None)),
    ("SetCompleted", || set_status(Status::Completed, None)),
    ("TtlOther", || set_ttl(TTL_MS + 1)),
    ("TtlSame", || set_ttl(TTL_MS)),
    ("MetaOther", || set_meta(r#"{"trace":"another"}"#)),
    ("MetaSame", || set_meta(META)),
    ("Complete", complete),
    ("Fail", || fail("no disk")),
    ("Cancel", || cancel(None)),
    ("CancelSaying", || cancel(Some("no longer needed"))),
    ("Discard", || Command::Discard),
];

const META: &str = r#"{"trace":"first"}"#;

fn working() -> Task {
    after_all(&task(), &[set_meta(META), require_keys(["old"]), answer_keys(["old"])])
}

fn input_required() -> Task {
    after(&working(), &require_keys(["a", "b"]))
}

/// One line of the table.
#[derive(Debug)]
struct Row<'a> {
    before: &'a str,
    wish: &'a str,
    answer: &'a str,
    status: &'a str,
    step: u64,
    message: &'a str,
    event: Option<&'a str>,
}

fn rows() -> Vec<Row<'static>> {
    let lines = TABLE.lines().skip(2).filter(|line| !line.is_empty());
    let rows = lines.map(|line| {
        let cells: Vec<_> = line.split('|').map(str::trim).collect();
        let [before, wish, answer, status, step, message, event] = cells[..] else {
            panic!("not a row of seven cells: {line}")
        };
        let event = (event != "-").then_some(event);
        Row { before, wish, answer, status, step: step.parse().unwrap(), message, event }
    });
    rows.collect()
}

fn named<T: Copy>(list: &[(&str, T)], name: &str) -> T {
    list.iter().find(|(known, _)| *known == name).unwrap_or_else(|| panic!("nothing is called {name}")).1
}

#[test]
fn the_table_has_each_pair_once_and_covers_every_status_and_every_command() {
    let rows = rows();
    let pairs: BTreeSet<_> = rows.iter().map(|row| (row.before, row.wish)).collect();
    let all: BTreeSet<_> = SITUATIONS
        .iter()
        .flat_map(|(before, _)| WISHES.iter().map(move |(wish, _)| (*before, *wish)))
        .collect();
    assert_eq!(pairs, all);
    assert_eq!(rows.len(), all.len(), "a pair stands twice");

    let statuses: BTreeSet<_> = SITUATIONS.iter().map(|(_, make)| status_name(&make().status())).collect();
    assert_eq!(statuses, STATUSES.iter().copied().collect(), "every status is a situation");
    assert_eq!(Status::ALL.map(|status| status_name(&status)), STATUSES);

    let commands: BTreeSet<_> = WISHES.iter().map(|(_, make)| command_name(&make())).collect();
    assert_eq!(commands, COMMANDS.iter().copied().collect(), "every command is a wish");
}

#[test]
fn every_command_does_in_every_situation_what_the_table_says() {
    for row in rows() {
        let before = named(&SITUATIONS, row.before)();
        let command = named(&WISHES, row.wish)();
        let decided = apply(&before, &command, Actor::Owner, &limits(), at(5_000));
        match row.answer {
            "refused" => {
                assert_eq!((row.step, row.event), (0, None), "the row contradicts itself: {row:?}");
                assert_eq!((row.status, row.message), (status_name(&before.status()), &*before.message));
                assert!(matches!(decided, Err(Rejection::InvalidTransition(_))), "{row:?}: {decided:?}");
            }
            answer => judge(&row, &before, &command, answer, &decided.unwrap()),
        }
    }
}

fn judge(row: &Row, before: &Task, command: &Command, answer: &str, transition: &Transition) {
    let outcome = &transition.outcome;
    assert_eq!(outcome.applied, answer != "too late", "{row:?}");
    assert_eq!(status_name(&outcome.status), row.status, "{row:?}");
    assert_eq!(outcome.revision, before.revision + row.step, "{row:?}");
    assert!(!transition.replayed, "{row:?}");
    // Which details there are is a matter of the command and of whether it came in time, nothing else.
    match (command_name(command), &outcome.detail) {
        ("ApplyInput", Detail::Inputs { accepted, outstanding }) => {
            let none = accepted.is_empty() && outstanding.is_empty();
            assert!(outcome.applied || none, "{row:?}: nothing is accepted too late");
            assert_eq!(accepted.is_empty(), row.step == 0, "{row:?}");
        }
        ("SetTtl", Detail::Ttl { .. }) => {}
        (_, Detail::None) => assert!(!["ApplyInput", "SetTtl"].contains(&command_name(command)), "{row:?}"),
        (_, detail) => panic!("{row:?}: {detail:?}"),
    }

    let event = event_of(transition);
    assert_eq!(event.map(|event| format!("{:?}", event.kind)).as_deref(), row.event, "{row:?}");
    match &transition.effect {
        Effect::None => {
            assert_eq!((row.step, row.event), (0, None), "{row:?}");
            assert_eq!(
                (status_name(&before.status()), &*before.message),
                (row.status, row.message),
                "{row:?}"
            );
        }
        Effect::Remove { event } => {
            assert_eq!(answer, "removed", "{row:?}");
            assert_eq!((event.revision, event.status), (before.revision + 1, before.status()), "{row:?}");
            assert_eq!(&*before.message, row.message, "{row:?}");
        }
        Effect::Write { task, .. } => {
            check(task).unwrap();
            assert_eq!((status_name(&task.status()), &*task.message), (row.status, row.message), "{row:?}");
            assert_eq!(task.revision, before.revision + row.step, "{row:?}");
            assert_eq!(event, Some(Event::of(command.kind(), task)), "{row:?}");
            if row.step == 1 {
                let last = task.history.last().unwrap();
                assert_eq!((last.revision, last.at), (task.revision, at(5_000)), "{row:?}");
                assert_eq!((last.kind, last.by), (command.kind(), Actor::Owner), "{row:?}");
            } else {
                // Only the sign of a late cancel is written without a step, and nothing else moves.
                let noted = Task { cancel_requested: true, ..before.clone() };
                assert!(!before.cancel_requested && **task == noted, "{row:?}");
            }
            let cancelled = before.cancel_requested || command_name(command) == "Cancel";
            assert_eq!(task.cancel_requested, cancelled, "{row:?}");
        }
    }
}
