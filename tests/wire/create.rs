//! `store/create`: what a new task looks like, and which params are refused.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::harness::{Broker, id_of, token};

async fn a_new_task_shows_everything_at_once(broker: &Broker) {
    let alice = broker.user("alice");

    let created = alice.create(json!({"arguments": {"q": 1}})).await;

    assert_eq!(created["created"], true);
    assert_eq!(created["owner"], alice.subject());
    assert_eq!(created["toolName"], "tool");
    assert_eq!(created["revision"], 1);
    assert_eq!(created["cancelRequested"], false);
    assert_eq!(created["inputRequests"], json!({}));
    assert!(created.get("result").is_none() && created.get("error").is_none(), "{created}");
    let task = &created["task"];
    assert_eq!(task["status"], "working");
    assert_eq!(task["statusMessage"], "Task started");
    assert_eq!(task["ttlMs"], 300_000);
    assert_eq!(task["pollIntervalMs"], 2000);
    assert_eq!(task["createdAt"], task["lastUpdatedAt"]);
    assert!(task.get("_meta").is_none(), "no meta was set: {task}");
    let remaining = created["remainingMs"].as_u64().unwrap();
    assert!((290_000..=300_000).contains(&remaining), "{remaining}");

    let snapshot = alice.get(&id_of(&created)).await;
    for member in ["task", "owner", "toolName", "revision", "cancelRequested", "inputRequests"] {
        assert_eq!(snapshot[member], created[member], "{member}");
    }
}

async fn a_task_without_an_owner_shows_null(broker: &Broker) {
    let created = broker.anonymous().create(json!({})).await;
    assert_eq!(created.get("owner"), Some(&Value::Null), "{created}");
}

async fn times_are_utc_with_three_decimals(broker: &Broker) {
    let alice = broker.user("alice");
    let before = token::now();

    let created = alice.create(json!({})).await;

    for member in ["createdAt", "lastUpdatedAt"] {
        let text = created["task"][member].as_str().unwrap();
        assert_eq!(text.len(), "2026-07-28T00:00:00.000Z".len(), "{text}");
        assert_eq!((&text[10..11], &text[19..20], &text[23..]), ("T", ".", "Z"), "{text}");
        let time: Timestamp = text.parse().unwrap();
        assert!((before - 1..=token::now() + 1).contains(&time.as_second()), "{text} at {before}");
    }
}

async fn ids_are_128_unguessable_bits_in_lower_case_hex(broker: &Broker) {
    let alice = broker.user("alice");
    let mut ids = Vec::new();
    for _ in 0..64 {
        ids.push(alice.new_task().await);
    }

    for id in &ids {
        assert_eq!(id.len(), 32, "{id}");
        assert!(id.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte)), "{id}");
    }
    assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), 64, "ids collided");
    // A counter or a clock would make each id a near neighbour of the last, at one end or the other.
    for part in [0..2, 14..16, 30..32] {
        let distinct: BTreeSet<_> = ids.iter().map(|id| &id[part.clone()]).collect();
        assert!(distinct.len() > 32, "only {} distinct bytes at {part:?}", distinct.len());
    }
    assert!(!ids.is_sorted(), "the order of creation shows");
}

async fn absent_arguments_are_an_empty_object_and_any_other_json_is_kept(broker: &Broker) {
    let alice = broker.user("alice");
    let id = alice.new_task().await;
    let resume = alice.call("store/resume", json!({"taskId": id})).await;
    assert_eq!(resume.raw(&["result", "arguments"]), "{}");

    for arguments in ["null", "{}", "[]", "\"x\"", "7", "false", "[1,null]"] {
        let params = format!(r#"{{"toolName":"tool","arguments":{arguments}}}"#);
        let id = id_of(&alice.call_text("store/create", &params).await.result());
        let resume = alice.call("store/resume", json!({"taskId": id})).await;
        assert_eq!(resume.raw(&["result", "arguments"]), arguments);
    }
}

async fn resume_gives_what_the_handler_needs(broker: &Broker) {
    let alice = broker.user("alice");
    let id = id_of(&alice.create(json!({"toolName": "report", "arguments": {"q": [1]}})).await);

    let resume = alice.call("store/resume", json!({"taskId": id})).await.result();

    assert_eq!(resume["toolName"], "report");
    assert_eq!(resume["arguments"], json!({"q": [1]}));
    assert_eq!(resume["inputResponses"], json!({}));
    assert_eq!(resume["revision"], 1);
    assert_eq!(resume["cancelRequested"], false);
    assert!(resume["remainingMs"].as_u64().unwrap() <= 300_000);
}

async fn the_poll_interval_has_bounds(broker: &Broker) {
    let alice = broker.user("alice");
    for legal in [100, 3_600_000] {
        let created = alice.create(json!({"pollIntervalMs": legal})).await;
        assert_eq!(created["task"]["pollIntervalMs"], legal);
    }
    for illegal in ["99", "3600001", "0", "-1", "2000.5", "2e3", "\"2000\"", "18446744073709551616"] {
        let params = format!(r#"{{"toolName":"tool","pollIntervalMs":{illegal}}}"#);
        alice.call_text("store/create", &params).await.error().assert_invalid("pollIntervalMs");
    }
}

async fn params_of_the_wrong_kind_are_refused_by_name_and_nothing_is_created(broker: &Broker) {
    let alice = broker.user("alice");
    for (member, params) in [
        ("toolName", json!({})),
        ("toolName", json!({"toolName": 5})),
        ("toolName", json!({"toolName": null})),
        ("meta", json!({"toolName": "tool", "meta": []})),
        ("meta", json!({"toolName": "tool", "meta": "x"})),
        ("owner", json!({"toolName": "tool", "owner": 5})),
        ("owner", json!({"toolName": "tool", "owner": {"sub": "x"}})),
        ("idempotencyKey", json!({"toolName": "tool", "idempotencyKey": 5})),
        ("idempotencyKey", json!({"toolName": "tool", "idempotencyKey": ""})),
        ("idempotencyKey", json!({"toolName": "tool", "idempotencyKey": "k".repeat(129)})),
        ("idempotencyKey", json!({"toolName": "tool", "idempotencyKey": "é".repeat(65)})),
    ] {
        alice.call("store/create", params).await.error().assert_invalid(member);
    }
    assert_eq!(alice.call("store/list", json!({})).await.result()["tasks"], json!([]));
}

async fn an_idempotency_key_may_have_128_bytes(broker: &Broker) {
    let alice = broker.user("alice");
    for key in ["k".repeat(128), "é".repeat(64)] {
        assert_eq!(alice.create(json!({"idempotencyKey": key})).await["created"], true);
    }
}

async fn a_tool_name_above_256_bytes_hits_a_limit(broker: &Broker) {
    let alice = broker.user("alice");
    alice.create(json!({"toolName": "t".repeat(256)})).await;
    for long in ["t".repeat(257), "é".repeat(129)] {
        let error = alice.call("store/create", json!({"toolName": long})).await.error();
        error.assert_limit();
        assert_eq!(error.data["maximum"], 256);
    }
}

async fn meta_above_64_kib_hits_a_limit_and_changes_nothing(broker: &Broker) {
    let alice = broker.user("alice");
    // {"m":"..."} is 8 bytes around its text.
    let meta = |bytes: usize| json!({"m": "x".repeat(bytes - 8)});
    let id = id_of(&alice.create(json!({"meta": meta(64 * 1024)})).await);
    let before = alice.get(&id).await["task"].clone();

    let error = alice.call("store/setMeta", json!({"taskId": id, "meta": meta(64 * 1024 + 1)})).await.error();
    error.assert_limit();
    assert_eq!(alice.get(&id).await["task"], before);

    let create = json!({"toolName": "tool", "meta": meta(64 * 1024 + 1)});
    alice.call("store/create", create).await.error().assert_limit();
    let listed = alice.call("store/list", json!({})).await.result();
    assert_eq!(listed["tasks"].as_array().unwrap().len(), 1);
}

async fn a_payload_of_4_mib_is_kept_and_one_byte_more_changes_nothing(broker: &Broker) {
    let alice = broker.user("alice");
    let payload = |bytes: usize| format!("\"{}\"", "x".repeat(bytes - 2));
    let create = |arguments: String| format!(r#"{{"toolName":"tool","arguments":{arguments}}}"#);
    let most = 4 * 1024 * 1024;

    let id = id_of(&alice.call_text("store/create", &create(payload(most))).await.result());
    let resume = alice.call("store/resume", json!({"taskId": id})).await;
    assert!(resume.raw(&["result", "arguments"]) == payload(most), "the largest payload came back changed");

    let error = alice.call_text("store/create", &create(payload(most + 1))).await.error();
    error.assert_limit();
    assert_eq!(error.data["maximum"], most);

    let before = alice.get(&id).await["task"].clone();
    let result = format!(r#"{{"taskId":"{id}","result":{{"a":{}}}}}"#, payload(most));
    alice.call_text("store/complete", &result).await.error().assert_limit();
    let failure =
        format!(r#"{{"taskId":"{id}","error":{{"code":1,"message":"x","data":{}}}}}"#, payload(most + 1));
    alice.call_text("store/fail", &failure).await.error().assert_limit();
    assert_eq!(alice.get(&id).await["task"], before, "an oversized payload must change nothing");
}

async fn info_names_the_api_and_the_store(broker: &Broker) {
    let alice = broker.user("alice");
    for params in ["{}", r#"{"unknown":1}"#] {
        let info = alice.call_text("store/info", params).await.result();
        assert_eq!(info["api"], 1, "{info}");
        assert!(info["name"].is_string() && info["version"].is_string(), "{info}");
        assert!(info["storeId"].is_string(), "{info}");
    }
    let bare = alice.post(r#"{"jsonrpc":"2.0","id":1,"method":"store/info"}"#).await.result();
    assert_eq!(bare, alice.call("store/info", json!({})).await.result());
    assert_eq!(bare, broker.anonymous().call("store/info", json!({})).await.result());
}

on_both_stores!(
    a_new_task_shows_everything_at_once,
    a_task_without_an_owner_shows_null,
    times_are_utc_with_three_decimals,
    ids_are_128_unguessable_bits_in_lower_case_hex,
    absent_arguments_are_an_empty_object_and_any_other_json_is_kept,
    resume_gives_what_the_handler_needs,
    the_poll_interval_has_bounds,
    params_of_the_wrong_kind_are_refused_by_name_and_nothing_is_created,
    an_idempotency_key_may_have_128_bytes,
    a_tool_name_above_256_bytes_hits_a_limit,
    meta_above_64_kib_hits_a_limit_and_changes_nothing,
    a_payload_of_4_mib_is_kept_and_one_byte_more_changes_nothing,
    info_names_the_api_and_the_store,
);
