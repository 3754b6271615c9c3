//! A server in a process of its own: the broker, or the baseline.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde::Deserialize;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, ChildStderr, Command};
use tokio::sync::oneshot;

use crate::clock;
use crate::connection::{Connection, get};

/// How long a server may take until it listens, and until it is ready. Far above the limit that the million tasks
/// are judged by, so that a slow start is a figure and not a missing one.
const START_DEADLINE: Duration = Duration::from_mins(3);

/// How long a server may take to end after SIGTERM.
const STOP_DEADLINE: Duration = Duration::from_mins(1);

/// Log lines kept for the message of a failure.
const KEPT_LINES: usize = 20;

/// A running server. It is killed when this is dropped.
#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
    /// Ends the server when this program ends without dropping it. Dropped with its pipe, which ends the guardian.
    _guardian: Child,
    pid: u32,
    started: Instant,
    address: SocketAddr,
    log: Arc<Mutex<VecDeque<String>>>,
}

/// The command that starts a broker on an embedded store, with nothing inherited from the environment.
pub(crate) fn broker(program: &Path, data: &Path, more: &[String]) -> Command {
    let mut store = std::ffi::OsString::from("sled:");
    store.push(data);
    let mut command = Command::new(program);
    command
        .args(["serve", "--listen", "127.0.0.1:0", "--log-format", "json", "--store"])
        .arg(store)
        .args(more);
    for (name, _) in std::env::vars_os() {
        if name == "RUST_LOG" || name.to_string_lossy().starts_with("TASK_BROKER_") {
            command.env_remove(name);
        }
    }
    command
}

/// The command that runs another subcommand of this program.
pub(crate) fn own<A: AsRef<OsStr>>(arguments: impl IntoIterator<Item = A>) -> Result<Command> {
    let program: PathBuf = std::env::current_exe().context("the path of this program")?;
    let mut command = Command::new(program);
    command.args(arguments);
    Ok(command)
}

impl Server {
    /// Starts a server and waits until it tells its address.
    pub(crate) async fn start(mut command: Command) -> Result<Self> {
        let program = command.as_std().get_program().to_string_lossy().into_owned();
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true);
        let started = clock::now();
        let mut child = command.spawn().with_context(|| format!("starting {program}"))?;
        let pid = child.id().context("the server ended at once")?;
        let guardian = guard(pid)?;
        let stderr = child.stderr.take().context("the server's stderr")?;
        let log = Arc::new(Mutex::new(VecDeque::new()));
        let (sender, receiver) = oneshot::channel();
        tokio::spawn(collect(stderr, Arc::clone(&log), sender));
        let address = match tokio::time::timeout(START_DEADLINE, receiver).await {
            Ok(Ok(address)) => address,
            Ok(Err(_closed)) => bail!("{program} ended before it listened; {}", tail(&log)),
            Err(_elapsed) => bail!("{program} did not listen within {START_DEADLINE:?}; {}", tail(&log)),
        };
        Ok(Self { child, _guardian: guardian, pid, started, address, log })
    }

    /// Where it listens.
    pub(crate) const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its process id.
    pub(crate) const fn pid(&self) -> u32 {
        self.pid
    }

    /// Its last log lines, for the message of a failure.
    pub(crate) fn tail(&self) -> String {
        tail(&self.log)
    }

    /// Waits until `/readyz` answers 200, and tells how long that was after the process was started.
    pub(crate) async fn ready(&self) -> Result<Duration> {
        let request = get("/readyz");
        while self.started.elapsed() < START_DEADLINE {
            if let Ok(mut connection) = Connection::open(self.address).await
                && let Ok((200, _)) = connection.exchange_any(&request).await
            {
                return Ok(self.started.elapsed());
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        bail!("not ready within {START_DEADLINE:?}; {}", self.tail())
    }

    /// SIGTERM; the server must end by itself and well. Tells how long that took.
    pub(crate) async fn stop(mut self) -> Result<Duration> {
        let asked = clock::now();
        let pid = Pid::from_raw(i32::try_from(self.pid)?).context("a process id of 0")?;
        kill_process(pid, Signal::TERM).context("SIGTERM")?;
        let Ok(status) = tokio::time::timeout(STOP_DEADLINE, self.child.wait()).await else {
            bail!("still running {STOP_DEADLINE:?} after SIGTERM; {}", self.tail());
        };
        let status = status?;
        ensure!(status.success(), "{status} after SIGTERM; {}", self.tail());
        Ok(asked.elapsed())
    }

    /// SIGKILL; the process is gone when this returns.
    pub(crate) async fn kill(mut self) -> Result<()> {
        self.child.kill().await.context("SIGKILL")
    }
}

/// Kills the server as soon as this program is gone, however that came about: it reads a pipe whose other end only
/// this program holds. In a process group of its own, so that a Ctrl-C does not end it first.
fn guard(pid: u32) -> Result<Child> {
    Command::new("sh")
        .args(["-c", r#"read -r _; kill -9 "$0" 2>/dev/null"#])
        .arg(pid.to_string())
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .context("starting the guardian")
}

/// One line of a server's log, as far as it matters here.
#[derive(Deserialize)]
struct LogLine {
    fields: LogFields,
}

#[derive(Deserialize)]
struct LogFields {
    message: String,
    address: Option<SocketAddr>,
}

/// Reads the log until the server ends, so that its pipe never fills up.
async fn collect(
    stderr: ChildStderr,
    log: Arc<Mutex<VecDeque<String>>>,
    address: oneshot::Sender<SocketAddr>,
) {
    let mut waiting = Some(address);
    let mut lines = BufReader::new(stderr).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        if waiting.is_some()
            && let Ok(LogLine { fields }) = serde_json::from_str(&line)
            && fields.message == "listening"
            && let Some(found) = fields.address
            && let Some(sender) = waiting.take()
        {
            // Nobody waits any more if the start has failed meanwhile.
            sender.send(found).ok();
        }
        let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
        if log.len() == KEPT_LINES {
            log.pop_front();
        }
        log.push_back(line);
    }
}

fn tail(log: &Mutex<VecDeque<String>>) -> String {
    let log = log.lock().unwrap_or_else(PoisonError::into_inner);
    let mut text = String::from("its last log lines:");
    for line in log.iter() {
        text.push_str("\n  ");
        text.push_str(line);
    }
    text
}
