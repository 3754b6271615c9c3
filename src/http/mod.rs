//! HTTP: a router that is one table, limits around it, handlers that only map. It knows the broker, never a store.

mod answer;
mod body;
mod export;
mod gate;
mod metrics;
pub mod observe;
mod patience;
mod places;
mod probes;
mod rate;
mod rpc;
mod scrape;
pub mod serve;
mod tls;

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::Router;
use axum::http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, Method};
use axum::routing::{MethodRouter, get, post};
use task_broker_core::Timestamp;
use tokio_util::task::TaskTracker;
use tower_http::cors::CorsLayer;

use self::answer::AnswerRoom;
use self::body::BodyRoom;
use self::metrics::Metrics;
use self::observe::{Connections, Observed, REQUEST_ID};
use self::places::Places;
use self::rate::RateLimits;
use crate::auth::Authenticator;
use crate::broker::{Broker, SeatLimits};
use crate::clock::Clock;
use crate::traces::Traces;

pub use self::tls::{Tls, TlsError};

/// How much memory the bodies of all requests together may take, and all large answers together, in bytes: this, not the number of requests, is
/// what bounds the process when many large ones come at once.
const ALL_BODIES_BYTES: usize = 256 << 20;

/// The limits and rules of the HTTP side.
#[derive(Clone, Debug)]
pub struct HttpSettings {
    /// The largest body, in bytes.
    pub max_body_bytes: usize,
    /// How many calls are worked on at once, waits and streams not counted.
    pub max_requests: usize,
    /// How many waits are open.
    pub waits: SeatLimits,
    /// How many streams are open.
    pub streams: SeatLimits,
    /// Origins whose pages may call.
    pub allow_origin: Vec<String>,
    /// How many calls a second one subject may make; `None` if as many as it likes.
    pub rate_per_subject: Option<NonZeroU32>,
}

/// What every handler shares.
#[derive(Debug)]
pub struct App {
    broker: Arc<Broker>,
    auth: Authenticator,
    clock: Clock,
    settings: HttpSettings,
    places: Places,
    bodies: BodyRoom,
    answers: AnswerRoom,
    rates: Option<RateLimits>,
    /// Requests whose bodies come slowly, and which have no place meanwhile.
    slow: TaskTracker,
    draining: AtomicBool,
    shown: rpc::ShownTasks,
    metrics: Metrics,
    connections: Connections,
    started: Timestamp,
    traces: Option<Traces>,
}

impl App {
    /// Puts the parts together.
    #[must_use]
    pub fn new(
        broker: Arc<Broker>,
        auth: Authenticator,
        clock: Clock,
        settings: HttpSettings,
        traces: Option<Traces>,
    ) -> Self {
        let room = ALL_BODIES_BYTES.max(settings.max_body_bytes.saturating_mul(2));
        let rates = settings.rate_per_subject.map(|per_second| RateLimits::new(per_second, &clock));
        Self {
            broker,
            auth,
            started: clock.now(),
            traces,
            clock,
            metrics: Metrics::default(),
            connections: Connections::default(),
            rates,
            places: Places::new(settings.max_requests),
            bodies: BodyRoom::new(room),
            answers: AnswerRoom::new(room),
            settings,
            draining: AtomicBool::new(false),
            shown: rpc::ShownTasks::default(),
            slow: TaskTracker::new(),
        }
    }

    /// From now on new calls are refused, and `/readyz` is red.
    pub fn drain(&self) {
        self.draining.store(true, Ordering::Release);
    }

    fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Acquire)
    }

    /// Where connections are counted.
    #[must_use]
    pub fn connections(&self) -> Connections {
        self.connections.clone()
    }

    /// Where traces go, if they go anywhere.
    #[must_use]
    pub fn traces(&self) -> Option<&Traces> {
        self.traces.as_ref()
    }

    /// Waits until no call is being worked on. New ones should be refused by then.
    pub async fn no_calls(&self) {
        self.slow.close();
        self.slow.wait().await;
        self.places.all_back().await;
        self.broker.no_long_calls().await;
    }
}

/// The whole service.
pub fn service(app: Arc<App>) -> Observed {
    let rpc = rpc_route(&app);
    Observed::new(rpc.clone().with_state(Arc::clone(&app)), router(rpc, Arc::clone(&app)), app)
}

/// What is served at `/rpc`.
fn rpc_route(app: &App) -> MethodRouter<Arc<App>> {
    let rpc = post(rpc::handle).fallback(rpc::wrong_method);
    // Only for pages that may call at all; without a list even their question is refused.
    let allowed: Vec<_> =
        app.settings.allow_origin.iter().filter_map(|origin| HeaderValue::from_str(origin).ok()).collect();
    if allowed.is_empty() { rpc } else { rpc.layer(cors(allowed)) }
}

/// Every path of the service.
fn router(rpc: MethodRouter<Arc<App>>, app: Arc<App>) -> Router {
    Router::new()
        .route("/rpc", rpc)
        .route("/export", post(export::handle).fallback(rpc::wrong_method))
        .route("/livez", get(probes::livez))
        .route("/readyz", get(probes::readyz))
        .route("/metrics", get(scrape::metrics))
        .route("/openapi.yaml", get(probes::openapi))
        .fallback(rpc::no_such_path)
        .with_state(app)
}

/// What a browser asks before it lets a page of another origin call.
fn cors(allowed: Vec<HeaderValue>) -> CorsLayer {
    CorsLayer::new()
        .allow_origin(allowed)
        .allow_methods([Method::POST])
        .allow_headers([ACCEPT, AUTHORIZATION, CONTENT_TYPE])
        .expose_headers([RETRY_AFTER, WWW_AUTHENTICATE, REQUEST_ID])
}
