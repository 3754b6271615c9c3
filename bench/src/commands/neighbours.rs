//! `bench neighbours`: two subjects far over their limits, and what a third one sees of it.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};

use super::get::{TTL_MS, completed_tasks};
use crate::connection::post_as;
use crate::load::flood::{self, Flood, Pace, Tally};
use crate::load::lifecycle::Load;
use crate::options::Target;
use crate::process::Server;
use crate::rpc;
use crate::samples::{median, millis};
use crate::table;
use crate::tokens::{Algorithm, Keys};

/// The limit: how much larger the third one's p99 may be than when it is alone.
const SLOWER: f64 = 2.0;

/// The third one's calls a second, by its limit.
const SHARE: f64 = 0.5;

/// How many requests each subject may have open.
const CLIENTS: usize = 128;

/// Tasks that are read in turn; each takes three calls to prepare, and a hundred are always possible at once.
const TASKS: u32 = 25;

/// The TTL of tasks that are created, so that they do not pile up.
const CREATED_TTL_MS: u64 = 5000;

/// The beginning of each round, which does not count: what a subject may do at once is used up in it.
const RAMP: Duration = Duration::from_secs(2);

/// Arguments of `neighbours`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    target: Target,
    /// What each subject may do: calls a second. The third one makes half as many
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(100..=100_000))]
    limit: u32,
    /// How many times its limit each of the two sends
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(2..=100))]
    times: u32,
    /// Rounds, each with the third one alone and beside the others
    #[arg(long, default_value_t = 9, value_parser = clap::value_parser!(u8).range(1..=50))]
    rounds: u8,
    /// How long what counts of a round lasts, in seconds; the third one's calls in it should be some hundreds
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=60))]
    seconds: u64,
}

/// Measures and prints. Whether the limits were kept.
pub(crate) async fn run(args: Args) -> Result<bool> {
    let directory = args.target.directory()?;
    let keys = Keys::new(args.target.directory()?)?;
    let limit = ["--rate-limit-per-subject".to_owned(), args.limit.to_string()];
    let target = args.target.with_args(keys.broker_args()?).with_args(limit);
    let (broker, _ready) = target.start(&directory.path().join("data")).await?;
    println!(
        "a third subject with {:.0} calls a second, alone and beside two that make {} each; each may make {}",
        f64::from(args.limit) * SHARE,
        args.limit * args.times,
        args.limit
    );
    println!("{}", args.target.describe());
    let mut kept = true;
    for kind in [Kind::Get, Kind::Create] {
        kept &= measure(&args, &broker, &keys, kind).await?;
    }
    broker.stop().await?;
    Ok(kept)
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Get,
    Create,
}

impl Kind {
    const fn name(self) -> &'static str {
        match self {
            Self::Get => "tasks/get",
            Self::Create => "store/create",
        }
    }

    /// Ready-made requests of the bearer of this token.
    async fn requests(self, broker: &Server, token: String) -> Result<Arc<[Vec<u8>]>> {
        let load = Load::new(256, TTL_MS);
        match self {
            Self::Get => {
                let tokens = std::slice::from_ref(&token);
                let tasks = completed_tasks(broker.address(), &load, TASKS, tokens).await?;
                Ok(tasks.iter().map(|exchange| exchange.request.clone()).collect())
            }
            Self::Create => {
                let create = Load { ttl_ms: CREATED_TTL_MS, ..load }.create();
                Ok(Arc::new([post_as(Some(&token), rpc::PATH, &create)]))
            }
        }
    }
}

async fn measure(args: &Args, broker: &Server, keys: &Keys, kind: Kind) -> Result<bool> {
    let window = Duration::from_secs(args.seconds);
    let mut floods = Vec::new();
    for subject in ["third", "one", "two"] {
        let subject = format!("{subject}-{}", kind.name());
        let token = keys.token_of(&subject, Algorithm::Hs256)?;
        let rate = if floods.is_empty() { SHARE } else { f64::from(args.times) } * f64::from(args.limit);
        floods.push(Flood {
            server: broker.address(),
            clients: CLIENTS,
            pace: Pace::Open(rate),
            requests: kind.requests(broker, token).await?,
            ramp: RAMP,
            window,
        });
    }
    let [third, one, two] = floods.as_slice() else { return Ok(false) };
    let mut rows = Vec::new();
    let mut ratios = Vec::new();
    let mut refused = 0;
    for round in 1..=args.rounds {
        let quiet = flood::run(third).await?;
        let (loaded, one, two) = tokio::try_join!(flood::run(third), flood::run(one), flood::run(two))?;
        for tally in [&quiet, &loaded] {
            ensure!(tally.sent == tally.served, "the third subject was not served: {tally:?}");
        }
        for greedy in [&one, &two] {
            let error = greedy.first_error.as_deref().unwrap_or_default();
            ensure!(
                greedy.errors + greedy.busy == 0,
                "another answer than 200 or 429: {error} {}",
                greedy.busy
            );
            refused += greedy.too_many;
        }
        let (before, after) = (p99(&quiet), p99(&loaded));
        ratios.push(after / before);
        rows.push(vec![
            round.to_string(),
            format!("{before:.2}"),
            format!("{after:.2}"),
            format!("{:.2}", after / before),
            a_second(one.sent + two.sent, window),
            a_second(one.unsent + two.unsent, window),
            a_second(one.served + two.served, window),
            a_second(one.too_many + two.too_many, window),
        ]);
    }
    println!("\n{}", kind.name());
    let header =
        ["round", "p99 ms alone", "beside", "ratio", "the two send/s", "not sent/s", "served/s", "429/s"];
    table::print(&header, &rows);
    let ratio = median(ratios.iter().copied());
    println!("median ratio of p99 {ratio:.2}, limit {SLOWER:.1}; {refused} calls of the two were refused");
    let far_over = refused > 0;
    for (kept, broken) in
        [(ratio <= SLOWER, "the third one is slower"), (far_over, "nobody was over a limit")]
    {
        if !kept {
            println!("BROKEN: {broken}");
        }
    }
    Ok(ratio <= SLOWER && far_over)
}

fn p99(tally: &Tally) -> f64 {
    millis(tally.latency.clone().sorted().at(99.0))
}

#[allow(clippy::cast_precision_loss, reason = "far below 2^52 requests")]
fn a_second(count: u64, window: Duration) -> String {
    format!("{:.0}", count as f64 / window.as_secs_f64())
}
