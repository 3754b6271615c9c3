//! Streams of events: at least once, in revision order for each task, or "read again what you hold".
//!
//! A stream holds no queue. It asks the store for what came after its position whenever its reader is ready for
//! more; a reader that is too slow finds that the store has forgotten, and is told so.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use task_broker_core::{Subject, Timestamp};
use tokio::time::{Instant, sleep, sleep_until};

use super::seats::{NoSeat, Seat};
use super::{Broker, Refusal};
use crate::store::Change;

/// How many events are fetched at once.
const BATCH: usize = 256;

/// How long a stream is silent at most; WIRE.md promises 15 s.
const HEARTBEAT: Duration = Duration::from_secs(10);

/// How long a stream trusts that no hint was lost.
const RECHECK: Duration = Duration::from_secs(5);

/// How long a stream waits before it asks a store again that refused.
const REFUSED: Duration = Duration::from_secs(1);

/// What a stream says.
#[derive(Debug)]
pub enum WatchMessage {
    /// Where the stream stands. With `reset` events may be missing before this point.
    Synced {
        /// Where to go on from after a break.
        position: String,
        /// Whether everything has to be read again.
        reset: bool,
    },
    /// Something happened.
    Event {
        /// What and to which task.
        change: Change,
        /// The store's time when it was fetched.
        now: Timestamp,
    },
    /// Nothing happened; the stream still lives.
    Heartbeat,
}

/// One open stream.
#[derive(Debug)]
pub struct Watch {
    broker: Arc<Broker>,
    creator: Subject,
    position: Option<String>,
    synced: bool,
    fetched: VecDeque<Change>,
    fetched_at: Timestamp,
    beat: Instant,
    _seat: Seat,
}

impl Broker {
    /// Opens a stream of the events of tasks that `creator` created, from `since` on.
    ///
    /// # Errors
    /// [`Refusal::TooMany`] and [`Refusal::Busy`] when too many are open already.
    pub fn watch(self: &Arc<Self>, creator: Subject, since: Option<String>) -> Result<Watch, Refusal> {
        let seat = self.streams.take(&creator).map_err(|no_seat| match no_seat {
            NoSeat::Full => Refusal::Busy { retry_after_ms: 1000 },
            NoSeat::SubjectFull => Refusal::TooMany,
        })?;
        Ok(Watch {
            broker: Arc::clone(self),
            creator,
            position: since,
            synced: false,
            fetched: VecDeque::new(),
            fetched_at: Timestamp::default(),
            beat: Instant::now(),
            _seat: seat,
        })
    }
}

impl Watch {
    /// The next message; nothing when the broker is about to end. Safe to drop while it waits: nothing is lost.
    pub async fn next(&mut self) -> Option<WatchMessage> {
        let broker = Arc::clone(&self.broker);
        let registration = broker.hub.on_creator(self.creator.clone());
        loop {
            if let Some(change) = self.fetched.pop_front() {
                self.position = Some(change.position.clone());
                return Some(self.say(WatchMessage::Event { change, now: self.fetched_at }));
            }
            if broker.draining.is_cancelled() {
                return None;
            }
            let mut bell = std::pin::pin!(registration.bell().notified());
            bell.as_mut().enable();
            let changes = match broker.store.changes(&self.creator, self.position.as_deref(), BATCH).await {
                Ok(changes) => changes,
                Err(error) => {
                    tracing::warn!(%error, "a stream could not be fed; trying again");
                    sleep(REFUSED).await;
                    if let Some(heartbeat) = self.heartbeat() {
                        return Some(heartbeat);
                    }
                    continue;
                }
            };
            if changes.reset || !self.synced {
                // Where the first message stands: before the events that were fetched with it.
                let position = match (&self.position, changes.reset) {
                    (Some(since), false) => since.clone(),
                    (None, _) | (_, true) => changes.position,
                };
                self.synced = true;
                self.position = Some(position.clone());
                return Some(self.say(WatchMessage::Synced { position, reset: changes.reset }));
            }
            if changes.events.is_empty() {
                self.position = Some(changes.position);
            } else {
                self.fetched_at = changes.now;
                self.fetched.extend(changes.events);
                continue;
            }
            if let Some(heartbeat) = self.heartbeat() {
                return Some(heartbeat);
            }
            let next = (self.beat + HEARTBEAT).min(Instant::now() + RECHECK);
            tokio::select! {
                () = &mut bell => {}
                () = sleep_until(next) => {}
                () = broker.draining.cancelled() => {}
            }
        }
    }

    fn say(&mut self, message: WatchMessage) -> WatchMessage {
        self.beat = Instant::now();
        message
    }

    fn heartbeat(&mut self) -> Option<WatchMessage> {
        (self.beat.elapsed() >= HEARTBEAT).then(|| self.say(WatchMessage::Heartbeat))
    }
}
