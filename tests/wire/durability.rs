//! What was acknowledged survives a kill, and times and ownership depend on neither the process nor its surroundings.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::harness::{Broker, BrokerOptions, Client, Store, accept, id_of, question, token};

/// Kills the broker, starts it again, and gives the client for the same subject, with a new token.
fn after_a_kill(broker: &mut Broker, client: &Client) -> Client {
    broker.kill9();
    broker.restart();
    let claims = json!({
        "sub": client.subject(), "aud": token::AUDIENCE, "exp": token::now() + 60, "jti": "another", "scope": "x",
    });
    let token = token::sign(token::HEADER, &claims.to_string());
    broker.bearer(&token).with_subject(client.subject())
}

/// A snapshot without what moves with the clock.
async fn stable(client: &Client, id: &str) -> Value {
    let mut snapshot = client.get(id).await;
    snapshot.as_object_mut().unwrap().remove("remainingMs");
    snapshot
}

#[tokio::test]
async fn every_acknowledged_change_is_there_after_a_kill() {
    let mut broker = BrokerOptions::new(Store::Sled).start();
    let alice = broker.user("alice");
    let mut ids = Vec::new();
    for (method, more) in [
        ("store/complete", json!({"result": {"n": 1}})),
        ("store/fail", json!({"error": {"code": 3, "message": "m", "data": null}})),
        ("store/cancel", json!({"reason": "r"})),
        ("store/setMeta", json!({"meta": {"n": 1}})),
        ("store/setTtl", json!({"ttlMs": 123_456})),
        ("store/requireInput", json!({"inputRequests": {"k": question("k")}, "message": "m"})),
    ] {
        let id = id_of(&alice.create(json!({"arguments": {"for": method}})).await);
        let mut params = json!({"taskId": id});
        params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        alice.call(method, params).await.result();
        ids.push(id);
    }
    let gone = alice.new_task().await;
    alice.call("store/discard", json!({"taskId": gone})).await.result();
    let mut before = Vec::new();
    for id in &ids {
        before.push(stable(&alice, id).await);
    }

    // Twice: what a recovery writes has to survive as well.
    let alice = after_a_kill(&mut broker, &alice);
    let alice = after_a_kill(&mut broker, &alice);

    for (id, before) in ids.iter().zip(&before) {
        assert_eq!(&stable(&alice, id).await, before);
    }
    assert_eq!(alice.call("store/get", json!({"taskId": gone})).await.error().kind, "task_not_found");
    let listed = alice.call("store/list", json!({})).await.result();
    assert_eq!(listed["tasks"].as_array().unwrap().len(), ids.len());
}

#[tokio::test]
async fn an_answer_survives_a_kill_right_after_its_acknowledgement() {
    let mut broker = BrokerOptions::new(Store::Sled).start();
    let alice = broker.user("alice");
    let id = alice.asking_task(&["perm"]).await;
    let response = json!({"action": "accept", "content": {"decision": "allow_once"}});
    let update = json!({"taskId": id, "inputResponses": {"perm": response}});
    alice.call("tasks/update", update).await.result();

    let alice = after_a_kill(&mut broker, &alice);

    let resume = alice.call("store/resume", json!({"taskId": id})).await.result();
    assert_eq!(resume["inputResponses"], json!({"perm": response}));
    let snapshot = alice.get(&id).await;
    assert_eq!((&snapshot["task"]["status"], &snapshot["inputRequests"]), (&json!("working"), &json!({})));
}

#[tokio::test]
async fn a_task_that_waits_for_input_can_be_answered_after_a_kill() {
    let mut broker = BrokerOptions::new(Store::Sled).start();
    let alice = broker.user("alice");
    let id = alice.asking_task(&["one", "two"]).await;
    alice.reply(&id, &["one"]).await;

    let alice = after_a_kill(&mut broker, &alice);

    assert_eq!(alice.get(&id).await["inputRequests"], json!({"two": question("two")}));
    let outcome = alice.reply(&id, &["one", "two"]).await;
    assert_eq!((&outcome["accepted"], &outcome["ignored"]), (&json!(["two"]), &json!(["one"])));
    let params = json!({"taskId": id, "inputRequests": {"one": question("one")}, "onSpentKey": "reject"});
    assert_eq!(
        alice.call("store/requireInput", params).await.error().kind,
        "invalid_transition",
        "still spent"
    );
    let resume = alice.call("store/resume", json!({"taskId": id})).await.result();
    assert_eq!(resume["inputResponses"], json!({"one": accept("one"), "two": accept("two")}));
}

#[tokio::test]
async fn a_cancel_request_is_durable_on_a_terminal_task_too() {
    let mut broker = BrokerOptions::new(Store::Sled).start();
    let alice = broker.user("alice");
    let id = alice.new_task().await;
    alice.call("store/complete", json!({"taskId": id, "result": {}})).await.result();
    alice.call("tasks/cancel", json!({"taskId": id})).await.result();

    let alice = after_a_kill(&mut broker, &alice);

    let snapshot = alice.get(&id).await;
    assert_eq!(
        (&snapshot["cancelRequested"], &snapshot["task"]["status"]),
        (&json!(true), &json!("completed"))
    );
}

#[tokio::test]
async fn arguments_outlive_their_first_ttl_and_a_kill() {
    let mut broker = BrokerOptions::new(Store::Sled).start();
    let alice = broker.user("alice");
    let arguments = r#"{"path":"/srv/x","n":9007199254740993,"deep":{"a":[1,null]}}"#;
    let params = format!(r#"{{"toolName":"report","arguments":{arguments},"ttlMs":600}}"#);
    let id = id_of(&alice.call_text("store/create", &params).await.result());
    alice.call("store/setTtl", json!({"taskId": id, "ttlMs": 600_000})).await.result();
    let witness = id_of(&alice.create(json!({"ttlMs": 700})).await);
    alice.until_gone(&witness, Duration::from_secs(5)).await;

    let alice = after_a_kill(&mut broker, &alice);
    alice.ask(&id, &["k1"]).await;
    alice.reply(&id, &["k1"]).await;

    let resume = alice.call("store/resume", json!({"taskId": id})).await;
    assert_eq!(resume.raw(&["result", "toolName"]), "\"report\"");
    assert_eq!(resume.raw(&["result", "arguments"]), arguments);
    assert_eq!(resume.result()["inputResponses"], json!({"k1": accept("k1")}));
}

#[tokio::test]
async fn a_task_expires_while_the_broker_is_down() {
    let mut broker = BrokerOptions::new(Store::Sled).start();
    let alice = broker.user("alice");
    let id = id_of(&alice.create(json!({"ttlMs": 150})).await);
    let kept = alice.new_task().await;
    broker.kill9();
    // Nothing signals the end of a TTL while no process runs.
    tokio::time::sleep(Duration::from_millis(200)).await;
    broker.restart();

    let alice = broker.subject(alice.subject());
    assert_eq!(alice.call("store/get", json!({"taskId": id})).await.error().kind, "task_not_found");
    let listed = alice.call("store/list", json!({})).await.result();
    assert_eq!(listed["tasks"].as_array().unwrap().iter().map(id_of).collect::<Vec<_>>(), [kept]);
}

#[tokio::test]
async fn the_store_keeps_its_id_and_another_store_has_another() {
    let mut broker = BrokerOptions::new(Store::Sled).start();
    let alice = broker.user("alice");
    let store_id = |info: Value| info["storeId"].clone();
    let before = store_id(alice.call("store/info", json!({})).await.result());

    let alice = after_a_kill(&mut broker, &alice);

    assert_eq!(store_id(alice.call("store/info", json!({})).await.result()), before);
    let other = BrokerOptions::new(Store::Sled).start();
    assert_ne!(store_id(other.anonymous().call("store/info", json!({})).await.result()), before);
}

#[tokio::test]
async fn times_are_utc_whatever_the_zone_and_language_of_the_process() {
    let options = BrokerOptions::new(Store::Memory).env("TZ", "Asia/Kathmandu");
    let broker = options.env("LC_ALL", "de_DE.UTF-8").env("LANG", "de_DE.UTF-8").start();
    let created = broker.user("alice").create(json!({})).await;
    let text = created["task"]["createdAt"].as_str().unwrap();
    let time: Timestamp = text.parse().unwrap();
    assert!(text.ends_with('Z'), "{text}");
    assert!((time.as_second() - token::now()).abs() <= 1, "{text}");
}

#[tokio::test]
async fn ids_of_two_processes_share_nothing() {
    let mut broker = BrokerOptions::new(Store::Sled).start();
    let alice = broker.user("alice");
    let mut ids = std::collections::BTreeSet::new();
    for _ in 0..50 {
        ids.insert(alice.new_task().await);
    }
    let alice = after_a_kill(&mut broker, &alice);
    for _ in 0..50 {
        ids.insert(alice.new_task().await);
    }
    assert_eq!(ids.len(), 100);
    let leading: std::collections::BTreeSet<_> = ids.iter().map(|id| &id[..2]).collect();
    assert!(leading.len() > 50, "only {} distinct first bytes", leading.len());
}

#[tokio::test]
async fn a_quick_succession_of_kills_and_restarts_loses_nothing() {
    let mut broker = BrokerOptions::new(Store::Sled).start();
    let mut alice = broker.user("alice");
    let mut ids = Vec::new();
    for round in 0..4 {
        let id = id_of(&alice.create(json!({"arguments": round})).await);
        alice.call("store/complete", json!({"taskId": id, "result": {"round": round}})).await.result();
        ids.push(id);
        alice = after_a_kill(&mut broker, &alice);
    }
    for (round, id) in ids.iter().enumerate() {
        assert_eq!(alice.get(id).await["result"], json!({"round": round}));
    }
}
