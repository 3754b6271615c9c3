//! Rounds of questions and answers.

use serde_json::{Value, json};

use crate::harness::{Broker, Client, accept, question};

async fn answers_of(client: &Client, id: &str) -> Value {
    client.call("store/resume", json!({"taskId": id})).await.result()["inputResponses"].clone()
}

async fn all_questions_are_shown_while_the_task_waits(broker: &Broker) {
    let alice = broker.user("alice");
    let id = alice.asking_task(&["region", "approval"]).await;

    let snapshot = alice.get(&id).await;

    assert_eq!(snapshot["task"]["status"], "input_required");
    let asked = json!({"approval": question("approval"), "region": question("region")});
    assert_eq!(snapshot["inputRequests"], asked);
    let waited = alice.call("store/wait", json!({"taskId": id, "timeoutMs": 0})).await.result();
    assert_eq!(waited["inputRequests"], asked);
    assert_eq!(alice.call("tasks/get", json!({"taskId": id})).await.result()["inputRequests"], asked);
}

async fn partial_answers_leave_the_rest_outstanding(broker: &Broker) {
    let alice = broker.user("alice");
    let id = alice.asking_task(&["region", "approval"]).await;

    let first = alice.reply(&id, &["approval"]).await;

    assert_eq!(first["applied"], true);
    assert_eq!(first["status"], "input_required");
    assert_eq!(first["accepted"], json!(["approval"]));
    assert_eq!(first["ignored"], json!([]));
    assert_eq!(first["stillOutstanding"], json!(["region"]));
    let snapshot = alice.get(&id).await;
    assert_eq!(snapshot["inputRequests"], json!({"region": question("region")}));
    assert_eq!(snapshot["task"]["statusMessage"], "Awaiting client input");

    let second = alice.reply(&id, &["region"]).await;

    assert_eq!(second["status"], "working");
    assert_eq!(second["stillOutstanding"], json!([]));
    assert_eq!(alice.get(&id).await["inputRequests"], json!({}));
    let answers = json!({"approval": accept("approval"), "region": accept("region")});
    assert_eq!(answers_of(&alice, &id).await, answers);
}

async fn unknown_spent_and_superseded_keys_are_ignored(broker: &Broker) {
    let alice = broker.user("alice");
    let id = alice.asking_task(&["approval", "stale"]).await;
    alice.reply(&id, &["approval"]).await;
    alice.ask(&id, &["region"]).await;
    let before = alice.get(&id).await["task"].clone();

    let outcome = alice.reply(&id, &["never-issued", "approval", "stale"]).await;

    assert_eq!(outcome["applied"], true);
    assert_eq!(outcome["accepted"], json!([]));
    assert_eq!(outcome["ignored"], json!(["approval", "never-issued", "stale"]), "sorted");
    assert_eq!(outcome["stillOutstanding"], json!(["region"]));
    assert_eq!(alice.get(&id).await["task"], before, "a stale update neither resumes nor fails the task");
    assert_eq!(answers_of(&alice, &id).await, json!({"approval": accept("approval")}));
}

async fn an_answer_to_a_task_that_asks_nothing_is_ignored(broker: &Broker) {
    let alice = broker.user("alice");
    let id = alice.new_task().await;

    let outcome = alice.reply(&id, &["k"]).await;

    assert_eq!(outcome["applied"], true);
    assert_eq!((&outcome["accepted"], &outcome["ignored"]), (&json!([]), &json!(["k"])));
    assert_eq!(outcome["stillOutstanding"], json!([]));
    let snapshot = alice.get(&id).await;
    assert_eq!(
        (&snapshot["revision"], &snapshot["task"]["statusMessage"]),
        (&json!(1), &json!("Task started"))
    );
}

async fn every_array_of_an_outcome_is_sorted(broker: &Broker) {
    let alice = broker.user("alice");
    // Written by hand: a JSON map of the test's own library would put the members in order.
    let members = |keys: &[&str]| {
        let members: Vec<_> = keys.iter().map(|key| format!(r#""{key}":{{"method":"m"}}"#)).collect();
        members.join(",")
    };
    let id = alice.new_task().await;
    let asked = members(&["b", "z", "a", "B", "é", "10", "9", "m"]);
    let ask = format!(r#"{{"taskId":"{id}","inputRequests":{{{asked}}}}}"#);
    alice.call_text("store/requireInput", &ask).await.result();

    let answered = members(&["z", "10", "y", "a", "9", "c", "A"]);
    let reply = format!(r#"{{"taskId":"{id}","inputResponses":{{{answered}}}}}"#);
    let outcome = alice.call_text("store/applyInput", &reply).await.result();

    assert_eq!(outcome["accepted"], json!(["10", "9", "a", "z"]));
    assert_eq!(outcome["ignored"], json!(["A", "c", "y"]));
    assert_eq!(outcome["stillOutstanding"], json!(["B", "b", "m", "é"]));
}

async fn the_answers_may_come_from_the_owner_and_be_of_any_action(broker: &Broker) {
    let alice = broker.user("alice");
    let id = alice.asking_task(&["a", "b", "c"]).await;
    let responses = json!({
        "a": {"action": "accept", "content": {"decision": "allow_once"}},
        "b": {"action": "decline"},
        "c": {"action": "cancel"},
    });

    let update = json!({"taskId": id, "inputResponses": responses});
    assert_eq!(alice.call("tasks/update", update).await.result()["resultType"], "complete");

    assert_eq!(alice.get(&id).await["task"]["status"], "working");
    assert_eq!(answers_of(&alice, &id).await, responses);
}

async fn a_new_set_of_questions_replaces_the_outstanding_one(broker: &Broker) {
    let alice = broker.user("alice");
    let id = alice.asking_task(&["one", "two"]).await;

    alice.ask(&id, &["two", "three"]).await;

    let snapshot = alice.get(&id).await;
    assert_eq!(snapshot["inputRequests"], json!({"two": question("two"), "three": question("three")}));
    let outcome = alice.reply(&id, &["one", "two", "three"]).await;
    assert_eq!(outcome["accepted"], json!(["three", "two"]));
    assert_eq!(outcome["ignored"], json!(["one"]));
    assert_eq!(outcome["status"], "working");
}

async fn set_status_goes_both_ways_while_questions_are_outstanding(broker: &Broker) {
    let alice = broker.user("alice");
    let id = alice.asking_task(&["k"]).await;
    let set = async |status: &str| {
        alice.call("store/setStatus", json!({"taskId": id, "status": status})).await.result()
    };

    assert_eq!(set("working").await["status"], "working");
    assert_eq!(alice.get(&id).await["inputRequests"], json!({}), "shown only in input_required");
    let flat = alice.call("tasks/get", json!({"taskId": id})).await.result();
    assert!(flat.get("inputRequests").is_none(), "{flat}");

    assert_eq!(set("input_required").await["status"], "input_required");
    assert_eq!(alice.get(&id).await["inputRequests"], json!({"k": question("k")}));
}

async fn questions_stay_answerable_while_the_task_is_set_to_working(broker: &Broker) {
    let alice = broker.user("alice");
    let id = alice.asking_task(&["one", "two"]).await;
    alice.call("store/setStatus", json!({"taskId": id, "status": "working"})).await.result();

    let none = alice.reply(&id, &["unknown"]).await;
    assert_eq!(none["stillOutstanding"], json!(["one", "two"]), "still listed");
    let outcome = alice.reply(&id, &["one"]).await;
    assert_eq!(outcome["accepted"], json!(["one"]));
    assert_eq!(outcome["stillOutstanding"], json!(["two"]));
    let outcome = alice.reply(&id, &["two"]).await;
    assert_eq!((&outcome["accepted"], &outcome["status"]), (&json!(["two"]), &json!("working")));

    let error =
        alice.call("store/setStatus", json!({"taskId": id, "status": "input_required"})).await.error();
    assert_eq!(error.kind, "invalid_transition", "nothing is outstanding any more");
}

async fn of_fifty_concurrent_answers_exactly_one_completes_the_round(broker: &Broker) {
    let alice = broker.user("alice");
    let id = alice.asking_task(&["left", "right"]).await;

    let calls: Vec<_> = (0..50)
        .map(|n| {
            let (alice, id) = (alice.clone(), id.clone());
            let keys: &[&str] = [&["left"][..], &["right"], &["left", "right"]][n % 3];
            tokio::spawn(async move { alice.reply(&id, keys).await })
        })
        .collect();

    let (mut completing, mut accepted) = (0, Vec::new());
    for call in calls {
        let outcome = call.await.unwrap();
        let keys = outcome["accepted"].as_array().unwrap().clone();
        if !keys.is_empty() && outcome["stillOutstanding"] == json!([]) {
            completing += 1;
        }
        accepted.extend(keys);
    }
    assert_eq!(completing, 1, "the handler is started once for each such outcome");
    accepted.sort_by_key(ToString::to_string);
    assert_eq!(accepted, [json!("left"), json!("right")], "each key is consumed once");
    assert_eq!(alice.get(&id).await["task"]["status"], "working");
}

async fn a_set_of_questions_is_an_object_of_objects_with_a_method(broker: &Broker) {
    let alice = broker.user("alice");
    let id = alice.new_task().await;
    for illegal in [
        json!({}),
        json!([]),
        json!("k"),
        json!(null),
        json!({"k": {}}),
        json!({"k": 5}),
        json!({"k": null}),
        json!({"k": []}),
        json!({"k": {"method": 5}}),
        json!({"good": question("k"), "bad": {"params": {}}}),
    ] {
        let params = json!({"taskId": id, "inputRequests": illegal});
        let error = alice.call("store/requireInput", params).await.error();
        assert_eq!(error.kind, "invalid_params", "{illegal}");
        assert!(error.data["member"].as_str().unwrap().starts_with("inputRequests"), "{error:?}");
    }
    let error = alice.call("store/requireInput", json!({"taskId": id})).await.error();
    error.assert_invalid("inputRequests");
    assert_eq!(alice.get(&id).await["revision"], 1);
}

async fn responses_are_an_object(broker: &Broker) {
    let alice = broker.user("alice");
    let id = alice.asking_task(&["k"]).await;
    for method in ["store/applyInput", "tasks/update"] {
        for illegal in [json!([]), json!("k"), json!(5), json!(null)] {
            let params = json!({"taskId": id, "inputResponses": illegal});
            alice.call(method, params).await.error().assert_invalid("inputResponses");
        }
        alice.call(method, json!({"taskId": id})).await.error().assert_invalid("inputResponses");
    }
    assert_eq!(alice.get(&id).await["revision"], 2);
}

async fn an_input_key_has_at_most_128_bytes(broker: &Broker) {
    let alice = broker.user("alice");
    let id = alice.new_task().await;
    for long in ["k".repeat(129), "é".repeat(65)] {
        let params = json!({"taskId": id, "inputRequests": {"good": question("g"), &long: question("k")}});
        let error = alice.call("store/requireInput", params).await.error();
        assert_eq!(error.kind, "invalid_params");
    }
    assert_eq!(alice.get(&id).await["revision"], 1);

    let (ascii, wide) = ("k".repeat(128), "é".repeat(64));
    assert_eq!(alice.ask(&id, &[&ascii, &wide]).await["status"], "input_required");
    assert_eq!(alice.reply(&id, &[&ascii, &wide]).await["status"], "working");
}

async fn oversized_questions_and_answers_change_nothing(broker: &Broker) {
    let alice = broker.user("alice");
    let id = alice.asking_task(&["k"]).await;
    let before = alice.get(&id).await["task"].clone();
    let large = "x".repeat(4 * 1024 * 1024 + 1);

    let questions = json!({"taskId": id, "inputRequests": {"large": {"method": "m", "params": large}}});
    alice.call("store/requireInput", questions).await.error().assert_limit();
    let answers = json!({"taskId": id, "inputResponses": {"k": {"action": "accept", "content": large}}});
    for method in ["store/applyInput", "tasks/update"] {
        alice.call(method, answers.clone()).await.error().assert_limit();
    }

    let after = alice.get(&id).await;
    assert_eq!((&after["task"], &after["inputRequests"]), (&before, &json!({"k": question("k")})));
}

async fn sixty_four_questions_may_be_outstanding(broker: &Broker) {
    let alice = broker.user("alice");
    let id = alice.new_task().await;
    let questions = |count: usize| {
        let all: serde_json::Map<_, _> = (0..count).map(|n| (format!("k{n}"), question("k"))).collect();
        json!({"taskId": id, "inputRequests": all})
    };

    let error = alice.call("store/requireInput", questions(65)).await.error();
    error.assert_limit();
    assert_eq!(error.data["maximum"], 64);
    assert_eq!(alice.get(&id).await["revision"], 1, "a set above the limit changes nothing");

    alice.call("store/requireInput", questions(64)).await.result();
    assert_eq!(alice.get(&id).await["inputRequests"].as_object().unwrap().len(), 64);
}

async fn spent_keys_have_a_limit_that_leaves_the_task_as_it_was(broker: &Broker) {
    let alice = broker.user("alice");
    let id = alice.new_task().await;
    let round = |n: usize| (0..64).map(|k| format!("r{n}-k{k}")).collect::<Vec<_>>();
    for n in 0..16 {
        let keys = round(n);
        let keys: Vec<_> = keys.iter().map(String::as_str).collect();
        alice.ask(&id, &keys).await;
        assert_eq!(alice.reply(&id, &keys).await["status"], "working", "round {n} of 64 keys");
    }

    // 1024 keys are spent. Whether a further question is refused when it is asked or only when its key would be spent
    // is left open, but two rounds more cannot be taken.
    let mut refused = None;
    for n in 16..18 {
        let before = alice.get(&id).await["task"].clone();
        let questions: serde_json::Map<_, _> = round(n).into_iter().map(|key| (key, question("k"))).collect();
        let params = json!({"taskId": id, "inputRequests": questions});
        let answer = alice.call("store/requireInput", params).await;
        if answer.is_error() {
            assert_eq!(alice.get(&id).await["task"], before);
            refused = Some(answer.error());
            break;
        }
    }
    let error = refused.expect("a limit on spent keys");
    error.assert_limit();
    assert_eq!(error.data["maximum"], 1024);
    let complete = json!({"taskId": id, "result": {}});
    let outcome = alice.call("store/complete", complete).await.result();
    assert_eq!(outcome["applied"], true, "a task can always be ended");
}

on_both_stores!(
    all_questions_are_shown_while_the_task_waits,
    partial_answers_leave_the_rest_outstanding,
    unknown_spent_and_superseded_keys_are_ignored,
    an_answer_to_a_task_that_asks_nothing_is_ignored,
    every_array_of_an_outcome_is_sorted,
    the_answers_may_come_from_the_owner_and_be_of_any_action,
    a_new_set_of_questions_replaces_the_outstanding_one,
    set_status_goes_both_ways_while_questions_are_outstanding,
    questions_stay_answerable_while_the_task_is_set_to_working,
    of_fifty_concurrent_answers_exactly_one_completes_the_round,
    a_set_of_questions_is_an_object_of_objects_with_a_method,
    responses_are_an_object,
    an_input_key_has_at_most_128_bytes,
    oversized_questions_and_answers_change_nothing,
    sixty_four_questions_may_be_outstanding,
    spent_keys_have_a_limit_that_leaves_the_task_as_it_was,
);
