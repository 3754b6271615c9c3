//! Answers that nobody takes: they have a bound together, whatever they tell, and other answers go on.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::json;

use super::resident_bytes;
use crate::harness::{Auth, Broker, BrokerOptions, Store, id_of, poll_until};

/// What the room for answers holds, and something for everything else, in bytes.
const MOST_BYTES: u64 = 400 << 20;

/// A connection of HTTP/2 that takes no byte of any answer.
async fn takes_nothing(broker: &Broker) -> SendRequest<Full<Bytes>> {
    let stream = tokio::net::TcpStream::connect(broker.address()).await.unwrap();
    let mut builder = Builder::new(TokioExecutor::new());
    builder.initial_stream_window_size(0);
    let (sender, connection) = builder.handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    sender
}

#[tokio::test(flavor = "multi_thread")]
async fn large_answers_that_nobody_takes_have_a_bound_and_hold_up_no_small_ones() {
    let broker = BrokerOptions::new(Store::Memory).auth(Auth::Off).start();
    let client = broker.anonymous();
    let id = id_of(&client.create(json!({})).await);
    let large = json!({"taskId": id, "result": {"text": "x".repeat(4_000_000)}});
    client.call("store/complete", large).await.result();
    // More of them than what is left of the room when no answer of four megabytes fits in any more.
    let meta = json!({"text": "x".repeat(65_000)});
    let create = json!({"jsonrpc": "2.0", "id": 1, "method": "store/create", "params": {"toolName": "t", "meta": meta}});
    let made = client.post(json!(vec![create; 80]).to_string()).await.elements();
    let ids: Vec<_> =
        made.iter().map(|one| one["result"]["task"]["taskId"].as_str().unwrap().to_owned()).collect();
    let cancel =
        |id: &String| json!({"jsonrpc": "2.0", "id": 1, "method": "store/cancel", "params": {"taskId": id}});
    let cancels: Vec<_> = ids.iter().map(cancel).collect();
    let base = resident_bytes(&broker);

    // A cancel of a task that has ended changes nothing and shows it all: it is a read like any other.
    let call = |method: &str| json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": {"taskId": id}});
    let cancel = call("store/cancel").to_string();
    let mut statuses = std::collections::BTreeMap::<u16, usize>::new();
    let mut held = Vec::new();
    let mut sender = takes_nothing(&broker).await;
    for _ in 0..120 {
        let request = hyper::Request::post(format!("http://{}/rpc", broker.address()))
            .header("content-type", "application/json")
            .body(Full::from(cancel.clone()))
            .unwrap();
        let answer = sender.send_request(request).await.unwrap();
        *statuses.entry(answer.status().as_u16()).or_default() += 1;
        held.push(answer);
    }
    assert!(statuses[&200] > 40 && statuses[&503] > 40 && statuses.len() == 2, "{statuses:?}");

    // In a batch a change is told, and of the reads those whose answers are short.
    let change = call("store/setStatus");
    let unknown =
        json!({"jsonrpc": "2.0", "id": 2, "method": "store/discard", "params": {"taskId": "0".repeat(32)}});
    let batch = json!([call("store/get"), change, call("store/get"), unknown]).to_string();
    let answer = client.post(batch).await;
    let kinds: Vec<_> = answer.elements().iter().map(|one| one["error"]["data"]["kind"].clone()).collect();
    assert_eq!(kinds[0], "unavailable", "{answer}");
    assert_eq!(kinds[2], "unavailable", "{answer}");
    assert_eq!(kinds[3], "task_not_found", "{answer}");
    let grown = resident_bytes(&broker).saturating_sub(base);
    assert!(grown < MOST_BYTES, "{grown} bytes");

    // Changes whose answers are long are told although there is no room, and nothing more is done from the first of them on.
    let answer = client.post(json!(cancels).to_string()).await;
    let told: Vec<_> = answer.elements().iter().map(|one| one["result"]["applied"] == true).collect();
    let done = told.iter().take_while(|told| **told).count();
    assert!((1..told.len()).contains(&done), "{told:?}");
    for (element, id) in answer.elements().iter().zip(&ids).skip(done) {
        assert_eq!(element["error"]["data"]["kind"], "unavailable", "{element:.300}");
        let status = client.call("store/statuses", json!({"taskIds": [id]})).await.result();
        assert!(status.to_string().contains("working"), "{status}");
    }

    drop((held, sender));
    let read = async || (client.post(call("store/get").to_string()).await.status == 200).then_some(());
    poll_until(Duration::from_secs(9), "the room is given back with the connection", read).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_takes_no_answers_to_batches_keeps_nobody_out() {
    let broker = BrokerOptions::new(Store::Memory).auth(Auth::Off).flag("--max-requests", 1000).start();
    let client = broker.anonymous();
    let create = json!({"jsonrpc": "2.0", "id": 1, "method": "store/create", "params": {"toolName": "t"}});
    let batch = json!(vec![create; 100]).to_string();
    let mut sender = takes_nothing(&broker).await;
    let mut held = Vec::new();
    // More than all places, if each kept one for each of its calls until its answer is taken.
    for _ in 0..20 {
        let request = hyper::Request::post(format!("http://{}/rpc", broker.address()))
            .header("content-type", "application/json")
            .body(Full::from(batch.clone()))
            .unwrap();
        held.push(sender.send_request(request).await.unwrap());
        assert_eq!(held.last().map(|answer| answer.status().as_u16()), Some(200));
    }
    for _ in 0..20 {
        client.new_task().await;
        assert_eq!(client.post(batch.clone()).await.elements().len(), 100);
    }
    drop((held, sender));
}
