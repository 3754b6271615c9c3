//! A key server: HTTPS on loopback, with certificates of its own, that does what a test tells it to.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore, ServerConfig, SupportedProtocolVersion};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

/// An authority and a certificate for 127.0.0.1 and localhost that it signed.
pub(crate) struct Certificate {
    pub(crate) root_pem: String,
    pub(crate) chain_pem: String,
    pub(crate) key_pem: String,
    root: CertificateDer<'static>,
    leaf: CertificateDer<'static>,
    key: KeyPair,
}

impl Certificate {
    pub(crate) fn new() -> Self {
        let mut authority = CertificateParams::new(Vec::new()).unwrap();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap();
        let key = KeyPair::generate().unwrap();
        let names = vec!["127.0.0.1".to_owned(), "localhost".to_owned()];
        let certificate = CertificateParams::new(names).unwrap().signed_by(&key, &authority).unwrap();
        Self {
            root_pem: authority.pem(),
            chain_pem: certificate.pem(),
            key_pem: key.serialize_pem(),
            root: authority.der().clone(),
            leaf: certificate.der().clone(),
            key,
        }
    }

    pub(crate) fn server(&self) -> ServerConfig {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let key = PrivateKeyDer::try_from(self.key.serialize_der()).unwrap();
        let config =
            ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        config.with_no_client_auth().with_single_cert(vec![self.leaf.clone()], key).unwrap()
    }

    /// What a client needs that trusts this authority and nobody else.
    pub(crate) fn client(&self) -> ClientConfig {
        self.client_of(rustls::ALL_VERSIONS)
    }

    /// The same for these versions of TLS.
    pub(crate) fn client_of(&self, versions: &[&'static SupportedProtocolVersion]) -> ClientConfig {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut roots = RootCertStore::empty();
        roots.add(self.root.clone()).unwrap();
        let config = ClientConfig::builder_with_provider(provider).with_protocol_versions(versions).unwrap();
        config.with_root_certificates(roots).with_no_client_auth()
    }
}

/// What the server does with a question.
#[derive(Clone, Debug)]
pub(crate) enum Answering {
    /// This key set.
    Keys(String),
    /// Another status, with a header line of its own.
    Status(u16, &'static str),
    /// A body that is far too large.
    Huge,
    /// Nothing, for ever.
    Silence,
    /// The same key set, after a while.
    Slow(String, Duration),
    /// An end in the middle of the body.
    Cut,
}

/// A running key server. It ends with the test.
pub(crate) struct KeyServer {
    pub(crate) port: u16,
    shared: Arc<Shared>,
    task: Option<tokio::task::JoinHandle<()>>,
}

struct Shared {
    answering: Mutex<Answering>,
    asked: AtomicUsize,
    acceptor: TlsAcceptor,
}

impl KeyServer {
    pub(crate) async fn start(certificate: &Certificate, answering: Answering) -> Self {
        let shared = Arc::new(Shared {
            answering: Mutex::new(answering),
            asked: AtomicUsize::new(0),
            acceptor: TlsAcceptor::from(Arc::new(certificate.server())),
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let task = Some(tokio::spawn(listen(listener, Arc::clone(&shared))));
        Self { port, shared, task }
    }

    pub(crate) fn url(&self) -> String {
        format!("https://127.0.0.1:{}/keys", self.port)
    }

    pub(crate) fn answer(&self, answering: Answering) {
        *self.shared.answering.lock().unwrap() = answering;
    }

    /// How often it was asked.
    pub(crate) fn asked(&self) -> usize {
        self.shared.asked.load(Ordering::Acquire)
    }

    /// Closes the port.
    pub(crate) async fn stop(&mut self) {
        let task = self.task.take().unwrap();
        task.abort();
        drop(task.await);
    }

    /// Opens the port again.
    pub(crate) fn resume(&mut self) {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.set_reuseaddr(true).unwrap();
        socket.bind(([127, 0, 0, 1], self.port).into()).unwrap();
        self.task = Some(tokio::spawn(listen(socket.listen(64).unwrap(), Arc::clone(&self.shared))));
    }
}

impl Drop for KeyServer {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

async fn listen(listener: TcpListener, shared: Arc<Shared>) {
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let shared = Arc::clone(&shared);
        tokio::spawn(async move {
            // A client that does not trust the certificate goes away; so be it.
            let Ok(mut stream) = shared.acceptor.accept(stream).await else { return };
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                match stream.read_u8().await {
                    Ok(byte) => head.push(byte),
                    Err(_) => return,
                }
            }
            assert!(head.starts_with(b"GET /keys HTTP/1.1\r\n"), "{:?}", String::from_utf8_lossy(&head));
            shared.asked.fetch_add(1, Ordering::AcqRel);
            let answering = shared.answering.lock().unwrap().clone();
            let answer = match answering {
                Answering::Keys(keys) => ok(&keys),
                Answering::Slow(keys, pause) => {
                    tokio::time::sleep(pause).await;
                    ok(&keys)
                }
                Answering::Status(status, line) => {
                    format!(
                        "HTTP/1.1 {status} Something\r\n{line}content-length: 0\r\nconnection: close\r\n\r\n"
                    )
                }
                Answering::Huge => ok(&format!("{{\"keys\":[{}]}}", " ".repeat(1 << 20))),
                Answering::Cut => "HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n{\"keys\":[".to_owned(),
                Answering::Silence => std::future::pending().await,
            };
            // A client that has seen enough goes away before the end.
            drop(stream.write_all(answer.as_bytes()).await);
            drop(stream.shutdown().await);
        });
    }
}

fn ok(body: &str) -> String {
    let length = body.len();
    format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
    )
}
