//! The connection loop: HTTP/1.1 and HTTP/2 on one port, with the time limits that `axum::serve` does not have.
//!
//! A socket that is silent, or that sends its request head byte by byte, is closed; one on which a request is
//! being served is left alone, however long a wait or a stream takes (case B12).

mod activity;
mod timed;

use std::convert::Infallible;
use std::io;
use std::sync::Arc;

use std::time::Duration;

use axum::body::Body;
use axum::http::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use parking_lot::Mutex;
use rustix::net::sockopt;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::Service;

use self::activity::{Activity, Counted, Told};
use self::timed::Timed;
use super::observe::Connections;
use super::tls::Tls;

/// How long an accept loop rests when the system has no file for another socket.
const ACCEPT_REST: Duration = Duration::from_millis(50);

/// How often a connection that could not be accepted is worth a line in the log.
const ACCEPT_COMPLAINTS: Duration = Duration::from_secs(10);

/// How long a connection on which nothing is being served may take to close at the end.
const LAST_BYTES: Duration = Duration::from_millis(500);

/// How many requests one HTTP/2 connection may have open.
const HTTP2_STREAMS: u32 = 256;

/// How many requests of an HTTP/2 connection may have been taken back by the client before they were looked at, and ten
/// times as many may have been refused by the broker: one more, and the connection is closed (case B15). The library
/// has these numbers as its own defaults today; they are what stands between a flood and the processor.
const HTTP2_RESETS: usize = 20;

/// How long a peer may be gone before its socket is closed.
const DEAD_AFTER: Duration = Duration::from_secs(30);

/// The largest request head of HTTP/1.1, in bytes; a token may have 16 KiB.
const HEAD_BYTES: usize = 64 * 1024;

/// The same of HTTP/2, decoded, as the library counts: each field costs 32 bytes beside its text.
const HTTP2_HEAD_BYTES: u32 = 64 * 1024;

/// What one connection may cost.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionLimits {
    /// How many connections are open at once; further ones wait to be accepted.
    pub connections: usize,
    /// How long a request's head may take from its first byte on.
    pub head: Duration,
    /// How long a connection may be silent between requests.
    pub idle: Duration,
    /// How long a peer may take nothing of an answer that is ready for it.
    pub stall: Duration,
}

impl Default for ConnectionLimits {
    fn default() -> Self {
        Self {
            connections: 48 * 1024,
            head: Duration::from_secs(10),
            idle: Duration::from_secs(75),
            stall: Duration::from_secs(30),
        }
    }
}

/// What answers requests.
pub trait App:
    Service<Request<Body>, Response = Response<Body>, Error = Infallible, Future: Send> + Clone + Send + 'static
{
}

impl<S> App for S where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible, Future: Send>
        + Clone
        + Send
        + 'static
{
}

/// Serves `app` on `listener` until `shutdown`, then lets open requests finish. Drop the future to cut them off. With
/// `tls` nothing but TLS is spoken.
pub async fn serve(
    listener: TcpListener,
    tls: Option<Arc<Tls>>,
    app: impl App,
    shutdown: CancellationToken,
    limits: ConnectionLimits,
    connections: Connections,
) {
    let places = Arc::new(Semaphore::new(limits.connections));
    let tracker = TaskTracker::new();
    // Ends the connections when this future is dropped.
    let cut = CancellationToken::new();
    let _cut_on_drop = cut.clone().drop_guard();
    let mut told = None;
    loop {
        let accepted = tokio::select! {
            accepted = accept(&listener, &places, &mut told) => accepted,
            () = shutdown.cancelled() => break,
        };
        let Some((stream, place)) = accepted else { continue };
        let (app, shutdown, cut, tls) = (app.clone(), shutdown.clone(), cut.clone(), tls.clone());
        let counted = connections.enter();
        tracker.spawn(async move {
            tokio::select! {
                () = open_connection(stream, tls, app, shutdown, limits) => {}
                () = cut.cancelled() => {}
            }
            drop((place, counted));
        });
    }
    drop(listener);
    tracker.close();
    tracker.wait().await;
}

async fn accept(
    listener: &TcpListener,
    places: &Arc<Semaphore>,
    told: &mut Option<Instant>,
) -> Option<(TcpStream, tokio::sync::OwnedSemaphorePermit)> {
    let place = Arc::clone(places).acquire_owned().await.ok()?;
    match listener.accept().await {
        Ok((stream, _peer)) => Some((stream, place)),
        Err(error) => {
            // A connection that died in the queue, or no file left: neither ends the service.
            if told.is_none_or(|told| told.elapsed() >= ACCEPT_COMPLAINTS) {
                tracing::warn!(%error, "a connection could not be accepted");
                *told = Some(Instant::now());
            }
            sleep(ACCEPT_REST).await;
            None
        }
    }
}

async fn open_connection(
    stream: TcpStream,
    tls: Option<Arc<Tls>>,
    app: impl App,
    shutdown: CancellationToken,
    limits: ConnectionLimits,
) {
    if let Err(error) = prepare(&stream) {
        tracing::debug!(%error, "a socket refused an option");
    }
    let Some(tls) = tls else { return serve_connection(stream, app, shutdown, limits).await };
    // A handshake is the first part of a head. Half of one does not hold up the end.
    let handshake = TlsAcceptor::from(tls.current()).accept(stream);
    let accepted = tokio::select! {
        accepted = tokio::time::timeout(limits.head, handshake) => accepted,
        () = shutdown.cancelled() => return,
    };
    match accepted {
        Ok(Ok(stream)) => serve_connection(stream, app, shutdown, limits).await,
        Ok(Err(error)) => tracing::debug!(%error, "a TLS handshake failed"),
        Err(_elapsed) => tracing::debug!("a TLS handshake took too long"),
    }
}

/// Sets the options of a new socket. A peer that is gone without a word, as after a power cut or behind a firewall that
/// forgets, is noticed by them: the system asks whether it is still there, and gives up what it does not confirm.
fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, DEAD_AFTER / 2)?;
    sockopt::set_tcp_keepintvl(stream, DEAD_AFTER / 6)?;
    sockopt::set_tcp_keepcnt(stream, 3)?;
    let millis = u32::try_from(DEAD_AFTER.as_millis()).unwrap_or(u32::MAX);
    Ok(sockopt::set_tcp_user_timeout(stream, millis)?)
}

async fn serve_connection<S: AsyncRead + AsyncWrite + Send + Unpin + 'static>(
    stream: S,
    app: impl App,
    shutdown: CancellationToken,
    limits: ConnectionLimits,
) {
    let activity = Arc::new(Activity::new());
    let serving = Arc::clone(&activity);
    let io = TokioIo::new(Timed::new(stream, Arc::clone(&activity), limits));
    // A service is called through `&mut`, which the library does not give; nobody else ever waits for this lock. A clone for
    // each request would count up and down, on every processor, what all connections share.
    let app = Mutex::new(app);
    let service = hyper::service::service_fn(move |request: Request<hyper::body::Incoming>| {
        let open = Activity::begin(&activity, &request);
        let ends = Arc::clone(&activity);
        let answer = app.lock().call(request.map(|body| Body::new(Told { body, activity: ends })));
        async move { answer.await.map(|answer| answer.map(|body| Body::new(Counted::new(body, open)))) }
    });
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        // `Timed` keeps both limits; hyper's own would also close a connection that is merely idle.
        .header_read_timeout(None)
        .max_buf_size(HEAD_BYTES)
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(HTTP2_STREAMS)
        .max_header_list_size(HTTP2_HEAD_BYTES)
        .max_pending_accept_reset_streams(HTTP2_RESETS)
        .max_local_error_reset_streams(HTTP2_RESETS * 10)
        .keep_alive_interval(Duration::from_secs(20))
        .keep_alive_timeout(Duration::from_secs(20));
    let mut connection = std::pin::pin!(builder.serve_connection(io, service));
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = shutdown.cancelled() => {
            connection.as_mut().graceful_shutdown();
            if serving.is_serving() {
                connection.await
            } else {
                // Nothing is being served: what may still be on its way out needs a moment, half a head no more.
                tokio::time::timeout(LAST_BYTES, connection).await.unwrap_or(Ok(()))
            }
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended with an error");
    }
}

#[cfg(test)]
mod tests;
