//! `bench get`: what a read costs beside an echo.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context as _, Result};

use crate::arena::{Arena, BASELINE_PATHS};
use crate::arm::{self, Arm};
use crate::baseline::log::Mode;
use crate::connection::{Connection, post};
use crate::load::get::{Exchange, GetClient};
use crate::load::lifecycle::Load;
use crate::options::{Extent, Rounds, Target};
use crate::rpc::{self, Created, Flat, Outcome};

/// The issue's aim for the ratio.
const AIM: f64 = 0.85;

/// Longer than any run.
pub(crate) const TTL_MS: u64 = 24 * 60 * 60 * 1000;

/// Arguments of `get`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    extent: Extent,
    #[command(flatten)]
    rounds: Rounds,
    /// How many tasks are read in turn
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    tasks: u32,
}

/// Measures and prints.
pub(crate) async fn run(args: Args) -> Result<()> {
    let load = Load::new(args.extent.payload_bytes(), TTL_MS);
    let (arena, broker) = Arena::open(&args.target, &load).await?;
    let baseline = arena.baseline(Mode::Append).await?;
    let connections = args.extent.connections();
    println!("tasks/get of {} completed tasks against a no-op echo, {connections} connections", args.tasks);
    println!("{}", args.target.describe());
    println!("results: {}", arena.specimen().sizes());

    let tasks = completed_tasks(broker.address(), &load, args.tasks).await?;
    let broker_clients = GetClient::connect(broker.address(), &tasks, connections).await?;
    let baseline_clients = GetClient::connect(baseline.address(), &echo(&arena)?, connections).await?;
    let arms =
        vec![Arm::new("tasks/get", broker, broker_clients), Arm::new("echo", baseline, baseline_clients)];
    arm::compare(arms, args.rounds, args.extent.round(), &[Some(AIM)]).await
}

/// Creates and completes tasks; gives for each the request that reads it and the answer, which never changes.
pub(crate) async fn completed_tasks(broker: SocketAddr, load: &Load, count: u32) -> Result<Arc<[Exchange]>> {
    let mut connection = Connection::open(broker).await?;
    let mut exchanges = Vec::new();
    for task in 0..count {
        let context = || format!("preparing task {task}");
        let body = connection.exchange(&post(rpc::PATH, &load.create())).await.with_context(context)?;
        let task_id = rpc::result::<Created<'_>>(body)?.task_id()?.to_owned();
        let complete = post(rpc::PATH, &load.complete(&task_id));
        let body = connection.exchange(&complete).await.with_context(context)?;
        rpc::result::<Outcome<'_>>(body)?.must_have_left("completed")?;
        let request = post(rpc::PATH, &Load::get(&task_id));
        let answer = connection.exchange(&request).await.with_context(context)?;
        rpc::result::<Flat<'_>>(answer)?.must_be_completed_with(&load.result)?;
        exchanges.push(Exchange { answer: answer.to_vec(), request });
    }
    Ok(exchanges.into())
}

/// The same request as for a task, and the baseline's answer to it.
pub(crate) fn echo(arena: &Arena) -> Result<Arc<[Exchange]>> {
    let request = post(BASELINE_PATHS.get, &Load::get(rpc::PLACEHOLDER_ID));
    let result = arena.specimen().result("tasks/get")?.get();
    let answer = format!(r#"{{"jsonrpc":"2.0","id":1,"result":{result}}}"#).into_bytes();
    Ok(Arc::new([Exchange { request, answer }]))
}
