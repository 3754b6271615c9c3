//! How deep a payload may nest: 100 levels are kept, 101 are refused by name, and no depth ends the process.

use serde_json::json;

use crate::harness::{Broker, BrokerOptions, Client, Store};

/// `depth` arrays in each other.
fn arrays(depth: usize) -> String {
    format!("{}{}", "[".repeat(depth), "]".repeat(depth))
}

/// `depth` objects in each other.
fn objects(depth: usize) -> String {
    format!("{}{{}}{}", r#"{"a":"#.repeat(depth - 1), "}".repeat(depth - 1))
}

/// The calls that carry a payload of their own, with the member that a refusal names; `@` stands for the payload.
const CARRIERS: [(&str, &str, &str); 5] = [
    ("store/create", r#"{"toolName":"t","arguments":@}"#, "arguments"),
    ("store/create", r#"{"toolName":"t","meta":@}"#, "meta"),
    ("store/setMeta", r#"{"taskId":"ID","meta":@}"#, "meta"),
    ("store/complete", r#"{"taskId":"ID","result":@}"#, "result"),
    ("store/fail", r#"{"taskId":"ID","error":{"code":1,"message":"m","data":@}}"#, "error"),
];

async fn a_hundred_levels_are_kept_and_can_be_read_back(broker: &Broker) {
    let alice = broker.user("alice");
    for (method, params, member) in CARRIERS {
        let id = alice.new_task().await;
        let payload = objects(100);
        let params = params.replace("ID", &id).replace('@', &payload);
        let answer = alice.call_text(method, &params).await;
        assert!(!answer.is_error(), "{method} {member}: {answer}");
        let id = if method == "store/create" {
            answer.raw(&["result", "task", "taskId"]).trim_matches('"').to_owned()
        } else {
            id
        };
        let get = alice.call("store/get", json!({"taskId": id})).await;
        let resume = alice.call("store/resume", json!({"taskId": id})).await;
        let kept = match member {
            "arguments" => resume.raw(&["result", "arguments"]),
            "meta" => get.raw(&["result", "task", "_meta"]),
            "result" => get.raw(&["result", "result"]),
            _ => get.raw(&["result", "error", "data"]),
        };
        assert_eq!(kept, payload, "{method} {member}");
        let flat = alice.call("tasks/get", json!({"taskId": id})).await;
        assert!(!flat.is_error(), "{method} {member}");
    }
    let params = format!(r#"{{"toolName":"t","arguments":{}}}"#, arrays(100));
    let created = alice.call_text("store/create", &params).await;
    let id = created.raw(&["result", "task", "taskId"]).trim_matches('"').to_owned();
    let resume = alice.call("store/resume", json!({"taskId": id})).await;
    assert_eq!(resume.raw(&["result", "arguments"]), arrays(100));
}

async fn a_hundred_and_one_levels_are_refused_by_name_and_change_nothing(broker: &Broker) {
    let alice = broker.user("alice");
    let id = alice.new_task().await;
    for depth in [101, 102, 127, 128, 129, 1000, 100_000] {
        for (method, params, member) in CARRIERS {
            let params = params.replace("ID", &id).replace('@', &objects(depth));
            let error = alice.call_text(method, &params).await.error();
            assert_eq!(error.kind, "invalid_params", "{method} {member} {depth}");
            let named = error.data["member"].as_str().unwrap();
            assert!(named.starts_with(member), "{method} {depth}: {named}");
        }
        let params = format!(r#"{{"toolName":"t","arguments":{}}}"#, arrays(depth));
        alice.call_text("store/create", &params).await.error().assert_invalid("arguments");
    }
    assert_eq!(alice.get(&id).await["revision"], 1);
    assert_eq!(alice.call("store/list", json!({})).await.result()["tasks"].as_array().unwrap().len(), 1);
}

async fn brackets_in_strings_are_no_levels(broker: &Broker) {
    let alice = broker.user("alice");
    let text = format!("{}\\\"{}", "[{".repeat(1000), "}]".repeat(1000));
    let params = format!(r#"{{"toolName":"t","arguments":{{"{text}":"{text}"}}}}"#);
    let created = alice.call_text("store/create", &params).await;
    assert!(!created.is_error(), "{created}");
    let flat = format!(r#"{{"toolName":"t","arguments":[{}[]]}}"#, "[[]],".repeat(1000));
    let created = alice.call_text("store/create", &flat).await;
    assert!(!created.is_error(), "siblings are no levels: {created}");
}

/// Whether the levels of a question count from the question or from the set is left open by two levels at most.
async fn questions_and_answers_have_the_same_limit(broker: &Broker) {
    let alice = broker.user("alice");
    let ask = |id: &str, depth: usize| {
        let payload = objects(depth);
        format!(r#"{{"taskId":"{id}","inputRequests":{{"k":{{"method":"m","params":{payload}}}}}}}"#)
    };
    let reply = |id: &str, depth: usize| {
        format!(r#"{{"taskId":"{id}","inputResponses":{{"k":{}}}}}"#, objects(depth))
    };

    let id = alice.new_task().await;
    for depth in [103, 1000, 100_000] {
        let error = alice.call_text("store/requireInput", &ask(&id, depth)).await.error();
        assert!(error.data["member"].as_str().unwrap().starts_with("inputRequests"), "{depth}: {error:?}");
    }
    assert_eq!(alice.get(&id).await["revision"], 1);
    alice.call_text("store/requireInput", &ask(&id, 98)).await.raw(&["result", "applied"]);
    for method in ["store/applyInput", "tasks/update"] {
        for depth in [103, 1000, 100_000] {
            let error = alice.call_text(method, &reply(&id, depth)).await.error();
            assert!(
                error.data["member"].as_str().unwrap().starts_with("inputResponses"),
                "{depth}: {error:?}"
            );
        }
    }
    assert_eq!(alice.get(&id).await["revision"], 2);
    alice.call_text("tasks/update", &reply(&id, 99)).await.raw(&["result", "resultType"]);
    let resume = alice.call("store/resume", json!({"taskId": id})).await;
    assert_eq!(resume.raw(&["result", "inputResponses", "k"]), objects(99));
}

/// Sends deep JSON where no payload belongs.
async fn assert_survives(client: &Client, body: String) {
    let answer = client.post(body).await;
    assert!(answer.status == 200 || answer.status == 202 || answer.status == 400, "{answer}");
    client.call("store/info", json!({})).await.result();
}

async fn depth_where_no_payload_belongs_ends_nothing(broker: &Broker) {
    let alice = broker.user("alice");
    for depth in [100, 128, 129, 1000, 100_000] {
        for deep in [arrays(depth), objects(depth), "[".repeat(depth), r#"{"a":"#.repeat(depth)] {
            assert_survives(&alice, deep.clone()).await;
            let in_params = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"store/info","params":{deep}}}"#);
            assert_survives(&alice, in_params).await;
            let in_id = format!(r#"{{"jsonrpc":"2.0","id":{deep},"method":"store/info"}}"#);
            assert_survives(&alice, in_id).await;
            let unknown =
                format!(r#"{{"jsonrpc":"2.0","id":1,"method":"store/info","params":{{"x":{deep}}}}}"#);
            assert_survives(&alice, unknown).await;
            let in_task_id =
                format!(r#"{{"jsonrpc":"2.0","id":1,"method":"store/get","params":{{"taskId":{deep}}}}}"#);
            assert_survives(&alice, in_task_id).await;
        }
    }
}

async fn unclosed_depth_is_a_parse_error(broker: &Broker) {
    let alice = broker.user("alice");
    for depth in [1, 99, 128] {
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"store/create","params":{{"toolName":"t","arguments":{}"#,
            "[".repeat(depth)
        );
        assert_eq!(alice.post(body).await.error().kind, "parse_error", "{depth}");
    }
}

#[tokio::test]
async fn a_hundred_levels_survive_a_kill() {
    let mut broker = BrokerOptions::new(Store::Sled).start();
    let alice = broker.user("alice");
    let subject = alice.subject().to_owned();
    let params = format!(r#"{{"toolName":"t","arguments":{}}}"#, arrays(100));
    let created = alice.call_text("store/create", &params).await;
    let id = created.raw(&["result", "task", "taskId"]).trim_matches('"').to_owned();
    let complete = format!(r#"{{"taskId":"{id}","result":{}}}"#, objects(100));
    alice.call_text("store/complete", &complete).await.raw(&["result", "applied"]);

    broker.kill9();
    broker.restart();

    let alice = broker.subject(&subject);
    let resume = alice.call("store/resume", json!({"taskId": id})).await;
    assert_eq!(resume.raw(&["result", "arguments"]), arrays(100));
    let flat = alice.call("tasks/get", json!({"taskId": id})).await;
    assert_eq!(flat.raw(&["result", "result"]), objects(100));
}

on_memory!(
    a_hundred_levels_are_kept_and_can_be_read_back,
    a_hundred_and_one_levels_are_refused_by_name_and_change_nothing,
    brackets_in_strings_are_no_levels,
    questions_and_answers_have_the_same_limit,
    depth_where_no_payload_belongs_ends_nothing,
    unclosed_depth_is_a_parse_error,
);
