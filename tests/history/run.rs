//! A run: many clients on a broker that is killed again and again, and everything that came of it.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex};

use task_broker_core::TaskId;
use tokio::time::Instant;

use crate::call::{self, Reply, View, Who};
use crate::harness::{Broker, BrokerOptions, Store};
use crate::load::{Board, Lives, Player};
use crate::recording::{Record, Recording};
use crate::wire::{Port, Wire};

/// How much is done in a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extent {
    pub(crate) clients: usize,
    pub(crate) kills: usize,
    /// How many calls are answered before each kill, and before the end.
    pub(crate) calls: usize,
    pub(crate) lives: Lives,
}

/// The clients of one process, and when they have had enough.
#[derive(Debug)]
struct Gate {
    answered: AtomicUsize,
    enough: usize,
    stop: AtomicBool,
    reached: Mutex<bool>,
    rings: Condvar,
}

impl Gate {
    fn new(enough: usize) -> Self {
        let (answered, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
        Self { answered, enough, stop, reached: Mutex::new(false), rings: Condvar::new() }
    }

    fn count(&self) {
        if self.answered.fetch_add(1, Ordering::Relaxed) + 1 == self.enough {
            self.ring();
        }
    }

    fn ring(&self) {
        *self.reached.lock().unwrap() = true;
        self.rings.notify_all();
    }

    fn wait(&self) {
        let reached = self.reached.lock().unwrap();
        drop(self.rings.wait_while(reached, |reached| !*reached).unwrap());
    }
}

/// Rings when a client ends, also by a panic: nobody must wait for calls that it will not make.
struct Leaving<'a>(&'a Gate);

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        self.0.ring();
    }
}

/// Microseconds since the beginning of a recording.
pub(crate) fn micros(origin: Instant) -> u64 {
    u64::try_from(origin.elapsed().as_micros()).unwrap()
}

/// Lets one client make calls until its connection is cut or it is told to stop.
pub(crate) fn play(
    port: &mut dyn Port,
    player: &mut Player,
    board: &Board,
    (origin, client, life): (Instant, usize, usize),
    mut goes_on: impl FnMut() -> bool,
) -> Vec<Record> {
    let mut records = Vec::new();
    while goes_on() {
        let call = player.next(board);
        let from = micros(origin);
        let reply = port.perform(&call);
        let to = if reply.is_some() { micros(origin) } else { u64::MAX };
        let (cut, reply) = (reply.is_none(), reply.unwrap_or(Reply::Open));
        // What became of it may come to light until the process is gone.
        let to = if matches!(reply, Reply::Open) { u64::MAX } else { to };
        player.learn(board, &call, &reply);
        records.push(Record { client, life, from, to, call, reply });
        if cut {
            break;
        }
    }
    records
}

/// One run on a real broker with a new store.
pub(crate) fn run(seed: u64, extent: Extent) -> Recording {
    let options =
        BrokerOptions::new(Store::Sled).flag("--max-ttl-ms", 700_000).flag("--default-ttl-ms", 60_000);
    let mut broker = options.start();
    let limits = Wire::open(broker.address()).unwrap().limits();
    let origin = Instant::now();
    let board = Board::default();
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut players: Vec<_> = (0..extent.clients).map(|name| Player::new(name, seed, extent.lives)).collect();
    let (mut records, mut ends) = (Vec::new(), Vec::new());
    for life in 0..=extent.kills {
        let last = life == extent.kills;
        let gate = Gate::new(extent.calls * rng.usize(70..130) / 100);
        let address = broker.address();
        let mut end = u64::MAX;
        std::thread::scope(|scope| {
            let clients: Vec<_> = players
                .iter_mut()
                .enumerate()
                .map(|(client, player)| {
                    let (gate, board) = (&gate, &board);
                    scope.spawn(move || {
                        let _leaving = Leaving(gate);
                        let Some(mut wire) = Wire::open(address) else { return Vec::new() };
                        play(&mut wire, player, board, (origin, client, life), || {
                            gate.count();
                            !gate.stop.load(Ordering::Relaxed)
                        })
                    })
                })
                .collect();
            gate.wait();
            if last {
                gate.stop.store(true, Ordering::Relaxed);
            } else {
                broker.kill9();
                end = micros(origin);
            }
            for client in clients {
                records.extend(client.join().unwrap());
            }
        });
        ends.push(end);
        if !last {
            broker.restart();
        }
    }
    records.extend(look_at_all(&broker, &records, (origin, extent.clients, extent.kills)));
    broker.assert_no_error_logged();
    records.sort_by_key(|record| record.from);
    Recording { records, ends, limits }
}

/// Every task that was ever named, once more.
fn look_at_all(broker: &Broker, records: &[Record], place: (Instant, usize, usize)) -> Vec<Record> {
    let (origin, client, life) = place;
    let mut ids: Vec<_> = records
        .iter()
        .filter_map(|record| match &record.reply {
            Reply::Created(created) => TaskId::parse(&created.snapshot.task.task_id),
            _ => None,
        })
        .collect();
    ids.sort_unstable();
    ids.dedup();
    let looks =
        ids.iter().flat_map(|id| [View::Get, View::Resume].map(|view| call::look(Who::Worker, *id, view)));
    let mut wire = Wire::open(broker.address()).unwrap();
    std::iter::once(call::page(1000, Vec::new()))
        .chain(looks)
        .map(|call| {
            let from = micros(origin);
            let reply = wire.perform(&call).expect("the broker lives");
            Record { client, life, from, to: micros(origin), call, reply }
        })
        .collect()
}
