//! `bench waits`: how soon a waiter hears of a completion, and of an expiry.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::task::JoinHandle;

use super::get::TTL_MS;
use crate::connection::{Connection, post};
use crate::load::lifecycle::Load;
use crate::options::Target;
use crate::rpc::{self, Answer, Created, Outcome};
use crate::samples::{Samples, millis};
use crate::{clock, table};

/// How long a waiter waits; the broker cuts it at 50 s.
const TIMEOUT_MS: u64 = 45_000;

/// How long all waiters are given to arrive in the broker.
const SETTLE: Duration = Duration::from_millis(500);

/// A waiter hears of an expiry before it is due by at most this: `createdAt` and this program's reading of the
/// clock are both rounded.
const ROUNDING: Duration = Duration::from_millis(2);

/// Arguments of `waits`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    target: Target,
    /// Waiters, each on a connection of its own
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..=2000))]
    waiters: u64,
    /// Between two completions, and between two tasks that expire
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(0..=20))]
    pause_ms: u64,
    /// The TTL of the tasks that expire
    #[arg(long, default_value_t = 1500, value_parser = clap::value_parser!(u64).range(500..=10_000))]
    ttl_ms: u64,
}

/// Measures and prints.
pub(crate) async fn run(args: Args) -> Result<()> {
    let directory = args.target.directory()?;
    let (broker, _ready) = args.target.start(&directory.path().join("data")).await?;
    println!("{} idle store/wait calls, each on its own connection", args.waiters);
    println!("{}\n", args.target.describe());
    let completions = completions(broker.address(), &args).await.with_context(|| broker.tail())?;
    let lateness = expiries(broker.address(), &args).await.with_context(|| broker.tail())?;
    let mut rows = Vec::new();
    for (name, samples) in [
        ("completion acknowledged", completions.acknowledgements),
        ("completion sent -> waiter answered", completions.from_start),
        ("completion acknowledged -> waiter answered", completions.from_acknowledgement),
        ("expiry due -> waiter answered", lateness),
    ] {
        let samples = samples.sorted();
        let mut row = vec![name.to_owned(), samples.len().to_string()];
        row.extend([50.0, 99.0, 100.0].map(|percent| format!("{:.3}", millis(samples.at(percent)))));
        rows.push(row);
    }
    table::print(&["", "count", "p50 ms", "p99 ms", "max ms"], &rows);
    println!("(a waiter that is answered before the completion is acknowledged counts as 0)");
    broker.stop().await?;
    Ok(())
}

/// A task that somebody waits for.
struct Waited {
    task_id: String,
    expires_at: Duration,
    waiter: JoinHandle<Result<(Instant, Duration, Vec<u8>)>>,
}

/// Creates a task and sends a wait for it. The waiter gives the times of its answer, and the answer.
async fn wait_for_new_task(broker: SocketAddr, control: &mut Connection, create: &[u8]) -> Result<Waited> {
    let mut connection = Connection::open(broker).await?;
    let created: Created<'_> = rpc::result(control.exchange(create).await?)?;
    let task_id = created.task_id()?.to_owned();
    let expires_at = Duration::from_millis(created.expires_at_ms()?);
    let params = format!(r#"{{"taskId":"{task_id}","timeoutMs":{TIMEOUT_MS}}}"#);
    let waiter = tokio::spawn(async move {
        let body = connection.exchange(&post(rpc::PATH, &rpc::call("store/wait", &params))).await?;
        Ok((clock::now(), clock::unix()?, body.to_vec()))
    });
    Ok(Waited { task_id, expires_at, waiter })
}

struct Completions {
    acknowledgements: Samples,
    from_start: Samples,
    from_acknowledgement: Samples,
}

async fn completions(broker: SocketAddr, args: &Args) -> Result<Completions> {
    let load = Load::new(1024, TTL_MS);
    let create = post(rpc::PATH, &load.create());
    let mut control = Connection::open(broker).await?;
    let mut waiting = Vec::new();
    for _ in 0..args.waiters {
        waiting.push(wait_for_new_task(broker, &mut control, &create).await?);
    }
    tokio::time::sleep(SETTLE).await;

    let mut acknowledgements = Samples::default();
    let mut from_start = Samples::default();
    let mut from_acknowledgement = Samples::default();
    for Waited { task_id, waiter, .. } in waiting {
        tokio::time::sleep(Duration::from_millis(args.pause_ms)).await;
        ensure!(!waiter.is_finished(), "a waiter was answered before its task was completed");
        let request = post(rpc::PATH, &load.complete(&task_id));
        let started = clock::now();
        let outcome: Outcome<'_> = rpc::result(control.exchange(&request).await?)?;
        let acknowledged = clock::now();
        outcome.must_have_left("completed")?;
        let (answered, _, body) = waiter.await.context("a waiter panicked")??;
        must_show_completion(&body, &load.result)?;
        acknowledgements.record(acknowledged.duration_since(started));
        from_start.record(answered.duration_since(started));
        from_acknowledgement.record(answered.saturating_duration_since(acknowledged));
    }
    Ok(Completions { acknowledgements, from_start, from_acknowledgement })
}

/// The part of the result of `store/wait` that matters here.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Wait<'a> {
    timed_out: bool,
    #[serde(borrow)]
    task: WaitTask<'a>,
    #[serde(borrow)]
    result: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct WaitTask<'a> {
    status: &'a str,
}

fn must_show_completion(body: &[u8], result: &str) -> Result<()> {
    let wait: Wait<'_> = rpc::result(body).context("store/wait")?;
    ensure!(!wait.timed_out, "a waiter timed out");
    ensure!(wait.task.status == "completed", "a waiter was shown the status {}", wait.task.status);
    ensure!(wait.result.map(RawValue::get) == Some(result), "a waiter was shown another result");
    Ok(())
}

/// How late waiters hear that their task has expired.
async fn expiries(broker: SocketAddr, args: &Args) -> Result<Samples> {
    let create = post(rpc::PATH, &Load::new(1024, args.ttl_ms).create());
    let mut control = Connection::open(broker).await?;
    let mut waiting = Vec::new();
    for _ in 0..args.waiters {
        tokio::time::sleep(Duration::from_millis(args.pause_ms)).await;
        waiting.push(wait_for_new_task(broker, &mut control, &create).await?);
    }
    let mut lateness = Samples::default();
    for Waited { expires_at, waiter, .. } in waiting {
        let (_, answered, body) = waiter.await.context("a waiter panicked")??;
        Answer::read(&body)?.must_be_not_found()?;
        ensure!(answered + ROUNDING >= expires_at, "a waiter was told of an expiry before it was due");
        lateness.record(answered.saturating_sub(expires_at));
    }
    Ok(lateness)
}
