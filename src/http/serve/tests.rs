use axum::Router;
use axum::routing::get;
use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;

/// Far longer than any limit below: a test that runs into it has found a connection that is never given up.
const PATIENCE: Duration = Duration::from_secs(10);

struct Server {
    address: std::net::SocketAddr,
    shutdown: CancellationToken,
    served: tokio::task::JoinHandle<()>,
}

async fn server(head_ms: u64, idle_ms: u64) -> Server {
    server_with(ConnectionLimits {
        head: Duration::from_millis(head_ms),
        idle: Duration::from_millis(idle_ms),
        ..ConnectionLimits::default()
    })
    .await
}

async fn server_with(limits: ConnectionLimits) -> Server {
    let slow = || async {
        sleep(Duration::from_millis(600)).await;
        "slow"
    };
    let read = |body: Bytes| async move { format!("{} bytes", body.len()) };
    let app = Router::new()
        .route("/", get(|| async { "ok" }))
        .route("/slow", get(slow))
        .route("/read", axum::routing::post(read));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let shutdown = CancellationToken::new();
    let served = tokio::spawn(serve(listener, None, app, shutdown.clone(), limits, Connections::default()));
    Server { address, shutdown, served }
}

#[tokio::test]
async fn a_peer_that_is_gone_without_a_word_is_noticed_by_the_system() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let _peer = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (stream, _) = listener.accept().await.unwrap();
    prepare(&stream).unwrap();
    assert!(sockopt::socket_keepalive(&stream).unwrap());
    assert_eq!(sockopt::tcp_user_timeout(&stream).unwrap(), 30_000);
    let asks = sockopt::tcp_keepintvl(&stream).unwrap() * sockopt::tcp_keepcnt(&stream).unwrap();
    assert!(sockopt::tcp_keepidle(&stream).unwrap() + asks <= DEAD_AFTER);
}

/// Sends `text` and reads until the server closes the connection.
async fn until_closed(server: &Server, text: &str) -> String {
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(text.as_bytes()).await.unwrap();
    let mut received = String::new();
    let read = tokio::time::timeout(PATIENCE, stream.read_to_string(&mut received)).await;
    // A reset is an end too.
    drop(read.expect("the connection is never given up"));
    received
}

#[tokio::test]
async fn a_connection_is_given_up_when_it_is_idle_after_any_kind_of_request() {
    let server = server(5_000, 200).await;
    for request in ["GET / HTTP/1.1\r\nhost: x\r\n\r\n", "GET /nothing HTTP/1.1\r\nhost: x\r\n\r\n"] {
        let began = Instant::now();
        assert!(until_closed(&server, request).await.starts_with("HTTP/1.1 "), "{request}");
        assert!(began.elapsed() >= Duration::from_millis(190), "not before its time");
    }
}

#[tokio::test]
async fn a_request_that_takes_longer_than_the_limits_is_served() {
    let server = server(100, 100).await;
    let answer = until_closed(&server, "GET /slow HTTP/1.1\r\nhost: x\r\n\r\n").await;
    assert!(answer.ends_with("slow"), "{answer}");
}

#[tokio::test]
async fn silence_and_half_a_head_are_given_up() {
    let server = server(100, 60_000).await;
    assert_eq!(until_closed(&server, "").await, "");
    assert_eq!(until_closed(&server, "GET / HT").await, "");
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    let mut first = [0; 12];
    stream.read_exact(&mut first).await.unwrap();
    stream.write_all(b"GET / HT").await.unwrap();
    let rest = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut Vec::new())).await;
    // A reset is an end too.
    drop(rest.expect("the second head is never given up"));
}

/// Requests of every kind of end.
const REQUESTS: [&str; 5] = [
    "GET / HTTP/1.1\r\nhost: x\r\n\r\n",
    "POST /read HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n{}",
    "POST /read HTTP/1.1\r\nhost: x\r\ncontent-length: 12\r\n\r\n{\"a\": \"bcd\"}",
    "POST /read HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    "POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n",
];

#[tokio::test]
async fn half_a_head_behind_a_request_in_one_packet_is_given_up() {
    let server = server(100, 60_000).await;
    for request in REQUESTS {
        for half in ["G", "GET / HT", "GET / HTTP/1.1\r\nhost: x\r\n"] {
            let answer = until_closed(&server, &format!("{request}{request}{half}")).await;
            assert_eq!(answer.matches("HTTP/1.1 ").count(), 2, "{request}{half}");
        }
    }
}

#[tokio::test]
async fn a_connection_whose_requests_are_done_is_only_idle() {
    let server = server(100, 600).await;
    for request in REQUESTS {
        let began = Instant::now();
        until_closed(&server, &format!("{request}{request}")).await;
        assert!(began.elapsed() >= Duration::from_millis(590), "{request}");
    }
}

#[tokio::test]
async fn half_a_head_does_not_hold_up_the_end() {
    let server = server(60_000, 60_000).await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\nGET / HT").await.unwrap();
    let mut first = [0; 12];
    stream.read_exact(&mut first).await.unwrap();
    server.shutdown.cancel();
    tokio::time::timeout(PATIENCE, server.served).await.expect("the end waits for half a head").unwrap();
}

/// A server that gives up a peer which takes nothing of an answer for so long.
async fn server_that_waits_for(stall: Duration) -> Server {
    server_with(ConnectionLimits { stall, ..ConnectionLimits::default() }).await
}

/// A client of HTTP/2 that takes so many bytes of each answer and no more, until it reads on.
async fn http_2(
    server: &Server,
    window: u32,
) -> (hyper::client::conn::http2::SendRequest<Body>, tokio::task::JoinHandle<hyper::Result<()>>) {
    let stream = TcpStream::connect(server.address).await.unwrap();
    let mut builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
    builder.initial_stream_window_size(window);
    let (sender, connection) = builder.handshake(TokioIo::new(stream)).await.unwrap();
    (sender, tokio::spawn(connection))
}

fn get_root() -> Request<Body> {
    Request::get("http://x/").body(Body::empty()).unwrap()
}

#[tokio::test]
async fn an_http_2_peer_that_takes_nothing_of_one_answer_is_given_up_whatever_else_it_does() {
    let server = server_that_waits_for(Duration::from_millis(300)).await;
    let (mut sender, connection) = http_2(&server, 0).await;
    let began = Instant::now();
    let first = sender.send_request(get_root()).await.unwrap();
    // It goes on asking, so the connection is never silent.
    let asks = async {
        while sender.send_request(get_root()).await.is_ok() {
            sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, asks).await.expect("an answer that nobody takes is held for ever");
    assert!(began.elapsed() >= Duration::from_millis(290), "not before its time");
    drop((first, connection.await));
}

#[tokio::test]
async fn an_http_2_peer_that_takes_its_answers_is_not_given_up() {
    let server = server_that_waits_for(Duration::from_millis(100)).await;
    let (mut sender, connection) = http_2(&server, 65_535).await;
    let began = Instant::now();
    while began.elapsed() < Duration::from_millis(400) {
        let answer = sender.send_request(get_root()).await.unwrap();
        let body = http_body_util::BodyExt::collect(answer.into_body()).await.unwrap();
        assert_eq!(body.to_bytes(), "ok");
        // Nothing is open for longer than a stall may last.
        sleep(Duration::from_millis(150)).await;
    }
    drop(sender);
    connection.await.unwrap().unwrap();
}
