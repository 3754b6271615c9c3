//! What is open when its token expires (case C09).

use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;

use crate::harness::{Auth, BrokerOptions, Store, token};

/// How long the tokens of this test are good, in seconds.
const SECS: i64 = 3;

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_ends_with_its_token_and_a_wait_ends_with_its_own_time() {
    let options = BrokerOptions::new(Store::Memory).auth(Auth::Required).flag("--jwt-leeway-secs", 0);
    let broker = options.start();
    let began = Instant::now();
    let payload = json!({"sub": "alice", "aud": token::AUDIENCE, "exp": token::now() + SECS}).to_string();
    let short = broker.bearer(&token::sign(token::HEADER, &payload));
    let (id, ended) = (short.new_task().await, short.new_task().await);
    let mut stream = short.watch(json!({})).await;
    assert!(stream.synced().await);
    let wait = |id: &str, millis: u64| {
        let (client, params) = (short.clone(), json!({"taskId": id, "timeoutMs": millis}));
        tokio::spawn(async move { client.call("store/wait", params).await.result() })
    };
    let (woken, runs_out) = (wait(&ended, 50_000), wait(&id, 6000));
    while stream.next_or_end().await.is_some() {}
    let lived = began.elapsed();
    assert!(lived > Duration::from_secs(1) && lived < Duration::from_secs(10), "{lived:?}");
    assert_eq!(stream.comments.last().map(String::as_str), Some("the stream ends"), "an end in order");
    short.call("store/info", json!({})).await.http_error(401);
    // What was asked while the token was good is answered: 50 s later at most.
    let alice = broker.bearer(&token::good("alice"));
    alice.call("store/complete", json!({"taskId": ended, "result": {}})).await.result();
    assert_eq!(woken.await.unwrap()["task"]["status"], "completed");
    assert_eq!(runs_out.await.unwrap()["timedOut"], true);
}
