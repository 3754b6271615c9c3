//! Floods that cost their sender little (cases B11, B12, B15).

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;

use super::{from_env, resident_bytes};
use crate::harness::raw::{self, Connection};
use crate::harness::{Auth, BrokerOptions, Store, poll_until};

const INFO: &str = r#"{"jsonrpc":"2.0","id":1,"method":"store/info"}"#;
const CREATE: &str = r#"{"jsonrpc":"2.0","id":1,"method":"store/create","params":{"toolName":"flood"}}"#;

/// One frame of HTTP/2.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// The head of a POST of JSON to /rpc, with nothing in it that a decoder must remember.
fn head() -> Vec<u8> {
    let literal =
        |name: &[u8], value: &str| [name, &[u8::try_from(value.len()).unwrap()], value.as_bytes()].concat();
    // By the static table: 3 is ":method: POST", 6 is ":scheme: http", 4 ":path", 1 ":authority", 31 "content-type".
    [vec![0x83, 0x86], literal(&[4], "/rpc"), literal(&[1], "x"), literal(&[0x0f, 16], "application/json")]
        .concat()
}

/// Opens a request with this body and takes it back at once, so many times. Whether the broker put an end to it.
fn open_and_reset(address: std::net::SocketAddr, body: &str, count: u32) -> bool {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    stream.set_write_timeout(Some(Duration::from_secs(10))).unwrap();
    let mut reader = stream.try_clone().unwrap();
    // What comes back is read, or the broker would wait for that.
    let reading = std::thread::spawn(move || drop(std::io::copy(&mut reader, &mut std::io::sink())));
    let settings = frame(4, 0, 0, &[]);
    let began = [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".as_slice(), &settings].concat();
    stream.write_all(&began).unwrap();
    let head = head();
    let mut ended = false;
    for number in 0..count {
        let id = 2 * number + 1;
        let request =
            [frame(1, 4, id, &head), frame(0, 1, id, body.as_bytes()), frame(3, 0, id, &8_u32.to_be_bytes())];
        if stream.write_all(&request.concat()).is_err() {
            ended = true;
            break;
        }
    }
    drop(stream.shutdown(std::net::Shutdown::Both));
    reading.join().unwrap();
    ended
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_that_are_opened_and_taken_back_hold_nothing() {
    let count = u32::try_from(from_env("DOOR_RESETS", 5000)).unwrap();
    let options = BrokerOptions::new(Store::Memory).auth(Auth::Off).flag("--max-waits", 20);
    let broker = options.flag("--max-waits-per-subject", 20).start();
    let client = broker.anonymous();
    let id = client.new_task().await;
    let base = resident_bytes(&broker);
    let params = json!({"taskId": id, "timeoutMs": 50_000});
    let wait = json!({"jsonrpc": "2.0", "id": 1, "method": "store/wait", "params": params}).to_string();
    for body in [CREATE, wait.as_str()] {
        let (address, body) = (broker.address(), body.to_owned());
        let flood = std::thread::spawn(move || open_and_reset(address, &body, count));
        let mut slowest = Duration::ZERO;
        while !flood.is_finished() {
            let began = Instant::now();
            client.call("store/info", json!({})).await.result();
            slowest = slowest.max(began.elapsed());
        }
        let flood = flood.join().unwrap();
        println!("{count} resets: the slowest call of somebody else took {slowest:?}");
        assert!(slowest < Duration::from_secs(5), "{slowest:?}");
        println!("the broker closed the connection: {flood}");
    }
    // All places for waits are free again.
    let waits: Vec<_> = (0..20)
        .map(|_| {
            let (client, params) = (client.clone(), json!({"taskId": id, "timeoutMs": 300}));
            tokio::spawn(async move { client.call("store/wait", params).await })
        })
        .collect();
    for wait in waits {
        assert_eq!(wait.await.unwrap().result()["timedOut"], true);
    }
    let grown = resident_bytes(&broker).saturating_sub(base);
    println!("memory grew by {} KiB", grown >> 10);
    assert!(grown < 128 << 20, "{grown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn compressed_bodies_are_refused_unread() {
    let broker = BrokerOptions::new(Store::Memory).auth(Auth::Required).start();
    let alice = broker.user("alice");
    let base = resident_bytes(&broker);
    for coding in
        ["gzip", "gzip, gzip", "br", "zstd", "deflate", "x-unknown", "compress", "GZIP", "gzip, identity"]
    {
        for token in [None, Some(alice.token())] {
            let authorization =
                token.map(|token| format!("Authorization: Bearer {token}\r\n")).unwrap_or_default();
            let lines =
                format!("Content-Encoding: {coding}\r\nContent-Type: application/json\r\n{authorization}");
            let began = Instant::now();
            // The body is announced and never sent: nobody waits for it.
            let head = format!("POST /rpc HTTP/1.1\r\nHost: x\r\n{lines}Content-Length: 1000000\r\n\r\n");
            let answer = raw::exchange(broker.address(), head);
            assert_eq!(answer.status, if token.is_some() { 415 } else { 401 }, "{coding}: {answer:?}");
            assert!(began.elapsed() < Duration::from_secs(5), "{coding}");
        }
    }
    let grown = resident_bytes(&broker).saturating_sub(base);
    assert!(grown < 32 << 20, "{grown}");
    let lines = format!(
        "Content-Encoding: identity\r\nContent-Type: application/json\r\nAuthorization: Bearer {}\r\n",
        alice.token()
    );
    assert_eq!(raw::exchange(broker.address(), raw::post(broker.address(), &lines, INFO)).status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_sends_slowly_or_nothing_is_given_up_and_nobody_else_is() {
    let broker = BrokerOptions::new(Store::Memory).auth(Auth::Off).start();
    let client = broker.anonymous();
    let id = client.new_task().await;
    let mut stream = client.watch(json!({})).await;
    assert!(stream.synced().await);
    let base = super::open_files(&broker);
    let count = from_env("DOOR_SLOW", 120);
    // A body may take 30 s, too long for a test that is run all the time: src/http/body.rs has one with a clock of its own.
    let kinds = if std::env::var_os("DOOR_SLOW").is_some() { 3 } else { 2 };
    let slow: Vec<_> = (0..count)
        .map(|number| {
            let address = broker.address();
            std::thread::spawn(move || {
                let began = Instant::now();
                let mut connection = Connection::open(address);
                let (head, byte) = match number % kinds {
                    0 => ("", ""),
                    1 => ("POST /rpc HTTP/1.1\r\n", "h"),
                    _ => (
                        "POST /rpc HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 1000\r\n\r\n",
                        "[",
                    ),
                };
                connection.send(head);
                while began.elapsed() < Duration::from_mins(1) && !connection.is_closed(Duration::from_secs(2)) {
                    connection.send(byte);
                }
                began.elapsed()
            })
        })
        .collect();
    // A wait is longer than any of these limits, and is not cut.
    let waiting = tokio::spawn({
        let client = client.clone();
        async move { client.call("store/wait", json!({"taskId": id, "timeoutMs": 18_000})).await.result() }
    });
    while slow.iter().any(|thread| !thread.is_finished()) {
        let began = Instant::now();
        client.call("store/info", json!({})).await.result();
        assert!(began.elapsed() < Duration::from_secs(5), "somebody else waits for them");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    for (number, thread) in slow.into_iter().enumerate() {
        let took = thread.join().unwrap();
        let limit = if number % kinds == 2 { 30 } else { 10 };
        assert!(took < Duration::from_secs(limit + 10), "{number}: {took:?}");
    }
    assert_eq!(waiting.await.unwrap()["timedOut"], true);
    let another = client.new_task().await;
    assert_eq!(stream.next_about(&another).await.kind(), "create", "the stream lives");
    poll_until(Duration::from_secs(10), "all sockets are closed", async || {
        (super::open_files(&broker) <= base + 4).then_some(())
    })
    .await;
}

/// A head that is as large as it may be, and larger.
#[test]
fn heads_have_a_bound_on_both_versions_of_http() {
    let broker = BrokerOptions::new(Store::Memory).auth(Auth::Off).start();
    let lines =
        |bytes: usize| format!("Content-Type: application/json\r\nX-Filler: {}\r\n", "f".repeat(bytes));
    let small = raw::exchange(broker.address(), raw::post(broker.address(), &lines(20_000), INFO));
    assert_eq!(small.status, 200, "{small:?}");
    if let Some(answer) =
        raw::try_exchange(broker.address(), raw::post(broker.address(), &lines(1 << 20), INFO))
    {
        assert_eq!(answer.status, 431, "{answer:?}");
    }
    let many = "X-Header: y\r\n".repeat(2000);
    if let Some(answer) = raw::try_exchange(broker.address(), raw::post(broker.address(), &many, INFO)) {
        assert_eq!(answer.status, 431, "{answer:?}");
    }
    // A flood of continuations of one head of HTTP/2, which never ends.
    let mut stream = TcpStream::connect(broker.address()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    stream
        .write_all(&[b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".as_slice(), &frame(4, 0, 0, &[])].concat())
        .unwrap();
    stream.write_all(&frame(1, 0, 1, &head())).unwrap();
    let filler = [&[0, 1, b'x', 0x7f, 0x81, 0x7d][..], &vec![b'f'; 16_000]].concat();
    let base = resident_bytes(&broker);
    let ended = (0..2000).any(|_| stream.write_all(&frame(9, 0, 1, &filler)).is_err());
    drop(stream.read_to_end(&mut Vec::new()));
    assert!(ended, "32 MiB of one head were taken");
    assert!(resident_bytes(&broker).saturating_sub(base) < 32 << 20);
}

/// Batches far above the limit, again and again: somebody else does not notice.
#[tokio::test(flavor = "multi_thread")]
async fn long_batches_hold_nobody_up() {
    let broker = BrokerOptions::new(Store::Memory).auth(Auth::Off).start();
    let get = r#"{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{"taskId":"x"}}"#;
    let batch = format!("[{}]", vec![get; 20_000].join(","));
    let client = broker.anonymous();
    let flood = tokio::spawn({
        let flooding = broker.anonymous();
        async move {
            for _ in 0..20 {
                assert_eq!(flooding.post(batch.clone()).await.error().kind, "invalid_request");
            }
        }
    });
    let mut latencies = Vec::new();
    while !flood.is_finished() {
        let began = Instant::now();
        client.call("store/info", json!({})).await.result();
        latencies.push(began.elapsed());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    flood.await.unwrap();
    latencies.sort();
    let p99 = latencies[latencies.len() * 99 / 100];
    println!("beside batches of 20,000 calls: p99 {p99:?} of {} calls", latencies.len());
    assert!(p99 < Duration::from_secs(1), "{p99:?}");
}

/// A refusal that comes before the body was read must not be lost: neither by a client that sends all of it first, nor
/// for the next request on the connection.
#[test]
fn an_answer_that_does_not_wait_for_the_body_arrives_all_the_same() {
    let broker = BrokerOptions::new(Store::Memory).auth(Auth::Required).start();
    let lines = "Content-Type: application/json\r\nAuthorization: Bearer nonsense\r\n";
    for bytes in [10_000, 100_000, 900_000] {
        let body = format!("{{\"x\":\"{}\"}}", "x".repeat(bytes));
        let length = body.len();
        let request =
            format!("POST /rpc HTTP/1.1\r\nHost: x\r\n{lines}Content-Length: {length}\r\n\r\n{body}");
        for round in 0..20 {
            let mut connection = Connection::open(broker.address());
            for number in 0..3 {
                connection.send(&request);
                let answer = connection.try_answer();
                let status = answer.map(|answer| answer.status);
                assert_eq!(status, Some(401), "{bytes} bytes, connection {round}, request {number}");
            }
            // The last one of a connection.
            let last = raw::try_exchange(broker.address(), raw::post(broker.address(), lines, &body));
            assert_eq!(last.map(|answer| answer.status), Some(401), "{bytes} bytes, {round}");
        }
    }
    // A body that never comes is not waited for, and does not hold the connection for ever.
    let mut connection = Connection::open(broker.address());
    connection.send(format!("POST /rpc HTTP/1.1\r\nHost: x\r\n{lines}Content-Length: 1000\r\n\r\n"));
    assert_eq!(connection.answer().status, 401);
    assert!(connection.is_closed(Duration::from_secs(20)));
}

#[tokio::test(flavor = "multi_thread")]
async fn large_bodies_that_lack_their_end_keep_nobody_out() {
    let broker = BrokerOptions::new(Store::Memory).auth(Auth::Off).start();
    let client = broker.anonymous();
    let large = 8_usize << 20;
    let params = json!({"taskId": 5, "x": "x".repeat(256 << 10)});
    let quick = json!({"jsonrpc": "2.0", "id": 1, "method": "store/get", "params": params}).to_string();
    // More than all bodies together may have, if each were kept.
    let open: Vec<_> = (0..40)
        .map(|_| {
            let address = broker.address();
            std::thread::spawn(move || {
                let mut stream = TcpStream::connect(address).unwrap();
                let head = format!(
                    "POST /rpc HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {large}\r\n\r\n"
                );
                // The broker may have refused it by then.
                stream.write_all(&[head.as_bytes(), &vec![b' '; large - 1]].concat()).ok();
                stream
            })
        })
        .collect();
    let open: Vec<_> = open.into_iter().map(|sending| sending.join().unwrap()).collect();
    poll_until(Duration::from_secs(10), "a body that is there at once is read", async || {
        (client.post(quick.clone()).await.error().kind == "invalid_params").then_some(())
    })
    .await;
    for _ in 0..20 {
        assert_eq!(client.post(quick.clone()).await.error().kind, "invalid_params");
    }
    drop(open);
}
