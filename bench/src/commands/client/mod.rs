//! `bench client`: what a call of the task store of an MCP server costs, and how often it asks the broker.

mod calls;
mod router;

use std::sync::Arc;

use anyhow::{Context as _, Result};
use task_broker_client::{Client, RemoteTaskStore};
use tower_mcp::async_task::TaskStore;

use super::get::TTL_MS;
use crate::arena::Arena;
use crate::baseline::log::Mode;
use crate::counting::Counting;
use crate::load::lifecycle::Load;
use crate::options::Target;

/// Arguments of `client`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    target: Target,
    /// How often each call is measured, after a tenth of that which is not counted
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(10..=100_000))]
    times: u32,
    /// Bytes of the arguments and of the result of a task
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u32).range(64..=1 << 20))]
    payload_bytes: u32,
}

/// Measures and prints.
pub(crate) async fn run(args: Args) -> Result<()> {
    let load = Load::new(args.payload_bytes as usize, TTL_MS);
    let (arena, broker) = Arena::open(&args.target, &load).await?;
    let baseline = arena.baseline(Mode::Append).await?;
    println!("calls of the task store, one after the other, {} times each", args.times);
    println!("{}", args.target.describe());

    let url = format!("http://{}", broker.address());
    let store: Arc<dyn TaskStore> = Arc::new(RemoteTaskStore::builder(&url).connect().await?);
    // The client that the store is built on, and a server that only reads the envelope.
    let echo = Client::builder(&format!("http://{}", baseline.address())).build()?;
    let counting = Counting::to(broker.address()).await?;
    let counted: Arc<dyn TaskStore> = Arc::new(RemoteTaskStore::builder(&counting.url()).connect().await?);

    counting.connected().await?;

    calls::run(&store, &echo, &load, args.times, (&counted, &counting))
        .await
        .with_context(|| broker.tail())?;
    router::run(&counted, &counting).await.with_context(|| broker.tail())?;
    drop((store, counted, counting));
    broker.stop().await?;
    baseline.stop().await?;
    Ok(())
}
