//! Programs of ours that are clients of a TLS server: the health check, the export, and the sender of traces.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::https::Certificate;
use super::{file, flag};
use crate::harness::{Auth, Broker, BrokerOptions, Store, token};

struct Setting {
    directory: TempDir,
    certificate: Certificate,
    broker: Broker,
}

impl Setting {
    fn new() -> Self {
        let (directory, certificate) = (TempDir::new().unwrap(), Certificate::new());
        let broker = BrokerOptions::new(Store::Memory)
            .auth(Auth::Required)
            .flag("--tls-cert", flag(&file(&directory, "cert.pem", &certificate.chain_pem)))
            .flag("--tls-key", flag(&file(&directory, "key.pem", &certificate.key_pem)))
            .start();
        Self { directory, certificate, broker }
    }

    fn path(&self, name: &str, content: &str) -> String {
        flag(&file(&self.directory, name, content))
    }

    fn url(&self) -> String {
        format!("https://{}", self.broker.address())
    }
}

/// Runs a command with these variables alone, and gives its exit code and what it says.
fn run(args: &[&str], variables: &[(&str, &str)]) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_task-broker"));
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy().into_owned();
        if name.starts_with("TASK_BROKER_") || name.starts_with("SSL_CERT_") {
            command.env_remove(name);
        }
    }
    let output = command.args(args).envs(variables.iter().copied()).output().unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn with_the_variables_of_a_broker_with_tls_the_health_check_finds_it_and_believes_its_certificate_alone() {
    let setting = Setting::new();
    let cert = setting.path("cert.pem", &setting.certificate.chain_pem);
    let port = setting.broker.address().port();
    // What an image sees: it listens on all addresses.
    for listen in [format!("0.0.0.0:{port}"), format!("127.0.0.1:{port}")] {
        let variables = [("TASK_BROKER_LISTEN", listen.as_str()), ("TASK_BROKER_TLS_CERT", &cert)];
        for args in [&["healthcheck"][..], &["healthcheck", "--live"]] {
            assert_eq!(run(args, &variables), (Some(0), String::new()), "{listen}");
        }
    }
    let other = setting.path("other.pem", &Certificate::new().chain_pem);
    let listen = setting.broker.address().to_string();
    let (code, said) =
        run(&["healthcheck"], &[("TASK_BROKER_LISTEN", &listen), ("TASK_BROKER_TLS_CERT", &other)]);
    assert_eq!(code, Some(1), "another certificate");
    assert!(said.contains("certificate") && said.contains(&format!("https://{listen}/readyz")), "{said}");
    let (code, said) = run(&["healthcheck"], &[("TASK_BROKER_LISTEN", &listen)]);
    assert_eq!(code, Some(1), "without TLS: {said}");
    let root = setting.path("root.pem", &setting.certificate.root_pem);
    let (code, said) =
        run(&["healthcheck"], &[("TASK_BROKER_LISTEN", &listen), ("TASK_BROKER_TLS_CERT", &root)]);
    assert_eq!(code, Some(1), "the authority is another certificate: {said}");
}

#[test]
fn with_roots_the_health_check_believes_whom_they_have_signed_for_this_name() {
    let setting = Setting::new();
    let (root, url) = (setting.path("root.pem", &setting.certificate.root_pem), setting.url());
    assert_eq!(run(&["healthcheck", "--url", &url, "--ca", &root], &[]), (Some(0), String::new()));
    let named = url.replace("127.0.0.1", "localhost");
    assert_eq!(run(&["healthcheck", "--url", &named, "--ca", &root], &[]), (Some(0), String::new()));
    // The system's roots are those of this variable.
    let system = [("SSL_CERT_FILE", root.as_str())];
    assert_eq!(run(&["healthcheck", "--url", &url], &system), (Some(0), String::new()));
    let other = setting.path("other.pem", &Certificate::new().root_pem);
    let another_name = url.replace("127.0.0.1", "127.0.0.2");
    for (args, says) in [
        (&["--url", url.as_str(), "--ca", &other][..], "certificate"),
        (&["--url", &another_name, "--ca", &root], "127.0.0.2"),
        (&["--url", &url, "--ca", "/nonexistent/ca.pem"], "--ca: /nonexistent/ca.pem"),
        (&["--url", &url, "--tls-cert", "/nonexistent/cert.pem"], "--tls-cert: /nonexistent/cert.pem"),
    ] {
        let (code, said) = run(&[&["healthcheck"], args].concat(), &[]);
        assert!(code == Some(1) && said.contains(says), "{args:?}: {said}");
    }
}

#[test]
fn an_export_from_a_broker_with_tls_goes_to_no_impostor() {
    let setting = Setting::new();
    let root = setting.path("root.pem", &setting.certificate.root_pem);
    let admin = setting.path("token", &token::scoped("boss", "tasks:admin"));
    let (url, out) = (setting.url(), flag(&setting.directory.path().join("export")));
    let export = |more: &[&str]| {
        run(&[&["export", "--url", &url, "--token-file", &admin, "--out", &out], more].concat(), &[])
    };
    let other = setting.path("other.pem", &Certificate::new().root_pem);
    for (more, says) in
        [(&["--ca", other.as_str()][..], "certificate"), (&["--ca", "/nonexistent/ca.pem"], "--ca: ")]
    {
        let (code, said) = export(more);
        assert!(code == Some(1) && said.contains(says), "{said}");
        assert!(!Path::new(&out).exists());
    }
    let (code, said) = export(&["--ca", &root]);
    assert!(code == Some(0) && said.starts_with("exported 0 tasks"), "{said}");
    let plain = url.replace("https", "http");
    let (code, said) = run(&["export", "--url", &plain, "--ca", &root, "--out", &out], &[]);
    assert!(code == Some(1) && said.contains("--ca has no effect"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn traces_go_to_a_collector_over_tls_if_it_is_the_right_one() {
    for trusted in [true, false] {
        let (directory, certificate) = (TempDir::new().unwrap(), Certificate::new());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://{}", listener.local_addr().unwrap());
        let acceptor = TlsAcceptor::from(Arc::new(certificate.server()));
        let believed = if trusted { certificate.root_pem } else { Certificate::new().root_pem };
        let broker = BrokerOptions::new(Store::Memory)
            .auth(Auth::Off)
            .flag("--otlp-endpoint", url)
            .env("SSL_CERT_FILE", &flag(&file(&directory, "root.pem", believed)))
            .start();
        broker.anonymous().new_task().await;
        let came = async {
            let (stream, _) = listener.accept().await.unwrap();
            let mut stream = acceptor.accept(stream).await.ok()?;
            let mut head = [0; 24];
            stream.read_exact(&mut head).await.unwrap();
            Some(head)
        };
        let came = tokio::time::timeout(Duration::from_secs(20), came).await.expect("somebody comes");
        assert_eq!(came.as_ref(), trusted.then_some(b"POST /v1/traces HTTP/1.1"));
    }
}
