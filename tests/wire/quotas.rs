//! How many live tasks an owner, and the whole broker, may have.

use serde_json::{Value, json};

use crate::harness::{Broker, BrokerOptions, Client, Store, id_of};

async fn refused(client: &Client, more: Value, maximum: u64) {
    let mut params = json!({"toolName": "tool"});
    params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let error = client.call("store/create", params).await.error();
    error.assert_limit();
    assert_eq!(error.data["maximum"], maximum);
}

fn three_per_owner() -> Broker {
    BrokerOptions::new(Store::Memory).flag("--quota-tasks-per-owner", 3).start()
}

#[tokio::test]
async fn an_owner_has_a_quota_of_live_tasks_and_the_room_of_one_that_goes_is_free_again() {
    let broker = three_per_owner();
    let alice = broker.user("alice");
    let mut ids = Vec::new();
    for _ in 0..3 {
        ids.push(alice.new_task().await);
    }
    refused(&alice, json!({}), 3).await;
    assert_eq!(alice.call("store/list", json!({})).await.result()["tasks"].as_array().unwrap().len(), 3);

    alice.call("store/discard", json!({"taskId": ids[0]})).await.result();
    alice.new_task().await;
    refused(&alice, json!({}), 3).await;

    alice.call("store/setTtl", json!({"taskId": ids[1], "ttlMs": 0})).await.result();
    alice.new_task().await;
    refused(&alice, json!({}), 3).await;

    alice.get(&ids[2]).await;
    broker.user("bob").new_task().await;
}

#[tokio::test]
async fn the_quota_is_the_owners_not_the_creators() {
    let broker = three_per_owner();
    let (service, alice) = (broker.service("service"), broker.user("alice"));
    for owner in ["one", "two", "three", "four"] {
        service.create(json!({"owner": owner})).await;
    }
    for _ in 0..2 {
        service.create(json!({"owner": alice.subject()})).await;
    }
    alice.new_task().await;
    refused(&service, json!({"owner": alice.subject()}), 3).await;
    refused(&alice, json!({}), 3).await;
}

#[tokio::test]
async fn tasks_without_an_owner_have_no_quota_of_their_own() {
    let broker = three_per_owner();
    for _ in 0..5 {
        broker.anonymous().new_task().await;
    }
}

#[tokio::test]
async fn a_retried_create_needs_no_room() {
    let broker = three_per_owner();
    let alice = broker.user("alice");
    let first = alice.create(json!({"idempotencyKey": "key"})).await;
    for _ in 0..2 {
        alice.new_task().await;
    }
    let replay = alice.create(json!({"idempotencyKey": "key"})).await;
    assert_eq!((&replay["created"], id_of(&replay)), (&json!(false), id_of(&first)));
    refused(&alice, json!({"idempotencyKey": "another"}), 3).await;
}

#[tokio::test]
async fn the_broker_has_a_limit_of_all_live_tasks() {
    let broker = BrokerOptions::new(Store::Memory).flag("--max-tasks", 4).start();
    let (alice, bob, anonymous) = (broker.user("alice"), broker.user("bob"), broker.anonymous());
    let id = alice.new_task().await;
    bob.new_task().await;
    for _ in 0..2 {
        anonymous.new_task().await;
    }
    for client in [&alice, &bob, &anonymous] {
        refused(client, json!({}), 4).await;
    }
    alice.call("store/discard", json!({"taskId": id})).await.result();
    bob.new_task().await;
}

#[tokio::test]
async fn many_creates_at_once_do_not_exceed_the_quota() {
    let broker = three_per_owner();
    let alice = broker.user("alice");
    let calls: Vec<_> = (0..20)
        .map(|_| {
            let alice = alice.clone();
            tokio::spawn(async move { alice.call("store/create", json!({"toolName": "tool"})).await })
        })
        .collect();
    let mut created = 0;
    for call in calls {
        created += u32::from(!call.await.unwrap().is_error());
    }
    assert_eq!(created, 3);
}

#[tokio::test]
async fn an_owner_has_a_quota_of_bytes() {
    let options = BrokerOptions::new(Store::Memory).flag("--quota-bytes-per-owner", 1_000_000);
    let broker = options.start();
    let alice = broker.user("alice");
    let large = || json!({"arguments": "x".repeat(400_000)});
    let first = id_of(&alice.create(large()).await);
    alice.create(large()).await;
    let mut params = large();
    params["toolName"] = json!("tool");
    let refusal = alice.call("store/create", params).await;
    refusal.error().assert_limit();
    broker.user("bob").create(large()).await;

    alice.call("store/discard", json!({"taskId": first})).await.result();
    alice.create(large()).await;
}
