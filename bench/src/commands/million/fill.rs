//! Creating many tasks, a hundred in a request.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use tokio::task::JoinSet;

use crate::connection::{Connection, excerpt, post};
use crate::rpc::{self, Answer, Created};
use crate::{clock, payload};

/// Calls in one request; the broker's limit.
const BATCH: u64 = 100;

/// Every how-manieth task is a large one.
const LARGE_EVERY: u64 = 100;
const LARGE_BYTES: usize = 64 << 10;
const SMALL_BYTES: usize = 1 << 10;

/// The tool of every task.
pub(in crate::commands) const TOOL: &str = "render";

/// The arguments of a task: made again whenever they are compared.
pub(in crate::commands) fn arguments(index: u64) -> String {
    let bytes = if index % LARGE_EVERY == LARGE_EVERY - 1 { LARGE_BYTES } else { SMALL_BYTES };
    payload::object(bytes, index)
}

/// How long tasks live.
#[derive(Clone, Copy, Debug)]
pub(in crate::commands) enum Ttl {
    /// This long, each.
    Fixed { ms: u64 },
    /// All of them until this time, counted from 1970.
    Until { unix: Duration },
}

impl Ttl {
    fn ms(self) -> Result<u64> {
        match self {
            Self::Fixed { ms } => Ok(ms),
            Self::Until { unix } => {
                let left = unix.saturating_sub(clock::unix()?);
                ensure!(!left.is_zero(), "the load took too long; raise --expire-margin-secs");
                Ok(u64::try_from(left.as_millis())?)
            }
        }
    }
}

/// Tasks to create.
#[derive(Clone, Debug)]
pub(in crate::commands) struct Fill {
    pub(in crate::commands) broker: SocketAddr,
    pub(in crate::commands) connections: u16,
    pub(in crate::commands) range: Range<u64>,
    pub(in crate::commands) ttl: Ttl,
}

/// Tasks that were created.
#[derive(Debug, Default)]
pub(in crate::commands) struct Filled {
    /// The sampled ones: index and id.
    pub(in crate::commands) samples: Vec<(u64, String)>,
    /// When the last one expires, counted from 1970.
    pub(in crate::commands) last_expiry: Duration,
}

impl Fill {
    /// Creates all of them; remembers every `sample`th.
    pub(in crate::commands) async fn run(self, sample: u64) -> Result<Filled> {
        let next = Arc::new(AtomicU64::new(self.range.start));
        let mut workers = JoinSet::new();
        for _ in 0..self.connections {
            workers.spawn(self.clone().work(Arc::clone(&next), sample));
        }
        let mut all = Filled::default();
        while let Some(worker) = workers.join_next().await {
            let part = worker.context("a client panicked")??;
            all.samples.extend(part.samples);
            all.last_expiry = all.last_expiry.max(part.last_expiry);
        }
        all.samples.sort_unstable();
        Ok(all)
    }

    async fn work(self, next: Arc<AtomicU64>, sample: u64) -> Result<Filled> {
        let mut connection = Connection::open(self.broker).await?;
        let mut filled = Filled::default();
        loop {
            let start = next.fetch_add(BATCH, Ordering::Relaxed);
            let batch = start..self.range.end.min(start + BATCH);
            if batch.is_empty() {
                return Ok(filled);
            }
            let request = post(rpc::PATH, &self.batch(batch.clone())?);
            let body = connection.exchange(&request).await.with_context(|| format!("creating {batch:?}"))?;
            let answers: Vec<Answer<'_>> = serde_json::from_slice(body).with_context(|| excerpt(body))?;
            ensure!(answers.len() == batch.clone().count(), "{} answers to {batch:?}", answers.len());
            for (index, answer) in batch.zip(answers) {
                let created: Created<'_> = answer.result().with_context(|| format!("creating {index}"))?;
                let task_id = created.task_id()?;
                filled.last_expiry = filled.last_expiry.max(Duration::from_millis(created.expires_at_ms()?));
                if index % sample == 0 {
                    filled.samples.push((index, task_id.to_owned()));
                }
            }
        }
    }

    fn batch(&self, batch: Range<u64>) -> Result<String> {
        let ttl_ms = self.ttl.ms()?;
        let mut text = String::from("[");
        for index in batch.clone() {
            if index != batch.start {
                text.push(',');
            }
            let arguments = arguments(index);
            let params = format!(r#"{{"toolName":"{TOOL}","ttlMs":{ttl_ms},"arguments":{arguments}}}"#);
            write!(text, "{}", rpc::call("store/create", &params))?;
        }
        text.push(']');
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_hundredth_task_is_large_and_a_batch_stays_below_the_brokers_limit() {
        let sizes: Vec<usize> = (0..200).map(|index| arguments(index).len()).collect();
        assert_eq!(sizes.iter().filter(|&&size| size == LARGE_BYTES).count(), 2);
        assert_eq!(sizes.iter().filter(|&&size| size == SMALL_BYTES).count(), 198);
        let address = "127.0.0.1:1".parse().unwrap();
        let fill = Fill { broker: address, connections: 1, range: 0..100, ttl: Ttl::Fixed { ms: 1 } };
        let batch = fill.batch(0..100).unwrap();
        assert!(batch.len() < 8 << 20);
        assert_eq!(serde_json::from_str::<Vec<serde_json::Value>>(&batch).unwrap().len(), 100);
    }
}
