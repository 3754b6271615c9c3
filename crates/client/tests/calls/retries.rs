//! What is repeated, and under which key.

use std::time::Duration;

use serde_json::json;
use task_broker_client::methods::{complete, discard, set_ttl};
use task_broker_client::shapes::Guard;
use task_broker_client::{Client, Ended, Error, Json, RpcError};

use crate::script::{Script, Seen, Step, draining, not_found, outcome, snapshot, unavailable};

fn complete() -> complete::Params {
    complete::Params { task_id: "8c1f".to_owned(), result: Json::empty_object(), guard: Guard::default() }
}

fn discard() -> discard::Params {
    discard::Params { task_id: "8c1f".to_owned(), guard: Guard::default() }
}

fn set_ttl() -> set_ttl::Params {
    set_ttl::Params { task_id: "8c1f".to_owned(), ttl_ms: 0, guard: Guard::default() }
}

#[tokio::test]
async fn a_read_is_repeated_until_it_is_answered() {
    let script =
        Script::new([Step::Cut, draining(), unavailable(), Step::Partial, Step::Result(snapshot())]).await;
    let read = script.client().get("8c1f").await.unwrap();
    assert_eq!(read.task.task_id, "8c1f");
    assert_eq!(script.seen().len(), 5);
}

#[tokio::test]
async fn all_attempts_of_one_change_have_one_key_and_the_next_change_has_another() {
    let script =
        Script::new([Step::Cut, unavailable(), Step::Result(outcome()), Step::Result(outcome())]).await;
    let client = script.client();
    client.complete(complete()).await.unwrap();
    client.complete(complete()).await.unwrap();
    let seen = script.seen();
    let keys: Vec<_> = seen.iter().map(Seen::key).collect();
    assert_eq!(keys[0].len(), 32);
    assert!(keys[..3].iter().all(|key| *key == keys[0]));
    assert_ne!(keys[3], keys[0]);
}

#[tokio::test]
async fn a_key_of_ones_own_is_kept() {
    let script = Script::new([Step::Cut, Step::Result(outcome())]).await;
    let guard = Guard { idempotency_key: Some("mine".to_owned()), expected_revision: Some(1) };
    script.client().complete(complete::Params { guard, ..complete() }).await.unwrap();
    assert!(script.seen().iter().all(|seen| seen.key() == "mine"));
}

#[tokio::test]
async fn a_clear_no_is_not_repeated() {
    for (code, kind) in [
        (-32602, "task_not_found"),
        (-32602, "invalid_params"),
        (1001, "invalid_transition"),
        (1002, "revision_conflict"),
        (1003, "idempotency_mismatch"),
        (1004, "limit_exceeded"),
        (1005, "forbidden"),
        (-32603, "internal"),
        (-32601, "method_not_found"),
        (7, "of_a_later_version"),
    ] {
        let script = Script::new([Step::Error(code, json!({"kind": kind}))]).await;
        let error = script.client().complete(complete()).await.unwrap_err();
        assert!(matches!(error, Error::Rpc(_)), "{kind}: {error:?}");
        assert_eq!(script.seen().len(), 1, "{kind}");
    }
}

#[tokio::test]
async fn when_the_budget_is_spent_the_error_says_whether_the_outcome_is_unknown() {
    let budget = Duration::from_millis(10);
    for (steps, unknown) in [(vec![Step::Cut], true), (vec![draining()], false)] {
        let script = Script::new(steps).await;
        let client = script.builder().retry_budget(budget).build().unwrap();
        let error = client.complete(complete()).await.unwrap_err();
        assert_eq!(error.outcome_unknown(), unknown, "{error:?}");
        assert_eq!(script.seen().len(), 1);
    }
    let script = Script::new([Step::Cut, draining()]).await;
    let client = script.builder().retry_budget(Duration::from_millis(60)).build().unwrap();
    let error = client.complete(complete()).await.unwrap_err();
    assert!(
        matches!(error, Error::GaveUp { attempts: 2, outcome_unknown: true, .. }),
        "the first attempt may have been carried out: {error:?}"
    );
}

#[tokio::test]
async fn nobody_there_is_told_with_certainty() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let client = Client::builder(&url).retry_budget(Duration::from_millis(200)).build().unwrap();
    let error = client.complete(complete()).await.unwrap_err();
    assert!(!error.outcome_unknown(), "{error:?}");
    assert!(matches!(error.last(), Error::Transport(transport) if !transport.sent), "{error:?}");
}

#[tokio::test]
async fn a_repeated_discard_that_finds_no_task_has_succeeded() {
    let script = Script::new([Step::Cut, not_found()]).await;
    assert_eq!(script.client().discard(discard()).await.unwrap(), Ended::Gone);
    let script = Script::new([unavailable(), not_found()]).await;
    assert_eq!(
        script.client().discard(discard()).await.unwrap(),
        Ended::Gone,
        "unavailable may hide an outcome"
    );
    let script = Script::new([Step::Cut, not_found()]).await;
    assert_eq!(script.client().set_ttl(set_ttl()).await.unwrap(), Ended::Gone);
}

#[tokio::test]
async fn a_discard_that_cannot_have_been_carried_out_finds_no_task() {
    for steps in [vec![not_found()], vec![draining(), not_found()]] {
        let script = Script::new(steps).await;
        let error = script.client().discard(discard()).await.unwrap_err();
        assert!(matches!(error.rpc(), Some(RpcError::TaskNotFound)), "{error:?}");
        assert!(script.seen().len() <= 2);
    }
}

#[tokio::test]
async fn an_answer_that_does_not_come_is_a_timeout_and_the_call_is_repeated() {
    let script = Script::new([Step::Silence, Step::Result(snapshot())]).await;
    let client = script.builder().request_timeout(Duration::from_millis(50)).build().unwrap();
    client.get("8c1f").await.unwrap();
    assert_eq!(script.seen().len(), 2);
}
