//! The arms of a comparison, and the rounds in which they take turns.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};

use crate::load::{Client, closed};
use crate::options::Rounds;
use crate::process::Server;
use crate::samples::{Samples, median, millis};
use crate::{table, usage};

/// How long each arm warms up.
const WARM_UP: Duration = Duration::from_secs(1);

/// One server with its clients; several arms may share a server.
#[derive(Debug)]
pub(crate) struct Arm<C> {
    name: &'static str,
    server: Arc<Server>,
    clients: Vec<C>,
    measured: Measured,
}

/// What an arm has shown so far.
#[derive(Debug, Default)]
struct Measured {
    throughputs: Vec<f64>,
    latency: Samples,
    operations: usize,
    /// Processor time of the server.
    processor: Duration,
    /// Processor time of this program, which shares the cores with it.
    generator: Duration,
}

impl<C: Client> Arm<C> {
    pub(crate) fn new(name: &'static str, server: impl Into<Arc<Server>>, clients: Vec<C>) -> Self {
        Self { name, server: server.into(), clients, measured: Measured::default() }
    }

    pub(crate) const fn name(&self) -> &'static str {
        self.name
    }

    pub(crate) const fn clients(&mut self) -> &mut Vec<C> {
        &mut self.clients
    }

    /// One round of a closed loop; not counted.
    pub(crate) async fn closed(&mut self, duration: Duration) -> Result<closed::Round> {
        let round = closed::run(&mut self.clients, duration).await;
        round.with_context(|| self.failed())
    }

    /// What to say beside a failure of a round.
    pub(crate) fn failed(&self) -> String {
        format!("{}; {}", self.name, self.server.tail())
    }

    /// One round of a closed loop that counts.
    async fn measure(&mut self, duration: Duration) -> Result<()> {
        let spent = || {
            anyhow::Ok((
                usage::processor_time(self.server.pid())?,
                usage::processor_time(std::process::id())?,
            ))
        };
        let (server, generator) = spent()?;
        let round = closed::run(&mut self.clients, duration).await;
        let round = round.with_context(|| self.failed())?;
        let (server_now, generator_now) = spent()?;
        self.measured.processor += server_now.saturating_sub(server);
        self.measured.generator += generator_now.saturating_sub(generator);
        self.measured.operations += round.operations;
        self.measured.throughputs.push(round.throughput());
        self.measured.latency.absorb(round.latency);
        Ok(())
    }

    /// Ends the server with the last of its arms; it must end well.
    pub(crate) async fn stop(self) -> Result<()> {
        drop(self.clients);
        if let Some(server) = Arc::into_inner(self.server) {
            server.stop().await.context(self.name)?;
        }
        Ok(())
    }

    /// Processor time for each operation, in microseconds.
    fn micros(&self, processor: Duration) -> f64 {
        let operations = u32::try_from(self.measured.operations).unwrap_or(u32::MAX).max(1);
        processor.as_secs_f64() * 1e6 / f64::from(operations)
    }
}

/// A ratio of two arms' throughputs that is of interest.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ratio {
    /// The place of the one among the arms.
    pub(crate) of: usize,
    /// The place of the one that it is divided by.
    pub(crate) by: usize,
    /// What its median must reach, if there is such a limit.
    pub(crate) limit: Option<f64>,
}

/// Lets the arms take turns: each round measures every one of them, and each round another one comes first. Prints
/// what it measures. Whether the limits were kept.
pub(crate) async fn compare<C: Client>(
    mut arms: Vec<Arm<C>>,
    rounds: Rounds,
    duration: Duration,
    wanted: &[Ratio],
) -> Result<bool> {
    for arm in &mut arms {
        arm.closed(WARM_UP).await?;
    }
    for round in 0..rounds.count() {
        let first = round % arms.len();
        arms.rotate_left(first);
        for arm in &mut arms {
            tokio::time::sleep(rounds.pause()).await;
            arm.measure(duration).await?;
        }
        arms.rotate_right(first);
    }
    let kept = report(&mut arms, wanted);
    for arm in arms {
        arm.stop().await?;
    }
    Ok(kept)
}

fn report<C: Client>(arms: &mut [Arm<C>], wanted: &[Ratio]) -> bool {
    let pairs: Vec<_> = wanted
        .iter()
        .filter_map(|ratio| Some((arms.get(ratio.of)?, arms.get(ratio.by)?, ratio.limit)))
        .map(|(of, by, limit)| (of, by, limit, ratios(of, by)))
        .collect();

    let header: Vec<String> = std::iter::once("round".to_owned())
        .chain(arms.iter().map(|arm| arm.name.to_owned()))
        .chain(pairs.iter().map(|(of, by, ..)| format!("{} / {}", of.name, by.name)))
        .collect();
    let rounds = arms.first().map_or(0, |arm| arm.measured.throughputs.len());
    let figure = |figures: &[f64], round: usize| figures.get(round).copied().unwrap_or_default();
    let rows: Vec<Vec<String>> = (0..rounds)
        .map(|round| {
            std::iter::once((round + 1).to_string())
                .chain(arms.iter().map(|arm| format!("{:.0}", figure(&arm.measured.throughputs, round))))
                .chain(pairs.iter().map(|(.., ratios)| format!("{:.3}", figure(ratios, round))))
                .collect()
        })
        .collect();
    println!("\noperations per second, closed loop");
    table::print(&header.iter().map(String::as_str).collect::<Vec<_>>(), &rows);

    println!();
    let mut broken = Vec::new();
    for (of, by, limit, ratios) in &pairs {
        let low = ratios.iter().copied().fold(f64::INFINITY, f64::min);
        let high = ratios.iter().copied().fold(0.0, f64::max);
        let median = median(ratios.iter().copied());
        let what = format!("{} / {}", of.name, by.name);
        let beside = limit.map(|limit| format!(", limit {limit:.2}")).unwrap_or_default();
        println!("median ratio {what}: {median:.3} ({low:.3} to {high:.3}){beside}");
        // A ratio of nothing is no number, and keeps no limit.
        if limit.is_some_and(|limit| median.partial_cmp(&limit).is_none_or(std::cmp::Ordering::is_lt)) {
            broken.push(what);
        }
        let processor = by.micros(by.measured.processor) / of.micros(of.measured.processor);
        println!("  by the servers' processor time alone: {processor:.3}");
    }

    let rows: Vec<_> = arms
        .iter_mut()
        .map(|arm| {
            let latency = std::mem::take(&mut arm.measured.latency).sorted();
            let percentile = |percent| format!("{:.3}", millis(latency.at(percent)));
            vec![
                arm.name.to_owned(),
                format!("{:.0}", median(arm.measured.throughputs.iter().copied())),
                percentile(50.0),
                percentile(99.0),
                format!("{:.1}", arm.micros(arm.measured.processor)),
                format!("{:.1}", arm.micros(arm.measured.generator)),
            ]
        })
        .collect();
    println!();
    table::print(
        &["all rounds", "median ops/s", "p50 ms", "p99 ms", "server CPU us/op", "generator's"],
        &rows,
    );
    for what in &broken {
        println!("BROKEN: {what} is below its limit");
    }
    broken.is_empty()
}

fn ratios<C>(of: &Arm<C>, by: &Arm<C>) -> Vec<f64> {
    let pairs = of.measured.throughputs.iter().zip(&by.measured.throughputs);
    pairs.map(|(of, by)| of / by).collect()
}
