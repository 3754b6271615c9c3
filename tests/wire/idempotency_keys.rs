//! What an idempotency key stands for: its scope, the params it was used with, how long it is kept.

use serde_json::{Value, json};
use task_broker_protocol::methods::TABLE;

use crate::harness::{Broker, Client, accept, id_of};
use crate::methods::sample_params;

async fn set_meta(client: &Client, id: &str, key: &str, meta: Value) -> Value {
    let params = json!({"taskId": id, "meta": meta, "idempotencyKey": key});
    client.call("store/setMeta", params).await.result()
}

async fn the_same_key_with_other_params_is_a_mismatch_and_changes_nothing(broker: &Broker) {
    let alice = broker.user("alice");
    let id = alice.new_task().await;
    set_meta(&alice, &id, "key", json!({"n": 1})).await;
    let before = alice.get(&id).await["task"].clone();

    let other = json!({"taskId": id, "meta": {"n": 2}, "idempotencyKey": "key"});
    assert_eq!(alice.call("store/setMeta", other).await.error().kind, "idempotency_mismatch");

    assert_eq!(alice.get(&id).await["task"], before);
    assert_eq!(set_meta(&alice, &id, "key", json!({"n": 1})).await["replayed"], true, "still known");
}

async fn the_same_key_with_another_method_is_a_mismatch(broker: &Broker) {
    let alice = broker.user("alice");
    let id = alice.asking_task(&["k1"]).await;
    set_meta(&alice, &id, "key", json!({"n": 1})).await;

    let changing = TABLE.iter().filter(|entry| entry.changes && entry.takes_task);
    for method in changing.map(|entry| entry.name).filter(|name| name.starts_with("store/")) {
        let mut params = sample_params(method, &id);
        params["idempotencyKey"] = json!("key");
        if method == "store/setMeta" {
            params["meta"] = json!({"n": 2});
        }
        assert_eq!(alice.call(method, params).await.error().kind, "idempotency_mismatch", "{method}");
    }
    let snapshot = alice.get(&id).await;
    assert_eq!((&snapshot["revision"], &snapshot["task"]["status"]), (&json!(3), &json!("input_required")));
}

async fn a_create_key_with_other_params_is_a_mismatch_and_creates_nothing(broker: &Broker) {
    let alice = broker.user("alice");
    alice.create(json!({"arguments": {"q": 1}, "idempotencyKey": "key"})).await;

    for other in [
        json!({"toolName": "tool", "arguments": {"q": 2}, "idempotencyKey": "key"}),
        json!({"toolName": "other", "arguments": {"q": 1}, "idempotencyKey": "key"}),
        json!({"toolName": "tool", "arguments": {"q": 1}, "ttlMs": 5000, "idempotencyKey": "key"}),
    ] {
        assert_eq!(alice.call("store/create", other).await.error().kind, "idempotency_mismatch");
    }
    assert_eq!(alice.call("store/list", json!({})).await.result()["tasks"].as_array().unwrap().len(), 1);
}

async fn a_task_keeps_its_newest_32_outcomes(broker: &Broker) {
    let alice = broker.user("alice");
    let id = alice.new_task().await;
    let key = |n: usize| format!("key-{n}");
    for n in 0..33 {
        set_meta(&alice, &id, &key(n), json!({"n": n})).await;
    }
    assert_eq!(alice.get(&id).await["revision"], 34);

    for n in 1..33 {
        let replay = set_meta(&alice, &id, &key(n), json!({"n": n})).await;
        assert_eq!(replay["replayed"], true, "{n}");
        assert_eq!(replay["revision"], n + 2, "{n}");
    }
    assert_eq!(alice.get(&id).await["revision"], 34, "replays change nothing");

    let forgotten = set_meta(&alice, &id, &key(0), json!({"n": 0})).await;
    assert_ne!(forgotten["replayed"], true, "{forgotten}");
    assert_eq!(forgotten["revision"], 35, "carried out anew");
}

async fn the_create_key_is_none_of_the_32(broker: &Broker) {
    let alice = broker.user("alice");
    let create = json!({"idempotencyKey": "create"});
    let id = id_of(&alice.create(create.clone()).await);
    for n in 0..33 {
        set_meta(&alice, &id, &format!("key-{n}"), json!({"n": n})).await;
    }
    let replay = alice.create(create).await;
    assert_eq!((&replay["created"], id_of(&replay)), (&json!(false), id));
}

async fn a_key_is_scoped_to_its_task(broker: &Broker) {
    let alice = broker.user("alice");
    let (one, two) = (alice.new_task().await, alice.new_task().await);
    set_meta(&alice, &one, "key", json!({"n": 1})).await;

    let other = set_meta(&alice, &two, "key", json!({"n": 2})).await;

    assert_ne!(other["replayed"], true, "{other}");
    assert_eq!(alice.get(&two).await["task"]["_meta"], json!({"n": 2}));
    assert_eq!(alice.get(&one).await["task"]["_meta"], json!({"n": 1}));
}

async fn a_create_key_is_scoped_to_its_creator(broker: &Broker) {
    let (alice, bob) = (broker.user("alice"), broker.user("bob"));
    let alices = alice.create(json!({"idempotencyKey": "key"})).await;

    let bobs = bob.create(json!({"idempotencyKey": "key", "arguments": {"other": true}})).await;

    assert_eq!(bobs["created"], true);
    assert_ne!(id_of(&bobs), id_of(&alices));
}

async fn a_create_key_may_be_used_for_a_command_too(broker: &Broker) {
    let alice = broker.user("alice");
    let id = id_of(&alice.create(json!({"idempotencyKey": "key"})).await);
    let outcome = set_meta(&alice, &id, "key", json!({"n": 1})).await;
    assert_eq!(outcome["applied"], true);
    assert_ne!(outcome["replayed"], true, "{outcome}");
}

async fn the_key_is_looked_at_before_the_expected_revision(broker: &Broker) {
    let alice = broker.user("alice");
    let id = alice.new_task().await;
    let params = json!({"taskId": id, "meta": {"n": 1}, "idempotencyKey": "key", "expectedRevision": 1});
    assert_eq!(alice.call("store/setMeta", params.clone()).await.result()["revision"], 2);

    let replay = alice.call("store/setMeta", params).await.result();

    assert_eq!((&replay["replayed"], &replay["revision"]), (&json!(true), &json!(2)));
}

async fn a_rejection_is_not_stored(broker: &Broker) {
    let alice = broker.user("alice");
    let id = alice.new_task().await;
    let status = json!({"taskId": id, "status": "input_required", "idempotencyKey": "key"});
    let rejected = alice.call("store/setStatus", status.clone()).await;
    assert_eq!(rejected.error().kind, "invalid_transition");
    alice.ask(&id, &["k"]).await;
    alice.call("store/setStatus", json!({"taskId": id, "status": "working"})).await.result();

    let outcome = alice.call("store/setStatus", status).await.result();

    assert_eq!((&outcome["applied"], &outcome["status"]), (&json!(true), &json!("input_required")));
    assert_ne!(outcome["replayed"], true, "{outcome}");
}

async fn a_key_of_a_rejected_write_may_be_used_with_other_params(broker: &Broker) {
    let alice = broker.user("alice");
    let id = alice.new_task().await;
    let stale = json!({"taskId": id, "meta": {"n": 1}, "idempotencyKey": "key", "expectedRevision": 7});
    assert_eq!(alice.call("store/setMeta", stale).await.error().kind, "revision_conflict");

    let outcome = set_meta(&alice, &id, "key", json!({"n": 2})).await;

    assert_eq!(outcome["revision"], 2);
    assert_ne!(outcome["replayed"], true, "{outcome}");
}

async fn a_create_that_was_refused_leaves_its_key_free(broker: &Broker) {
    let alice = broker.user("alice");
    let long = json!({"toolName": "t".repeat(257), "idempotencyKey": "key"});
    alice.call("store/create", long).await.error().assert_limit();
    assert_eq!(alice.create(json!({"idempotencyKey": "key"})).await["created"], true);
}

async fn keys_are_compared_byte_by_byte(broker: &Broker) {
    let alice = broker.user("alice");
    let id = alice.new_task().await;
    for (n, key) in
        ["key", "KEY", "key ", " key", "key\u{0}", "k\u{e9}y", "ke\u{301}y"].into_iter().enumerate()
    {
        let outcome = set_meta(&alice, &id, key, json!({"n": n})).await;
        assert_ne!(outcome["replayed"], true, "{key:?}");
        assert_eq!(outcome["revision"], n + 2, "{key:?}");
    }
}

async fn keys_of_another_kind_or_length_are_refused_on_every_changing_method(broker: &Broker) {
    let alice = broker.user("alice");
    let id = alice.asking_task(&["k1"]).await;
    for method in TABLE.iter().filter(|entry| entry.changes && entry.name.starts_with("store/")) {
        for illegal in [json!(""), json!("k".repeat(129)), json!(5), json!({}), json!([])] {
            let mut params = sample_params(method.name, &id);
            params["idempotencyKey"] = illegal;
            alice.call(method.name, params).await.error().assert_invalid("idempotencyKey");
        }
    }
    assert_eq!(alice.get(&id).await["revision"], 2);
}

async fn an_owner_cannot_learn_a_workers_outcome_by_its_key(broker: &Broker) {
    let (service, alice) = (broker.service("service"), broker.user("alice"));
    let id = id_of(&service.create(json!({"owner": alice.subject()})).await);
    set_meta(&service, &id, "key", json!({"n": 1})).await;

    let params = json!({"taskId": id, "meta": {"n": 1}, "idempotencyKey": "key"});
    assert_eq!(alice.call("store/setMeta", params).await.error().kind, "task_not_found");
    let update = json!({"taskId": id, "inputResponses": {"k": accept("k")}, "idempotencyKey": "other"});
    assert_eq!(alice.call("tasks/update", update).await.result()["resultType"], "complete");
}

on_both_stores!(
    the_same_key_with_other_params_is_a_mismatch_and_changes_nothing,
    the_same_key_with_another_method_is_a_mismatch,
    a_create_key_with_other_params_is_a_mismatch_and_creates_nothing,
    a_task_keeps_its_newest_32_outcomes,
    the_create_key_is_none_of_the_32,
    a_key_is_scoped_to_its_task,
    a_create_key_is_scoped_to_its_creator,
    a_create_key_may_be_used_for_a_command_too,
    the_key_is_looked_at_before_the_expected_revision,
    a_rejection_is_not_stored,
    a_key_of_a_rejected_write_may_be_used_with_other_params,
    a_create_that_was_refused_leaves_its_key_free,
    keys_are_compared_byte_by_byte,
    keys_of_another_kind_or_length_are_refused_on_every_changing_method,
    an_owner_cannot_learn_a_workers_outcome_by_its_key,
);
