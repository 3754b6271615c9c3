//! What a client is made of.

use std::time::Duration;

use http::{HeaderValue, Uri};

use crate::client::Client;
use crate::token::{TokenSource, Tokens};
use crate::transport::{Roots, Transport};

/// Where calls go, below the URL of the broker.
const PATH: &str = "/rpc";

/// What the user agent is when nothing else is said.
const USER_AGENT: &str = concat!("task-broker-client/", env!("CARGO_PKG_VERSION"));

/// Why a client cannot be made. Nothing has been sent yet.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// The URL is not one of a broker.
    #[error("{url:?} is not the URL of a broker: {reason}; it should look like http://127.0.0.1:8420")]
    Url {
        /// The URL as it was given.
        url: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The user agent has characters that no header can carry.
    #[error("the user agent cannot be sent in a header")]
    UserAgent,
    /// The trusted certificates cannot be used.
    #[error("the trusted certificates cannot be used: {reason}")]
    TlsRoots {
        /// Why.
        reason: String,
    },
    /// The URL begins with https and the crate was built without its feature `tls`.
    #[error("https needs the feature `tls` of task-broker-client")]
    NoTls,
}

/// Makes a [`Client`].
///
/// ```
/// use std::time::Duration;
/// use task_broker_client::{Client, TokenSource};
///
/// # fn main() -> Result<(), task_broker_client::BuildError> {
/// let client = Client::builder("http://127.0.0.1:8420")
///     .token(TokenSource::file("/run/secrets/broker-token"))
///     .request_timeout(Duration::from_secs(5))
///     .retry_budget(Duration::from_secs(60))
///     .build()?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use = "a builder does nothing until it is built"]
pub struct ClientBuilder {
    url: String,
    token: TokenSource,
    user_agent: String,
    roots: Roots,
    max_response_bytes: usize,
    settings: Settings,
    connect_timeout: Duration,
}

/// The numbers that a call looks at.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) request_timeout: Duration,
    pub(crate) retry_budget: Duration,
    pub(crate) max_in_flight: usize,
    pub(crate) max_waits: usize,
    pub(crate) max_message_bytes: usize,
}

impl ClientBuilder {
    pub(crate) fn new(url: &str) -> Self {
        Self {
            url: url.to_owned(),
            token: TokenSource::None,
            user_agent: USER_AGENT.to_owned(),
            roots: Roots::System,
            max_response_bytes: 64 * 1024 * 1024,
            connect_timeout: Duration::from_secs(5),
            settings: Settings {
                request_timeout: Duration::from_secs(10),
                retry_budget: Duration::from_secs(30),
                max_in_flight: 256,
                max_waits: 1024,
                max_message_bytes: 64 * 1024,
            },
        }
    }

    /// The bearer token: a text, a [file](TokenSource::file) or a [provider](TokenSource::provider). Without one,
    /// or with an empty text, none is sent.
    pub fn token(mut self, token: impl Into<TokenSource>) -> Self {
        self.token = token.into();
        self
    }

    /// How long connecting may take, TLS not included; 5 s.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// How long one attempt may take, from the wish for a connection to the end of the answer; 10 s. A
    /// [`wait`](Client::wait) has its own time on top of it.
    pub fn request_timeout(mut self, timeout: Duration) -> Self {
        self.settings.request_timeout = timeout;
        self
    }

    /// How long after its beginning a call may still start another attempt; 30 s. Zero: there is one attempt.
    pub fn retry_budget(mut self, budget: Duration) -> Self {
        self.settings.retry_budget = budget;
        self
    }

    /// How many attempts are in flight at once; 256, at least 1. Others wait for their turn, without a time limit.
    pub fn max_in_flight(mut self, calls: usize) -> Self {
        self.settings.max_in_flight = calls.max(1);
        self
    }

    /// How many [`wait`](Client::wait)s are in flight at once; 1024, at least 1. A broker allows 2000 per subject
    /// unless it is told otherwise.
    pub fn max_waits(mut self, waits: usize) -> Self {
        self.settings.max_waits = waits.max(1);
        self
    }

    /// The largest answer that is read, in bytes; 64 MiB.
    pub fn max_response_bytes(mut self, bytes: usize) -> Self {
        self.max_response_bytes = bytes;
        self
    }

    /// The largest message of a [`watch`](Client::watch), in bytes; 64 KiB. They have a few hundred.
    pub fn max_message_bytes(mut self, bytes: usize) -> Self {
        self.settings.max_message_bytes = bytes;
        self
    }

    /// Trusts the certificates in this PEM text and no others. Without it those of the system are trusted.
    #[cfg(feature = "tls")]
    pub fn tls_roots_pem(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.roots = Roots::Pem(pem.into());
        self
    }

    /// What the client calls itself; `task-broker-client/` and its version.
    pub fn user_agent(mut self, user_agent: impl Into<String>) -> Self {
        self.user_agent = user_agent.into();
        self
    }

    /// Makes the client. No connection is made yet; [`Client::info`] is a good first call.
    ///
    /// # Errors
    /// When the URL, the certificates or the user agent cannot be used.
    pub fn build(self) -> Result<Client, BuildError> {
        let uri = endpoint(&self.url)?;
        let user_agent = HeaderValue::from_str(&self.user_agent).ok().ok_or(BuildError::UserAgent)?;
        let transport =
            Transport::new(uri, user_agent, self.connect_timeout, self.max_response_bytes, &self.roots)?;
        Ok(Client::new(transport, Tokens::new(self.token), self.settings))
    }
}

/// The broker's URL with the path of the calls behind it.
fn endpoint(url: &str) -> Result<Uri, BuildError> {
    let wrong = |reason| BuildError::Url { url: without_userinfo(url), reason };
    let uri: Uri = url.parse().ok().ok_or_else(|| wrong("it cannot be read"))?;
    if !matches!(uri.scheme_str(), Some("http" | "https")) {
        return Err(wrong("it must begin with http:// or https://"));
    }
    let Some(authority) = uri.authority() else { return Err(wrong("it names no host")) };
    if authority.as_str().contains('@') {
        return Err(wrong("it must not contain a user or a password"));
    }
    if uri.query().is_some() {
        return Err(wrong("it must not contain a query"));
    }
    let path = format!("{}{PATH}", uri.path().trim_end_matches('/'));
    let mut parts = uri.into_parts();
    parts.path_and_query = Some(path.parse().ok().ok_or_else(|| wrong("its path cannot be read"))?);
    Uri::from_parts(parts).ok().ok_or_else(|| wrong("it cannot be read"))
}

/// An error may be logged, and a password in a URL must not be.
fn without_userinfo(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    format!("{scheme}://{host}{path}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_endpoint_is_below_the_url() {
        for (url, expected) in [
            ("http://127.0.0.1:8420", "http://127.0.0.1:8420/rpc"),
            ("http://127.0.0.1:8420/", "http://127.0.0.1:8420/rpc"),
            ("https://tasks.example/broker/", "https://tasks.example/broker/rpc"),
        ] {
            assert_eq!(endpoint(url).unwrap().to_string(), expected);
        }
    }

    #[test]
    fn what_is_no_url_of_a_broker_is_refused_and_a_password_is_not_repeated() {
        for url in ["", "127.0.0.1:8420", "ftp://host", "http://host/?a=b", "http://user:hush@host", "/rpc"] {
            let error = endpoint(url).unwrap_err();
            assert!(!error.to_string().contains("hush"), "{error}");
        }
    }

    #[test]
    fn debug_of_a_builder_does_not_show_the_token() {
        let builder = ClientBuilder::new("http://host").token("very-secret");
        assert!(!format!("{builder:?}").contains("very-secret"));
    }
}
