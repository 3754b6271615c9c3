//! Load scripts for task-broker: each measures the real broker process, where it makes sense against a baseline in
//! the same run. See README.md beside this crate.

#![allow(clippy::print_stdout, reason = "these programs print what they measure")]

mod arena;
mod arm;
mod baseline;
mod clock;
mod commands;
mod connection;
mod counting;
mod load;
mod options;
mod payload;
mod process;
mod rpc;
mod samples;
mod table;
mod tokens;
mod usage;

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Parser;
use tokio::signal::unix::{SignalKind, signal};

use crate::commands::{
    client, expiry, get, lifecycle, million, neighbours, open_loop, overload, status, turnover, waits,
};

/// Measures task-broker, on the loopback interface alone
#[derive(Debug, Parser)]
#[command(name = "bench", max_term_width = 110)]
enum Command {
    /// Throughput of tasks/get without a token, with HS256 and with RS256 tokens, against a no-op JSON-RPC echo
    Get(get::Args),
    /// Throughput of create + complete + get against a log with group commit behind the same HTTP set-up
    Lifecycle(lifecycle::Args),
    /// Latency at fixed rates, counted from the time at which a request is due
    OpenLoop(open_loop::Args),
    /// How soon a waiter hears of a completion, and of an expiry
    Waits(waits::Args),
    /// What a call of RemoteTaskStore costs next to an echo, and the requests of each operation of tower-mcp's router
    Client(client::Args),
    /// A million tasks: time to start, memory, and the sweep of half of them, against the limits
    Million(million::Args),
    /// How long reads take while a million tasks expire together
    Expiry(expiry::Args),
    /// What large arguments of a task cost a change that does not touch them
    Status(status::Args),
    /// What the store occupies when all its tasks have been replaced many times
    Turnover(turnover::Args),
    /// Two subjects far over their limits: the p99 of a third one, against the limit
    Neighbours(neighbours::Args),
    /// Ten times what the broker carries: how much of it is still done, against the limits
    Overload(overload::Args),
    /// The server that the broker is compared with; started by the other subcommands
    BaselineServer(baseline::Args),
}

impl Command {
    /// True if what has limits has kept them.
    async fn run(self) -> Result<bool> {
        match self {
            Self::Get(args) => return get::run(args).await,
            Self::Lifecycle(args) => return lifecycle::run(args).await,
            Self::OpenLoop(args) => open_loop::run(args).await?,
            Self::Waits(args) => waits::run(args).await?,
            Self::Client(args) => client::run(args).await?,
            Self::Neighbours(args) => return neighbours::run(args).await,
            Self::Overload(args) => return overload::run(args).await,
            Self::Million(args) => return million::run(args).await,
            Self::Expiry(args) => return expiry::run(args).await,
            Self::Status(args) => return status::run(args).await,
            Self::Turnover(args) => return turnover::run(args).await,
            Self::BaselineServer(args) => baseline::run(args).await?,
        }
        Ok(true)
    }
}

/// The same as the broker's, or the ratios would compare allocators.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[tokio::main]
async fn main() -> ExitCode {
    match run(Command::parse()).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            // Standard error may be closed; the exit code still tells.
            writeln!(std::io::stderr(), "error: {error:#}").ok();
            ExitCode::from(2)
        }
    }
}

/// Runs until the command is done or somebody ends it. Ending in an orderly way ends the servers too and removes
/// their data.
async fn run(command: Command) -> Result<bool> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let serving = matches!(command, Command::BaselineServer(_));
    tokio::select! {
        kept = command.run() => kept,
        _ = terminate.recv() => if serving { Ok(true) } else { bail!("terminated") },
        _ = interrupt.recv() => bail!("interrupted"),
    }
}
