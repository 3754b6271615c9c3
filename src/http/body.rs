//! Reading a request's body within its limits.

use std::mem;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::Body as _;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::patience::within;

/// How long a body may take (WIRE.md, Limits).
const BODY_TIME: Duration = Duration::from_secs(30);

/// A body that is not there after this is slow. Most are there before anybody looks. Until then its request has places, a
/// hundred if it is long, so clients that send heads alone could take many if this were long.
const AT_HAND: Duration = Duration::from_millis(50);

/// What is set aside for bodies at a time, and its unit, in bytes.
const UNIT: usize = 16 * 1024;

/// So much of what a body says that it has is reserved at once, in bytes: nothing of most bodies is copied twice then, and
/// one that does not come costs little.
const RESERVED: usize = 256 * 1024;

/// The largest body that is read although it is not wanted, in bytes, and how long it may take.
const DISCARDED_BYTES: u64 = 1 << 20;
const DISCARD_TIME: Duration = Duration::from_secs(5);

/// How long a refusal waits for the rest of its body. Mostly it is there already.
const DISCARD_AT_HAND: Duration = Duration::from_millis(100);

/// How many bodies are read at once that are not wanted. Each holds a piece of some KiB at a time.
const DISCARDS: usize = 4096;

/// Bodies of all requests together: what bounds the process's memory when many large ones come at once. Slow ones have half
/// of it at most: a few clients that send large ones all but the last byte would keep everybody out otherwise, for as long as
/// a body may take.
#[derive(Debug, Clone)]
pub(super) struct BodyRoom {
    room: Arc<Semaphore>,
    slow: Arc<Semaphore>,
    discards: Arc<Semaphore>,
}

/// A body with the room it takes up.
pub(super) struct Collected {
    pub(super) bytes: Bytes,
    /// Held while the request is worked on.
    pub(super) room: Option<OwnedSemaphorePermit>,
}

/// Why a body was not read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum BodyError {
    /// It is larger than one body may be.
    TooLarge,
    /// It did not come in time.
    TooSlow,
    /// There is no room for it now.
    NoRoom {
        /// Whether what is still to come of it is read and thrown away.
        taken: bool,
    },
    /// The client went away, or broke the rules of HTTP.
    Broken,
}

impl BodyRoom {
    /// Room for bodies of this many bytes together.
    pub(super) fn new(bytes: usize) -> Self {
        let units = bytes / UNIT;
        let [room, slow, discards] =
            [units, units.div_ceil(2), DISCARDS].map(|size| Arc::new(Semaphore::new(size)));
        Self { room, slow, discards }
    }

    /// Reads a body and keeps nothing of it; false if it is too large for that, or there are too many. What is not there yet
    /// is read in the background: a task of its own for each would cost more than all the rest of a refusal.
    pub(super) async fn discard(&self, body: Body) -> bool {
        self.discard_up_to(DISCARDED_BYTES, body).await
    }

    async fn discard_up_to(&self, most: u64, mut body: Body) -> bool {
        let Ok(place) = Arc::clone(&self.discards).try_acquire_owned() else { return false };
        if body.size_hint().lower() > most {
            return false;
        }
        let mut discarding = Box::pin(async move {
            let mut length = 0;
            while let Some(Ok(frame)) = body.frame().await {
                length += frame.data_ref().map_or(0, |data| data.len() as u64);
                if length > most {
                    break;
                }
            }
            drop(place);
        });
        if tokio::time::timeout(DISCARD_AT_HAND, &mut discarding).await.is_err() {
            tokio::spawn(async move {
                // One that does not come in time is cut off.
                tokio::time::timeout(DISCARD_TIME, discarding).await.ok();
            });
        }
        true
    }

    /// Reads a body of at most `maximum` bytes. Calls `slow` once if it is slow.
    pub(super) async fn collect(
        &self,
        mut body: Body,
        maximum: usize,
        slow: impl FnOnce(),
    ) -> Result<Collected, BodyError> {
        // What says at once that it is too large need not be read.
        if body.size_hint().lower() > maximum as u64 {
            return Err(BodyError::TooLarge);
        }
        let announced = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
        let mut so_far = SoFar { announced, ..SoFar::default() };
        let quickly = within(AT_HAND, pin!(self.read(&mut body, &mut so_far, maximum))).await;
        let read = match quickly {
            Ok(read) => read,
            Err(_elapsed) => {
                slow();
                Box::pin(self.read_slowly(&mut body, &mut so_far, maximum)).await
            }
        };
        match read {
            Ok(()) => Ok(so_far.collected()),
            // Its client is in the middle of sending it, however large it is.
            Err(BodyError::NoRoom { .. }) => {
                drop(so_far);
                Err(BodyError::NoRoom { taken: Box::pin(self.discard_up_to(maximum as u64, body)).await })
            }
            Err(error) => Err(error),
        }
    }

    async fn read_slowly(
        &self,
        body: &mut Body,
        so_far: &mut SoFar,
        maximum: usize,
    ) -> Result<(), BodyError> {
        let held = so_far.room.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        so_far.slow = Some(set_aside(&self.slow, held)?);
        let read = tokio::time::timeout(BODY_TIME.saturating_sub(AT_HAND), self.read(body, so_far, maximum));
        read.await.unwrap_or(Err(BodyError::TooSlow))
    }

    /// Reads on to the end. Nothing is lost if this is dropped and called again.
    async fn read(&self, body: &mut Body, so_far: &mut SoFar, maximum: usize) -> Result<(), BodyError> {
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame.map_err(|_error| BodyError::Broken)?.into_data() else { continue };
            let before = so_far.length;
            so_far.length += data.len();
            if so_far.length > maximum {
                return Err(BodyError::TooLarge);
            }
            // The buffer doubles. Of a large one all counts that it has, not only what is filled: that would be half of it.
            let capacity = match so_far.all.capacity() {
                enough if so_far.length <= enough.max(RESERVED) => enough,
                full => so_far.length.max(2 * full),
            };
            // More than the maximum is never filled. (A slow one must find its maximum in the half of slow ones.)
            let counts = if so_far.length > RESERVED { capacity.min(maximum) } else { so_far.length };
            self.make_room(so_far, counts)?;
            so_far.take(data, before == 0, capacity);
        }
        Ok(())
    }

    fn make_room(&self, so_far: &mut SoFar, bytes: usize) -> Result<(), BodyError> {
        let held = so_far.room.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        let more = bytes.div_ceil(UNIT).saturating_sub(held);
        if more == 0 {
            return Ok(());
        }
        if let Some(slow) = &mut so_far.slow {
            slow.merge(set_aside(&self.slow, more)?);
        }
        let more = set_aside(&self.room, more)?;
        match &mut so_far.room {
            Some(held) => held.merge(more),
            None => so_far.room = Some(more),
        }
        Ok(())
    }
}

fn set_aside(room: &Arc<Semaphore>, units: usize) -> Result<OwnedSemaphorePermit, BodyError> {
    let units = u32::try_from(units).map_err(|_beyond| BodyError::NoRoom { taken: false })?;
    Arc::clone(room).try_acquire_many_owned(units).map_err(|_full| BodyError::NoRoom { taken: false })
}

/// What has come of a body.
#[derive(Default)]
struct SoFar {
    /// How many bytes it said at first that it has.
    announced: usize,
    length: usize,
    first: Bytes,
    all: BytesMut,
    room: Option<OwnedSemaphorePermit>,
    /// The same of the room of slow ones, if it is one.
    slow: Option<OwnedSemaphorePermit>,
}

impl SoFar {
    /// Most bodies come in one piece, which is then not copied. Of one that comes in several each is let go at once: the
    /// connection reads the next one into the same memory then.
    fn take(&mut self, data: Bytes, is_first: bool, capacity: usize) {
        if is_first && data.len() >= self.announced {
            self.first = data;
            return;
        }
        if self.all.is_empty() {
            self.all.reserve(self.announced.min(RESERVED));
            self.all.extend_from_slice(&mem::take(&mut self.first));
        }
        self.all.reserve(capacity.saturating_sub(self.all.len()));
        self.all.extend_from_slice(&data);
    }

    fn collected(self) -> Collected {
        let bytes = if self.all.is_empty() { self.first } else { self.all.freeze() };
        Collected { bytes, room: self.room }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn collect(room: &BodyRoom, body: impl Into<Body>, maximum: usize) -> Result<Bytes, BodyError> {
        room.collect(body.into(), maximum, || {}).await.map(|collected| collected.bytes)
    }

    #[tokio::test]
    async fn a_body_is_read_up_to_its_limit() {
        let room = BodyRoom::new(1 << 20);
        assert_eq!(collect(&room, "12345", 5).await, Ok(Bytes::from("12345")));
        assert_eq!(collect(&room, "123456", 5).await, Err(BodyError::TooLarge));
        let in_pieces = || {
            let pieces = ["123", "456"].map(|piece| Ok::<_, std::io::Error>(Bytes::from(piece)));
            Body::from_stream(futures_util::stream::iter(pieces))
        };
        assert_eq!(collect(&room, in_pieces(), 6).await, Ok(Bytes::from("123456")));
        assert_eq!(collect(&room, in_pieces(), 5).await, Err(BodyError::TooLarge));
    }

    #[tokio::test]
    async fn bodies_together_have_a_limit_and_give_their_room_back() {
        let room = BodyRoom::new(2 * UNIT);
        let large = vec![b'x'; 2 * UNIT];
        let held = room.collect(Body::from(large.clone()), large.len(), || {}).await.ok().unwrap();
        assert_eq!(collect(&room, "x", 10).await, Err(BodyError::NoRoom { taken: true }));
        drop(held);
        assert_eq!(collect(&room, "x", 10).await, Ok(Bytes::from("x")));
    }

    /// A body whose pieces come as they are sent.
    fn pieces() -> (tokio::sync::mpsc::Sender<Result<Bytes, std::io::Error>>, Body) {
        let (sender, pieces) = tokio::sync::mpsc::channel(1);
        let body =
            futures_util::stream::unfold(pieces, async |mut pieces: tokio::sync::mpsc::Receiver<_>| {
                pieces.recv().await.map(|piece| (piece, pieces))
            });
        (sender, Body::from_stream(body))
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_body_of_the_maximum_has_room_in_the_half_of_slow_ones() {
        // What the smallest room for it is, and beyond the last power of two.
        let maximum = 5 * RESERVED;
        let room = BodyRoom::new(2 * maximum);
        let (sender, body) = pieces();
        let sending = async {
            for _ in 0..5 {
                tokio::time::sleep(AT_HAND).await;
                sender.send(Ok(Bytes::from(vec![b'x'; RESERVED]))).await.unwrap();
            }
            drop(sender);
        };
        let (collected, ()) = tokio::join!(room.collect(body, maximum, || {}), sending);
        assert_eq!(collected.map(|collected| collected.bytes.len()).ok(), Some(maximum));
    }

    #[tokio::test(start_paused = true)]
    async fn slow_bodies_have_half_of_the_room_and_quick_ones_all_that_is_left() {
        let room = BodyRoom::new(4 * UNIT);
        let piece = || Ok(Bytes::from(vec![b'x'; UNIT]));
        let (sender, body) = pieces();
        let (turned, mut is_slow) = tokio::sync::oneshot::channel();
        let slow = room.collect(body, 4 * UNIT, || turned.send(()).unwrap());
        let others = async {
            sender.send(piece()).await.unwrap();
            tokio::time::sleep(AT_HAND / 2).await;
            assert!(is_slow.try_recv().is_err(), "not before its time");
            (&mut is_slow).await.unwrap();
            // A second slow one of as much finds the other half of what they have; a third finds nothing.
            let (second, body) = pieces();
            let mut two = pin!(room.collect(body, 4 * UNIT, || {}));
            second.send(piece()).await.unwrap();
            assert!(tokio::time::timeout(2 * AT_HAND, &mut two).await.is_err());
            let (third, body) = pieces();
            third.send(piece()).await.unwrap();
            let third_refused = room.collect(body, 4 * UNIT, || drop(third)).await;
            assert_eq!(third_refused.err(), Some(BodyError::NoRoom { taken: true }));
            // What comes quickly has the rest, and no more.
            assert!(collect(&room, vec![b'x'; 2 * UNIT], 4 * UNIT).await.is_ok());
            assert_eq!(
                collect(&room, vec![b'x'; 2 * UNIT + 1], 4 * UNIT).await,
                Err(BodyError::NoRoom { taken: true })
            );
            // The second gives its room to the first.
            drop(second);
            assert!(two.await.is_ok());
            sender.send(piece()).await.unwrap();
            drop(sender);
        };
        let (collected, ()) = tokio::join!(slow, others);
        assert_eq!(collected.ok().map(|collected| collected.bytes.len()), Some(2 * UNIT));
        assert!(collect(&room, vec![b'x'; 4 * UNIT], 4 * UNIT).await.is_ok(), "all is given back");
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_does_not_come_is_given_up_and_so_is_one_that_is_not_wanted() {
        let room = BodyRoom::new(1 << 20);
        let (_open, silent) = pieces();
        let began = tokio::time::Instant::now();
        assert_eq!(collect(&room, silent, 10).await, Err(BodyError::TooSlow));
        assert_eq!(began.elapsed(), BODY_TIME);
        // Its sender is told at once, and the rest is awaited for a while behind its back.
        let (open, silent) = pieces();
        let began = tokio::time::Instant::now();
        assert!(room.discard(silent).await);
        assert_eq!(began.elapsed(), DISCARD_AT_HAND);
        assert!(!open.is_closed());
        open.closed().await;
        assert_eq!(began.elapsed(), DISCARD_AT_HAND + DISCARD_TIME);
        // One that is there is gone at once, and one that is too large is not read.
        let began = tokio::time::Instant::now();
        assert!(room.discard(Body::from("x")).await);
        assert!(!room.discard(Body::from(vec![b'x'; 2 << 20])).await);
        assert_eq!(began.elapsed(), Duration::ZERO);
    }
}
