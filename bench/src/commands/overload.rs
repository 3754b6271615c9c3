//! `bench overload`: ten times what the broker carries, and how much of it is still done.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use crate::connection::post;
use crate::load::flood::{self, Flood, Pace, Tally};
use crate::options::Target;
use crate::payload;
use crate::process::Server;
use crate::rpc;
use crate::samples::{median, millis};
use crate::usage::{self, Memory};
use crate::{clock, table};

/// The issue's limit: how much of the peak must be left.
const GOODPUT: f64 = 0.9;

/// How much of the load that was meant must really have been sent, or the run says nothing.
const OFFERED: f64 = 0.9;

/// What the broker may take beside what it had at its peak, in bytes: the bounds of bodies and of large answers.
const MEMORY: u64 = 512 << 20;

/// How long the tasks live: short, so that a broker at work has as many to remove as it is given.
const TTL_MS: u64 = 2000;

/// Before anything counts: longer than a TTL, so that tasks expire in what is measured.
const WARM_UP: Duration = Duration::from_secs(4);

/// The beginning of each round, which does not count.
const RAMP: Duration = Duration::from_secs(2);

/// The same of what is too much: thousands of connections are made in it, all at once, and the first of those who are
/// served have waited for seconds when they get their answer.
const OVER_RAMP: Duration = Duration::from_secs(5);

/// How often memory is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Arguments of `overload`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    target: Target,
    /// Calls of `store/create` in one request; with 1 they are sent alone, and the generator cannot send enough of them
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..=100))]
    batch: u16,
    /// Bytes of the arguments of a task
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(64..=1 << 16))]
    payload_bytes: u32,
    /// Numbers of clients in a closed loop among which the peak is looked for
    #[arg(long, value_delimiter = ',', default_value = "8,32,128", value_parser = clap::value_parser!(u16).range(1..=1024))]
    peak_clients: Vec<u16>,
    /// How many times the peak is offered
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u8).range(1..=20))]
    times: u8,
    /// How many requests may be open at once while that is offered, each on a connection of its own
    #[arg(long, default_value_t = 8192, value_parser = clap::value_parser!(u16).range(1..=30_000))]
    clients: u16,
    /// Rounds, each with the peak and the overload
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u8).range(1..=50))]
    rounds: u8,
    /// How long what counts of a round lasts, in seconds
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=60))]
    seconds: u64,
}

/// One load: its goodput in each round, and everything else of all rounds.
#[derive(Debug)]
struct Level {
    name: String,
    clients: usize,
    goodput: Vec<f64>,
    tally: Tally,
    /// Processor time of the server, and of this program.
    processor: (Duration, Duration),
    /// The time of all rounds, ramps included.
    elapsed: Duration,
}

/// Measures and prints. Whether the limits were kept.
pub(crate) async fn run(args: Args) -> Result<bool> {
    let directory = args.target.directory()?;
    let (broker, _ready) = args.target.start(&directory.path().join("data")).await?;
    println!(
        "requests of {} store/create with {} B each: the peak in a closed loop, and {} times as many",
        args.batch, args.payload_bytes, args.times
    );
    println!("{}", args.target.describe());
    let requests = requests(&args);
    let flood = |clients, pace, ramp, window| Flood {
        server: broker.address(),
        clients,
        pace,
        requests: Arc::clone(&requests),
        ramp,
        window,
    };
    let window = Duration::from_secs(args.seconds);
    let mut levels: Vec<Level> =
        args.peak_clients.iter().map(|&clients| Level::closed(clients.into())).collect();
    let mut rate: f64 = 0.0;
    for level in &levels {
        let tally = flood::run(&flood(level.clients, Pace::Closed, WARM_UP, window)).await?;
        let why = tally.first_error.as_deref().unwrap_or_default();
        ensure!(tally.errors == 0 && tally.served > 0, "not even the peak is carried: {why}");
        rate = rate.max(goodput(&tally, window) / f64::from(args.batch));
    }
    let offered = rate * f64::from(args.times);
    println!(
        "peak about {rate:.0} requests a second; {offered:.0} are offered on up to {} connections\n",
        args.clients
    );
    let base = Memory::of(broker.pid())?;
    let mut over =
        Level { name: format!("{} times", args.times), clients: args.clients.into(), ..Level::closed(0) };
    let mut most = base.resident;
    for _ in 0..args.rounds {
        for level in &mut levels {
            level.measure(&broker, &flood(level.clients, Pace::Closed, RAMP, window), &mut most).await?;
        }
        let load = flood(over.clients, Pace::Open(offered), OVER_RAMP, window);
        let mut highest = 0;
        over.measure(&broker, &load, &mut highest).await?;
        most = most.max(highest);
    }
    let kept = report(&args, &levels, &over, most.saturating_sub(base.resident));
    broker.stop().await?;
    Ok(kept)
}

/// Ready-made requests, a few that differ.
fn requests(args: &Args) -> Arc<[Vec<u8>]> {
    let request = |seed: u64| {
        let arguments = payload::object(args.payload_bytes as usize, seed);
        let params = format!(r#"{{"toolName":"render","ttlMs":{TTL_MS},"arguments":{arguments}}}"#);
        let call = rpc::call("store/create", &params);
        match args.batch {
            1 => post(rpc::PATH, &call),
            count => post(rpc::PATH, &format!("[{}]", vec![call; count.into()].join(","))),
        }
    };
    (0..16).map(request).collect()
}

/// Calls carried out a second.
#[allow(clippy::cast_precision_loss, reason = "far below 2^52 calls")]
fn goodput(tally: &Tally, window: Duration) -> f64 {
    tally.served as f64 / window.as_secs_f64()
}

impl Level {
    fn closed(clients: usize) -> Self {
        let name = format!("{clients} clients");
        Self {
            name,
            clients,
            goodput: Vec::new(),
            tally: Tally::default(),
            processor: (Duration::ZERO, Duration::ZERO),
            elapsed: Duration::ZERO,
        }
    }

    async fn measure(&mut self, broker: &Server, flood: &Flood, most: &mut u64) -> Result<()> {
        let spent =
            || anyhow::Ok((usage::processor_time(broker.pid())?, usage::processor_time(std::process::id())?));
        let (server, generator) = spent()?;
        let began = clock::now();
        let mut running = std::pin::pin!(flood::run(flood));
        let tally = loop {
            tokio::select! {
                tally = &mut running => break tally.with_context(|| broker.tail())?,
                () = tokio::time::sleep(LOOK_EVERY) => *most = Memory::of(broker.pid())?.resident.max(*most),
            }
        };
        let (server_now, generator_now) = spent()?;
        self.elapsed += began.elapsed();
        self.processor.0 += server_now.saturating_sub(server);
        self.processor.1 += generator_now.saturating_sub(generator);
        self.goodput.push(goodput(&tally, flood.window));
        self.tally.absorb(tally);
        // What it left behind is not for the next one to pay.
        let calm = clock::now() + Duration::from_millis(TTL_MS);
        tokio::time::sleep_until(calm.into()).await;
        Ok(())
    }
}

#[allow(clippy::cast_precision_loss, reason = "far below 2^52 requests")]
fn report(args: &Args, levels: &[Level], over: &Level, grown: u64) -> bool {
    let median_of = |level: &Level| median(level.goodput.iter().copied());
    let Some(peak) = levels.iter().max_by(|one, other| median_of(one).total_cmp(&median_of(other))) else {
        return false;
    };
    let ratios: Vec<f64> = over.goodput.iter().zip(&peak.goodput).map(|(over, peak)| over / peak).collect();
    let ratio = median(ratios.iter().copied());
    let seconds = f64::from(args.rounds) * args.seconds as f64;
    let sent = over.tally.sent as f64 * f64::from(args.batch) / seconds;
    let times = sent / median_of(peak);
    let peak_name = peak.name.clone();
    let (errors, first_error) = (over.tally.errors, over.tally.first_error.clone());
    let rows: Vec<Vec<String>> =
        levels.iter().chain(std::iter::once(over)).map(|level| row(level, seconds)).collect();
    table::print(
        &[
            "load",
            "calls done/s",
            "requests sent/s",
            "not sent/s",
            "429/s",
            "503/s",
            "full/s",
            "errors",
            "p50 ms",
            "p99 ms",
            "server CPUs",
            "generator's",
        ],
        &rows,
    );
    let listed: Vec<String> = ratios.iter().map(|ratio| format!("{ratio:.2}")).collect();
    println!("\npeak: {peak_name}; really offered: {times:.1} times that, aim {:.1}", f64::from(args.times));
    println!("goodput by the peak's, each round: {}; median {ratio:.3}, limit {GOODPUT}", listed.join(" "));
    println!(
        "answers that were no 200, 429 or 503: {errors}, limit 0{}",
        first_error.map(|error| format!(" ({error})")).unwrap_or_default()
    );
    println!("memory above the base: {} MiB, limit {} MiB", grown >> 20, MEMORY >> 20);
    let verdicts = [
        (
            times >= OFFERED * f64::from(args.times),
            "less was offered than was meant: more --clients, or more --batch",
        ),
        (ratio >= GOODPUT, "goodput is below its limit"),
        (errors == 0, "there were other errors"),
        (grown <= MEMORY, "memory is above its limit"),
    ];
    for (kept, broken) in verdicts {
        if !kept {
            println!("BROKEN: {broken}");
        }
    }
    verdicts.iter().all(|(kept, _)| *kept)
}

#[allow(clippy::cast_precision_loss, reason = "far below 2^52 requests")]
fn row(level: &Level, seconds: f64) -> Vec<String> {
    let tally = &level.tally;
    let a_second = |count: u64| format!("{:.0}", count as f64 / seconds);
    let latency = tally.latency.clone().sorted();
    let processor = |time: Duration| format!("{:.2}", time.as_secs_f64() / level.elapsed.as_secs_f64());
    vec![
        level.name.clone(),
        format!("{:.0}", median(level.goodput.iter().copied())),
        a_second(tally.sent),
        a_second(tally.unsent),
        a_second(tally.too_many),
        a_second(tally.busy),
        a_second(tally.unavailable),
        tally.errors.to_string(),
        format!("{:.1}", millis(latency.at(50.0))),
        format!("{:.1}", millis(latency.at(99.0))),
        processor(level.processor.0),
        processor(level.processor.1),
    ]
}
