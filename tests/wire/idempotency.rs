//! A retry under the same key gives the first outcome, and happens once.

use serde_json::{Value, json};
use task_broker_protocol::methods::TABLE;

use crate::harness::{Broker, BrokerOptions, Client, Store, accept, id_of};
use crate::methods::sample_params;

/// Sample params of the method with an idempotency key.
fn keyed(method: &str, id: &str, key: &str) -> Value {
    let mut params = sample_params(method, id);
    params["idempotencyKey"] = json!(key);
    params
}

/// The changing methods on one task that answer with an outcome, and leave a task behind.
fn outcome_methods() -> Vec<&'static str> {
    let changing = TABLE.iter().filter(|entry| entry.changes && entry.takes_task).map(|entry| entry.name);
    changing.filter(|name| name.starts_with("store/") && *name != "store/discard").collect()
}

/// What is the same in the first answer and in every replay.
fn essence(outcome: &Value) -> Value {
    let mut essence = outcome.clone();
    let members = essence.as_object_mut().unwrap();
    for moving in ["replayed", "remainingMs", "task"] {
        members.remove(moving);
    }
    essence
}

async fn a_replay_of_every_changing_command_gives_the_first_outcome(broker: &Broker) {
    let alice = broker.user("alice");
    assert!(outcome_methods().len() >= 8, "{:?}", outcome_methods());
    for method in outcome_methods() {
        let id = alice.asking_task(&["k1"]).await;

        let first = alice.call(method, keyed(method, &id, "key")).await.result();
        let between = alice.get(&id).await;
        let second = alice.call(method, keyed(method, &id, "key")).await.result();

        assert_eq!(first["applied"], true, "{method}");
        assert_eq!(first["revision"], 3, "{method}");
        assert_ne!(first["replayed"], true, "{method}: {first}");
        assert_eq!(second["replayed"], true, "{method}: {second}");
        assert_eq!(essence(&second), essence(&first), "{method}");
        let after = alice.get(&id).await;
        assert_eq!(after["task"], between["task"], "{method}");
        assert_eq!(after["revision"], 3, "{method}: carried out once");
    }
}

async fn a_replay_gives_the_first_outcome_also_after_the_task_has_moved_on(broker: &Broker) {
    let alice = broker.user("alice");
    for method in outcome_methods() {
        let id = alice.asking_task(&["k1"]).await;
        let first = alice.call(method, keyed(method, &id, "key")).await.result();
        alice.call("store/setMeta", json!({"taskId": id, "meta": {"moved": "on"}})).await.result();
        alice.call("store/cancel", json!({"taskId": id})).await.result();

        let replay = alice.call(method, keyed(method, &id, "key")).await.result();

        assert_eq!(replay["replayed"], true, "{method}");
        for member in ["applied", "status", "revision"] {
            assert_eq!(replay[member], first[member], "{method}: {member}");
        }
    }
}

async fn the_replay_of_an_answer_reports_again_what_it_accepted(broker: &Broker) {
    let alice = broker.user("alice");
    let id = alice.asking_task(&["one", "two"]).await;
    let params = json!({
        "taskId": id,
        "inputResponses": {"one": accept("1"), "zero": accept("0")},
        "idempotencyKey": "retry",
    });
    let first = alice.call("store/applyInput", params.clone()).await.result();
    alice.reply(&id, &["two"]).await;

    let replay = alice.call("store/applyInput", params).await.result();

    assert_eq!(replay["replayed"], true);
    assert_eq!(replay["accepted"], json!(["one"]));
    assert_eq!(replay["ignored"], json!(["zero"]));
    assert_eq!(replay["stillOutstanding"], json!(["two"]), "as it was then");
    assert_eq!(essence(&replay), essence(&first));
}

async fn an_ended_task_still_replays_its_ending(broker: &Broker) {
    let alice = broker.user("alice");
    for (method, more) in [
        ("store/complete", json!({"result": {"n": 1}})),
        ("store/fail", json!({"error": {"code": 1, "message": "m"}})),
    ] {
        let id = alice.new_task().await;
        let mut params = json!({"taskId": id, "idempotencyKey": "end"});
        params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        alice.call(method, params.clone()).await.result();

        let replay = alice.call(method, params).await.result();
        assert_eq!(
            replay["applied"], true,
            "one's own retried write is never reported as too late: {method}"
        );
        let keyless = sample_params(method, &id);
        assert_eq!(alice.call(method, keyless).await.result()["applied"], false, "{method}");
    }
}

async fn the_owners_commands_are_acknowledged_again_and_happen_once(broker: &Broker) {
    let alice = broker.user("alice");
    let owners = TABLE.iter().filter(|entry| entry.changes && entry.name.starts_with("tasks/"));
    for method in owners.map(|entry| entry.name) {
        let id = alice.asking_task(&["k1"]).await;
        for _ in 0..2 {
            let answer = alice.call(method, keyed(method, &id, "key")).await.result();
            assert_eq!(answer["resultType"], "complete", "{method}");
            assert_eq!(alice.get(&id).await["revision"], 3, "{method}");
        }
    }
}

async fn a_replayed_create_answers_the_current_snapshot(broker: &Broker) {
    let alice = broker.user("alice");
    let create = json!({"arguments": {"q": 1}, "idempotencyKey": "once"});
    let first = alice.create(create.clone()).await;
    let id = id_of(&first);
    alice.call("store/complete", json!({"taskId": id, "result": {"n": 1}})).await.result();

    let replay = alice.create(create).await;

    assert_eq!((&first["created"], &replay["created"]), (&json!(true), &json!(false)));
    assert_eq!(id_of(&replay), id);
    assert_eq!(replay["task"]["status"], "completed");
    assert_eq!(replay["result"], json!({"n": 1}));
    assert_eq!(replay["revision"], 2);
    assert_eq!(alice.call("store/list", json!({})).await.result()["tasks"].as_array().unwrap().len(), 1);
}

async fn many_creates_at_once_under_one_key_make_one_task(broker: &Broker) {
    let alice = broker.user("alice");
    let calls: Vec<_> = (0..20)
        .map(|_| {
            let alice = alice.clone();
            tokio::spawn(async move { alice.create(json!({"idempotencyKey": "once"})).await })
        })
        .collect();

    let (mut ids, mut created) = (std::collections::BTreeSet::new(), 0);
    for call in calls {
        let snapshot = call.await.unwrap();
        ids.insert(id_of(&snapshot));
        created += u32::from(snapshot["created"] == true);
    }
    assert_eq!((ids.len(), created), (1, 1));
}

async fn many_commands_at_once_under_one_key_happen_once(broker: &Broker) {
    let alice = broker.user("alice");
    let id = alice.asking_task(&["k1"]).await;
    let calls: Vec<_> = (0..20)
        .map(|_| {
            let (alice, params) = (alice.clone(), keyed("store/applyInput", &id, "once"));
            tokio::spawn(async move { alice.call("store/applyInput", params).await.result() })
        })
        .collect();

    let mut replayed = 0;
    for call in calls {
        let outcome = call.await.unwrap();
        assert_eq!(outcome["accepted"], json!(["k1"]), "{outcome}");
        replayed += u32::from(outcome["replayed"] == true);
    }
    assert_eq!(replayed, 19);
    assert_eq!(alice.get(&id).await["revision"], 3);
}

async fn a_create_key_lives_as_long_as_its_task(broker: &Broker) {
    let alice = broker.user("alice");
    let create = json!({"idempotencyKey": "again"});

    let discarded = id_of(&alice.create(create.clone()).await);
    alice.call("store/discard", json!({"taskId": discarded})).await.result();
    let second = alice.create(create.clone()).await;
    assert_eq!(second["created"], true);
    assert_ne!(id_of(&second), discarded);

    alice.call("store/setTtl", json!({"taskId": id_of(&second), "ttlMs": 0})).await.result();
    let third = alice.create(create).await;
    assert_eq!(third["created"], true);
    assert_ne!(id_of(&third), id_of(&second));
}

async fn a_replayed_discard_finds_no_task(broker: &Broker) {
    let alice = broker.user("alice");
    let id = alice.new_task().await;
    let discard = json!({"taskId": id, "idempotencyKey": "gone"});
    assert_eq!(alice.call("store/discard", discard.clone()).await.result()["applied"], true);
    assert_eq!(alice.call("store/discard", discard).await.error().kind, "task_not_found");
}

#[tokio::test]
async fn keys_survive_a_kill() {
    let mut broker = BrokerOptions::new(Store::Sled).start();
    let alice = broker.user("alice");
    let create = json!({"idempotencyKey": "create"});
    let id = id_of(&alice.create(create.clone()).await);
    alice.ask(&id, &["k1"]).await;
    let first = alice.call("store/applyInput", keyed("store/applyInput", &id, "answer")).await.result();
    let subject = alice.subject().to_owned();

    broker.kill9();
    broker.restart();

    let alice: Client = broker.subject(&subject);
    let replay = alice.call("store/applyInput", keyed("store/applyInput", &id, "answer")).await.result();
    assert_eq!(replay["replayed"], true);
    assert_eq!(essence(&replay), essence(&first));
    let created = alice.create(create).await;
    assert_eq!((&created["created"], id_of(&created)), (&json!(false), id));
}

on_both_stores!(
    a_replay_of_every_changing_command_gives_the_first_outcome,
    a_replay_gives_the_first_outcome_also_after_the_task_has_moved_on,
    the_replay_of_an_answer_reports_again_what_it_accepted,
    an_ended_task_still_replays_its_ending,
    the_owners_commands_are_acknowledged_again_and_happen_once,
    a_replayed_create_answers_the_current_snapshot,
    many_creates_at_once_under_one_key_make_one_task,
    many_commands_at_once_under_one_key_happen_once,
    a_create_key_lives_as_long_as_its_task,
    a_replayed_discard_finds_no_task,
);
