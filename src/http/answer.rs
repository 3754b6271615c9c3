//! Sending an answer within a bound: what clients do not read must not fill the memory.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, HttpBody};
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Answers of at most this many bytes need no room; larger ones are handed over in pieces of this size, so that the
/// connection holds one of them and not the whole.
const PIECE: usize = 64 * 1024;

/// How long the answer to a change waits for room. The change was made, so it is sent then whatever the room.
const PATIENCE: Duration = Duration::from_secs(10);

/// What a call is answered with.
#[derive(Debug)]
pub(super) struct Answer {
    /// The whole text; nothing for a notification.
    pub(super) text: Vec<u8>,
    /// It tells of a change that this call has made, so it is sent even where there is no room. What only reads, or
    /// repeats what an earlier call was told, can be asked for again.
    pub(super) changed: bool,
}

/// Room for the large answers of all requests together.
#[derive(Debug, Clone)]
pub(super) struct AnswerRoom(Arc<Semaphore>);

/// What a large answer has of it.
pub(super) type Room = Option<OwnedSemaphorePermit>;

/// There is no room for a large answer now.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NoRoom;

impl AnswerRoom {
    /// Room for this many bytes together.
    pub(super) fn new(bytes: usize) -> Self {
        Self(Arc::new(Semaphore::new(bytes / PIECE)))
    }

    /// The answer as a body that gives its room, what of it is in `room` already, and `held` back when it was handed over or
    /// given up.
    pub(super) async fn body<H: Send + Unpin + 'static>(
        &self,
        answer: Answer,
        mut room: Room,
        held: H,
    ) -> Result<Body, NoRoom> {
        let full = self.make_room(&mut room, answer.text.len()).is_err();
        if full && !answer.changed {
            return Err(NoRoom);
        }
        if full {
            Box::pin(self.wait_for_room(&mut room, answer.text.len())).await;
        }
        Ok(Body::new(Pieces { rest: Bytes::from(answer.text), _room: room, _held: held }))
    }

    /// Takes what an answer of this many bytes needs beside what it has, if there is as much.
    pub(super) fn make_room(&self, room: &mut Room, bytes: usize) -> Result<(), NoRoom> {
        let more = missing(room, bytes);
        if more > 0 {
            let taken = Arc::clone(&self.0).try_acquire_many_owned(more).map_err(|_full| NoRoom)?;
            put(room, taken);
        }
        Ok(())
    }

    /// The same for an answer that is sent in any case, after a while.
    async fn wait_for_room(&self, room: &mut Room, bytes: usize) {
        let taken = Arc::clone(&self.0).acquire_many_owned(missing(room, bytes));
        if let Ok(Ok(taken)) = tokio::time::timeout(PATIENCE, taken).await {
            put(room, taken);
        }
    }
}

/// How many pieces an answer of this many bytes needs beside those that it has.
fn missing(room: &Room, bytes: usize) -> u32 {
    let has = room.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
    u32::try_from((bytes / PIECE).saturating_sub(has)).unwrap_or(u32::MAX)
}

fn put(room: &mut Room, more: OwnedSemaphorePermit) {
    match room {
        Some(room) => room.merge(more),
        None => *room = Some(more),
    }
}

struct Pieces<H> {
    rest: Bytes,
    _room: Option<OwnedSemaphorePermit>,
    _held: H,
}

impl<H: Unpin> HttpBody for Pieces<H> {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.rest.is_empty() {
            return Poll::Ready(None);
        }
        let length = self.rest.len().min(PIECE);
        let piece = self.rest.split_to(length);
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.rest.len() as u64)
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    fn read(text: Vec<u8>) -> Answer {
        Answer { text, changed: false }
    }

    #[tokio::test]
    async fn an_answer_arrives_whole_and_in_pieces() {
        let room = AnswerRoom::new(1 << 20);
        let answer: Vec<u8> = (0..=255).cycle().take(3 * PIECE + 7).collect();
        let mut body = room.body(read(answer.clone()), None, ()).await.unwrap();
        let mut received = Vec::new();
        while let Some(frame) = body.frame().await {
            let piece = frame.unwrap().into_data().unwrap();
            assert!(piece.len() <= PIECE);
            received.extend_from_slice(&piece);
        }
        assert_eq!(received, answer);
    }

    #[tokio::test(start_paused = true)]
    async fn unread_answers_have_a_bound_that_a_change_does_not_wait_for_for_ever() {
        let room = AnswerRoom::new(2 * PIECE);
        let unread = room.body(read(vec![b'x'; 2 * PIECE]), None, ()).await.unwrap();
        assert_eq!(room.body(read(vec![b'x'; PIECE]), None, ()).await.unwrap_err(), NoRoom);
        let small = room.body(read(vec![b'x'; PIECE - 1]), None, ()).await;
        assert!(small.is_ok(), "small answers need no room");
        let told = Answer { text: vec![b'x'; PIECE], changed: true };
        assert!(room.body(told, None, ()).await.is_ok(), "a change is told in the end");
        drop(unread);
        assert!(room.body(read(vec![b'x'; PIECE]), None, ()).await.is_ok());
    }

    #[tokio::test]
    async fn an_answer_that_grows_takes_what_it_needs_more_and_gives_all_of_it_back() {
        let all = AnswerRoom::new(4 * PIECE);
        let mut room = None;
        all.make_room(&mut room, PIECE - 1).unwrap();
        assert!(room.is_none());
        all.make_room(&mut room, 2 * PIECE).unwrap();
        all.make_room(&mut room, 3 * PIECE).unwrap();
        assert_eq!(all.0.available_permits(), 1);
        assert_eq!(all.make_room(&mut room, 5 * PIECE), Err(NoRoom));
        assert_eq!(all.0.available_permits(), 1, "nothing was taken in vain");
        let body = all.body(read(vec![b'x'; 3 * PIECE + 1]), room, ()).await.unwrap();
        assert_eq!(all.0.available_permits(), 1);
        drop(body);
        assert_eq!(all.0.available_permits(), 4);
    }
}
