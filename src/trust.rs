//! Whom this program believes when it is the client of a TLS connection: a key server, a collector, another broker.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};

/// The largest file with certificates, in bytes. Those of whole systems have some 200 KiB.
const MAX_FILE_BYTES: u64 = 4 << 20;

/// A URL as it may be told to anybody who reads a log: without a user, a password or anything behind the host.
#[must_use]
pub fn without_secrets(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    // A password may hold any sign, and then it is not a URL; whatever stands before the last @ is none of the host.
    let rest = rest.rsplit_once('@').map_or(rest, |(_user, host)| host);
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if scheme.is_empty() { "...".to_owned() } else { format!("{scheme}://{host}") }
}

/// Whose certificates are believed.
#[derive(Clone, Copy, Debug)]
pub enum Trust<'a> {
    /// Those that the system's roots have signed.
    System,
    /// Those that the roots in this file have signed.
    Roots(&'a Path),
    /// None: for a client that is not going to speak TLS.
    Nobody,
    /// The first certificate in this file and no other, whatever names and dates are in it.
    Exactly(&'a Path),
}

/// Nobody can be believed.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    /// The file.
    #[error("{}: {error}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// What is wrong with it.
        error: io::Error,
    },
    /// The system.
    #[error("no root certificate was found on this system")]
    NoRoots,
    /// The program was built without what it needs.
    #[error("this build cannot speak TLS")]
    NoTls,
}

impl Trust<'_> {
    /// What a client needs that believes these.
    ///
    /// # Errors
    /// [`TrustError`] says what is missing.
    pub fn client(self) -> Result<ClientConfig, TrustError> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config =
            ClientConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions();
        let Ok(config) = config else { return Err(TrustError::NoTls) };
        let config = match self {
            Self::System => config.with_root_certificates(system_roots()?),
            Self::Roots(path) => config.with_root_certificates(roots(path)?),
            Self::Nobody => config.with_root_certificates(RootCertStore::empty()),
            Self::Exactly(path) => {
                let certificate = certificates(path)?.into_iter().next();
                let certificate = certificate.ok_or_else(|| wrong(path, NO_CERTIFICATE))?;
                let only = Only { certificate, provider };
                config.dangerous().with_custom_certificate_verifier(Arc::new(only))
            }
        };
        Ok(config.with_no_client_auth())
    }

    /// What makes connections for an HTTP client: for https to those that are believed, for http to anybody. Whether
    /// http is good enough is for the caller to say.
    ///
    /// # Errors
    /// [`TrustError`] says what is missing.
    pub fn connector(self) -> Result<HttpsConnector<HttpConnector>, TrustError> {
        let builder = HttpsConnectorBuilder::new().with_tls_config(self.client()?);
        Ok(builder.https_or_http().enable_http1().build())
    }
}

const NO_CERTIFICATE: &str = "there is no certificate in it";

fn wrong(path: &Path, what: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> TrustError {
    TrustError::File { path: path.to_owned(), error: io::Error::new(io::ErrorKind::InvalidData, what) }
}

fn system_roots() -> Result<RootCertStore, TrustError> {
    let mut roots = RootCertStore::empty();
    // What is wrong with some of them is a matter of the system; others may be good.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() { Err(TrustError::NoRoots) } else { Ok(roots) }
}

fn roots(path: &Path) -> Result<RootCertStore, TrustError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        roots.add(certificate).map_err(|error| wrong(path, error.to_string()))?;
    }
    if roots.is_empty() { Err(wrong(path, NO_CERTIFICATE)) } else { Ok(roots) }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TrustError> {
    let mut text = Vec::new();
    let read = File::open(path).and_then(|file| file.take(MAX_FILE_BYTES + 1).read_to_end(&mut text));
    read.map_err(|error| TrustError::File { path: path.to_owned(), error })?;
    if text.len() as u64 > MAX_FILE_BYTES {
        return Err(wrong(path, "is larger than 4 MiB"));
    }
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    read.map_err(|error| wrong(path, error.to_string()))
}

/// Believes one certificate. Whoever shows it must also have its private key: the handshake's signature is checked as
/// ever.
struct Only {
    certificate: CertificateDer<'static>,
    provider: Arc<CryptoProvider>,
}

impl fmt::Debug for Only {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Only").finish_non_exhaustive()
    }
}

impl ServerCertVerifier for Only {
    fn verify_server_cert(
        &self,
        shown: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        if *shown == self.certificate {
            Ok(ServerCertVerified::assertion())
        } else {
            Err(CertificateError::ApplicationVerificationFailure.into())
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_a_url_is_told_but_where_it_leads() {
        for (url, told) in [
            ("http://broker:8420", "http://broker:8420"),
            ("https://broker/readyz?token=x", "https://broker"),
            ("https://broker?token=x", "https://broker"),
            ("postgres://user:pass@db:5432/tasks", "postgres://db:5432"),
            ("http://user:p/a@s?s#@host/x", "http://host"),
            ("user:pass@host", "..."),
        ] {
            assert_eq!(without_secrets(url), told);
        }
    }

    #[test]
    fn a_file_must_be_there_and_of_use() {
        let none = Path::new("/nonexistent/roots.pem");
        let empty = tempfile::NamedTempFile::new().unwrap();
        let odd = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(odd.path(), "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n").unwrap();
        for path in [none, empty.path(), odd.path()] {
            assert!(matches!(Trust::Roots(path).client(), Err(TrustError::File { .. })), "{path:?}");
        }
        for path in [none, empty.path()] {
            assert!(matches!(Trust::Exactly(path).client(), Err(TrustError::File { .. })), "{path:?}");
        }
    }
}
