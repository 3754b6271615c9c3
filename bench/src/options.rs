//! Options that several subcommands share.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use tempfile::TempDir;

use crate::process::{self, Server};
use crate::usage;

/// Which broker, and where it keeps its data.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Target {
    /// The broker's program
    #[arg(long, default_value = "target/release/task-broker")]
    broker: PathBuf,
    /// One more argument for `task-broker serve`, for instance `--broker-arg=--max-requests=8192`; repeatable
    #[arg(long = "broker-arg", allow_hyphen_values = true)]
    broker_args: Vec<String>,
    /// Where the temporary directory with all data is made; it must be on a disk
    #[arg(long, default_value_os_t = std::env::temp_dir())]
    dir: PathBuf,
}

impl Target {
    /// A fresh directory that is removed when it is dropped.
    pub(crate) fn directory(&self) -> Result<TempDir> {
        usage::must_be_on_disk(&self.dir)?;
        let directory = tempfile::Builder::new().prefix("task-broker-bench-").tempdir_in(&self.dir);
        directory.with_context(|| self.dir.display().to_string())
    }

    /// The same with more arguments for `task-broker serve`.
    pub(crate) fn with_args(&self, more: impl IntoIterator<Item = String>) -> Self {
        let mut target = self.clone();
        target.broker_args.extend(more);
        target
    }

    /// Starts a broker on the data in `data` and waits until it is ready. Tells how long that took from the start
    /// of the process.
    pub(crate) async fn start(&self, data: &Path) -> Result<(Server, Duration)> {
        let server = Server::start(process::broker(&self.broker, data, &self.broker_args)).await?;
        let ready = server.ready().await?;
        Ok((server, ready))
    }

    /// What is measured, for the first line of a report.
    pub(crate) fn describe(&self) -> String {
        let debug =
            self.broker.components().any(|part| part.as_os_str() == "debug") || cfg!(debug_assertions);
        let warning = if debug { " (A DEBUG BUILD IS INVOLVED: these figures say nothing)" } else { "" };
        format!("{}, data below {}{warning}", self.broker.display(), self.dir.display())
    }
}

/// How much is measured.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct Extent {
    /// Keep-alive connections, each with one request at a time
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=1024))]
    connections: u16,
    /// How long one round lasts; a connection that is not used in two of them must not count as idle
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=20))]
    seconds: u64,
    /// Bytes of the arguments and of the result of a task
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u32).range(64..=1 << 20))]
    payload_bytes: u32,
}

impl Extent {
    pub(crate) fn connections(self) -> usize {
        self.connections.into()
    }

    pub(crate) const fn round(self) -> Duration {
        Duration::from_secs(self.seconds)
    }

    pub(crate) const fn payload_bytes(self) -> usize {
        self.payload_bytes as usize
    }
}

/// Rounds in which all arms of a comparison take turns.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct Rounds {
    /// Measured rounds of each arm, after one that is not counted
    #[arg(long, default_value_t = 9, value_parser = clap::value_parser!(u16).range(1..=100))]
    rounds: u16,
    /// A pause after each round, so that what one arm left to do in the background is not paid by the next
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u64).range(0..=5_000))]
    pause_ms: u64,
}

impl Rounds {
    pub(crate) fn count(self) -> usize {
        self.rounds.into()
    }

    pub(crate) const fn pause(self) -> Duration {
        Duration::from_millis(self.pause_ms)
    }
}
