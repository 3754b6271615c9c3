//! The connection loop: HTTP/1.1 and HTTP/2 on one port, with the time limits that `axum::serve` does not have.
//!
//! A socket that is silent, or that sends its request head byte by byte, is closed; one on which a request is
//! being served is left alone, however long a wait or a stream takes (case B12).

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, HttpBody};
use axum::http::{Request, Version};
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{Instant, Sleep, sleep, sleep_until};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::Service;

/// How long an accept loop rests when the system has no file for another socket.
const ACCEPT_REST: Duration = Duration::from_millis(50);

/// How many requests one HTTP/2 connection may have open.
const HTTP2_STREAMS: u32 = 256;

/// The largest request head of HTTP/1.1, in bytes; a token may have 16 KiB.
const HEAD_BYTES: usize = 64 * 1024;

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
            stall: Duration::from_mins(1),
        }
    }
}

/// Serves `app` on `listener` until `shutdown`, then lets open requests finish. Drop the future to cut them off.
pub async fn serve(
    listener: TcpListener,
    app: Router,
    shutdown: CancellationToken,
    limits: ConnectionLimits,
) {
    let places = Arc::new(Semaphore::new(limits.connections));
    let tracker = TaskTracker::new();
    // Ends the connections when this future is dropped.
    let cut = CancellationToken::new();
    let _cut_on_drop = cut.clone().drop_guard();
    loop {
        let accepted = tokio::select! {
            accepted = accept(&listener, &places) => accepted,
            () = shutdown.cancelled() => break,
        };
        let Some((stream, place)) = accepted else { continue };
        let (app, shutdown, cut) = (app.clone(), shutdown.clone(), cut.clone());
        tracker.spawn(async move {
            tokio::select! {
                () = serve_connection(stream, app, shutdown, limits) => {}
                () = cut.cancelled() => {}
            }
            drop(place);
        });
    }
    drop(listener);
    tracker.close();
    tracker.wait().await;
}

async fn accept(
    listener: &TcpListener,
    places: &Arc<Semaphore>,
) -> Option<(TcpStream, tokio::sync::OwnedSemaphorePermit)> {
    let place = Arc::clone(places).acquire_owned().await.ok()?;
    match listener.accept().await {
        Ok((stream, _peer)) => Some((stream, place)),
        Err(error) => {
            // A connection that died in the queue, or no file left: neither ends the service.
            tracing::warn!(%error, "a connection could not be accepted");
            sleep(ACCEPT_REST).await;
            None
        }
    }
}

async fn serve_connection(
    stream: TcpStream,
    app: Router,
    shutdown: CancellationToken,
    limits: ConnectionLimits,
) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "a socket refused TCP_NODELAY");
    }
    let activity = Arc::new(Activity::default());
    let io = TokioIo::new(Timed::new(stream, Arc::clone(&activity), limits));
    let service = hyper::service::service_fn(move |request: Request<hyper::body::Incoming>| {
        let open = Activity::begin(&activity, request.version());
        let answer = app.clone().call(request);
        async move { answer.await.map(|answer| answer.map(|body| Body::new(Counted { body, _open: open }))) }
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
        .keep_alive_interval(Duration::from_secs(20))
        .keep_alive_timeout(Duration::from_secs(20));
    let mut connection = std::pin::pin!(builder.serve_connection(io, service));
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = shutdown.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended with an error");
    }
}

/// What happens on one connection.
#[derive(Debug, Default)]
struct Activity {
    /// Requests that are being served, answers not yet sent included.
    open: AtomicUsize,
    /// A request's head has begun and is not complete.
    in_head: AtomicBool,
    /// HTTP/2: bytes between requests are no head.
    multiplexed: AtomicBool,
}

impl Activity {
    fn begin(activity: &Arc<Self>, version: Version) -> OpenRequest {
        activity.open.fetch_add(1, Ordering::AcqRel);
        activity.in_head.store(false, Ordering::Release);
        activity.multiplexed.store(version == Version::HTTP_2, Ordering::Release);
        OpenRequest(Arc::clone(activity))
    }
}

/// A request that is being served.
#[derive(Debug)]
struct OpenRequest(Arc<Activity>);

impl Drop for OpenRequest {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::AcqRel);
    }
}

/// An answer's body; its request is over when it is.
struct Counted {
    body: Body,
    _open: OpenRequest,
}

impl HttpBody for Counted {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A socket that gives up when its peer is silent for too long or too slow with a head.
struct Timed {
    stream: TcpStream,
    activity: Arc<Activity>,
    limits: ConnectionLimits,
    /// When the peer is given up; armed only while nothing is being served.
    deadline: Pin<Box<Sleep>>,
    armed: Armed,
    /// When a peer that takes nothing is given up; there only while it does.
    stalled: Option<Pin<Box<Sleep>>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Armed {
    No,
    Idle,
    Head,
}

impl Timed {
    fn new(stream: TcpStream, activity: Arc<Activity>, limits: ConnectionLimits) -> Self {
        let deadline = Box::pin(sleep_until(Instant::now() + limits.head));
        // A new connection owes its first request as soon as one that has begun to send it.
        Self { stream, activity, limits, deadline, armed: Armed::Head, stalled: None }
    }

    /// Watches a write: one that makes no progress for too long fails, or answers that nobody reads would fill the
    /// memory.
    fn watch_write<T>(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.stalled = None;
            return written;
        }
        let stall = self.limits.stall;
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(sleep(stall)));
        stalled.as_mut().poll(cx).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }

    /// Arms the right limit for what the connection is doing now.
    fn arm(&mut self) {
        let wanted = if self.activity.open.load(Ordering::Acquire) > 0 {
            Armed::No
        } else if self.activity.in_head.load(Ordering::Acquire) || self.armed == Armed::Head {
            Armed::Head
        } else {
            Armed::Idle
        };
        if wanted == self.armed {
            return;
        }
        self.armed = wanted;
        let limit = match wanted {
            Armed::No => return,
            Armed::Idle => self.limits.idle,
            Armed::Head => self.limits.head,
        };
        self.deadline.as_mut().reset(Instant::now() + limit);
    }
}

impl AsyncRead for Timed {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buf);
        let idle = self.activity.open.load(Ordering::Acquire) == 0;
        match read {
            Poll::Ready(Ok(())) if buf.filled().len() > before => {
                if idle && !self.activity.multiplexed.load(Ordering::Acquire) {
                    self.activity.in_head.store(true, Ordering::Release);
                }
                Poll::Ready(Ok(()))
            }
            Poll::Pending => {
                self.arm();
                if self.armed != Armed::No && self.deadline.as_mut().poll(cx).is_ready() {
                    return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
                }
                Poll::Pending
            }
            ended @ Poll::Ready(_) => ended,
        }
    }
}

impl AsyncWrite for Timed {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.watch_write(cx, written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.watch_write(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
