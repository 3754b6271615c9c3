//! The life of a task ends with its TTL, counted from creation; from then on it reads as one that never was.

use std::time::Duration;

use serde_json::{Value, json};
use task_broker_protocol::methods::TABLE;
use tokio::time::Instant;

use crate::harness::{Broker, BrokerOptions, Client, Store, id_of};
use crate::methods::sample_params;

const NEVER_ISSUED: &str = "0123456789abcdef0123456789abcdef";

async fn a_ttl_of_zero_is_legal_and_expires_at_once(broker: &Broker) {
    let alice = broker.user("alice");

    let created = alice.create(json!({"ttlMs": 0})).await;

    assert_eq!(created["created"], true);
    assert_eq!(created["task"]["ttlMs"], 0);
    let id = id_of(&created);
    assert_eq!(alice.call("store/get", json!({"taskId": id})).await.error().kind, "task_not_found");
    assert_eq!(alice.call("store/list", json!({})).await.result()["tasks"], json!([]));
}

async fn an_expired_task_is_absent_from_every_method_that_takes_one(broker: &Broker) {
    let alice = broker.user("alice");
    let id = alice.expired_task().await;

    for entry in TABLE.iter().filter(|entry| entry.takes_task) {
        let answer = alice.call(entry.name, sample_params(entry.name, &id)).await;
        let never = alice.call(entry.name, sample_params(entry.name, NEVER_ISSUED)).await;
        assert_eq!(answer.error().kind, "task_not_found", "{}", entry.name);
        assert_eq!(answer.fingerprint(), never.fingerprint(), "{}", entry.name);
    }
    assert_no_trace(&alice, &id).await;
}

/// The task is in no view that goes over many tasks.
async fn assert_no_trace(client: &Client, id: &str) {
    let statuses = client.call("store/statuses", json!({"taskIds": [id]})).await.result();
    assert_eq!(statuses["statuses"], json!({id: null}));
    for role in ["creator", "owner"] {
        let listed = client.call("store/list", json!({"role": role})).await.result();
        let ids: Vec<_> = listed["tasks"].as_array().unwrap().iter().map(id_of).collect();
        assert!(!ids.contains(&id.to_owned()), "{role}: {ids:?}");
    }
}

async fn a_task_that_ran_out_by_itself_is_absent_from_every_method_too(broker: &Broker) {
    let alice = broker.user("alice");
    let id = id_of(&alice.create(json!({"ttlMs": 120})).await);
    alice.until_gone(&id, Duration::from_secs(5)).await;

    for entry in TABLE.iter().filter(|entry| entry.takes_task) {
        let answer = alice.call(entry.name, sample_params(entry.name, &id)).await;
        assert_eq!(answer.error().kind, "task_not_found", "{}", entry.name);
    }
    assert_no_trace(&alice, &id).await;
}

async fn a_write_to_an_unknown_or_expired_id_makes_no_phantom(broker: &Broker) {
    let alice = broker.user("alice");
    for id in [NEVER_ISSUED.to_owned(), alice.expired_task().await] {
        for method in ["store/complete", "store/fail", "store/requireInput", "store/setTtl", "store/setMeta"]
        {
            let error = alice.call(method, sample_params(method, &id)).await.error();
            assert_eq!(error.kind, "task_not_found", "{method}");
        }
        let ttl = json!({"taskId": id, "ttlMs": 600_000});
        assert_eq!(alice.call("store/setTtl", ttl).await.error().kind, "task_not_found");
        assert_eq!(alice.call("tasks/get", json!({"taskId": id})).await.error().kind, "task_not_found");
        assert_no_trace(&alice, &id).await;
    }
}

#[tokio::test]
async fn no_phantom_appears_after_a_restart() {
    let mut broker = BrokerOptions::new(Store::Sled).start();
    let alice = broker.user("alice");
    let expired = alice.expired_task().await;
    let kept = alice.new_task().await;
    for id in [NEVER_ISSUED, &expired] {
        let complete = json!({"taskId": id, "result": {}});
        assert_eq!(alice.call("store/complete", complete).await.error().kind, "task_not_found");
    }
    let subject = alice.subject().to_owned();

    broker.kill9();
    broker.restart();

    let alice = broker.subject(&subject);
    for id in [NEVER_ISSUED, &expired] {
        assert_eq!(alice.call("store/get", json!({"taskId": id})).await.error().kind, "task_not_found");
        assert_no_trace(&alice, id).await;
    }
    alice.get(&kept).await;
}

async fn the_ttl_counts_from_creation_not_from_completion(broker: &Broker) {
    let alice = broker.user("alice");
    let id = id_of(&alice.create(json!({"ttlMs": 1500})).await);
    let created = Instant::now();
    // Half of the life goes by; the wait ends by its timeout.
    alice.call("store/wait", json!({"taskId": id, "timeoutMs": 700})).await.result();

    alice.call("store/complete", json!({"taskId": id, "result": {"done": 1}})).await.result();

    let elapsed = u64::try_from(created.elapsed().as_millis()).unwrap();
    let answer = alice.call("store/get", json!({"taskId": id})).await.result();
    assert_eq!(answer["task"]["status"], "completed");
    let remaining = answer["remainingMs"].as_u64().unwrap();
    assert!(remaining <= 1500 - elapsed, "{remaining} ms left after {elapsed} ms of 1500");
    alice.until_gone(&id, Duration::from_secs(5)).await;
    assert!(created.elapsed() >= Duration::from_millis(1400), "gone after {:?}", created.elapsed());
}

async fn a_working_task_expires_too(broker: &Broker) {
    let alice = broker.user("alice");
    let id = id_of(&alice.create(json!({"ttlMs": 200})).await);
    alice.until_gone(&id, Duration::from_secs(5)).await;
}

async fn no_write_but_set_ttl_moves_the_deadline(broker: &Broker) {
    let alice = broker.user("alice");
    let id = id_of(&alice.create(json!({"ttlMs": 60_000})).await);
    let mut last = 60_000;
    for (method, more) in [
        ("store/setMeta", json!({"meta": {}})),
        ("store/requireInput", json!({"inputRequests": {"k": {"method": "roots/list"}}})),
        ("store/applyInput", json!({"inputResponses": {"k": {}}})),
        ("store/complete", json!({"result": {}})),
        ("store/cancel", json!({})),
    ] {
        let mut params = json!({"taskId": id});
        params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        alice.call(method, params).await.result();
        let snapshot = alice.get(&id).await;
        let remaining = snapshot["remainingMs"].as_u64().unwrap();
        assert!(remaining <= last, "{method}: {remaining} ms left, {last} before");
        assert_eq!(snapshot["task"]["ttlMs"], 60_000, "{method}");
        last = remaining;
    }
}

async fn set_ttl_extends_and_shortens_and_answers_what_is_in_force(broker: &Broker) {
    let alice = broker.user("alice");
    let id = id_of(&alice.create(json!({"ttlMs": 60_000})).await);

    for ttl in [120_000, 30_000] {
        let outcome = alice.call("store/setTtl", json!({"taskId": id, "ttlMs": ttl})).await.result();
        assert_eq!(outcome["applied"], true);
        assert_eq!(outcome["ttlMs"], ttl);
        let remaining = outcome["remainingMs"].as_u64().unwrap();
        assert!((ttl - 10_000..=ttl).contains(&remaining), "{remaining} of {ttl}");
        assert_eq!(alice.get(&id).await["task"]["ttlMs"], ttl);
    }
}

async fn set_ttl_to_zero_retires_the_task_at_once(broker: &Broker) {
    let alice = broker.user("alice");
    let id = alice.new_task().await;

    let outcome = alice.call("store/setTtl", json!({"taskId": id, "ttlMs": 0})).await.result();

    assert_eq!(outcome["applied"], true);
    assert_eq!((&outcome["ttlMs"], &outcome["remainingMs"]), (&json!(0), &json!(0)));
    assert_eq!(alice.call("store/get", json!({"taskId": id})).await.error().kind, "task_not_found");
}

async fn a_longer_ttl_keeps_a_task_alive_past_its_first_deadline(broker: &Broker) {
    let alice = broker.user("alice");
    let long = id_of(&alice.create(json!({"ttlMs": 400})).await);
    let short = id_of(&alice.create(json!({"ttlMs": 400})).await);
    alice.call("store/setTtl", json!({"taskId": long, "ttlMs": 60_000})).await.result();

    alice.until_gone(&short, Duration::from_secs(5)).await;

    assert_eq!(alice.get(&long).await["task"]["ttlMs"], 60_000);
}

async fn a_wait_ends_with_not_found_the_moment_the_task_expires(broker: &Broker) {
    let alice = broker.user("alice");
    let id = id_of(&alice.create(json!({"ttlMs": 700})).await);
    let start = Instant::now();

    let answer = alice.call("store/wait", json!({"taskId": id, "timeoutMs": 15_000})).await;

    assert_eq!(answer.error().kind, "task_not_found");
    assert!(start.elapsed() < Duration::from_secs(3), "woken after {:?}", start.elapsed());
}

async fn a_wait_follows_a_ttl_that_is_changed_while_it_waits(broker: &Broker) {
    let alice = broker.user("alice");
    let id = alice.new_task().await;
    let waiting = tokio::spawn({
        let (alice, id) = (alice.clone(), id.clone());
        async move {
            let since: Value = json!({"taskId": id, "timeoutMs": 15_000, "sinceRevision": 9});
            alice.call("store/wait", since).await
        }
    });
    let start = Instant::now();

    alice.call("store/setTtl", json!({"taskId": id, "ttlMs": 500})).await.result();

    assert_eq!(waiting.await.unwrap().error().kind, "task_not_found");
    assert!(start.elapsed() < Duration::from_secs(3), "woken after {:?}", start.elapsed());
}

on_both_stores!(
    a_ttl_of_zero_is_legal_and_expires_at_once,
    an_expired_task_is_absent_from_every_method_that_takes_one,
    a_task_that_ran_out_by_itself_is_absent_from_every_method_too,
    a_write_to_an_unknown_or_expired_id_makes_no_phantom,
    the_ttl_counts_from_creation_not_from_completion,
    a_working_task_expires_too,
    no_write_but_set_ttl_moves_the_deadline,
    set_ttl_extends_and_shortens_and_answers_what_is_in_force,
    set_ttl_to_zero_retires_the_task_at_once,
    a_longer_ttl_keeps_a_task_alive_past_its_first_deadline,
    a_wait_ends_with_not_found_the_moment_the_task_expires,
    a_wait_follows_a_ttl_that_is_changed_while_it_waits,
);
