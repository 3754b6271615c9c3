//! Which values a TTL may have, and what becomes of those above the maximum.

use serde_json::{Value, json};

use crate::harness::{Broker, BrokerOptions, Client, Store, id_of};

/// The default of `--max-ttl-ms`: thirty days.
const MAXIMUM: u64 = 2_592_000_000;

/// Values that overflow a 31, 32, 53 or 63 bit count of milliseconds.
const HUGE: [&str; 7] = [
    "2147483648",
    "2592000001",
    "4294967296",
    "9007199254740993",
    "9223372036854775807",
    "9223372036854775808",
    "18446744073709551615",
];

/// Values that are no count of milliseconds.
const ILLEGAL: [&str; 12] = [
    "-1",
    "-9223372036854775808",
    "1.5",
    "1000.0",
    "1e3",
    "1E3",
    "\"1000\"",
    "true",
    "[]",
    "{}",
    "18446744073709551616",
    "123456789012345678901234567890",
];

async fn create_with(client: &Client, ttl: &str) -> Value {
    let params = format!(r#"{{"toolName":"tool","ttlMs":{ttl}}}"#);
    client.call_text("store/create", &params).await.result()
}

async fn a_huge_ttl_is_cut_to_the_maximum_and_the_answer_shows_it(broker: &Broker) {
    let alice = broker.user("alice");
    for ttl in HUGE {
        let cut = ttl.parse::<u64>().unwrap().min(MAXIMUM);

        let created = create_with(&alice, ttl).await;

        assert_eq!(created["task"]["ttlMs"], cut, "{ttl}");
        let id = id_of(&created);
        let snapshot = alice.get(&id).await;
        assert_eq!(snapshot["task"]["ttlMs"], cut, "{ttl}");
        let remaining = snapshot["remainingMs"].as_u64().unwrap();
        assert!((cut - 30_000..=cut).contains(&remaining), "{ttl}: {remaining} ms left");
        assert_eq!(alice.call("tasks/get", json!({"taskId": id})).await.result()["ttlMs"], cut, "{ttl}");
    }
}

async fn set_ttl_cuts_a_huge_value_in_the_same_way(broker: &Broker) {
    let alice = broker.user("alice");
    for ttl in HUGE {
        let cut = ttl.parse::<u64>().unwrap().min(MAXIMUM);
        let id = alice.new_task().await;

        let outcome =
            alice.call_text("store/setTtl", &format!(r#"{{"taskId":"{id}","ttlMs":{ttl}}}"#)).await.result();

        assert_eq!(outcome["ttlMs"], cut, "{ttl}");
        let remaining = outcome["remainingMs"].as_u64().unwrap();
        assert!((cut - 30_000..=cut).contains(&remaining), "{ttl}: {remaining} ms left");
        assert_eq!(alice.get(&id).await["task"]["ttlMs"], cut, "{ttl}");
    }
}

async fn a_ttl_that_is_no_count_of_milliseconds_is_refused_and_creates_nothing(broker: &Broker) {
    let alice = broker.user("alice");
    for ttl in ILLEGAL {
        let params = format!(r#"{{"toolName":"tool","ttlMs":{ttl}}}"#);
        alice.call_text("store/create", &params).await.error().assert_invalid("ttlMs");
    }
    assert_eq!(alice.call("store/list", json!({})).await.result()["tasks"], json!([]));
}

async fn set_ttl_refuses_the_same_values_and_changes_nothing(broker: &Broker) {
    let alice = broker.user("alice");
    let id = alice.new_task().await;
    for ttl in ILLEGAL {
        let params = format!(r#"{{"taskId":"{id}","ttlMs":{ttl}}}"#);
        alice.call_text("store/setTtl", &params).await.error().assert_invalid("ttlMs");
    }
    alice.call("store/setTtl", json!({"taskId": id})).await.error().assert_invalid("ttlMs");
    let snapshot = alice.get(&id).await;
    assert_eq!((&snapshot["task"]["ttlMs"], &snapshot["revision"]), (&json!(300_000), &json!(1)));
}

async fn an_absent_ttl_is_the_default_and_null_the_maximum(broker: &Broker) {
    let alice = broker.user("alice");
    assert_eq!(alice.create(json!({})).await["task"]["ttlMs"], 300_000);
    assert_eq!(create_with(&alice, "null").await["task"]["ttlMs"], MAXIMUM);
}

#[tokio::test]
async fn default_and_maximum_are_what_the_flags_say() {
    let options = BrokerOptions::new(Store::Memory).flag("--default-ttl-ms", 5000).flag("--max-ttl-ms", 9000);
    let broker = options.flag("--default-poll-interval-ms", 777).start();
    let alice = broker.user("alice");

    let created = alice.create(json!({})).await;
    assert_eq!((&created["task"]["ttlMs"], &created["task"]["pollIntervalMs"]), (&json!(5000), &json!(777)));
    assert_eq!(create_with(&alice, "null").await["task"]["ttlMs"], 9000);
    assert_eq!(create_with(&alice, "9001").await["task"]["ttlMs"], 9000);
    assert_eq!(create_with(&alice, "8999").await["task"]["ttlMs"], 8999);
    let params = json!({"taskId": id_of(&created), "ttlMs": 10_000});
    assert_eq!(alice.call("store/setTtl", params).await.result()["ttlMs"], 9000);
}

#[tokio::test]
async fn huge_ttls_survive_a_restart() {
    let mut broker = BrokerOptions::new(Store::Sled).start();
    let alice = broker.user("alice");
    let mut ids = Vec::new();
    for ttl in HUGE {
        ids.push((ttl, id_of(&create_with(&alice, ttl).await)));
    }
    let subject = alice.subject().to_owned();

    broker.kill9();
    broker.restart();

    let alice = broker.subject(&subject);
    for (ttl, id) in ids {
        let cut = ttl.parse::<u64>().unwrap().min(MAXIMUM);
        assert_eq!(alice.get(&id).await["task"]["ttlMs"], cut, "{ttl}");
    }
}

on_both_stores!(
    a_huge_ttl_is_cut_to_the_maximum_and_the_answer_shows_it,
    set_ttl_cuts_a_huge_value_in_the_same_way,
    a_ttl_that_is_no_count_of_milliseconds_is_refused_and_creates_nothing,
    set_ttl_refuses_the_same_values_and_changes_nothing,
    an_absent_ttl_is_the_default_and_null_the_maximum,
);
