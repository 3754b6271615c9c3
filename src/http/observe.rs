//! Around every request: its id, its line in the log, its span, and the count of refusals.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use axum::Router;
use axum::body::Body;
use axum::http::header::CONNECTION;
use axum::http::{HeaderName, HeaderValue, Request, Response, Version};
use axum::routing::MethodRouter;
use axum::routing::future::RouteFuture;
use pin_project_lite::pin_project;
use tokio::task::futures::TaskLocalFuture;
use tower::Service;
use tracing::Level;

use super::App;
use crate::clock::Stopwatch;
use crate::request::{self, Current, RequestId};
use crate::traces::RequestSpan;

/// Where clients give the id of a request, and find it in the answer.
pub(super) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Where clients say which trace a request belongs to (W3C Trace Context).
const TRACE_PARENT: HeaderName = HeaderName::from_static("traceparent");

/// How many connections are open.
#[derive(Clone, Debug, Default)]
pub struct Connections(Arc<AtomicUsize>);

impl Connections {
    /// Counts a connection until what is returned is dropped.
    #[must_use]
    pub fn enter(&self) -> OpenConnection {
        self.0.fetch_add(1, Ordering::Relaxed);
        OpenConnection(Arc::clone(&self.0))
    }

    /// How many are open.
    pub(super) fn open(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

/// An open connection.
#[derive(Debug)]
pub struct OpenConnection(Arc<AtomicUsize>);

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The router, watched.
#[derive(Clone, Debug)]
pub struct Observed {
    /// What the router has for the path of calls. Nearly every request is one, and to find the way anew each time makes a map
    /// of extensions that nobody reads.
    rpc: MethodRouter,
    router: Router,
    app: Arc<App>,
}

impl Observed {
    /// Watches over a router.
    pub(super) fn new(rpc: MethodRouter, router: Router, app: Arc<App>) -> Self {
        Self { rpc, router, app }
    }
}

impl Service<Request<Body>> for Observed {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Observing;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        // Routers always are.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Observing {
        // Only the line in the log tells it.
        let began = tracing::enabled!(Level::DEBUG).then(Stopwatch::start);
        let given = request.headers().get(REQUEST_ID).map(HeaderValue::as_bytes);
        let id = RequestId::given_or_new(given);
        let is_rpc = request.uri().path() == "/rpc";
        let traces = self.app.traces.as_ref().filter(|_| is_rpc);
        let span = traces.map(|traces| {
            let parent = request.headers().get(TRACE_PARENT);
            traces.begin(parent.and_then(|parent| parent.to_str().ok()))
        });
        let one_by_one = request.version() != Version::HTTP_2;
        let work = if is_rpc { self.rpc.call(request) } else { self.router.call(request) };
        let work = request::work_on(Current::new(id), work);
        Observing { work, app: Arc::clone(&self.app), began, span, one_by_one }
    }
}

pin_project! {
    /// A request that is being served.
    #[derive(Debug)]
    pub struct Observing {
        #[pin]
        work: TaskLocalFuture<Current, RouteFuture<Infallible>>,
        app: Arc<App>,
        began: Option<Stopwatch>,
        span: Option<RequestSpan>,
        // HTTP/1: its connection takes one request after the other.
        one_by_one: bool,
    }
}

impl Future for Observing {
    type Output = Result<Response<Body>, Infallible>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        let Ok(mut response) = ready!(this.work.as_mut().poll(cx));
        let status = response.status();
        if status.is_client_error() || status.is_server_error() {
            this.app.metrics.refused(status);
        }
        if *this.one_by_one && this.app.is_draining() {
            // Its client must not send another one into a connection that is about to be closed.
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        if let Some(current) = this.work.take_value() {
            // An id is of visible ASCII, so this never fails.
            if let Ok(id) = HeaderValue::from_maybe_shared(current.id.as_bytes().clone()) {
                response.headers_mut().insert(REQUEST_ID, id);
            }
            let note = current.note();
            let span = this.span.take();
            let trace = span.as_ref().map(|span| tracing::field::display(span.trace_id()));
            if let Some(span) = span {
                span.end(current.id.as_str(), note.method, note.outcome, status.as_u16());
            }
            request::finish(current, || {
                tracing::debug!(
                    method = note.method,
                    outcome = note.outcome,
                    status = status.as_u16(),
                    trace,
                    micros = this
                        .began
                        .map(|began| u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX)),
                    "request"
                );
            });
        }
        Poll::Ready(Ok(response))
    }
}
