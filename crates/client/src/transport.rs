//! HTTP: one request out, one bounded answer in.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderValue, RETRY_AFTER, USER_AGENT};
use http::{Method, Request, Response, Uri};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client as Pool;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use task_broker_protocol::envelope::Response as RpcResponse;

use crate::builder::BuildError;
use crate::error::{Error, HttpError, ProtocolError, TransportError};

#[cfg(feature = "tls")]
type Connector = hyper_rustls::HttpsConnector<HttpConnector>;
#[cfg(not(feature = "tls"))]
type Connector = HttpConnector;

/// A broker closes idle connections after 75 s. Closing them here first means that hardly any request is sent into a
/// connection that is just being closed.
const IDLE_TIMEOUT: Duration = Duration::from_mins(1);

/// Connections kept for the next call. More may be open while more calls are in flight.
const IDLE_CONNECTIONS: usize = 64;

/// An error answer is a few hundred bytes; a proxy's page of HTML need not be read to its end.
const MAX_ERROR_BYTES: usize = 64 * 1024;

/// What the other side shall answer with.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Form {
    Json,
    Stream,
}

impl Form {
    fn accept(self) -> HeaderValue {
        HeaderValue::from_static(match self {
            Self::Json => "application/json",
            Self::Stream => "text/event-stream",
        })
    }
}

/// Whose certificates are trusted.
#[derive(Debug, Clone, Default)]
pub(crate) enum Roots {
    #[default]
    System,
    #[cfg(feature = "tls")]
    Pem(Vec<u8>),
}

pub(crate) struct Transport {
    pool: Pool<Connector, Full<Bytes>>,
    uri: Uri,
    user_agent: HeaderValue,
    max_response_bytes: usize,
}

impl std::fmt::Debug for Transport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Transport").field("uri", &self.uri).finish_non_exhaustive()
    }
}

impl Transport {
    pub(crate) fn new(
        uri: Uri,
        user_agent: HeaderValue,
        connect_timeout: Duration,
        max_response_bytes: usize,
        roots: &Roots,
    ) -> Result<Self, BuildError> {
        let mut http = HttpConnector::new();
        http.set_connect_timeout(Some(connect_timeout));
        // Calls are small and wait for each other's answers; collecting bytes for a fuller packet only delays them.
        http.set_nodelay(true);
        let connector = connector(http, &uri, roots)?;
        let pool = Pool::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_TIMEOUT)
            .pool_max_idle_per_host(IDLE_CONNECTIONS)
            .build(connector);
        Ok(Self { pool, uri, user_agent, max_response_bytes })
    }

    pub(crate) fn uri(&self) -> &Uri {
        &self.uri
    }

    /// Sends a body; the answer has the status 200 and its own body is yet to be read.
    pub(crate) async fn post(
        &self,
        body: Bytes,
        form: Form,
        token: Option<HeaderValue>,
    ) -> Result<Response<Incoming>, Error> {
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.uri.clone();
        let headers = request.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(ACCEPT, form.accept());
        headers.insert(USER_AGENT, self.user_agent.clone());
        if let Some(token) = token {
            headers.insert(AUTHORIZATION, token);
        }
        let answer = self.pool.request(request).await;
        let answer =
            answer.map_err(|error| Error::Transport(TransportError::new(!error.is_connect(), &error)))?;
        if answer.status() == http::StatusCode::OK { Ok(answer) } else { Err(refused(answer).await) }
    }

    /// Reads an answer to its end, within the bound.
    pub(crate) async fn read(&self, answer: Response<Incoming>) -> Result<Bytes, Error> {
        read_at_most(answer.into_body(), self.max_response_bytes).await
    }
}

#[cfg(feature = "tls")]
fn connector(mut http: HttpConnector, uri: &Uri, roots: &Roots) -> Result<Connector, BuildError> {
    use hyper_rustls::{ConfigBuilderExt as _, HttpsConnectorBuilder};
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject as _;
    use rustls::{ClientConfig, RootCertStore, crypto::aws_lc_rs};

    let wrong = |error: &dyn std::fmt::Display| BuildError::TlsRoots { reason: error.to_string() };
    let config = ClientConfig::builder_with_provider(aws_lc_rs::default_provider().into())
        .with_safe_default_protocol_versions()
        .map_err(|error| wrong(&error))?;
    let config = match roots {
        // Asked for only when they are needed: a machine without any certificates can still speak plain http.
        Roots::System if uri.scheme() != Some(&http::uri::Scheme::HTTPS) => {
            config.with_root_certificates(RootCertStore::empty())
        }
        Roots::System => config.with_native_roots().map_err(|error| wrong(&error))?,
        Roots::Pem(pem) => {
            let mut store = RootCertStore::empty();
            for certificate in CertificateDer::pem_slice_iter(pem) {
                let certificate = certificate.map_err(|error| wrong(&error))?;
                store.add(certificate).map_err(|error| wrong(&error))?;
            }
            if store.is_empty() {
                return Err(wrong(&"there is no certificate in it"));
            }
            config.with_root_certificates(store)
        }
    };
    http.enforce_http(false);
    let config = config.with_no_client_auth();
    Ok(HttpsConnectorBuilder::new()
        .with_tls_config(config)
        .https_or_http()
        .enable_http1()
        .wrap_connector(http))
}

#[cfg(not(feature = "tls"))]
fn connector(connector: HttpConnector, uri: &Uri, roots: &Roots) -> Result<Connector, BuildError> {
    let Roots::System = roots;
    if uri.scheme() == Some(&http::uri::Scheme::HTTPS) { Err(BuildError::NoTls) } else { Ok(connector) }
}

/// Makes an error of an answer that is not 200.
async fn refused(answer: Response<Incoming>) -> Error {
    let status = answer.status().as_u16();
    let retry_after = answer.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok());
    // The other form of the header is a date; nothing that speaks to programs sends it.
    let retry_after = retry_after.and_then(|text| text.trim().parse().ok()).map(Duration::from_secs);
    // The status says enough when the body cannot be read.
    let body = read_at_most(answer.into_body(), MAX_ERROR_BYTES).await.unwrap_or_default();
    let error =
        RpcResponse::<serde::de::IgnoredAny>::parse(&body).ok().and_then(|answer| answer.outcome.err());
    Error::Http(HttpError::new(status, retry_after, error))
}

async fn read_at_most(mut body: Incoming, maximum: usize) -> Result<Bytes, Error> {
    let mut first = Bytes::new();
    let mut rest = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| Error::Transport(TransportError::new(true, &error)))?;
        let Ok(data) = frame.into_data() else { continue };
        if data.len() > maximum.saturating_sub(first.len().saturating_add(rest.len())) {
            return Err(Error::Protocol(ProtocolError::TooLarge { maximum }));
        }
        // Nearly every answer is one piece, which then is not copied.
        if first.is_empty() && rest.is_empty() {
            first = data;
            continue;
        }
        if rest.is_empty() {
            rest.extend_from_slice(&std::mem::take(&mut first));
        }
        rest.extend_from_slice(&data);
    }
    Ok(if rest.is_empty() { first } else { rest.freeze() })
}
