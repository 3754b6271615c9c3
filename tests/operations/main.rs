//! What an operator does with a broker, and to it without meaning to: logs, traces, signals, volumes, deployment.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking, in its helpers too"
)]
#![allow(clippy::disallowed_methods, reason = "deadlines of a test are not the product's time")]

#[path = "../harness/token.rs"]
#[allow(dead_code, reason = "this binary uses its own part of the harness")]
mod token;

mod commands;
mod deploy;
mod logs;
mod proxy;
mod signals;
mod stalled;
mod traces;
mod volume;

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

const DEADLINE: Duration = Duration::from_secs(20);

/// A broker on a port that was free a moment ago: without a log it cannot say which one it took.
struct Broker {
    child: Child,
    address: SocketAddr,
}

impl Drop for Broker {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Broker {
    /// SIGTERM, and the end.
    fn stop(&mut self) -> ExitStatus {
        kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap();
        ended(&mut self.child)
    }
}

/// Waits for the end of a process.
fn ended(child: &mut Child) -> ExitStatus {
    let mut status = None;
    wait_for("the process ends", || {
        status = child.try_wait().unwrap();
        status.is_some()
    });
    status.unwrap()
}

fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// The program without the settings of whoever runs the tests.
fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_task-broker"));
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy().into_owned();
        if name.starts_with("TASK_BROKER_") || name.starts_with("OTEL_") || name == "RUST_LOG" {
            command.env_remove(name);
        }
    }
    command
}

/// A broker with these arguments behind its address.
fn start_with(args: &[&str], log_level: &str, log: Stdio) -> Broker {
    let address = free_address();
    let child = program()
        .args(["serve", "--listen", &address.to_string()])
        .args(args)
        .env("RUST_LOG", log_level)
        .stderr(log)
        .spawn()
        .unwrap();
    let broker = Broker { child, address };
    wait_for("the broker serves", || get(address, "/livez").is_some_and(|answer| answer.contains(" 200 ")));
    broker
}

fn start(data: &Path, log: Stdio) -> Broker {
    start_with(&["--store", &format!("sled:{}", data.display())], "trace", log)
}

/// Looks again and again until something holds; there is no signal that could be waited for.
fn wait_for(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < DEADLINE, "{what}: not within {DEADLINE:?}");
        std::thread::yield_now();
    }
}

/// Sends a request as it is and reads all of the answer.
fn exchange(address: SocketAddr, request: &[u8]) -> Option<String> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(DEADLINE)).ok()?;
    stream.write_all(request).ok()?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).ok()?;
    Some(String::from_utf8_lossy(&answer).into_owned())
}

fn get(address: SocketAddr, path: &str) -> Option<String> {
    exchange(address, format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").as_bytes())
}

/// A call with more headers, which end with a line break each.
fn post(address: SocketAddr, headers: &[u8], body: &str) -> String {
    let mut request = format!(
        "POST /rpc HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {}\r\n",
        body.len()
    )
    .into_bytes();
    request.extend_from_slice(headers);
    request.extend_from_slice(b"\r\n");
    request.extend_from_slice(body.as_bytes());
    exchange(address, &request).unwrap()
}

#[test]
fn a_log_that_cannot_be_written_does_not_end_the_broker() {
    let files = tempfile::tempdir().unwrap();
    let full = File::options().write(true).open("/dev/full").unwrap();
    let mut broker = start(&files.path().join("data"), full.into());
    assert!(get(broker.address, "/readyz").unwrap().contains(" 200 "));
    assert!(broker.stop().success(), "it ends as if nothing was wrong");
}

#[test]
fn a_broker_whose_data_was_deleted_stops_instead_of_acknowledging_into_nothing() {
    for moved in [false, true] {
        let files = tempfile::tempdir().unwrap();
        let data = files.path().join("data");
        let mut broker = start(&data, Stdio::null());
        if moved {
            fs::rename(&data, files.path().join("elsewhere")).unwrap();
        } else {
            fs::remove_dir_all(&data).unwrap();
        }
        assert!(!ended(&mut broker.child).success(), "moved: {moved}");
    }
}
