//! Traces: a span for each call reaches a collector, and a collector that is broken hurts nobody.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Stdio;
use std::sync::mpsc::{Receiver, channel};
use std::time::Instant;

use super::{Broker, DEADLINE, get, post, start_with, wait_for};

/// A collector that keeps what it is sent: path with headers, and body.
struct Collector {
    url: String,
    received: Receiver<(String, Vec<u8>)>,
}

fn collector() -> Collector {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (sender, received) = channel();
    std::thread::spawn(move || {
        while let Ok((stream, _)) = listener.accept() {
            let sender = sender.clone();
            std::thread::spawn(move || {
                serve(stream, |head, body| sender.send((head, body)).unwrap_or_default());
            });
        }
    });
    Collector { url, received }
}

/// Answers the requests of one connection.
fn serve(mut stream: TcpStream, take: impl Fn(String, Vec<u8>)) {
    let mut received = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let head = loop {
            if let Some(end) = received.windows(4).position(|window| window == b"\r\n\r\n") {
                let head: Vec<u8> = received.drain(..end + 4).collect();
                break String::from_utf8(head).unwrap().to_lowercase();
            }
            match stream.read(&mut buffer) {
                Ok(0) | Err(_) => return,
                Ok(count) => received.extend_from_slice(&buffer[..count]),
            }
        };
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.trim().parse().ok());
        let length: usize = length.unwrap_or_else(|| panic!("no length: {head}"));
        while received.len() < length {
            let count = stream.read(&mut buffer).unwrap();
            received.extend_from_slice(&buffer[..count]);
        }
        take(head, received.drain(..length).collect());
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").unwrap();
    }
}

fn contains(bytes: &[u8], wanted: &[u8]) -> bool {
    bytes.windows(wanted.len()).any(|window| window == wanted)
}

fn traced(url: &str) -> Broker {
    start_with(&["--store", "memory:", "--otlp-endpoint", url], "info", Stdio::null())
}

const INFO: &str = r#"{"jsonrpc":"2.0","id":1,"method":"store/info"}"#;
const UNKNOWN: &str =
    r#"{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{"taskId":"00112233445566778899aabbccddeeff"}}"#;

#[test]
fn a_call_is_a_span_of_the_trace_that_its_client_has_begun() {
    let collector = collector();
    let broker = traced(&collector.url);
    let parent =
        b"traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\r\nx-request-id: seen\r\n";
    post(broker.address, parent, UNKNOWN);
    get(broker.address, "/readyz").unwrap();
    let (head, body) = collector.received.recv_timeout(DEADLINE).expect("spans in time");
    assert!(
        head.starts_with("post /v1/traces ") && head.contains("content-type: application/x-protobuf"),
        "{head}"
    );
    let trace: Vec<u8> =
        vec![0x0a, 0xf7, 0x65, 0x19, 0x16, 0xcd, 0x43, 0xdd, 0x84, 0x48, 0xeb, 0x21, 0x1c, 0x80, 0x31, 0x9c];
    let span = [0xb7, 0xad, 0x6b, 0x71, 0x69, 0x20, 0x33, 0x31];
    assert!(contains(&body, &trace) && contains(&body, &span), "the trace and the parent of the client");
    for text in ["task-broker", "tasks/get", "rpc.method", "task_not_found", "seen"] {
        assert!(contains(&body, text.as_bytes()), "no {text} in {}", String::from_utf8_lossy(&body));
    }
    for hidden in ["00112233445566778899aabbccddeeff", "readyz"] {
        assert!(!contains(&body, hidden.as_bytes()), "{hidden}");
    }
}

#[test]
fn a_client_may_say_that_its_trace_is_not_kept_and_a_broken_header_begins_a_new_one() {
    let collector = collector();
    let mut broker = traced(&collector.url);
    let unsampled = b"traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00\r\nx-request-id: unsampled\r\n";
    post(broker.address, unsampled, INFO);
    post(broker.address, b"traceparent: \xff\r\nx-request-id: broken-header\r\n", INFO);
    post(broker.address, b"traceparent: 00-zz-zz-01\r\nx-request-id: broken-parent\r\n", INFO);
    // What has not been sent yet is sent at the end.
    assert!(broker.stop().success());
    let bodies: Vec<u8> = collector.received.try_iter().flat_map(|(_, body)| body).collect();
    assert!(contains(&bodies, b"broken-header") && contains(&bodies, b"broken-parent"));
    assert!(!contains(&bodies, b"unsampled"));
}

#[test]
fn a_collector_that_is_away_silent_or_says_no_does_not_hurt() {
    let away = format!("http://{}", super::free_address());
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let says_no = TcpListener::bind("127.0.0.1:0").unwrap();
    let no = format!("http://{}", says_no.local_addr().unwrap());
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = says_no.accept() {
            drop(stream.read(&mut [0; 4096]));
            drop(stream.write_all(b"HTTP/1.1 500 No\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"));
        }
    });
    for url in [away, format!("http://{}", silent.local_addr().unwrap()), no] {
        let mut broker = traced(&url);
        let began = Instant::now();
        for _ in 0..3000 / 20 {
            assert!(post(broker.address, b"", INFO).contains("\"storeId\""));
        }
        let took = began.elapsed();
        assert!(took < DEADLINE, "{took:?}");
        wait_for("the failure is counted", || {
            let metrics = get(broker.address, "/metrics").unwrap();
            let failures = metrics
                .lines()
                .find_map(|line| line.strip_prefix("task_broker_trace_export_failures_total "));
            failures.expect("the metric").parse::<u64>().unwrap() >= 1
        });
        post(broker.address, b"", INFO);
        let began = Instant::now();
        assert!(broker.stop().success(), "{url}");
        assert!(began.elapsed() < DEADLINE / 2, "{:?}", began.elapsed());
    }
}
