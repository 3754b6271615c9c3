//! How answers are read, and how wrong ones are told.

use std::time::Duration;

use serde_json::json;
use task_broker_client::{Error, Kind, ProtocolError, RpcError};

use crate::script::{Script, Step, snapshot};

async fn error_of(step: Step) -> Error {
    let script = Script::new([step]).await;
    script.builder().retry_budget(Duration::ZERO).build().unwrap().get("8c1f").await.unwrap_err()
}

#[tokio::test]
async fn every_kind_of_error_is_a_case_of_its_own_with_what_belongs_to_it() {
    let after = Some(Duration::from_millis(7));
    let (message, told) = ("told so".to_owned(), "told so".to_owned());
    for (code, data, expected) in [
        (-32602, json!({"kind": "task_not_found"}), RpcError::TaskNotFound),
        (
            -32602,
            json!({"kind": "invalid_params", "member": "error.code"}),
            RpcError::InvalidParams { member: Some("error.code".to_owned()), message },
        ),
        (1001, json!({"kind": "invalid_transition"}), RpcError::InvalidTransition { message: told.clone() }),
        (
            1002,
            json!({"kind": "revision_conflict", "revision": 9}),
            RpcError::RevisionConflict { revision: Some(9) },
        ),
        (1003, json!({"kind": "idempotency_mismatch"}), RpcError::IdempotencyMismatch),
        (
            1004,
            json!({"kind": "limit_exceeded", "limit": "maxTasks", "maximum": 5}),
            RpcError::LimitExceeded { limit: "maxTasks".to_owned(), maximum: Some(5) },
        ),
        (
            1005,
            json!({"kind": "forbidden", "scope": "tasks:delegate"}),
            RpcError::Forbidden { scope: "tasks:delegate".to_owned() },
        ),
        (
            1006,
            json!({"kind": "unavailable", "retryAfterMs": 7}),
            RpcError::Unavailable { retry_after: after },
        ),
        (-32603, json!({"kind": "internal"}), RpcError::Internal),
        (-32601, json!({"kind": "method_not_found"}), RpcError::MethodNotFound),
        (
            7,
            json!({"kind": "of_a_later_version"}),
            RpcError::Other { code: 7, kind: "of_a_later_version".to_owned(), message: told.clone() },
        ),
        (7, json!("of something else"), RpcError::Other { code: 7, kind: String::new(), message: told }),
    ] {
        let error = error_of(Step::Error(code, data)).await;
        assert_eq!(error.rpc(), Some(&expected), "{error:?}");
    }
}

#[tokio::test]
async fn an_http_error_keeps_its_status_and_what_the_broker_said() {
    let body = json!({
        "jsonrpc": "2.0", "id": null,
        "error": {"code": 1413, "message": "too large", "data": {"kind": "body_too_large", "maximum": 8}},
    });
    let error = error_of(Step::Http("413 Content Too Large", vec![], body.to_string())).await;
    let Error::Http(error) = error else { panic!("{error:?}") };
    assert_eq!((error.status, error.kind, error.maximum), (413, Some(Kind::BodyTooLarge), Some(8)));
    assert_eq!(error.message, "too large");

    let page = "<html>".repeat(100_000);
    let error = error_of(Step::Http("502 Bad Gateway", vec![("retry-after", "3".to_owned())], page)).await;
    let Error::Http(error) = error else { panic!("{error:?}") };
    assert_eq!((error.status, error.kind), (502, None));
    assert_eq!(error.retry_after, Some(Duration::from_secs(3)));
}

#[tokio::test]
async fn what_no_broker_answers_is_a_protocol_error() {
    let other = json!({"jsonrpc": "2.0", "id": 999, "result": snapshot()}).to_string();
    let neither = json!({"jsonrpc": "2.0", "id": 1}).to_string();
    for body in ["<html></html>", "[]", &other, &neither] {
        let error = error_of(Step::Http("200 OK", vec![], body.to_owned())).await;
        assert!(matches!(error, Error::Protocol(_)), "{body}: {error:?}");
    }
    let error = error_of(Step::Result(json!({"task": 1}))).await;
    assert!(matches!(error, Error::Protocol(ProtocolError::Unreadable(_))), "{error:?}");
}
