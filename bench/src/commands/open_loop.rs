//! `bench open-loop`: latency at fixed rates.

use std::time::Duration;

use anyhow::{Context as _, Result};

use super::get::{TTL_MS, completed_tasks, echo};
use crate::arena::{Arena, BASELINE_PATHS, BROKER_PATHS};
use crate::arm::Arm;
use crate::baseline::log::Mode;
use crate::load::get::GetClient;
use crate::load::lifecycle::{LifecycleClient, Load};
use crate::load::{Client, open};
use crate::options::{Extent, Target};
use crate::samples::{Samples, Sorted, millis};
use crate::table;

/// How long each server warms up.
const WARM_UP: Duration = Duration::from_secs(1);

/// How long the capacity is measured.
const CAPACITY_ROUND: Duration = Duration::from_secs(3);

/// After each round, so that what it left to do in the background is not paid by the next.
const PAUSE: Duration = Duration::from_millis(500);

/// Tasks that are read in turn.
const TASKS: u32 = 1000;

const HEADER: [&str; 9] =
    ["open loop", "due/s", "done/s", "p50 ms", "p90 ms", "p99 ms", "p99.9 ms", "max ms", "lag p99 ms"];

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Kind {
    /// One `tasks/get` of a completed task
    Get,
    /// Create, complete and get, in sequence
    Lifecycle,
}

/// Arguments of `open-loop`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    extent: Extent,
    /// What to measure; both, if absent
    #[arg(long, value_enum)]
    kind: Option<Kind>,
    /// The rates, in percent of the broker's throughput in a closed loop
    #[arg(long, value_delimiter = ',', default_value = "20,40,60,80",
          value_parser = clap::value_parser!(u32).range(1..=100))]
    percent: Vec<u32>,
}

/// Measures and prints.
pub(crate) async fn run(args: Args) -> Result<()> {
    println!("latency from the time at which a request is due, {} connections", args.extent.connections());
    println!("{}", args.target.describe());
    if args.kind != Some(Kind::Lifecycle) {
        get(&args).await.context("get")?;
    }
    if args.kind != Some(Kind::Get) {
        lifecycle(&args).await.context("lifecycle")?;
    }
    Ok(())
}

async fn get(args: &Args) -> Result<()> {
    let load = Load::new(args.extent.payload_bytes(), TTL_MS);
    let (arena, broker) = Arena::open(&args.target, &load).await?;
    let baseline = arena.baseline(Mode::Append).await?;
    let connections = args.extent.connections();
    let tasks = completed_tasks(broker.address(), &load, TASKS, &[]).await?;
    let clients = GetClient::connect(broker.address(), &tasks, connections).await?;
    let mut arms = [Arm::new("tasks/get", broker, clients), {
        let clients = GetClient::connect(baseline.address(), &echo(&arena)?, connections).await?;
        Arm::new("echo", baseline, clients)
    }];
    let rates = rates(&mut arms, args).await?;
    let mut rows = Vec::new();
    for (percent, rate) in rates {
        for arm in &mut arms {
            let round = measure(arm, rate, args.extent.round()).await?;
            rows.push(row(format!("{} at {percent} %", arm.name()), rate, round));
        }
    }
    table::print(&HEADER, &rows);
    for arm in arms {
        arm.stop().await?;
    }
    Ok(())
}

async fn lifecycle(args: &Args) -> Result<()> {
    let load = Load::new(args.extent.payload_bytes(), TTL_MS);
    let (arena, broker) = Arena::open(&args.target, &load).await?;
    let baseline = arena.baseline(Mode::Append).await?;
    let connections = args.extent.connections();
    let clients = LifecycleClient::connect(broker.address(), BROKER_PATHS, &load, connections).await?;
    let mut arms = [Arm::new("lifecycle", broker, clients), {
        let clients =
            LifecycleClient::connect(baseline.address(), BASELINE_PATHS, &load, connections).await?;
        Arm::new("append", baseline, clients)
    }];
    let rates = rates(&mut arms, args).await?;
    let mut rows = Vec::new();
    for (percent, rate) in rates {
        for arm in &mut arms {
            LifecycleClient::take_steps(arm.clients());
            let round = measure(arm, rate, args.extent.round()).await?;
            rows.push(row(format!("{} at {percent} %", arm.name()), rate, round));
            let steps = LifecycleClient::take_steps(arm.clients());
            for (step, samples) in
                [("create", steps.create), ("complete", steps.complete), ("get", steps.get)]
            {
                let mut cells = vec![format!("  its {step}, once sent"), String::new(), String::new()];
                cells.extend(percentiles(&samples.sorted()));
                rows.push(cells);
            }
        }
    }
    table::print(&HEADER, &rows);
    for arm in arms {
        arm.stop().await?;
    }
    Ok(())
}

/// Finds what the first server can do in a closed loop, and gives the rates to measure.
async fn rates<C: Client>(arms: &mut [Arm<C>], args: &Args) -> Result<Vec<(u32, f64)>> {
    // All of them warm up now: a server closes a connection that sends nothing at first.
    for arm in &mut *arms {
        arm.closed(WARM_UP).await?;
    }
    let first = arms.first_mut().context("no server")?;
    let capacity = first.closed(CAPACITY_ROUND).await?.throughput();
    println!("\n{}: {capacity:.0} a second in a closed loop", first.name());
    Ok(args.percent.iter().map(|&percent| (percent, capacity * f64::from(percent) / 100.0)).collect())
}

async fn measure<C: Client>(arm: &mut Arm<C>, rate: f64, duration: Duration) -> Result<open::Round> {
    tokio::time::sleep(PAUSE).await;
    let round = open::run(arm.clients(), rate, duration).await;
    round.with_context(|| arm.failed())
}

#[allow(clippy::cast_precision_loss, reason = "far below 2^52 operations")]
fn row(name: String, rate: f64, round: open::Round) -> Vec<String> {
    let latency = round.latency.sorted();
    let done = latency.len() as f64 / round.elapsed.as_secs_f64();
    let mut row = vec![name, format!("{rate:.0}"), format!("{done:.0}")];
    row.extend(percentiles(&latency));
    row.push(format!("{:.3}", millis(Samples::sorted(round.lag).at(99.0))));
    row
}

fn percentiles(latency: &Sorted) -> impl Iterator<Item = String> {
    [50.0, 90.0, 99.0, 99.9, 100.0].into_iter().map(|percent| format!("{:.3}", millis(latency.at(percent))))
}
