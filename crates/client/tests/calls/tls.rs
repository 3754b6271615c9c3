//! https: whose certificates are trusted.

use std::sync::Arc;
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use task_broker_client::{BuildError, Client, Error};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;

use crate::script::{Script, Step, snapshot};

/// A root, as PEM, and a server with a certificate of it for `localhost`.
fn authority() -> (String, TlsAcceptor) {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let root = params.self_signed(&key).unwrap();
    let issuer = Issuer::new(params, key);

    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let certificate = params.signed_by(&key, &issuer).unwrap();
    let config = ServerConfig::builder_with_provider(aws_lc_rs::default_provider().into())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], PrivateKeyDer::Pkcs8(key.serialize_der().into()))
        .unwrap();
    (root.pem(), TlsAcceptor::from(Arc::new(config)))
}

#[tokio::test]
async fn a_root_of_ones_own_is_trusted_and_a_foreign_one_is_not() {
    let (root, tls) = authority();
    let (foreign, _) = authority();
    let script = Script::with_tls([Step::Result(snapshot())], tls).await;
    let builder = || script.builder().token("secret").retry_budget(Duration::ZERO);

    let error = builder().tls_roots_pem(foreign).build().unwrap().get("8c1f").await.unwrap_err();
    assert!(matches!(&error, Error::Transport(error) if !error.sent), "{error:?}");
    assert!(error.to_string().contains("certificate"), "{error}");
    assert!(script.so_far().is_empty());

    builder().tls_roots_pem(root).build().unwrap().get("8c1f").await.unwrap();
    assert_eq!(script.seen()[0].header("authorization"), Some("Bearer secret"));
}

#[test]
fn roots_that_are_none_are_told_at_once() {
    for pem in ["", "no certificate", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"] {
        let error = Client::builder("https://localhost").tls_roots_pem(pem).build().unwrap_err();
        assert!(matches!(error, BuildError::TlsRoots { .. }), "{error:?}");
    }
}
