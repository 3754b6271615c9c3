//! `kill -9` says nothing about syncing: what was written is in the kernel's hands by then. A trace of system calls
//! does: between the last write of a command's data and its answer there is a completed fdatasync of the same file.

use std::collections::HashMap;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use task_broker_protocol::methods::TABLE;

use crate::files::scratch;
use crate::harness::attempt::Start;
use crate::harness::{accept, question};

const CALLS: &str =
    "trace=pwrite64,pwritev,pwritev2,write,writev,sendto,sendmsg,fdatasync,fsync,sync_file_range";

/// A system call of the broker. Its place in time is the line on which it began and the one on which it returned.
#[derive(Debug)]
struct Call {
    name: String,
    /// What the file descriptor is open on.
    file: String,
    /// The data as bytes, as far as the trace shows them.
    data: Vec<u8>,
    begins: usize,
    returns: usize,
    succeeded: bool,
}

impl Call {
    fn is_write_to_store(&self) -> bool {
        is_journal(&self.file) && self.name.contains("write")
    }

    /// `sync_file_range` is none: it neither syncs the file's length nor empties the disk's cache.
    fn is_sync_of_store(&self) -> bool {
        is_journal(&self.file) && matches!(self.name.as_str(), "fdatasync" | "fsync") && self.succeeded
    }

    fn is_answer(&self) -> bool {
        let to_a_socket = self.file.starts_with("socket:") || self.file.starts_with("TCP");
        to_a_socket && self.data.starts_with(b"HTTP/1.1 200")
    }
}

/// What is acknowledged is in the journal first; sled's own file follows behind.
fn is_journal(file: &str) -> bool {
    file.ends_with("/journal-0") || file.ends_with("/journal-1")
}

/// Reads a trace of `strace -f -y`.
fn parse(trace: &str) -> Vec<Call> {
    let mut calls = Vec::new();
    let mut open: HashMap<&str, usize> = HashMap::new();
    for (line_number, line) in trace.lines().enumerate() {
        let Some((pid, rest)) = line.split_once(' ') else { continue };
        let rest = rest.trim_start();
        let succeeded =
            rest.rsplit_once(" = ").is_some_and(|(_, result)| !result.trim().starts_with(['-', '?']));
        if rest.starts_with("<... ") {
            if let Some(index) = open.remove(pid) {
                let call: &mut Call = &mut calls[index];
                (call.returns, call.succeeded) = (line_number, succeeded);
            }
            continue;
        }
        let Some((name, arguments)) = rest.split_once('(') else { continue };
        if !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
            continue;
        }
        let file = arguments.split_once('<').and_then(|(_, file)| file.split_once('>'));
        let (file, data) = file.unwrap_or_default();
        let unfinished = rest.ends_with("<unfinished ...>");
        let returns = if unfinished { usize::MAX } else { line_number };
        if unfinished {
            open.insert(pid, calls.len());
        }
        let (name, file, data) = (name.to_owned(), file.to_owned(), unquote(data));
        calls.push(Call {
            name,
            file,
            data,
            begins: line_number,
            returns,
            succeeded: succeeded && !unfinished,
        });
    }
    calls
}

/// The bytes of all strings in C's notation, one after the other.
fn unquote(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = text.bytes().peekable();
    let mut inside = false;
    while let Some(byte) = rest.next() {
        match byte {
            b'"' => inside = !inside,
            b'\\' if inside => match rest.next().unwrap_or(b'\\') {
                b'n' => bytes.push(b'\n'),
                b't' => bytes.push(b'\t'),
                b'r' => bytes.push(b'\r'),
                b'v' => bytes.push(0x0b),
                b'f' => bytes.push(0x0c),
                digit @ b'0'..=b'7' => {
                    let mut value = u32::from(digit - b'0');
                    for _ in 0..2 {
                        let Some(digit) = rest.next_if(|byte| matches!(byte, b'0'..=b'7')) else { break };
                        value = value * 8 + u32::from(digit - b'0');
                    }
                    bytes.push(u8::try_from(value).unwrap());
                }
                other => bytes.push(other),
            },
            byte if inside => bytes.push(byte),
            _ => {}
        }
    }
    bytes
}

/// Checks the answers, each about one of these tasks in this order. Every image in a frame begins with its task's id, so the
/// data of a command are the writes since the answer before in which that id is.
fn check(calls: &[Call], tasks: &[(String, [u8; 16])]) -> Result<(), String> {
    let answers: Vec<_> = calls.iter().filter(|call| call.is_answer()).collect();
    if answers.len() != tasks.len() {
        return Err(format!("{} answers to {} commands", answers.len(), tasks.len()));
    }
    let mut previous = 0;
    for (answer, (what, id)) in answers.iter().zip(tasks) {
        let mine = |call: &&Call| {
            call.is_write_to_store()
                && call.begins > previous
                && call.begins < answer.begins
                && call.data.windows(id.len()).any(|window| window == id)
        };
        let last = calls.iter().filter(mine).map(|call| call.returns).max();
        let last = last.ok_or_else(|| format!("nothing of {what} was written before its answer"))?;
        let synced = calls
            .iter()
            .any(|call| call.is_sync_of_store() && call.begins > last && call.returns < answer.begins);
        if !synced {
            return Err(format!("no sync between the write and the answer of {what}"));
        }
        previous = answer.begins;
    }
    Ok(())
}

/// Params with which each changing method changes a task that waits for `k1`.
fn params(method: &str, id: &str) -> Value {
    let mut params = match method {
        "store/create" => return json!({"toolName": "tool", "meta": {"a": 1}}),
        "store/requireInput" => json!({"inputRequests": {"k2": question("k2")}}),
        "store/applyInput" | "tasks/update" => json!({"inputResponses": {"k1": accept("k1")}}),
        "store/setStatus" => json!({"status": "working", "message": "at work"}),
        "store/setTtl" => json!({"ttlMs": 700_000}),
        "store/setMeta" => json!({"meta": {"n": 1}}),
        "store/complete" => json!({"result": {"n": 1}}),
        "store/fail" => json!({"error": {"code": 1, "message": "m"}}),
        "store/cancel" | "store/discard" | "tasks/cancel" => json!({}),
        _ => panic!("no params for {method}; add a row"),
    };
    params["taskId"] = json!(id);
    params
}

fn bytes_of(id: &str) -> [u8; 16] {
    u128::from_str_radix(id, 16).unwrap().to_be_bytes()
}

/// Whether there is a tracer. In CI there must be.
fn strace_is_here() -> bool {
    let here = Command::new("strace").arg("-V").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok();
    assert!(
        here || std::env::var_os("CI").is_none(),
        "strace is missing: nothing proves that answers are synced"
    );
    here
}

/// The broker under the tracer, which would live on when a failed test kills the tracer.
struct Traced(Pid);

impl Traced {
    /// The lock file names it.
    fn of(data: &Path) -> Self {
        let pid = std::fs::read_to_string(data.join("LOCK")).unwrap().trim().parse().unwrap();
        Self(Pid::from_raw(pid).unwrap())
    }
}

impl Drop for Traced {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // It may have ended by itself already; that is as good.
            kill_process(self.0, Signal::KILL).unwrap_or_default();
        }
    }
}

/// Sends one changing command after the other to a traced broker; gives the trace and what was sent.
fn trace(files: &Path) -> (Vec<Call>, Vec<(String, [u8; 16])>) {
    let (data, output) = (files.join("data"), files.join("trace"));
    let output_path = output.to_str().unwrap();
    let strace = ["strace", "-f", "-y", "-s", "65536", "-e", CALLS, "-o", output_path];
    let broker = Start::on(&data).under(strace).serve();
    let traced = Traced::of(&data);
    let mut link = broker.link();
    let mut sent = Vec::new();
    for method in TABLE.iter().filter(|entry| entry.changes).map(|entry| entry.name) {
        let created = link.ask("store/create", &json!({"toolName": "tool"})).result();
        let id = created["task"]["taskId"].as_str().unwrap();
        sent.push((format!("the create before {method}"), bytes_of(id)));
        let ask = json!({"taskId": id, "inputRequests": {"k1": question("k1")}});
        link.ask("store/requireInput", &ask).result();
        sent.push((format!("the question before {method}"), bytes_of(id)));
        let answer = link.ask(method, &params(method, id)).result();
        let about = if method == "store/create" { answer["task"]["taskId"].as_str().unwrap() } else { id };
        sent.push((method.to_owned(), bytes_of(about)));
    }
    broker.stop_pid(traced.0, Duration::from_secs(12));
    (parse(&String::from_utf8_lossy(&std::fs::read(output).unwrap())), sent)
}

#[test]
fn every_acknowledgement_comes_after_a_completed_sync_of_what_it_acknowledges() {
    if !strace_is_here() {
        eprintln!("not checked: there is no strace");
        return;
    }
    let files = scratch();
    let (calls, sent) = trace(files.path());
    assert!(sent.len() >= 36);
    check(&calls, &sent).unwrap();

    // The same trace without its syncs does not pass, so it is the syncs that were seen.
    let unsynced: Vec<_> = calls.into_iter().filter(|call| !call.is_sync_of_store()).collect();
    assert!(check(&unsynced, &sent).unwrap_err().contains("no sync"));
}

#[test]
fn a_sync_that_is_too_early_too_late_or_failed_is_no_sync() {
    let write = r#"7 pwrite64(11</x/journal-0>, "h\0\1\2\3\4\5\6\7\10\t\n\v\f\r\16\0171", 18, 0) = 18"#;
    let answer = r#"8 writev(14<socket:[1]>, [{iov_base="HTTP/1.1 200 OK\r\n", iov_len=17}], 1) = 17"#;
    let sync = "9 fdatasync(12</x/journal-0>) = 0";
    let begun = "9 fdatasync(12</x/journal-0> <unfinished ...>";
    let done = "9 <... fdatasync resumed>) = 0";
    let tasks = [("it".to_owned(), std::array::from_fn(|n| u8::try_from(n).unwrap()))];
    let passes = |lines: &[&str]| check(&parse(&format!("1 exited\n{}", lines.join("\n"))), &tasks);
    assert_eq!(passes(&[write, sync, answer]), Ok(()));
    assert_eq!(passes(&[write, begun, done, answer]), Ok(()));
    for lines in [
        &[write, answer][..],
        &[sync, write, answer],
        &[write, answer, sync],
        &[begun, write, done, answer],
        &[write, begun, answer, done],
        &[write, "9 fdatasync(12</x/journal-0>) = -1 EIO (Input/output error)", answer],
        &[write, "9 sync_file_range(12</x/journal-0>, 0, 18, SYNC_FILE_RANGE_WRITE) = 0", answer],
        &[write, "9 fdatasync(12</x/conf>) = 0", answer],
        &[sync, answer],
    ] {
        assert!(passes(lines).is_err(), "{lines:#?}");
    }
}
