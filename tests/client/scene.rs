//! A broker, stores on it, and small values of tower-mcp.

use std::time::Duration;

use task_broker_client::RemoteTaskStore;
use tower_mcp::async_task::{CancellationToken, TaskStore as _};
use tower_mcp::protocol::{
    ElicitAction, ElicitResult, InputRequest, InputRequests, InputResponse, InputResponses, ListRootsParams,
};

use crate::harness::{Auth, Broker, BrokerOptions, Store, token};

/// How soon a signal from another store has to arrive; the promise is one second.
pub(crate) const SOON: Duration = Duration::from_secs(1);

/// How soon everything else has to happen.
pub(crate) const LATE: Duration = Duration::from_secs(10);

pub(crate) fn broker(auth: Auth) -> Broker {
    BrokerOptions::new(Store::Sled).auth(auth).start()
}

pub(crate) fn url(broker: &Broker) -> String {
    format!("http://{}", broker.address())
}

/// A service account that may name owners.
pub(crate) fn service_token() -> String {
    token::scoped("mcp-server", token::DELEGATE)
}

/// A store that is connected on its own.
pub(crate) async fn connected(broker: &Broker) -> RemoteTaskStore {
    RemoteTaskStore::builder(&url(broker)).token(service_token()).connect().await.unwrap()
}

/// A task that lives longer than any test.
pub(crate) async fn task(store: &RemoteTaskStore) -> (String, CancellationToken) {
    store
        .create_task("tool", serde_json::json!({"n": 1}), Some(600_000), Some("alice".to_owned()))
        .await
        .unwrap()
}

pub(crate) fn ask(keys: &[&str]) -> InputRequests {
    let ask = |key: &&str| ((*key).to_owned(), InputRequest::ListRoots(ListRootsParams { meta: None }));
    keys.iter().map(ask).collect()
}

pub(crate) fn answers(keys: &[&str]) -> InputResponses {
    let accept =
        || InputResponse::Elicit(ElicitResult { action: ElicitAction::Accept, content: None, meta: None });
    keys.iter().map(|key| ((*key).to_owned(), accept())).collect()
}

/// Fails when `future` takes longer than `limit`.
pub(crate) async fn within<T>(limit: Duration, what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(limit, future).await.unwrap_or_else(|_| panic!("not within {limit:?}: {what}"))
}

/// Waits until the stream of events of a store is open: the broker counts what it has seen of its own writes.
pub(crate) async fn listening(store: &RemoteTaskStore) {
    // A cancel by way of the base client reaches the token only as an event.
    let (id, token) = task(store).await;
    let params = task_broker_client::methods::cancel::Params {
        task_id: id,
        reason: None,
        guard: task_broker_client::shapes::Guard::default(),
    };
    store.client().cancel(params).await.unwrap();
    within(LATE, "the stream of events is open", token.cancelled()).await;
}
