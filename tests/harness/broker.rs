//! One broker process: started, listened to, killed, restarted.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use serde_json::Value;
use tempfile::TempDir;

use super::client::Client;
use super::token;

/// Names another binary to test in place of the one that cargo built, a release build for instance.
const BINARY: &str = "BROKER_UNDER_TEST";
/// How long a broker may take until it listens.
const START_DEADLINE: Duration = Duration::from_secs(10);

/// Where a broker keeps its tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Store {
    /// An embedded store in a directory of the test's own; survives [`Broker::restart`].
    Sled,
    /// Nothing on disk.
    Memory,
}

/// How a broker treats tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Auth {
    /// No key; everyone is the anonymous caller.
    Off,
    /// The harness's key; no token means anonymous.
    Optional,
    /// The harness's key; no token means 401.
    Required,
}

/// What to start a broker with.
#[derive(Clone, Debug)]
pub(crate) struct BrokerOptions {
    store: Store,
    auth: Auth,
    /// Whether the harness's secret is a key of the broker.
    secret: bool,
    data: Option<PathBuf>,
    args: Vec<String>,
    env: Vec<(String, String)>,
}

impl BrokerOptions {
    /// A broker on `store` with authentication `optional`, which serves every persona.
    pub(crate) fn new(store: Store) -> Self {
        Self { store, auth: Auth::Optional, secret: true, data: None, args: Vec::new(), env: Vec::new() }
    }

    /// Another authentication mode.
    pub(crate) fn auth(mut self, auth: Auth) -> Self {
        self.auth = auth;
        self
    }

    /// Without the harness's secret: the test gives other keys.
    pub(crate) fn without_secret(mut self) -> Self {
        self.secret = false;
        self
    }

    /// Another data directory than one of the broker's own.
    pub(crate) fn data(mut self, data: impl Into<PathBuf>) -> Self {
        self.data = Some(data.into());
        self
    }

    /// One more flag with its value.
    pub(crate) fn flag(mut self, name: &str, value: impl ToString) -> Self {
        self.args.extend([name.to_owned(), value.to_string()]);
        self
    }

    /// One more environment variable.
    pub(crate) fn env(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Starts it.
    pub(crate) fn start(self) -> Broker {
        Broker::start(self)
    }
}

/// A broker process, killed when this is dropped.
pub(crate) struct Broker {
    options: BrokerOptions,
    files: TempDir,
    process: Option<Process>,
    address: SocketAddr,
    log: Arc<Log>,
}

/// The operating system's side of a running broker.
struct Process {
    child: Child,
    /// Ends the broker when the test binary ends without dropping it: a broker in a static never is dropped.
    guardian: Child,
}

impl Broker {
    /// Starts a broker and waits until it listens.
    pub(crate) fn start(options: BrokerOptions) -> Self {
        let files = tempfile::Builder::new().prefix("task-broker-test-").tempdir().unwrap();
        // With a newline at the end, which is not part of the secret.
        std::fs::write(files.path().join("secret"), format!("{}\n", token::SECRET)).unwrap();
        let (process, address, log) = spawn(&options, &files);
        Self { options, files, process: Some(process), address, log }
    }

    /// Starts the broker again on the same store, with the same flags, on a new port. It must have ended before.
    pub(crate) fn restart(&mut self) {
        assert!(self.process.is_none(), "the broker must be stopped before it is restarted");
        let (process, address, log) = spawn(&self.options, &self.files);
        self.process = Some(process);
        self.address = address;
        self.log = log;
    }

    /// The data directory of an embedded store.
    pub(crate) fn data(&self) -> PathBuf {
        data(&self.options, &self.files)
    }

    /// The socket address that the broker listens on.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The process id of the running broker.
    pub(crate) fn pid(&self) -> u32 {
        self.process.as_ref().expect("the broker runs").child.id()
    }

    /// SIGKILL, and the process is gone when this returns.
    pub(crate) fn kill9(&mut self) {
        if let Some(process) = self.process.take() {
            process.kill();
        }
    }

    /// SIGSTOP; when this returns no thread of the process runs any more.
    pub(crate) fn freeze(&self) {
        freeze(&self.process.as_ref().expect("the broker runs").child);
    }

    /// SIGTERM; see [`Broker::wait_exit`].
    pub(crate) fn sigterm(&self) {
        self.signal(Signal::TERM);
    }

    /// SIGINT; see [`Broker::wait_exit`].
    pub(crate) fn sigint(&self) {
        self.signal(Signal::INT);
    }

    fn signal(&self, signal: Signal) {
        let process = self.process.as_ref().expect("the broker runs");
        kill_process(Pid::from_child(&process.child), signal).unwrap();
    }

    /// Waits until the broker has ended by itself, at most for `deadline`.
    pub(crate) fn wait_exit(&mut self, deadline: Duration) -> ExitStatus {
        assert!(self.log.wait_closed(deadline), "still running after {deadline:?}; {}", self.log.tail());
        let mut process = self.process.take().expect("the broker runs");
        process.guardian.kill().unwrap();
        process.guardian.wait().unwrap();
        process.child.wait().unwrap()
    }

    /// All lines written to stderr so far by the current process.
    pub(crate) fn log_lines(&self) -> Vec<String> {
        self.log.state.lock().unwrap().lines.clone()
    }

    /// The first log record for which `pick` gives something, waiting for it at most `deadline`.
    pub(crate) fn wait_log<T>(&self, deadline: Duration, pick: impl Fn(&Value) -> Option<T>) -> Option<T> {
        self.log.wait_for(deadline, pick)
    }

    /// Fails when the broker has logged something at the level ERROR.
    pub(crate) fn assert_no_error_logged(&self) {
        for line in self.log_lines() {
            let level =
                serde_json::from_str::<Value>(&line).map_or(Value::Null, |record| record["level"].clone());
            assert_ne!(level, "ERROR", "an error was logged: {line}");
        }
    }

    /// A client without a token.
    pub(crate) fn anonymous(&self) -> Client {
        Client::new(self.address, None)
    }

    /// A client whose subject starts with `name` and that no other test has; tests on one broker stay apart by it.
    pub(crate) fn user(&self, name: &str) -> Client {
        let subject = fresh(name);
        let token = token::good(&subject);
        Client::new(self.address, Some(token)).with_subject(&subject)
    }

    /// Like [`Broker::user`], with the scope `tasks:delegate`: an MCP server's service account.
    pub(crate) fn service(&self, name: &str) -> Client {
        let subject = fresh(name);
        let token = token::scoped(&subject, token::DELEGATE);
        Client::new(self.address, Some(token)).with_subject(&subject)
    }

    /// A client with exactly this subject, for instance one that was there before a restart.
    pub(crate) fn subject(&self, subject: &str) -> Client {
        Client::new(self.address, Some(token::good(subject))).with_subject(subject)
    }

    /// A client with any text as its token.
    pub(crate) fn bearer(&self, token: &str) -> Client {
        Client::new(self.address, Some(token.to_owned()))
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        self.kill9();
    }
}

impl Process {
    /// Kills both before the broker is reaped, so that the guardian can never hit a process id that was reused.
    fn kill(mut self) {
        // Either may have ended by itself already; that is as good.
        drop(self.child.kill());
        drop(self.guardian.kill());
        drop(self.guardian.wait());
        drop(self.child.wait());
    }
}

/// A subject that no other test of this process has.
pub(crate) fn fresh(name: &str) -> String {
    static NEXT: AtomicUsize = AtomicUsize::new(1);
    format!("{name}-{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

fn data(options: &BrokerOptions, files: &TempDir) -> PathBuf {
    options.data.clone().unwrap_or_else(|| files.path().join("data"))
}

fn spawn(options: &BrokerOptions, files: &TempDir) -> (Process, SocketAddr, Arc<Log>) {
    let mut command =
        Command::new(std::env::var_os(BINARY).unwrap_or(env!("CARGO_BIN_EXE_task-broker").into()));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("TASK_BROKER_") || name == "RUST_LOG" {
            command.env_remove(name);
        }
    }
    command.args(["serve", "--listen", "127.0.0.1:0", "--log-format", "json"]);
    match options.store {
        Store::Sled => command.arg("--store").arg(format!("sled:{}", data(options, files).display())),
        Store::Memory => command.args(["--store", "memory:"]),
    };
    match options.auth {
        Auth::Off => command.args(["--auth", "off"]),
        Auth::Optional => command.args(["--auth", "optional"]),
        Auth::Required => command.args(["--auth", "required"]),
    };
    if options.auth != Auth::Off && options.secret {
        command.arg("--jwt-secret-file").arg(files.path().join("secret"));
    }
    if options.auth != Auth::Off {
        command.args(["--jwt-audience", token::AUDIENCE]);
    }
    command.args(&options.args).envs(options.env.iter().map(|(name, value)| (name, value)));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();

    let log = Arc::new(Log::default());
    let stderr = BufReader::new(child.stderr.take().unwrap());
    std::thread::spawn({
        let log = Arc::clone(&log);
        move || log.collect(stderr)
    });
    let guardian = guard(&child, files);
    let process = Process { child, guardian };

    let found = log.wait_for(START_DEADLINE, |record| {
        let fields = &record["fields"];
        (fields["message"] == "listening").then(|| fields["address"].as_str().unwrap().to_owned())
    });
    let Some(address) = found else {
        process.kill();
        panic!("the broker did not listen within {START_DEADLINE:?}; {}", log.tail());
    };
    (process, address.parse().unwrap(), log)
}

/// Reads its stdin until the test binary is gone, then ends the broker and removes its files.
fn guard(child: &Child, files: &TempDir) -> Child {
    Command::new("sh")
        .args(["-c", r#"read -r _; kill -9 "$0"; rm -rf -- "$1""#])
        .arg(child.id().to_string())
        .arg(files.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// What the broker wrote to stderr.
#[derive(Default)]
struct Log {
    state: Mutex<LogState>,
    changed: Condvar,
}

#[derive(Default)]
struct LogState {
    lines: Vec<String>,
    /// The write end is closed, which is to say that the process has ended.
    closed: bool,
}

impl Log {
    /// Runs on a thread of its own until the process ends, so that the pipe never fills up.
    fn collect(&self, stderr: impl BufRead) {
        for line in stderr.split(b'\n') {
            let Ok(line) = line else { break };
            self.state.lock().unwrap().lines.push(String::from_utf8_lossy(&line).into_owned());
            self.changed.notify_all();
        }
        self.state.lock().unwrap().closed = true;
        self.changed.notify_all();
    }

    fn wait_for<T>(&self, deadline: Duration, pick: impl Fn(&Value) -> Option<T>) -> Option<T> {
        let mut found = None;
        let mut read = 0;
        let state = self.state.lock().unwrap();
        let (_state, _timeout) = self
            .changed
            .wait_timeout_while(state, deadline, |state| {
                while found.is_none() && read < state.lines.len() {
                    found = serde_json::from_str(&state.lines[read]).ok().and_then(|record| pick(&record));
                    read += 1;
                }
                found.is_none() && !state.closed
            })
            .unwrap();
        found
    }

    fn wait_closed(&self, deadline: Duration) -> bool {
        let state = self.state.lock().unwrap();
        let (state, _timeout) =
            self.changed.wait_timeout_while(state, deadline, |state| !state.closed).unwrap();
        state.closed
    }

    /// The last lines, for the message of a failed assertion.
    fn tail(&self) -> String {
        let state = self.state.lock().unwrap();
        let mut text = String::from("its last log lines:");
        for line in state.lines.iter().rev().take(20).rev() {
            write!(text, "\n  {line}").unwrap();
        }
        text
    }
}

/// SIGSTOP; when this returns no thread of the process runs any more.
pub(crate) fn freeze(child: &Child) {
    let process = Pid::from_child(child);
    kill_process(process, Signal::STOP).unwrap();
    let stopped = waitpid(Some(process), WaitOptions::UNTRACED).unwrap();
    assert!(stopped.is_some_and(|(_, status)| status.stopped()), "it did not stop: {stopped:?}");
}
