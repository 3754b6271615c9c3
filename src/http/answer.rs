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

/// Room for the large answers of all requests together.
#[derive(Debug, Clone)]
pub(super) struct AnswerRoom(Arc<Semaphore>);

/// There is no room for a large answer now.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NoRoom;

impl AnswerRoom {
    /// Room for this many bytes together.
    pub(super) fn new(bytes: usize) -> Self {
        Self(Arc::new(Semaphore::new(bytes / PIECE)))
    }

    /// The answer as a body that gives its room, and `held`, back when it was handed over or given up. With
    /// `changes` it tells of a change and is never refused.
    pub(super) async fn body<H: Send + Unpin + 'static>(
        &self,
        answer: Vec<u8>,
        changes: bool,
        held: H,
    ) -> Result<Body, NoRoom> {
        let pieces = u32::try_from(answer.len() / PIECE).unwrap_or(u32::MAX);
        let room = if pieces == 0 { None } else { Box::pin(self.take(pieces, changes)).await? };
        Ok(Body::new(Pieces { rest: Bytes::from(answer), _room: room, _held: held }))
    }

    async fn take(&self, pieces: u32, changes: bool) -> Result<Option<OwnedSemaphorePermit>, NoRoom> {
        let semaphore = Arc::clone(&self.0);
        if changes {
            let taken = tokio::time::timeout(PATIENCE, semaphore.acquire_many_owned(pieces)).await;
            return Ok(taken.ok().and_then(Result::ok));
        }
        semaphore.try_acquire_many_owned(pieces).map(Some).map_err(|_full| NoRoom)
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

    #[tokio::test]
    async fn an_answer_arrives_whole_and_in_pieces() {
        let room = AnswerRoom::new(1 << 20);
        let answer: Vec<u8> = (0..=255).cycle().take(3 * PIECE + 7).collect();
        let mut body = room.body(answer.clone(), false, ()).await.unwrap();
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
        let unread = room.body(vec![b'x'; 2 * PIECE], false, ()).await.unwrap();
        assert_eq!(room.body(vec![b'x'; PIECE], false, ()).await.unwrap_err(), NoRoom);
        assert!(room.body(vec![b'x'; PIECE - 1], false, ()).await.is_ok(), "small answers need no room");
        assert!(room.body(vec![b'x'; PIECE], true, ()).await.is_ok(), "a change is told in the end");
        drop(unread);
        assert!(room.body(vec![b'x'; PIECE], false, ()).await.is_ok());
    }
}
