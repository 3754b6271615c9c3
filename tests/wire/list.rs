//! `store/list`: rows, filters, and params that are refused. Pages are in `list_walks`.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::harness::{Broker, Client, id_of};

async fn ids(client: &Client, params: Value) -> BTreeSet<String> {
    let page = client.call("store/list", params).await.result();
    page["tasks"].as_array().unwrap().iter().map(id_of).collect()
}

fn set(ids: &[&String]) -> BTreeSet<String> {
    ids.iter().map(|id| (*id).clone()).collect()
}

async fn a_row_is_a_snapshot_without_payloads(broker: &Broker) {
    let alice = broker.user("alice");
    let id =
        id_of(&alice.create(json!({"toolName": "report", "meta": {"n": 1}, "arguments": {"q": 1}})).await);
    alice.call("store/complete", json!({"taskId": id, "result": {"big": "x"}})).await.result();
    let snapshot = alice.get(&id).await;

    let page = alice.call("store/list", json!({})).await.result();

    let row = &page["tasks"][0];
    for member in ["task", "owner", "toolName", "revision", "cancelRequested"] {
        assert_eq!(row[member], snapshot[member], "{member}");
    }
    assert!(row["remainingMs"].as_u64().unwrap() <= 300_000, "{row}");
    for payload in ["arguments", "result", "error", "inputRequests", "inputResponses"] {
        assert!(row.get(payload).is_none(), "{payload} in {row}");
    }
    assert!(page.get("nextCursor").is_none(), "{page}");
}

async fn an_empty_list_is_an_empty_page(broker: &Broker) {
    let page = broker.user("alice").call("store/list", json!({})).await.result();
    assert_eq!(page["tasks"], json!([]));
    assert!(page.get("nextCursor").is_none(), "{page}");
}

async fn the_status_filter_takes_several(broker: &Broker) {
    let alice = broker.user("alice");
    let working = alice.new_task().await;
    let asking = alice.asking_task(&["k"]).await;
    let ended = async |method: &str, more: Value| {
        let id = alice.new_task().await;
        let mut params = json!({"taskId": id});
        params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        alice.call(method, params).await.result();
        id
    };
    let completed = ended("store/complete", json!({"result": {}})).await;
    let failed = ended("store/fail", json!({"error": {"code": 1, "message": "m"}})).await;
    let cancelled = ended("store/cancel", json!({})).await;

    for (status, expected) in [
        (json!(["working"]), set(&[&working])),
        (json!(["input_required"]), set(&[&asking])),
        (json!(["completed"]), set(&[&completed])),
        (json!(["failed"]), set(&[&failed])),
        (json!(["cancelled"]), set(&[&cancelled])),
        (json!(["working", "input_required"]), set(&[&working, &asking])),
        (json!(["failed", "completed", "failed"]), set(&[&completed, &failed])),
    ] {
        assert_eq!(ids(&alice, json!({"status": status})).await, expected, "{status}");
    }
    assert_eq!(ids(&alice, json!({})).await, set(&[&working, &asking, &completed, &failed, &cancelled]));
}

async fn the_filter_follows_a_task_that_changes(broker: &Broker) {
    let alice = broker.user("alice");
    let id = alice.asking_task(&["k"]).await;
    assert_eq!(ids(&alice, json!({"status": ["working"]})).await, set(&[]));
    alice.reply(&id, &["k"]).await;
    assert_eq!(ids(&alice, json!({"status": ["working"]})).await, set(&[&id]));
    assert_eq!(ids(&alice, json!({"status": ["input_required"]})).await, set(&[]));
}

async fn filters_are_all_met_at_once(broker: &Broker) {
    let (service, alice) = (broker.service("service"), broker.user("alice"));
    let for_alice = async || id_of(&service.create(json!({"owner": alice.subject()})).await);
    let (working, done, own) = (for_alice().await, for_alice().await, service.new_task().await);
    service.call("store/complete", json!({"taskId": done, "result": {}})).await.result();

    let owned = json!({"owner": alice.subject(), "status": ["working"]});
    assert_eq!(ids(&service, owned).await, set(&[&working]));
    let both = json!({"owner": alice.subject(), "status": ["working", "completed"]});
    assert_eq!(ids(&service, both).await, set(&[&working, &done]));
    assert_eq!(ids(&service, json!({"owner": service.subject()})).await, set(&[&own]));
    assert_eq!(ids(&alice, json!({"role": "owner", "status": ["completed"]})).await, set(&[&done]));
}

async fn params_of_the_wrong_kind_are_refused_by_name(broker: &Broker) {
    let alice = broker.user("alice");
    for (member, params) in [
        ("limit", r#"{"limit":0}"#),
        ("limit", r#"{"limit":-1}"#),
        ("limit", r#"{"limit":1.0}"#),
        ("limit", r#"{"limit":1e2}"#),
        ("limit", r#"{"limit":"5"}"#),
        ("limit", r#"{"limit":18446744073709551616}"#),
        ("role", r#"{"role":"admin"}"#),
        ("role", r#"{"role":""}"#),
        ("role", r#"{"role":5}"#),
        ("status", r#"{"status":"working"}"#),
        ("status", r#"{"status":5}"#),
        ("status", r#"{"status":{}}"#),
        ("owner", r#"{"owner":5}"#),
        ("owner", r#"{"owner":["a"]}"#),
        ("cursor", r#"{"cursor":5}"#),
        ("cursor", r#"{"cursor":{}}"#),
    ] {
        alice.call_text("store/list", params).await.error().assert_invalid(member);
    }
    for status in [r#"["bogus"]"#, r#"["working","Working"]"#, "[5]", "[null]", r#"[["working"]]"#] {
        let error = alice.call_text("store/list", &format!(r#"{{"status":{status}}}"#)).await.error();
        assert_eq!(error.kind, "invalid_params", "{status}");
        assert!(error.data["member"].as_str().unwrap().starts_with("status"), "{error:?}");
    }
}

async fn a_cursor_that_was_never_given_is_refused(broker: &Broker) {
    let alice = broker.user("alice");
    alice.new_task().await;
    for cursor in ["", "x", "0", "-1", "AAAA", "!!!", "null", "{}", "\u{0}", "é", "../../etc/passwd"] {
        let error = alice.call("store/list", json!({"cursor": cursor})).await.error();
        error.assert_invalid("cursor");
    }
    let long = "A".repeat(100_000);
    alice.call("store/list", json!({"cursor": long})).await.error().assert_invalid("cursor");
}

async fn a_foreign_cursor_shows_nothing_foreign(broker: &Broker) {
    let (alice, bob) = (broker.user("alice"), broker.user("bob"));
    for _ in 0..4 {
        alice.new_task().await;
    }
    let bobs = bob.new_task().await;
    let page = alice.call("store/list", json!({"limit": 1})).await.result();

    let answer = bob.call("store/list", json!({"cursor": page["nextCursor"], "limit": 10})).await;

    if answer.is_error() {
        answer.error().assert_invalid("cursor");
    } else {
        let listed: Vec<_> = answer.result()["tasks"].as_array().unwrap().iter().map(id_of).collect();
        assert!(listed.iter().all(|id| *id == bobs), "{listed:?}");
    }
}

on_both_stores!(
    a_row_is_a_snapshot_without_payloads,
    an_empty_list_is_an_empty_page,
    the_status_filter_takes_several,
    the_filter_follows_a_task_that_changes,
    filters_are_all_met_at_once,
    params_of_the_wrong_kind_are_refused_by_name,
    a_cursor_that_was_never_given_is_refused,
    a_foreign_cursor_shows_nothing_foreign,
);
