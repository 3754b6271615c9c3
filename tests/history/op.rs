//! The history of one task: what was asked, what was told, and when.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use task_broker_core::{Caller, NewTask, Request, Right, Status, Task};
use task_broker_protocol::methods::create::Created;
use task_broker_protocol::methods::{resume, statuses, tasks_get};
use task_broker_protocol::shapes::{Outcome, Row, Snapshot};

/// A task over its life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Unborn,
    Live(Arc<Task>),
    /// Discarded, or somebody was told that it has expired. There is no way back.
    Gone,
}

/// The broker's times, in milliseconds, at which a call may have been decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    pub(crate) from: u64,
    pub(crate) to: u64,
}

impl Window {
    pub(crate) fn has(self, time: u64) -> bool {
        (self.from..=self.to).contains(&time)
    }
}

/// What was asked.
#[derive(Clone, Debug)]
pub(crate) enum What {
    Create(Arc<NewTask>, Caller),
    Command(Arc<Request>),
    Look(Caller, Right),
}

/// What was told.
#[derive(Clone, Debug)]
pub(crate) enum Seen {
    /// Nothing: it may have happened or not.
    Unknown,
    /// There is no such task.
    NotFound,
    /// An error: its kind, and the revision that it names.
    Refused(String, Option<u64>),
    /// It was carried out, and that is all.
    Acknowledged,
    Created(Box<Created>),
    Outcome(Outcome, Told),
    Snapshot(Box<Snapshot>),
    /// A snapshot, the `sinceRevision` of the wait, and whether it timed out.
    Waited(Box<Snapshot>, Option<u64>, bool),
    /// The snapshot that comes with an outcome; its revision is the outcome's.
    View(Box<Snapshot>),
    Owner(Box<tasks_get::DetailedTask>),
    Resume(Box<resume::Context>),
    State(statuses::State),
    Row(Box<Row>),
    /// A list of tasks with these statuses (all if there are none) did not show it.
    Unlisted(Vec<Status>),
}

/// What an outcome tells beyond itself.
#[derive(Clone, Debug)]
pub(crate) enum Told {
    Nothing,
    /// Accepted, ignored, still outstanding.
    Inputs(Vec<String>, Vec<String>, Vec<String>),
    /// The TTL in force, and what remains of it.
    Ttl(u64, u64),
    /// The task afterwards.
    View(Box<Snapshot>),
}

/// One call as far as it is about one task.
#[derive(Clone, Debug)]
pub(crate) struct Op {
    /// Its number in the recording.
    pub(crate) number: usize,
    pub(crate) client: usize,
    /// Which process of the broker it was sent to.
    pub(crate) life: usize,
    /// When it began and when its answer was there, in microseconds of the recording.
    pub(crate) from: u64,
    pub(crate) to: u64,
    pub(crate) window: Window,
    /// What was sent, for people.
    pub(crate) label: Arc<str>,
    pub(crate) what: What,
    pub(crate) seen: Seen,
}

impl Op {
    /// Whether it may just as well not have happened.
    pub(crate) fn is_optional(&self) -> bool {
        matches!(self.seen, Seen::Unknown)
    }

    /// Whether the task is the same with and without it, whatever it answers.
    pub(crate) fn is_pure(&self) -> bool {
        match &self.seen {
            Seen::Refused(..) => true,
            Seen::Outcome(outcome, _) => outcome.replayed,
            _ => matches!(self.what, What::Look(..)),
        }
    }

    /// The revision of the task at this call, if the answer tells it and is not one of earlier.
    pub(crate) fn revision(&self) -> Option<u64> {
        match &self.seen {
            Seen::Refused(_, revision) => *revision,
            Seen::Created(created) => Some(created.snapshot.revision),
            Seen::Outcome(outcome, _) => (!outcome.replayed).then_some(outcome.revision),
            Seen::Snapshot(snapshot) | Seen::Waited(snapshot, ..) => Some(snapshot.revision),
            Seen::Resume(context) => Some(context.revision),
            Seen::State(state) => Some(state.revision),
            Seen::Row(row) => Some(row.revision),
            Seen::Unknown
            | Seen::NotFound
            | Seen::Acknowledged
            | Seen::View(_)
            | Seen::Owner(_)
            | Seen::Unlisted(_) => None,
        }
    }
}

/// What all answers about one task together tell of its times.
#[derive(Clone, Debug, Default)]
pub(crate) struct Times {
    pub(crate) born: Option<u64>,
    /// `lastUpdatedAt` by revision.
    pub(crate) updated: HashMap<u64, u64>,
    /// `lastUpdatedAt` of looks that do not tell a revision.
    pub(crate) loose: BTreeSet<u64>,
    /// What a later replay tells of the first call: what remained of the TTL, by idempotency key.
    pub(crate) remained: HashMap<String, u64>,
}

/// The state in a few words.
pub(crate) fn name(state: &State) -> String {
    match state {
        State::Unborn => "not created".to_owned(),
        State::Gone => "gone".to_owned(),
        State::Live(task) => format!(
            "revision {} {:?} \"{}\" ttl {} updated {} open {:?} meta {:?} cancelRequested {}",
            task.revision,
            task.status(),
            task.message.chars().take(40).collect::<String>(),
            task.ttl_ms,
            task.updated_at.as_millis(),
            task.inputs.iter().flat_map(|inputs| inputs.outstanding.keys()).collect::<Vec<_>>(),
            task.meta.map(|meta| (meta.revision, meta.len)),
            task.cancel_requested
        ),
    }
}
