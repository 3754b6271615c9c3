//! Load: what one client does again and again, and the two ways to make many of them do it.
//!
//! [`closed`] answers "how many a second": each client sends its next request as soon as it has its answer.
//! [`open`] answers "how long does one take at this rate": requests are due at fixed times, whether or not earlier
//! ones have been answered, and a latency counts from the time at which its request was due. [`flood`] sends more than
//! is answered, and counts what becomes of it.

pub(crate) mod closed;
pub(crate) mod flood;
pub(crate) mod get;
pub(crate) mod lifecycle;
pub(crate) mod open;

use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio::task::JoinSet;

/// One client with a connection of its own.
pub(crate) trait Client: Send + 'static {
    /// Does the operation once and checks every answer: an answer that is not the expected one is an error, and an
    /// error ends the whole run.
    fn run(&mut self) -> impl Future<Output = Result<()>> + Send;
}

/// How long a round may last beyond its planned time until it counts as hanging.
const GRACE: Duration = Duration::from_secs(30);

/// Waits for all clients of a round; the first failure ends it.
async fn join_all<T: 'static>(mut clients: JoinSet<Result<T>>, planned: Duration) -> Result<Vec<T>> {
    let all = async {
        let mut done = Vec::with_capacity(clients.len());
        while let Some(client) = clients.join_next().await {
            done.push(client.context("a client panicked")??);
        }
        Ok(done)
    };
    tokio::time::timeout(planned + GRACE, all)
        .await
        .context("clients still wait for answers; is it overloaded?")?
}
