//! `bench turnover`: what the store occupies when its tasks have been replaced by others many times.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use tokio::task::JoinSet;

use super::million::fill::{self, Fill, Filled, Ttl};
use crate::connection::{Connection, excerpt, post};
use crate::options::Target;
use crate::rpc::{self, Answer, Outcome};
use crate::{clock, table, usage};

/// The limit: the directory is at most so many times as large as what lives.
const TIMES: f64 = 4.0;

/// Longer than any run.
const TTL_MS: u64 = 24 * 60 * 60 * 1000;

/// Calls in one request.
const BATCH: usize = 100;

/// A store is at rest when the size of its directory has stayed the same for so long.
const STILL: Duration = Duration::from_secs(40);

/// Whatever it does then, it is measured.
const PATIENCE: Duration = Duration::from_mins(3);

/// Arguments of `turnover`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    target: Target,
    /// How many tasks live at a time
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1_000..=1_000_000))]
    live: u64,
    /// How often all of them are replaced
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=100))]
    turnovers: u64,
    /// Connections
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=256))]
    connections: u16,
}

/// Replaces, and prints. True if the limit holds after the last turnover and after a restart.
pub(crate) async fn run(args: Args) -> Result<bool> {
    let directory = args.target.directory()?;
    let data = directory.path().join("data");
    println!("{} tasks at a time, 1 KiB of arguments each, every hundredth 64 KiB", args.live);
    println!("{}", args.target.describe());
    let (broker, _ready) = args.target.start(&data).await?;
    let mut rows = Vec::new();
    let mut old = Filled::default();
    for turnover in 0..=args.turnovers {
        let range = turnover * args.live..(turnover + 1) * args.live;
        let fill = Fill {
            broker: broker.address(),
            connections: args.connections,
            range,
            ttl: Ttl::Fixed { ms: TTL_MS },
        };
        let new = fill.run(1).await.with_context(|| broker.tail())?;
        let gone = std::mem::replace(&mut old, new);
        discard(broker.address(), gone, args.connections).await.with_context(|| broker.tail())?;
        rows.push(row(&turnover.to_string(), &old, &data)?.0);
    }
    come_to_rest(&data).await?;
    let (rested, times) = row("at rest", &old, &data)?;
    rows.push(rested);
    broker.stop().await?;
    let (broker, _ready) = args.target.start(&data).await?;
    come_to_rest(&data).await?;
    let (restarted, times_after) = row("after a restart", &old, &data)?;
    rows.push(restarted);
    broker.stop().await?;
    table::print(&["after turnover", "live MiB", "directory MiB", "times"], &rows);
    let kept = times <= TIMES && times_after <= TIMES;
    println!("{} directory at most {TIMES} times the live bytes", if kept { "PASS" } else { "FAIL" });
    Ok(kept)
}

/// Waits until nothing more happens to the directory.
async fn come_to_rest(data: &Path) -> Result<()> {
    let begun = clock::now();
    let mut since = begun;
    let mut last = usage::occupied(data)?;
    while since.elapsed() < STILL && begun.elapsed() < PATIENCE {
        tokio::time::sleep(Duration::from_millis(500)).await;
        let now = usage::occupied(data)?;
        if now != last {
            (last, since) = (now, clock::now());
        }
    }
    Ok(())
}

#[allow(clippy::cast_precision_loss, reason = "far below 2^52 bytes")]
fn row(name: &str, live: &Filled, data: &Path) -> Result<(Vec<String>, f64)> {
    let bytes: usize = live.samples.iter().map(|(index, _)| fill::arguments(*index).len()).sum();
    let occupied = usage::occupied(data)? as f64;
    let mib = |bytes: f64| format!("{:.0}", bytes / f64::from(1 << 20));
    let times = occupied / bytes as f64;
    Ok((vec![name.to_owned(), mib(bytes as f64), mib(occupied), format!("{times:.2}")], times))
}

/// Discards tasks, a hundred in a request.
async fn discard(broker: SocketAddr, tasks: Filled, connections: u16) -> Result<()> {
    let each = tasks.samples.len().div_ceil(usize::from(connections)).max(1);
    let mut workers = JoinSet::new();
    for part in tasks.samples.chunks(each) {
        let part: Vec<String> = part.iter().map(|(_, id)| id.clone()).collect();
        workers.spawn(async move {
            let mut connection = Connection::open(broker).await?;
            for batch in part.chunks(BATCH) {
                let calls: Vec<_> =
                    batch.iter().map(|id| rpc::call("store/discard", &rpc::by_id(id))).collect();
                let body = connection.exchange(&post(rpc::PATH, &format!("[{}]", calls.join(",")))).await?;
                let answers: Vec<Answer<'_>> = serde_json::from_slice(body).with_context(|| excerpt(body))?;
                ensure!(answers.len() == batch.len(), "{} answers to {}", answers.len(), batch.len());
                for answer in answers {
                    answer.result::<Outcome<'_>>()?.must_be_applied()?;
                }
            }
            anyhow::Ok(())
        });
    }
    while let Some(worker) = workers.join_next().await {
        worker.context("a client panicked")??;
    }
    Ok(())
}
