//! The stream of events.

use serde_json::json;
use task_broker_client::methods::watch::{Event, EventKind, Message};
use task_broker_client::{Error, ProtocolError, RpcError};

use crate::script::{Script, Step};

fn stream(body: &str) -> Step {
    Step::Http("200 OK", vec![("content-type", "text/event-stream".to_owned())], body.to_owned())
}

fn synced(position: &str, reset: bool) -> String {
    let params = json!({"position": position, "reset": reset});
    let data = json!({"jsonrpc": "2.0", "method": "store/synced", "params": params});
    format!("id: {position}\ndata: {data}\n\n")
}

fn event(position: &str, kind: &str) -> String {
    let params = json!({
        "position": position, "taskId": "8c1f", "kind": kind, "status": "working", "revision": 2,
        "remainingMs": 1000, "cancelRequested": false,
    });
    let data = json!({"jsonrpc": "2.0", "method": "store/event", "params": params});
    format!("id: {position}\ndata: {data}\n\n")
}

#[tokio::test]
async fn messages_come_in_order_and_the_position_moves_with_them() {
    let unknown = json!({"jsonrpc": "2.0", "method": "store/later", "params": {}});
    let body =
        format!(":\n\n{}{}data: {unknown}\n\n{}", synced("1", true), event("2", "setTtl"), event("3", "new"));
    let script = Script::new([stream(&body)]).await;
    let mut watch = script.client().watch(Some("0".to_owned())).await.unwrap();
    assert_eq!(watch.position(), Some("0"));
    assert!(matches!(watch.next().await.unwrap().unwrap(), Message::Synced(synced) if synced.reset));
    assert_eq!(watch.position(), Some("1"));
    let second = watch.next().await.unwrap().unwrap();
    assert!(matches!(second, Message::Event(Event { kind: EventKind::SetTtl, .. })), "{second:?}");
    assert_eq!(watch.next().await.unwrap().unwrap(), Message::Unknown);
    let third = watch.next().await.unwrap().unwrap();
    assert!(matches!(third, Message::Event(Event { kind: EventKind::Other(_), .. })), "{third:?}");
    assert_eq!(watch.position(), Some("3"));
    assert!(watch.next().await.is_none());
    assert!(watch.next().await.is_none());
    let seen = script.seen();
    assert_eq!(seen[0].header("accept"), Some("text/event-stream"));
    assert_eq!(seen[0].body["params"], json!({"since": "0"}));
}

#[tokio::test]
async fn an_error_in_place_of_the_stream_is_that_error() {
    let script = Script::new([Step::Error(1006, json!({"kind": "unavailable", "retryAfterMs": 5}))]).await;
    let error = script.client().watch(None).await.unwrap_err();
    assert!(matches!(error.rpc(), Some(RpcError::Unavailable { .. })), "{error:?}");
    let script = Script::new([Step::Result(json!(null))]).await;
    let error = script.client().watch(None).await.unwrap_err();
    assert!(matches!(error, Error::Protocol(_)), "{error:?}");
}

#[tokio::test]
async fn a_message_that_is_too_large_or_cannot_be_read_ends_the_stream() {
    let script =
        Script::new([stream(&event("1", "create")), stream("data: {\n\n"), stream(&synced("1", true))]).await;
    let client = script.builder().max_message_bytes(64).build().unwrap();
    let mut watch = client.watch(None).await.unwrap();
    let error = watch.next().await.unwrap().unwrap_err();
    assert!(matches!(error, Error::Protocol(ProtocolError::TooLarge { maximum: 64 })), "{error:?}");
    assert!(watch.next().await.is_none());
    let mut watch = client.watch(None).await.unwrap();
    let error = watch.next().await.unwrap().unwrap_err();
    assert!(matches!(error, Error::Protocol(ProtocolError::Message(_))), "{error:?}");
    drop(script.client().watch(None).await.unwrap());
}
