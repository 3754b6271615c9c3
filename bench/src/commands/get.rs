//! `bench get`: what a read costs beside an echo.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context as _, Result};

use crate::arena::{Arena, BASELINE_PATHS};
use crate::arm::{self, Arm, Ratio};
use crate::baseline::log::Mode;
use crate::connection::{Connection, post, post_as};
use crate::load::get::{Exchange, GetClient};
use crate::load::lifecycle::Load;
use crate::options::{Extent, Rounds, Target};
use crate::rpc::{self, Created, Flat, Outcome};
use crate::tokens::{Algorithm, Keys};

/// The issues' limits for the ratios: without a token by the echo, RS256 by either echo, RS256 by HS256.
const LIMIT: f64 = 0.85;
const LIMIT_RS256: f64 = 0.8;
const LIMIT_RS256_BY_HS256: f64 = 0.9;

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
    /// How many different tokens of each kind are sent in turn; with more than 16,384, and as many tasks, the broker
    /// cannot remember them
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    tokens: u32,
}

/// Measures and prints. Whether the limits were kept.
pub(crate) async fn run(args: Args) -> Result<bool> {
    let load = Load::new(args.extent.payload_bytes(), TTL_MS);
    let keys = Keys::new(args.target.directory()?)?;
    let (arena, broker) = Arena::open(&args.target.with_args(keys.broker_args()?), &load).await?;
    let baseline = Arc::new(arena.baseline(Mode::Append).await?);
    let connections = args.extent.connections();
    println!("tasks/get of {} completed tasks against a no-op echo, {connections} connections", args.tasks);
    println!("{}", args.target.describe());
    println!("results: {}; {} tokens of each kind in turn", arena.specimen().sizes(), args.tokens);

    let broker = Arc::new(broker);
    let (mut arms, mut echoes) = (Vec::new(), Vec::new());
    for (name, algorithm) in
        [("no token", None), ("HS256", Some(Algorithm::Hs256)), ("RS256", Some(Algorithm::Rs256))]
    {
        let tokens = algorithm.map(|algorithm| keys.tokens(algorithm, args.tokens)).transpose()?;
        let tasks = completed_tasks(broker.address(), &load, args.tasks, &tokens.unwrap_or_default()).await?;
        let clients = GetClient::connect(broker.address(), &tasks, connections).await?;
        arms.push(Arm::new(name, Arc::clone(&broker), clients));
        let same = match algorithm {
            None => Some(("echo", echo(&arena)?)),
            Some(Algorithm::Rs256) => Some(("echo of RS256", echo_of(&tasks, &arena)?)),
            Some(_) => None,
        };
        if let Some((name, exchanges)) = same {
            let clients = GetClient::connect(baseline.address(), &exchanges, connections).await?;
            echoes.push(Arm::new(name, Arc::clone(&baseline), clients));
        }
    }
    drop((broker, baseline));
    arms.append(&mut echoes);
    let wanted = [
        Ratio { of: 0, by: 3, limit: Some(LIMIT) },
        Ratio { of: 1, by: 3, limit: None },
        Ratio { of: 2, by: 3, limit: Some(LIMIT_RS256) },
        Ratio { of: 2, by: 4, limit: Some(LIMIT_RS256) },
        Ratio { of: 2, by: 1, limit: Some(LIMIT_RS256_BY_HS256) },
    ];
    arm::compare(arms, args.rounds, args.extent.round(), &wanted).await
}

/// Creates and completes tasks; gives for each the request that reads it and the answer, which never changes. Each
/// task's requests have the next of these tokens, and none if there is none.
pub(crate) async fn completed_tasks(
    broker: SocketAddr,
    load: &Load,
    count: u32,
    tokens: &[String],
) -> Result<Arc<[Exchange]>> {
    let mut connection = Connection::open(broker).await?;
    let mut exchanges = Vec::new();
    let mut tokens = tokens.iter().map(String::as_str).cycle();
    for task in 0..count {
        let context = || format!("preparing task {task}");
        let token = tokens.next();
        let create = post_as(token, rpc::PATH, &load.create());
        let body = connection.exchange(&create).await.with_context(context)?;
        let task_id = rpc::result::<Created<'_>>(body)?.task_id()?.to_owned();
        let complete = post_as(token, rpc::PATH, &load.complete(&task_id));
        let body = connection.exchange(&complete).await.with_context(context)?;
        rpc::result::<Outcome<'_>>(body)?.must_have_left("completed")?;
        let request = post_as(token, rpc::PATH, &Load::get(&task_id));
        let answer = connection.exchange(&request).await.with_context(context)?;
        rpc::result::<Flat<'_>>(answer)?.must_be_completed_with(&load.result)?;
        exchanges.push(Exchange { answer: answer.to_vec(), request });
    }
    Ok(exchanges.into())
}

/// The same request as for a task, and the baseline's answer to it.
pub(crate) fn echo(arena: &Arena) -> Result<Arc<[Exchange]>> {
    let request = post(BASELINE_PATHS.get, &Load::get(rpc::PLACEHOLDER_ID));
    Ok(Arc::new([Exchange { request, answer: echoed(arena)? }]))
}

/// The very requests of these exchanges, tokens and all, and the baseline's answer to each: what it costs to take and to
/// send the same bytes.
fn echo_of(exchanges: &[Exchange], arena: &Arena) -> Result<Arc<[Exchange]>> {
    let answer = echoed(arena)?;
    let same = |exchange: &Exchange| Exchange { request: exchange.request.clone(), answer: answer.clone() };
    Ok(exchanges.iter().map(same).collect())
}

/// The baseline's answer to a `tasks/get`.
fn echoed(arena: &Arena) -> Result<Vec<u8>> {
    let result = arena.specimen().result("tasks/get")?.get();
    Ok(format!(r#"{{"jsonrpc":"2.0","id":1,"result":{result}}}"#).into_bytes())
}
