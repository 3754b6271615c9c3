//! How a broker ends: waits and streams are answered, new calls are refused, and the exit is clean and in time.

use std::time::Duration;

use hyper::Method;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::harness::raw::Connection;
use crate::harness::{Auth, Broker, BrokerOptions, Client, Store, poll_until};

/// The time that the brokers of these tests have for their drain.
const DRAIN_SECS: u64 = 3;
/// From the signal to the exit: the drain, and what a busy machine may add.
const EXIT_DEADLINE: Duration = Duration::from_secs(DRAIN_SECS + 4);

fn start(store: Store) -> Broker {
    BrokerOptions::new(store).auth(Auth::Off).flag("--drain-secs", DRAIN_SECS).start()
}

fn wait_on(client: &Client, id: &str) -> tokio::task::JoinHandle<Value> {
    let (client, params) = (client.clone(), json!({"taskId": id, "timeoutMs": 45_000}));
    tokio::spawn(async move { client.call("store/wait", params).await.result() })
}

/// Gives calls that were sent before a good chance to be in progress; nothing tells from outside.
async fn let_them_arrive(client: &Client, id: &str) {
    client.call("store/wait", json!({"taskId": id, "timeoutMs": 300})).await.result();
}

async fn waits_and_streams_end_and_the_exit_is_clean(store: Store, signal: impl FnOnce(&Broker)) {
    let mut broker = start(store);
    let client = broker.anonymous();
    let (working, asking) = (client.new_task().await, client.asking_task(&["k"]).await);
    let waits: Vec<_> = (0..20).map(|n| wait_on(&client, [&working, &asking][n % 2])).collect();
    let mut streams = Vec::new();
    for _ in 0..5 {
        let mut stream = client.watch(json!({})).await;
        assert!(stream.synced().await);
        streams.push(stream);
    }
    let_them_arrive(&client, &working).await;
    let start = Instant::now();

    signal(&broker);

    for (n, wait) in waits.into_iter().enumerate() {
        let answer = wait.await.unwrap();
        let (id, status) = [(&working, "working"), (&asking, "input_required")][n % 2];
        assert_eq!((&answer["timedOut"], &answer["task"]["status"]), (&json!(true), &json!(status)));
        assert_eq!(answer["task"]["taskId"], *id);
    }
    for stream in &mut streams {
        let comments = stream.comments.len();
        assert_eq!(stream.next_or_end().await, None, "the stream ends, and not with an event");
        assert!(stream.comments.len() > comments, "a last comment");
    }
    let status = tokio::task::block_in_place(|| broker.wait_exit(EXIT_DEADLINE));
    assert_eq!(status.code(), Some(0), "{status}");
    assert!(start.elapsed() < EXIT_DEADLINE, "{:?}", start.elapsed());
    broker.assert_no_error_logged();
}

#[tokio::test(flavor = "multi_thread")]
async fn sigterm_ends_waits_and_streams_and_the_exit_is_clean() {
    waits_and_streams_end_and_the_exit_is_clean(Store::Sled, Broker::sigterm).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sigint_does_the_same() {
    waits_and_streams_end_and_the_exit_is_clean(Store::Memory, Broker::sigint).await;
}

/// Half of a request, which keeps a drain open until the rest comes.
fn half_a_request(broker: &Broker) -> (Connection, &'static str) {
    let body = r#"{"jsonrpc":"2.0","id":1,"method":"store/create","params":{"toolName":"slow"}}"#;
    let (left, right) = body.split_at(30);
    let mut connection = Connection::open(broker.address());
    let length = body.len();
    connection.send(format!(
        "POST /rpc HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{left}"
    ));
    (connection, right)
}

#[tokio::test(flavor = "multi_thread")]
async fn readiness_turns_red_and_new_calls_are_refused_while_a_started_one_is_finished() {
    let mut broker = start(Store::Sled);
    let client = broker.anonymous();
    let id = client.new_task().await;
    assert_eq!(client.http(Method::GET, "/readyz").await.status, 200);
    let (mut slow, rest) = half_a_request(&broker);
    let_them_arrive(&client, &id).await;

    broker.sigterm();

    poll_until(Duration::from_secs(2), "readiness is red", async || {
        let status = client.http(Method::GET, "/readyz").await.status;
        (status == 503).then_some(())
    })
    .await;
    let refused = client.call("store/get", json!({"taskId": id})).await;
    assert_eq!(refused.http_error(503).kind, "unavailable");
    let retry = refused.header("retry-after").unwrap_or_else(|| panic!("no Retry-After: {refused}"));
    assert!(retry.parse::<u32>().is_ok(), "{retry}");
    assert_eq!(client.http(Method::GET, "/livez").await.status, 200, "it lives until it ends");

    slow.send(rest);
    let answer = slow.answer();
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(answer.header("connection"), Some("close"), "nobody may send another one into it");
    let status = tokio::task::block_in_place(|| broker.wait_exit(EXIT_DEADLINE));
    assert_eq!(status.code(), Some(0), "{status}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_never_finishes_does_not_hold_the_exit_up() {
    let mut broker = start(Store::Memory);
    let client = broker.anonymous();
    let id = client.new_task().await;
    let (_slow, _) = half_a_request(&broker);
    let _silent = Connection::open(broker.address());
    let_them_arrive(&client, &id).await;

    broker.sigterm();

    let status = tokio::task::block_in_place(|| broker.wait_exit(EXIT_DEADLINE));
    assert_eq!(status.code(), Some(0), "{status}");
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_connections_do_not_delay_the_exit() {
    let mut broker = start(Store::Memory);
    let client = broker.anonymous();
    client.new_task().await;
    let start = Instant::now();

    broker.sigterm();

    let status = tokio::task::block_in_place(|| broker.wait_exit(EXIT_DEADLINE));
    assert_eq!(status.code(), Some(0), "{status}");
    assert!(start.elapsed() < Duration::from_secs(DRAIN_SECS), "{:?} with nothing to drain", start.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_acknowledged_right_before_the_signal_is_there_after_a_restart() {
    let mut broker = start(Store::Sled);
    let client = broker.anonymous();
    let id = client.new_task().await;
    client.call("store/complete", json!({"taskId": id, "result": {"n": 1}})).await.result();

    broker.sigterm();
    let status = tokio::task::block_in_place(|| broker.wait_exit(EXIT_DEADLINE));
    assert_eq!(status.code(), Some(0), "{status}");
    broker.restart();

    assert_eq!(broker.anonymous().get(&id).await["result"], json!({"n": 1}));
}
