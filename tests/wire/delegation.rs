//! A service account with the scope `tasks:delegate` makes tasks for other subjects.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::harness::{Answer, Auth, Broker, BrokerOptions, Client, Store, accept, id_of, token};

async fn create_for(client: &Client, owner: &Value) -> Answer {
    client.call("store/create", json!({"toolName": "tool", "owner": owner})).await
}

async fn naming_another_owner_needs_the_scope(broker: &Broker) {
    let alice = broker.user("alice");
    for owner in [json!("somebody"), json!(null), json!(""), json!(alice.subject().to_uppercase())] {
        let error = create_for(&alice, &owner).await.error();
        assert_eq!(error.kind, "forbidden", "{owner}");
        assert_eq!(error.data["scope"], "tasks:delegate");
    }
    assert_eq!(alice.call("store/list", json!({})).await.result()["tasks"], json!([]), "nothing is created");
}

async fn a_caller_may_always_name_itself(broker: &Broker) {
    let (alice, anonymous) = (broker.user("alice"), broker.anonymous());
    let created = create_for(&alice, &json!(alice.subject())).await.result();
    assert_eq!(created["owner"], alice.subject());
    let created = create_for(&anonymous, &json!(null)).await.result();
    assert_eq!(created["owner"], json!(null));
    assert_eq!(create_for(&anonymous, &json!(alice.subject())).await.error().kind, "forbidden");
    assert_eq!(
        create_for(&anonymous, &json!("")).await.error().kind,
        "forbidden",
        "none is not the empty string"
    );
}

async fn the_scope_is_one_word_of_the_claim(broker: &Broker) {
    for scope in ["tasks:delegate", "other tasks:delegate", "tasks:delegate other", "a tasks:delegate b"] {
        let service = broker.bearer(&token::scoped("service", scope));
        assert_eq!(create_for(&service, &json!("x")).await.result()["owner"], "x", "{scope:?}");
    }
    for scope in
        ["", "tasks", "delegate", "tasks:delegated", "xtasks:delegate", "TASKS:DELEGATE", "tasks: delegate"]
    {
        let service = broker.bearer(&token::scoped("service", scope));
        assert_eq!(create_for(&service, &json!("x")).await.error().kind, "forbidden", "{scope:?}");
    }
}

async fn the_owner_named_polls_answers_and_cancels(broker: &Broker) {
    let (service, alice, bob) = (broker.service("service"), broker.user("alice"), broker.user("bob"));
    let created = create_for(&service, &json!(alice.subject())).await.result();
    assert_eq!(created["owner"], alice.subject());
    let id = id_of(&created);
    service.ask(&id, &["k"]).await;

    let seen = alice.call("tasks/get", json!({"taskId": id})).await.result();
    assert_eq!(seen["status"], "input_required");
    let update = json!({"taskId": id, "inputResponses": {"k": accept("k")}});
    assert_eq!(bob.call("tasks/update", update.clone()).await.error().kind, "task_not_found");
    alice.call("tasks/update", update).await.result();
    let resume = service.call("store/resume", json!({"taskId": id})).await.result();
    assert_eq!(resume["inputResponses"], json!({"k": accept("k")}));
    alice.call("tasks/cancel", json!({"taskId": id})).await.result();
    assert_eq!(service.get(&id).await["cancelRequested"], true);
}

async fn none_and_the_empty_string_are_two_owners(broker: &Broker) {
    let (service, anonymous) = (broker.service("service"), broker.anonymous());
    let nobodys = id_of(&create_for(&service, &json!(null)).await.result());
    let empty = id_of(&create_for(&service, &json!("")).await.result());
    assert_eq!(service.get(&nobodys).await["owner"], json!(null));
    assert_eq!(service.get(&empty).await["owner"], "");

    assert_eq!(anonymous.call("tasks/get", json!({"taskId": nobodys})).await.result()["taskId"], nobodys);
    assert_eq!(anonymous.call("tasks/get", json!({"taskId": empty})).await.error().kind, "task_not_found");
}

async fn an_owner_has_at_most_512_bytes(broker: &Broker) {
    let service = broker.service("service");
    for legal in ["o".repeat(512), "é".repeat(256)] {
        assert_eq!(create_for(&service, &json!(legal)).await.result()["owner"], legal);
    }
    for long in ["o".repeat(513), "é".repeat(257)] {
        create_for(&service, &json!(long)).await.error().assert_invalid("owner");
    }
}

async fn lists_go_by_creator_or_by_owner(broker: &Broker) {
    let (service, alice, bob) = (broker.service("service"), broker.user("alice"), broker.user("bob"));
    let for_alice = id_of(&create_for(&service, &json!(alice.subject())).await.result());
    let for_bob = id_of(&create_for(&service, &json!(bob.subject())).await.result());
    let own = service.new_task().await;
    let by_alice = alice.new_task().await;
    let list = async |client: &Client, params: Value| -> BTreeSet<String> {
        let page = client.call("store/list", params).await.result();
        page["tasks"].as_array().unwrap().iter().map(id_of).collect()
    };
    let ids = |ids: &[&String]| ids.iter().map(|id| (*id).clone()).collect::<BTreeSet<_>>();

    assert_eq!(list(&service, json!({})).await, ids(&[&own, &for_bob, &for_alice]));
    let filtered = json!({"role": "creator", "owner": alice.subject()});
    assert_eq!(list(&service, filtered).await, ids(&[&for_alice]));
    assert_eq!(list(&service, json!({"role": "owner"})).await, ids(&[&own]));
    assert_eq!(list(&alice, json!({"role": "owner"})).await, ids(&[&by_alice, &for_alice]));
    assert_eq!(list(&alice, json!({})).await, ids(&[&by_alice]));
    assert_eq!(list(&bob, json!({"role": "owner"})).await, ids(&[&for_bob]));
    assert_eq!(list(&bob, json!({"role": "owner", "owner": alice.subject()})).await, ids(&[]));
    assert_eq!(list(&bob, json!({"owner": alice.subject()})).await, ids(&[]));
}

#[tokio::test]
async fn with_authentication_off_everyone_may_name_owners() {
    let broker = BrokerOptions::new(Store::Memory).auth(Auth::Off).start();
    let anonymous = broker.anonymous();
    for owner in [json!("alice"), json!(""), json!(null)] {
        assert_eq!(create_for(&anonymous, &owner).await.result()["owner"], owner);
    }
    assert_eq!(anonymous.create(json!({})).await["owner"], json!(null));
    create_for(&anonymous, &json!("o".repeat(513))).await.error().assert_invalid("owner");
}

on_both_stores!(
    naming_another_owner_needs_the_scope,
    a_caller_may_always_name_itself,
    the_scope_is_one_word_of_the_claim,
    the_owner_named_polls_answers_and_cancels,
    none_and_the_empty_string_are_two_owners,
    an_owner_has_at_most_512_bytes,
    lists_go_by_creator_or_by_owner,
);
