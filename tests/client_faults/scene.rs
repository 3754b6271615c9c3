//! A broker process, and stores that reach it through proxies.

use std::sync::Arc;
use std::time::Duration;

use task_broker_client::RemoteTaskStore;
use task_broker_client::tower_mcp::RemoteTaskStoreBuilder;
use tokio::task::JoinHandle;
use tower_mcp::async_task::TaskStore;

use crate::harness::{Auth, Broker, BrokerOptions, Client, Store, token};
use crate::proxy::Proxy;

/// Far below the default, so that a line which falls silent does not hold up a test.
const REQUEST_TIMEOUT: Duration = Duration::from_millis(700);

/// One service account on a broker: all instances of one MCP server.
#[derive(Clone)]
pub(crate) struct Account {
    pub(crate) subject: String,
    pub(crate) token: String,
}

/// One instance: a store and the line that it has to the broker.
#[derive(Clone)]
pub(crate) struct Instance {
    pub(crate) store: Arc<dyn TaskStore>,
    pub(crate) proxy: Arc<Proxy>,
}

/// A broker as in production: with keys, and with tasks that survive it.
pub(crate) fn broker() -> Broker {
    BrokerOptions::new(Store::Sled).auth(Auth::Required).start()
}

/// What a spawned task ended with; if it failed, this fails in the same words.
pub(crate) async fn finished<T>(spawned: JoinHandle<T>) -> T {
    spawned.await.unwrap_or_else(|failed| std::panic::resume_unwind(failed.into_panic()))
}

impl Account {
    /// One that no other test of this process has.
    pub(crate) fn new(broker: &Broker, name: &str) -> Self {
        let client = broker.service(name);
        Self { subject: client.subject().to_owned(), token: client.token().to_owned() }
    }

    /// An instance with a proxy of its own.
    pub(crate) async fn instance(&self, broker: &Broker) -> Instance {
        self.instance_with(broker, |builder| builder).await
    }

    /// The same with other settings.
    pub(crate) async fn instance_with(
        &self,
        broker: &Broker,
        change: impl FnOnce(RemoteTaskStoreBuilder) -> RemoteTaskStoreBuilder,
    ) -> Instance {
        let proxy = Arc::new(Proxy::to(broker.address()));
        let builder = RemoteTaskStore::builder(&proxy.url()).token(self.token.as_str());
        let store = change(builder.request_timeout(REQUEST_TIMEOUT)).connect().await;
        Instance { store: Arc::new(store.unwrap()), proxy }
    }

    /// The same account without a store in between, to look at what the broker really has.
    pub(crate) fn client(&self, broker: &Broker) -> Client {
        Client::new(broker.address(), Some(token::scoped(&self.subject, token::DELEGATE)))
            .with_subject(&self.subject)
    }
}
