//! `/metrics`: what it counts, and that clients cannot make it grow.
#![allow(clippy::float_cmp, reason = "counts are whole numbers, which floats hold exactly")]

use std::collections::BTreeMap;
use std::time::Duration;

use hyper::Method;
use serde_json::json;
use tokio::time::Instant;

use crate::harness::raw::Connection;
use crate::harness::{Auth, Broker, BrokerOptions, Client, Outgoing, Store, poll_until};

/// All samples by name with labels.
async fn scrape(client: &Client) -> BTreeMap<String, f64> {
    let answer = client.http(Method::GET, "/metrics").await;
    assert_eq!(answer.status, 200, "{answer}");
    assert_eq!(answer.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    let mut samples = BTreeMap::new();
    let mut types = BTreeMap::new();
    for line in answer.text().lines() {
        if let Some(described) = line.strip_prefix("# TYPE ") {
            let (name, kind) = described.split_once(' ').unwrap();
            assert_eq!(types.insert(name.to_owned(), kind.to_owned()), None, "{name} twice");
        }
        if line.starts_with('#') {
            continue;
        }
        let (name, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("{line}"));
        let value = value.parse().unwrap_or_else(|error| panic!("{error}: {line}"));
        let family = name.split('{').next().unwrap();
        let described = ["", "_bucket", "_sum", "_count"]
            .iter()
            .any(|suffix| family.strip_suffix(suffix).is_some_and(|family| types.contains_key(family)));
        assert!(described, "no type for {line}");
        assert_eq!(samples.insert(name.to_owned(), value), None, "{name} twice");
    }
    samples
}

/// One sample; absent ones are 0, as they are for Prometheus until they appear.
fn value(samples: &BTreeMap<String, f64>, name: &str) -> f64 {
    samples.get(name).copied().unwrap_or(0.0)
}

async fn until(client: &Client, name: &str, expected: f64) {
    poll_until(Duration::from_secs(10), &format!("{name} is {expected}"), async || {
        (value(&scrape(client).await, name) == expected).then_some(())
    })
    .await;
}

fn own_broker(store: Store) -> Broker {
    BrokerOptions::new(store).auth(Auth::Optional).start()
}

async fn calls_and_tasks_are_counted(store: Store) {
    let broker = own_broker(store);
    let alice = broker.user("alice");
    let working = alice.new_task().await;
    let ended = alice.new_task().await;
    alice.asking_task(&["k"]).await;
    alice.call("store/complete", json!({"taskId": ended, "result": {}})).await.result();
    alice.call("tasks/get", json!({"taskId": "nobody"})).await.error();
    alice.call("no/such", json!({})).await.error();
    alice.post("{").await;
    let batch = json!([
        {"jsonrpc": "2.0", "id": 1, "method": "store/get", "params": {"taskId": working}},
        {"jsonrpc": "2.0", "id": 2, "method": "store/wait", "params": {"taskId": working}},
        {"jsonrpc": "2.0", "method": "store/get", "params": {"taskId": working}},
        17,
    ]);
    alice.post(batch.to_string()).await.elements();
    broker.bearer("garbage").call("store/info", json!({})).await.http_error(401);

    let samples = scrape(&broker.anonymous()).await;
    let requests = |method: &str, outcome: &str| {
        value(&samples, &format!("task_broker_requests_total{{method=\"{method}\",outcome=\"{outcome}\"}}"))
    };
    assert_eq!(requests("store/create", "ok"), 3.0);
    assert_eq!(requests("store/complete", "ok"), 1.0);
    assert_eq!(requests("store/get", "ok"), 2.0, "the notification too");
    assert_eq!(requests("store/wait", "invalid_request"), 1.0);
    assert_eq!(requests("tasks/get", "task_not_found"), 1.0);
    assert_eq!(requests("unknown", "method_not_found"), 1.0);
    assert_eq!(requests("unknown", "parse_error"), 1.0);
    assert_eq!(requests("unknown", "invalid_request"), 1.0);
    assert_eq!(value(&samples, "task_broker_http_refusals_total{status=\"401\"}"), 1.0);
    let created = "task_broker_request_duration_seconds_count{method=\"store/create\"}";
    assert_eq!(value(&samples, created), 3.0);
    for (status, count) in [("working", 1.0), ("input_required", 1.0), ("completed", 1.0), ("failed", 0.0)] {
        assert_eq!(samples[&format!("task_broker_tasks{{status=\"{status}\"}}")], count, "{status}");
    }
    assert!(samples["task_broker_task_bytes"] > 1500.0);
    assert_eq!(samples["task_broker_ready"], 1.0);
    assert!(samples["task_broker_connections"] >= 1.0);
    for name in ["process_resident_memory_bytes", "process_open_fds", "process_start_time_seconds"] {
        assert!(samples[name] > 0.0, "{name}");
    }
    if store == Store::Sled {
        let commits = samples["task_broker_store_commit_duration_seconds_count"];
        assert!((1.0..=5.0).contains(&commits), "{commits}");
        assert_eq!(samples["task_broker_store_group_commands_count"], commits);
        for name in ["disk_bytes", "free_bytes", "journal_bytes", "journal_capacity_bytes"] {
            assert!(samples[&format!("task_broker_store_{name}")] > 0.0, "{name}");
        }
    }

    alice.call("store/setTtl", json!({"taskId": working, "ttlMs": 0})).await.result();
    let client = broker.anonymous();
    until(&client, "task_broker_tasks{status=\"working\"}", 0.0).await;
    until(&client, "task_broker_expired_tasks", 0.0).await;
}

#[tokio::test]
async fn calls_and_tasks_are_counted_on_sled() {
    calls_and_tasks_are_counted(Store::Sled).await;
}

#[tokio::test]
async fn calls_and_tasks_are_counted_in_memory() {
    calls_and_tasks_are_counted(Store::Memory).await;
}

#[tokio::test]
async fn the_tasks_of_an_opened_store_are_counted() {
    let mut broker = own_broker(Store::Sled);
    let alice = broker.user("alice");
    let first = alice.new_task().await;
    alice.new_task().await;
    alice.call("store/cancel", json!({"taskId": first})).await.result();
    let before = scrape(&broker.anonymous()).await;
    broker.kill9();
    broker.restart();
    let after = scrape(&broker.anonymous()).await;
    for name in ["tasks{status=\"working\"}", "tasks{status=\"cancelled\"}", "task_bytes"] {
        let name = format!("task_broker_{name}");
        assert_eq!(before[&name], after[&name], "{name}");
    }
}

#[tokio::test]
async fn what_is_open_is_counted_until_it_is_closed() {
    let broker = own_broker(Store::Memory);
    let alice = broker.user("alice");
    let client = broker.anonymous();
    let id = alice.new_task().await;
    let stream = alice.watch(json!({})).await;
    let wait = tokio::spawn({
        let (alice, params) = (alice.clone(), json!({"taskId": id, "timeoutMs": 30_000}));
        async move { alice.call("store/wait", params).await.result() }
    });
    until(&client, "task_broker_streams", 1.0).await;
    until(&client, "task_broker_waits", 1.0).await;
    alice.call("store/cancel", json!({"taskId": id})).await.result();
    wait.await.unwrap();
    drop(stream);
    for name in ["task_broker_waits", "task_broker_streams", "task_broker_requests_in_progress"] {
        until(&client, name, 0.0).await;
    }
    let before = value(&scrape(&client).await, "task_broker_connections");
    let held = Connection::open(broker.address());
    until(&client, "task_broker_connections", before + 1.0).await;
    drop(held);
    until(&client, "task_broker_connections", before).await;
}

/// How many odd requests are made, and by how many clients at once.
const ODD: usize = 20_000;
const CLIENTS: usize = 8;

/// Odd requests over one connection: paths, methods, hosts and agents that nobody has had before.
fn odd_requests(broker: &Broker, from: usize) {
    /// How many are sent before their answers are read.
    const AT_ONCE: usize = 50;
    let token = broker.user("scanner").token().to_owned();
    let mut connection = Connection::open(broker.address());
    for first in (0..ODD / CLIENTS).step_by(AT_ONCE) {
        let mut text = String::new();
        for n in first..first + AT_ONCE {
            let n = from + n;
            let bearer = if n.is_multiple_of(2) {
                format!("authorization: Bearer {token}\r\n")
            } else {
                String::new()
            };
            let odd =
                format!("host: h{n}.example\r\nuser-agent: agent/{n}\r\nx-request-id: id-{n}\r\n{bearer}");
            let rpc = format!(r#"{{"jsonrpc":"2.0","id":{n},"method":"odd/m{n}"}}"#);
            let request = match n % 4 {
                0 => format!("FOO{} /p{n} HTTP/1.1\r\n{odd}\r\n", n % 500),
                1 => format!(
                    "POST /rpc HTTP/1.1\r\n{odd}content-type: application/json\r\ncontent-length: {}\r\n\r\n{rpc}",
                    rpc.len()
                ),
                _ => format!("GET /p{n}/{n}?q={n} HTTP/1.1\r\n{odd}\r\n"),
            };
            text.push_str(&request);
        }
        connection.send(text);
        for _ in 0..AT_ONCE {
            let status = connection.answer().status;
            assert!([200, 404].contains(&status), "{status}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn odd_requests_make_no_new_series_and_a_scrape_stays_fast() {
    let broker = own_broker(Store::Sled);
    let client = broker.anonymous();
    let before = scrape(&client).await;
    std::thread::scope(|scope| {
        for n in 0..CLIENTS {
            let broker = &broker;
            scope.spawn(move || odd_requests(broker, n * ODD / CLIENTS));
        }
    });
    let after = scrape(&client).await;
    let new: Vec<_> = after.keys().filter(|name| !before.contains_key(*name)).collect();
    assert!(new.len() < 20, "{new:?}");
    let refused = "task_broker_http_refusals_total{status=\"404\"}";
    assert_eq!(value(&after, refused), 15_000.0);
    let unknown = "task_broker_requests_total{method=\"unknown\",outcome=\"method_not_found\"}";
    assert_eq!(value(&after, unknown), 5_000.0);
    // The best of a few: other tests share the machine.
    let mut best = Duration::MAX;
    for _ in 0..5 {
        let began = Instant::now();
        client.http(Method::GET, "/metrics").await;
        best = best.min(began.elapsed());
    }
    assert!(best < Duration::from_millis(100), "{best:?}");
}

#[tokio::test]
async fn an_answer_has_the_id_of_its_request_or_a_new_one() {
    let broker = own_broker(Store::Memory);
    let client = broker.anonymous();
    let info = r#"{"jsonrpc":"2.0","id":1,"method":"store/info"}"#;
    let given = client.send(Outgoing::new(info).header("x-request-id", "abc-123")).await;
    assert_eq!(given.header("x-request-id"), Some("abc-123"));
    let long = "x".repeat(65);
    for odd in ["a b", "\"quoted\"", "a,b", long.as_str()] {
        let answer = client.send(Outgoing::new(info).header("x-request-id", odd)).await;
        let id = answer.header("x-request-id").unwrap();
        assert!(id.len() == 16 && id.bytes().all(|byte| byte.is_ascii_hexdigit()), "{id}");
    }
    for path in ["/livez", "/readyz", "/metrics", "/no/such"] {
        assert!(client.http(Method::GET, path).await.header("x-request-id").is_some(), "{path}");
    }
    let stream = client.watch(json!({})).await;
    assert!(stream.headers.contains_key("x-request-id"));
}

#[tokio::test]
async fn the_operators_page_has_every_metric_and_no_other() {
    const PAGE: &str = include_str!("../../docs/operations.md");
    // Nobody listens there; the metric about that is there all the same.
    let broker = BrokerOptions::new(Store::Sled).flag("--otlp-endpoint", "http://127.0.0.1:9").start();
    let answer = broker.anonymous().http(Method::GET, "/metrics").await;
    let families: Vec<_> = answer
        .text()
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next().map(str::to_owned))
        .collect();
    assert!(families.len() > 25, "{families:?}");
    let words = PAGE.split(|character: char| !character.is_ascii_alphanumeric() && character != '_');
    let named: Vec<_> =
        words.filter(|word| word.starts_with("task_broker_") || word.starts_with("process_")).collect();
    for family in &families {
        assert!(named.contains(&family.as_str()), "{family} is not in docs/operations.md");
    }
    for word in named {
        let family = word.strip_suffix("_bucket").unwrap_or(word);
        assert!(families.iter().any(|known| known == family), "there is no {word}");
    }
}
