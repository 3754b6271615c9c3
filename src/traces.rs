//! Traces: a span for each call over HTTP, sent to a collector in the background.
//!
//! Nothing waits for the collector. Spans wait in a queue with a bound, and are dropped when it is full; an export that
//! fails is counted, told in the log now and then, and forgotten. Without `--otlp-endpoint` there is none of this.

use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use http_body_util::{BodyExt, Full, Limited};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use opentelemetry::propagation::{Extractor, TextMapPropagator};
use opentelemetry::trace::{Span as _, SpanKind, Status, Tracer as _, TracerProvider as _};
use opentelemetry::{Context, KeyValue};
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use opentelemetry_otlp::{SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{
    BatchConfigBuilder, BatchSpanProcessor, Sampler, SdkTracer, SdkTracerProvider, Span, SpanLimits,
};
use parking_lot::Mutex;
use tokio::runtime::Handle;

use crate::clock::Stopwatch;
use crate::trust::{Trust, TrustError};

/// How many spans wait to be sent; further ones are dropped.
const WAITING: usize = 2048;
/// How many are sent at once.
const AT_ONCE: usize = 512;
/// How long a span waits for others to be sent along.
const DELAY: Duration = Duration::from_secs(1);
/// How long a collector may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long the last spans may take when the broker ends.
const LAST_SPANS: Duration = Duration::from_secs(2);
/// How much of a collector's answer is read, in bytes.
const ANSWER_BYTES: usize = 64 * 1024;
/// How often a collector that does not take spans is worth a line in the log.
const COMPLAINTS: Duration = Duration::from_mins(1);

/// Where a collector takes traces: OTLP over HTTP, in the form of protobuf.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint(String);

impl FromStr for Endpoint {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (scheme, rest) = text
            .split_once("://")
            .filter(|(scheme, _)| ["http", "https"].contains(scheme))
            .ok_or("expected http://HOST:PORT or https://HOST:PORT")?;
        let (host, path) = rest.split_once('/').map_or((rest, ""), |(host, path)| (host, path));
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~:[]/".contains(&byte);
        if host.is_empty() || host.starts_with(':') || !rest.bytes().all(fits) {
            return Err(
                "expected http://HOST:PORT or https://HOST:PORT, without a name, a password or a query"
                    .to_owned(),
            );
        }
        let path = if path.is_empty() { "v1/traces" } else { path };
        Ok(Self(format!("{scheme}://{host}/{path}")))
    }
}

/// Traces cannot be sent.
#[derive(Debug, thiserror::Error)]
#[error("--otlp-endpoint: {0}")]
pub struct TracesError(String);

impl From<TrustError> for TracesError {
    fn from(error: TrustError) -> Self {
        Self(error.to_string())
    }
}

/// Makes spans and sends them.
#[derive(Debug)]
pub struct Traces {
    provider: SdkTracerProvider,
    tracer: SdkTracer,
    propagator: TraceContextPropagator,
    failures: Arc<Failures>,
}

/// What became of exports.
#[derive(Debug, Default)]
struct Failures {
    count: AtomicU64,
    told: Mutex<Option<Stopwatch>>,
}

impl Failures {
    fn add(&self, why: &str) {
        self.count.fetch_add(1, Ordering::Relaxed);
        let mut told = self.told.lock();
        if told.is_none_or(|told| told.elapsed() >= COMPLAINTS) {
            *told = Some(Stopwatch::start());
            tracing::warn!(why, "traces could not be sent; they are dropped");
        }
    }
}

impl Traces {
    /// Begins to send to a collector. Whether there is one shows only when it is sent to.
    ///
    /// # Errors
    /// [`TracesError`] when the exporter cannot be made.
    pub fn start(endpoint: &Endpoint, runtime: Handle) -> Result<Self, TracesError> {
        let failures = Arc::new(Failures::default());
        let trust = if endpoint.0.starts_with("https://") { Trust::System } else { Trust::Nobody };
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(Duration::from_secs(30))
            .pool_max_idle_per_host(1)
            .build(trust.connector()?);
        let sender = Sender { client, runtime, failures: Arc::clone(&failures) };
        let exporter = SpanExporter::builder()
            .with_http()
            .with_endpoint(&endpoint.0)
            .with_timeout(PATIENCE)
            .with_http_client(sender)
            .build()
            .map_err(|error| TracesError(error.to_string()))?;
        let batches = BatchConfigBuilder::default()
            .with_max_queue_size(WAITING)
            .with_max_export_batch_size(AT_ONCE)
            .with_scheduled_delay(DELAY)
            .build();
        let resource = Resource::builder_empty()
            .with_service_name(env!("CARGO_PKG_NAME"))
            .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
            .build();
        let provider = SdkTracerProvider::builder()
            .with_span_processor(BatchSpanProcessor::builder(exporter).with_batch_config(batches).build())
            // Whoever has begun a trace says whether it is kept.
            .with_sampler(Sampler::ParentBased(Box::new(Sampler::AlwaysOn)))
            .with_span_limits(SpanLimits::default())
            .with_resource(resource)
            .build();
        let tracer = provider.tracer(env!("CARGO_PKG_NAME"));
        Ok(Self { provider, tracer, propagator: TraceContextPropagator::new(), failures })
    }

    /// Begins the span of a request, as part of the trace of the header `traceparent` if that is a good one.
    #[must_use]
    pub fn begin(&self, traceparent: Option<&str>) -> RequestSpan {
        let parent = self.propagator.extract_with_context(&Context::new(), &Parent(traceparent));
        let builder = self.tracer.span_builder("rpc").with_kind(SpanKind::Server);
        RequestSpan(builder.start_with_context(&self.tracer, &parent))
    }

    /// How many exports have failed.
    #[must_use]
    pub fn failures(&self) -> u64 {
        self.failures.count.load(Ordering::Relaxed)
    }

    /// Sends what is left, if that does not take long.
    pub async fn finish(&self) {
        let provider = self.provider.clone();
        let sent = tokio::task::spawn_blocking(move || provider.shutdown_with_timeout(LAST_SPANS));
        if !matches!(tokio::time::timeout(LAST_SPANS * 2, sent).await, Ok(Ok(Ok(())))) {
            tracing::warn!("the last traces could not be sent");
        }
    }
}

/// The span of a request. It ends when it is dropped: then the client has gone away.
#[derive(Debug)]
pub struct RequestSpan(Span);

impl RequestSpan {
    /// The id of its trace, for the log.
    #[must_use]
    pub fn trace_id(&self) -> impl std::fmt::Display + use<> {
        self.0.span_context().trace_id()
    }

    /// Ends it: a request with this id, method, outcome and HTTP status.
    pub fn end(mut self, id: &str, method: Option<&'static str>, outcome: Option<&'static str>, status: u16) {
        if let Some(method) = method {
            self.0.update_name(method);
            self.0.set_attribute(KeyValue::new("rpc.method", method));
        }
        if let Some(outcome) = outcome {
            self.0.set_attribute(KeyValue::new("task_broker.outcome", outcome));
        }
        self.0.set_attribute(KeyValue::new("rpc.system", "jsonrpc"));
        self.0.set_attribute(KeyValue::new("http.response.status_code", i64::from(status)));
        self.0.set_attribute(KeyValue::new("task_broker.request_id", id.to_owned()));
        if status >= 500 || outcome == Some("internal") {
            self.0.set_status(Status::error(""));
        }
        self.0.end();
    }
}

/// The one header of a request that is taken over.
struct Parent<'a>(Option<&'a str>);

impl Extractor for Parent<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        if key == "traceparent" { self.0 } else { None }
    }

    fn keys(&self) -> Vec<&str> {
        vec!["traceparent"]
    }
}

/// Sends on the broker's runtime what a thread outside of it exports.
#[derive(Debug)]
struct Sender {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    runtime: Handle,
    failures: Arc<Failures>,
}

#[async_trait]
impl HttpClient for Sender {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let client = self.client.clone();
        // Nothing of this may be begun out here, where there is no runtime.
        let sending = async { tokio::time::timeout(PATIENCE, send(client, request)).await };
        let sent = match self.runtime.spawn(sending).await {
            Ok(Ok(sent)) => sent,
            Ok(Err(_elapsed)) => Err("no answer in time".into()),
            Err(_ended) => Err("the broker ends".into()),
        };
        match &sent {
            Ok(answer) if !answer.status().is_success() => self.failures.add(answer.status().as_str()),
            Ok(_) => {}
            Err(error) => self.failures.add(&error.to_string()),
        }
        sent
    }
}

async fn send(
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    request: Request<Bytes>,
) -> Result<Response<Bytes>, HttpError> {
    let (head, body) = client.request(request.map(Full::new)).await?.into_parts();
    let body = Limited::new(body, ANSWER_BYTES).collect().await?.to_bytes();
    Ok(Response::from_parts(head, body))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_is_a_collector_nearby() {
        for (text, url) in [
            ("http://127.0.0.1:4318", "http://127.0.0.1:4318/v1/traces"),
            ("http://collector:4318/", "http://collector:4318/v1/traces"),
            ("https://collector.example", "https://collector.example/v1/traces"),
            ("http://[::1]:4318/otlp/traces", "http://[::1]:4318/otlp/traces"),
        ] {
            assert_eq!(text.parse(), Ok(Endpoint(url.into())));
        }
        for text in [
            "",
            "collector:4318",
            "ftp://collector",
            "HTTPS://",
            "https://",
            "http://",
            "http://:4318",
            "http://a@b",
            "http://a?b",
        ] {
            assert!(text.parse::<Endpoint>().is_err(), "{text}");
        }
    }
}
