//! What happens on one connection, as far as its time limits need to know.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::http::{Request, Version};
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use parking_lot::Mutex;
use tokio::time::Instant;

/// What happens on one connection.
#[derive(Debug)]
pub(super) struct Activity {
    /// Requests that are being served, answers not yet sent included.
    pub(super) open: AtomicUsize,
    /// How many requests have begun, ever.
    pub(super) requests: AtomicUsize,
    /// A request's head has begun and is not complete.
    pub(super) in_head: AtomicBool,
    /// HTTP/2: bytes between requests are no head.
    pub(super) multiplexed: AtomicBool,
    /// The last bytes that came in.
    pub(super) received: Tail,
    /// The last bytes of the newest request, as far as it has been read. Where others have come in behind it, the next
    /// head has begun, though it lies in a buffer out of sight. (Who ends half a head like the request before it is taken
    /// for idle, which costs no less.)
    request_end: Tail,
    began: Instant,
    /// When the last request was over, in milliseconds after `began`.
    last_done: AtomicU64,
    /// Answers of a multiplexed connection that are ready, and since when nothing was taken of each.
    untaken: Mutex<HashMap<usize, Instant>>,
}

impl Activity {
    pub(super) fn new() -> Self {
        Self {
            open: AtomicUsize::new(0),
            requests: AtomicUsize::new(0),
            in_head: AtomicBool::new(false),
            multiplexed: AtomicBool::new(false),
            received: Tail::default(),
            request_end: Tail::default(),
            began: Instant::now(),
            last_done: AtomicU64::new(0),
            untaken: Mutex::default(),
        }
    }

    pub(super) fn begin<B: HttpBody>(activity: &Arc<Self>, request: &Request<B>) -> OpenRequest {
        activity.request_end.restart(b"\r\n\r\n");
        activity.open.fetch_add(1, Ordering::AcqRel);
        activity.requests.fetch_add(1, Ordering::AcqRel);
        activity.in_head.store(false, Ordering::Release);
        activity.multiplexed.store(request.version() == Version::HTTP_2, Ordering::Release);
        OpenRequest(Arc::clone(activity))
    }

    pub(super) fn is_serving(&self) -> bool {
        self.open.load(Ordering::Acquire) > 0
    }

    /// Whether more has come in than requests were made of.
    pub(super) fn has_begun_another(&self) -> bool {
        !self.multiplexed.load(Ordering::Acquire)
            && (self.in_head.load(Ordering::Acquire) || !self.received.ends_with(&self.request_end))
    }

    /// Since when nothing was taken of some answer that is ready, on a multiplexed connection: there the peer says for each
    /// how much it takes, and while that is nothing, nothing is written that could be seen to stall.
    pub(super) fn untaken_since(&self) -> Option<Instant> {
        if !self.multiplexed.load(Ordering::Acquire) {
            return None;
        }
        self.untaken.lock().values().min().copied()
    }

    pub(super) fn last_done(&self) -> Instant {
        self.began + Duration::from_millis(self.last_done.load(Ordering::Acquire))
    }
}

/// The last bytes of something, eight at most.
#[derive(Debug, Default)]
pub(super) struct Tail {
    bytes: AtomicU64,
    count: AtomicUsize,
}

impl Tail {
    const LENGTH: usize = 8;

    pub(super) fn restart(&self, bytes: &[u8]) {
        self.count.store(0, Ordering::Release);
        self.extend(bytes);
    }

    pub(super) fn extend(&self, bytes: &[u8]) {
        let newest = bytes.iter().skip(bytes.len().saturating_sub(Self::LENGTH));
        let before = self.bytes.load(Ordering::Acquire);
        self.bytes.store(newest.fold(before, |tail, byte| tail << 8 | u64::from(*byte)), Ordering::Release);
        let count = self.count.load(Ordering::Acquire).saturating_add(bytes.len()).min(Self::LENGTH);
        self.count.store(count, Ordering::Release);
    }

    pub(super) fn ends_with(&self, other: &Self) -> bool {
        let count = other.count.load(Ordering::Acquire);
        let unused = u32::try_from((Self::LENGTH - count) * 8).unwrap_or(0);
        let last = |tail: &Self| tail.bytes.load(Ordering::Acquire).checked_shl(unused).unwrap_or(0);
        last(self) == last(other)
    }
}

/// A request's body, whose end is noted.
pub(super) struct Told {
    pub(super) body: hyper::body::Incoming,
    pub(super) activity: Arc<Activity>,
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
pub(super) struct OpenRequest(Arc<Activity>);

impl Drop for OpenRequest {
    fn drop(&mut self) {
        let passed = u64::try_from(self.0.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.0.last_done.store(passed, Ordering::Release);
        self.0.open.fetch_sub(1, Ordering::AcqRel);
    }
}

/// An answer of which something is still to be taken.
struct Untaken {
    activity: Arc<Activity>,
    number: usize,
}

impl Untaken {
    fn new(activity: &Arc<Activity>) -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let untaken = Self { activity: Arc::clone(activity), number: NEXT.fetch_add(1, Ordering::Relaxed) };
        untaken.take();
        untaken
    }

    /// Something was taken.
    fn take(&self) {
        self.activity.untaken.lock().insert(self.number, Instant::now());
    }
}

impl Drop for Untaken {
    fn drop(&mut self) {
        self.activity.untaken.lock().remove(&self.number);
    }
}

/// An answer's body; its request is over when it is.
pub(super) struct Counted {
    body: Body,
    untaken: Option<Untaken>,
    _open: OpenRequest,
}

impl Counted {
    /// The body of the answer to a request. One that is there as a whole must be taken; a stream is there only as far as
    /// something has happened.
    pub(super) fn new(body: Body, open: OpenRequest) -> Self {
        let must_be_taken = open.0.multiplexed.load(Ordering::Acquire)
            && body.size_hint().exact().is_some_and(|length| length > 0);
        Self { untaken: must_be_taken.then(|| Untaken::new(&open.0)), body, _open: open }
    }
}

impl HttpBody for Counted {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if let Some(untaken) = &self.untaken {
            untaken.take();
        }
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
