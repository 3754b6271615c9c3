//! A start of the broker that may well be refused, on a directory that the test has prepared.
//!
//! [`super::Broker`] takes a refused start for a failure of the test. Here it is an outcome, and what the process
//! said is kept. There is no authentication: everyone is the anonymous caller.

use std::ffi::OsString;
use std::fmt;
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tokio::time::Instant;

use super::broker::freeze;
use super::link::Link;

/// How long a start may take that must succeed.
const START_DEADLINE: Duration = Duration::from_secs(10);

/// What to start.
#[derive(Clone, Debug)]
pub(crate) struct Start {
    directory: PathBuf,
    args: Vec<OsString>,
    under: Vec<OsString>,
}

/// A process that was started and of which nothing else is known yet. Killed when dropped.
pub(crate) struct Attempt {
    child: Child,
    lines: Receiver<String>,
    /// What it wrote to stderr so far.
    said: Vec<String>,
}

/// What became of a start.
pub(crate) enum Outcome {
    Serving(Serving),
    Refused(Refused),
    /// Neither within the deadline; it was killed. What it said so far.
    Hung(Vec<String>),
}

/// A broker that listens. Killed when dropped.
pub(crate) struct Serving {
    pub(crate) address: SocketAddr,
    attempt: Attempt,
}

/// A broker that ended before it listened.
pub(crate) struct Refused {
    pub(crate) status: ExitStatus,
    /// All lines on stderr.
    pub(crate) said: Vec<String>,
}

impl Start {
    /// On the embedded store in this directory.
    pub(crate) fn on(directory: &Path) -> Self {
        Self { directory: directory.to_owned(), args: Vec::new(), under: Vec::new() }
    }

    /// One more argument.
    pub(crate) fn arg(mut self, arg: impl Into<OsString>) -> Self {
        self.args.push(arg.into());
        self
    }

    /// As the child of another program, a tracer for instance: its name and arguments.
    pub(crate) fn under(mut self, program: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        self.under = program.into_iter().map(Into::into).collect();
        self
    }

    /// Starts it and waits for nothing.
    pub(crate) fn spawn(&self) -> Attempt {
        let broker =
            std::env::var_os("BROKER_UNDER_TEST").unwrap_or(env!("CARGO_BIN_EXE_task-broker").into());
        let mut line = self.under.clone();
        line.push(broker);
        let mut command = Command::new(&line[0]);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("TASK_BROKER_") || name == "RUST_LOG" {
                command.env_remove(name);
            }
        }
        command.args(&line[1..]).args([
            "serve",
            "--listen",
            "127.0.0.1:0",
            "--log-format",
            "json",
            "--store",
        ]);
        command.arg(format!("sled:{}", self.directory.display())).args(&self.args);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{error}: {command:?}"));
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let (tell, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in stderr.split(b'\n') {
                let Ok(line) = line else { return };
                // Nobody listens any more, but the pipe must not fill up.
                drop(tell.send(String::from_utf8_lossy(&line).into_owned()));
            }
        });
        Attempt { child, lines, said: Vec::new() }
    }

    /// Starts it and waits for what becomes of it.
    pub(crate) fn outcome(&self, deadline: Duration) -> Outcome {
        self.spawn().outcome(deadline)
    }

    /// Starts it; it must listen.
    pub(crate) fn serve(&self) -> Serving {
        self.spawn().serve()
    }

    /// Starts it; it must be refused with one clear message that names the directory.
    pub(crate) fn refuse(&self, deadline: Duration) -> Refused {
        match self.outcome(deadline) {
            Outcome::Refused(refused) => {
                refused.assert_clear(&self.directory);
                refused
            }
            Outcome::Serving(_) => panic!("it must not start on {}", self.directory.display()),
            Outcome::Hung(said) => panic!("neither served nor refused within {deadline:?}: {said:#?}"),
        }
    }
}

impl Attempt {
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// SIGKILL, and no waiting until it is gone.
    pub(crate) fn send_kill9(&mut self) {
        self.child.kill().unwrap();
    }

    /// SIGTERM.
    pub(crate) fn send_sigterm(&self) {
        kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap();
    }

    /// Waits for what becomes of it.
    pub(crate) fn outcome(mut self, deadline: Duration) -> Outcome {
        let end = Instant::now() + deadline;
        loop {
            match self.lines.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(line) => {
                    let record: Value = serde_json::from_str(&line).unwrap_or_default();
                    self.said.push(line);
                    if record["fields"]["message"] == "listening" {
                        let address = record["fields"]["address"].as_str().unwrap().parse().unwrap();
                        return Outcome::Serving(Serving { address, attempt: self });
                    }
                }
                Err(RecvTimeoutError::Disconnected) => {
                    let status = self.child.wait().unwrap();
                    return Outcome::Refused(Refused { status, said: std::mem::take(&mut self.said) });
                }
                Err(RecvTimeoutError::Timeout) => return Outcome::Hung(std::mem::take(&mut self.said)),
            }
        }
    }

    /// Waits until it listens; it must.
    pub(crate) fn serve(self) -> Serving {
        match self.outcome(START_DEADLINE) {
            Outcome::Serving(serving) => serving,
            Outcome::Refused(refused) => panic!("the start was refused: {refused:?}"),
            Outcome::Hung(said) => panic!("not listening within {START_DEADLINE:?}: {said:#?}"),
        }
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        // It may have ended by itself already; that is as good.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Serving {
    /// A connection to it.
    pub(crate) fn link(&self) -> Link {
        Link::open(self.address, None)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.attempt.pid()
    }

    /// Waits until it says a line with this in it, from now on, and gives the line.
    pub(crate) fn next_line(&mut self, part: &str, deadline: Duration) -> String {
        let end = Instant::now() + deadline;
        loop {
            let line = self.attempt.lines.recv_timeout(end.saturating_duration_since(Instant::now()));
            let line = line.unwrap_or_else(|_none| panic!("no {part:?} in {:#?}", self.attempt.said));
            self.attempt.said.push(line.clone());
            if line.contains(part) {
                return line;
            }
        }
    }

    /// SIGSTOP; when this returns no thread of the process runs any more.
    pub(crate) fn freeze(&self) {
        freeze(&self.attempt.child);
    }

    /// SIGKILL, and the process is gone when this returns.
    pub(crate) fn kill9(self) {
        drop(self);
    }

    /// SIGKILL, and no waiting until it is gone.
    pub(crate) fn send_kill9(&mut self) {
        self.attempt.send_kill9();
    }

    /// SIGTERM, and waits for the end; gives how it ended and all that it said.
    pub(crate) fn stop(self, deadline: Duration) -> Refused {
        let pid = Pid::from_child(&self.attempt.child);
        self.stop_pid(pid, deadline)
    }

    /// Like [`Serving::stop`] where the broker is not the process that was started, but a child of it.
    pub(crate) fn stop_pid(mut self, pid: Pid, deadline: Duration) -> Refused {
        kill_process(pid, Signal::TERM).unwrap();
        self.ended(deadline).unwrap_or_else(|said| panic!("still running after {deadline:?}: {said:#?}"))
    }

    /// Waits until it has ended by itself. An error is what it said when it has not.
    pub(crate) fn ended(&mut self, deadline: Duration) -> Result<Refused, Vec<String>> {
        let end = Instant::now() + deadline;
        let attempt = &mut self.attempt;
        loop {
            match attempt.lines.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(line) => attempt.said.push(line),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => return Err(std::mem::take(&mut attempt.said)),
            }
        }
        let status = attempt.child.wait().unwrap();
        Ok(Refused { status, said: std::mem::take(&mut attempt.said) })
    }
}

impl Refused {
    /// Everything on stderr in one text.
    pub(crate) fn text(&self) -> String {
        self.said.join("\n")
    }

    /// Checks that it ended by itself, with a failure, and with one message for an operator.
    pub(crate) fn assert_clear(&self, directory: &Path) {
        assert!(self.status.code().is_some_and(|code| code != 0), "{self:?}");
        self.assert_no_panic_text();
        // The library that lets syncs fail says so on the same stream, whenever a thread of sled meets it.
        let mut said = self.said.iter().rev().filter(|line| !line.starts_with("shim: "));
        let last = said.next().unwrap_or_else(|| panic!("not a word: {self:?}"));
        let names_it = last.contains(&directory.display().to_string());
        assert!(
            last.starts_with("task-broker: ") && names_it,
            "no message that names {}: {self:?}",
            directory.display()
        );
        let messages = self.said.iter().filter(|line| line.starts_with("task-broker: ")).count();
        assert_eq!(messages, 1, "{self:?}");
    }

    /// Checks that no panic message and no backtrace reached stderr.
    pub(crate) fn assert_no_panic_text(&self) {
        assert_no_panic_text(&self.said);
    }
}

/// Checks that no panic message and no backtrace is among these lines.
pub(crate) fn assert_no_panic_text(said: &[String]) {
    for line in said {
        for raw in [
            "panicked at",
            "RUST_BACKTRACE",
            "stack backtrace",
            "called `Option::unwrap",
            "called `Result::",
            "/registry/src/",
        ] {
            assert!(!line.contains(raw), "a panic's own text on stderr: {said:#?}");
        }
    }
}

impl fmt::Debug for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:\n  {}", self.status, self.said.join("\n  "))
    }
}
