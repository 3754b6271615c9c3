//! The socket with its time limits.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf, Take};
use tokio::time::{Instant, Sleep, sleep, sleep_until};

use super::ConnectionLimits;
use super::activity::Activity;

/// How much is read at once, in bytes: just too little for hyper to make its buffer larger than the 8 KiB that it begins
/// with. It doubles it as long as it is filled, up to the largest head, and each connection that had one large body would
/// keep that.
const READ_BYTES: u64 = 8 * 1024 - 1;

/// A socket that gives up when its peer is silent for too long or too slow with a head.
pub(super) struct Timed<S> {
    stream: Take<S>,
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

impl<S: AsyncRead> Timed<S> {
    pub(super) fn new(stream: S, activity: Arc<Activity>, limits: ConnectionLimits) -> Self {
        let now = Instant::now();
        // A new connection owes its first request as soon as one that has begun to send it.
        Self {
            stream: stream.take(READ_BYTES),
            activity,
            limits,
            look_again: Box::pin(sleep_until(now + limits.head)),
            head_began: Some(now),
            requests: 0,
            stalled: None,
        }
    }

    /// When the peer is given up if nothing happens; nothing while a request is being served, unless its answer is not taken.
    pub(super) fn deadline(&mut self) -> Option<Instant> {
        let requests = self.activity.requests.load(Ordering::Acquire);
        if requests != self.requests {
            self.requests = requests;
            self.head_began = None;
        }
        if self.activity.is_serving() {
            return self.activity.untaken_since().map(|since| since + self.limits.stall);
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
    pub(super) fn is_given_up(&mut self, cx: &mut Context<'_>) -> bool {
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
    pub(super) fn watch_write<T>(
        &mut self,
        cx: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
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
        self.stream.set_limit(READ_BYTES);
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

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Timed<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(self.stream.get_mut()).poll_write(cx, buf);
        self.watch_write(cx, written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // TLS keeps what it has taken until it can be sent, so a peer that takes nothing is seen here.
        let flushed = Pin::new(self.stream.get_mut()).poll_flush(cx);
        self.watch_write(cx, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let ended = Pin::new(self.stream.get_mut()).poll_shutdown(cx);
        self.watch_write(cx, ended)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(self.stream.get_mut()).poll_write_vectored(cx, bufs);
        self.watch_write(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.get_ref().is_write_vectored()
    }
}
