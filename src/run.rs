//! From settings to a running broker, and to its end.

use std::future::Future;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use task_broker_core::OwnerFrom;
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use crate::auth::AuthMode;
use crate::broker::Broker;
use crate::clock::{Clock, Drift, DriftNews};
use crate::config::{Serve, Settings, StoreUrl};
use crate::http::serve::{ConnectionLimits, serve};
use crate::http::{App, service};
use crate::store::memory::MemoryStore;
use crate::store::sled::{DirectoryError, OpenError, SledOptions, SledStore};
use crate::store::{Health, Store, random_name};
use crate::traces::{Traces, TracesError};

/// How often the store is looked at: also how late a failed store ends the process.
const HEALTH_EVERY: Duration = Duration::from_millis(200);

/// How often the clock is compared with the operating system's.
const CLOCK_EVERY: Duration = Duration::from_secs(1);

/// Connections beside those that hold a call, a wait or a stream: idle ones and probes.
const SPARE_CONNECTIONS: usize = 4096;

/// Why the broker ended, or did not begin.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The store.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// There is no store, and none may be made.
    #[error("{0}, and --existing-store-only forbids making one")]
    NoStore(DirectoryError),
    /// The tasks in the store belong to subjects of another kind.
    #[error(
        "the store was made with --owner-from {stored}, and --owner-from {wanted} is asked for: its tasks would belong to \
         nobody, or to somebody else"
    )]
    OwnerFrom {
        /// What the store was made with.
        stored: OwnerFrom,
        /// What the settings say.
        wanted: OwnerFrom,
    },
    /// The operating system says no.
    #[error("{what}: {error}")]
    Io {
        /// What was tried.
        what: String,
        /// What the system said.
        error: std::io::Error,
    },
    /// Traces.
    #[error(transparent)]
    Traces(#[from] TracesError),
    /// The store failed while the broker was running.
    #[error("the store failed: {0}. The log says more; start again when the cause is gone")]
    StoreFailed(&'static str),
}

/// Opens the store that the settings name: a large one takes some seconds.
///
/// # Errors
/// [`OpenError`] says where and what, [`RunError::OwnerFrom`] that it was made for other subjects.
pub async fn open_store(serve: &Serve, clock: &Clock) -> Result<Arc<dyn Store>, RunError> {
    let (wanted, opening) = (serve.owner_from, (serve.clone(), clock.clone()));
    let opened = tokio::task::spawn_blocking(move || open_driver(&opening.0, &opening.1)).await;
    let store =
        opened.map_err(|error| RunError::Io { what: "opening the store".into(), error: error.into() })??;
    let stored = store.owner_from();
    if stored != wanted {
        store.close().await;
        return Err(RunError::OwnerFrom { stored, wanted });
    }
    Ok(store)
}

fn open_driver(serve: &Serve, clock: &Clock) -> Result<Arc<dyn Store>, RunError> {
    match &serve.store {
        StoreUrl::Memory => {
            let what = || "random bytes for the store's id".to_owned();
            let id = random_name().map_err(|error| RunError::Io { what: what(), error })?;
            Ok(Arc::new(MemoryStore::new(clock.clone(), id).with_owner_from(serve.owner_from)))
        }
        StoreUrl::Sled(path) => {
            let usual = SledOptions::new(path);
            let options = SledOptions {
                existing_only: serve.existing_store_only,
                cache_bytes: serve.cache_bytes,
                owner_from: serve.owner_from,
                compact_above: (!serve.no_compaction).then_some(serve.compact_above_bytes),
                ..usual
            };
            Ok(Arc::new(SledStore::open(&options, clock.clone()).map_err(refused)?))
        }
    }
}

/// Only here it is known that a flag forbids what the store did not do.
fn refused(error: OpenError) -> RunError {
    match error {
        OpenError::Directory(missing @ DirectoryError::Missing(_)) => RunError::NoStore(missing),
        other => other.into(),
    }
}

/// Serves until `shutdown`, then drains: readiness turns red and new calls are refused, waits answer what there
/// is, streams end, calls that have begun finish, and the store is closed.
///
/// # Errors
/// [`RunError::StoreFailed`] when the store failed; what it had acknowledged is on disk.
pub async fn run(
    listener: TcpListener,
    store: Arc<dyn Store>,
    clock: Clock,
    settings: Settings,
    shutdown: impl Future<Output = ()>,
) -> Result<(), RunError> {
    let what = || "the listening socket's address".to_owned();
    let address = listener.local_addr().map_err(|error| RunError::Io { what: what(), error })?;
    let Settings { auth, limits, http, keys, tls, drain, traces, warnings } = settings;
    for warning in warnings {
        tracing::warn!("{warning}");
    }
    announce(address, auth.mode(), tls.is_some());
    let connections = ConnectionLimits {
        connections: http.max_requests + http.waits.total + http.streams.total + SPARE_CONNECTIONS,
        ..ConnectionLimits::default()
    };
    let broker = Arc::new(Broker::new(store, limits, http.waits, http.streams));
    let stop_serving = CancellationToken::new();
    let traces = traces.map(|endpoint| Traces::start(&endpoint, Handle::current())).transpose();
    let traces = match traces {
        Ok(traces) => traces,
        Err(error) => {
            broker.close().await;
            return Err(error.into());
        }
    };
    let key_sources = tokio::spawn(keys.run(clock.clone()));
    let drift = tokio::spawn(tell_drift(clock.clone()));
    let certificates = tls.clone().map(|tls| tokio::spawn(tls.run()));
    let app = Arc::new(App::new(Arc::clone(&broker), auth, clock, http, traces));
    let open = app.connections();
    let service = service(Arc::clone(&app));
    let mut serving = tokio::spawn(serve(listener, tls, service, stop_serving.clone(), connections, open));
    let background = {
        let broker = Arc::clone(&broker);
        tokio::spawn(async move { broker.run().await })
    };
    let failure = tokio::select! {
        () = shutdown => None,
        why = store_failure(&broker) => Some(why),
    };
    tracing::info!(limit_secs = drain.as_secs(), "stopping: finishing what has begun");
    app.drain();
    broker.drain();
    let finished = async {
        // Until the last call has its answer the door stays open, so that probes see why nothing more is taken.
        app.no_calls().await;
        stop_serving.cancel();
        (&mut serving).await
    };
    match tokio::time::timeout(drain, finished).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::error!(%error, "the connection loop ended in an unusual way"),
        Err(_elapsed) => {
            tracing::warn!("calls were still open at the end of the drain time and are cut off");
            serving.abort();
        }
    }
    background.abort();
    drift.abort();
    key_sources.abort();
    if let Some(certificates) = certificates {
        certificates.abort();
    }
    broker.close().await;
    if let Some(traces) = app.traces() {
        traces.finish().await;
    }
    if let Some(why) = failure.or(failed(&broker)) {
        return Err(RunError::StoreFailed(why));
    }
    tracing::info!("stopped");
    Ok(())
}

fn announce(address: SocketAddr, mode: AuthMode, tls: bool) {
    tracing::info!(%address, auth = mode.as_str(), tls, "listening");
    if mode == AuthMode::Off {
        tracing::info!("no authentication: everybody who reaches this address may do everything");
    }
    let scheme = if tls { "https" } else { "http" };
    let token = if mode == AuthMode::Required { " -H 'authorization: Bearer TOKEN'" } else { "" };
    tracing::info!(
        "try: curl -s {scheme}://{}/rpc -H 'content-type: application/json'{token} -d \
         '{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"store/info\"}}'",
        reachable(address)
    );
}

/// An address to connect to: one that stands for all of them is none.
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

/// Tells when the clock and the operating system's are apart: after a start because the store has kept a later time, later
/// because the other one was set.
async fn tell_drift(clock: Clock) {
    let mut drift = Drift::default();
    loop {
        match drift.look(&clock) {
            Some(DriftNews::Apart(ahead_ms)) => tracing::warn!(
                ahead_ms,
                "the broker's clock and the system's are apart; tasks expire by the broker's, which goes on as it is"
            ),
            Some(DriftNews::Together(ahead_ms)) => {
                tracing::info!(ahead_ms, "the broker's clock and the system's are together again");
            }
            None => {}
        }
        tokio::time::sleep(CLOCK_EVERY).await;
    }
}

/// Waits for the store to fail.
async fn store_failure(broker: &Broker) -> &'static str {
    loop {
        if let Some(why) = failed(broker) {
            return why;
        }
        tokio::time::sleep(HEALTH_EVERY).await;
    }
}

/// Whether the store has failed, and why.
fn failed(broker: &Broker) -> Option<&'static str> {
    match broker.health() {
        Health::Failed(why) => Some(why),
        Health::Ready | Health::Unavailable(_) | Health::Closed => None,
    }
}
