//! `bench expiry`: how long reads take while a million tasks expire together.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use super::get::{TTL_MS, completed_tasks};
use super::million::fill::{Fill, Ttl};
use crate::connection::{Connection, get};
use crate::load::get::GetClient;
use crate::load::lifecycle::Load;
use crate::load::open;
use crate::options::Target;
use crate::process::Server;
use crate::samples::{Samples, millis};
use crate::{clock, table};

/// The limit: p99 while they expire beside p99 before.
const TIMES: f64 = 2.0;

/// How long one look lasts.
const LOOK: Duration = Duration::from_secs(5);

/// Between the load and the quiet time: the store comes to rest.
const REST: Duration = Duration::from_secs(15);

/// Arguments of `expiry`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    target: Target,
    /// How many tasks expire together
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1_000..=5_000_000))]
    count: u64,
    /// How many others live on and are read in turn
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    living: u32,
    /// Reads a second, due at fixed times
    #[arg(long, default_value_t = 2000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    rate: u32,
    /// Connections that read
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=1024))]
    connections: u16,
    /// When they expire, from the start of the load on; it must be long enough for the load and the quiet time
    #[arg(long, default_value_t = 240, value_parser = clap::value_parser!(u64).range(10..=3600))]
    expire_after_secs: u64,
    /// How long the quiet time lasts
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u64).range(5..=600))]
    quiet_secs: u64,
    /// How long the removal may take
    #[arg(long, default_value_t = 600, value_parser = clap::value_parser!(u64).range(20..=3600))]
    sweep_secs: u64,
}

/// Fills, reads before and meanwhile, and prints. True if the limit holds.
pub(crate) async fn run(args: Args) -> Result<bool> {
    let directory = args.target.directory()?;
    let (broker, _ready) = args.target.start(&directory.path().join("data")).await?;
    println!("{} tasks expire together; {} reads a second of {} others", args.count, args.rate, args.living);
    println!("{}", args.target.describe());
    let living = completed_tasks(broker.address(), &Load::new(1024, TTL_MS), args.living, &[]).await?;
    let expiry = clock::unix()? + Duration::from_secs(args.expire_after_secs);
    let fill = Fill {
        broker: broker.address(),
        connections: args.connections.min(256),
        range: 0..args.count,
        ttl: Ttl::Until { unix: expiry },
    };
    fill.run(args.count).await.with_context(|| broker.tail())?;
    let quiet = Duration::from_secs(args.quiet_secs);
    let left = expiry.saturating_sub(clock::unix()?);
    ensure!(left > REST + quiet + LOOK, "the load took too long; raise --expire-after-secs");
    tokio::time::sleep(left.saturating_sub(quiet + LOOK)).await;

    let mut clients = GetClient::connect(broker.address(), &living, usize::from(args.connections)).await?;
    let rate = f64::from(args.rate);
    let mut before = Samples::default();
    let begun = clock::now();
    while begun.elapsed() < quiet {
        before.absorb(open::run(&mut clients, rate, LOOK).await.with_context(|| broker.tail())?.latency);
    }
    tokio::time::sleep(expiry.saturating_sub(clock::unix()?)).await;

    let limit = Duration::from_secs(args.sweep_secs);
    let (mut meanwhile, mut worst) = (Samples::default(), Duration::ZERO);
    let begun = clock::now();
    while kept(&broker).await? > u64::from(args.living) {
        ensure!(begun.elapsed() < limit, "still not removed after {limit:?}; {}", broker.tail());
        let look = open::run(&mut clients, rate, LOOK).await.with_context(|| broker.tail())?.latency.sorted();
        worst = worst.max(look.at(99.0));
        meanwhile.absorb(look.into_samples());
    }
    let took = begun.elapsed();
    broker.stop().await?;
    Ok(report(before, meanwhile, worst, took))
}

fn report(before: Samples, meanwhile: Samples, worst: Duration, took: Duration) -> bool {
    let (before, meanwhile) = (before.sorted(), meanwhile.sorted());
    let mut rows = Vec::new();
    for (name, samples) in [("before", &before), ("while they are removed", &meanwhile)] {
        let mut row = vec![name.to_owned(), samples.len().to_string()];
        row.extend([50.0, 99.0, 99.9, 100.0].map(|percent| format!("{:.3}", millis(samples.at(percent)))));
        rows.push(row);
    }
    table::print(&["", "reads", "p50 ms", "p99 ms", "p99.9 ms", "max ms"], &rows);
    let ratio = millis(meanwhile.at(99.0)) / millis(before.at(99.0));
    println!(
        "removed in {:.1} s, as seen every {LOOK:?}; worst p99 of one look {:.3} ms",
        took.as_secs_f64(),
        millis(worst)
    );
    let kept = ratio <= TIMES;
    println!("{} p99 at most {TIMES} times that of before: {ratio:.2}", if kept { "PASS" } else { "FAIL" });
    kept
}

/// How many tasks the broker still keeps, expired ones included.
async fn kept(broker: &Server) -> Result<u64> {
    let mut connection = Connection::open(broker.address()).await?;
    let text = connection.exchange(&get("/metrics")).await?;
    let text = std::str::from_utf8(text).context("/metrics")?;
    let lines = text.lines().filter(|line| line.starts_with("task_broker_tasks{"));
    let mut sum = None;
    for line in lines {
        let count: u64 = line.rsplit(' ').next().context("a line without a value")?.parse()?;
        sum = Some(sum.unwrap_or(0) + count);
    }
    sum.context("/metrics does not tell how many tasks are kept")
}
