//! A complete MCP server on tower-mcp whose long tool calls run as tasks. Where the tasks live is one line, see
//! [`options::OpenStore`]: in this process, or in a task-broker that outlives it and that several instances share.
//!
//! README.md beside this crate says how to run it and what to try.

mod options;
mod tools;

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use clap::Parser as _;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tower_mcp::async_task::TaskStore;
use tower_mcp::{HttpTransport, McpRouter};
use tracing_subscriber::EnvFilter;

use crate::options::{OpenStore, Options};

/// Where the endpoint is on this server.
const PATH: &str = "/mcp";

#[tokio::main]
async fn main() -> ExitCode {
    let options = Options::parse();
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    match run(&options).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Serves until somebody ends the process.
async fn run(options: &Options) -> Result<()> {
    let store = options.open_store().await?;
    let listener = TcpListener::bind(options.listen).await;
    let listener = listener.with_context(|| format!("cannot listen on {}", options.listen))?;
    let address = listener.local_addr()?;
    tracing::info!(url = %format_args!("http://{address}{PATH}"), store = %options.store, "listening");

    let router = router(store.task_store());
    let app = HttpTransport::new(router.clone()).into_router_at(PATH);
    // Clients that listen on this instance hear of what other instances do, for as long as the bridge is held.
    let _announcer = match &store {
        OpenStore::Broker(broker) => Some(broker.announce_to(router)),
        OpenStore::Memory(_) => None,
    };
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let ended = async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    };
    // A client that listens for notifications keeps its connection open for as long as it likes, so the end of the
    // process does not wait for connections. Tasks lose nothing by it: with a broker they are all kept.
    tokio::select! {
        served = axum::serve(listener, app).into_future() => served.context("the server failed"),
        () = ended => Ok(()),
    }
}

/// The server itself. `task_store` is all that it knows of where tasks are kept.
fn router(store: Arc<dyn TaskStore>) -> McpRouter {
    McpRouter::new()
        .server_info("task-broker-example", env!("CARGO_PKG_VERSION"))
        .instructions("Shows tools that run as tasks: try count_down and cancel it, or confirm_delete.")
        .tools(tools::all())
        .task_store(store)
        // A handler that panics fails its own task instead of leaving it at `working` until its TTL.
        .catch_panics()
        // Tasks are offered to clients that declare the extension, and to nobody else.
        .with_tasks()
}
