//! More load than a server carries, and what becomes of it.
//!
//! Requests are due at fixed times, as in [`super::open`], but nothing here waits for a server that does not keep up: a
//! request that no client is free for within [`TOO_LATE`] is not sent, and counted as such, so that what was offered is
//! what was really sent. Any answer is taken. What counts is what arrives within the window that is measured, which
//! begins after a ramp: neither the first moments, when all places are free, nor what trickles in afterwards.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use tokio::task::JoinSet;

use crate::clock;
use crate::connection::{Connection, excerpt};
use crate::rpc::Answer;
use crate::samples::Samples;

/// A request that nobody was free for within this time is not sent.
const TOO_LATE: Duration = Duration::from_millis(100);

/// How long a client waits for an answer until it goes away.
const PATIENCE: Duration = Duration::from_secs(10);

/// A connection that was not used for this long is not used again: the server may be about to close it.
const STALE: Duration = Duration::from_secs(5);

/// How the load is made.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Pace {
    /// As soon as there is an answer, the next request.
    Closed,
    /// So many requests a second, however many are answered.
    Open(f64),
}

/// Who asks whom for what.
#[derive(Clone, Debug)]
pub(crate) struct Flood {
    pub(crate) server: SocketAddr,
    /// How many requests are open at once at most, each on a connection of its own.
    pub(crate) clients: usize,
    pub(crate) pace: Pace,
    /// Sent in turn.
    pub(crate) requests: Arc<[Vec<u8>]>,
    /// Uncounted, at the beginning.
    pub(crate) ramp: Duration,
    /// Counted.
    pub(crate) window: Duration,
}

/// What became of the requests of a window.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// Requests that were sent.
    pub(crate) sent: u64,
    /// Requests that were due while no client was free.
    pub(crate) unsent: u64,
    /// Calls that were carried out; a batch has many.
    pub(crate) served: u64,
    /// Calls that were refused as `unavailable` in an answer that is a 200.
    pub(crate) unavailable: u64,
    /// Answers with the status 429.
    pub(crate) too_many: u64,
    /// Answers with the status 503.
    pub(crate) busy: u64,
    /// Anything else: another answer, a connection that broke, an answer that did not come.
    pub(crate) errors: u64,
    /// The first of those.
    pub(crate) first_error: Option<String>,
    /// Of requests that were carried out, from when they were due.
    pub(crate) latency: Samples,
}

impl Tally {
    /// Takes over what another one has counted.
    pub(crate) fn absorb(&mut self, other: Self) {
        self.sent += other.sent;
        self.unsent += other.unsent;
        self.served += other.served;
        self.unavailable += other.unavailable;
        self.too_many += other.too_many;
        self.busy += other.busy;
        self.errors += other.errors;
        self.first_error = self.first_error.take().or(other.first_error);
        self.latency.absorb(other.latency);
    }
}

/// Runs it.
pub(crate) async fn run(flood: &Flood) -> Result<Tally> {
    let begin = clock::now();
    let next = Arc::new(AtomicU64::new(0));
    let mut tasks = JoinSet::new();
    for _ in 0..flood.clients {
        let client = Client {
            flood: flood.clone(),
            begin,
            next: Arc::clone(&next),
            connection: None,
            tally: Tally::default(),
        };
        tasks.spawn(client.run());
    }
    let mut all = Tally::default();
    while let Some(tally) = tasks.join_next().await {
        all.absorb(tally.context("a client panicked")?);
    }
    Ok(all)
}

struct Client {
    flood: Flood,
    begin: Instant,
    next: Arc<AtomicU64>,
    connection: Option<(Connection, Instant)>,
    tally: Tally,
}

impl Client {
    async fn run(mut self) -> Tally {
        let (ramp, end) = (self.begin + self.flood.ramp, self.begin + self.flood.ramp + self.flood.window);
        loop {
            let operation = self.next.fetch_add(1, Ordering::Relaxed);
            let due = match self.flood.pace {
                Pace::Closed => clock::now(),
                #[allow(clippy::cast_precision_loss, reason = "far below 2^52 requests")]
                Pace::Open(rate) => self.begin + Duration::from_secs_f64(operation as f64 / rate),
            };
            if due >= end {
                return self.tally;
            }
            tokio::time::sleep_until(due.into()).await;
            let counts = |at: Instant| at >= ramp && at < end;
            let sending = clock::now();
            if sending.saturating_duration_since(due) > TOO_LATE {
                self.tally.unsent += u64::from(counts(due));
                continue;
            }
            self.tally.sent += u64::from(counts(sending));
            let answered = tokio::time::timeout(PATIENCE, self.ask(operation)).await;
            let answered = answered.unwrap_or_else(|_elapsed| bail!("no answer within {PATIENCE:?}"));
            let now = clock::now();
            if answered.is_err() {
                self.connection = None;
            }
            if counts(now) {
                self.count(answered, now.saturating_duration_since(due));
            }
        }
    }

    async fn ask(&mut self, operation: u64) -> Result<Answered> {
        let usable = self.connection.take().filter(|(_, used)| used.elapsed() < STALE);
        let mut connection = match usable {
            Some((connection, _)) => connection,
            None => Connection::open(self.flood.server).await?,
        };
        let place = usize::try_from(operation).unwrap_or_default() % self.flood.requests.len().max(1);
        let request = self.flood.requests.get(place).context("no request")?;
        let (status, body) = connection.exchange_any(request).await?;
        let answered = match status {
            200 => Answered::Served(read(body)?),
            429 => Answered::TooMany,
            503 => Answered::Busy,
            other => bail!("HTTP {other}: {}", excerpt(body)),
        };
        if !connection.closes() {
            self.connection = Some((connection, clock::now()));
        }
        Ok(answered)
    }

    fn count(&mut self, answered: Result<Answered>, latency: Duration) {
        let tally = &mut self.tally;
        match answered {
            Ok(Answered::Served(Calls { served, unavailable })) => {
                tally.served += served;
                tally.unavailable += unavailable;
                if served > 0 {
                    tally.latency.record(latency);
                }
            }
            Ok(Answered::TooMany) => tally.too_many += 1,
            Ok(Answered::Busy) => tally.busy += 1,
            Err(error) => {
                tally.errors += 1;
                tally.first_error.get_or_insert(format!("{error:#}"));
            }
        }
    }
}

enum Answered {
    Served(Calls),
    TooMany,
    Busy,
}

/// What an answer with the status 200 says about its calls.
#[derive(Debug, Default, PartialEq, Eq)]
struct Calls {
    served: u64,
    unavailable: u64,
}

fn read(body: &[u8]) -> Result<Calls> {
    let answers = if body.starts_with(b"[") {
        let not_json = || format!("not a JSON-RPC answer: {}", excerpt(body));
        serde_json::from_slice::<Vec<Answer<'_>>>(body).with_context(not_json)?
    } else {
        vec![Answer::read(body)?]
    };
    let mut calls = Calls::default();
    for answer in answers {
        if answer.is_unavailable() {
            calls.unavailable += 1;
        } else {
            answer.result::<&serde_json::value::RawValue>()?;
            calls.served += 1;
        }
    }
    Ok(calls)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_of_an_answer_are_counted_and_another_error_is_none() {
        let served = r#"{"jsonrpc":"2.0","id":1,"result":{"created":true}}"#;
        let full =
            r#"{"jsonrpc":"2.0","id":1,"error":{"code":1006,"message":"x","data":{"kind":"unavailable"}}}"#;
        let other = full.replace("unavailable", "internal");
        assert_eq!(read(served.as_bytes()).unwrap(), Calls { served: 1, unavailable: 0 });
        let batch = format!("[{served},{full},{served}]");
        assert_eq!(read(batch.as_bytes()).unwrap(), Calls { served: 2, unavailable: 1 });
        for bad in [other.as_str(), "[1]", "", "{}"] {
            assert!(read(bad.as_bytes()).is_err(), "{bad}");
        }
    }
}
