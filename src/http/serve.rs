//! The connection loop: HTTP/1.1 and HTTP/2 on one port, with the time limits that `axum::serve` does not have.
//!
//! A socket that is silent, or that sends its request head byte by byte, is closed; one on which a request is
//! being served is left alone, however long a wait or a stream takes (case B12).

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::http::{Request, Response, Version};
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use rustix::net::sockopt;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{Instant, Sleep, sleep, sleep_until};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::Service;

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
    let service = hyper::service::service_fn(move |request: Request<hyper::body::Incoming>| {
        let open = Activity::begin(&activity, &request);
        let ends = Arc::clone(&activity);
        let answer = app.clone().call(request.map(|body| Body::new(Told { body, activity: ends })));
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

/// What happens on one connection.
#[derive(Debug)]
struct Activity {
    /// Requests that are being served, answers not yet sent included.
    open: AtomicUsize,
    /// How many requests have begun, ever.
    requests: AtomicUsize,
    /// A request's head has begun and is not complete.
    in_head: AtomicBool,
    /// HTTP/2: bytes between requests are no head.
    multiplexed: AtomicBool,
    /// The last bytes that came in.
    received: Tail,
    /// The last bytes of the newest request, as far as it has been read. Where others have come in behind it, the next
    /// head has begun, though it lies in a buffer out of sight. (Who ends half a head like the request before it is taken
    /// for idle, which costs no less.)
    request_end: Tail,
    began: Instant,
    /// When the last request was over, in milliseconds after `began`.
    last_done: AtomicU64,
}

impl Activity {
    fn new() -> Self {
        Self {
            open: AtomicUsize::new(0),
            requests: AtomicUsize::new(0),
            in_head: AtomicBool::new(false),
            multiplexed: AtomicBool::new(false),
            received: Tail::default(),
            request_end: Tail::default(),
            began: Instant::now(),
            last_done: AtomicU64::new(0),
        }
    }

    fn begin<B: HttpBody>(activity: &Arc<Self>, request: &Request<B>) -> OpenRequest {
        activity.request_end.restart(b"\r\n\r\n");
        activity.open.fetch_add(1, Ordering::AcqRel);
        activity.requests.fetch_add(1, Ordering::AcqRel);
        activity.in_head.store(false, Ordering::Release);
        activity.multiplexed.store(request.version() == Version::HTTP_2, Ordering::Release);
        OpenRequest(Arc::clone(activity))
    }

    fn is_serving(&self) -> bool {
        self.open.load(Ordering::Acquire) > 0
    }

    /// Whether more has come in than requests were made of.
    fn has_begun_another(&self) -> bool {
        !self.multiplexed.load(Ordering::Acquire)
            && (self.in_head.load(Ordering::Acquire) || !self.received.ends_with(&self.request_end))
    }

    fn last_done(&self) -> Instant {
        self.began + Duration::from_millis(self.last_done.load(Ordering::Acquire))
    }
}

/// The last bytes of something, eight at most.
#[derive(Debug, Default)]
struct Tail {
    bytes: AtomicU64,
    count: AtomicUsize,
}

impl Tail {
    const LENGTH: usize = 8;

    fn restart(&self, bytes: &[u8]) {
        self.count.store(0, Ordering::Release);
        self.extend(bytes);
    }

    fn extend(&self, bytes: &[u8]) {
        let newest = bytes.iter().skip(bytes.len().saturating_sub(Self::LENGTH));
        let before = self.bytes.load(Ordering::Acquire);
        self.bytes.store(newest.fold(before, |tail, byte| tail << 8 | u64::from(*byte)), Ordering::Release);
        let count = self.count.load(Ordering::Acquire).saturating_add(bytes.len()).min(Self::LENGTH);
        self.count.store(count, Ordering::Release);
    }

    fn ends_with(&self, other: &Self) -> bool {
        let count = other.count.load(Ordering::Acquire);
        let unused = u32::try_from((Self::LENGTH - count) * 8).unwrap_or(0);
        let last = |tail: &Self| tail.bytes.load(Ordering::Acquire).checked_shl(unused).unwrap_or(0);
        last(self) == last(other)
    }
}

/// A request's body, whose end is noted.
struct Told {
    body: hyper::body::Incoming,
    activity: Arc<Activity>,
}

impl HttpBody for Told {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = std::task::ready!(Pin::new(&mut self.body).poll_frame(cx));
        if let Some(Ok(frame)) = &frame
            && let Some(data) = frame.data_ref()
        {
            // A body of known length ends with its last byte. One in chunks ends as a head does.
            if self.body.size_hint().exact().is_some() {
                self.activity.request_end.extend(data);
            }
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A request that is being served.
#[derive(Debug)]
struct OpenRequest(Arc<Activity>);

impl Drop for OpenRequest {
    fn drop(&mut self) {
        let passed = u64::try_from(self.0.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.0.last_done.store(passed, Ordering::Release);
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
struct Timed<S> {
    stream: S,
    activity: Arc<Activity>,
    limits: ConnectionLimits,
    /// When to look at the limits again. It always runs while there is nothing to read: a request may end without
    /// anybody reading afterwards.
    look_again: Pin<Box<Sleep>>,
    /// When the head that is coming in has begun.
    head_began: Option<Instant>,
    /// How many requests had begun when that was noted.
    requests: usize,
    /// When a peer that takes nothing is given up; there only while it does.
    stalled: Option<Pin<Box<Sleep>>>,
}

impl<S> Timed<S> {
    fn new(stream: S, activity: Arc<Activity>, limits: ConnectionLimits) -> Self {
        let now = Instant::now();
        // A new connection owes its first request as soon as one that has begun to send it.
        Self {
            stream,
            activity,
            limits,
            look_again: Box::pin(sleep_until(now + limits.head)),
            head_began: Some(now),
            requests: 0,
            stalled: None,
        }
    }

    /// When the peer is given up if nothing happens; nothing while a request is being served.
    fn deadline(&mut self) -> Option<Instant> {
        let requests = self.activity.requests.load(Ordering::Acquire);
        if requests != self.requests {
            self.requests = requests;
            self.head_began = None;
        }
        if self.activity.is_serving() {
            return None;
        }
        if self.activity.has_begun_another() {
            let began = *self.head_began.get_or_insert_with(Instant::now);
            return Some(began + self.limits.head);
        }
        match self.head_began {
            // The first head of the connection.
            Some(began) => Some(began + self.limits.head),
            None => Some(self.activity.last_done() + self.limits.idle),
        }
    }

    /// Whether the peer is to be given up; otherwise this is asked again in time.
    fn is_given_up(&mut self, cx: &mut Context<'_>) -> bool {
        loop {
            let now = Instant::now();
            let next = match self.deadline() {
                Some(deadline) if deadline <= now => return true,
                Some(deadline) => deadline,
                None => now + self.limits.idle,
            };
            // Set only to an earlier time, or after it has run out: most requests need no new timer.
            if next < self.look_again.deadline() || self.look_again.is_elapsed() {
                self.look_again.as_mut().reset(next);
            }
            if self.look_again.as_mut().poll(cx).is_pending() {
                return false;
            }
        }
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
}

impl<S: AsyncRead + Unpin> AsyncRead for Timed<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buf);
        match read {
            Poll::Ready(Ok(())) if buf.filled().len() > before => {
                self.activity.received.extend(buf.filled().get(before..).unwrap_or_default());
                if !self.activity.is_serving() && !self.activity.multiplexed.load(Ordering::Acquire) {
                    self.activity.in_head.store(true, Ordering::Release);
                }
                Poll::Ready(Ok(()))
            }
            Poll::Pending if self.is_given_up(cx) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            other => other,
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Timed<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.watch_write(cx, written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // TLS keeps what it has taken until it can be sent, so a peer that takes nothing is seen here.
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        self.watch_write(cx, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let ended = Pin::new(&mut self.stream).poll_shutdown(cx);
        self.watch_write(cx, ended)
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

#[cfg(test)]
mod tests {
    use axum::Router;
    use axum::routing::get;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    /// Far longer than any limit below: a test that runs into it has found a connection that is never given up.
    const PATIENCE: Duration = Duration::from_secs(10);

    struct Server {
        address: std::net::SocketAddr,
        shutdown: CancellationToken,
        served: tokio::task::JoinHandle<()>,
    }

    async fn server(head_ms: u64, idle_ms: u64) -> Server {
        let limits = ConnectionLimits {
            head: Duration::from_millis(head_ms),
            idle: Duration::from_millis(idle_ms),
            ..ConnectionLimits::default()
        };
        let slow = || async {
            sleep(Duration::from_millis(600)).await;
            "slow"
        };
        let read = |body: Bytes| async move { format!("{} bytes", body.len()) };
        let app = Router::new()
            .route("/", get(|| async { "ok" }))
            .route("/slow", get(slow))
            .route("/read", axum::routing::post(read));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shutdown = CancellationToken::new();
        let served =
            tokio::spawn(serve(listener, None, app, shutdown.clone(), limits, Connections::default()));
        Server { address, shutdown, served }
    }

    #[tokio::test]
    async fn a_peer_that_is_gone_without_a_word_is_noticed_by_the_system() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let _peer = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        prepare(&stream).unwrap();
        assert!(sockopt::socket_keepalive(&stream).unwrap());
        assert_eq!(sockopt::tcp_user_timeout(&stream).unwrap(), 30_000);
        let asks = sockopt::tcp_keepintvl(&stream).unwrap() * sockopt::tcp_keepcnt(&stream).unwrap();
        assert!(sockopt::tcp_keepidle(&stream).unwrap() + asks <= DEAD_AFTER);
    }

    /// Sends `text` and reads until the server closes the connection.
    async fn until_closed(server: &Server, text: &str) -> String {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(text.as_bytes()).await.unwrap();
        let mut received = String::new();
        let read = tokio::time::timeout(PATIENCE, stream.read_to_string(&mut received)).await;
        // A reset is an end too.
        drop(read.expect("the connection is never given up"));
        received
    }

    #[tokio::test]
    async fn a_connection_is_given_up_when_it_is_idle_after_any_kind_of_request() {
        let server = server(5_000, 200).await;
        for request in ["GET / HTTP/1.1\r\nhost: x\r\n\r\n", "GET /nothing HTTP/1.1\r\nhost: x\r\n\r\n"] {
            let began = Instant::now();
            assert!(until_closed(&server, request).await.starts_with("HTTP/1.1 "), "{request}");
            assert!(began.elapsed() >= Duration::from_millis(190), "not before its time");
        }
    }

    #[tokio::test]
    async fn a_request_that_takes_longer_than_the_limits_is_served() {
        let server = server(100, 100).await;
        let answer = until_closed(&server, "GET /slow HTTP/1.1\r\nhost: x\r\n\r\n").await;
        assert!(answer.ends_with("slow"), "{answer}");
    }

    #[tokio::test]
    async fn silence_and_half_a_head_are_given_up() {
        let server = server(100, 60_000).await;
        assert_eq!(until_closed(&server, "").await, "");
        assert_eq!(until_closed(&server, "GET / HT").await, "");
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
        let mut first = [0; 12];
        stream.read_exact(&mut first).await.unwrap();
        stream.write_all(b"GET / HT").await.unwrap();
        let rest = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut Vec::new())).await;
        // A reset is an end too.
        drop(rest.expect("the second head is never given up"));
    }

    /// Requests of every kind of end.
    const REQUESTS: [&str; 5] = [
        "GET / HTTP/1.1\r\nhost: x\r\n\r\n",
        "POST /read HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n{}",
        "POST /read HTTP/1.1\r\nhost: x\r\ncontent-length: 12\r\n\r\n{\"a\": \"bcd\"}",
        "POST /read HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n",
    ];

    #[tokio::test]
    async fn half_a_head_behind_a_request_in_one_packet_is_given_up() {
        let server = server(100, 60_000).await;
        for request in REQUESTS {
            for half in ["G", "GET / HT", "GET / HTTP/1.1\r\nhost: x\r\n"] {
                let answer = until_closed(&server, &format!("{request}{request}{half}")).await;
                assert_eq!(answer.matches("HTTP/1.1 ").count(), 2, "{request}{half}");
            }
        }
    }

    #[tokio::test]
    async fn a_connection_whose_requests_are_done_is_only_idle() {
        let server = server(100, 600).await;
        for request in REQUESTS {
            let began = Instant::now();
            until_closed(&server, &format!("{request}{request}")).await;
            assert!(began.elapsed() >= Duration::from_millis(590), "{request}");
        }
    }

    #[tokio::test]
    async fn half_a_head_does_not_hold_up_the_end() {
        let server = server(60_000, 60_000).await;
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\nGET / HT").await.unwrap();
        let mut first = [0; 12];
        stream.read_exact(&mut first).await.unwrap();
        server.shutdown.cancel();
        tokio::time::timeout(PATIENCE, server.served).await.expect("the end waits for half a head").unwrap();
    }
}
