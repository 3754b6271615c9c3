//! The commands beside `serve`, as an operator runs them: check, compact, export, import.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that panics has failed, as it should; clippy.toml covers only functions marked as tests"
)]
#![allow(
    clippy::needless_pass_by_value,
    reason = "params are written as json!(..) right where they are passed"
)]

#[allow(dead_code, reason = "each test binary uses its own part")]
#[path = "../crash/files.rs"]
mod files;
#[path = "../harness/mod.rs"]
mod harness;

mod check;
mod compact;
mod online;
mod transfer;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::attempt::{Start, assert_no_panic_text};
use crate::harness::link::Link;

const DEADLINE: Duration = Duration::from_secs(12);

/// What must never be in what a command says.
const SECRET: &str = "payload-that-nobody-may-see";

/// How a command ended.
#[derive(Debug)]
struct Ended {
    code: i32,
    stdout: String,
    stderr: String,
}

impl Ended {
    fn assert_code(self, code: i32) -> Self {
        assert_eq!(self.code, code, "{self:?}");
        assert_no_panic_text(std::slice::from_ref(&self.stderr));
        assert!(!self.stderr.contains(SECRET), "{self:?}");
        self
    }
}

fn command(args: &[OsString]) -> Command {
    let broker = std::env::var_os("BROKER_UNDER_TEST").unwrap_or(env!("CARGO_BIN_EXE_task-broker").into());
    let mut command = Command::new(broker);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("TASK_BROKER_") || name == "RUST_LOG" {
            command.env_remove(name);
        }
    }
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn run(args: &[OsString]) -> Ended {
    ended(command(args).spawn().unwrap())
}

fn ended(child: std::process::Child) -> Ended {
    let output = child.wait_with_output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Ended { code: output.status.code().unwrap(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

/// The arguments of a command on a store.
fn on(data: &Path, command: &str, more: &[&str]) -> Vec<OsString> {
    let mut args: Vec<OsString> = vec![command.into(), "--store".into()];
    args.push(format!("sled:{}", data.display()).into());
    args.extend(more.iter().map(OsString::from));
    args
}

fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// What a client sees of a task, as bytes, without what moves with the clock.
type Contents = BTreeMap<String, String>;

fn without_time(text: &str) -> String {
    let (before, rest) = text.split_once(r#""remainingMs":"#).unwrap();
    let (_, after) = rest.split_once(',').unwrap();
    format!("{before}{after}")
}

/// Everything that a client without a token sees of all its tasks.
fn contents(link: &mut Link) -> Contents {
    let mut contents = Contents::new();
    let listed = link.ask("store/list", &json!({"limit": 1000})).result();
    for row in listed["tasks"].as_array().unwrap() {
        let id = row["task"]["taskId"].as_str().unwrap();
        let text = |link: &mut Link, method| {
            without_time(link.call(method, &json!({"taskId": id}).to_string()).unwrap().text())
        };
        contents.insert(id.to_owned(), text(link, "store/get") + &text(link, "store/resume"));
    }
    contents
}

/// Tasks in every status and of several sizes.
fn fill(link: &mut Link, count: usize) {
    for n in 0..count {
        let size = [10, 3_000, 60_000][n % 3];
        let fill: String = SECRET.chars().cycle().take(size).collect();
        let params = json!({"toolName": format!("tool-{n}"), "arguments": {"n": n, "fill": fill},
            "ttlMs": 3_600_000, "idempotencyKey": format!("create {n}"), "meta": {"n": n}});
        let created = link.ask("store/create", &params).result();
        let id = created["task"]["taskId"].as_str().unwrap().to_owned();
        let key = format!("change {n}");
        let (method, more) = match n % 6 {
            0 => ("store/complete", json!({"result": {"n": n, "fill": fill}, "idempotencyKey": key})),
            1 => ("store/fail", json!({"error": {"code": n, "message": SECRET, "data": fill}})),
            2 => ("store/cancel", json!({"reason": "enough", "idempotencyKey": key})),
            3 => (
                "store/requireInput",
                json!({"inputRequests": {"a": {"method": fill}, "b": {"method": "q"}}}),
            ),
            4 => ("store/setTtl", json!({"ttlMs": 7_200_000, "idempotencyKey": key})),
            _ => ("store/setMeta", json!({"meta": {"again": n}})),
        };
        let mut params = more;
        params["taskId"] = json!(id);
        link.ask(method, &params).result();
        if n % 6 == 3 {
            let answers = json!({"taskId": id, "inputResponses": {"a": {"text": fill}}});
            link.ask("store/applyInput", &answers).result();
        }
    }
}

/// A store with tasks in it that was stopped, and what is in it.
fn stopped(data: &Path, count: usize, clean: bool) -> Contents {
    let broker = Start::on(data).serve();
    let mut link = broker.link();
    fill(&mut link, count);
    let contents = contents(&mut link);
    assert_eq!(contents.len(), count);
    if clean {
        assert!(broker.stop(DEADLINE).status.success());
    } else {
        broker.kill9();
    }
    contents
}

/// What a broker on this directory shows; it is stopped cleanly.
fn served(data: &Path) -> Contents {
    let broker = Start::on(data).serve();
    let contents = contents(&mut broker.link());
    assert!(broker.stop(DEADLINE).status.success());
    contents
}

/// Changes one byte.
fn flip(file: &Path, at: usize) {
    let mut bytes = fs::read(file).unwrap();
    bytes[at] ^= 0x10;
    fs::write(file, bytes).unwrap();
}

fn find(bytes: &[u8], text: &str) -> Vec<usize> {
    let first = text.as_bytes();
    (0..bytes.len().saturating_sub(first.len())).filter(|at| bytes[*at..].starts_with(first)).collect()
}

/// The member of the only line that begins like this.
fn said<'a>(text: &'a str, name: &str) -> &'a str {
    text.lines()
        .find_map(|line| line.strip_prefix(name))
        .unwrap_or_else(|| panic!("no {name}: {text}"))
        .trim()
}

fn pipe(args: &[OsString], input: &[u8]) -> Ended {
    let mut child = command(args).stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    // It may end before it has read everything.
    let feeding = std::thread::spawn(move || drop(stdin.write_all(&input)));
    let ended = ended(child);
    feeding.join().unwrap();
    ended
}

/// The lines of an export as JSON.
fn json_lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}
