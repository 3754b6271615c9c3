//! Load on a broker until it is killed, and what must be true after its restart.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use serde_json::{Value, json};

use crate::disk::Disk;
use crate::files;
use crate::harness::link::Link;
use crate::harness::{Answer, Broker, token};
use crate::model::{Row, Text, page_of, row_of};
use crate::worker::{CLOCK_SLACK_MS, Habits, Worker, now_ms};

/// More than [`IN_FLIGHT`], because some workers are always between two calls.
const WORKERS: usize = 64;
/// How many commands must be in flight at a kill.
pub(crate) const IN_FLIGHT: usize = 32;
const READERS: usize = 4;
/// How long the load may take until it is killed.
const LOAD_DEADLINE: Duration = Duration::from_secs(15);
/// The same where the load is much more.
const TURNOVER_DEADLINE: Duration = Duration::from_mins(2);
/// The one caller of the load.
const SUBJECT: &str = "crash-test";

/// What the threads of one round share.
pub(crate) struct Load {
    target: usize,
    acks: AtomicUsize,
    /// How many workers have yet to replace all that they have.
    to_turn: AtomicUsize,
    /// How many generations the journal must go on by.
    generations: u64,
    /// The generation with the first frame of the load.
    first_generation: OnceLock<u64>,
    /// The data directory.
    data: PathBuf,
    /// Told by how many generations the journal has gone on.
    reached: SyncSender<u64>,
    /// Whether the broker's disk fails at the end: then there are answers that tell nothing.
    disk_fails: bool,
    over: AtomicBool,
    cut: AtomicUsize,
    /// The ids that readers choose from.
    known: Mutex<Vec<String>>,
    /// The id of the task that every worker changes.
    pub(crate) shared: String,
    /// What the acknowledged commands on the shared task made of its `meta`, by revision.
    pub(crate) shared_metas: Mutex<BTreeMap<u64, Text>>,
}

impl Load {
    /// One more command is acknowledged.
    pub(crate) fn acknowledged(&self) {
        let acks = self.acks.fetch_add(1, Ordering::Relaxed) + 1;
        let generation = || files::journal_generation(&self.data);
        let first = *self.first_generation.get_or_init(generation);
        let enough = acks >= self.target && self.to_turn.load(Ordering::Relaxed) == 0;
        if enough && acks.is_multiple_of(8) {
            let generations = generation().saturating_sub(first);
            if generations >= self.generations {
                // Only the first one counts.
                self.reached.try_send(generations).unwrap_or_default();
            }
        }
    }

    /// A worker has replaced all of its tasks as many times as it is to.
    pub(crate) fn turned_over(&self) {
        self.to_turn.fetch_sub(1, Ordering::Relaxed);
    }

    /// Whether an answer says no more than a broken connection does.
    pub(crate) fn is_outcome_unknown(&self, answer: &Answer) -> bool {
        self.disk_fails && self.is_over() && answer.is_error() && answer.error().kind != "task_not_found"
    }

    /// A task is there.
    pub(crate) fn made(&self, id: String) {
        self.known.lock().unwrap().push(id);
    }

    /// A call ended without an answer; whether it was sent before the end.
    pub(crate) fn cut_off(&self, in_time: bool) {
        assert!(self.is_over(), "the broker was gone before it was told to");
        // While the power fails the broker goes on for a moment: what is sent in it is in flight at the cut.
        self.cut.fetch_add(usize::from(in_time || self.disk_fails), Ordering::Relaxed);
    }

    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }
}

/// How a round ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    Kill9,
    Sigterm,
    /// The power fails; see [`Disk::cut`].
    PowerCut,
    /// The same at a moment at which the broker is in the middle of something.
    FrozenPowerCut,
}

impl Ending {
    const fn cuts_power(self) -> bool {
        matches!(self, Self::PowerCut | Self::FrozenPowerCut)
    }
}

/// What a round reaches before it is ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Least {
    /// So many acknowledged commands.
    pub(crate) acks: usize,
    /// So many checkpoints of the journal that were begun and completed within the round.
    pub(crate) checkpoints: u64,
}

/// What all rounds came to.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sum {
    pub(crate) rounds: usize,
    pub(crate) acks: usize,
    pub(crate) in_flight: usize,
    pub(crate) sights: usize,
    /// Checkpoints that were completed in the rounds, at least.
    pub(crate) checkpoints: u64,
    /// Starts that told of a torn group, cut off.
    pub(crate) torn: usize,
    /// Tasks whose time was up at a restart, and that were gone.
    pub(crate) expired: usize,
    /// Tasks that were made and discarded again.
    pub(crate) replaced: usize,
    /// Disks that lost a part of what was not synced, not all of it.
    pub(crate) partly: usize,
    /// How often sled's file was written anew while the broker served.
    pub(crate) compacted: u64,
    /// Ends at which it was just being written anew.
    pub(crate) compacting: usize,
}

impl std::fmt::Display for Sum {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            rounds,
            acks,
            in_flight,
            sights,
            checkpoints,
            torn,
            expired,
            replaced,
            partly,
            compacted,
            compacting,
        } = self;
        write!(
            f,
            "rounds {rounds}, acknowledged {acks}, in flight at the end {in_flight}, sights {sights}, checkpoints \
             completed {checkpoints}, torn groups cut {torn}, expired and gone {expired}, replaced {replaced}, \
             disks that kept a part {partly}, compactions {compacted}, ends in the middle of one {compacting}"
        )
    }
}

/// Many rounds on one store.
pub(crate) struct Rounds {
    broker: Broker,
    token: String,
    rng: fastrand::Rng,
    workers: Vec<Worker>,
    turns_over: bool,
    shared: String,
    pub(crate) sum: Sum,
    /// Done to the data directory between the next end and the start after it.
    pub(crate) meddle: Option<Meddle>,
    /// Dropped after the broker.
    disk: Option<Disk>,
}

pub(crate) type Meddle = Box<dyn FnOnce(&Path)>;

/// What a reading client saw.
enum Sight {
    Row(Row),
    Status { status: String, revision: u64, cancel_requested: bool },
    Flat { status: String, updated: String },
    Gone,
}

type Sights = Vec<(&'static str, String, Sight)>;

impl Rounds {
    pub(crate) fn new(broker: Broker, seed: u64, habits: Habits) -> Self {
        let token = token::good(SUBJECT);
        let mut link = Link::open(broker.address(), Some(&token));
        let created = link.ask("store/create", &json!({"toolName": "shared", "ttlMs": null}));
        let workers = (0..WORKERS).map(|name| Worker::new(name, seed, habits)).collect();
        let rng = fastrand::Rng::with_seed(seed);
        let (shared, turns_over) = (row_of(&created).id, habits.turnover.is_some());
        Self {
            broker,
            token,
            rng,
            workers,
            turns_over,
            shared,
            sum: Sum::default(),
            meddle: None,
            disk: None,
        }
    }

    /// On a disk that can lose power.
    pub(crate) fn on(mut self, disk: Disk) -> Self {
        self.disk = Some(disk);
        self
    }

    fn link(&self) -> Link {
        Link::open(self.broker.address(), Some(&self.token))
    }

    /// Works until `least` and some more is reached, ends the broker in the middle of it, starts it
    /// again and checks everything. Returns how many commands were in flight then.
    pub(crate) fn round(&mut self, least: Least, ending: Ending) -> usize {
        self.sum.rounds += 1;
        let (reached, signal) = sync_channel(1);
        let data = self.broker.data();
        let before = files::generation_number(&data);
        // Before a generation begins, the one before it is handed over to sled, and the one before that is there, and the
        // checkpoint says so.
        let generations = if least.checkpoints == 0 { 0 } else { least.checkpoints + 1 };
        let load = Load {
            target: least.acks + self.rng.usize(..200),
            acks: AtomicUsize::new(0),
            to_turn: AtomicUsize::new(if self.turns_over { WORKERS } else { 0 }),
            generations,
            first_generation: OnceLock::new(),
            data,
            disk_fails: ending.cuts_power(),
            reached,
            over: AtomicBool::new(false),
            cut: AtomicUsize::new(0),
            known: Mutex::new(vec![self.shared.clone()]),
            shared: self.shared.clone(),
            shared_metas: Mutex::default(),
        };
        let deadline = if self.turns_over { TURNOVER_DEADLINE } else { LOAD_DEADLINE };
        let (sights, generations) = self.work(&load, ending, || signal.recv_timeout(deadline).ok());
        let (acks, cut) = (load.acks.load(Ordering::Relaxed), load.cut.load(Ordering::Relaxed));
        let to_turn = load.to_turn.load(Ordering::Relaxed);
        if let Some(disk) = self.disk.as_mut().filter(|_| ending.cuts_power()) {
            disk.come_back();
        }
        let Some(generations) = generations else {
            let generations =
                files::journal_generation(&load.data) - load.first_generation.get().unwrap_or(&0);
            panic!(
                "within {deadline:?} only {acks} commands were acknowledged, {to_turn} workers have not replaced all, \
                 the journal went on by {generations}"
            );
        };
        let checkpoints = generations.saturating_sub(1);
        let sum = &mut self.sum;
        sum.acks += acks;
        sum.in_flight += cut;
        sum.sights += sights.len();
        sum.checkpoints += checkpoints;
        sum.replaced += self.workers.iter().map(|worker| worker.replaced).sum::<usize>();
        eprintln!(
            "round {}: {acks} acknowledged, {cut} in flight, {} sights, {checkpoints} checkpoints",
            sum.rounds,
            sights.len()
        );
        if ending == Ending::Sigterm {
            let status = self.broker.wait_exit(Duration::from_secs(12));
            assert!(status.success(), "{status}");
            self.broker.assert_no_error_logged();
        }
        let data = self.broker.data();
        sum.compacted += files::generation_number(&data) - before;
        sum.compacting += usize::from(files::generations(&data) > 1);
        if let Some(meddle) = self.meddle.take() {
            meddle(&data);
        }
        self.broker.restart();
        self.check(&load, &sights);
        cut
    }

    fn work(
        &mut self,
        load: &Load,
        ending: Ending,
        reached: impl FnOnce() -> Option<u64>,
    ) -> (Sights, Option<u64>) {
        let (address, token) = (self.broker.address(), &self.token);
        let broker = &mut self.broker;
        let jitter = Duration::from_micros(self.rng.u64(..4000));
        let (disk, sum) = (self.disk.as_mut(), &mut self.sum);
        let (survives, disk_seed) = (*self.rng.choice(&[0.0, 0.3, 0.7, 0.95]).unwrap(), self.rng.u32(..));
        let seeds: Vec<u64> = (0..READERS).map(|_| self.rng.u64(..)).collect();
        std::thread::scope(|scope| {
            for worker in &mut self.workers {
                scope.spawn(move || worker.work(&mut Link::open(address, Some(token)), load));
            }
            let readers: Vec<_> = seeds
                .into_iter()
                .map(|seed| scope.spawn(move || read(&mut Link::open(address, Some(token)), load, seed)))
                .collect();
            let watcher = scope.spawn(move || watch(Link::open(address, Some(token))));
            let reached = reached();
            if reached.is_some() {
                // So that the moment falls anywhere between two commits.
                std::thread::sleep(jitter);
            }
            if ending == Ending::FrozenPowerCut && reached.is_some() {
                broker.freeze();
            }
            load.over.store(true, Ordering::SeqCst);
            match ending {
                Ending::Sigterm if reached.is_some() => broker.sigterm(),
                Ending::PowerCut | Ending::FrozenPowerCut if reached.is_some() => {
                    sum.partly += usize::from(survives > 0.0);
                    disk.expect("a disk that can lose power").cut(&load.data, survives, disk_seed);
                    broker.kill9();
                }
                _ => broker.kill9(),
            }
            let events = watcher.join().unwrap();
            assert!(events.len() > 50, "only {} events were seen", events.len());
            let sights =
                readers.into_iter().flat_map(|reader| reader.join().unwrap()).chain(events).collect();
            (sights, reached)
        })
    }

    fn check(&mut self, load: &Load, sights: &Sights) {
        let torn = self.broker.log_lines().iter().filter(|line| line.contains("it is cut off")).count();
        self.sum.torn += torn;
        let from = now_ms();
        let rows = list(&mut self.link());
        self.check_membership(&rows, from);
        self.check_sights(&rows, sights);
        self.check_shared(load, &rows[&self.shared]);
        let (address, token) = (self.broker.address(), &self.token);
        std::thread::scope(|scope| {
            for worker in &mut self.workers {
                let rows = &rows;
                scope.spawn(move || worker.reconcile(&mut Link::open(address, Some(token)), rows));
            }
        });
        let mut link = self.link();
        let mortals = self.workers.iter_mut().map(|worker| worker.check_mortals(&mut link).1);
        self.sum.expired += mortals.sum::<usize>();
        self.check_statuses();
        self.broker.assert_no_error_logged();
    }

    /// The list has every task that must be there and no other one.
    fn check_membership(&self, rows: &BTreeMap<String, Row>, from: u64) {
        let maybe_created: BTreeSet<_> = self.workers.iter().filter_map(Worker::maybe_created).collect();
        let maybe_discarded: BTreeSet<_> = self.workers.iter().filter_map(Worker::maybe_discarded).collect();
        let tasks = self.workers.iter().flat_map(|worker| &worker.tasks);
        let mut expected: BTreeMap<&str, u64> =
            tasks.map(|task| (task.id.as_str(), task.view.revision)).collect();
        expected.insert(&self.shared, 1);
        for (id, revision) in &expected {
            let row = rows.get(*id);
            assert!(row.is_some() || maybe_discarded.contains(id), "the acknowledged task {id} is not there");
            assert!(row.is_none_or(|row| row.revision >= *revision), "{id} fell behind {revision}: {row:?}");
        }
        let mortals = self.workers.iter().flat_map(|worker| &worker.mortals);
        let mortals: BTreeMap<&str, u64> =
            mortals.map(|mortal| (mortal.id.as_str(), mortal.deadline)).collect();
        for row in rows.values() {
            if let Some(deadline) = mortals.get(row.id.as_str()) {
                assert!(from < deadline + CLOCK_SLACK_MS, "the list shows a task that has expired: {row:?}");
                continue;
            }
            let known = expected.contains_key(row.id.as_str()) || maybe_created.contains(row.tool.as_str());
            assert!(known, "a task that must not be there: {row:?}");
        }
    }

    /// What a client has read cannot be taken back.
    fn check_sights(&self, rows: &BTreeMap<String, Row>, sights: &Sights) {
        let maybe_discarded = self.workers.iter().filter_map(Worker::maybe_discarded);
        let gone = self.workers.iter().flat_map(|worker| &worker.gone).map(String::as_str);
        let now = now_ms();
        let mortals = self.workers.iter().flat_map(|worker| &worker.mortals);
        let expired = mortals.filter(|mortal| mortal.deadline < now + CLOCK_SLACK_MS);
        let expired = expired.map(|mortal| mortal.id.as_str());
        let gone: BTreeSet<_> = gone.chain(maybe_discarded).chain(expired).collect();
        // A task that soon expires may have been shown to others before its creator got an answer, which it never did.
        let mut nameless = BTreeSet::new();
        for (by, id, sight) in sights {
            let Some(now) = rows.get(id) else {
                if !gone.contains(id.as_str()) {
                    nameless.insert(id);
                    let creates =
                        self.workers.iter().filter(|worker| worker.maybe_created_a_mortal()).count();
                    assert!(nameless.len() <= creates, "{by} saw {id}, and nobody discarded it");
                }
                continue;
            };
            match sight {
                Sight::Gone => panic!("{by} was told that {id} is gone, and now there is {now:?}"),
                Sight::Row(seen) => {
                    assert!(now.revision >= seen.revision, "{by} saw {seen:?}, now {now:?}");
                    assert!(now.cancel_requested || !seen.cancel_requested, "{by} saw {seen:?}, now {now:?}");
                    if now.revision == seen.revision {
                        let seen = Row { cancel_requested: now.cancel_requested, ..seen.clone() };
                        assert_eq!(now, &seen, "{by}");
                    }
                }
                Sight::Status { status, revision, cancel_requested } => {
                    assert!(now.revision >= *revision, "{by} saw revision {revision}, now {now:?}");
                    assert!(now.cancel_requested || !cancel_requested, "{by}: {now:?}");
                    assert!(
                        now.revision > *revision || now.status == *status,
                        "{by} saw {status}, now {now:?}"
                    );
                }
                Sight::Flat { status, updated } => {
                    assert!(now.updated >= *updated, "{by} saw {status} at {updated}, now {now:?}");
                    let ended = matches!(status.as_str(), "completed" | "failed" | "cancelled");
                    assert!(!ended || now.status == *status, "{by} saw {status}, now {now:?}");
                }
            }
        }
    }

    /// On the task that everybody changes, the newest acknowledged change or a later one is there, and wholly.
    fn check_shared(&self, load: &Load, now: &Row) {
        let metas = load.shared_metas.lock().unwrap();
        let newest = metas.last_key_value().map_or(1, |(revision, _)| *revision);
        assert!(now.revision >= newest, "acknowledged up to {newest}: {now:?}");
        match metas.get(&now.revision) {
            Some(meta) => assert_eq!(now.meta.as_ref(), Some(meta), "revision {}", now.revision),
            None if now.revision > newest => {
                let mut in_flight = self.workers.iter().filter_map(Worker::maybe_shared);
                assert!(in_flight.any(|meta| now.meta.as_ref() == Some(meta)), "nobody sent this: {now:?}");
            }
            None => panic!("revision {} was never acknowledged, {newest} was", now.revision),
        }
    }

    /// Every task that lives has the status that is known, and every discarded one has none.
    fn check_statuses(&self) {
        let mut link = self.link();
        let live = self.workers.iter().flat_map(|worker| &worker.tasks);
        let mut expected: BTreeMap<&str, Value> =
            live.map(|task| (task.id.as_str(), json!([task.view.status, task.view.revision]))).collect();
        expected
            .extend(self.workers.iter().flat_map(|worker| &worker.gone).map(|id| (id.as_str(), Value::Null)));
        let ids: Vec<_> = expected.keys().copied().collect();
        for page in ids.chunks(1000) {
            let answer = link.ask("store/statuses", &json!({"taskIds": page})).result();
            for id in page {
                let row = &answer["statuses"][*id];
                let now = if row.is_null() { Value::Null } else { json!([row["status"], row["revision"]]) };
                assert_eq!(now, expected[*id], "{id}");
            }
        }
    }

    /// Checks every payload of every task that was ever made and not discarded.
    pub(crate) fn check_everything(&mut self) {
        let rows = list(&mut self.link());
        let (address, token) = (self.broker.address(), &self.token);
        std::thread::scope(|scope| {
            for worker in &self.workers {
                let rows = &rows;
                scope.spawn(move || worker.check_all(&mut Link::open(address, Some(token)), rows));
            }
        });
        let tasks = self.workers.iter().map(|worker| worker.tasks.len()).sum::<usize>();
        let gone = self.workers.iter().map(|worker| worker.gone.len()).sum::<usize>();
        let mortals = self.workers.iter().map(|worker| worker.mortals.len()).sum::<usize>();
        eprintln!("checked all: {tasks} tasks are there, {gone} are gone, {mortals} may be");
        assert!((tasks + 1..=tasks + 1 + mortals).contains(&rows.len()), "{} rows", rows.len());
    }
}

/// Walks through the whole list; each task must be in it once.
fn list(link: &mut Link) -> BTreeMap<String, Row> {
    let mut rows = BTreeMap::new();
    let mut params = json!({"limit": 200});
    loop {
        let (page, next) = page_of(&link.ask("store/list", &params));
        for row in page {
            let twice = rows.insert(row.id.clone(), row);
            assert!(twice.is_none(), "twice in the list: {twice:?}");
        }
        match next {
            Some(next) => params["cursor"] = json!(next),
            None => return rows,
        }
    }
}

/// Reads until the broker is gone, in every way there is, and keeps what it saw.
fn read(link: &mut Link, load: &Load, seed: u64) -> Sights {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut sights = Sights::new();
    let mut newest: BTreeMap<String, u64> = BTreeMap::new();
    loop {
        let ids: Vec<String> = {
            let known = load.known.lock().unwrap();
            let from = known.len().saturating_sub(200);
            (0..20).map(|_| known[rng.usize(from..known.len())].clone()).collect()
        };
        let id = &ids[0];
        let since = newest.get(id).copied().unwrap_or(0);
        let (by, params) = match rng.u32(..5) {
            0 => ("store/get", json!({"taskId": id})),
            1 => ("tasks/get", json!({"taskId": id})),
            2 => ("store/wait", json!({"taskId": id, "timeoutMs": 100, "sinceRevision": since})),
            3 => ("store/statuses", json!({"taskIds": ids})),
            _ => ("store/list", json!({"limit": 20})),
        };
        let Some(answer) = link.call(by, &params.to_string()) else { return sights };
        if answer.status == 503 {
            return sights;
        }
        if load.is_outcome_unknown(&answer) {
            return sights;
        }
        let from = sights.len();
        if answer.is_error() {
            assert_eq!(answer.error().kind, "task_not_found", "{answer}");
            sights.push((by, id.clone(), Sight::Gone));
            continue;
        }
        match by {
            "store/list" => {
                sights
                    .extend(page_of(&answer).0.into_iter().map(|row| (by, row.id.clone(), Sight::Row(row))));
            }
            "tasks/get" => {
                let flat = answer.result();
                let text = |name: &str| flat[name].as_str().unwrap().to_owned();
                let (status, updated) = (text("status"), text("lastUpdatedAt"));
                sights.push((by, id.clone(), Sight::Flat { status, updated }));
            }
            "store/statuses" => {
                let result = answer.result();
                for (id, row) in result["statuses"].as_object().unwrap() {
                    sights.push((by, id.clone(), sight_of(row)));
                }
            }
            _ => sights.push((by, id.clone(), Sight::Row(row_of(&answer)))),
        }
        for (by, id, sight) in &sights[from..] {
            let (Sight::Row(Row { revision, .. }) | Sight::Status { revision, .. }) = sight else { continue };
            let before = newest.insert(id.clone(), *revision).unwrap_or(0);
            assert!(before <= *revision, "{by} shows {id} at {revision} after {before}");
        }
    }
}

/// Watches until the broker is gone: an event shows a state like any reading does.
fn watch(link: Link) -> Sights {
    let mut sights = Sights::new();
    link.watch(|event| {
        let Some(id) = event["taskId"].as_str() else { return };
        let is_gone = event["kind"] == "discard" || event["kind"] == "expired";
        let sight = if is_gone { Sight::Gone } else { sight_of(&event) };
        sights.push(("store/watch", id.to_owned(), sight));
    });
    sights
}

fn sight_of(row: &Value) -> Sight {
    if row.is_null() {
        return Sight::Gone;
    }
    Sight::Status {
        status: row["status"].as_str().unwrap().to_owned(),
        revision: row["revision"].as_u64().unwrap(),
        cancel_requested: row["cancelRequested"].as_bool().unwrap(),
    }
}
