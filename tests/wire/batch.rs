//! Batches: order, size, and what may not be in one.

use serde_json::{Value, json};
use task_broker_protocol::methods::TABLE;

use crate::harness::{Broker, RpcError, accept, id_of};
use crate::methods::sample_params;

fn call(id: &Value, method: &str, params: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
}

/// Reads the error of an element, whose HTTP status is that of the batch.
fn error(element: &Value) -> RpcError {
    RpcError::read(element, &element.to_string())
}

async fn an_empty_batch_is_one_invalid_request(broker: &Broker) {
    let alice = broker.user("alice");
    for body in ["[]", "[ ]", " [\r\n] "] {
        let error = alice.post(body).await.error();
        assert_eq!((error.kind.as_str(), &error.id), ("invalid_request", &Value::Null), "{body}");
    }
}

async fn elements_that_are_no_calls_are_refused_one_by_one(broker: &Broker) {
    let alice = broker.user("alice");
    for (body, count) in [("[[]]", 1), ("[1,\"x\",null]", 3), ("[{}]", 1), ("[[[]],true]", 2)] {
        let elements = alice.post(body).await.elements();
        assert_eq!(elements.len(), count, "{body}");
        for element in &elements {
            let error = error(element);
            assert_eq!((error.kind.as_str(), &error.id), ("invalid_request", &Value::Null), "{body}");
        }
    }
}

async fn answers_come_in_order_with_their_own_ids(broker: &Broker) {
    let alice = broker.user("alice");
    let (one, two) = (alice.new_task().await, alice.new_task().await);
    let batch = json!([
        {"jsonrpc": "2.0", "method": "notifications/x"},
        call(&json!(2), "tasks/get", json!({"taskId": one})),
        {"jsonrpc": "2.0", "method": "notifications/y"},
        call(&json!("2"), "tasks/get", json!({"taskId": two})),
    ])
    .to_string();
    for _ in 0..50 {
        let elements = alice.post(batch.clone()).await.elements();
        assert_eq!(elements.len(), 2);
        assert_eq!((&elements[0]["id"], &elements[0]["result"]["taskId"]), (&json!(2), &json!(one)));
        assert_eq!((&elements[1]["id"], &elements[1]["result"]["taskId"]), (&json!("2"), &json!(two)));
    }
    let same = json!([
        call(&json!(7), "tasks/get", json!({"taskId": one})),
        call(&json!(7), "store/info", json!({}))
    ]);
    let elements = alice.post(same.to_string()).await.elements();
    assert_eq!((&elements[0]["result"]["taskId"], &elements[1]["result"]["api"]), (&json!(one), &json!(1)));
}

async fn a_batch_is_applied_in_order(broker: &Broker) {
    let alice = broker.user("alice");
    let id = alice.asking_task(&["k"]).await;
    let batch = json!([
        call(&json!(1), "store/get", json!({"taskId": id})),
        call(&json!(2), "store/applyInput", json!({"taskId": id, "inputResponses": {"k": accept("k")}})),
        call(&json!(3), "store/get", json!({"taskId": id})),
        {"jsonrpc": "2.0", "method": "store/setMeta", "params": {"taskId": id, "meta": {"n": 1}}},
        call(&json!(4), "store/get", json!({"taskId": id})),
        call(&json!(5), "store/complete", json!({"taskId": id, "result": {}})),
        call(&json!(6), "store/fail", json!({"taskId": id, "error": {"code": 1, "message": "late"}})),
    ]);

    let elements = alice.post(batch.to_string()).await.elements();

    let results: Vec<_> = elements.iter().map(|element| element["result"].clone()).collect();
    let ids: Vec<_> = elements.iter().map(|element| element["id"].clone()).collect();
    assert_eq!(ids, [1, 2, 3, 4, 5, 6]);
    assert_eq!(results[0]["task"]["status"], "input_required");
    assert_eq!(results[1]["accepted"], json!(["k"]));
    assert_eq!(results[2]["task"]["status"], "working");
    assert_eq!(results[3]["task"]["_meta"], json!({"n": 1}));
    assert_eq!(results[4]["applied"], true);
    assert_eq!(results[5]["applied"], false);
}

async fn tasks_of_a_batch_are_created_in_its_order(broker: &Broker) {
    let alice = broker.user("alice");
    let mut stream = alice.watch(json!({})).await;
    stream.synced().await;
    // Some with a key, which are served alone, between those that go to the disk together.
    let create = |number: usize| {
        let mut params = json!({"toolName": "render", "meta": {"number": number}});
        if number % 48 == 47 {
            params["idempotencyKey"] = json!(format!("key {number}"));
        }
        call(&json!(number), "store/create", params)
    };
    let batch: Vec<_> = (0..100).map(create).collect();
    let elements = alice.post(json!(batch).to_string()).await.elements();
    assert_eq!(elements.len(), 100);
    for (number, element) in elements.iter().enumerate() {
        assert_eq!(element["id"], number);
        assert_eq!(element["result"]["task"]["_meta"]["number"], number, "{element}");
        let event = stream.next().await;
        assert_eq!((event.kind(), &event.params["taskId"]), ("create", &element["result"]["task"]["taskId"]));
    }
}

async fn one_bad_element_leaves_the_others_alone(broker: &Broker) {
    let alice = broker.user("alice");
    let batch = json!([
        call(&json!(1), "store/create", json!({"toolName": "first"})),
        call(&json!(2), "no/such/method", json!({})),
        call(&json!(3), "store/create", json!({})),
        call(&json!(null), "store/info", json!({})),
        5,
        call(&json!(6), "store/create", json!({"toolName": "last"})),
    ]);
    let elements = alice.post(batch.to_string()).await.elements();
    assert_eq!(elements.len(), 6);
    assert_eq!(elements[0]["result"]["toolName"], "first");
    assert_eq!((error(&elements[1]).kind.as_str(), &elements[1]["id"]), ("method_not_found", &json!(2)));
    error(&elements[2]).assert_invalid("toolName");
    assert_eq!(error(&elements[3]).kind, "invalid_request");
    assert_eq!(error(&elements[4]).kind, "invalid_request");
    assert_eq!(elements[5]["result"]["toolName"], "last");
}

async fn a_batch_of_notifications_is_accepted_and_carried_out(broker: &Broker) {
    let alice = broker.user("alice");
    let create =
        |name: &str| json!({"jsonrpc": "2.0", "method": "store/create", "params": {"toolName": name}});
    alice
        .post(json!([create("a"), create("b"), {"jsonrpc": "2.0", "method": "x"}]).to_string())
        .await
        .assert_accepted();
    assert_eq!(alice.call("store/list", json!({})).await.result()["tasks"].as_array().unwrap().len(), 2);
}

async fn waits_and_streams_are_refused_for_their_element_only(broker: &Broker) {
    let alice = broker.user("alice");
    let id = alice.new_task().await;
    let single: Vec<_> = TABLE.iter().filter(|entry| entry.single_only).map(|entry| entry.name).collect();
    assert_eq!(single, ["store/wait", "store/watch"]);
    let mut batch: Vec<_> =
        single.iter().map(|method| call(&json!(method), method, sample_params(method, &id))).collect();
    batch.push(call(&json!("get"), "store/get", json!({"taskId": id})));

    let elements = alice.post(Value::Array(batch).to_string()).await.elements();

    for (element, method) in elements.iter().zip(single) {
        let error = error(element);
        assert_eq!((error.kind.as_str(), &error.id), ("invalid_request", &json!(method)));
    }
    assert_eq!(elements[2]["result"]["task"]["taskId"], id);
}

async fn every_other_method_is_served_in_a_batch(broker: &Broker) {
    let alice = broker.user("alice");
    for entry in TABLE.iter().filter(|entry| !entry.single_only) {
        let id = alice.asking_task(&["k1"]).await;
        let batch = json!([call(&json!(1), entry.name, sample_params(entry.name, &id))]);
        let elements = alice.post(batch.to_string()).await.elements();
        assert_eq!(elements.len(), 1, "{}", entry.name);
        assert!(elements[0].get("result").is_some(), "{}: {}", entry.name, elements[0]);
    }
}

async fn a_batch_has_at_most_a_hundred_elements(broker: &Broker) {
    let alice = broker.user("alice");
    let batch = |count: usize| {
        let creates = (0..count).map(|n| call(&json!(n), "store/create", json!({"toolName": "tool"})));
        Value::Array(creates.collect()).to_string()
    };

    for count in [101, 1000] {
        let error = alice.post(batch(count)).await.error();
        assert_eq!((error.kind.as_str(), &error.id), ("invalid_request", &Value::Null));
    }
    assert_eq!(alice.call("store/list", json!({})).await.result()["tasks"], json!([]), "nothing is executed");
    let minimal =
        vec![r#"{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{"taskId":"x"}}"#; 20_000].join(",");
    assert_eq!(alice.post(format!("[{minimal}]")).await.error().kind, "invalid_request");

    let elements = alice.post(batch(100)).await.elements();
    assert_eq!(elements.len(), 100);
    assert!(
        elements
            .iter()
            .enumerate()
            .all(|(n, element)| element["id"] == n && element["result"]["created"] == true)
    );
}

async fn the_answer_to_a_batch_has_a_size_limit(broker: &Broker) {
    let alice = broker.user("alice");
    let id = alice.new_task().await;
    let result = json!({"taskId": id, "result": {"text": "x".repeat(3 * 1024 * 1024)}});
    alice.call("store/complete", result).await.result();
    let batch: Vec<_> = (0..100).map(|n| call(&json!(n), "store/get", json!({"taskId": id}))).collect();

    let answer = alice.post(Value::Array(batch).to_string()).await;

    let most = 16 * 1024 * 1024 + 64 * 1024;
    assert!(answer.body.len() <= most, "{} bytes", answer.body.len());
    let elements = answer.elements();
    assert_eq!(elements.len(), 100);
    // As many as there is room for, and the others are told why.
    for (number, element) in elements.iter().enumerate() {
        assert_eq!(element["id"], number);
        if number < 5 {
            assert_eq!(element["result"]["task"]["taskId"], *id, "{number}");
        } else {
            let data = &element["error"]["data"];
            assert_eq!(
                (&data["kind"], &data["limit"]),
                (&json!("limit_exceeded"), &json!("maxBatchAnswerBytes"))
            );
        }
    }
}

async fn a_change_is_told_whatever_the_room_and_what_changes_nothing_is_not(broker: &Broker) {
    let alice = broker.user("alice");
    let [large, ended] = [alice.new_task().await, alice.new_task().await];
    for id in [&large, &ended] {
        let result = json!({"taskId": id, "result": {"text": "x".repeat(3 * 1024 * 1024)}});
        alice.call("store/complete", result).await.result();
    }
    let get = call(&json!("get"), "store/get", json!({"taskId": large}));
    let cancel = call(&json!("cancel"), "store/cancel", json!({"taskId": ended}));
    let batch: Vec<_> = std::iter::repeat_n(get, 5).chain([cancel.clone(), cancel]).collect();

    let elements = alice.post(Value::Array(batch).to_string()).await.elements();

    // It has ended, but from now on it says that somebody wanted it to end.
    assert_eq!(elements[5]["result"]["applied"], false, "{:.200}", elements[5].to_string());
    assert_eq!(elements[5]["result"]["task"]["taskId"], *ended);
    assert_eq!(elements[6]["error"]["data"]["limit"], "maxBatchAnswerBytes", "it has said so before");
    assert_eq!(alice.get(&ended).await["cancelRequested"], true);
}

async fn duplicate_members_are_refused_for_their_element_only(broker: &Broker) {
    let alice = broker.user("alice");
    let batch = r#"[{"jsonrpc":"2.0","id":1,"id":1,"method":"store/create","params":{"toolName":"t"}},
        {"jsonrpc":"2.0","id":2,"method":"store/create","params":{"toolName":"t","toolName":"t"}},
        {"jsonrpc":"2.0","id":3,"method":"store/create","params":{"toolName":"kept"}}]"#;
    let elements = alice.post(batch).await.elements();
    assert_eq!(elements.len(), 3);
    error(&elements[0]);
    error(&elements[1]);
    let id = id_of(&elements[2]["result"]);
    let listed = alice.call("store/list", json!({})).await.result();
    assert_eq!(listed["tasks"].as_array().unwrap().iter().map(id_of).collect::<Vec<_>>(), [id]);
}

async fn a_batch_that_is_not_whole_is_a_parse_error_and_nothing_is_done(broker: &Broker) {
    let alice = broker.user("alice");
    let body = r#"[{"jsonrpc":"2.0","id":1,"method":"store/create","params":{"toolName":"t"}},"#;
    assert_eq!(alice.post(body).await.error().kind, "parse_error");
    assert_eq!(alice.call("store/list", json!({})).await.result()["tasks"], json!([]));
}

on_memory!(
    an_empty_batch_is_one_invalid_request,
    elements_that_are_no_calls_are_refused_one_by_one,
    answers_come_in_order_with_their_own_ids,
    a_batch_is_applied_in_order,
    tasks_of_a_batch_are_created_in_its_order,
    one_bad_element_leaves_the_others_alone,
    a_batch_of_notifications_is_accepted_and_carried_out,
    waits_and_streams_are_refused_for_their_element_only,
    every_other_method_is_served_in_a_batch,
    a_batch_has_at_most_a_hundred_elements,
    the_answer_to_a_batch_has_a_size_limit,
    a_change_is_told_whatever_the_room_and_what_changes_nothing_is_not,
    duplicate_members_are_refused_for_their_element_only,
    a_batch_that_is_not_whole_is_a_parse_error_and_nothing_is_done,
);
