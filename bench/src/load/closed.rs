//! The closed loop.

use std::time::Duration;

use anyhow::Result;
use tokio::task::JoinSet;

use super::{Client, join_all};
use crate::clock;
use crate::samples::Samples;

/// What a round of a closed loop gave.
#[derive(Debug)]
pub(crate) struct Round {
    /// Operations carried out.
    pub(crate) operations: usize,
    /// From the start to the last answer.
    pub(crate) elapsed: Duration,
    /// Each operation's time.
    pub(crate) latency: Samples,
}

impl Round {
    /// Operations per second.
    #[allow(clippy::cast_precision_loss, reason = "far below 2^52 operations")]
    pub(crate) fn throughput(&self) -> f64 {
        self.operations as f64 / self.elapsed.as_secs_f64()
    }
}

/// Lets all clients work for `duration`, each as fast as it can.
pub(crate) async fn run<C: Client>(clients: &mut Vec<C>, duration: Duration) -> Result<Round> {
    let started = clock::now();
    let mut tasks = JoinSet::new();
    for mut client in clients.drain(..) {
        tasks.spawn(async move {
            let mut latency = Samples::default();
            let mut before = clock::now();
            while before.duration_since(started) < duration {
                client.run().await?;
                let after = clock::now();
                latency.record(after.duration_since(before));
                before = after;
            }
            anyhow::Ok((client, latency))
        });
    }
    let done = join_all(tasks, duration).await?;
    let elapsed = started.elapsed();
    let mut latency = Samples::default();
    for (client, samples) in done {
        clients.push(client);
        latency.absorb(samples);
    }
    Ok(Round { operations: latency.len(), elapsed, latency })
}
