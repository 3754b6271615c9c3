//! What is refused on the level of HTTP, before a call is served.

use hyper::Method;
use serde_json::{Value, json};

use crate::harness::raw::{self, Connection};
use crate::harness::{Auth, Broker, BrokerOptions, Outgoing, Store};

const INFO: &str = r#"{"jsonrpc":"2.0","id":1,"method":"store/info"}"#;

async fn json_is_json_with_any_parameters_and_in_any_case(broker: &Broker) {
    let alice = broker.user("alice");
    for media_type in [
        "application/json",
        "application/json; charset=utf-8",
        "application/json;charset=UTF-8",
        "Application/JSON",
        "application/json; charset=\"utf-8\"",
        "application/json; x=y",
        "application/json ; charset=utf-8",
    ] {
        alice.send(Outgoing::new(INFO).header("content-type", media_type)).await.result();
    }
}

async fn other_media_types_are_refused(broker: &Broker) {
    let alice = broker.user("alice");
    for media_type in [
        "text/plain",
        "text/plain; charset=utf-8",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "application/jsonx",
        "text/json",
        "application/json; charset=utf-16",
        "nonsense",
    ] {
        let create = r#"{"jsonrpc":"2.0","id":1,"method":"store/create","params":{"toolName":"t"}}"#;
        let error =
            alice.send(Outgoing::new(create).header("content-type", media_type)).await.http_error(415);
        assert_eq!(error.id, Value::Null, "{media_type}");
    }
    assert_eq!(alice.call("store/list", json!({})).await.result()["tasks"], json!([]), "nothing was done");
}

async fn odd_content_type_headers_are_no_server_error(broker: &Broker) {
    let alice = broker.user("alice");
    let missing = alice.send(Outgoing::new(INFO).without("content-type")).await;
    assert!([200, 415].contains(&missing.status), "{missing}");
    let two = Outgoing::new(INFO).second_header("content-type", "text/plain");
    let answer = alice.send(two).await;
    assert!(answer.status < 500, "{answer}");
}

async fn any_origin_is_refused_unless_it_is_allowed(broker: &Broker) {
    let alice = broker.user("alice");
    let create = r#"{"jsonrpc":"2.0","id":1,"method":"store/create","params":{"toolName":"t"}}"#;
    let own = format!("http://{}", broker.address());
    for origin in ["http://evil.example", "https://evil.example", "null", "http://localhost", &own, ""] {
        let answer = alice.send(Outgoing::new(create).header("origin", origin)).await;
        assert_eq!(answer.http_error(403).id, Value::Null, "{origin:?}");
    }
    assert_eq!(alice.call("store/list", json!({})).await.result()["tasks"], json!([]), "nothing was done");
}

#[tokio::test]
async fn an_allowed_origin_is_served_and_only_that_one() {
    let options = BrokerOptions::new(Store::Memory).auth(Auth::Off);
    let options = options.flag("--allow-origin", "http://localhost:3000");
    let broker = options.flag("--allow-origin", "https://app.example").start();
    let client = broker.anonymous();
    for origin in ["http://localhost:3000", "https://app.example"] {
        client.send(Outgoing::new(INFO).header("origin", origin)).await.result();
    }
    for origin in [
        "http://localhost:3001",
        "http://localhost",
        "https://localhost:3000",
        "http://localhost:3000.evil.example",
        "http://app.example",
        "https://app.example.evil.example",
        "https://app.example:8443",
        "https://sub.app.example",
        "null",
    ] {
        client.send(Outgoing::new(INFO).header("origin", origin)).await.http_error(403);
    }
}

async fn rpc_takes_only_post_and_says_so(broker: &Broker) {
    let alice = broker.user("alice");
    for method in [Method::GET, Method::PUT, Method::DELETE, Method::PATCH] {
        let answer = alice.http(method.clone(), "/rpc").await;
        answer.http_error(405);
        let allow = answer.header("allow").unwrap_or_else(|| panic!("no Allow: {answer}"));
        assert!(allow.split(',').any(|name| name.trim() == "POST"), "{method}: {allow}");
    }
}

async fn an_unknown_path_is_not_found(broker: &Broker) {
    let alice = broker.user("alice");
    for path in ["/", "/nothing", "/rpc/", "/rpc/x", "/RPC", "/livez/x", "/.well-known/nothing"] {
        assert_eq!(alice.http(Method::GET, path).await.status, 404, "{path}");
    }
}

/// A broker whose bodies may have 64 KiB.
fn small() -> Broker {
    let options = BrokerOptions::new(Store::Memory).auth(Auth::Off);
    options.flag("--max-body-bytes", 65_536).flag("--max-payload-bytes", 32_768).start()
}

#[tokio::test]
async fn a_body_above_the_limit_is_refused_before_it_is_read() {
    let broker = small();
    let head = |length: usize| {
        format!(
            "POST /rpc HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
        )
    };
    for length in [65_537, 1 << 40] {
        // Only the head is sent: the announced length is enough to know.
        let answer = raw::exchange(broker.address(), head(length));
        assert_eq!(answer.status, 413, "{answer:?}");
        let body: Value = serde_json::from_str(&answer.body).unwrap();
        assert_eq!(body["id"], Value::Null);
        assert!(body["error"]["data"]["kind"].is_string(), "{body}");
    }
    broker.anonymous().call("store/info", json!({})).await.result();
}

#[tokio::test]
async fn a_body_without_a_length_is_cut_off_at_the_limit() {
    let broker = small();
    let mut connection = Connection::open(broker.address());
    connection.send(
        "POST /rpc HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n",
    );
    // Two chunks that are one byte more than the limit together.
    connection.send(format!("8000\r\n{}\r\n", " ".repeat(32_768)));
    connection.send(format!("8001\r\n{}\r\n", " ".repeat(32_769)));
    let answer = connection.answer();
    assert_eq!(answer.status, 413, "{answer:?}");
    broker.anonymous().call("store/info", json!({})).await.result();
}

#[tokio::test]
async fn a_body_of_exactly_the_limit_is_served() {
    let broker = small();
    let body = format!("{INFO}{}", " ".repeat(65_536 - INFO.len()));
    broker.anonymous().post(body.clone()).await.result();
    broker.anonymous().post(format!("{body} ")).await.http_error(413);
}

#[tokio::test]
async fn the_payload_limit_is_what_the_flag_says() {
    let broker = small();
    let client = broker.anonymous();
    let create = |bytes: usize| json!({"toolName": "tool", "arguments": "x".repeat(bytes - 2)});
    client.call("store/create", create(32_768)).await.result();
    let error = client.call("store/create", create(32_769)).await.error();
    error.assert_limit();
    assert_eq!(error.data["maximum"], 32_768);
}

async fn a_body_in_chunks_is_served_like_any_other(broker: &Broker) {
    let mut connection = Connection::open(broker.address());
    connection.send(
        "POST /rpc HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n",
    );
    let (left, right) = INFO.split_at(20);
    connection.send(format!("{:x}\r\n{left}\r\n", left.len()));
    connection.send(format!("{:x}\r\n{right}\r\n0\r\n\r\n", right.len()));
    let answer = connection.answer();
    assert_eq!(answer.status, 200, "{answer:?}");
    // The connection stays usable.
    let request = raw::post(broker.address(), "Content-Type: application/json\r\n", INFO);
    connection.send(request);
    assert_eq!(connection.answer().status, 200);
}

async fn an_answer_says_that_it_is_json(broker: &Broker) {
    let alice = broker.user("alice");
    for body in [INFO, "[]", "x", &format!("[{INFO}]")] {
        let answer = alice.post(body).await;
        let media_type = answer.header("content-type").unwrap();
        assert!(media_type.starts_with("application/json"), "{media_type}: {answer}");
    }
}

async fn a_request_names_its_host_once(broker: &Broker) {
    for path in ["/rpc", "/export"] {
        for (hosts, accepted) in [("", false), ("Host: x\r\n", true), ("Host: x\r\nHost: y\r\n", false)] {
            let request = format!(
                "POST {path} HTTP/1.1\r\n{hosts}Connection: close\r\nContent-Type: application/json\r\n\
                 Content-Length: {}\r\n\r\n{INFO}",
                INFO.len()
            );
            let answer = raw::exchange(broker.address(), request);
            // Nobody may export here without a token.
            assert_eq!(answer.status != 400, accepted, "{path} {hosts}: {answer:?}");
            if !accepted {
                let body: Value = serde_json::from_str(&answer.body).unwrap();
                assert_eq!(body["error"]["data"]["kind"], "invalid_request", "{body}");
                assert!(body["error"]["message"].as_str().unwrap().contains("Host"), "{body}");
            }
        }
    }
}

async fn nonsense_instead_of_http_breaks_nothing(broker: &Broker) {
    for bytes in ["GET\r\n\r\n", "\u{0}\u{1}\u{2}\r\n\r\n", "POST /rpc HTTP/9.9\r\n\r\n"] {
        if let Some(answer) = raw::try_exchange(broker.address(), bytes) {
            assert!((400..500).contains(&answer.status) || answer.status == 505, "{bytes:?}: {answer:?}");
        }
    }
    broker.user("alice").call("store/info", json!({})).await.result();
}

on_memory!(
    json_is_json_with_any_parameters_and_in_any_case,
    other_media_types_are_refused,
    odd_content_type_headers_are_no_server_error,
    any_origin_is_refused_unless_it_is_allowed,
    rpc_takes_only_post_and_says_so,
    an_unknown_path_is_not_found,
    a_body_in_chunks_is_served_like_any_other,
    an_answer_says_that_it_is_json,
    a_request_names_its_host_once,
    nonsense_instead_of_http_breaks_nothing,
);
