//! Random calls on a few hot tasks, on tasks of a moment ago, and on new ones.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};

use task_broker_core::{Command, NewTask, OnSpentKey, Payload, Right, Status, TaskId, TtlWish};

use crate::call::{self, Act, Call, Reply, View, Who, Wish, ask, payload};

/// Tasks that all clients work on.
const HOT: usize = 5;
/// How many other tasks are remembered.
const RECENT: usize = 24;
/// How many calls with a key are remembered, to be sent again by anybody.
const REPEATABLE: usize = 40;
/// Keys of questions; the last one is never asked.
const QUESTIONS: [&str; 5] = ["qa", "qb", "qc", "qd", "never-asked"];

/// What clients know of a task.
#[derive(Clone, Copy, Debug)]
struct Known {
    id: TaskId,
    revision: u64,
    ended: bool,
}

/// What all clients know together.
#[derive(Debug, Default)]
pub(crate) struct Board {
    state: Mutex<Notes>,
}

#[derive(Debug, Default)]
struct Notes {
    hot: [Option<Known>; HOT],
    recent: VecDeque<Known>,
    repeatable: VecDeque<Call>,
}

/// One client: its choices and what it still has to do.
#[derive(Debug)]
pub(crate) struct Player {
    name: usize,
    rng: fastrand::Rng,
    sent: usize,
    /// The call that had no answer, with a key: it is sent again first.
    again: Option<Call>,
    /// The hot place that the next created task is for.
    place: Option<usize>,
    lives: Lives,
}

/// How long hot tasks live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lives {
    /// Mostly until somebody ends them.
    Long,
    /// Until they expire, under the hands of all clients.
    Short,
}

impl Board {
    /// Every task that is remembered.
    pub(crate) fn ids(&self) -> Vec<TaskId> {
        let notes = self.state.lock().unwrap();
        notes.hot.iter().flatten().chain(&notes.recent).map(|known| known.id).collect()
    }

    fn note(&self, id: TaskId, revision: Option<u64>, ended: bool) {
        let mut notes = self.state.lock().unwrap();
        let Notes { hot, recent, .. } = &mut *notes;
        for known in hot.iter_mut().flatten().chain(recent).filter(|known| known.id == id) {
            known.revision = revision.unwrap_or(known.revision).max(known.revision);
            known.ended |= ended;
        }
    }

    fn gone(&self, id: TaskId) {
        let mut notes = self.state.lock().unwrap();
        for place in &mut notes.hot {
            if place.is_some_and(|known| known.id == id) {
                *place = None;
            }
        }
    }
}

impl Player {
    pub(crate) fn new(name: usize, seed: u64, lives: Lives) -> Self {
        let rng = fastrand::Rng::with_seed(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ name as u64);
        Self { name, rng, sent: 0, again: None, place: None, lives }
    }

    fn percent(&mut self, of: u32) -> bool {
        self.rng.u32(..100) < of
    }

    /// The next call.
    pub(crate) fn next(&mut self, board: &Board) -> Call {
        self.sent += 1;
        if let Some(call) = self.again.take() {
            return call;
        }
        let dice = self.rng.u32(..100);
        if dice < 2 {
            let statuses = match self.rng.u32(..4) {
                0 => vec![Status::Working, Status::InputRequired],
                1 => vec![Status::Completed],
                _ => Vec::new(),
            };
            return call::page(*self.rng.choice([3, 20, 1000].iter()).unwrap(), statuses);
        }
        if dice < 5 {
            let mut ids = board.ids();
            self.rng.shuffle(&mut ids);
            ids.truncate(6);
            return call::states(ids);
        }
        if dice < 13 {
            let notes = board.state.lock().unwrap();
            if !notes.repeatable.is_empty() {
                return notes.repeatable[self.rng.usize(..notes.repeatable.len())].clone();
            }
        }
        let call = self.about_a_task(board).unwrap_or_else(|| self.create());
        let with_key = match &call.act {
            Act::Create(new) => new.key.is_some(),
            Act::Command(_, request) => request.guard.key.is_some(),
            Act::Look(..) | Act::Statuses(_) | Act::List(_) => false,
        };
        if with_key {
            let mut notes = board.state.lock().unwrap();
            notes.repeatable.push_back(call.clone());
            if notes.repeatable.len() > REPEATABLE {
                notes.repeatable.pop_front();
            }
        }
        call
    }

    /// Takes in what came of a call.
    pub(crate) fn learn(&mut self, board: &Board, call: &Call, reply: &Reply) {
        let ended = |status: &str| matches!(status, "completed" | "failed" | "cancelled");
        match (&call.act, reply) {
            (_, Reply::Open) => {
                let keyed = call.params.contains("idempotencyKey");
                self.again = (keyed && self.percent(80)).then(|| call.clone());
            }
            (Act::Create(_), Reply::Created(created)) => {
                let Some(id) = TaskId::parse(&created.snapshot.task.task_id) else { return };
                let known = Known { id, revision: 1, ended: false };
                let mut notes = board.state.lock().unwrap();
                if let Some(place) = self.place.take() {
                    notes.hot[place] = Some(known);
                    return;
                }
                notes.recent.push_back(known);
                if notes.recent.len() > RECENT {
                    notes.recent.pop_front();
                }
            }
            (Act::Look(id, _) | Act::Command(id, _), Reply::NotFound) if call.who == Who::Worker => {
                board.gone(*id);
            }
            (Act::Look(id, _), Reply::Snapshot(shown)) => {
                board.note(*id, Some(shown.revision), ended(shown.task.status.as_str()));
            }
            (Act::Command(id, _), Reply::Outcome(outcome))
                if call.method == "store/discard" && outcome.applied =>
            {
                board.gone(*id);
            }
            (Act::Command(id, _), Reply::Outcome(outcome)) => {
                board.note(*id, Some(outcome.revision), ended(outcome.status.as_str()));
            }
            (Act::Command(id, _), Reply::Refused(_, revision)) => board.note(*id, *revision, false),
            (Act::Command(id, _), Reply::Ttl(told)) => board.note(*id, Some(told.outcome.revision), false),
            _ => {}
        }
    }

    fn about_a_task(&mut self, board: &Board) -> Option<Call> {
        let dice = self.rng.u32(..100);
        let notes = board.state.lock().unwrap();
        let known = if dice < 70 {
            let place = self.rng.usize(..HOT);
            let known = notes.hot[place];
            // Now and then a task that has ended makes room for another.
            if known.is_none() || known.is_some_and(|known| known.ended) && self.rng.u32(..100) < 6 {
                self.place = Some(place);
                return None;
            }
            known?
        } else if dice < 90 && !notes.recent.is_empty() {
            notes.recent[self.rng.usize(..notes.recent.len())]
        } else {
            return None;
        };
        drop(notes);
        Some(if self.percent(35) { self.look(known) } else { self.command(known) })
    }

    fn look(&mut self, known: Known) -> Call {
        match self.rng.u32(..10) {
            0..=3 => call::look(Who::Worker, known.id, View::Get),
            4 => call::look(Who::User, known.id, View::Owner),
            5 | 6 => call::look(Who::Worker, known.id, View::Owner),
            7 => call::look(Who::Worker, known.id, View::Resume),
            8 => call::look(Who::Worker, known.id, View::Wait(None)),
            _ => call::look(Who::Worker, known.id, View::Wait(Some(known.revision))),
        }
    }

    fn create(&mut self) -> Call {
        let hot = self.place.is_some();
        let ttl = match self.rng.u32(..20) {
            0 => TtlWish::Default,
            1 => TtlWish::Maximum,
            2 => TtlWish::Millis(u64::MAX),
            3 if !hot => TtlWish::Millis(0),
            _ if hot && self.lives == Lives::Short => TtlWish::Millis(self.rng.u64(20..150)),
            4..=8 if hot => TtlWish::Millis(self.rng.u64(400..3000)),
            4..=15 if !hot => TtlWish::Millis(self.rng.u64(5..600)),
            _ => TtlWish::Millis(self.rng.u64(20_000..600_000)),
        };
        let by_user = self.percent(50);
        let owner = if by_user { Who::User } else { Who::Worker };
        let new = NewTask {
            id: TaskId::from_bytes([0; 16]),
            tool_name: format!("tool-{}-{}", self.name, self.sent).into(),
            arguments: self.payload("arguments"),
            ttl,
            owner: Some(owner.subject().into()),
            poll_interval_ms: self.percent(20).then(|| self.rng.u64(100..5000)),
            meta: self.percent(40).then(|| self.payload("meta")),
            key: None,
        };
        let key = self.percent(50).then(|| format!("create-{}-{}", self.name, self.sent));
        call::create(new, key.as_deref())
    }

    fn command(&mut self, known: Known) -> Call {
        let right = if self.percent(20) { Right::Owner } else { Right::Creator };
        let (right, command) = match self.rng.u32(..100) {
            0..=21 => (right, self.answers()),
            22..=39 => (Right::Creator, self.questions()),
            40..=55 => (Right::Creator, Command::SetMeta { meta: self.payload("meta") }),
            56..=71 => (Right::Creator, self.status()),
            72..=85 => (Right::Creator, Command::SetTtl { ttl_ms: self.ttl() }),
            86..=90 => (Right::Creator, Command::Complete { result: self.payload("result") }),
            91..=93 => (Right::Creator, self.failure()),
            94..=97 if right == Right::Owner => (right, Command::Cancel { reason: None }),
            94..=97 => {
                let reason = self.percent(50).then(|| format!("because of {}", self.sent));
                (right, Command::Cancel { reason })
            }
            _ => (Right::Creator, Command::Discard),
        };
        let who = if right == Right::Owner && self.percent(50) { Who::User } else { Who::Worker };
        let key = match self.rng.u32(..100) {
            0..=34 => Some(format!("key-{}-{}", self.name, self.sent)),
            // Of somebody else, for something else.
            35..=39 => Some(format!("key-{}-{}", self.rng.usize(..8), self.rng.usize(..=self.sent))),
            _ => None,
        };
        let expected = match self.rng.u32(..100) {
            0..=19 => Some(known.revision),
            20..=24 => Some(known.revision + 1),
            _ => None,
        };
        call::command(who, right, known.id, command, &Wish { key, expected })
    }

    fn answers(&mut self) -> Command {
        let mut responses = BTreeMap::new();
        for key in QUESTIONS {
            if self.percent(40) {
                let answer = payload(format!(r#"{{"by":{},"n":{}}}"#, self.name, self.sent));
                responses.insert(Arc::from(key), answer);
            }
        }
        Command::ApplyInput { responses }
    }

    fn questions(&mut self) -> Command {
        let mut requests = BTreeMap::new();
        let keys = self.rng.choose_multiple(QUESTIONS[..4].iter(), 1 + self.sent % 3);
        for key in keys {
            let question = ask(format!(r#"{{"method":"elicitation/create","n":{}}}"#, self.rng.u32(..3)));
            requests.insert(Arc::from(*key), question);
        }
        let message = self.percent(30).then(|| format!("question {}", self.rng.u32(..3)));
        let on_spent = if self.percent(30) { OnSpentKey::Reject } else { OnSpentKey::AskAgain };
        Command::RequireInput { requests, message, on_spent }
    }

    fn status(&mut self) -> Command {
        let status = match self.rng.u32(..20) {
            0 => Status::Completed,
            1..=6 => Status::InputRequired,
            _ => Status::Working,
        };
        // Few texts, so that some change nothing.
        let message = self.percent(70).then(|| format!("status {}", self.rng.u32(..6)));
        Command::SetStatus { status, message }
    }

    fn ttl(&mut self) -> u64 {
        match self.rng.u32(..24) {
            0 => 0,
            1..=12 if self.lives == Lives::Short => self.rng.u64(20..200),
            1..=3 => self.rng.u64(1..4000),
            4 => u64::MAX,
            _ => 100_000 * self.rng.u64(1..4),
        }
    }

    fn failure(&mut self) -> Command {
        let message = format!("error {}", self.sent);
        let error =
            payload(format!(r#"{{"code":-{},"message":"{message}","data":[{}]}}"#, 1 + self.name, self.sent));
        Command::Fail { error, message }
    }

    /// A JSON object that is like no other; now and then one that is kept in pieces.
    fn payload(&mut self, what: &str) -> Payload {
        let length = match self.rng.u32(..40) {
            0 => 20_000,
            1..=3 => 3000,
            _ => self.rng.usize(..60),
        };
        let length = if what == "meta" { length.min(3000) } else { length };
        payload(format!(r#"{{"{what}":[{},{}],"fill":"{}"}}"#, self.name, self.sent, "x".repeat(length)))
    }
}
