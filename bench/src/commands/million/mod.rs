//! `bench million`: a million tasks, two restarts, and the sweep of half of them.
//!
//! The first half lives on. The second half is given TTLs that end at one time, far enough away for the restarts and
//! the reads that come before it.

mod check;
pub(super) mod fill;
mod report;

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use self::fill::{Fill, Filled, Ttl};
use self::report::Report;
use crate::options::Target;
use crate::process::Server;
use crate::{clock, usage};

/// Longer than any run.
const LONG_TTL_MS: u64 = 24 * 60 * 60 * 1000;

/// How long the broker must have been idle, after the expiry, for the sweep to count as over. No answer tells when it
/// is: an expired task reads as absent from the first moment, swept or not.
const QUIET: Duration = Duration::from_secs(10);

/// How often the broker is looked at meanwhile.
const LOOK: Duration = Duration::from_millis(250);

/// Processor time per second up to which a broker counts as idle.
const IDLE: f64 = 0.05;

/// Arguments of `million`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    target: Target,
    /// How many tasks; the limits are meant for a million
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1_000..=5_000_000))]
    count: u64,
    /// Connections that create them, each with one batch at a time
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=256))]
    connections: u16,
    /// Every how-manieth task is remembered and checked
    #[arg(long, default_value_t = 97, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    sample: u64,
    /// The second half expires 2.5 times the time that the first took to load, and this, after that load
    #[arg(long, default_value_t = 90, value_parser = clap::value_parser!(u64).range(5..=3600))]
    expire_margin_secs: u64,
    /// How long the sweep may take
    #[arg(long, default_value_t = 600, value_parser = clap::value_parser!(u64).range(20..=3600))]
    sweep_secs: u64,
}

/// Fills, restarts, checks, and prints. True if all limits hold.
pub(crate) async fn run(args: Args) -> Result<bool> {
    let directory = args.target.directory()?;
    let data = directory.path().join("data");
    println!("{} tasks: 1 KiB of arguments each, every hundredth 64 KiB", args.count);
    println!("{}", args.target.describe());
    let mut report = Report::default();

    let (broker, ready) = args.target.start(&data).await?;
    report.started("start, empty", ready, &broker, &data)?;

    let half = args.count / 2;
    let fill = |range, ttl| Fill { broker: broker.address(), connections: args.connections, range, ttl };
    let begun = clock::now();
    let living = fill(0..half, Ttl::Fixed { ms: LONG_TTL_MS }).run(args.sample).await;
    let living = living.with_context(|| broker.tail())?;
    let took = begun.elapsed();
    report.phase("load, first half", took, &broker, &data)?;

    // A store that grows gets slower: the second half may take twice as long as the first.
    let expiry = clock::unix()? + took.mul_f64(2.5) + Duration::from_secs(args.expire_margin_secs);
    let begun = clock::now();
    let expiring = fill(half..args.count, Ttl::Until { unix: expiry }).run(args.sample).await;
    let expiring = expiring.with_context(|| broker.tail())?;
    report.phase("load, second half", begun.elapsed(), &broker, &data)?;

    // Right after the load, when most is left to recover.
    broker.kill().await?;
    let (broker, ready) = args.target.start(&data).await?;
    report.started("start after kill -9", ready, &broker, &data)?;
    check_all(&mut report, &broker, &data, &living, &expiring, args.count).await?;

    let took = broker.stop().await?;
    report.note("SIGTERM until the end of the process", took);
    let (broker, ready) = args.target.start(&data).await?;
    report.started("start after SIGTERM", ready, &broker, &data)?;
    check_all(&mut report, &broker, &data, &living, &expiring, args.count).await?;
    ensure!(
        clock::unix()? < expiry,
        "the second half expired before everything else was done; raise --expire-margin-secs"
    );

    let last_expiry = expiring.last_expiry.max(expiry);
    tokio::time::sleep(last_expiry.saturating_sub(clock::unix()?)).await;
    let swept = sweep(&mut report, &broker, Duration::from_secs(args.sweep_secs)).await?;
    report.phase("sweep of the second half", swept, &broker, &data)?;
    check_half(&mut report, &broker, &data, &living, &expiring, half).await?;

    broker.stop().await?;
    let (broker, ready) = args.target.start(&data).await?;
    report.started("start after the sweep", ready, &broker, &data)?;
    check_half(&mut report, &broker, &data, &living, &expiring, half).await?;
    broker.stop().await?;
    Ok(report.print())
}

/// All tasks are there: the sampled ones with their arguments, and all of them in the list.
async fn check_all(
    report: &mut Report,
    broker: &Server,
    data: &std::path::Path,
    living: &Filled,
    expiring: &Filled,
    count: u64,
) -> Result<()> {
    let begun = clock::now();
    check::exact(broker.address(), living).await?;
    check::exact(broker.address(), expiring).await?;
    report.phase("  read samples", begun.elapsed(), broker, data)?;
    let begun = clock::now();
    check::walk(broker.address(), count).await?;
    report.phase("  walk through all", begun.elapsed(), broker, data)
}

/// The first half is there, and nothing of the second.
async fn check_half(
    report: &mut Report,
    broker: &Server,
    data: &std::path::Path,
    living: &Filled,
    expired: &Filled,
    count: u64,
) -> Result<()> {
    let begun = clock::now();
    check::exact(broker.address(), living).await?;
    check::absent(broker.address(), expired).await?;
    report.phase("  read samples", begun.elapsed(), broker, data)?;
    let begun = clock::now();
    check::walk(broker.address(), count).await?;
    report.phase("  walk through all", begun.elapsed(), broker, data)
}

/// Waits until the broker is idle again, and tells how long it was busy.
async fn sweep(report: &mut Report, broker: &Server, limit: Duration) -> Result<Duration> {
    let begun = clock::now();
    let mut busy_until = Duration::ZERO;
    let mut spent = usage::processor_time(broker.pid())?;
    let mut looked = begun;
    while begun.elapsed() < busy_until + QUIET {
        ensure!(begun.elapsed() < limit, "still busy {limit:?} after the expiry; {}", broker.tail());
        tokio::time::sleep(LOOK).await;
        let now = clock::now();
        let spent_now = usage::processor_time(broker.pid())?;
        let share = spent_now.saturating_sub(spent).as_secs_f64() / now.duration_since(looked).as_secs_f64();
        if share > IDLE {
            busy_until = begun.elapsed();
        }
        (spent, looked) = (spent_now, now);
        report.look(broker)?;
    }
    Ok(busy_until)
}
