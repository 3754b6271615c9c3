//! What an operator does to a broker without meaning to: a log that cannot be written, data that is deleted.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]
#![allow(clippy::disallowed_methods, reason = "deadlines of a test are not the product's time")]

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
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

fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

fn start(data: &Path, log: Stdio) -> Broker {
    let address = free_address();
    let child = Command::new(env!("CARGO_BIN_EXE_task-broker"))
        .args(["serve", "--listen", &address.to_string(), "--store"])
        .arg(format!("sled:{}", data.display()))
        .env("RUST_LOG", "trace")
        .stderr(log)
        .spawn()
        .unwrap();
    let broker = Broker { child, address };
    wait_for("the broker serves", || get(address, "/livez").is_some_and(|answer| answer.contains(" 200 ")));
    broker
}

/// Looks again and again until something holds; there is no signal that could be waited for.
fn wait_for(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < DEADLINE, "{what}: not within {DEADLINE:?}");
        std::thread::yield_now();
    }
}

fn get(address: SocketAddr, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(address).ok()?;
    write!(stream, "GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer)
}

#[test]
fn a_log_that_cannot_be_written_does_not_end_the_broker() {
    let files = tempfile::tempdir().unwrap();
    let full = File::options().write(true).open("/dev/full").unwrap();
    let mut broker = start(&files.path().join("data"), full.into());
    assert!(get(broker.address, "/readyz").unwrap().contains(" 200 "));
    let pid = Pid::from_child(&broker.child);
    kill_process(pid, Signal::TERM).unwrap();
    assert!(broker.child.wait().unwrap().success(), "it ends as if nothing was wrong");
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
        let mut status = None;
        wait_for("the broker ends", || {
            status = broker.child.try_wait().unwrap();
            status.is_some()
        });
        assert!(!status.unwrap().success(), "moved: {moved}");
    }
}
