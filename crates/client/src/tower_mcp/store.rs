//! The store: what all its methods share, and how it is made.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use ::tower_mcp::async_task::{Result, TaskStore};
use task_broker_protocol::shapes::{Outcome, Snapshot};
use tokio::sync::broadcast;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::builder::{ConnectError, RemoteTaskStoreBuilder};
use super::failure::from_client;
use super::follow;
use super::handoff::{self, Handoff, Read};
use super::knowledge::Knowledge;
use super::registry::{Registry, Seen};
use crate::client::Client;
use crate::error::Error;
use crate::token::TokenSource;

/// Events kept for a [bridge](RemoteTaskStore::announce_to) that is slower than they come. One that is slower still
/// skips some; clients poll anyway.
const MAX_EVENTS: usize = 1024;

/// A task store whose tasks live in a task-broker. See the [module's page](super).
///
/// Clones are the same store. While one of them lives, one connection is kept open for the events of the broker;
/// with the last one it is closed.
#[derive(Clone)]
pub struct RemoteTaskStore {
    shared: Arc<Shared>,
}

struct Shared {
    core: Arc<Core>,
    background: Mutex<Option<JoinHandle<()>>>,
}

/// What the background work needs; it must not keep the store itself alive.
pub(crate) struct Core {
    pub(crate) client: Client,
    pub(crate) registry: Registry,
    pub(crate) handoff: Handoff,
    pub(crate) events: broadcast::Sender<follow::Happened>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        let background = self.background.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(background) = background.take() {
            background.abort();
        }
    }
}

impl fmt::Debug for RemoteTaskStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteTaskStore").field("client", &self.core().client).finish_non_exhaustive()
    }
}

impl From<RemoteTaskStore> for Arc<dyn TaskStore> {
    /// For `McpRouter::task_store(store.into())`.
    fn from(store: RemoteTaskStore) -> Self {
        Arc::<RemoteTaskStore>::new(store)
    }
}

impl RemoteTaskStore {
    /// Begins a store on the broker at `url`; the way to set timeouts, a token file and more, and to find out at
    /// start whether the broker is there.
    pub fn builder(url: &str) -> RemoteTaskStoreBuilder {
        RemoteTaskStoreBuilder::new(url)
    }

    /// A store on the broker at `url` with this token, an empty one for none. Nothing is sent until the first call,
    /// so a broker that starts later than the MCP server is fine, and a wrong token is found out only then.
    ///
    /// ```
    /// use task_broker_client::RemoteTaskStore;
    /// use tower_mcp::McpRouter;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let token = "";
    /// let router = McpRouter::new()
    ///     .server_info("reports", "1.0.0")
    ///     .task_store(RemoteTaskStore::new("http://127.0.0.1:8420", token)?.into())
    ///     .with_tasks();
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// When the URL cannot be one of a broker.
    pub fn new(url: &str, token: impl Into<TokenSource>) -> std::result::Result<Self, ConnectError> {
        Self::builder(url).token(token).build()
    }

    pub(crate) fn from_parts(client: Client, max_held: usize) -> Self {
        let core = Core {
            client,
            registry: Registry::new(max_held),
            handoff: Handoff::default(),
            events: broadcast::Sender::new(MAX_EVENTS),
        };
        Self { shared: Arc::new(Shared { core: Arc::new(core), background: Mutex::default() }) }
    }

    /// The client that the store is built on, for what the trait has no method for.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.core().client
    }

    /// How many tasks this process holds a cancellation token for.
    #[must_use]
    pub fn held_tasks(&self) -> usize {
        self.core().registry.len()
    }

    /// The parts, for a call that begins now. The background work runs from the first call on.
    pub(crate) fn running(&self) -> &Core {
        handoff::begin_call();
        let mut background = self.shared.background.lock().unwrap_or_else(PoisonError::into_inner);
        // It ends only with the runtime that it was started on, and then another one goes on.
        if background.as_ref().is_none_or(JoinHandle::is_finished)
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            *background = Some(runtime.spawn(follow::run(Arc::clone(self.core_arc()))));
        }
        drop(background);
        self.core()
    }

    pub(crate) fn core(&self) -> &Core {
        &self.shared.core
    }

    fn core_arc(&self) -> &Arc<Core> {
        &self.shared.core
    }
}

impl Core {
    /// One fresh read of a task; `None` when there is none.
    pub(crate) async fn read(&self, id: &str) -> Result<Option<Read>> {
        let (knowledge, asked) = (Knowledge::now(id), Instant::now());
        let answer = self.client.get(id).await;
        let Some(snapshot) = self.found(id, answer)? else { return Ok(None) };
        self.saw(id, &snapshot);
        Ok(Some(Read { snapshot: Arc::new(snapshot), knowledge, asked }))
    }

    /// Tells "no such task" from errors, and takes note of it.
    pub(crate) fn found<T>(&self, id: &str, answer: std::result::Result<T, Error>) -> Result<Option<T>> {
        match answer {
            Ok(found) => Ok(Some(found)),
            Err(error) if error.is_task_not_found() => {
                self.gone(id);
                Ok(None)
            }
            Err(error) => Err(from_client(&error)),
        }
    }

    /// A task has been seen whole.
    pub(crate) fn saw(&self, id: &str, snapshot: &Snapshot) {
        self.registry.learn(id, seen(snapshot));
        self.handoff.observe(id, snapshot.revision);
    }

    /// A command was answered.
    pub(crate) fn wrote(&self, id: &str, outcome: &Outcome) {
        self.registry.status(id, outcome.revision, outcome.status);
        // Void anyway, and possibly large.
        self.handoff.forget(id);
    }

    /// There is no such task any more, or there never was.
    pub(crate) fn gone(&self, id: &str) {
        self.registry.gone(id);
        self.handoff.forget(id);
    }

    /// Learns the broker's limits before something large is sent: a server that refuses a body often closes the
    /// connection before its answer can be read.
    pub(crate) async fn know_limits(&self, bytes: usize) -> Result<()> {
        /// Any broker takes this much.
        const SMALL: usize = 64 * 1024;
        if bytes > SMALL && !self.client.knows_limits() {
            self.client.info().await.map_err(|error| from_client(&error))?;
        }
        Ok(())
    }
}

/// What a snapshot says for the registry.
pub(crate) fn seen(snapshot: &Snapshot) -> Seen {
    let age = snapshot.task.ttl_ms.saturating_sub(snapshot.remaining_ms);
    let (status, revision) = (Some(snapshot.task.status), snapshot.revision);
    let seen = Seen::now(status, revision, snapshot.remaining_ms, snapshot.cancel_requested);
    Seen { age: Some(std::time::Duration::from_millis(age)), ..seen }
}
