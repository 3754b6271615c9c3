//! TLS on the listening socket.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use serde_json::Value;
use tempfile::TempDir;
use tokio::time::Instant;

use super::https::Certificate;
use super::{file, flag};
use crate::harness::{Auth, Broker, BrokerOptions, Store};

const INFO: &str = r#"{"jsonrpc":"2.0","id":1,"method":"store/info"}"#;

fn start(directory: &TempDir, certificate: &Certificate) -> Broker {
    BrokerOptions::new(Store::Memory)
        .auth(Auth::Off)
        .flag("--tls-cert", flag(&file(directory, "cert.pem", &certificate.chain_pem)))
        .flag("--tls-key", flag(&file(directory, "key.pem", &certificate.key_pem)))
        .start()
}

/// A connection with TLS; fails as the handshake does.
fn connect(
    broker: &Broker,
    config: ClientConfig,
) -> std::io::Result<StreamOwned<ClientConnection, TcpStream>> {
    let name = ServerName::try_from("127.0.0.1").unwrap();
    let session = ClientConnection::new(Arc::new(config), name).unwrap();
    let stream = TcpStream::connect(broker.address()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut stream = StreamOwned::new(session, stream);
    while stream.conn.is_handshaking() {
        stream.conn.complete_io(&mut stream.sock)?;
    }
    Ok(stream)
}

fn post(stream: &mut (impl std::io::Read + std::io::Write)) -> String {
    let length = INFO.len();
    let head = "POST /rpc HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: application/json\r\n";
    stream.write_all(format!("{head}content-length: {length}\r\n\r\n{INFO}").as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn calls_are_served_over_tls_with_http_1_and_http_2_on_offer() {
    let directory = TempDir::new().unwrap();
    let certificate = Certificate::new();
    let broker = start(&directory, &certificate);
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let config = certificate.client_of(&[version]);
        let answer = post(&mut connect(&broker, config).unwrap());
        assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("storeId"), "{answer}");
    }
    for (offer, chosen) in [
        (&["h2", "http/1.1"][..], Some("h2")),
        (&["http/1.1"], Some("http/1.1")),
        (&["http/1.1", "h2"], Some("h2")),
        (&[], None),
    ] {
        let mut config = certificate.client();
        config.alpn_protocols = offer.iter().map(|name| name.as_bytes().to_vec()).collect();
        let stream = connect(&broker, config).unwrap();
        assert_eq!(stream.conn.alpn_protocol(), chosen.map(str::as_bytes), "{offer:?}");
    }
    let mut config = certificate.client();
    config.alpn_protocols = vec![b"spdy/1".to_vec()];
    assert!(connect(&broker, config).is_err(), "nothing in common");
    assert!(connect(&broker, Certificate::new().client()).is_err(), "another authority");
    let listening = broker.wait_log(Duration::ZERO, |record| {
        (record["fields"]["message"] == "listening").then(|| record["fields"]["tls"].clone())
    });
    assert_eq!(listening, Some(Value::Bool(true)));
}

#[tokio::test]
async fn http_2_over_tls_serves_calls() {
    let directory = TempDir::new().unwrap();
    let certificate = Certificate::new();
    let broker = start(&directory, &certificate);
    let mut config = certificate.client();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
    let stream = tokio::net::TcpStream::connect(broker.address()).await.unwrap();
    let stream = connector.connect(ServerName::try_from("localhost").unwrap(), stream).await.unwrap();
    let io = hyper_util::rt::TokioIo::new(stream);
    let executor = hyper_util::rt::TokioExecutor::new();
    let (mut sender, connection) = hyper::client::conn::http2::handshake(executor, io).await.unwrap();
    tokio::spawn(connection);
    for _ in 0..20 {
        let body = http_body_util::Full::new(bytes::Bytes::from_static(INFO.as_bytes()));
        let request =
            hyper::Request::post("https://localhost/rpc").header("content-type", "application/json");
        let answer = sender.send_request(request.body(body).unwrap()).await.unwrap();
        assert_eq!(answer.status(), 200);
    }
}

#[test]
fn silence_and_plain_http_are_given_up_before_a_handshake() {
    let directory = TempDir::new().unwrap();
    let broker = start(&directory, &Certificate::new());
    for bytes in ["", "GET / HTTP/1.1\r\nhost: x\r\n\r\n", "\u{16}\u{3}\u{1}"] {
        let began = Instant::now();
        let mut stream = TcpStream::connect(broker.address()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream.write_all(bytes.as_bytes()).unwrap();
        let mut received = Vec::new();
        // A reset is an end too; a timeout is none.
        let ended = stream.read_to_end(&mut received);
        assert!(
            ended.as_ref().is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionReset)
                || ended.is_ok()
        );
        assert!(began.elapsed() < Duration::from_secs(15), "{bytes:?}: {:?}", began.elapsed());
        assert!(!String::from_utf8_lossy(&received).contains("HTTP/1.1 200"));
    }
}

#[test]
fn a_silent_connection_is_given_up_after_the_handshake_too() {
    let directory = TempDir::new().unwrap();
    let certificate = Certificate::new();
    let broker = start(&directory, &certificate);
    let mut stream = connect(&broker, certificate.client()).unwrap();
    stream.write_all(b"POST /rpc HTTP/1.1\r\nhost:").unwrap();
    let began = Instant::now();
    let mut received = Vec::new();
    drop(stream.read_to_end(&mut received));
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
}

#[test]
fn a_new_certificate_is_taken_without_a_restart_and_a_bad_one_is_not() {
    let directory = TempDir::new().unwrap();
    let (old, new) = (Certificate::new(), Certificate::new());
    let broker = start(&directory, &old);
    let mut open = connect(&broker, old.client()).unwrap();
    // The certificate first and then the key, as anybody would: in between they do not fit together.
    file(&directory, "cert.pem", &new.chain_pem);
    let told = broker.wait_log(Duration::from_secs(15), |record| {
        (record["fields"]["message"] == "the new TLS certificate is not taken").then_some(())
    });
    assert!(told.is_some(), "a certificate without its key");
    assert!(connect(&broker, old.client()).is_ok());
    file(&directory, "key.pem", &new.key_pem);
    let told = broker.wait_log(Duration::from_secs(15), |record| {
        (record["fields"]["message"] == "took a new TLS certificate").then_some(())
    });
    assert!(told.is_some());
    assert!(connect(&broker, old.client()).is_err());
    assert!(post(&mut connect(&broker, new.client()).unwrap()).starts_with("HTTP/1.1 200"));
    // Whoever is connected stays so, if it was not silent for too long.
    drop(open.write_all(b"\r\n"));
    let log = broker.log_lines().join("\n");
    assert!(!log.contains("PRIVATE KEY"));
}
