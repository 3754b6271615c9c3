//! `store/wait`: a long poll that misses nothing and never outstays its time.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::harness::{Broker, Client, accept};

/// Well below what a wait would take that was not woken, well above what a wake-up takes.
const SOON: Duration = Duration::from_secs(4);

async fn wait(client: &Client, id: &str, more: Value) -> Value {
    let mut params = json!({"taskId": id});
    params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    client.call("store/wait", params).await.result()
}

/// A wait in the background, with the time at which it was answered.
fn waiting(client: &Client, id: &str, more: Value) -> JoinHandle<(Value, Instant)> {
    let (client, id) = (client.clone(), id.to_owned());
    tokio::spawn(async move { (wait(&client, &id, more).await, Instant::now()) })
}

async fn a_wait_of_zero_answers_at_once(broker: &Broker) {
    let alice = broker.user("alice");
    let id = alice.new_task().await;
    let start = Instant::now();

    let answer = wait(&alice, &id, json!({"timeoutMs": 0})).await;

    assert!(start.elapsed() < SOON);
    assert_eq!(answer["timedOut"], true);
    let snapshot = alice.get(&id).await;
    for member in ["task", "owner", "toolName", "revision", "cancelRequested", "inputRequests"] {
        assert_eq!(answer[member], snapshot[member], "{member}");
    }
}

async fn a_wait_that_nothing_ends_says_so_after_its_time(broker: &Broker) {
    let alice = broker.user("alice");
    let id = alice.new_task().await;
    let start = Instant::now();

    let answer = wait(&alice, &id, json!({"timeoutMs": 400})).await;

    assert_eq!((&answer["timedOut"], &answer["task"]["status"]), (&json!(true), &json!("working")));
    let took = start.elapsed();
    assert!((Duration::from_millis(390)..SOON).contains(&took), "{took:?}");
}

async fn a_terminal_task_answers_at_once(broker: &Broker) {
    let alice = broker.user("alice");
    let id = alice.new_task().await;
    alice.call("store/complete", json!({"taskId": id, "result": {"n": 1}})).await.result();
    let start = Instant::now();
    for more in [
        json!({}),
        json!({"timeoutMs": 0}),
        json!({"timeoutMs": 50_000}),
        json!({"timeoutMs": 3_600_000}),
        json!({"timeoutMs": u64::MAX}),
        json!({"timeoutMs": 10_000, "sinceRevision": 2}),
    ] {
        let answer = wait(&alice, &id, more.clone()).await;
        assert_eq!((&answer["timedOut"], &answer["result"]), (&json!(false), &json!({"n": 1})), "{more}");
    }
    assert!(start.elapsed() < SOON);
}

async fn every_ending_wakes_a_wait(broker: &Broker) {
    let alice = broker.user("alice");
    for (status, method, more) in [
        ("completed", "store/complete", json!({"result": {"n": 1}})),
        ("failed", "store/fail", json!({"error": {"code": 1, "message": "m"}})),
        ("cancelled", "store/cancel", json!({})),
        ("cancelled", "tasks/cancel", json!({})),
    ] {
        let id = alice.new_task().await;
        let wait = waiting(&alice, &id, json!({"timeoutMs": 15_000}));
        let mut params = json!({"taskId": id});
        params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let start = Instant::now();
        alice.call(method, params).await.result();

        let (answer, at) = wait.await.unwrap();
        assert_eq!((&answer["timedOut"], &answer["task"]["status"]), (&json!(false), &json!(status)));
        assert!(at - start < SOON, "{method}: {:?}", at - start);
        for member in ["result", "error"] {
            assert_eq!(answer.get(member), alice.get(&id).await.get(member), "{method}");
        }
    }
}

async fn without_a_revision_only_the_end_wakes_a_wait(broker: &Broker) {
    let alice = broker.user("alice");
    let id = alice.new_task().await;
    let wait = waiting(&alice, &id, json!({"timeoutMs": 15_000}));
    alice.ask(&id, &["k"]).await;
    alice.reply(&id, &["k"]).await;
    alice.call("store/setMeta", json!({"taskId": id, "meta": {}})).await.result();
    alice.call("store/complete", json!({"taskId": id, "result": {}})).await.result();

    let (answer, _) = wait.await.unwrap();
    assert_eq!((&answer["task"]["status"], &answer["timedOut"]), (&json!("completed"), &json!(false)));
}

async fn every_newer_revision_wakes_a_wait_that_names_one(broker: &Broker) {
    let alice = broker.user("alice");
    let id = alice.new_task().await;
    let commands = [
        ("store/setMeta", json!({"meta": {"n": 1}})),
        ("store/setTtl", json!({"ttlMs": 600_000})),
        ("store/requireInput", json!({"inputRequests": {"a": {"method": "m"}, "b": {"method": "m"}}})),
        ("store/setStatus", json!({"status": "working"})),
        ("store/applyInput", json!({"inputResponses": {"a": accept("a")}})),
        ("tasks/update", json!({"inputResponses": {"b": accept("b")}})),
        ("store/complete", json!({"result": {}})),
    ];
    for (revision, (method, more)) in (1..).zip(commands) {
        let wait = waiting(&alice, &id, json!({"timeoutMs": 15_000, "sinceRevision": revision}));
        let mut params = json!({"taskId": id});
        params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let start = Instant::now();
        alice.call(method, params).await.result();

        let (answer, at) = wait.await.unwrap();
        assert_eq!(
            (&answer["timedOut"], &answer["revision"]),
            (&json!(false), &json!(revision + 1)),
            "{method}"
        );
        assert!(at - start < SOON, "{method}: {:?}", at - start);
    }
}

async fn an_older_revision_answers_at_once_and_the_current_one_waits(broker: &Broker) {
    let alice = broker.user("alice");
    let id = alice.asking_task(&["k"]).await;
    let start = Instant::now();
    for since in [0, 1] {
        let answer = wait(&alice, &id, json!({"timeoutMs": 15_000, "sinceRevision": since})).await;
        assert_eq!((&answer["timedOut"], &answer["revision"]), (&json!(false), &json!(2)), "{since}");
    }
    assert!(start.elapsed() < SOON);
    let answer = wait(&alice, &id, json!({"timeoutMs": 100, "sinceRevision": 2})).await;
    assert_eq!((&answer["timedOut"], &answer["revision"]), (&json!(true), &json!(2)));
}

async fn a_command_that_changes_nothing_wakes_nobody(broker: &Broker) {
    let alice = broker.user("alice");
    let id = alice.new_task().await;
    let wait = waiting(&alice, &id, json!({"timeoutMs": 500, "sinceRevision": 1}));
    alice.call("store/setTtl", json!({"taskId": id, "ttlMs": 300_000})).await.result();
    alice.call("store/setStatus", json!({"taskId": id, "status": "working"})).await.result();
    let (answer, _) = wait.await.unwrap();
    assert_eq!((&answer["timedOut"], &answer["revision"]), (&json!(true), &json!(1)));
}

async fn values_that_are_no_count_are_refused(broker: &Broker) {
    let alice = broker.user("alice");
    let id = alice.new_task().await;
    for member in ["timeoutMs", "sinceRevision"] {
        for illegal in [
            "-1",
            "1.5",
            "1.0",
            "\"5\"",
            "1e18",
            "1e3",
            "true",
            "[]",
            "18446744073709551616",
            "-9223372036854775808",
        ] {
            let params = format!(r#"{{"taskId":"{id}","{member}":{illegal}}}"#);
            alice.call_text("store/wait", &params).await.error().assert_invalid(member);
        }
    }
}

async fn a_huge_timeout_waits_and_is_woken(broker: &Broker) {
    let alice = broker.user("alice");
    for timeout in [3_600_000, 1_000_000_000_000_000_000, u64::MAX] {
        let id = alice.new_task().await;
        let wait = waiting(&alice, &id, json!({"timeoutMs": timeout}));
        alice.call("store/complete", json!({"taskId": id, "result": {}})).await.result();
        let (answer, _) = wait.await.unwrap();
        assert_eq!(answer["timedOut"], false, "{timeout}");
    }
}

async fn all_waits_on_a_task_are_woken(broker: &Broker) {
    let alice = broker.user("alice");
    let id = alice.new_task().await;
    let waits: Vec<_> = (0..50).map(|_| waiting(&alice, &id, json!({"timeoutMs": 15_000}))).collect();
    // Let some of them get there first; the others race with the end.
    wait(&alice, &id, json!({"timeoutMs": 50})).await;
    let start = Instant::now();
    alice.call("store/complete", json!({"taskId": id, "result": {}})).await.result();
    for wait in waits {
        let (answer, at) = wait.await.unwrap();
        assert_eq!((&answer["timedOut"], &answer["task"]["status"]), (&json!(false), &json!("completed")));
        assert!(at - start < SOON, "{:?}", at - start);
    }
}

async fn an_end_between_the_read_and_the_wait_is_never_missed(broker: &Broker) {
    let alice = broker.user("alice");
    let start = Instant::now();
    for round in 0..300 {
        let id = alice.new_task().await;
        let wait = waiting(&alice, &id, json!({"timeoutMs": 15_000}));
        // Before, while, and after the wait arrives.
        for _ in 0..round % 6 {
            tokio::task::yield_now().await;
        }
        if round % 3 == 2 {
            tokio::time::sleep(Duration::from_micros(round * 10)).await;
        }
        let ended = Instant::now();
        alice.call("store/complete", json!({"taskId": id, "result": {}})).await.result();
        let (answer, at) = wait.await.unwrap();
        assert_eq!(answer["timedOut"], false, "round {round}");
        assert!(at.saturating_duration_since(ended) < SOON, "round {round}: {:?}", at - ended);
    }
    assert!(start.elapsed() < Duration::from_secs(40), "{:?} for all rounds", start.elapsed());
}

async fn a_discard_ends_a_wait_with_not_found(broker: &Broker) {
    let alice = broker.user("alice");
    let id = alice.new_task().await;
    let wait = tokio::spawn({
        let (alice, params) = (alice.clone(), json!({"taskId": id, "timeoutMs": 15_000}));
        async move { alice.call("store/wait", params).await }
    });
    wait_until_it_is_there(&alice, &id).await;
    let start = Instant::now();
    alice.call("store/discard", json!({"taskId": id})).await.result();
    assert_eq!(wait.await.unwrap().error().kind, "task_not_found");
    assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
}

/// Gives a wait that was sent before a good chance to be there; nothing tells from outside.
async fn wait_until_it_is_there(client: &Client, id: &str) {
    wait(client, id, json!({"timeoutMs": 50})).await;
}

async fn a_client_that_goes_away_while_it_waits_harms_nobody(broker: &Broker) {
    let alice = broker.user("alice");
    let id = alice.new_task().await;
    for _ in 0..10 {
        let wait = waiting(&alice, &id, json!({"timeoutMs": 15_000}));
        wait_until_it_is_there(&alice, &id).await;
        wait.abort();
    }
    let stays = waiting(&alice, &id, json!({"timeoutMs": 15_000}));
    alice.call("store/complete", json!({"taskId": id, "result": {}})).await.result();
    assert_eq!(stays.await.unwrap().0["task"]["status"], "completed");
}

on_both_stores!(
    a_wait_of_zero_answers_at_once,
    a_wait_that_nothing_ends_says_so_after_its_time,
    a_terminal_task_answers_at_once,
    every_ending_wakes_a_wait,
    without_a_revision_only_the_end_wakes_a_wait,
    every_newer_revision_wakes_a_wait_that_names_one,
    an_older_revision_answers_at_once_and_the_current_one_waits,
    a_command_that_changes_nothing_wakes_nobody,
    values_that_are_no_count_are_refused,
    a_huge_timeout_waits_and_is_woken,
    all_waits_on_a_task_are_woken,
    an_end_between_the_read_and_the_wait_is_never_missed,
    a_discard_ends_a_wait_with_not_found,
    a_client_that_goes_away_while_it_waits_harms_nobody,
);
