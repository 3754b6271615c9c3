//! `store/watch`: what happens to the caller's tasks, as a stream.

use std::fmt;
use std::future::{Future as _, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_core::Stream;
use hyper::body::{Body as _, Incoming};
use task_broker_protocol::methods::watch::{self, Message};
use tokio::time::{Instant, Sleep, sleep};

use crate::client::Client;
use crate::error::{Error, ProtocolError, TransportError};
use crate::sse::Decoder;

/// The broker is never silent for more than 15 s. After three times that the connection is taken for dead, although
/// nothing has told so.
const SILENCE: Duration = Duration::from_secs(45);

impl Client {
    /// `store/watch`: what happens to the caller's tasks from now on, or after the position `since`.
    ///
    /// One attempt and one connection: the stream ends when either side closes it, when the token ends, or after an
    /// error. Go on from [`Watch::position`] with another call. A [`Message::Synced`] comes first; with `reset` events
    /// may be missing, and what the caller holds has to be read again ([`Client::statuses`]).
    ///
    /// ```no_run
    /// # async fn example(client: task_broker_client::Client) -> Result<(), task_broker_client::Error> {
    /// use task_broker_client::methods::watch::Message;
    ///
    /// let mut watch = client.watch(None).await?;
    /// while let Some(message) = watch.next().await {
    ///     if let Message::Event(event) = message? {
    ///         println!("{} {:?} -> {}", event.task_id, event.kind, event.status);
    ///     }
    /// }
    /// let _go_on_from = watch.position();
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// See [`Error`]. Nothing is repeated: only the caller knows what to do in between.
    ///
    /// # Cancellation safety
    /// Safe: a stream that nobody holds is closed.
    pub async fn watch(&self, since: Option<String>) -> Result<Watch, Error> {
        let params = watch::Params { since: since.clone() };
        let answer = self.open::<watch::Watch>(&params).await?;
        Ok(Watch {
            body: answer.into_body(),
            decoder: Decoder::new(self.settings().max_message_bytes),
            maximum: self.settings().max_message_bytes,
            position: since,
            silence: Box::pin(sleep(SILENCE)),
            ended: false,
        })
    }
}

/// An open stream of [`Message`]s. After an error or the end it gives nothing more.
///
/// It holds one message at most, and what came with it in one piece; a reader that is slow makes the broker wait, and
/// then is told with `reset` that it has missed something.
pub struct Watch {
    body: Incoming,
    decoder: Decoder,
    maximum: usize,
    position: Option<String>,
    silence: Pin<Box<Sleep>>,
    ended: bool,
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch")
            .field("position", &self.position)
            .field("ended", &self.ended)
            .finish_non_exhaustive()
    }
}

impl Watch {
    /// The next message; `None` when the stream has ended.
    ///
    /// # Errors
    /// When the connection broke off, was silent for too long, or carried something that is no message.
    ///
    /// # Cancellation safety
    /// Safe: no message is lost.
    pub async fn next(&mut self) -> Option<Result<Message, Error>> {
        poll_fn(|context| self.poll_message(context)).await
    }

    /// Where the stream stands: the position of the last message that was handed out, to go on from after a break.
    #[must_use]
    pub fn position(&self) -> Option<&str> {
        self.position.as_deref()
    }

    fn poll_message(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Message, Error>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let message = ready!(self.poll_live(context));
        self.ended = !matches!(message, Some(Ok(_)));
        Poll::Ready(message)
    }

    fn poll_live(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Message, Error>>> {
        loop {
            if let Some(data) = self.decoder.next() {
                return Poll::Ready(Some(self.read(&data)));
            }
            match Pin::new(&mut self.body).poll_frame(context) {
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Ready(Some(Err(error))) => {
                    let error = Error::Transport(TransportError::new(true, &error));
                    return Poll::Ready(Some(Err(error)));
                }
                Poll::Ready(Some(Ok(frame))) => {
                    self.silence.as_mut().reset(Instant::now() + SILENCE);
                    let Ok(piece) = frame.into_data() else { continue };
                    if self.decoder.feed(&piece).is_err() {
                        let error = ProtocolError::TooLarge { maximum: self.maximum };
                        return Poll::Ready(Some(Err(Error::Protocol(error))));
                    }
                }
                Poll::Pending => {
                    ready!(self.silence.as_mut().poll(context));
                    return Poll::Ready(Some(Err(Error::Timeout { after: SILENCE })));
                }
            }
        }
    }

    fn read(&mut self, data: &[u8]) -> Result<Message, Error> {
        let message = Message::parse(data).map_err(|error| Error::Protocol(ProtocolError::Message(error)))?;
        match &message {
            Message::Event(event) => self.position = Some(event.position.clone()),
            Message::Synced(synced) => self.position = Some(synced.position.clone()),
            Message::Unknown => {}
        }
        Ok(message)
    }
}

impl Stream for Watch {
    type Item = Result<Message, Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.poll_message(context)
    }
}
