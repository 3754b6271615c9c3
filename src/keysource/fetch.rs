//! One question to a key server: bounded in time and size, without redirects, over TLS.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use http_body_util::{BodyExt, Empty, LengthLimitError, Limited};
use hyper::body::Bytes;
use hyper::header::{ACCEPT, USER_AGENT};
use hyper::{Request, StatusCode, Uri};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;

use crate::auth::MAX_JWKS_BYTES;
use crate::trust::{Trust, TrustError};

/// How long one question may take in all.
const TIME_LIMIT: Duration = Duration::from_secs(10);

/// Why a server cannot be asked. Each text is about the setting.
#[derive(Debug, thiserror::Error)]
pub enum UrlError {
    /// It is no URL of a key server.
    #[error(
        "--jwks-url must be https://HOST[:PORT]/PATH, or http:// on a loopback address, without user and password"
    )]
    NotAKeyServer,
    /// Roots for a connection that has no TLS.
    #[error("--jwks-ca-file has no effect on http://")]
    NoTls,
    /// The roots.
    #[error("--jwks-ca-file: {0}")]
    Roots(TrustError),
    /// The system's roots.
    #[error("--jwks-url: {0}; give --jwks-ca-file")]
    SystemRoots(TrustError),
}

/// Why there was no answer. No text of the server is in it.
#[derive(Debug, thiserror::Error)]
pub(super) enum FetchError {
    #[error("no answer within {} s", TIME_LIMIT.as_secs())]
    TooSlow,
    #[error("no connection: {0}")]
    Connection(String),
    #[error("the answer was HTTP {}", .0.as_u16())]
    Status(StatusCode),
    #[error("the answer was larger than 256 KiB")]
    TooLarge,
    #[error("the answer was cut off")]
    Cut,
}

/// Asks one server.
pub struct Fetcher {
    client: Client<HttpsConnector<HttpConnector>, Empty<Bytes>>,
    url: Uri,
}

impl Fetcher {
    /// Checks the settings and reads the root certificates: those of the file, or the system's.
    ///
    /// # Errors
    /// [`UrlError`] names the flag.
    pub fn new(url: &str, roots: Option<&Path>) -> Result<Self, UrlError> {
        let url: Uri = url.parse().map_err(|_no_url| UrlError::NotAKeyServer)?;
        let encrypted = match (url.scheme_str(), url.host()) {
            (Some("https"), Some(_)) => true,
            (Some("http"), Some(host)) if is_loopback(host) => false,
            _ => return Err(UrlError::NotAKeyServer),
        };
        if url.authority().is_none_or(|authority| authority.as_str().contains('@')) {
            return Err(UrlError::NotAKeyServer);
        }
        if roots.is_some() && !encrypted {
            return Err(UrlError::NoTls);
        }
        // An http URL was let through above only on loopback.
        let connector = match (encrypted, roots) {
            (true, Some(roots)) => Trust::Roots(roots).connector().map_err(UrlError::Roots)?,
            (true, None) => Trust::System.connector().map_err(UrlError::SystemRoots)?,
            (false, _) => Trust::Nobody.connector().map_err(UrlError::SystemRoots)?,
        };
        // Each question on a connection of its own: they are minutes apart.
        let client = Client::builder(TokioExecutor::new()).pool_max_idle_per_host(0).build(connector);
        Ok(Self { client, url })
    }

    /// Asks once.
    pub(super) async fn fetch(&self) -> Result<Vec<u8>, FetchError> {
        tokio::time::timeout(TIME_LIMIT, self.ask()).await.unwrap_or(Err(FetchError::TooSlow))
    }

    async fn ask(&self) -> Result<Vec<u8>, FetchError> {
        let mut request = Request::new(Empty::new());
        *request.uri_mut() = self.url.clone();
        let headers = request.headers_mut();
        headers.insert(ACCEPT, hyper::header::HeaderValue::from_static("application/json"));
        headers.insert(USER_AGENT, hyper::header::HeaderValue::from_static("task-broker"));
        let answer = self.client.request(request).await;
        let answer = answer.map_err(|error| FetchError::Connection(innermost(&error)))?;
        // A redirect is not followed: where the keys come from is the operator's word, not the server's.
        if answer.status() != StatusCode::OK {
            return Err(FetchError::Status(answer.status()));
        }
        let limit = usize::try_from(MAX_JWKS_BYTES).unwrap_or(usize::MAX);
        match Limited::new(answer.into_body(), limit).collect().await {
            Ok(body) => Ok(body.to_bytes().to_vec()),
            Err(error) if error.is::<LengthLimitError>() => Err(FetchError::TooLarge),
            Err(_) => Err(FetchError::Cut),
        }
    }
}

impl fmt::Debug for Fetcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fetcher").finish_non_exhaustive()
    }
}

/// What is at the bottom of an error: "connection refused" or "certificate expired", and not "client error".
fn innermost(error: &dyn std::error::Error) -> String {
    let mut error = error;
    while let Some(cause) = error.source() {
        error = cause;
    }
    error.to_string().chars().take(200).flat_map(char::escape_debug).collect()
}

/// Whether this host cannot be anywhere else.
fn is_loopback(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || address.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_fetched_over_tls_or_from_this_machine() {
        for url in
            ["http://127.0.0.1:8000/jwks", "http://[::1]/jwks", "http://localhost/jwks", "http://127.9.9.9/"]
        {
            assert!(Fetcher::new(url, None).is_ok(), "{url}");
        }
        for url in [
            "",
            "jwks",
            "/jwks",
            "http://issuer.example/jwks",
            "http://10.0.0.1/jwks",
            "http://localhost.example/jwks",
            "http://0.0.0.0/jwks",
            "file:///etc/passwd",
            "ftp://127.0.0.1/jwks",
            "https://user:password@issuer.example/jwks",
            "http://user@127.0.0.1/jwks",
        ] {
            assert!(matches!(Fetcher::new(url, None), Err(UrlError::NotAKeyServer)), "{url}");
        }
    }

    #[test]
    fn roots_must_be_there_and_of_use() {
        let none = Path::new("/nonexistent/roots.pem");
        assert!(matches!(Fetcher::new("https://a.example/", Some(none)), Err(UrlError::Roots(_))));
        assert!(matches!(Fetcher::new("http://127.0.0.1/", Some(none)), Err(UrlError::NoTls)));
        let empty = tempfile::NamedTempFile::new().unwrap();
        assert!(matches!(Fetcher::new("https://a.example/", Some(empty.path())), Err(UrlError::Roots(_))));
    }
}
