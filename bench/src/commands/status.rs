//! `bench status`: what the arguments of a task cost a change that does not touch them.

use std::net::SocketAddr;

use anyhow::{Context as _, Result};

use super::get::TTL_MS;
use crate::arm::{self, Arm, Ratio};
use crate::connection::{Connection, post};
use crate::load::Client;
use crate::options::{Rounds, Target};
use crate::payload;
use crate::rpc::{self, Created, Outcome};

/// A change may cost twice as much, so half as many a second are enough.
const LIMIT: f64 = 0.5;

/// Arguments of `status`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    rounds: Rounds,
    /// Keep-alive connections, each with a task of its own and one request at a time
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=256))]
    connections: u16,
    /// How long one round lasts
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=20))]
    seconds: u64,
    /// Bytes of the large arguments
    #[arg(long, default_value_t = 1 << 20, value_parser = clap::value_parser!(u32).range(64..=1 << 20))]
    argument_bytes: u32,
}

/// Measures and prints. Whether the limit was kept.
pub(crate) async fn run(args: Args) -> Result<bool> {
    let directory = args.target.directory()?;
    println!("store/setStatus, {} connections, a task each", args.connections);
    println!("{}", args.target.describe());
    let large = payload::object(args.argument_bytes as usize, 1);
    let mut arms = Vec::new();
    for (name, arguments) in [("large arguments", large.as_str()), ("none", "{}")] {
        let (server, _ready) = args.target.start(&directory.path().join(name)).await?;
        let clients = clients(server.address(), arguments, args.connections).await?;
        arms.push(Arm::new(name, server, clients));
    }
    let round = std::time::Duration::from_secs(args.seconds);
    arm::compare(arms, args.rounds, round, &[Ratio { of: 0, by: 1, limit: Some(LIMIT) }]).await
}

/// Says again and again how far its task has got.
#[derive(Debug)]
struct StatusClient {
    connection: Connection,
    requests: [Vec<u8>; 2],
}

async fn clients(broker: SocketAddr, arguments: &str, count: u16) -> Result<Vec<StatusClient>> {
    let mut clients = Vec::new();
    for _ in 0..count {
        let mut connection = Connection::open(broker).await?;
        let params = format!(r#"{{"toolName":"render","ttlMs":{TTL_MS},"arguments":{arguments}}}"#);
        let created: Created<'_> = rpc::call_on(&mut connection, "store/create", &params).await?;
        let task_id = created.task_id()?.to_owned();
        let request = |message| {
            let params = format!(r#"{{"taskId":"{task_id}","status":"working","message":"{message}"}}"#);
            post(rpc::PATH, &rpc::call("store/setStatus", &params))
        };
        let requests = [request("half of it is done"), request("more than half is done")];
        clients.push(StatusClient { connection, requests });
    }
    Ok(clients)
}

impl Client for StatusClient {
    async fn run(&mut self) -> Result<()> {
        self.requests.rotate_left(1);
        let [request, _] = &self.requests;
        let answer = self.connection.exchange(request).await?;
        rpc::result::<Outcome<'_>>(answer).context("store/setStatus")?.must_have_left("working")
    }
}
