//! How a store is made, and what can be wrong with the broker.

use std::time::Duration;

use task_broker_protocol::methods::info;

use super::store::RemoteTaskStore;
use crate::builder::{BuildError, ClientBuilder};
use crate::client::Client;
use crate::error::{Error, RpcError};
use crate::token::TokenSource;

/// How long connecting keeps trying. A wrong URL shall be told soon; a broker that is just being restarted is back by
/// then.
const CONNECT_BUDGET: Duration = Duration::from_secs(5);

/// The name that a broker gives in `store/info`.
const BROKER: &str = "task-broker";

/// Makes a [`RemoteTaskStore`]; see [`RemoteTaskStore::builder`].
///
/// ```no_run
/// use std::time::Duration;
/// use task_broker_client::{RemoteTaskStore, TokenSource};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let store = RemoteTaskStore::builder("https://tasks.internal.example")
///     .token(TokenSource::file("/run/secrets/broker-token"))
///     .retry_budget(Duration::from_secs(120))
///     .connect()
///     .await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use = "a builder does nothing until it connects"]
pub struct RemoteTaskStoreBuilder {
    client: ClientBuilder,
    max_held: usize,
}

impl RemoteTaskStoreBuilder {
    pub(crate) fn new(url: &str) -> Self {
        // Longer than the client's own: what this store gives up, a task pays for. A broker that is restarted or
        // moved is back well before.
        let client = ClientBuilder::new(url).retry_budget(Duration::from_mins(1));
        Self { client, max_held: 100_000 }
    }

    /// The bearer token: a text, a [file](TokenSource::file) that is read again when it changes, or a
    /// [provider](TokenSource::provider). Without one, or with an empty text, none is sent.
    pub fn token(mut self, token: impl Into<TokenSource>) -> Self {
        self.client = self.client.token(token);
        self
    }

    /// How long connecting may take, TLS not included; 5 s.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.client = self.client.connect_timeout(timeout);
        self
    }

    /// How long one attempt of a call may take; 10 s.
    pub fn request_timeout(mut self, timeout: Duration) -> Self {
        self.client = self.client.request_timeout(timeout);
        self
    }

    /// How long a call goes on trying while the broker cannot be reached; 60 s. The router does not repeat what its
    /// store gives up: a result that cannot be handed in within this time is lost.
    pub fn retry_budget(mut self, budget: Duration) -> Self {
        self.client = self.client.retry_budget(budget);
        self
    }

    /// For how many tasks this process may hold a cancellation token; 100 000. Tasks that have ended make room when
    /// it is reached; without any, creating or resuming one fails with `RetentionLimitExceeded`.
    pub fn max_held_tasks(mut self, tasks: usize) -> Self {
        self.max_held = tasks.max(1);
        self
    }

    /// Trusts the certificates in this PEM text and no others. Without it those of the system are trusted.
    #[cfg(feature = "tls")]
    pub fn tls_roots_pem(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.client = self.client.tls_roots_pem(pem);
        self
    }

    /// What the store calls itself in HTTP.
    pub fn user_agent(mut self, user_agent: impl Into<String>) -> Self {
        self.client = self.client.user_agent(user_agent);
        self
    }

    /// Changes what has no method here, such as the bounds of connections.
    pub fn client(mut self, change: impl FnOnce(ClientBuilder) -> ClientBuilder) -> Self {
        self.client = change(self.client);
        self
    }

    /// Makes the store without asking the broker. The first call connects.
    ///
    /// # Errors
    /// Only when the settings cannot be used.
    pub fn build(self) -> Result<RemoteTaskStore, ConnectError> {
        Ok(RemoteTaskStore::from_parts(self.client.build()?, self.max_held))
    }

    /// Makes the store and asks the broker what it is, trying for a few seconds, so that a mistake in the settings
    /// is told at start and in words.
    ///
    /// What cannot be seen yet is whether the token may name owners: a broker refuses that at the creation of a
    /// task, and the error then names the scope `tasks:delegate`.
    ///
    /// # Errors
    /// Says what is wrong; see [`ConnectError`].
    ///
    /// # Cancellation safety
    /// Safe: it changes nothing.
    pub async fn connect(self) -> Result<RemoteTaskStore, ConnectError> {
        let store = self.build()?;
        check(store.client()).await?;
        store.running();
        Ok(store)
    }
}

async fn check(client: &Client) -> Result<(), ConnectError> {
    let url = client.endpoint();
    let hurried = client.with_retry_budget(client.retry_budget().min(CONNECT_BUDGET));
    let description = match hurried.info().await {
        Ok(description) => description,
        Err(error) => return Err(wrong(error, url)),
    };
    if description.name != BROKER {
        return Err(ConnectError::NotABroker {
            url,
            detail: format!("it calls itself {:?}", description.name),
        });
    }
    if description.api != info::API {
        return Err(ConnectError::Api { url, offered: description.api, needed: info::API });
    }
    Ok(())
}

fn wrong(error: Error, url: String) -> ConnectError {
    match error.last() {
        Error::Transport(_) | Error::Timeout { .. } => ConnectError::Unreachable { url, source: error },
        Error::Http(http) if http.status == 401 => {
            ConnectError::Unauthorized { url, message: http.message.clone() }
        }
        Error::Http(http) if matches!(http.status, 408 | 429 | 500..) => {
            ConnectError::Unreachable { url, source: error }
        }
        Error::Http(_) | Error::Protocol(_) => ConnectError::NotABroker { url, detail: error.to_string() },
        Error::Rpc(RpcError::MethodNotFound | RpcError::Other { .. } | RpcError::InvalidParams { .. }) => {
            ConnectError::NotABroker { url, detail: error.to_string() }
        }
        _ => ConnectError::Refused { url, source: error },
    }
}

/// Why there is no connection to a broker.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The settings cannot be used; nothing was sent.
    #[error(transparent)]
    Settings(#[from] BuildError),
    /// Nobody answers there, or it answers that it cannot now.
    #[error("the task-broker at {url} cannot be reached: {source}")]
    Unreachable {
        /// Where.
        url: String,
        /// Why.
        #[source]
        source: Error,
    },
    /// Something answers there, but not as a broker does.
    #[error("what answers at {url} is no task-broker: {detail}")]
    NotABroker {
        /// Where.
        url: String,
        /// What it answered.
        detail: String,
    },
    /// The broker speaks another version of the wire.
    #[error(
        "the task-broker at {url} speaks version {offered} of the wire, and this client needs version {needed}"
    )]
    Api {
        /// Where.
        url: String,
        /// The broker's version.
        offered: u32,
        /// The version that this client needs.
        needed: u32,
    },
    /// The broker wants a token and got none, or one that it does not accept.
    #[error("the task-broker at {url} does not accept the token (401): {message}")]
    Unauthorized {
        /// Where.
        url: String,
        /// What it said.
        message: String,
    },
    /// The broker answered with an error, or there was no token to send.
    #[error("the task-broker at {url} could not be asked what it is: {source}")]
    Refused {
        /// Where.
        url: String,
        /// What happened.
        #[source]
        source: Error,
    },
}
