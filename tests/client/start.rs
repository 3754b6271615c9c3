//! What is said when something is wrong at the start.

use std::time::Duration;

use task_broker_client::RemoteTaskStore;
use task_broker_client::tower_mcp::ConnectError;
use tower_mcp::async_task::{TaskStore as _, TaskStoreError};

use crate::harness::{Auth, token};
use crate::scene::{broker, url};

async fn connect(url: &str, token: &str) -> ConnectError {
    let builder = RemoteTaskStore::builder(url).token(token).retry_budget(Duration::from_millis(100));
    let error = builder.connect().await.unwrap_err();
    assert!(!format!("{error} {error:?}").contains("eyJ"), "a token in an error: {error:?}");
    error
}

#[tokio::test]
async fn a_broker_that_is_not_there_is_named() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let error = connect(&format!("http://{address}"), "").await;
    assert!(matches!(error, ConnectError::Unreachable { .. }), "{error:?}");
    assert!(error.to_string().contains(&address.to_string()), "{error}");
    assert!(error.to_string().contains("refused"), "{error}");
}

#[tokio::test]
async fn something_else_than_a_broker_is_told() {
    let broker = broker(Auth::Off);
    let error = connect(&format!("{}/elsewhere", url(&broker)), "").await;
    assert!(matches!(error, ConnectError::NotABroker { .. }), "{error:?}");
}

#[tokio::test]
async fn a_missing_or_bad_token_is_told() {
    let broker = broker(Auth::Required);
    for token in ["", "not-a-token", &token::expired("mcp-server")] {
        let error = connect(&url(&broker), token).await;
        assert!(matches!(error, ConnectError::Unauthorized { .. }), "{error:?}");
    }
}

#[tokio::test]
async fn a_url_that_is_none_is_told_before_anything_is_sent() {
    let error = connect("127.0.0.1:8420", "").await;
    assert!(matches!(error, ConnectError::Settings(_)), "{error:?}");
}

#[tokio::test]
async fn a_token_without_the_scope_fails_with_a_message_that_names_it() {
    let broker = broker(Auth::Required);
    let store =
        RemoteTaskStore::builder(&url(&broker)).token(token::good("mcp-server")).connect().await.unwrap();
    for owner in [Some("alice".to_owned()), None] {
        let error = store.create_task("tool", serde_json::json!({}), None, owner).await.unwrap_err();
        assert!(matches!(error, TaskStoreError::Backend(_)), "{error:?}");
        assert!(error.to_string().contains("tasks:delegate"), "{error}");
    }
    // The caller itself may be named without it.
    store.create_task("tool", serde_json::json!({}), None, Some("mcp-server".to_owned())).await.unwrap();
}
