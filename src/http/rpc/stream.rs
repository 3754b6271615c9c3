//! `store/watch` as a stream of server-sent events.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderName, HeaderValue, Response};
use bytes::Bytes;
use futures_util::stream;
use task_broker_core::Timestamp;
use task_broker_protocol::Call;
use task_broker_protocol::methods::{Decode, watch};

use super::failure::Failure;
use super::views;
use crate::auth::Verified;
use crate::broker::{Watch, WatchMessage};
use crate::clock::Clock;
use crate::http::App;

/// Opens a stream. Its first bytes are there at once.
pub(super) fn open(
    app: &Arc<App>,
    verified: &Verified,
    call: &Call<'_>,
    body: &Bytes,
) -> Result<Response<Body>, Failure> {
    let params = watch::Params::decode(&call.params, body)?;
    let watch = app.broker.watch(verified.caller.subject.clone(), params.since)?;
    let open = Open { watch, clock: app.clock.clone(), valid_until: verified.valid_until, ended: false };
    let stream = stream::unfold(open, |mut open| async move {
        let bytes = open.next().await?;
        Some((Ok::<_, std::convert::Infallible>(bytes), open))
    });
    let mut response = Response::new(Body::from_stream(stream));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, no-transform"));
    headers.insert(HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));
    Ok(response)
}

struct Open {
    watch: Watch,
    clock: Clock,
    /// The stream ends with the token that opened it.
    valid_until: Option<Timestamp>,
    ended: bool,
}

impl Open {
    async fn next(&mut self) -> Option<Bytes> {
        if self.ended {
            return None;
        }
        let message = tokio::select! {
            message = self.watch.next() => message,
            () = token_end(&self.clock, self.valid_until) => None,
        };
        let written = message.as_ref().and_then(write);
        if written.is_none() {
            self.ended = true;
        }
        Some(written.unwrap_or_else(|| Bytes::from_static(b": the stream ends\n\n")))
    }
}

async fn token_end(clock: &Clock, valid_until: Option<Timestamp>) {
    match valid_until {
        Some(end) => {
            let left = Duration::from_millis(end.saturating_since(clock.now()));
            tokio::time::sleep(left).await;
        }
        None => std::future::pending().await,
    }
}

/// One message as server-sent event. Neither part can hold a line break: positions are made here, and the data
/// carries no payload.
fn write(message: &WatchMessage) -> Option<Bytes> {
    let (position, data) = match message {
        WatchMessage::Heartbeat => return Some(Bytes::from_static(b":\n\n")),
        WatchMessage::Synced { position, reset } => {
            let synced = watch::Synced { position: position.clone(), reset: *reset };
            (position, synced.to_notification())
        }
        WatchMessage::Event { change, now } => {
            let event = watch::Event {
                position: change.position.clone(),
                task_id: change.id.to_string(),
                kind: views::event_kind(change.event.kind),
                status: views::status(change.event.status),
                revision: change.event.revision,
                remaining_ms: change.event.expires_at.saturating_since(*now),
                cancel_requested: change.event.cancel_requested,
            };
            (&change.position, event.to_notification())
        }
    };
    let data = data.inspect_err(|error| tracing::error!(%error, "an event could not be written")).ok()?;
    let mut line = Vec::with_capacity(data.len() + position.len() + 16);
    line.extend_from_slice(b"id: ");
    line.extend_from_slice(position.as_bytes());
    line.extend_from_slice(b"\ndata: ");
    line.extend_from_slice(&data);
    line.extend_from_slice(b"\n\n");
    Some(Bytes::from(line))
}
