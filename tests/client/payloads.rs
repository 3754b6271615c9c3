//! Payloads that are too large, and those that tower-mcp's types cannot hold.

use serde_json::json;
use task_broker_client::methods::{apply_input, complete, set_meta};
use task_broker_client::shapes::Guard;
use task_broker_client::{Json, RemoteTaskStore};
use tower_mcp::CallToolResult;
use tower_mcp::async_task::{TaskRetentionLimitKind, TaskStore as _, TaskStoreError};
use tower_mcp::error::JsonRpcError;
use tower_mcp::protocol::TaskStatus;

use crate::harness::{Auth, Broker, BrokerOptions, Store};
use crate::scene::{ask, broker, connected, task, url};

fn raw(text: &str) -> Json {
    Json::parse(&bytes::Bytes::copy_from_slice(text.as_bytes())).unwrap()
}

/// A broker with small limits, and a store that has not asked for them.
fn small() -> (Broker, RemoteTaskStore) {
    let options = BrokerOptions::new(Store::Sled).auth(Auth::Off);
    let broker = options.flag("--max-payload-bytes", 100_000).flag("--max-body-bytes", 300_000).start();
    let store = RemoteTaskStore::new(&url(&broker), "").unwrap();
    (broker, store)
}

fn is_payload_bytes<T: std::fmt::Debug>(result: Result<T, TaskStoreError>, expected: usize) {
    let error = result.unwrap_err();
    assert!(
        matches!(
            error,
            TaskStoreError::RetentionLimitExceeded { kind: TaskRetentionLimitKind::PayloadBytes, limit }
                if limit == expected
        ),
        "{error:?}"
    );
}

#[tokio::test]
async fn an_oversize_result_leaves_a_bounded_failed_record_and_an_error() {
    let (_broker, store) = small();
    // Above the payload's bound, the body's bound, and what a server may refuse to read to its end.
    for (bytes, limit) in [(150_000, 100_000), (400_000, 300_000), (30_000_000, 300_000)] {
        let (id, _token) = task(&store).await;
        is_payload_bytes(store.complete_task(&id, CallToolResult::text("x".repeat(bytes))).await, limit);
        let (task, result, error) = store.get_task_result(&id).await.unwrap().unwrap();
        assert_eq!(task.status, TaskStatus::Failed);
        assert!(result.is_none());
        let error = error.unwrap();
        assert!(error.code == -32603 && error.message.len() < 200, "{error:?}");
        // What has ended stays as it is, however large the next result is.
        assert!(!store.complete_task(&id, CallToolResult::text("x".repeat(bytes))).await.unwrap());
    }
}

#[tokio::test]
async fn an_oversize_error_does_the_same_and_other_oversize_payloads_change_nothing() {
    let (_broker, store) = small();
    let large = "x".repeat(150_000);
    let (id, _token) = task(&store).await;
    let mut error = JsonRpcError::internal_error("no");
    error.data = Some(json!(large));
    is_payload_bytes(store.fail_task(&id, error).await, 100_000);
    assert_eq!(store.get_task(&id).await.unwrap().unwrap().status, TaskStatus::Failed);

    is_payload_bytes(store.create_task("tool", json!(large), None, None).await.map(drop), 100_000);
    let (id, _token) = task(&store).await;
    let before = store.get_task(&id).await.unwrap().unwrap();
    is_payload_bytes(store.set_task_meta(&id, json!({"large": large})).await, 65_536);
    let after = store.get_task(&id).await.unwrap().unwrap();
    assert_eq!(serde_json::to_value(before).unwrap(), serde_json::to_value(after).unwrap());
}

#[tokio::test]
async fn too_many_tasks_are_a_limit_of_their_own() {
    let broker = BrokerOptions::new(Store::Sled).auth(Auth::Off).flag("--max-tasks", 2).start();
    let store = RemoteTaskStore::new(&url(&broker), "").unwrap();
    task(&store).await;
    task(&store).await;
    let error = store.create_task("tool", json!({}), None, None).await.unwrap_err();
    assert!(
        matches!(
            error,
            TaskStoreError::RetentionLimitExceeded { kind: TaskRetentionLimitKind::TaskCount, limit: 2 }
        ),
        "{error:?}"
    );
    assert_eq!(store.held_tasks(), 2);
}

#[tokio::test]
async fn a_process_holds_a_bounded_number_of_tasks() {
    let broker = broker(Auth::Off);
    let store = RemoteTaskStore::builder(&url(&broker)).max_held_tasks(2).connect().await.unwrap();
    let (first, _token) = task(&store).await;
    task(&store).await;
    let error = store.create_task("tool", json!({}), None, None).await.unwrap_err();
    assert!(matches!(error, TaskStoreError::RetentionLimitExceeded { limit: 2, .. }), "{error:?}");
    assert_eq!(store.list_tasks(None).await.unwrap().len(), 2, "nothing was created");
    assert!(store.complete_task(&first, CallToolResult::text("done")).await.unwrap());
    task(&store).await;
}

#[tokio::test]
async fn what_a_value_cannot_hold_spoils_only_its_own_reads() {
    let broker = broker(Auth::Required);
    let store = connected(&broker).await;
    let (odd, _token) = task(&store).await;
    let (good, _token) = task(&store).await;
    let guard = Guard::default;
    let params = set_meta::Params { task_id: odd.clone(), meta: raw(r#"{"a":"\ud800"}"#), guard: guard() };
    store.client().set_meta(params).await.unwrap();
    let is_decode = |error: TaskStoreError| assert!(matches!(error, TaskStoreError::Decode(_)), "{error:?}");
    is_decode(store.get_task(&odd).await.unwrap_err());
    assert_eq!(store.task_owner(&odd).await.unwrap(), Some(Some("alice".to_owned())));
    assert_eq!(store.list_tasks(None).await.unwrap().len(), 2);
    let params = set_meta::Params { task_id: odd.clone(), meta: raw("{}"), guard: guard() };
    store.client().set_meta(params).await.unwrap();

    // An answer of a foreign shape, as it can come by way of the broker itself.
    assert!(store.require_input(&odd, ask(&["a"]), None).await.unwrap());
    let answers = [("a".to_owned(), raw(r#""\udc00""#))].into();
    let params = apply_input::Params { task_id: odd.clone(), input_responses: answers, guard: guard() };
    store.client().apply_input(params).await.unwrap();
    is_decode(store.resume_context(&odd).await.unwrap_err());
    is_decode(store.input_responses(&odd).await.unwrap_err());

    let params = complete::Params { task_id: odd.clone(), result: raw(r#"{"content":7}"#), guard: guard() };
    store.client().complete(params).await.unwrap();
    is_decode(store.get_task_result(&odd).await.unwrap_err());
    is_decode(store.wait_for_completion(&odd).await.unwrap_err());
    assert_eq!(store.get_task(&odd).await.unwrap().unwrap().status, TaskStatus::Completed);
    assert_eq!(store.list_tasks(Some(TaskStatus::Completed)).await.unwrap().len(), 1);
    assert_eq!(store.get_task(&good).await.unwrap().unwrap().status, TaskStatus::Working);
}

#[tokio::test]
async fn odd_texts_and_numbers_come_back_as_they_went() {
    let broker = broker(Auth::Required);
    let store = connected(&broker).await;
    for owner in [None, Some(String::new()), Some("a/b\0\"\u{1f980}".to_owned())] {
        let arguments = json!({"null": null, "u64": u64::MAX, "text": "\0/\u{7f}"});
        let (id, _token) = store.create_task("a/b\0", arguments.clone(), None, owner.clone()).await.unwrap();
        assert_eq!(store.task_owner(&id).await.unwrap(), Some(owner));
        let resume = store.resume_context(&id).await.unwrap().unwrap();
        assert_eq!((resume.tool_name.as_str(), resume.arguments), ("a/b\0", arguments));
    }
    for id in ["", "\0", "../x", "a/b", "\u{1f980}"] {
        assert!(store.get_task(id).await.unwrap().is_none());
        assert!(!store.complete_task(id, CallToolResult::text("x")).await.unwrap());
    }
    // Four levels are the result's own.
    let deep = |levels| (0..levels).fold(json!(1), |inner, _| json!([inner]));
    let (id, _token) = task(&store).await;
    let error = store.complete_task(&id, CallToolResult::from_serialize(&deep(110)).unwrap()).await;
    assert!(matches!(error, Err(TaskStoreError::Encode(_))), "{error:?}");
    assert!(store.complete_task(&id, CallToolResult::from_serialize(&deep(90)).unwrap()).await.unwrap());
    let (_, result, _) = store.get_task_result(&id).await.unwrap().unwrap();
    assert_eq!(result.unwrap().structured_content, Some(deep(90)));
}
