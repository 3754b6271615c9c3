//! Revision, `createdAt` and `lastUpdatedAt`: what moves them, and what must not.

use serde_json::{Value, json};
use task_broker_protocol::methods::TABLE;

use crate::harness::{Broker, Client, accept, id_of, question};
use crate::methods::sample_params;

/// Revision, `createdAt` and `lastUpdatedAt` of a task.
async fn marks(client: &Client, id: &str) -> (u64, String, String) {
    let snapshot = client.get(id).await;
    let time = |member: &str| snapshot["task"][member].as_str().unwrap().to_owned();
    (snapshot["revision"].as_u64().unwrap(), time("createdAt"), time("lastUpdatedAt"))
}

/// Makes a command on the task and gives its outcome, which was applied.
async fn command(client: &Client, id: &str, method: &str, more: Value) -> Value {
    let mut params = json!({"taskId": id});
    params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let outcome = client.call(method, params).await.result();
    assert_eq!(outcome["applied"], true, "{method}: {outcome}");
    outcome
}

async fn every_transition_adds_one_to_the_revision_and_keeps_created_at(broker: &Broker) {
    let alice = broker.user("alice");
    let id = alice.new_task().await;
    let (mut revision, created, mut updated) = marks(&alice, &id).await;
    assert_eq!(revision, 1);

    for (method, params) in [
        ("store/setTtl", json!({"ttlMs": 400_000})),
        ("store/setMeta", json!({"meta": {"n": 1}})),
        ("store/requireInput", json!({"inputRequests": {"a": question("a"), "b": question("b")}})),
        ("store/setStatus", json!({"status": "working"})),
        ("store/setStatus", json!({"status": "input_required"})),
        ("store/setStatus", json!({"status": "input_required", "message": "new"})),
        ("store/applyInput", json!({"inputResponses": {"a": accept("a")}})),
        ("store/applyInput", json!({"inputResponses": {"b": accept("b"), "c": accept("c")}})),
        ("store/complete", json!({"result": {}})),
        ("store/setMeta", json!({"meta": {"n": 2}})),
        ("store/setTtl", json!({"ttlMs": 500_000})),
    ] {
        let outcome = command(&alice, &id, method, params).await;
        let (now_revision, now_created, now_updated) = marks(&alice, &id).await;
        assert_eq!(now_revision, revision + 1, "{method}");
        assert_eq!(outcome["revision"], now_revision, "{method}");
        assert_eq!(now_created, created, "{method}");
        assert!(now_updated >= updated, "{method}: {now_updated} after {updated}");
        (revision, updated) = (now_revision, now_updated);
    }
}

async fn a_transition_moves_last_updated_at_to_the_time_it_happens(broker: &Broker) {
    let alice = broker.user("alice");
    let id = alice.new_task().await;
    let (_, created, _) = marks(&alice, &id).await;
    // Let the clock tick: a wait that nobody ends.
    alice.call("store/wait", json!({"taskId": id, "timeoutMs": 30})).await.result();

    command(&alice, &id, "store/setTtl", json!({"ttlMs": 400_000})).await;

    let (_, _, updated) = marks(&alice, &id).await;
    assert!(updated > created, "{updated} after {created}");
}

async fn reads_move_nothing(broker: &Broker) {
    let alice = broker.user("alice");
    let id = alice.asking_task(&["k"]).await;
    let before = marks(&alice, &id).await;

    for (method, params) in [
        ("store/get", json!({"taskId": id})),
        ("store/wait", json!({"taskId": id, "timeoutMs": 20})),
        ("store/list", json!({})),
        ("store/statuses", json!({"taskIds": [id]})),
        ("store/resume", json!({"taskId": id})),
        ("tasks/get", json!({"taskId": id})),
        ("store/info", json!({})),
    ] {
        alice.call(method, params).await.result();
        assert_eq!(marks(&alice, &id).await, before, "{method}");
    }
}

async fn a_command_that_changes_nothing_is_applied_and_moves_nothing(broker: &Broker) {
    let alice = broker.user("alice");
    let id = id_of(&alice.create(json!({"meta": {"n": 1}, "ttlMs": 60_000})).await);
    command(&alice, &id, "store/requireInput", json!({"inputRequests": {"k": question("k")}})).await;
    let before = marks(&alice, &id).await;
    alice.call("store/wait", json!({"taskId": id, "timeoutMs": 20})).await.result();

    for (method, params) in [
        ("store/setTtl", json!({"ttlMs": 60_000})),
        ("store/setMeta", json!({"meta": {"n": 1}})),
        ("store/setStatus", json!({"status": "input_required"})),
        ("store/setStatus", json!({"status": "input_required", "message": "Awaiting client input"})),
        ("store/applyInput", json!({"inputResponses": {"unknown": accept("?")}})),
    ] {
        let outcome = command(&alice, &id, method, params).await;
        assert_eq!(outcome["revision"], before.0, "{method}");
        assert_eq!(marks(&alice, &id).await, before, "{method}");
    }
}

async fn a_refused_command_moves_nothing(broker: &Broker) {
    let alice = broker.user("alice");
    let id = alice.new_task().await;
    let before = marks(&alice, &id).await;

    for (method, params, kind) in [
        ("store/setStatus", json!({"taskId": id, "status": "input_required"}), "invalid_transition"),
        ("store/setStatus", json!({"taskId": id, "status": "completed"}), "invalid_transition"),
        ("store/setStatus", json!({"taskId": id, "status": "failed"}), "invalid_transition"),
        ("store/setStatus", json!({"taskId": id, "status": "cancelled"}), "invalid_transition"),
        ("store/complete", json!({"taskId": id, "result": []}), "invalid_params"),
        ("store/complete", json!({"taskId": id}), "invalid_params"),
        ("store/requireInput", json!({"taskId": id, "inputRequests": {}}), "invalid_params"),
        ("store/setMeta", json!({"taskId": id, "meta": 5}), "invalid_params"),
        ("store/setTtl", json!({"taskId": id, "ttlMs": -1}), "invalid_params"),
        ("store/setTtl", json!({"taskId": id, "ttlMs": 5, "expectedRevision": 9}), "revision_conflict"),
    ] {
        assert_eq!(alice.call(method, params).await.error().kind, kind, "{method}");
        assert_eq!(marks(&alice, &id).await, before, "{method}");
    }
}

async fn an_expected_revision_lets_only_the_next_write_through(broker: &Broker) {
    let alice = broker.user("alice");
    let id = alice.new_task().await;
    let set = async |n: u64, expected: u64| {
        let params = json!({"taskId": id, "meta": {"n": n}, "expectedRevision": expected});
        alice.call("store/setMeta", params).await
    };

    assert_eq!(set(1, 1).await.result()["revision"], 2);
    for stale in [0, 1, 3] {
        let error = set(99, stale).await.error();
        assert_eq!(error.kind, "revision_conflict");
        assert_eq!(error.data["revision"], 2);
    }
    assert_eq!(set(2, 2).await.result()["revision"], 3);
    assert_eq!(alice.get(&id).await["task"]["_meta"], json!({"n": 2}));
}

async fn every_changing_method_takes_an_expected_revision(broker: &Broker) {
    let alice = broker.user("alice");
    let changing = TABLE.iter().filter(|entry| entry.changes && entry.takes_task);
    for method in changing.map(|entry| entry.name).filter(|name| name.starts_with("store/")) {
        let id = alice.asking_task(&["k1"]).await;
        let before = marks(&alice, &id).await;
        let mut params = sample_params(method, &id);

        params["expectedRevision"] = json!(1);
        let error = alice.call(method, params.clone()).await.error();
        assert_eq!(
            (error.kind.as_str(), &error.data["revision"]),
            ("revision_conflict", &json!(2)),
            "{method}"
        );
        assert_eq!(marks(&alice, &id).await, before, "{method}");

        params["expectedRevision"] = json!(2);
        assert_eq!(alice.call(method, params).await.result()["applied"], true, "{method}");
    }
}

async fn of_many_writers_with_one_expected_revision_exactly_one_wins(broker: &Broker) {
    let alice = broker.user("alice");
    let id = alice.new_task().await;

    let writers: Vec<_> = (0..20)
        .map(|n| {
            let (alice, id) = (alice.clone(), id.clone());
            tokio::spawn(async move {
                let params = json!({"taskId": id, "meta": {"n": n}, "expectedRevision": 1});
                alice.call("store/setMeta", params).await
            })
        })
        .collect();

    let mut won = 0;
    for writer in writers {
        let answer = writer.await.unwrap();
        if answer.is_error() {
            assert_eq!(answer.error().kind, "revision_conflict");
        } else {
            won += 1;
        }
    }
    assert_eq!(won, 1);
    assert_eq!(alice.get(&id).await["revision"], 2);
}

async fn an_expected_revision_is_an_integer(broker: &Broker) {
    let alice = broker.user("alice");
    let id = alice.new_task().await;
    for illegal in ["1.0", "1e0", "\"1\"", "-1", "true", "{}"] {
        let params = format!(r#"{{"taskId":"{id}","meta":{{}},"expectedRevision":{illegal}}}"#);
        alice.call_text("store/setMeta", &params).await.error().assert_invalid("expectedRevision");
    }
}

async fn a_failure_is_refused_without_code_or_message(broker: &Broker) {
    let alice = broker.user("alice");
    let id = alice.new_task().await;
    for illegal in [
        "{}",
        "[]",
        "\"x\"",
        r#"{"code":1}"#,
        r#"{"message":"x"}"#,
        r#"{"code":"1","message":"x"}"#,
        r#"{"code":1.5,"message":"x"}"#,
        r#"{"code":2147483648,"message":"x"}"#,
        r#"{"code":-2147483649,"message":"x"}"#,
        r#"{"code":1,"message":null}"#,
    ] {
        let params = format!(r#"{{"taskId":"{id}","error":{illegal}}}"#);
        let error = alice.call_text("store/fail", &params).await.error();
        assert_eq!(error.kind, "invalid_params", "{illegal}");
        let member = error.data["member"].as_str().unwrap();
        assert!(member.starts_with("error"), "{illegal}: {member}");
    }
    assert_eq!(alice.get(&id).await["revision"], 1);

    for legal in [i32::MIN, i32::MAX] {
        let id = alice.new_task().await;
        let params = json!({"taskId": id, "error": {"code": legal, "message": ""}});
        alice.call("store/fail", params).await.result();
        assert_eq!(alice.get(&id).await["error"]["code"], legal);
    }
}

on_both_stores!(
    every_transition_adds_one_to_the_revision_and_keeps_created_at,
    a_transition_moves_last_updated_at_to_the_time_it_happens,
    reads_move_nothing,
    a_command_that_changes_nothing_is_applied_and_moves_nothing,
    a_refused_command_moves_nothing,
    an_expected_revision_lets_only_the_next_write_through,
    every_changing_method_takes_an_expected_revision,
    of_many_writers_with_one_expected_revision_exactly_one_wins,
    an_expected_revision_is_an_integer,
    a_failure_is_refused_without_code_or_message,
);
