//! So many calls a second for each subject.

use std::time::Duration;

use hyper::Method;
use serde_json::json;
use tokio::time::Instant;

use crate::harness::{Answer, Auth, Broker, BrokerOptions, Client, Outgoing, Store, token};

const INFO: &str = r#"{"jsonrpc":"2.0","id":1,"method":"store/info"}"#;

fn broker(per_second: u32) -> Broker {
    BrokerOptions::new(Store::Memory).flag("--rate-limit-per-subject", per_second).start()
}

/// Checks for a 429 that says when to come again, in both places.
fn assert_too_often(answer: &Answer) -> Duration {
    let error = answer.http_error(429);
    assert_eq!((error.kind.as_str(), error.code), ("too_many_requests", 1429), "{answer}");
    let millis = error.data["retryAfterMs"].as_u64().unwrap();
    let seconds: u64 = answer.header("retry-after").unwrap().parse().unwrap();
    assert_eq!(seconds, millis.div_ceil(1000).max(1), "{answer}");
    Duration::from_millis(millis)
}

async fn calls(client: &Client, count: usize) -> Vec<Answer> {
    let mut answers = Vec::new();
    for _ in 0..count {
        answers.push(client.post(INFO).await);
    }
    answers
}

#[tokio::test]
async fn a_subject_that_calls_too_often_is_told_when_to_come_again_and_nobody_else_is() {
    let broker = broker(10);
    let (alice, bob, anonymous) = (broker.user("alice"), broker.user("bob"), broker.anonymous());
    let answers = calls(&alice, 130).await;
    let refused: Vec<_> = answers.iter().filter(|answer| answer.status != 200).collect();
    assert!(answers[..100].iter().all(|answer| answer.status == 200), "a whole batch's worth at once");
    assert!(!refused.is_empty());
    let wait = refused.iter().map(|answer| assert_too_often(answer)).max().unwrap();
    assert!(wait <= Duration::from_millis(100), "{wait:?}");
    for client in [&bob, &anonymous] {
        assert!(calls(client, 20).await.iter().all(|answer| answer.status == 200));
    }
    tokio::time::sleep(wait + Duration::from_millis(50)).await;
    alice.post(INFO).await.result();
}

#[tokio::test]
async fn anonymous_callers_are_one_subject() {
    let broker = broker(1);
    let (one, two) = (broker.anonymous(), broker.anonymous());
    assert!(calls(&one, 100).await.iter().all(|answer| answer.status == 200));
    assert_too_often(&two.post(INFO).await);
    broker.user("alice").post(INFO).await.result();
}

#[tokio::test]
async fn each_call_of_a_batch_counts_and_a_batch_is_taken_whole_or_not_at_all() {
    let broker = broker(1);
    let alice = broker.user("alice");
    let batch = |count: usize| format!("[{}]", vec![INFO; count].join(","));
    assert_eq!(alice.post(batch(60)).await.elements().len(), 60);
    let create = r#"{"jsonrpc":"2.0","id":1,"method":"store/create","params":{"toolName":"tool"}}"#;
    let refused = alice.post(format!("[{}]", vec![create; 60].join(","))).await;
    assert!(assert_too_often(&refused) > Duration::from_secs(10));
    let listed = alice.call("store/list", json!({})).await.result();
    assert_eq!(listed["tasks"], json!([]), "nothing of it was carried out");
    // A notification is a call too.
    let notification = r#"{"jsonrpc":"2.0","method":"store/info"}"#;
    let mut accepted = 0;
    while alice.post(notification).await.status == 202 {
        accepted += 1;
    }
    assert!((30..=40).contains(&accepted), "{accepted}");
}

#[tokio::test]
async fn a_refused_body_is_not_read_and_a_bad_token_uses_nothing() {
    let broker =
        BrokerOptions::new(Store::Memory).auth(Auth::Required).flag("--rate-limit-per-subject", 1).start();
    let alice = broker.user("alice");
    for _ in 0..200 {
        let forged = Outgoing::new(INFO).header("authorization", &format!("Bearer {}x", alice.token()));
        broker.anonymous().send(forged).await.http_error(401);
    }
    assert!(calls(&alice, 100).await.iter().all(|answer| answer.status == 200));
    let began = Instant::now();
    let head = format!(
        "POST /rpc HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nAuthorization: Bearer {}\r\n\
         Content-Length: 1000000\r\n\r\n",
        alice.token()
    );
    let answer = crate::harness::raw::exchange(broker.address(), head);
    assert_eq!(answer.status, 429, "{answer:?}");
    assert!(began.elapsed() < Duration::from_secs(5));
    assert_eq!(alice.http(hyper::Method::GET, "/livez").await.status, 200, "probes have no limit");
}

#[tokio::test]
async fn without_the_flag_there_is_no_limit() {
    let broker = BrokerOptions::new(Store::Memory).start();
    assert!(calls(&broker.user("alice"), 500).await.iter().all(|answer| answer.status == 200));
}

#[tokio::test]
async fn an_export_is_a_call_like_any_other() {
    let broker = broker(1);
    let admin = broker.bearer(&token::scoped("boss", "tasks:admin"));
    let mallory = broker.user("mallory");
    for (client, status) in [(&admin, 200), (&mallory, 403)] {
        for _ in 0..100 {
            assert_eq!(client.http(Method::POST, "/export").await.status, status);
        }
        let mut answer = client.http(Method::POST, "/export").await;
        // A second may have passed meanwhile.
        for _ in 0..20 {
            if answer.status == status {
                answer = client.http(Method::POST, "/export").await;
            }
        }
        assert_too_often(&answer);
        assert_too_often(&client.post(INFO).await);
    }
    broker.user("alice").post(INFO).await.result();
}
