//! What holds after every step of every history: random commands, times, keys and callers, beside a model.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that panics has failed, as it should; clippy.toml covers only functions marked as tests"
)]

mod model;
mod steps;
#[path = "../support/mod.rs"]
mod support;

use std::collections::{BTreeSet, HashMap, HashSet};

use bytes::Bytes;
use model::{Frame, Model, Refusal, Situation, Verdict};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use steps::{BYTES_PER_OWNER, Beginning, Call, Expect, MAX_TTL, Step, What, beginning, right, step};
use support::{limits, new_task, payload};
use task_broker_core::digest::Digest;
use task_broker_core::{
    Caller, Detail, Effect, Event, EventKind, Guard, IdempotencyKey, Limits, NewTask, Outcome, PayloadRef,
    Quota, Rejection, Request, Status, Task, Timestamp, Transition, TtlWish, Usage, check, create, execute,
};

proptest! {
    // Failing cases are not kept in a file: a found case becomes a test of its own.
    #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_rules_hold_after_every_step_of_every_history(
        beginning in beginning(),
        steps in prop::collection::vec(step(), 1..60),
    ) {
        History::run(beginning, &steps);
    }
}

#[test]
fn the_random_histories_reach_everything_that_a_call_can_do() {
    let mut runner = TestRunner::deterministic();
    let strategy = (beginning(), prop::collection::vec(step(), 60));
    let mut seen = BTreeSet::new();
    for _ in 0..200 {
        let (beginning, steps) = strategy.new_tree(&mut runner).unwrap().current();
        seen.extend(History::run(beginning, &steps).into_iter().map(|verdict| match verdict {
            Verdict::Replayed(_) => "Replayed".to_owned(),
            other => format!("{other:?}"),
        }));
    }
    let expected = [
        "Changed",
        "Noted",
        "Refused(Expired)",
        "Refused(Foreign)",
        "Refused(Mismatch)",
        "Refused(Params)",
        "Refused(Quota)",
        "Refused(Revision)",
        "Refused(Transition)",
        "Removed",
        "Replayed",
        "TooLate",
        "Unchanged",
    ];
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), expected);
}

/// A task with its history, as a store would keep it, beside the model.
struct History {
    task: Task,
    model: Model,
    limits: Limits,
    now: u64,
    /// The payloads that are kept.
    kept: HashMap<PayloadRef, Bytes>,
    /// Every reference that was ever written.
    ever: HashSet<PayloadRef>,
    /// Every call with what it got.
    calls: Vec<(Request, Call, Option<Outcome>)>,
    /// How many times the client was asked, and in which rounds the last answer came.
    round: usize,
    finished: HashSet<usize>,
}

impl History {
    /// Runs a history to its end or to the removal of the task; gives what the calls did.
    fn run(beginning: Beginning, steps: &[Step]) -> Vec<Verdict> {
        let mut history = Self::begin(beginning);
        let mut verdicts = Vec::new();
        for step in steps {
            history.now = history.now.saturating_add_signed(step.after_ms);
            let verdict = match &step.what {
                What::Call(call) => history.call(call.clone(), None),
                What::Again(_) if history.calls.is_empty() => continue,
                What::Again(which) => {
                    let (request, call, _) = which.get(&history.calls).clone();
                    history.call(call, Some(request))
                }
            };
            verdicts.push(verdict);
            if verdict == Verdict::Removed {
                break;
            }
        }
        verdicts
    }

    fn begin(beginning: Beginning) -> Self {
        let Beginning { creator, owner, created, ttl, meta } = beginning;
        let quota = Quota { bytes_per_owner: BYTES_PER_OWNER, ..limits().quota };
        let limits = Limits { max_ttl_ms: MAX_TTL, quota, ..limits() };
        let ttl_wish = TtlWish::Millis(ttl);
        let new = NewTask { ttl: ttl_wish, owner: owner.subject(), meta: meta.map(payload), ..new_task() };
        let base_bytes = 512 + u64::try_from(new.tool_name.len()).unwrap() + new.arguments.len();
        let caller = Caller { may_delegate: true, ..creator.caller() };
        let now = Timestamp::from_millis(created);
        let transition = create(new, &caller, &limits, &Usage::default(), now).unwrap();
        let Effect::Write { task, payloads, dropped, event } = transition.effect else {
            panic!("not written")
        };
        assert_eq!((dropped, event), (vec![], Some(Event::of(EventKind::Create, &task))));
        assert_eq!((task.revision, task.created_at, task.updated_at), (1, now, now));
        assert_eq!(payloads.len(), task.payloads().count());
        let kept: HashMap<_, _> = payloads.into_iter().collect();
        assert_eq!(kept.len(), task.payloads().count(), "arguments and meta share a reference");
        let bytes_per_owner = BYTES_PER_OWNER;
        let frame = Frame { creator, owner, created, max_ttl: MAX_TTL, bytes_per_owner, base_bytes };
        let history = Self {
            model: Model::new(frame, ttl, meta),
            task: *task,
            limits,
            now: created,
            ever: kept.keys().copied().collect(),
            kept,
            calls: Vec::new(),
            round: 0,
            finished: HashSet::new(),
        };
        history.agrees_with_model();
        history
    }

    /// One call, by core and model.
    fn call(&mut self, call: Call, again: Option<Request>) -> Verdict {
        let (person, as_owner) = call.who.of(self.model.frame.creator, self.model.frame.owner);
        let says = self.calls.iter().position(|(_, earlier, _)| earlier.wish == call.wish);
        let says = u64::try_from(says.unwrap_or(self.calls.len())).unwrap();
        let request = again.unwrap_or_else(|| Request {
            caller: person.caller(),
            right: right(as_owner),
            guard: Guard {
                key: call.key.map(|key| IdempotencyKey::new(key, Digest(says.into())).unwrap()),
                expected_revision: match call.expect {
                    Expect::Any => None,
                    Expect::Current => Some(self.task.revision),
                    Expect::Earlier => Some(self.task.revision - 1),
                    Expect::Later => Some(self.task.revision + 1),
                },
            },
            command: call.wish.command(),
        });
        let situation = Situation {
            now: self.now,
            person,
            as_owner,
            key: call.key.map(|key| (key, says)),
            expected_revision: request.guard.expected_revision,
            owner_bytes: BYTES_PER_OWNER - call.room,
        };
        let usage = Usage { owner_bytes: situation.owner_bytes, owner_tasks: 1, total_tasks: 1 };
        let now = Timestamp::from_millis(self.now);

        let verdict = self.model.call(self.calls.len(), &call.wish, &situation);
        let decided = execute(&self.task, &request, &self.limits, &usage, now);
        assert_eq!(
            decided,
            execute(&self.task, &request, &self.limits, &usage, now),
            "the decision depends on something that is not an argument"
        );
        let outcome = match decided {
            Ok(transition) => {
                let outcome = transition.outcome.clone();
                self.take(&request, verdict, transition);
                Some(outcome)
            }
            Err(rejection) => {
                assert_eq!(Verdict::Refused(refusal_of(&rejection)), verdict, "{rejection:?}");
                None
            }
        };
        self.calls.push((request, call, outcome));
        // After a rejection too: the model changes nothing then.
        if verdict != Verdict::Removed {
            self.agrees_with_model();
        }
        verdict
    }

    /// Holds a transition against the rules, then does what a store does with it.
    fn take(&mut self, request: &Request, verdict: Verdict, transition: Transition) {
        let before = self.task.clone();
        let now = Timestamp::from_millis(self.now);
        assert!(!before.is_expired(now), "an expired task carried something out");
        let Transition { outcome, replayed, effect } = transition;

        assert_eq!(replayed, matches!(verdict, Verdict::Replayed(_)));
        if let Verdict::Replayed(first) = verdict {
            assert_eq!((Some(&outcome), &effect), (self.calls[first].2.as_ref(), &Effect::None));
            return;
        }
        let late = matches!(verdict, Verdict::TooLate | Verdict::Noted);
        assert_eq!(outcome.applied, !late);
        assert!(outcome.applied || before.status().is_terminal(), "only an ended task turns a command away");

        let step = u64::from(matches!(verdict, Verdict::Changed | Verdict::Removed));
        assert_eq!(outcome.revision, before.revision + step);
        let (task, payloads, dropped, event) = match effect {
            Effect::None => (Box::new(before.clone()), vec![], vec![], None),
            Effect::Write { task, payloads, dropped, event } => (task, payloads, dropped, event),
            Effect::Remove { event } => {
                assert_eq!(verdict, Verdict::Removed);
                assert_eq!((event.kind, event.revision), (EventKind::Discard, before.revision + 1));
                assert_eq!((event.status, outcome.status), (before.status(), before.status()));
                return;
            }
        };
        assert_ne!(verdict, Verdict::Removed);
        assert_eq!((outcome.status, outcome.revision), (task.status(), task.revision));
        let announced = matches!(verdict, Verdict::Changed | Verdict::Noted);
        let expected = announced.then(|| Event::of(request.command.kind(), &task));
        assert_eq!(event, expected, "an event if and only if something happened");

        lifetime_rules(&before, &task, verdict, now);
        details_agree(&before, &task, &outcome, now);
        self.count_rounds(&before, &task, request.command.kind(), verdict, &outcome);
        self.keep_books(&task, payloads, &dropped);
        self.task = *task;
    }

    /// Exactly one outcome per round has something accepted and nothing outstanding.
    fn count_rounds(
        &mut self,
        before: &Task,
        after: &Task,
        kind: EventKind,
        verdict: Verdict,
        outcome: &Outcome,
    ) {
        let asked = kind == EventKind::RequireInput && verdict == Verdict::Changed;
        self.round += usize::from(asked);
        let is_last = matches!(&outcome.detail, Detail::Inputs { accepted, outstanding }
            if !accepted.is_empty() && outstanding.is_empty());
        let open = |task: &Task| task.inputs.as_ref().is_some_and(|inputs| !inputs.outstanding.is_empty());
        let emptied = open(before) && !open(after) && !after.status().is_terminal();
        assert_eq!(is_last, emptied);
        assert!(!is_last || self.finished.insert(self.round), "two last answers in round {}", self.round);
    }

    /// Old payloads and written ones, less the dropped ones, are the payloads of the new task.
    fn keep_books(&mut self, task: &Task, written: Vec<(PayloadRef, Bytes)>, dropped: &[PayloadRef]) {
        for (reference, bytes) in written {
            assert!(self.ever.insert(reference), "a reference is used twice: {reference:?}");
            assert!(reference.matches(&bytes));
            assert_eq!(reference.revision, task.revision, "written by the transition that names it");
            self.kept.insert(reference, bytes);
        }
        for reference in dropped {
            assert!(self.kept.remove(reference).is_some(), "dropped, but not kept: {reference:?}");
        }
        let named: Vec<_> = task.payloads().copied().collect();
        let distinct: HashSet<_> = named.iter().copied().collect();
        assert_eq!(named.len(), distinct.len(), "two payloads share a reference");
        assert_eq!(distinct, self.kept.keys().copied().collect());
    }

    fn text(&self, reference: &PayloadRef) -> &str {
        let bytes = self.kept.get(reference).expect("a payload that the task names is kept");
        assert!(reference.matches(bytes));
        std::str::from_utf8(bytes).unwrap()
    }

    fn agrees_with_model(&self) {
        let (task, model) = (&self.task, &self.model);
        check(task).unwrap();
        assert_eq!((task.status(), &*task.message), (model.status, &*model.message));
        assert_eq!((task.revision, task.ttl_ms), (model.revision, model.ttl));
        assert_eq!(task.created_at.as_millis(), model.frame.created);
        assert_eq!(task.updated_at.as_millis(), model.updated);
        assert_eq!(task.cancel_requested, model.cancel_requested);
        assert_eq!(task.meta.as_ref().map(|meta| self.text(meta)), model.meta);
        let end = match &task.phase {
            task_broker_core::Phase::Completed(end) | task_broker_core::Phase::Failed(end) => {
                Some(self.text(end))
            }
            task_broker_core::Phase::Working
            | task_broker_core::Phase::InputRequired
            | task_broker_core::Phase::Cancelled => None,
        };
        assert_eq!(end, model.end);
        assert_eq!(self.text(&task.arguments), r#"{"q":1}"#);

        let inputs = task.inputs.as_deref().cloned().unwrap_or_default();
        let open = inputs.outstanding.iter().map(|(key, open)| (&**key, self.text(&open.payload)));
        assert_eq!(open.collect::<Vec<_>>(), pairs(&model.open));
        let answers = task.answers().map(|(key, answer)| (&**key, self.text(answer)));
        assert_eq!(answers.collect::<Vec<_>>(), pairs(&model.answers));
        let spent: Vec<_> = inputs.spent.iter().map(|key| &**key).collect();
        assert_eq!(spent, model.spent.iter().copied().collect::<Vec<_>>());
        let shown: Vec<_> = task.shown_questions().map(|(key, _)| &**key).collect();
        let visible = model.open.keys().filter(|_| model.status == Status::InputRequired);
        assert_eq!(shown, visible.copied().collect::<Vec<_>>());

        let remembered = task.replay.iter().flat_map(|replay| &replay.outcomes);
        let remembered = remembered.map(|entry| (&**entry.key.key(), &entry.outcome));
        let expected =
            model.remembered.iter().map(|(key, _, call, _)| (*key, self.calls[*call].2.as_ref().unwrap()));
        assert_eq!(remembered.collect::<Vec<_>>(), expected.collect::<Vec<_>>());
        assert_eq!(task.footprint(), model.bytes(), "the footprint is what is kept");
    }
}

fn pairs<'a>(map: &std::collections::BTreeMap<&'a str, &'a str>) -> Vec<(&'a str, &'a str)> {
    map.iter().map(|(key, text)| (*key, *text)).collect()
}

/// What never changes, what changes only forwards, and what a transition that is none leaves alone.
fn lifetime_rules(before: &Task, after: &Task, verdict: Verdict, now: Timestamp) {
    assert_eq!((before.id, &before.tool_name), (after.id, &after.tool_name));
    assert_eq!((&before.creator, &before.owner), (&after.creator, &after.owner));
    assert_eq!((before.arguments, before.created_at), (after.arguments, after.created_at));
    assert_eq!(before.poll_interval_ms, after.poll_interval_ms);
    assert!(!before.cancel_requested || after.cancel_requested, "a cancel was forgotten");
    if verdict == Verdict::Changed {
        assert_eq!(after.revision, before.revision + 1);
        assert_eq!(after.updated_at, before.updated_at.max(now));
        let last = after.history.last().expect("a history");
        assert_eq!((last.revision, last.at), (after.revision, after.updated_at));
    } else {
        let noted = before.cancel_requested || verdict == Verdict::Noted;
        let same = Task { cancel_requested: noted, replay: after.replay.clone(), ..before.clone() };
        assert_eq!(*after, same, "nothing but the sign of a cancel and the memory of calls may change");
    }
    if before.status().is_terminal() {
        assert_eq!((before.phase, &before.message), (after.phase, &after.message), "terminal is immutable");
        assert_eq!(before.inputs, after.inputs, "terminal is immutable");
    }
}

/// What an outcome tells in detail is what the new task says.
fn details_agree(before: &Task, after: &Task, outcome: &Outcome, now: Timestamp) {
    let open =
        |task: &Task| task.inputs.iter().flat_map(|inputs| inputs.outstanding.keys()).cloned().collect();
    match &outcome.detail {
        Detail::None => {}
        Detail::Ttl { ttl_ms, remaining_ms } => {
            assert_eq!((*ttl_ms, *remaining_ms), (after.ttl_ms, after.remaining_ms(now)));
        }
        Detail::Inputs { accepted, outstanding } => {
            let (was_open, still_open): (Vec<_>, Vec<_>) = (open(before), open(after));
            assert_eq!(*outstanding, still_open);
            let answered = was_open.into_iter().filter(|key| !still_open.contains(key));
            assert_eq!(*accepted, answered.collect::<Vec<_>>());
        }
    }
}

fn refusal_of(rejection: &Rejection) -> Refusal {
    match rejection {
        Rejection::Expired => Refusal::Expired,
        Rejection::Foreign => Refusal::Foreign,
        Rejection::InvalidParams { .. } => Refusal::Params,
        Rejection::InvalidTransition(_) => Refusal::Transition,
        Rejection::RevisionConflict { .. } => Refusal::Revision,
        Rejection::IdempotencyMismatch => Refusal::Mismatch,
        Rejection::LimitExceeded { limit: "quotaBytesPerOwner", maximum: BYTES_PER_OWNER } => Refusal::Quota,
        Rejection::LimitExceeded { .. } | Rejection::Forbidden { .. } => panic!("unexpected: {rejection:?}"),
    }
}
