//! A worker: one connection, one call in flight, and an exact idea of what each of its tasks looks like.
//!
//! Nobody else changes a worker's tasks. So after a crash each of them has one of two states: the one after the last
//! acknowledged command, or the one after the command that was in flight.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::harness::Answer;
use crate::harness::link::Link;
use crate::load::Load;
use crate::model::{Command, Creation, Row, Task, Text, Texts, Wish, assert_says, row_of, view_of};

/// How many of its newest tasks a worker keeps changing. Older ones rest, and must stay as they are.
const WINDOW: usize = 4;
/// How many keyed calls are remembered for a replay; a task keeps 32 outcomes, and no task gets that many of these.
const REMEMBERED: usize = 3;
/// `meta` may have 64 KiB.
const LARGEST_META: usize = 60_000;

/// What kind of load a worker makes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Habits {
    /// The largest payload; small ones are more frequent, down to 100 bytes.
    pub(crate) largest: usize,
    /// How many of 100 calls have an idempotency key.
    pub(crate) keyed: u32,
    /// What the worker does so that what lives is replaced again and again.
    pub(crate) turnover: Option<Turnover>,
}

/// A bounded live set, of payloads of 1 KiB, 100 KiB and 2 MiB, and tasks in between that expire by themselves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turnover {
    /// How many tasks of one worker live; the oldest is discarded when there are more.
    pub(crate) live: usize,
    /// How many times all of them are replaced in a round, at least.
    pub(crate) times: usize,
}

/// One payload in so many is of 2 MiB, and one of 100 KiB; all others are of 1 KiB.
const TWO_MIB_IN: u32 = 64;
const HUNDRED_KIB_IN: u32 = 8;
/// One create in so many makes a task that soon expires, unless a later round finds it.
const MORTAL_IN: u32 = 8;
/// A task with a shorter TTL is one that soon expires.
const MORTAL_TTL_MS: u64 = 100_000;
/// By how much the clocks of test and broker may differ, in milliseconds: they are one clock, read by two processes.
pub(crate) const CLOCK_SLACK_MS: u64 = 500;
/// How many tasks that are gone a worker remembers, to see that they stay away.
const GONE_KEPT: usize = 200;

/// A task that nobody changes and that expires by itself.
#[derive(Clone, Debug)]
pub(crate) struct Mortal {
    pub(crate) id: String,
    /// In milliseconds since 1970.
    pub(crate) deadline: u64,
}

/// A call that was sent and not answered.
#[derive(Clone, Debug)]
enum Pending {
    Create(Creation),
    /// On the task with this index.
    Command(usize, Command),
    /// `setMeta` on the task that all workers share.
    Shared(Text),
}

/// See the module.
pub(crate) struct Worker {
    name: usize,
    habits: Habits,
    rng: fastrand::Rng,
    sent: u64,
    /// The tasks that live.
    pub(crate) tasks: Vec<Task>,
    /// The tasks whose discard was acknowledged.
    pub(crate) gone: Vec<String>,
    /// The tasks that expire by themselves, as long as it is not known that they have.
    pub(crate) mortals: Vec<Mortal>,
    /// How many tasks were replaced in this round.
    pub(crate) replaced: usize,
    pending: Option<Pending>,
    /// Calls with a key, their task, and what the outcome said.
    keyed: Vec<(String, Command, Value)>,
    created: Option<(String, Creation)>,
}

impl Worker {
    pub(crate) fn new(name: usize, seed: u64, habits: Habits) -> Self {
        let rng = fastrand::Rng::with_seed(seed.wrapping_mul(1_000_003).wrapping_add(name as u64));
        let (tasks, gone, mortals, keyed) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Self {
            name,
            habits,
            rng,
            sent: 0,
            tasks,
            gone,
            mortals,
            replaced: 0,
            pending: None,
            keyed,
            created: None,
        }
    }

    /// Makes one call after the other until the broker is gone or drains.
    pub(crate) fn work(&mut self, link: &mut Link, load: &Load) {
        self.replaced = 0;
        let surplus = self.gone.len().saturating_sub(GONE_KEPT);
        if self.habits.turnover.is_some() {
            self.gone.drain(..surplus);
        }
        loop {
            let pending = self.choose();
            let (method, params) = match &pending {
                Pending::Create(creation) => ("store/create", creation.params()),
                Pending::Command(index, command) => {
                    (command.method(), command.params(&self.tasks[*index].id))
                }
                Pending::Shared(meta) => {
                    let (id, meta) = (&load.shared, meta.as_str());
                    ("store/setMeta", format!(r#"{{"taskId":"{id}","meta":{meta}}}"#))
                }
            };
            self.pending = Some(pending);
            let in_time = !load.is_over();
            let Some(answer) = link.call(method, &params) else {
                load.cut_off(in_time);
                return;
            };
            if answer.status == 503 {
                // Refused while draining: not carried out.
                assert!(load.is_over(), "refused before the end: {answer}");
                answer.http_error(503);
                self.pending = None;
                return;
            }
            if load.is_outcome_unknown(&answer) {
                load.cut_off(in_time);
                return;
            }
            self.acknowledge(&answer, load);
            load.acknowledged();
        }
    }

    fn acknowledge(&mut self, answer: &Answer, load: &Load) {
        match self.pending.take().unwrap() {
            Pending::Create(creation) => {
                let row = row_of(answer);
                assert!(answer.text().contains(r#""created":true"#), "{answer}");
                let task = creation.made(row.id.clone());
                assert_eq!((row.revision, &row.meta), (1, &task.view.meta), "{answer}");
                if creation.ttl_ms < MORTAL_TTL_MS {
                    self.mortals.push(mortal(&row));
                    load.made(row.id);
                    return;
                }
                if creation.key.is_some() {
                    self.created = Some((row.id.clone(), creation));
                }
                load.made(row.id);
                self.tasks.push(task);
            }
            Pending::Command(index, command) => {
                let lived = self.tasks.len();
                self.carried_out(index, command, answer);
                let Some(turnover) = self.habits.turnover.filter(|_| self.tasks.len() < lived) else {
                    return;
                };
                self.replaced += 1;
                if self.replaced == turnover.live * turnover.times {
                    load.turned_over();
                }
            }
            Pending::Shared(meta) => {
                let revision = answer.result()["revision"].as_u64().unwrap();
                let known = load.shared_metas.lock().unwrap().insert(revision, meta);
                assert!(known.is_none(), "two commands made the same revision: {answer}");
            }
        }
    }

    /// Takes the effect of a command into the model.
    fn carried_out(&mut self, index: usize, command: Command, answer: &Answer) {
        let (after, outcome) = command.on(&self.tasks[index]);
        if command.is_the_owners() {
            assert_eq!(answer.result()["resultType"], "complete", "{answer}");
        } else {
            assert_says(answer, &outcome);
        }
        self.moved_on(index, after, command, outcome);
    }

    fn moved_on(&mut self, index: usize, after: Option<Task>, command: Command, outcome: Value) {
        let id = self.tasks[index].id.clone();
        let Some(after) = after else {
            self.tasks.remove(index);
            self.keyed.retain(|(of, _, _)| *of != id);
            self.gone.push(id);
            return;
        };
        self.tasks[index] = after;
        if command.key.is_some() {
            self.keyed.push((id, command, outcome));
            let surplus = self.keyed.len().saturating_sub(REMEMBERED);
            self.keyed.drain(..surplus);
        }
    }

    // What to do next.

    fn choose(&mut self) -> Pending {
        self.sent += 1;
        if self.rng.u32(..100) < 4 {
            return Pending::Shared(self.payload(400));
        }
        if self.habits.turnover.is_some_and(|turnover| self.tasks.len() > turnover.live) {
            return Pending::Command(0, Command { wish: Wish::Discard, key: self.key() });
        }
        if self.tasks.len() < 2 || self.rng.u32(..100) < 20 {
            let mortal = self.habits.turnover.is_some() && self.rng.u32(..MORTAL_IN) == 0;
            let key = self.key().filter(|_| !mortal);
            return Pending::Create(Creation {
                tool: format!("tool-{}-{}", self.name, self.sent),
                arguments: self.body(),
                meta: self.rng.bool().then(|| self.meta()),
                ttl_ms: if mortal { self.rng.u64(100..5000) } else { 1_000_000 + self.sent },
                key,
            });
        }
        let index = self.rng.usize(self.tasks.len().saturating_sub(WINDOW)..self.tasks.len());
        let wish = self.wish(index);
        Pending::Command(index, Command { wish, key: self.key() })
    }

    fn wish(&mut self, index: usize) -> Wish {
        let sent = self.sent;
        let open: Vec<String> = self.tasks[index].open.keys().cloned().collect();
        let terminal = self.tasks[index].view.result.is_some()
            || self.tasks[index].view.error.is_some()
            || self.tasks[index].view.status == "cancelled";
        let by_owner = self.rng.bool();
        match (terminal, self.rng.u32(..14)) {
            (true, 0..=2) | (false, 0) => Wish::Discard,
            (_, 1 | 2) => Wish::Complete(self.body()),
            (_, 3) => Wish::Fail(i32::MIN.into(), format!("failure {sent}"), self.body()),
            (_, 4) => Wish::Cancel(by_owner),
            (_, 5) => Wish::SetTtl(2_000_000 + sent),
            (_, 6 | 7) => Wish::SetMeta(self.meta()),
            (_, 8) => {
                let status = if !open.is_empty() && self.rng.bool() { "input_required" } else { "working" };
                Wish::SetStatus(status, format!("step {sent}"))
            }
            _ if !open.is_empty() => {
                let some = self.rng.usize(1..=open.len());
                let mut answers: Texts = open
                    .into_iter()
                    .take(some)
                    .map(|key| (key, self.payload(self.habits.largest / 4)))
                    .collect();
                if self.rng.u32(..4) == 0 {
                    answers.insert("never-asked".to_owned(), Text::from("null".to_owned()));
                }
                Wish::ApplyInput(answers, by_owner)
            }
            _ => {
                let count = self.rng.u64(1..4);
                let question = |n| {
                    let params = self.payload(self.habits.largest / 4);
                    let text = format!(r#"{{"method":"elicitation/create","params":{}}}"#, params.as_str());
                    (format!("q{sent}-{n}"), Text::from(text))
                };
                Wish::RequireInput((0..count).map(question).collect())
            }
        }
    }

    fn key(&mut self) -> Option<String> {
        let keyed = self.rng.u32(..100) < self.habits.keyed;
        keyed.then(|| format!("key-{}-{}", self.name, self.sent))
    }

    /// Mostly small, because every list shows it.
    fn meta(&mut self) -> Text {
        let largest = if self.rng.u32(..8) == 0 { LARGEST_META } else { 2000 };
        self.payload(self.habits.largest.min(largest))
    }

    /// A payload as large as the habits say.
    fn body(&mut self) -> Text {
        if self.habits.turnover.is_none() {
            return self.payload(self.habits.largest);
        }
        let length = match self.rng.u32(..TWO_MIB_IN) {
            0 => 2 << 20,
            n if n <= TWO_MIB_IN / HUNDRED_KIB_IN => 100 << 10,
            _ => 1 << 10,
        };
        self.payload_of(length)
    }

    /// A JSON object that is like no other, of 100 to about `largest` bytes; small ones are more frequent.
    fn payload(&mut self, largest: usize) -> Text {
        let doublings = self.rng.u32(0..=(largest / 100).max(1).ilog2());
        let length = (self.rng.usize(100..=200) << doublings).min(largest.max(100));
        self.payload_of(length)
    }

    fn payload_of(&mut self, length: usize) -> Text {
        let noise = noise();
        let from = self.rng.usize(..noise.len() - length);
        let fill = &noise[from..from + length.saturating_sub(40)];
        Text::from(format!(r#"{{"by":[{},{},{from}],"fill":"{fill}"}}"#, self.name, self.sent))
    }

    // After a crash.

    /// The tool name of the task that may or may not have been created.
    pub(crate) fn maybe_created(&self) -> Option<&str> {
        match &self.pending {
            Some(Pending::Create(creation)) => Some(&creation.tool),
            _ => None,
        }
    }

    /// Whether that is a task that soon expires.
    pub(crate) fn maybe_created_a_mortal(&self) -> bool {
        matches!(&self.pending, Some(Pending::Create(creation)) if creation.ttl_ms < MORTAL_TTL_MS)
    }

    /// The id of the task that may or may not have been discarded.
    pub(crate) fn maybe_discarded(&self) -> Option<&str> {
        match &self.pending {
            Some(Pending::Command(index, Command { wish: Wish::Discard, .. })) => {
                Some(&self.tasks[*index].id)
            }
            _ => None,
        }
    }

    /// What the shared task's `meta` may or may not have become.
    pub(crate) fn maybe_shared(&self) -> Option<&Text> {
        match &self.pending {
            Some(Pending::Shared(meta)) => Some(meta),
            _ => None,
        }
    }

    /// Checks the newest tasks against the broker, and learns whether the call in flight was carried out. `rows` is
    /// what the list shows.
    pub(crate) fn reconcile(&mut self, link: &mut Link, rows: &BTreeMap<String, Row>) {
        let pending = self.pending.take();
        let from = self.tasks.len().saturating_sub(WINDOW + 2);
        let in_flight = match &pending {
            Some(Pending::Command(index, command)) => Some((*index, command)),
            _ => None,
        };
        for index in from..self.tasks.len() {
            if in_flight.is_none_or(|(of, _)| of != index) {
                check(&self.tasks[index], link, rows);
            }
        }
        match pending {
            Some(Pending::Create(creation)) => self.reconcile_create(&creation, link, rows),
            Some(Pending::Command(index, command)) => self.reconcile_command(index, command, link, rows),
            Some(Pending::Shared(_)) | None => {}
        }
        self.replay(link);
    }

    /// A task that has expired is gone, and one that has not is there. Returns how many were there and gone.
    pub(crate) fn check_mortals(&mut self, link: &mut Link) -> (usize, usize) {
        let (gone, mortals) = (&mut self.gone, &mut self.mortals);
        let all = mortals.len();
        mortals.retain(|mortal| {
            let before = now_ms();
            let answer = link.call("store/get", &json!({"taskId": mortal.id}).to_string()).unwrap();
            let after = now_ms();
            if answer.is_error() {
                assert_eq!(answer.error().kind, "task_not_found", "{answer}");
                let early = mortal.deadline.saturating_sub(after);
                assert!(early < CLOCK_SLACK_MS, "{} expired {early} ms early", mortal.id);
                gone.push(mortal.id.clone());
                return false;
            }
            let late = before.saturating_sub(mortal.deadline);
            assert!(late < CLOCK_SLACK_MS, "{} expired {late} ms ago and is there: {answer}", mortal.id);
            true
        });
        (mortals.len(), all - mortals.len())
    }

    /// Checks every task of this worker.
    pub(crate) fn check_all(&self, link: &mut Link, rows: &BTreeMap<String, Row>) {
        for task in &self.tasks {
            check(task, link, rows);
        }
    }

    /// A retry of a call that was acknowledged answers its first outcome. (That it changes nothing shows when all
    /// statuses are compared at the end of the round.)
    fn replay(&mut self, link: &mut Link) {
        for (id, command, outcome) in &self.keyed {
            let answer = link.call(command.method(), &command.params(id)).unwrap();
            if command.is_the_owners() {
                assert_eq!(answer.result()["resultType"], "complete", "{answer}");
            } else {
                assert_says(&answer, outcome);
                assert_says(&answer, &json!({"replayed": true}));
            }
        }
        if let Some((id, creation)) = &self.created {
            if self.gone.contains(id) {
                return;
            }
            let answer = link.call("store/create", &creation.params()).unwrap();
            assert_eq!(
                (row_of(&answer).id, answer.text().contains(r#""created":false"#)),
                (id.clone(), true)
            );
        }
    }

    fn reconcile_create(&mut self, creation: &Creation, link: &mut Link, rows: &BTreeMap<String, Row>) {
        let found = rows.values().find(|row| row.tool == creation.tool).map(|row| row.id.clone());
        if let Some(id) = &found {
            if creation.ttl_ms < MORTAL_TTL_MS {
                self.mortals.push(mortal(&rows[id]));
                return;
            }
            let task = creation.made(id.clone());
            check(&task, link, rows);
            self.tasks.push(task);
        }
        if creation.key.is_some() {
            let answer = link.call("store/create", &creation.params()).unwrap();
            let id = row_of(&answer).id;
            let created = answer.text().contains(r#""created":true"#);
            assert_eq!(created, found.is_none(), "a retried create: {answer}");
            assert!(found.is_none_or(|found| found == id), "{answer}");
            if created {
                self.tasks.push(creation.made(id));
            }
        }
    }

    fn reconcile_command(
        &mut self,
        index: usize,
        command: Command,
        link: &mut Link,
        rows: &BTreeMap<String, Row>,
    ) {
        let before = self.tasks[index].clone();
        let (after, outcome) = command.on(&before);
        let happened = match (observe(&before, link, rows), &after) {
            (None, None) => true,
            (None, Some(_)) => panic!("a task is gone that nobody discarded: {before:?}"),
            (Some(now), _) if now == before.view => after.as_ref().is_some_and(|after| after.view == now),
            (Some(now), Some(after)) if now == after.view => true,
            (Some(now), _) => panic!("neither before nor after {command:?}\nbefore {before:?}\nnow {now:?}"),
        };
        // Before and after may look alike: a command that came too late. Then only the retry can tell.
        let alike = after.as_ref().is_some_and(|after| after.view == before.view);
        if command.key.is_none() {
            if happened {
                self.moved_on(index, after, command, outcome);
            }
            return;
        }
        let retry = link.call(command.method(), &command.params(&before.id)).unwrap();
        if happened && after.is_none() {
            assert_eq!(retry.error().kind, "task_not_found", "{retry}");
        } else if command.is_the_owners() {
            assert_eq!(retry.result()["resultType"], "complete", "{retry}");
        } else {
            assert_says(&retry, &outcome);
            if !alike {
                let replayed = retry.result()["replayed"] == true;
                assert_eq!(replayed, happened, "state and outcome are one write: {command:?} {retry}");
            }
        }
        self.moved_on(index, after, command, outcome);
    }
}

/// What the broker shows of a task; list and get must agree.
fn observe(task: &Task, link: &mut Link, rows: &BTreeMap<String, Row>) -> Option<crate::model::View> {
    let params = json!({"taskId": task.id}).to_string();
    let get = link.call("store/get", &params).unwrap();
    if get.is_error() {
        assert_eq!(get.error().kind, "task_not_found", "{get}");
        assert!(!rows.contains_key(&task.id), "the list shows it and get does not: {get}");
        return None;
    }
    let row = row_of(&get);
    assert_eq!(rows.get(&task.id), Some(&row), "list and get differ");
    let resume = link.call("store/resume", &params).unwrap();
    let flat = link.call("tasks/get", &params).unwrap().result();
    let shown = (&flat["status"], &flat["lastUpdatedAt"], &flat["ttlMs"]);
    assert_eq!(shown, (&json!(row.status), &json!(row.updated), &json!(row.ttl_ms)), "tasks/get: {flat}");
    Some(view_of(&get, &resume))
}

fn check(task: &Task, link: &mut Link, rows: &BTreeMap<String, Row>) {
    let now = observe(task, link, rows);
    assert_eq!(now.as_ref(), Some(&task.view), "an acknowledged state is not there: {}", task.id);
}

fn mortal(row: &Row) -> Mortal {
    let created = row.created.parse::<jiff::Timestamp>().unwrap().as_millisecond();
    Mortal { id: row.id.clone(), deadline: u64::try_from(created).unwrap() + row.ttl_ms }
}

/// The time now, in milliseconds since 1970.
#[allow(
    clippy::disallowed_methods,
    reason = "the test looks at the same clock as the broker that it watches"
)]
pub(crate) fn now_ms() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    u64::try_from(now.as_millis()).unwrap()
}

/// Text without a pattern, to cut payloads from.
fn noise() -> &'static str {
    static NOISE: std::sync::OnceLock<String> = std::sync::OnceLock::new();
    NOISE.get_or_init(|| {
        let mut rng = fastrand::Rng::with_seed(7);
        (0..3 * 1024 * 1024).map(|_| rng.alphanumeric()).collect()
    })
}
