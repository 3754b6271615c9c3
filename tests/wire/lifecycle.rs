//! What each command does to a task, seen through the snapshot that follows.

use serde_json::{Value, json};

use crate::harness::{Broker, Client, accept, id_of, question};

/// Makes the call and gives status and message of the task after it.
async fn after(client: &Client, id: &str, method: &str, more: Value) -> (String, String) {
    let mut params = json!({"taskId": id});
    params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let outcome = client.call(method, params).await.result();
    assert_eq!(outcome["applied"], true, "{method}: {outcome}");
    let snapshot = client.get(id).await;
    assert_eq!(outcome["status"], snapshot["task"]["status"], "{method}: {outcome}");
    assert_eq!(outcome["revision"], snapshot["revision"], "{method}: {outcome}");
    (text(&snapshot["task"]["status"]), text(&snapshot["task"]["statusMessage"]))
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("not a string: {value}")).to_owned()
}

fn pair(status: &str, message: &str) -> (String, String) {
    (status.to_owned(), message.to_owned())
}

async fn a_task_is_completed_with_its_result(broker: &Broker) {
    let alice = broker.user("alice");
    let id = alice.new_task().await;

    let result = json!({"content": [{"type": "text", "text": "done-42"}], "isError": false});
    let seen = after(&alice, &id, "store/complete", json!({"result": result})).await;

    assert_eq!(seen, pair("completed", "Task completed"));
    let snapshot = alice.get(&id).await;
    assert_eq!(snapshot["result"], result);
    assert!(snapshot.get("error").is_none(), "{snapshot}");
}

async fn a_result_that_is_an_error_completes_the_task(broker: &Broker) {
    let alice = broker.user("alice");
    let id = alice.new_task().await;

    let result = json!({"content": [], "structuredContent": {"errs": [{"line": 3}]}, "isError": true});
    let seen = after(&alice, &id, "store/complete", json!({"result": result})).await;

    assert_eq!(seen, pair("completed", "Task completed"));
    let snapshot = alice.get(&id).await;
    assert_eq!(snapshot["result"], result);
    assert!(snapshot.get("error").is_none(), "no JSON-RPC error goes with isError: {snapshot}");
}

async fn a_failed_task_keeps_code_message_and_data(broker: &Broker) {
    let alice = broker.user("alice");
    let id = alice.new_task().await;

    let error = json!({"code": -32602, "message": "bad region", "data": {"field": "region"}});
    let seen = after(&alice, &id, "store/fail", json!({"error": error})).await;

    assert_eq!(seen, pair("failed", "Task failed: bad region"));
    let snapshot = alice.get(&id).await;
    assert_eq!(snapshot["error"], error);
    assert!(snapshot.get("result").is_none(), "{snapshot}");
}

async fn absent_error_data_stays_absent_and_null_stays_null(broker: &Broker) {
    let alice = broker.user("alice");
    for error in
        [json!({"code": -32099, "message": "quota"}), json!({"code": 7, "message": "x", "data": null})]
    {
        let id = alice.new_task().await;
        alice.call("store/fail", json!({"taskId": id, "error": error})).await.result();
        assert_eq!(alice.get(&id).await["error"], error);
        assert_eq!(alice.call("tasks/get", json!({"taskId": id})).await.result()["error"], error);
    }
}

async fn a_cancelled_task_says_why_if_there_is_a_reason(broker: &Broker) {
    let alice = broker.user("alice");

    let id = alice.new_task().await;
    let seen = after(&alice, &id, "store/cancel", json!({})).await;
    assert_eq!(seen, pair("cancelled", "Task cancelled"));

    let id = alice.new_task().await;
    let seen = after(&alice, &id, "store/cancel", json!({"reason": "User requested"})).await;
    assert_eq!(seen, pair("cancelled", "Cancelled: User requested"));

    let snapshot = alice.get(&id).await;
    assert!(snapshot.get("result").is_none() && snapshot.get("error").is_none(), "{snapshot}");
}

async fn the_answer_to_a_cancel_is_the_outcome_and_the_snapshot(broker: &Broker) {
    let alice = broker.user("alice");
    let id = alice.asking_task(&["k1"]).await;

    let answer = alice.call("store/cancel", json!({"taskId": id})).await.result();

    assert_eq!(answer["applied"], true);
    assert_eq!(answer["status"], "cancelled");
    assert_eq!(answer["revision"], 3);
    assert_eq!(answer["cancelRequested"], true);
    assert_eq!(answer["task"]["status"], "cancelled");
    assert_eq!(answer["toolName"], "tool");
    assert_eq!(answer["inputRequests"], json!({}));
    assert_eq!(answer["task"], alice.get(&id).await["task"]);
}

async fn a_cancel_is_remembered_on_every_view_of_the_task(broker: &Broker) {
    let alice = broker.user("alice");
    let id = alice.new_task().await;
    assert_eq!(alice.get(&id).await["cancelRequested"], false);

    alice.call("tasks/cancel", json!({"taskId": id})).await.result();

    assert_eq!(alice.get(&id).await["cancelRequested"], true);
    assert_eq!(alice.call("store/resume", json!({"taskId": id})).await.result()["cancelRequested"], true);
    let wait = json!({"taskId": id, "timeoutMs": 0});
    assert_eq!(alice.call("store/wait", wait).await.result()["cancelRequested"], true);
    let statuses = alice.call("store/statuses", json!({"taskIds": [id]})).await.result();
    assert_eq!(statuses["statuses"][&id]["cancelRequested"], true);
    assert_eq!(alice.call("store/list", json!({})).await.result()["tasks"][0]["cancelRequested"], true);
}

async fn a_discarded_task_is_as_if_it_had_never_been(broker: &Broker) {
    let alice = broker.user("alice");
    let id = alice.new_task().await;

    let outcome = alice.call("store/discard", json!({"taskId": id})).await.result();

    assert_eq!(outcome["applied"], true);
    for method in ["store/get", "store/discard", "store/resume", "tasks/get", "tasks/cancel"] {
        let error = alice.call(method, json!({"taskId": id})).await.error();
        assert_eq!(error.kind, "task_not_found", "{method}");
    }
    assert_eq!(alice.call("store/list", json!({})).await.result()["tasks"], json!([]));
}

async fn a_terminal_task_can_be_discarded(broker: &Broker) {
    let alice = broker.user("alice");
    let id = alice.new_task().await;
    alice.call("store/complete", json!({"taskId": id, "result": {}})).await.result();

    let outcome = alice.call("store/discard", json!({"taskId": id})).await.result();

    assert_eq!(outcome["applied"], true);
    assert_eq!(alice.call("store/get", json!({"taskId": id})).await.error().kind, "task_not_found");
}

async fn questions_and_answers_move_status_and_message(broker: &Broker) {
    let alice = broker.user("alice");
    let id = alice.new_task().await;

    let ask = json!({"inputRequests": {"k": question("k")}});
    let seen = after(&alice, &id, "store/requireInput", ask).await;
    assert_eq!(seen, pair("input_required", "Awaiting client input"));

    let answer = json!({"inputResponses": {"k": accept("k")}});
    let seen = after(&alice, &id, "store/applyInput", answer).await;
    assert_eq!(seen, pair("working", "Task resumed"));

    let ask = json!({"inputRequests": {"again": question("k")}, "message": "need input"});
    let seen = after(&alice, &id, "store/requireInput", ask).await;
    assert_eq!(seen, pair("input_required", "need input"));
}

async fn set_status_changes_the_message_only_when_one_is_given(broker: &Broker) {
    let alice = broker.user("alice");
    let id = alice.asking_task(&["k"]).await;

    let seen = after(&alice, &id, "store/setStatus", json!({"status": "working"})).await;
    assert_eq!(seen, pair("working", "Awaiting client input"));
    let seen =
        after(&alice, &id, "store/setStatus", json!({"status": "working", "message": "step 2 of 9"})).await;
    assert_eq!(seen, pair("working", "step 2 of 9"));
    let seen = after(&alice, &id, "store/setStatus", json!({"status": "input_required"})).await;
    assert_eq!(seen, pair("input_required", "step 2 of 9"));
}

async fn set_meta_replaces_the_whole_object(broker: &Broker) {
    let alice = broker.user("alice");
    let id = id_of(&alice.create(json!({"meta": {"a": 1, "b": {"c": 2}}})).await);
    assert_eq!(alice.get(&id).await["task"]["_meta"], json!({"a": 1, "b": {"c": 2}}));

    let outcome = alice.call("store/setMeta", json!({"taskId": id, "meta": {"b": {}}})).await.result();

    assert_eq!(outcome["applied"], true);
    let snapshot = alice.get(&id).await;
    assert_eq!(snapshot["task"]["_meta"], json!({"b": {}}));
    assert_eq!(snapshot["task"]["status"], "working");
    assert_eq!(snapshot["task"]["statusMessage"], "Task started");
}

async fn a_message_is_cut_at_1024_bytes_between_characters(broker: &Broker) {
    let alice = broker.user("alice");
    // One byte, then characters of two: byte 1024 is in the middle of one.
    let long = format!("a{}", "é".repeat(1000));
    let cut = format!("a{}", "é".repeat(511));
    assert_eq!(cut.len(), 1023);

    let id = alice.new_task().await;
    let ask = json!({"inputRequests": {"k": question("k")}, "message": long});
    assert_eq!(after(&alice, &id, "store/requireInput", ask).await, pair("input_required", &cut));
    let status = json!({"status": "working", "message": "b".repeat(1025)});
    assert_eq!(after(&alice, &id, "store/setStatus", status).await, pair("working", &"b".repeat(1024)));

    let (_, message) = after(&alice, &id, "store/cancel", json!({"reason": long})).await;
    let reason = message.strip_prefix("Cancelled: ").unwrap_or_else(|| panic!("{message}"));
    assert!(long.starts_with(reason), "{message}");
    assert!((1000..=1024).contains(&reason.len()), "{} bytes", reason.len());
}

async fn the_error_keeps_its_full_text_where_the_status_message_is_cut(broker: &Broker) {
    let alice = broker.user("alice");
    let id = alice.new_task().await;
    let long = "ü".repeat(2000);

    let (_, message) = after(&alice, &id, "store/fail", json!({"error": {"code": 1, "message": long}})).await;

    assert!(message.starts_with("Task failed: üü"), "{message}");
    assert!(message.len() <= "Task failed: ".len() + 1024, "{} bytes", message.len());
    assert_eq!(alice.get(&id).await["error"]["message"], long);
}

async fn tasks_get_is_flat_and_shows_what_the_status_asks_for(broker: &Broker) {
    let alice = broker.user("alice");
    let id = alice.new_task().await;
    let get = async || alice.call("tasks/get", json!({"taskId": id})).await.result();

    let working = get().await;
    assert_eq!(working["resultType"], "complete");
    assert_eq!(working["taskId"], id);
    assert_eq!(working["status"], "working");
    assert_eq!(working["statusMessage"], "Task started");
    assert_eq!(working["ttlMs"], 300_000);
    assert_eq!(working["pollIntervalMs"], 2000);
    for absent in ["result", "error", "inputRequests", "owner", "creator", "revision"] {
        assert!(working.get(absent).is_none(), "{absent} in {working}");
    }

    alice.ask(&id, &["one", "two"]).await;
    let asking = get().await;
    assert_eq!(asking["status"], "input_required");
    assert_eq!(asking["inputRequests"], json!({"one": question("one"), "two": question("two")}));

    alice.call("store/complete", json!({"taskId": id, "result": {"content": []}})).await.result();
    let completed = get().await;
    assert_eq!(completed["status"], "completed");
    assert_eq!(completed["result"], json!({"content": []}));
    assert!(completed.get("inputRequests").is_none(), "{completed}");

    let snapshot = alice.get(&id).await;
    for member in ["createdAt", "lastUpdatedAt", "ttlMs", "pollIntervalMs", "statusMessage"] {
        assert_eq!(completed[member], snapshot["task"][member], "{member}");
    }
}

async fn tasks_update_and_cancel_answer_with_an_acknowledgement(broker: &Broker) {
    let alice = broker.user("alice");
    let id = alice.asking_task(&["k"]).await;

    let update = json!({"taskId": id, "inputResponses": {"k": accept("k"), "unknown": accept("?")}});
    assert_eq!(alice.call("tasks/update", update).await.result()["resultType"], "complete");
    let snapshot = alice.get(&id).await;
    assert_eq!(snapshot["task"]["status"], "working");
    assert_eq!(snapshot["inputRequests"], json!({}));

    let cancel = alice.call("tasks/cancel", json!({"taskId": id})).await.result();
    assert_eq!(cancel["resultType"], "complete");
    assert_eq!(alice.get(&id).await["task"]["statusMessage"], "Task cancelled");
}

on_both_stores!(
    a_task_is_completed_with_its_result,
    a_result_that_is_an_error_completes_the_task,
    a_failed_task_keeps_code_message_and_data,
    absent_error_data_stays_absent_and_null_stays_null,
    a_cancelled_task_says_why_if_there_is_a_reason,
    the_answer_to_a_cancel_is_the_outcome_and_the_snapshot,
    a_cancel_is_remembered_on_every_view_of_the_task,
    a_discarded_task_is_as_if_it_had_never_been,
    a_terminal_task_can_be_discarded,
    questions_and_answers_move_status_and_message,
    set_status_changes_the_message_only_when_one_is_given,
    set_meta_replaces_the_whole_object,
    a_message_is_cut_at_1024_bytes_between_characters,
    the_error_keeps_its_full_text_where_the_status_message_is_cut,
    tasks_get_is_flat_and_shows_what_the_status_asks_for,
    tasks_update_and_cancel_answer_with_an_acknowledgement,
);
