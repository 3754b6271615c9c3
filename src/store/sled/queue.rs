//! The bounded queue in front of the writer.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

use crate::store::{Inserted, Insertion, StoreError, Swept, Update, Updated};

/// How many commands may wait.
const COMMANDS: usize = 4096;

/// How many payload bytes may wait, in units of [`UNIT`].
const UNITS: usize = 64 * 1024;
/// Bytes in one permit; 64 MiB in all.
const UNIT: u64 = 1024;

/// How long a command waits for a place before its caller is told to come back.
const PATIENCE: Duration = Duration::from_secs(5);

/// What a refused caller is told to wait, in milliseconds.
const RETRY_AFTER_MS: u64 = 1000;

/// Where an answer goes.
pub(super) type Reply<T> = oneshot::Sender<Result<T, StoreError>>;

/// What the writer is asked to do.
#[derive(Debug)]
pub(super) enum Job {
    /// See [`crate::store::Store::insert`].
    Insert(Insertion, Reply<Inserted>),
    /// See [`crate::store::Store::update`].
    Update(Update, Reply<Updated>),
    /// See [`crate::store::Store::sweep`].
    Sweep(usize, Reply<Swept>),
    /// Make the present time durable.
    Mark(Reply<()>),
    /// Let sled follow the journal up to now, and answer when it has.
    #[cfg(test)]
    Follow(oneshot::Sender<()>),
    /// Finish and end.
    Close(oneshot::Sender<()>),
}

/// A job with the room that it takes up until it is answered.
#[derive(Debug)]
pub(super) struct Queued {
    pub(super) job: Job,
    pub(super) bytes: u64,
    _room: OwnedSemaphorePermit,
}

/// The sending side.
#[derive(Debug, Clone)]
pub(super) struct Queue {
    jobs: mpsc::Sender<Queued>,
    room: Arc<Semaphore>,
}

impl Queue {
    /// A queue and its receiving side.
    pub(super) fn new() -> (Self, mpsc::Receiver<Queued>) {
        let (jobs, receiver) = mpsc::channel(COMMANDS);
        (Self { jobs, room: Arc::new(Semaphore::new(UNITS)) }, receiver)
    }

    /// How many commands wait, and how many bytes they and those that are being worked on carry.
    pub(super) fn depth(&self) -> (u64, u64) {
        let wide = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
        let commands = self.jobs.max_capacity().saturating_sub(self.jobs.capacity());
        let units = UNITS.saturating_sub(self.room.available_permits());
        (wide(commands), wide(units).saturating_mul(UNIT))
    }

    /// Hands over a job and waits for its answer. Once a job is queued, it is carried out whether or not anybody
    /// still waits.
    pub(super) async fn ask<T>(
        &self,
        bytes: u64,
        job: impl FnOnce(Reply<T>) -> Job,
    ) -> Result<T, StoreError> {
        let (reply, answer) = oneshot::channel();
        self.put(job(reply), bytes).await?;
        // A reply that is dropped unanswered: the writer has died with the job in its hands.
        answer.await.unwrap_or(Err(StoreError::OutcomeUnknown))
    }

    /// Hands over a job.
    pub(super) async fn put(&self, job: Job, bytes: u64) -> Result<(), StoreError> {
        let units = bytes.div_ceil(UNIT).clamp(1, UNITS as u64);
        let units = u32::try_from(units).unwrap_or(u32::MAX);
        let room = Arc::clone(&self.room);
        // Mostly there is room for both, and no timer is needed.
        let (job, room) = match (Arc::clone(&room).try_acquire_many_owned(units), self.jobs.try_reserve()) {
            (Ok(room), Ok(place)) => {
                place.send(Queued { job, bytes, _room: room });
                return Ok(());
            }
            (taken, _) => (job, taken.ok()),
        };
        let queue = async {
            let room = if let Some(room) = room {
                room
            } else {
                let taken = Arc::clone(&self.room).acquire_many_owned(units).await;
                taken.map_err(|_closed| StoreError::Broken)?
            };
            let queued = Queued { job, bytes, _room: room };
            self.jobs.send(queued).await.map_err(|_closed| StoreError::Broken)
        };
        let late = |_elapsed| StoreError::Unavailable { retry_after_ms: RETRY_AFTER_MS };
        Box::pin(tokio::time::timeout(PATIENCE, queue)).await.map_err(late)?
    }
}
