//! More load than the broker carries: it refuses what is too much, and its memory has a bound.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;

use super::{from_env, resident_bytes};
use crate::harness::{Auth, Broker, BrokerOptions, Outgoing, Store};

/// So many clients at once, for a while: how many answers of each status.
async fn drive(broker: &Broker, clients: usize, body: &str, time: Duration) -> BTreeMap<u16, usize> {
    let end = Instant::now() + time;
    let lanes: Vec<_> = (0..clients)
        .map(|_| {
            let (client, body) = (broker.anonymous(), body.to_owned());
            tokio::spawn(async move {
                let mut answers = BTreeMap::<u16, usize>::new();
                while Instant::now() < end {
                    let answer = client.send(Outgoing::new(body.clone())).await;
                    if answer.status == 503 {
                        assert!(answer.header("retry-after").is_some(), "{answer}");
                    }
                    *answers.entry(answer.status).or_default() += 1;
                }
                answers
            })
        })
        .collect();
    let mut all = BTreeMap::<u16, usize>::new();
    for lane in lanes {
        for (status, count) in lane.await.unwrap() {
            *all.entry(status).or_default() += count;
        }
    }
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_times_the_load_is_refused_with_503_and_nothing_else() {
    let time = Duration::from_secs(from_env("DOOR_LOAD_SECS", 2) as u64);
    let broker = BrokerOptions::new(Store::Sled).auth(Auth::Off).flag("--max-requests", 8).start();
    let create = json!({"jsonrpc": "2.0", "id": 1, "method": "store/create", "params": {"toolName": "load", "ttlMs": 1000}});
    let create = create.to_string();
    let carried = drive(&broker, 8, &create, time).await;
    let base = resident_bytes(&broker);
    let flooded = drive(&broker, 80, &create, time).await;
    let grown = resident_bytes(&broker).saturating_sub(base);
    println!("8 clients: {carried:?}; 80 clients: {flooded:?}; memory grew by {} MiB", grown >> 20);
    for (status, count) in &flooded {
        assert!([200, 429, 503].contains(status), "{count} answers were {status}");
    }
    assert!(flooded[&200] > 0, "some are served all the while");
    assert!(grown < 128 << 20, "{grown}");
    broker.anonymous().new_task().await;
    broker.assert_no_error_logged();
}

#[tokio::test(flavor = "multi_thread")]
async fn large_bodies_together_have_a_bound() {
    let broker = BrokerOptions::new(Store::Memory).auth(Auth::Off).start();
    let base = resident_bytes(&broker);
    // The params are read and refused: what is held is the body.
    let body = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"store/get","params":{{"taskId":5}},"x":"{}"}}"#,
        "x".repeat(7 << 20)
    );
    let clients = from_env("DOOR_LARGE", 48);
    let mut highest = 0;
    let driving = drive(&broker, clients, &body, Duration::from_secs(2));
    let mut driving = std::pin::pin!(driving);
    let answers = loop {
        tokio::select! {
            answers = &mut driving => break answers,
            () = tokio::time::sleep(Duration::from_millis(20)) => highest = resident_bytes(&broker).max(highest),
        }
    };
    println!(
        "{clients} clients with 7 MiB each: {answers:?}; memory rose by {} MiB",
        highest.saturating_sub(base) >> 20
    );
    for status in answers.keys() {
        assert!([200, 503].contains(status), "{answers:?}");
    }
    assert!(highest.saturating_sub(base) < 512 << 20, "{highest}");
}
