//! Clients that go away while a wait or a stream is open (case F08).

use std::collections::VecDeque;
use std::io::Read as _;
use std::net::TcpStream;
use std::time::Duration;

use rustix::net::sockopt::set_socket_linger;
use serde_json::json;
use tokio::time::Instant;

use super::{from_env, open_files, resident_bytes};
use crate::harness::raw::Connection;
use crate::harness::{Auth, Broker, BrokerOptions, Store, poll_until};

fn open(broker: &Broker, body: &str, accept: &str) -> Connection {
    let mut connection = Connection::open(broker.address());
    let length = body.len();
    connection.send(format!(
        "POST /rpc HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nAccept: {accept}\r\n\
         Content-Length: {length}\r\n\r\n{body}"
    ));
    connection
}

/// Goes away; from a stream only after its first bytes have come.
fn leave(connection: Connection, is_stream: bool, by_reset: bool) {
    let mut stream: TcpStream = connection.into_stream();
    if is_stream {
        let mut first = [0; 12];
        stream.read_exact(&mut first).unwrap();
        assert_eq!(&first, b"HTTP/1.1 200");
    }
    if by_reset {
        set_socket_linger(&stream, Some(Duration::ZERO)).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_streams_and_waits_whose_clients_are_gone_nothing_is_left_within_thirty_seconds() {
    let count = from_env("DOOR_STREAMS", 300);
    // As many places as are used once: if one of them were not given back, the second round would not find it.
    let broker = BrokerOptions::new(Store::Memory)
        .auth(Auth::Off)
        .flag("--max-streams", count)
        .flag("--max-streams-per-subject", count)
        .flag("--max-waits", count)
        .flag("--max-waits-per-subject", count)
        .start();
    let client = broker.anonymous();
    let id = client.new_task().await;
    let watch = json!({"jsonrpc": "2.0", "id": 1, "method": "store/watch"}).to_string();
    let params = json!({"taskId": id, "timeoutMs": 50_000});
    let wait = json!({"jsonrpc": "2.0", "id": 1, "method": "store/wait", "params": params}).to_string();
    let mut base = None;
    for round in 0..3 {
        // The first round only makes the broker take what it keeps for good.
        let files = open_files(&broker);
        let began = Instant::now();
        let mut present = VecDeque::new();
        for number in 0..count {
            let stream = open(&broker, &watch, "text/event-stream");
            let waiting = open(&broker, &wait, "application/json");
            present.push_back((number, stream, waiting));
            // Each stays while a hundred others come.
            if present.len() > 100
                && let Some((number, stream, waiting)) = present.pop_front()
            {
                leave(stream, true, number % 2 == 0);
                leave(waiting, false, number % 2 == 1);
            }
        }
        for (number, stream, waiting) in present {
            leave(stream, true, number % 2 == 0);
            leave(waiting, false, number % 2 == 1);
        }
        let opened = began.elapsed();
        let began = Instant::now();
        poll_until(Duration::from_secs(30), "the sockets are closed", async || {
            (open_files(&broker) <= files + 2).then_some(())
        })
        .await;
        let closed = began.elapsed();
        // All places are free: as many as there are can be taken at once, and one more is refused.
        let mut streams = Vec::new();
        for _ in 0..count.min(400) {
            streams.push(client.watch(json!({})).await);
        }
        if count <= 400 {
            let one_more = client
                .send(crate::harness::Outgoing::new(watch.clone()).header("accept", "text/event-stream"));
            assert!([429, 503].contains(&one_more.await.status));
        }
        drop(streams);
        poll_until(Duration::from_secs(30), "the sockets are closed", async || {
            (open_files(&broker) <= files + 2).then_some(())
        })
        .await;
        let resident = resident_bytes(&broker);
        println!(
            "round {round}: {count} streams and {count} waits opened and left in {opened:?}, sockets at base after \
             {closed:?}, {} MiB resident",
            resident >> 20
        );
        let base = *base.get_or_insert(resident);
        assert!(resident < base + (32 << 20), "{base} -> {resident}");
    }
    broker.assert_no_error_logged();
}
