//! The table of methods, and sample params for each of them: a method that has no row here fails a test, so that no
//! method can be added without the tests that go over all of them.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use task_broker_protocol::methods::TABLE;

use crate::harness::{accept, question};

/// Params with which `method` succeeds on a live task that waits for the answer to `k1`, and for which a live task
/// shows the change if there is one. Methods that take no task ignore `id`.
pub(crate) fn sample_params(method: &str, id: &str) -> Value {
    find_sample(method, id).unwrap_or_else(|| panic!("no sample params for {method}; add a row"))
}

fn find_sample(method: &str, id: &str) -> Option<Value> {
    Some(match method {
        "store/info" | "store/list" | "store/watch" => json!({}),
        "store/create" => json!({"toolName": "tool"}),
        "store/statuses" => json!({"taskIds": [id]}),
        "store/get" | "store/resume" | "store/discard" | "store/cancel" | "tasks/get" | "tasks/cancel" => {
            json!({"taskId": id})
        }
        "store/wait" => json!({"taskId": id, "timeoutMs": 0}),
        "store/requireInput" => json!({"taskId": id, "inputRequests": {"fresh": question("fresh")}}),
        "store/applyInput" | "tasks/update" => json!({"taskId": id, "inputResponses": {"k1": accept("k1")}}),
        "store/setStatus" => json!({"taskId": id, "status": "working", "message": "at work"}),
        "store/setTtl" => json!({"taskId": id, "ttlMs": 600_000}),
        "store/setMeta" => json!({"taskId": id, "meta": {"sample": true}}),
        "store/complete" => json!({"taskId": id, "result": {"content": []}}),
        "store/fail" => json!({"taskId": id, "error": {"code": 1, "message": "x"}}),
        _ => return None,
    })
}

#[test]
fn every_method_of_the_table_has_sample_params() {
    let missing: Vec<_> =
        TABLE.iter().map(|entry| entry.name).filter(|name| find_sample(name, "").is_none()).collect();
    assert!(missing.is_empty(), "no sample params for {missing:?}; add rows, the other tests go over them");
}

#[test]
fn the_table_has_exactly_the_methods_of_the_contract() {
    let contract: BTreeSet<_> = [
        "store/info",
        "store/create",
        "store/get",
        "store/wait",
        "store/list",
        "store/statuses",
        "store/resume",
        "store/requireInput",
        "store/applyInput",
        "store/setStatus",
        "store/setTtl",
        "store/setMeta",
        "store/discard",
        "store/complete",
        "store/fail",
        "store/cancel",
        "store/watch",
        "tasks/get",
        "tasks/update",
        "tasks/cancel",
    ]
    .into();
    assert_eq!(TABLE.iter().map(|entry| entry.name).collect::<BTreeSet<_>>(), contract);
    assert_eq!(TABLE.len(), contract.len(), "a method is in the table twice");
}

#[test]
fn the_table_says_which_methods_take_a_task() {
    for entry in TABLE {
        let params = find_sample(entry.name, "0123456789abcdef0123456789abcdef").unwrap_or_default();
        assert_eq!(params.get("taskId").is_some(), entry.takes_task, "{}", entry.name);
    }
}
