//! TLS for the listening socket: rustls, with a certificate that may be replaced while the broker runs.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::time::MissedTickBehavior;

/// How often the files are looked at. A certificate is replaced weeks before it expires.
const FILES_EVERY: Duration = Duration::from_secs(5);

/// The largest of the two files, in bytes.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// Why there is no TLS. The text names the flag.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file.
    #[error("{flag}: {}: {error}", path.display())]
    File {
        /// The flag.
        flag: &'static str,
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        error: io::Error,
    },
    /// The two files together.
    #[error("--tls-cert and --tls-key do not fit together: {0}")]
    Pair(rustls::Error),
}

/// The two files, and what was in them the last time they were good.
#[derive(Debug)]
pub struct Tls {
    certificate: PathBuf,
    key: PathBuf,
    current: RwLock<Arc<ServerConfig>>,
}

/// What is in the two files.
#[derive(PartialEq, Eq)]
struct Content {
    certificate: Vec<u8>,
    key: Vec<u8>,
}

impl Tls {
    /// Reads both files: a certificate with its chain, and its private key.
    ///
    /// # Errors
    /// [`TlsError`] names the flag.
    pub fn read(certificate: &Path, key: &Path) -> Result<Self, TlsError> {
        let (certificate, key) = (certificate.to_owned(), key.to_owned());
        let config = Content::read(&certificate, &key)?.config(&certificate, &key)?;
        Ok(Self { certificate, key, current: RwLock::new(config) })
    }

    /// What new connections get.
    pub(super) fn current(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.current.read())
    }

    /// Reads the files again and again, so that a certificate is replaced without a restart; never ends. Connections
    /// that are open keep theirs.
    pub async fn run(self: Arc<Self>) {
        let mut last = None;
        let mut ticks = tokio::time::interval(FILES_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let tls = Arc::clone(&self);
            let read = move || Content::read(&tls.certificate, &tls.key);
            let Ok(read) = tokio::task::spawn_blocking(read).await else { continue };
            match read {
                Ok(content) if last.as_ref() == Some(&content) => {}
                Ok(content) => {
                    // The first one is what was read at start.
                    let first = last.is_none();
                    match content.config(&self.certificate, &self.key) {
                        Ok(_) if first => {}
                        Ok(config) => {
                            *self.current.write() = config;
                            tracing::info!("took a new TLS certificate");
                        }
                        Err(error) => tracing::warn!(%error, "the new TLS certificate is not taken"),
                    }
                    last = Some(content);
                }
                Err(error) => tracing::warn!(%error, "the TLS certificate cannot be read again"),
            }
        }
    }
}

impl Content {
    fn read(certificate: &Path, key: &Path) -> Result<Self, TlsError> {
        let read = |flag, path: &Path| {
            let wrong = |error| TlsError::File { flag, path: path.to_owned(), error };
            let content = crate::auth::read_bounded(path, MAX_FILE_BYTES).map_err(wrong)?;
            content.ok_or_else(|| wrong(io::Error::other("is larger than 1 MiB")))
        };
        Ok(Self { certificate: read("--tls-cert", certificate)?, key: read("--tls-key", key)? })
    }

    fn config(&self, certificate: &Path, key: &Path) -> Result<Arc<ServerConfig>, TlsError> {
        let wrong = |flag, path: &Path, what: &str| {
            let error = io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
            TlsError::File { flag, path: path.to_owned(), error }
        };
        let chain = CertificateDer::pem_slice_iter(&self.certificate).collect::<Result<Vec<_>, _>>();
        let chain = chain.unwrap_or_default();
        if chain.is_empty() {
            return Err(wrong("--tls-cert", certificate, "holds no certificate in PEM"));
        }
        let Ok(private) = PrivateKeyDer::from_pem_slice(&self.key) else {
            // Without what the parser says: it may quote the file.
            return Err(wrong("--tls-key", key, "holds no private key in PEM"));
        };
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .and_then(|config| config.with_no_client_auth().with_single_cert(chain, private));
        let mut config = config.map_err(TlsError::Pair)?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }
}
