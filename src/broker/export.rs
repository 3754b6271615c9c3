//! Everything, for an administrator: each task at a revision that it had during the export.
//!
//! An export holds the ids of one part of the tasks and one task with its payloads at a time, whatever their number. It
//! reads as any other reader does: the writer does not wait for it.

use std::sync::Arc;

use task_broker_core::access::may_export;
use task_broker_core::{Caller, Rejection, Task, TaskId, Timestamp};
use tokio::sync::OwnedSemaphorePermit;

use super::seats::{NoSeat, Seat};
use super::{Broker, Refusal, Snapshot};
use crate::store::Reading;

/// When to try again while another export is under way, in milliseconds.
const ONE_AT_A_TIME_MS: u64 = 5000;

/// One export under way.
#[derive(Debug)]
pub struct Export {
    broker: Arc<Broker>,
    part: usize,
    ids: std::vec::IntoIter<TaskId>,
    _seat: Seat,
    _only: OwnedSemaphorePermit,
}

impl Broker {
    /// Begins an export. There is one at a time, because each holds a whole task in memory; it counts as a stream.
    ///
    /// # Errors
    /// [`Refusal::Rejected`] without the right to it; [`Refusal::Busy`] and [`Refusal::TooMany`].
    pub fn export(self: &Arc<Self>, caller: &Caller) -> Result<Export, Refusal> {
        may_export(caller)?;
        let only = Arc::clone(&self.exporting).try_acquire_owned();
        let only = only.map_err(|_taken| Refusal::Busy { retry_after_ms: ONE_AT_A_TIME_MS })?;
        let seat = self.streams.take(&caller.subject).map_err(|no_seat| match no_seat {
            NoSeat::Full => Refusal::Busy { retry_after_ms: 1000 },
            NoSeat::SubjectFull => Refusal::TooMany,
        })?;
        let ids = Vec::new().into_iter();
        Ok(Export { broker: Arc::clone(self), part: 0, ids, _seat: seat, _only: only })
    }
}

impl Export {
    /// The next task with all its payloads; nothing when that were all. What expires or goes in the meantime is left out.
    ///
    /// # Errors
    /// Those of the store, and [`Refusal::Unavailable`] when the broker is about to end: the export is not complete then.
    pub async fn next(&mut self) -> Result<Option<Snapshot>, Refusal> {
        let everything = |task: &Task, now: Timestamp| {
            if task.is_expired(now) {
                Err(Rejection::Expired)
            } else {
                Ok(task.payloads().copied().collect())
            }
        };
        loop {
            if self.broker.draining.is_cancelled() {
                return Err(Refusal::Unavailable { retry_after_ms: ONE_AT_A_TIME_MS });
            }
            let Some(id) = self.ids.next() else {
                let Some(ids) = self.broker.store.part(self.part).await? else { return Ok(None) };
                self.part += 1;
                self.ids = ids.into_iter();
                continue;
            };
            match self.broker.store.read(id, &everything).await? {
                None | Some(Err(_)) => {}
                Some(Ok(Reading { task, payloads, now })) => {
                    return Ok(Some(Snapshot { task, payloads, now }));
                }
            }
        }
    }
}
