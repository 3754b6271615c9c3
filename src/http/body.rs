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

/// Bodies of all requests together: what bounds the process's memory when many large ones come at once.
#[derive(Debug, Clone)]
pub(super) struct BodyRoom {
    room: Arc<Semaphore>,
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
        Self { room: Arc::new(Semaphore::new(bytes / UNIT)), discards: Arc::new(Semaphore::new(DISCARDS)) }
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

    /// Reads a body of at most `maximum` bytes.
    pub(super) async fn collect(&self, mut body: Body, maximum: usize) -> Result<Collected, BodyError> {
        // What says at once that it is too large need not be read.
        if body.size_hint().lower() > maximum as u64 {
            return Err(BodyError::TooLarge);
        }
        let read = within(BODY_TIME, pin!(self.read(&mut body, maximum))).await;
        match read.unwrap_or(Err(BodyError::TooSlow)) {
            // Its client is in the middle of sending it, however large it is.
            Err(BodyError::NoRoom { .. }) => {
                Err(BodyError::NoRoom { taken: Box::pin(self.discard_up_to(maximum as u64, body)).await })
            }
            read => read,
        }
    }

    async fn read(&self, body: &mut Body, maximum: usize) -> Result<Collected, BodyError> {
        let announced = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
        let mut room = None;
        let mut first = Bytes::new();
        let mut all = BytesMut::new();
        let (mut length, mut held) = (0, 0);
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame.map_err(|_error| BodyError::Broken)?.into_data() else { continue };
            let before = length;
            length += data.len();
            if length > maximum {
                return Err(BodyError::TooLarge);
            }
            // The buffer doubles. Of a large one all counts that it has, not only what is filled: that would be half of it.
            let capacity = match all.capacity() {
                enough if length <= enough.max(RESERVED) => enough,
                full => length.max(2 * full),
            };
            let holds = if length > RESERVED { capacity } else { length };
            self.set_aside(&mut room, held, holds)?;
            held = holds;
            // Most bodies come in one piece, which is then not copied. Of one that comes in several each is let go at
            // once: the connection reads the next one into the same memory then.
            if before == 0 && data.len() >= announced {
                first = data;
                continue;
            }
            if all.is_empty() {
                all.reserve(announced.min(RESERVED));
                all.extend_from_slice(&mem::take(&mut first));
            }
            all.reserve(capacity.saturating_sub(all.len()));
            all.extend_from_slice(&data);
        }
        let bytes = if all.is_empty() { first } else { all.freeze() };
        Ok(Collected { bytes, room })
    }

    fn set_aside(
        &self,
        room: &mut Option<OwnedSemaphorePermit>,
        before: usize,
        after: usize,
    ) -> Result<(), BodyError> {
        let units = after.div_ceil(UNIT) - before.div_ceil(UNIT);
        let Some(units) = u32::try_from(units).ok().filter(|units| *units > 0) else { return Ok(()) };
        let more = Arc::clone(&self.room)
            .try_acquire_many_owned(units)
            .map_err(|_full| BodyError::NoRoom { taken: false })?;
        match room {
            Some(held) => held.merge(more),
            None => *room = Some(more),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn collect(room: &BodyRoom, body: impl Into<Body>, maximum: usize) -> Result<Bytes, BodyError> {
        room.collect(body.into(), maximum).await.map(|collected| collected.bytes)
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
        let held = room.collect(Body::from(large.clone()), large.len()).await.ok().unwrap();
        assert_eq!(collect(&room, "x", 10).await, Err(BodyError::NoRoom { taken: true }));
        drop(held);
        assert_eq!(collect(&room, "x", 10).await, Ok(Bytes::from("x")));
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_does_not_come_is_given_up_and_so_is_one_that_is_not_wanted() {
        let room = BodyRoom::new(1 << 20);
        let (_open, pieces) = tokio::sync::mpsc::channel::<Result<Bytes, std::io::Error>>(1);
        let silent = |pieces: tokio::sync::mpsc::Receiver<_>| {
            Body::from_stream(futures_util::stream::unfold(pieces, async |mut pieces| {
                pieces.recv().await.map(|piece| (piece, pieces))
            }))
        };
        let began = tokio::time::Instant::now();
        assert_eq!(collect(&room, silent(pieces), 10).await, Err(BodyError::TooSlow));
        assert_eq!(began.elapsed(), BODY_TIME);
        // Its sender is told at once, and the rest is awaited for a while behind its back.
        let (open, pieces) = tokio::sync::mpsc::channel::<Result<Bytes, std::io::Error>>(1);
        let began = tokio::time::Instant::now();
        assert!(room.discard(silent(pieces)).await);
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
