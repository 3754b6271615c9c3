//! The error table: kinds, codes, HTTP statuses, and what each error says.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use serde_json::json;
use task_broker_protocol::{ErrorObject, Kind};

#[test]
fn every_kind_has_a_word_of_its_own_and_a_code_outside_of_json_rpc_or_the_standards() {
    for (index, kind) in Kind::ALL.into_iter().enumerate() {
        assert_eq!(Kind::from_word(kind.as_str()), Some(kind));
        assert!(Kind::ALL.iter().skip(index + 1).all(|other| other.as_str() != kind.as_str()));
        assert!(
            [-32700, -32600, -32601, -32602, -32603].contains(&kind.code())
                || (1001..=1599).contains(&kind.code())
        );
        if kind.http_status() > 400 {
            assert_eq!(i32::from(kind.http_status()), kind.code() - 1000);
        }
    }
    assert_eq!(Kind::from_word("x"), None);
}

#[test]
fn every_error_says_its_kind_and_only_what_belongs_to_it() {
    let cases = [
        (ErrorObject::task_not_found(), -32602, json!({"kind": "task_not_found"})),
        (
            ErrorObject::invalid_params("taskId", "is missing"),
            -32602,
            json!({"kind": "invalid_params", "member": "taskId"}),
        ),
        (ErrorObject::invalid_transition("m"), 1001, json!({"kind": "invalid_transition"})),
        (ErrorObject::revision_conflict(4), 1002, json!({"kind": "revision_conflict", "revision": 4})),
        (ErrorObject::idempotency_mismatch(), 1003, json!({"kind": "idempotency_mismatch"})),
        (
            ErrorObject::limit_exceeded("payload", 9),
            1004,
            json!({"kind": "limit_exceeded", "limit": "payload", "maximum": 9}),
        ),
        (
            ErrorObject::forbidden("tasks:delegate"),
            1005,
            json!({"kind": "forbidden", "scope": "tasks:delegate"}),
        ),
        (ErrorObject::unavailable(50), 1006, json!({"kind": "unavailable", "retryAfterMs": 50})),
        (ErrorObject::internal(), -32603, json!({"kind": "internal"})),
        (ErrorObject::method_not_found(), -32601, json!({"kind": "method_not_found"})),
        (ErrorObject::invalid_request("r"), -32600, json!({"kind": "invalid_request"})),
        (ErrorObject::parse_error(), -32700, json!({"kind": "parse_error"})),
        (
            ErrorObject::body_too_large(8),
            1413,
            json!({"kind": "body_too_large", "limit": "maxBodyBytes", "maximum": 8}),
        ),
    ];
    for (error, code, data) in cases {
        let written = serde_json::to_value(&error).unwrap();
        assert_eq!(written["code"], code);
        assert_eq!(written["data"], data);
        assert_eq!(serde_json::from_value::<ErrorObject>(written).unwrap(), error);
    }
}
