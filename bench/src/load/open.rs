//! The open loop, free of coordinated omission.
//!
//! Operation k is due at `start + k / rate`. Any free client takes the next one that is due; if none is free, it
//! waits, and that wait is part of its latency. So a server that stalls for a second is seen by every operation that
//! was due in that second, not by the few that were under way.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::{Client, join_all};
use crate::clock;
use crate::samples::Samples;

/// How finely operations are released. The timer of the runtime has a grain of a millisecond, which is more than
/// most answers take, so a thread of its own paces them.
const GRAIN: Duration = Duration::from_micros(50);

/// Between the plan and its first operation, so that all clients stand ready.
const LEAD: Duration = Duration::from_millis(20);

/// What a round of an open loop gave.
#[derive(Debug)]
pub(crate) struct Round {
    /// From the first operation being due to the last answer.
    pub(crate) elapsed: Duration,
    /// From the time at which an operation was due until its last answer.
    pub(crate) latency: Samples,
    /// From the time at which an operation was due until its first request was sent: how much of the latency is
    /// the pacing of this generator and the wait for a free client.
    pub(crate) lag: Samples,
}

/// When each operation is due.
#[derive(Debug)]
struct Plan {
    start: Instant,
    rate: f64,
    total: usize,
}

impl Plan {
    #[allow(clippy::cast_precision_loss, reason = "far below 2^52 operations")]
    fn due(&self, operation: usize) -> Instant {
        self.start + Duration::from_secs_f64(operation as f64 / self.rate)
    }

    /// How many operations are due by `now`.
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "never negative, and cut at the total"
    )]
    fn due_by(&self, now: Instant) -> usize {
        match now.checked_duration_since(self.start) {
            Some(passed) => self.total.min((passed.as_secs_f64() * self.rate) as usize + 1),
            None => 0,
        }
    }
}

/// Carries out `rate` operations a second for `duration`.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the caller's rate is positive, and a total is at most some million"
)]
pub(crate) async fn run<C: Client>(clients: &mut Vec<C>, rate: f64, duration: Duration) -> Result<Round> {
    let total = (rate * duration.as_secs_f64()).max(1.0) as usize;
    let plan = Arc::new(Plan { start: clock::now() + LEAD, rate, total });
    let released = Arc::new(Semaphore::new(0));
    let next = Arc::new(AtomicUsize::new(0));
    let mut tasks = JoinSet::new();
    let count = clients.len();
    for mut client in clients.drain(..) {
        let (plan, released, next) = (Arc::clone(&plan), Arc::clone(&released), Arc::clone(&next));
        tasks.spawn(async move {
            let (mut latency, mut lag) = (Samples::default(), Samples::default());
            loop {
                released.acquire().await?.forget();
                let operation = next.fetch_add(1, Ordering::Relaxed);
                if operation >= plan.total {
                    return anyhow::Ok((client, latency, lag));
                }
                let due = plan.due(operation);
                lag.record(clock::now().saturating_duration_since(due));
                client.run().await?;
                latency.record(clock::now().saturating_duration_since(due));
            }
        });
    }
    let pacer = std::thread::spawn({
        let plan = Arc::clone(&plan);
        move || pace(&plan, &released, count)
    });
    let done = join_all(tasks, duration + LEAD).await?;
    let elapsed = plan.start.elapsed();
    pacer.join().map_err(|_panic| anyhow!("the pacing thread panicked")).context("open loop")?;
    let (mut latency, mut lag) = (Samples::default(), Samples::default());
    for (client, latencies, lags) in done {
        clients.push(client);
        latency.absorb(latencies);
        lag.absorb(lags);
    }
    Ok(Round { elapsed, latency, lag })
}

/// Releases each operation when it is due, and in the end every client.
fn pace(plan: &Plan, released: &Semaphore, clients: usize) {
    let mut so_far = 0;
    while so_far < plan.total {
        let now = clock::now();
        let due = plan.due_by(now);
        released.add_permits(due - so_far);
        so_far = due;
        std::thread::sleep(plan.due(so_far).saturating_duration_since(now).max(GRAIN));
    }
    released.add_permits(clients);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operation_is_released_when_it_is_due_and_not_before() {
        let plan = Plan { start: clock::now() + Duration::from_secs(1), rate: 4.0, total: 3 };
        let at = |millis| plan.due_by(plan.start + Duration::from_millis(millis));
        assert_eq!(plan.due_by(plan.start.checked_sub(Duration::from_millis(1)).unwrap()), 0);
        assert_eq!([at(0), at(249), at(251), at(499), at(501), at(9_000)], [1, 1, 2, 2, 3, 3]);
        assert_eq!(plan.due(2), plan.start + Duration::from_millis(500));
    }

    /// A client that stalls once, in its first operation.
    struct Stalls(Option<Duration>);

    impl Client for Stalls {
        async fn run(&mut self) -> Result<()> {
            if let Some(stall) = self.0.take() {
                tokio::time::sleep(stall).await;
            }
            Ok(())
        }
    }

    #[tokio::test]
    async fn a_stall_is_seen_by_every_operation_that_was_due_meanwhile() {
        let stall = Duration::from_millis(200);
        let mut clients = vec![Stalls(Some(stall))];
        let round = run(&mut clients, 100.0, Duration::from_millis(400)).await.unwrap();
        let latency = round.latency.sorted();
        assert_eq!(latency.len(), 40);
        // Half of them were due during the stall, and waited for half of it on average.
        assert!(latency.at(100.0) >= stall);
        assert!(latency.at(75.0) >= stall / 3, "{:?}", latency.at(75.0));
    }

    #[tokio::test]
    async fn a_client_that_fails_ends_the_round() {
        struct Fails;
        impl Client for Fails {
            async fn run(&mut self) -> Result<()> {
                anyhow::bail!("no")
            }
        }
        run(&mut vec![Fails], 1000.0, Duration::from_millis(50)).await.unwrap_err();
    }
}
