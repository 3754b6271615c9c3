//! A terminal task is immutable: a late write is answered with `applied: false`, never with an error, and changes
//! nothing.

use serde_json::{Value, json};

use crate::harness::{Broker, BrokerOptions, Client, Store, accept, question};

/// The three ways to end.
fn endings() -> [(&'static str, &'static str, Value); 3] {
    [
        (
            "completed",
            "store/complete",
            json!({"result": {"content": [{"type": "text", "text": "done-42"}]}}),
        ),
        ("failed", "store/fail", json!({"error": {"code": -32001, "message": "x"}})),
        ("cancelled", "store/cancel", json!({})),
    ]
}

/// Every command that is too late on a terminal task.
fn late_writes() -> [(&'static str, Value); 7] {
    [
        ("store/requireInput", json!({"inputRequests": {"late": question("late")}})),
        ("store/applyInput", json!({"inputResponses": {"k1": accept("k1")}})),
        ("store/setStatus", json!({"status": "working", "message": "late"})),
        ("store/setStatus", json!({"status": "input_required"})),
        ("store/complete", json!({"result": {"late": true}})),
        ("store/fail", json!({"error": {"code": 5, "message": "late"}})),
        ("store/cancel", json!({"reason": "late"})),
    ]
}

fn on(id: &str, more: &Value) -> Value {
    let mut params = json!({"taskId": id});
    params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    params
}

/// A task that waited for an answer when it was ended.
async fn ended(client: &Client, method: &str, params: &Value) -> String {
    let id = client.asking_task(&["k1"]).await;
    let outcome = client.call(method, on(&id, params)).await.result();
    assert_eq!(outcome["applied"], true);
    id
}

/// Everything of the snapshot that must never change any more.
async fn frozen(client: &Client, id: &str) -> Value {
    let snapshot = client.get(id).await;
    json!({
        "task": snapshot["task"],
        "result": snapshot["result"],
        "error": snapshot["error"],
        "inputRequests": snapshot["inputRequests"],
        "revision": snapshot["revision"],
    })
}

async fn a_late_write_is_not_applied_and_changes_nothing(broker: &Broker) {
    let alice = broker.user("alice");
    for (status, method, params) in endings() {
        let id = ended(&alice, method, &params).await;
        let before = frozen(&alice, &id).await;
        assert_eq!(before["inputRequests"], json!({}), "{status}");

        for (late, params) in late_writes() {
            let outcome = alice.call(late, on(&id, &params)).await.result();
            assert_eq!(outcome["applied"], false, "{late} on {status}: {outcome}");
            assert_eq!(outcome["status"], status, "{late}: {outcome}");
            assert_eq!(outcome["revision"], before["revision"], "{late} on {status}");
            assert_eq!(frozen(&alice, &id).await, before, "{late} on {status}");
        }
    }
}

async fn a_late_update_or_cancel_by_the_owner_is_acknowledged_and_changes_nothing(broker: &Broker) {
    let alice = broker.user("alice");
    for (status, method, params) in endings() {
        let id = ended(&alice, method, &params).await;
        let before = frozen(&alice, &id).await;

        for (late, params) in
            [("tasks/update", json!({"inputResponses": {"k1": accept("k1")}})), ("tasks/cancel", json!({}))]
        {
            let answer = alice.call(late, on(&id, &params)).await.result();
            assert_eq!(answer["resultType"], "complete", "{late} on {status}");
            assert_eq!(frozen(&alice, &id).await, before, "{late} on {status}");
        }
        assert_eq!(alice.call("tasks/get", on(&id, &json!({}))).await.result()["status"], status);
    }
}

async fn a_late_answer_is_ignored_key_by_key(broker: &Broker) {
    let alice = broker.user("alice");
    for (status, method, params) in endings() {
        let id = ended(&alice, method, &params).await;
        let outcome = alice.reply(&id, &["k1", "zz", "aa"]).await;
        assert_eq!(outcome["applied"], false, "{status}");
        assert_eq!(outcome["accepted"], json!([]), "{status}");
        assert_eq!(outcome["ignored"], json!(["aa", "k1", "zz"]), "{status}");
        assert_eq!(outcome["stillOutstanding"], json!([]), "{status}");
        let resume = alice.call("store/resume", on(&id, &json!({}))).await.result();
        assert_eq!(resume["inputResponses"], json!({}), "{status}");
    }
}

async fn answers_given_before_the_end_are_kept(broker: &Broker) {
    let alice = broker.user("alice");
    for (status, method, params) in endings() {
        let id = alice.asking_task(&["one", "two"]).await;
        alice.reply(&id, &["one"]).await;
        alice.call(method, on(&id, &params)).await.result();
        let resume = alice.call("store/resume", on(&id, &json!({}))).await.result();
        assert_eq!(resume["inputResponses"], json!({"one": accept("one")}), "{status}");
    }
}

async fn a_cancel_reaches_a_terminal_task_as_a_signal_without_a_new_revision(broker: &Broker) {
    let alice = broker.user("alice");
    for (method, params) in endings().into_iter().take(2).map(|(_, method, params)| (method, params)) {
        let id = ended(&alice, method, &params).await;
        let before = alice.get(&id).await;
        assert_eq!(before["cancelRequested"], false, "{method}");

        let answer = alice.call("store/cancel", on(&id, &json!({}))).await.result();

        assert_eq!(answer["applied"], false);
        assert_eq!(answer["cancelRequested"], true, "{method}");
        let after = alice.get(&id).await;
        assert_eq!(after["cancelRequested"], true, "{method}");
        assert_eq!(after["revision"], before["revision"], "{method}");
        assert_eq!(after["task"], before["task"], "{method}");
    }
}

async fn ttl_and_meta_still_apply_to_a_terminal_task(broker: &Broker) {
    let alice = broker.user("alice");
    for (status, method, params) in endings() {
        let id = ended(&alice, method, &params).await;
        let before = alice.get(&id).await;

        let ttl = alice.call("store/setTtl", on(&id, &json!({"ttlMs": 600_000}))).await.result();
        let meta = alice.call("store/setMeta", on(&id, &json!({"meta": {"seen": true}}))).await.result();

        assert_eq!((&ttl["applied"], &meta["applied"]), (&json!(true), &json!(true)), "{status}");
        assert_eq!((&ttl["status"], &meta["status"]), (&json!(status), &json!(status)));
        let after = alice.get(&id).await;
        assert_eq!(after["task"]["ttlMs"], 600_000, "{status}");
        assert_eq!(after["task"]["_meta"], json!({"seen": true}), "{status}");
        for member in ["status", "statusMessage", "createdAt"] {
            assert_eq!(after["task"][member], before["task"][member], "{status}: {member}");
        }
        assert_eq!((&after["result"], &after["error"]), (&before["result"], &before["error"]), "{status}");
    }
}

async fn of_many_endings_at_once_exactly_one_is_applied(broker: &Broker) {
    let alice = broker.user("alice");
    let id = alice.new_task().await;

    let calls: Vec<_> = (0..30)
        .map(|n| {
            let (_, method, params) = &endings()[n % 3];
            let (alice, method, params) = (alice.clone(), *method, on(&id, params));
            tokio::spawn(async move { alice.call(method, params).await.result() })
        })
        .collect();

    let mut winners = Vec::new();
    for call in calls {
        let outcome = call.await.unwrap();
        if outcome["applied"] == true {
            winners.push(outcome["status"].clone());
        }
    }
    assert_eq!(winners.len(), 1, "{winners:?}");
    let snapshot = alice.get(&id).await;
    assert_eq!(snapshot["task"]["status"], winners[0]);
    assert_eq!(snapshot["revision"], 2);
}

#[tokio::test]
async fn late_writes_are_no_errors_in_the_log() {
    let broker = BrokerOptions::new(Store::Memory).start();
    a_late_write_is_not_applied_and_changes_nothing(&broker).await;
    a_late_update_or_cancel_by_the_owner_is_acknowledged_and_changes_nothing(&broker).await;
    broker.assert_no_error_logged();
}

on_both_stores!(
    a_late_write_is_not_applied_and_changes_nothing,
    a_late_update_or_cancel_by_the_owner_is_acknowledged_and_changes_nothing,
    a_late_answer_is_ignored_key_by_key,
    answers_given_before_the_end_are_kept,
    a_cancel_reaches_a_terminal_task_as_a_signal_without_a_new_revision,
    ttl_and_meta_still_apply_to_a_terminal_task,
    of_many_endings_at_once_exactly_one_is_applied,
);
