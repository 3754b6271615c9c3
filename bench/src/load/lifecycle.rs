//! The operation of `lifecycle`: create a task, complete it, get it.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, Result};

use super::Client;
use crate::clock;
use crate::connection::{Connection, post};
use crate::payload;
use crate::rpc::{self, Created, Flat, Outcome, PLACEHOLDER_ID};
use crate::samples::Samples;

/// Where the requests go: the same three to the broker and to the baseline, apart from the path.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Paths {
    /// Of the two commands.
    pub(crate) command: &'static str,
    /// Of the read.
    pub(crate) get: &'static str,
}

/// What a lifecycle carries.
#[derive(Clone, Debug)]
pub(crate) struct Load {
    /// The arguments of the task.
    pub(crate) arguments: String,
    /// Its result.
    pub(crate) result: String,
    /// Its TTL.
    pub(crate) ttl_ms: u64,
}

impl Load {
    /// Arguments and a result of `bytes` bytes each.
    pub(crate) fn new(bytes: usize, ttl_ms: u64) -> Self {
        Self { arguments: payload::object(bytes, 1), result: payload::object(bytes, 2), ttl_ms }
    }

    /// The text of the create call.
    pub(crate) fn create(&self) -> String {
        let Self { arguments, ttl_ms, .. } = self;
        let params = format!(r#"{{"toolName":"render","ttlMs":{ttl_ms},"arguments":{arguments}}}"#);
        rpc::call("store/create", &params)
    }

    /// The text of the complete call for a task.
    pub(crate) fn complete(&self, task_id: &str) -> String {
        let result = &self.result;
        rpc::call("store/complete", &format!(r#"{{"taskId":"{task_id}","result":{result}}}"#))
    }

    /// The text of the get call for a task.
    pub(crate) fn get(task_id: &str) -> String {
        rpc::call("tasks/get", &rpc::by_id(task_id))
    }
}

/// How long each of the three steps took.
#[derive(Debug, Default)]
pub(crate) struct Steps {
    pub(crate) create: Samples,
    pub(crate) complete: Samples,
    pub(crate) get: Samples,
}

impl Steps {
    fn absorb(&mut self, other: Self) {
        self.create.absorb(other.create);
        self.complete.absorb(other.complete);
        self.get.absorb(other.get);
    }
}

/// Lives one task after the other.
#[derive(Debug)]
pub(crate) struct LifecycleClient {
    connection: Connection,
    result: String,
    create: Vec<u8>,
    complete: Template,
    get: Template,
    steps: Steps,
}

impl LifecycleClient {
    /// `count` clients of one server.
    pub(crate) async fn connect(
        address: SocketAddr,
        paths: Paths,
        load: &Load,
        count: usize,
    ) -> Result<Vec<Self>> {
        let mut clients = Vec::with_capacity(count);
        for _ in 0..count {
            clients.push(Self {
                connection: Connection::open(address).await?,
                result: load.result.clone(),
                create: post(paths.command, &load.create()),
                complete: Template::new(post(paths.command, &load.complete(PLACEHOLDER_ID)))?,
                get: Template::new(post(paths.get, &Load::get(PLACEHOLDER_ID)))?,
                steps: Steps::default(),
            });
        }
        Ok(clients)
    }

    /// Takes the times of the steps of all these clients away.
    pub(crate) fn take_steps(clients: &mut [Self]) -> Steps {
        let mut all = Steps::default();
        for client in clients {
            all.absorb(std::mem::take(&mut client.steps));
        }
        all
    }
}

impl Client for LifecycleClient {
    async fn run(&mut self) -> Result<()> {
        let mut watch = Stopwatch::start();

        let body = self.connection.exchange(&self.create).await.context("create")?;
        self.steps.create.record(watch.lap());
        let created: Created<'_> = rpc::result(body).context("create")?;
        let task_id = created.task_id()?;
        self.complete.set(task_id)?;
        self.get.set(task_id)?;

        watch.lap();
        let body = self.connection.exchange(&self.complete.request).await.context("complete")?;
        self.steps.complete.record(watch.lap());
        let outcome: Outcome<'_> = rpc::result(body).context("complete")?;
        outcome.must_have_left("completed").context("complete")?;

        watch.lap();
        let body = self.connection.exchange(&self.get.request).await.context("get")?;
        self.steps.get.record(watch.lap());
        let task: Flat<'_> = rpc::result(body).context("get")?;
        task.must_be_completed_with(&self.result).context("get")
    }
}

/// Times from one lap to the next.
struct Stopwatch(std::time::Instant);

impl Stopwatch {
    fn start() -> Self {
        Self(clock::now())
    }

    fn lap(&mut self) -> Duration {
        let now = clock::now();
        now.duration_since(std::mem::replace(&mut self.0, now))
    }
}

/// A ready-made request with room for a task id.
#[derive(Debug)]
struct Template {
    request: Vec<u8>,
    at: usize,
}

impl Template {
    fn new(request: Vec<u8>) -> Result<Self> {
        let at = request
            .windows(PLACEHOLDER_ID.len())
            .position(|window| window == PLACEHOLDER_ID.as_bytes())
            .context("a request without room for a task id")?;
        Ok(Self { request, at })
    }

    fn set(&mut self, task_id: &str) -> Result<()> {
        let room = self.request.get_mut(self.at..self.at + PLACEHOLDER_ID.len()).context("no room")?;
        room.copy_from_slice(task_id.as_bytes());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_template_sends_the_id_that_was_set_last() {
        let mut template = Template::new(post("/rpc", &Load::get(PLACEHOLDER_ID))).unwrap();
        let id = "0123456789abcdef0123456789abcdef";
        template.set(id).unwrap();
        assert_eq!(template.request, post("/rpc", &Load::get(id)));
        Template::new(b"nothing".to_vec()).unwrap_err();
    }
}
