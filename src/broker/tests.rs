//! The broker on the memory store, with two clocks that stand still: the store's, which is moved by hand, and
//! tokio's, which jumps to the next deadline when everybody waits.
//!
//! The people: `worker` is a service account that makes tasks for `alice`; `bob` has nothing to do with them.

mod bent;
mod creation;
mod refusals;
mod streams;
mod waits;

use std::future::Future;
use std::time::Duration;

use bytes::Bytes;
use task_broker_core::digest::Digest;
use task_broker_core::{
    Ask, Command, CreateKey, Guard, OnSpentKey, Payload, Quota, Status, Subject, TtlWish,
};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use self::bent::Bent;
use super::*;
use crate::clock::Clock;

const START: Timestamp = Timestamp::from_millis(1_000_000);
const TTL_MS: u64 = 60_000;
/// What the broker promises when no hint arrives, and a little more than a step of the tests' time.
const RECHECK: Duration = Duration::from_secs(5);
const STEP: Duration = Duration::from_millis(10);

fn limits() -> Limits {
    Limits {
        default_ttl_ms: TTL_MS,
        max_ttl_ms: 3_600_000,
        default_poll_interval_ms: 2_000,
        max_payload_bytes: 1 << 20,
        quota: Quota { tasks_per_owner: 10_000, bytes_per_owner: 1 << 30, max_tasks: 100_000 },
    }
}

fn payload(text: &str) -> Payload {
    Payload::new(Bytes::copy_from_slice(text.as_bytes()))
}

fn subject(name: &str) -> Subject {
    Caller::named(name).subject
}

fn worker() -> Caller {
    Caller::named("worker").with_delegation()
}

fn alice() -> Caller {
    Caller::named("alice")
}

fn bob() -> Caller {
    Caller::named("bob").with_delegation()
}

/// A task of alice's.
fn new_task(number: u8) -> NewTask {
    NewTask {
        id: id(number),
        tool_name: Arc::from("report"),
        arguments: payload(r#"{"q":1}"#),
        ttl: TtlWish::Millis(TTL_MS),
        owner: subject("alice"),
        poll_interval_ms: None,
        meta: None,
        key: None,
    }
}

fn id(number: u8) -> TaskId {
    TaskId::from_bytes([number; 16])
}

fn keyed(number: u8, key: &str, call: u128) -> NewTask {
    NewTask { key: Some(CreateKey::new(key, Digest(call)).unwrap()), ..new_task(number) }
}

fn by(caller: &Caller, right: Right, command: Command) -> Request {
    Request { caller: caller.clone(), right, guard: Guard::default(), command }
}

fn by_worker(command: Command) -> Request {
    by(&worker(), Right::Creator, command)
}

fn complete() -> Command {
    Command::Complete { result: payload(r#"{"content":[]}"#) }
}

fn cancel() -> Command {
    Command::Cancel { reason: None }
}

fn fail() -> Command {
    let error = payload(r#"{"code":-32603,"message":"broken"}"#);
    Command::Fail { error, message: "broken".into() }
}

fn set_meta(text: &str) -> Command {
    Command::SetMeta { meta: payload(text) }
}

fn set_ttl(ttl_ms: u64) -> Command {
    Command::SetTtl { ttl_ms }
}

fn ask(key: &str) -> Command {
    let ask = Ask { payload: payload(r#"{"method":"q"}"#), digest: Digest(1) };
    Command::RequireInput {
        requests: [(Arc::from(key), ask)].into(),
        message: None,
        on_spent: OnSpentKey::AskAgain,
    }
}

fn answer(key: &str) -> Command {
    Command::ApplyInput { responses: [(Arc::from(key), payload(r#"{"action":"accept"}"#))].into() }
}

/// A broker that runs, and the clocks.
struct Scene {
    broker: Arc<Broker>,
    store: Arc<Bent>,
    clock: Clock,
    running: Option<JoinHandle<()>>,
}

impl Drop for Scene {
    fn drop(&mut self) {
        if let Some(running) = &self.running {
            running.abort();
        }
    }
}

impl Scene {
    /// Passes hints on and sweeps.
    async fn new() -> Self {
        Self::with(limits(), Bent::new).await
    }

    async fn with(limits: Limits, store: impl FnOnce(&Clock) -> Bent) -> Self {
        let mut scene = Self::at_rest(limits, store);
        let broker = Arc::clone(&scene.broker);
        scene.running = Some(tokio::spawn(async move { broker.run().await }));
        settle().await;
        scene
    }

    /// Nobody passes hints on, nobody sweeps.
    fn at_rest(limits: Limits, store: impl FnOnce(&Clock) -> Bent) -> Self {
        let clock = Clock::manual(START);
        let store = Arc::new(store(&clock));
        let seats = SeatLimits { total: 3, per_subject: 2 };
        let broker = Arc::new(Broker::new(Arc::clone(&store) as Arc<dyn Store>, limits, seats, seats));
        Self { broker, store, clock, running: None }
    }

    async fn created(&self, new: NewTask) -> Arc<Task> {
        let created = self.broker.create(&worker(), new).await.unwrap();
        assert!(created.created);
        created.snapshot.task
    }

    async fn carried_out(&self, number: u8, command: Command) -> Applied {
        self.broker.execute(id(number), by_worker(command)).await.unwrap()
    }

    /// Lets time pass for both clocks.
    async fn pass(&self, time: Duration) {
        self.clock.advance(time);
        tokio::time::advance(time).await;
        settle().await;
    }

    /// Lets time pass in small steps until `call` has ended. Says how long that took.
    async fn until_it_ends<T>(&self, call: JoinHandle<T>) -> (T, Duration) {
        let start = Instant::now();
        settle().await;
        while !call.is_finished() {
            assert!(start.elapsed() < Duration::from_hours(1), "it never ends");
            self.pass(STEP).await;
        }
        (call.await.unwrap(), start.elapsed())
    }
}

/// Lets every task that can go on go on. No time passes.
async fn settle() {
    for _ in 0..32 {
        tokio::task::yield_now().await;
    }
}

/// Does something in the background, as another connection would.
async fn in_background<T: Send + 'static>(call: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
    let call = tokio::spawn(call);
    settle().await;
    call
}
