//! What the broker is measured against: the least that a server can do for the same requests.
//!
//! `POST /echo` reads the JSON-RPC envelope and answers a fixed result for its method. `POST /log` does the same
//! after a record has been appended to one file and synced, in groups. The results are ones that the broker gave
//! just before, so both servers send the same number of bytes and the generator checks both in the same way.
//! The server runs in a process of its own, behind the broker's own HTTP set-up (see [`serve`]).

mod answers;
pub(crate) mod log;
mod serve;

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderValue, Response, StatusCode, header};
use axum::routing::post;
use tokio::net::TcpListener;
use tokio::process::Command;

use self::answers::Answers;
use self::log::{Log, Mode};
use crate::process;

/// Arguments of `baseline-server`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Where to listen; a loopback address
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// A JSON object: for each method the result to answer
    #[arg(long)]
    answers: PathBuf,
    /// The file that `/log` appends to; made anew
    #[arg(long)]
    log_file: PathBuf,
    /// How the file is written
    #[arg(long, value_enum, default_value_t = Mode::Append)]
    log_mode: Mode,
    /// How many bytes `/log` writes for each request
    #[arg(long, default_value_t = 1424, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    record_bytes: u32,
}

/// The command that starts a baseline server.
pub(crate) fn command(
    answers: &std::path::Path,
    log_file: &std::path::Path,
    mode: Mode,
    record_bytes: usize,
) -> Result<Command> {
    let mut command = process::own(["baseline-server", "--log-mode", mode.name()])?;
    command.arg("--answers").arg(answers).arg("--log-file").arg(log_file);
    command.arg("--record-bytes").arg(record_bytes.to_string());
    Ok(command)
}

#[derive(Debug)]
struct Baseline {
    answers: Answers,
    log: Log,
}

/// Runs the baseline server until SIGTERM.
pub(crate) async fn run(args: Args) -> Result<()> {
    ensure!(args.listen.ip().is_loopback(), "--listen must be a loopback address");
    let answers = Answers::read(&args.answers)?;
    let log = Log::open(&args.log_file, args.log_mode, args.record_bytes as usize)?;
    let app = Router::new()
        .route("/echo", post(echo))
        // For a client that knows only where a broker takes its calls.
        .route("/rpc", post(echo))
        .route("/log", post(append))
        .with_state(Arc::new(Baseline { answers, log }));
    let listener = TcpListener::bind(args.listen).await.context("--listen")?;
    // The same line as the broker's, so that one reader serves both.
    let fields = serde_json::json!({"message": "listening", "address": listener.local_addr()?});
    writeln!(std::io::stderr(), "{}", serde_json::json!({"fields": fields}))?;
    serve::run(listener, app).await;
    Ok(())
}

async fn echo(State(baseline): State<Arc<Baseline>>, body: Bytes) -> Response<Body> {
    json(baseline.answers.answer(&body))
}

async fn append(State(baseline): State<Arc<Baseline>>, body: Bytes) -> Response<Body> {
    let answer = baseline.answers.answer(&body);
    match baseline.log.append(body).await {
        Ok(()) => json(answer),
        Err(error) => failure(StatusCode::SERVICE_UNAVAILABLE, &error),
    }
}

fn json(answer: Result<Vec<u8>>) -> Response<Body> {
    match answer {
        Ok(text) => {
            let mut response = Response::new(Body::from(text));
            response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
            response
        }
        Err(error) => failure(StatusCode::BAD_REQUEST, &error),
    }
}

/// Never a 200, so that no failure of the baseline passes for speed.
fn failure(status: StatusCode, error: &anyhow::Error) -> Response<Body> {
    let mut response = Response::new(Body::from(format!("{error:#}\n")));
    *response.status_mut() = status;
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_modes_of_the_command_line_are_those_of_the_command_that_is_built() {
        use clap::ValueEnum as _;
        for mode in Mode::value_variants() {
            assert_eq!(mode.to_possible_value().unwrap().get_name(), mode.name());
        }
    }
}
