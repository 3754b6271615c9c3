//! Histories made by hand, right ones and wrong ones: the checker itself, judged.
//!
//! One task, created in the millisecond 0 of the broker's clock, which is the one of the recording here.

use std::sync::Arc;

use task_broker_core::{Command, Limits, NewTask, OnSpentKey, Right, Status, TaskId, Timestamp, TtlWish};
use task_broker_protocol::methods::{apply_input, create::Created, set_ttl, statuses};
use task_broker_protocol::shapes::{self, Outcome, Snapshot};

use crate::call::{self, Act, Call, Who, Wish, ask, payload};
use crate::fake::{limits, status, time};
use crate::judge::{Judgement, judge};
use crate::op::{Op, Seen, Told, What, Window};
use crate::recording::History;

const TTL: u64 = 10_000;

struct Hand {
    id: TaskId,
    limits: Limits,
    history: History,
}

impl Hand {
    /// A task with a TTL of 10 s, created between 0 and 1.
    fn new() -> Self {
        let id = TaskId::from_bytes([7; 16]);
        let new = NewTask {
            id,
            tool_name: "tool".into(),
            arguments: payload("{}"),
            ttl: TtlWish::Millis(TTL),
            owner: Some(Who::Worker.subject().into()),
            poll_interval_ms: None,
            meta: None,
            key: None,
        };
        let Act::Create(new) = call::create(new, None).act else { unreachable!("a create call creates") };
        let mut hand = Self { id, limits: limits(), history: History::default() };
        let snapshot = hand.snapshot(0, "Task started", (Status::Working, 1), 0);
        let seen = Seen::Created(Box::new(Created { snapshot, created: true }));
        hand.push(0, 1, What::Create(new, Who::Worker.caller()), seen);
        hand
    }

    fn snapshot(&self, now: u64, message: &str, (state, revision): (Status, u64), updated: u64) -> Snapshot {
        Snapshot::of(shapes::Row {
            task: shapes::Task {
                task_id: self.id.to_string(),
                status: status(state),
                status_message: Some(message.to_owned()),
                created_at: time(Timestamp::from_millis(0)),
                last_updated_at: time(Timestamp::from_millis(updated)),
                ttl_ms: TTL,
                poll_interval_ms: 2000,
                meta: None,
            },
            owner: Some(Who::Worker.subject().to_owned()),
            tool_name: "tool".to_owned(),
            revision,
            remaining_ms: TTL - now,
            cancel_requested: false,
        })
    }

    /// A call from one millisecond to another.
    fn push(&mut self, from: u64, to: u64, what: What, seen: Seen) {
        self.history.push(Op {
            number: self.history.ops.len(),
            client: 0,
            life: 0,
            from: from * 1000,
            to: to.saturating_mul(1000),
            window: Window { from, to },
            label: format!("{what:?}").chars().take(40).collect::<String>().into(),
            what,
            seen,
        });
    }

    fn command(&mut self, (from, to): (u64, u64), call: &Call, seen: Seen) {
        let Act::Command(_, request) = &call.act else { panic!("not a command: {call:?}") };
        self.push(from, to, What::Command(Arc::clone(request)), seen);
    }

    fn call(&self, command: Command, key: Option<&str>, expected: Option<u64>) -> Call {
        let wish = Wish { key: key.map(str::to_owned), expected };
        call::command(Who::Worker, Right::Creator, self.id, command, &wish)
    }

    /// `store/setMeta` with a value of its own.
    fn set_meta(&mut self, when: (u64, u64), n: u32, seen: Seen) {
        let call = self.call(Command::SetMeta { meta: payload(format!(r#"{{"n":{n}}}"#)) }, None, None);
        self.command(when, &call, seen);
    }

    fn complete(&mut self, when: (u64, u64), seen: Seen) {
        let call = self.call(Command::Complete { result: payload("{}") }, None, None);
        self.command(when, &call, seen);
    }

    /// `store/statuses` of one task, answered in the last millisecond of the call.
    fn state(&mut self, (from, to): (u64, u64), state: Status, revision: u64) {
        let cancel_requested = state == Status::Cancelled;
        let told =
            statuses::State { status: status(state), revision, remaining_ms: TTL - to, cancel_requested };
        self.look((from, to), Seen::State(told));
    }

    fn look(&mut self, (from, to): (u64, u64), seen: Seen) {
        self.push(from, to, What::Look(Who::Worker.caller(), Right::Creator), seen);
    }

    fn judge(mut self) -> Judgement {
        self.history.ops.sort_by_key(|op| op.from);
        judge(self.id, &self.limits, &self.history, true)
    }

    fn assert_right(self) {
        let judgement = self.judge();
        assert!(matches!(judgement, Judgement::Linearizable), "{judgement:?}");
    }

    fn assert_wrong(self) {
        let Judgement::Violated(table) = self.judge() else { panic!("it was taken for linearizable") };
        eprintln!("{table}");
    }
}

fn done(state: Status, revision: u64) -> Seen {
    outcome(true, state, revision, false)
}

fn outcome(applied: bool, state: Status, revision: u64, replayed: bool) -> Seen {
    Seen::Outcome(Outcome { applied, status: status(state), revision, replayed }, Told::Nothing)
}

const WORKING: Status = Status::Working;
const COMPLETED: Status = Status::Completed;

#[test]
fn two_commands_at_once_may_come_in_either_order() {
    for (first, second) in [(2, 3), (3, 2)] {
        let mut hand = Hand::new();
        hand.set_meta((10, 20), 1, done(WORKING, first));
        hand.set_meta((10, 20), 2, done(WORKING, second));
        hand.state((30, 31), WORKING, 3);
        hand.assert_right();
    }
}

#[test]
fn a_lost_update_is_wrong() {
    let mut hand = Hand::new();
    hand.set_meta((10, 20), 1, done(WORKING, 2));
    hand.set_meta((15, 25), 2, done(WORKING, 2));
    hand.assert_wrong();
}

#[test]
fn a_look_beside_a_command_may_show_either_state() {
    for (state, revision) in [(WORKING, 1), (COMPLETED, 2)] {
        let mut hand = Hand::new();
        hand.complete((10, 20), done(COMPLETED, 2));
        hand.state((12, 14), state, revision);
        hand.assert_right();
    }
}

#[test]
fn a_stale_look_is_wrong() {
    let mut hand = Hand::new();
    hand.complete((10, 20), done(COMPLETED, 2));
    hand.state((21, 22), WORKING, 1);
    hand.assert_wrong();
}

#[test]
fn a_look_that_goes_back_is_wrong_even_beside_the_command() {
    let mut hand = Hand::new();
    hand.complete((10, 40), done(COMPLETED, 2));
    hand.state((12, 14), COMPLETED, 2);
    hand.state((16, 18), WORKING, 1);
    hand.assert_wrong();
}

#[test]
fn a_second_completion_is_told_that_it_is_late() {
    let mut hand = Hand::new();
    hand.complete((10, 20), done(COMPLETED, 2));
    hand.complete((11, 21), outcome(false, COMPLETED, 2, false));
    hand.assert_right();
}

#[test]
fn a_double_completion_is_wrong() {
    for second in [done(COMPLETED, 2), done(COMPLETED, 3)] {
        let mut hand = Hand::new();
        hand.complete((10, 20), done(COMPLETED, 2));
        hand.complete((11, 21), second);
        hand.assert_wrong();
    }
}

/// The process is gone at 30; a call without an answer may have happened until then.
#[test]
fn a_call_without_an_answer_may_have_happened_or_not() {
    for (state, revision) in [(WORKING, 1), (COMPLETED, 2)] {
        let mut hand = Hand::new();
        hand.complete((10, 30), Seen::Unknown);
        hand.state((40, 41), state, revision);
        hand.state((50, 51), state, revision);
        hand.assert_right();
    }
}

#[test]
fn several_calls_without_an_answer_may_have_happened_in_part() {
    let mut hand = Hand::new();
    for n in 0..6 {
        hand.set_meta((10, 30), n, Seen::Unknown);
    }
    hand.state((40, 41), WORKING, 4);
    hand.set_meta((50, 60), 9, done(WORKING, 5));
    hand.assert_right();
}

#[test]
fn more_changes_than_calls_are_wrong() {
    let mut hand = Hand::new();
    hand.set_meta((10, 30), 1, Seen::Unknown);
    hand.set_meta((10, 30), 2, Seen::Unknown);
    hand.state((40, 41), WORKING, 4);
    hand.assert_wrong();
}

#[test]
fn a_state_that_was_shown_and_is_taken_back_by_a_restart_is_wrong() {
    let mut hand = Hand::new();
    hand.complete((10, 30), Seen::Unknown);
    hand.state((20, 21), COMPLETED, 2);
    hand.state((40, 41), WORKING, 1);
    hand.assert_wrong();
}

#[test]
fn an_acknowledged_command_that_a_restart_takes_back_is_wrong() {
    let mut hand = Hand::new();
    hand.set_meta((10, 20), 1, done(WORKING, 2));
    hand.state((40, 41), WORKING, 1);
    hand.assert_wrong();
}

#[test]
fn a_call_without_an_answer_that_comes_to_light_long_after_the_restart_is_wrong() {
    let mut hand = Hand::new();
    hand.complete((10, 30), Seen::Unknown);
    hand.state((40, 41), WORKING, 1);
    hand.state((50, 51), COMPLETED, 2);
    hand.assert_wrong();
}

fn replayed(revision: u64, replayed: bool) -> Hand {
    let mut hand = Hand::new();
    let command = Command::SetStatus { status: WORKING, message: Some("m".to_owned()) };
    let call = hand.call(command, Some("key"), None);
    hand.command((10, 20), &call, done(WORKING, 2));
    hand.set_meta((30, 40), 1, done(WORKING, 3));
    hand.command((50, 60), &call, outcome(true, WORKING, revision, replayed));
    hand
}

#[test]
fn a_replay_reports_the_first_outcome() {
    replayed(2, true).assert_right();
}

#[test]
fn a_replay_that_reports_another_outcome_is_wrong() {
    replayed(3, true).assert_wrong();
}

#[test]
fn a_replay_that_is_carried_out_again_is_wrong() {
    replayed(3, false).assert_wrong();
    replayed(4, false).assert_wrong();
}

#[test]
fn a_command_on_another_revision_than_the_expected_one_is_wrong() {
    let command = || Command::SetMeta { meta: payload(r#"{"n":5}"#) };
    let conflict = |at| Seen::Refused("revision_conflict".to_owned(), Some(at));
    for (seen, right) in [(done(WORKING, 3), false), (conflict(2), true), (conflict(1), false)] {
        let mut hand = Hand::new();
        hand.set_meta((10, 20), 1, done(WORKING, 2));
        let call = hand.call(command(), None, Some(1));
        hand.command((30, 40), &call, seen);
        if right { hand.assert_right() } else { hand.assert_wrong() }
    }
}

#[test]
fn an_answer_to_a_question_is_accepted_once() {
    for (second, right) in [(vec!["q"], false), (Vec::new(), true)] {
        let mut hand = Hand::new();
        let requests = [("q".into(), ask(r#"{"method":"m"}"#))].into();
        let question = Command::RequireInput { requests, message: None, on_spent: OnSpentKey::AskAgain };
        let call = hand.call(question, None, None);
        hand.command((10, 20), &call, done(Status::InputRequired, 2));
        let answer = |n| Command::ApplyInput { responses: [("q".into(), payload(n))].into() };
        for (n, accepted) in [("1", vec!["q"]), ("2", second)] {
            let call = hand.call(answer(n), None, None);
            let texts = |keys: &[&str]| keys.iter().map(ToString::to_string).collect::<Vec<_>>();
            let ignored = if accepted.is_empty() { vec!["q"] } else { Vec::new() };
            let applied = apply_input::Applied {
                outcome: Outcome { applied: true, status: status(WORKING), revision: 3, replayed: false },
                accepted: texts(&accepted),
                ignored: texts(&ignored),
                still_outstanding: Vec::new(),
            };
            let told = Told::Inputs(applied.accepted, applied.ignored, applied.still_outstanding);
            hand.command((30, 40), &call, Seen::Outcome(applied.outcome, told));
        }
        if right { hand.assert_right() } else { hand.assert_wrong() }
    }
}

#[test]
fn a_task_is_gone_from_its_deadline_on_and_not_before() {
    let cases = [(TTL - 10, TTL - 5, false), (TTL - 10, TTL, true), (TTL + 10, TTL + 20, true)];
    for (from, to, right) in cases {
        let mut hand = Hand::new();
        hand.look((from, to), Seen::NotFound);
        if right { hand.assert_right() } else { hand.assert_wrong() }
    }
}

#[test]
fn a_command_on_a_task_that_has_expired_is_wrong() {
    for (from, right) in [(TTL - 1, true), (TTL, false)] {
        let mut hand = Hand::new();
        hand.complete((from, TTL + 50), done(COMPLETED, 2));
        if right { hand.assert_right() } else { hand.assert_wrong() }
    }
}

#[test]
fn a_task_that_was_gone_for_somebody_does_not_come_back() {
    let mut hand = Hand::new();
    let call = hand.call(Command::SetTtl { ttl_ms: 50_000 }, None, None);
    let outcome = Outcome { applied: true, status: status(WORKING), revision: 2, replayed: false };
    let told = set_ttl::TtlOutcome { outcome, ttl_ms: 50_000, remaining_ms: 50_000 - TTL + 2 };
    hand.look((TTL - 5, TTL + 1), Seen::NotFound);
    // Decided in time, and answered late: each alone would be right.
    hand.command(
        (TTL - 4, TTL + 30),
        &call,
        Seen::Outcome(told.outcome, Told::Ttl(told.ttl_ms, told.remaining_ms)),
    );
    hand.assert_wrong();
}

#[test]
fn a_snapshot_of_two_revisions_is_wrong() {
    for (message, revision, updated, right) in [
        ("Task completed", 2, 15, true),
        ("Task completed", 1, 15, false),
        ("Task started", 2, 15, false),
        ("Task completed", 2, 0, false),
    ] {
        let mut hand = Hand::new();
        hand.complete((10, 20), done(COMPLETED, 2));
        let mut snapshot = hand.snapshot(31, message, (COMPLETED, revision), updated);
        snapshot.result = Some(task_broker_protocol::Json::empty_object());
        hand.look((30, 32), Seen::Snapshot(Box::new(snapshot)));
        if right { hand.assert_right() } else { hand.assert_wrong() }
    }
}
