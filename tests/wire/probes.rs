//! What an operator asks without a token.

use hyper::Method;
use serde_json::json;

use crate::harness::{Auth, Broker, BrokerOptions, Store};

const PATHS: [&str; 4] = ["/livez", "/readyz", "/metrics", "/openapi.yaml"];

#[tokio::test]
async fn probes_need_no_token_where_calls_do() {
    let broker = BrokerOptions::new(Store::Memory).auth(Auth::Required).start();
    let anonymous = broker.anonymous();
    assert_eq!(anonymous.call("store/info", json!({})).await.status, 401);
    for path in PATHS {
        assert_eq!(anonymous.http(Method::GET, path).await.status, 200, "{path}");
    }
    let garbage = broker.bearer("garbage");
    for path in ["/livez", "/readyz", "/metrics"] {
        assert_eq!(garbage.http(Method::GET, path).await.status, 200, "{path} does not look at tokens");
    }
}

async fn probes_answer_on_a_broker_that_works(broker: &Broker) {
    for path in PATHS {
        let answer = broker.anonymous().http(Method::GET, path).await;
        assert_eq!(answer.status, 200, "{path}");
        assert!(!answer.body.is_empty(), "{path}");
    }
}

async fn the_openapi_document_describes_the_paths(broker: &Broker) {
    let answer = broker.anonymous().http(Method::GET, "/openapi.yaml").await;
    let text = answer.text();
    assert!(text.lines().any(|line| line.starts_with("openapi: ")), "{answer}");
    for path in ["/rpc:", "/livez:", "/readyz:", "/metrics:", "/openapi.yaml:"] {
        assert!(text.lines().any(|line| line.trim() == path), "no {path} in the document");
    }
}

async fn probes_show_no_tasks_and_no_subjects(broker: &Broker) {
    let alice = broker.user("alice");
    let id = alice.new_task().await;
    for path in PATHS {
        let answer = broker.anonymous().http(Method::GET, path).await;
        assert!(!answer.text().contains(&id) && !answer.text().contains(alice.subject()), "{path}: {answer}");
    }
}

async fn probes_are_only_read(broker: &Broker) {
    let alice = broker.user("alice");
    for path in ["/livez", "/readyz", "/metrics"] {
        for method in [Method::POST, Method::DELETE] {
            let answer = alice.http(method.clone(), path).await;
            assert_eq!(answer.status, 405, "{method} {path}");
        }
    }
}

async fn a_probe_is_answered_while_calls_are_waiting(broker: &Broker) {
    let alice = broker.user("alice");
    let id = alice.new_task().await;
    let waits: Vec<_> = (0..50)
        .map(|_| {
            let (alice, params) = (alice.clone(), json!({"taskId": id, "timeoutMs": 10_000}));
            tokio::spawn(async move { alice.call("store/wait", params).await.result() })
        })
        .collect();
    for path in ["/livez", "/readyz"] {
        assert_eq!(broker.anonymous().http(Method::GET, path).await.status, 200, "{path}");
    }
    alice.call("store/cancel", json!({"taskId": id})).await.result();
    for wait in waits {
        assert_eq!(wait.await.unwrap()["task"]["status"], "cancelled");
    }
}

on_both_stores!(
    probes_answer_on_a_broker_that_works,
    the_openapi_document_describes_the_paths,
    probes_show_no_tasks_and_no_subjects,
    probes_are_only_read,
    a_probe_is_answered_while_calls_are_waiting,
);
