//! `bench lifecycle`: what a durable task costs beside a durable log.

use anyhow::Result;

use super::get::TTL_MS;
use crate::arena::{Arena, BASELINE_PATHS, BROKER_PATHS};
use crate::arm::{self, Arm, Ratio};
use crate::baseline::log::Mode;
use crate::load::lifecycle::{LifecycleClient, Load};
use crate::options::{Extent, Rounds, Target};

/// The issues' limits for the ratios to append + fdatasync: of a file that grows, and of one that is preallocated and used
/// again and again, as the broker's own journal.
const LIMIT: f64 = 0.45;
const LIMIT_PREALLOCATED: f64 = 0.6;

/// Arguments of `lifecycle`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    extent: Extent,
    #[command(flatten)]
    rounds: Rounds,
    /// The TTL of the tasks; shorter than the run, it makes expiry a part of what is measured
    #[arg(long, default_value_t = TTL_MS, value_parser = clap::value_parser!(u64).range(5_000..=TTL_MS))]
    ttl_ms: u64,
}

/// Measures and prints. Whether the limits were kept.
pub(crate) async fn run(args: Args) -> Result<bool> {
    let load = Load::new(args.extent.payload_bytes(), args.ttl_ms);
    let (arena, broker) = Arena::open(&args.target, &load).await?;
    let append = arena.baseline(Mode::Append).await?;
    let preallocated = arena.baseline(Mode::Preallocated).await?;
    let connections = args.extent.connections();
    println!("lifecycles (create, complete, get) against a log with group commit, {connections} connections");
    println!("{}", args.target.describe());
    println!("results: {}; the log writes {} B a command", arena.specimen().sizes(), arena.record_bytes());

    let mut arms = Vec::new();
    for (name, server, paths) in [
        ("broker", broker, BROKER_PATHS),
        ("append", append, BASELINE_PATHS),
        ("preallocated", preallocated, BASELINE_PATHS),
    ] {
        let clients = LifecycleClient::connect(server.address(), paths, &load, connections).await?;
        arms.push(Arm::new(name, server, clients));
    }
    let wanted =
        [Ratio { of: 0, by: 1, limit: Some(LIMIT) }, Ratio { of: 0, by: 2, limit: Some(LIMIT_PREALLOCATED) }];
    arm::compare(arms, args.rounds, args.extent.round(), &wanted).await
}
