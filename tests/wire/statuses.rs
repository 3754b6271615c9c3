//! `store/statuses`: many tasks at a glance.

use serde_json::{Value, json};

use crate::harness::Broker;

const UNKNOWN: &str = "ffffffffffffffffffffffffffffffff";

async fn each_known_task_has_an_entry_and_each_unknown_one_is_null(broker: &Broker) {
    let alice = broker.user("alice");
    let (working, asking, done) =
        (alice.new_task().await, alice.asking_task(&["k"]).await, alice.new_task().await);
    alice.call("store/complete", json!({"taskId": done, "result": {}})).await.result();
    let expired = alice.expired_task().await;

    let params = json!({"taskIds": [working, asking, done, expired, UNKNOWN, "", "x"]});
    let statuses = alice.call("store/statuses", params).await.result()["statuses"].clone();

    for (id, status, revision) in
        [(&working, "working", 1), (&asking, "input_required", 2), (&done, "completed", 2)]
    {
        let entry = &statuses[id];
        assert_eq!((&entry["status"], &entry["revision"]), (&json!(status), &json!(revision)), "{entry}");
        assert_eq!(entry["cancelRequested"], false);
        assert!((1..=300_000).contains(&entry["remainingMs"].as_u64().unwrap()), "{entry}");
    }
    for id in [expired.as_str(), UNKNOWN, "", "x"] {
        assert_eq!(statuses.get(id), Some(&Value::Null), "{id:?}");
    }
    assert_eq!(statuses.as_object().unwrap().len(), 7);
}

async fn an_id_that_is_named_twice_has_one_entry(broker: &Broker) {
    let alice = broker.user("alice");
    let id = alice.new_task().await;
    let statuses = alice.call("store/statuses", json!({"taskIds": [id, id, UNKNOWN, UNKNOWN]})).await;
    assert_eq!(statuses.result()["statuses"].as_object().unwrap().len(), 2);
    // A map with a name twice is no map: neither name may be written twice.
    assert_eq!(statuses.text().matches(&id).count(), 1, "{statuses}");
    assert_eq!(statuses.text().matches(UNKNOWN).count(), 1, "{statuses}");
}

async fn no_ids_have_no_entries(broker: &Broker) {
    let answer = broker.user("alice").call("store/statuses", json!({"taskIds": []})).await.result();
    assert_eq!(answer["statuses"], json!({}));
}

async fn a_thousand_ids_are_answered_and_one_more_is_refused(broker: &Broker) {
    let alice = broker.user("alice");
    let id = alice.new_task().await;
    let mut ids: Vec<_> = (0..999).map(|n| format!("{n:032x}")).collect();
    ids.push(id.clone());

    let statuses = alice.call("store/statuses", json!({"taskIds": ids})).await.result()["statuses"].clone();
    assert_eq!(statuses.as_object().unwrap().len(), 1000);
    assert_eq!(statuses[&id]["status"], "working");

    ids.push(UNKNOWN.to_owned());
    let error = alice.call("store/statuses", json!({"taskIds": ids})).await.error();
    assert!(["invalid_params", "limit_exceeded"].contains(&error.kind.as_str()), "{error:?}");
}

async fn ids_are_an_array_of_strings(broker: &Broker) {
    let alice = broker.user("alice");
    for illegal in [json!("x"), json!(5), json!({}), json!(null)] {
        alice.call("store/statuses", json!({"taskIds": illegal})).await.error().assert_invalid("taskIds");
    }
    alice.call("store/statuses", json!({})).await.error().assert_invalid("taskIds");
    for illegal in [json!([5]), json!([null]), json!([UNKNOWN, ["x"]])] {
        let error = alice.call("store/statuses", json!({"taskIds": illegal})).await.error();
        assert_eq!(error.kind, "invalid_params", "{illegal}");
        assert!(error.data["member"].as_str().unwrap().starts_with("taskIds"), "{error:?}");
    }
}

on_both_stores!(
    each_known_task_has_an_entry_and_each_unknown_one_is_null,
    an_id_that_is_named_twice_has_one_entry,
    no_ids_have_no_entries,
    a_thousand_ids_are_answered_and_one_more_is_refused,
    ids_are_an_array_of_strings,
);
