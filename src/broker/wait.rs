//! Long polls: register, read, wait, read again.

use std::time::Duration;

use task_broker_core::{Caller, Right, Task, TaskId, Timestamp, may_see};
use tokio::time::{Instant, sleep_until};

use super::seats::NoSeat;
use super::{Broker, Refusal, Snapshot, View};
use crate::store::Reading;

/// How long a wait trusts that no hint was lost.
const RECHECK: Duration = Duration::from_secs(5);

/// What is waited for.
#[derive(Clone, Copy, Debug)]
pub struct Wait {
    /// The task.
    pub id: TaskId,
    /// How long at most.
    pub timeout: Duration,
    /// A newer revision ends the wait; without one only the end of the task does.
    pub since_revision: Option<u64>,
}

/// What a wait answers.
#[derive(Debug)]
pub struct Waited {
    /// The task now.
    pub snapshot: Snapshot,
    /// The time ran out before anything happened.
    pub timed_out: bool,
}

impl Wait {
    fn is_over(&self, task: &Task) -> bool {
        task.status().is_terminal() || self.since_revision.is_some_and(|since| task.revision > since)
    }
}

impl Broker {
    /// Waits for the end of a task, or for a newer revision.
    ///
    /// # Errors
    /// [`Refusal::NotFound`] when there is no such task, also from the moment at which it expires;
    /// [`Refusal::TooMany`] and [`Refusal::Busy`] when too many wait already.
    pub async fn wait(&self, caller: &Caller, right: Right, wait: Wait) -> Result<Waited, Refusal> {
        let _seat = self.waits.take(&caller.subject).map_err(|no_seat| match no_seat {
            NoSeat::Full => Refusal::Busy { retry_after_ms: 1000 },
            NoSeat::SubjectFull => Refusal::TooMany,
        })?;
        // None: later than any clock can show.
        let deadline = Instant::now().checked_add(wait.timeout);
        let registration = self.hub.on_task(wait.id);
        loop {
            // Enabled before the read: what happens from here on rings.
            let mut bell = std::pin::pin!(registration.bell().notified());
            bell.as_mut().enable();
            let now = Instant::now();
            let time_is_up = deadline.is_some_and(|deadline| now >= deadline) || self.draining.is_cancelled();
            let (snapshot, over) = self.look(caller, right, &wait, time_is_up).await?;
            if over || time_is_up {
                return Ok(Waited { snapshot, timed_out: !over });
            }
            let left = Duration::from_millis(snapshot.task.remaining_ms(snapshot.now));
            // Its expiry is part of what is waited for; a changed TTL rings and is looked at again.
            let next = Instant::now() + left.min(RECHECK);
            let next = deadline.map_or(next, |deadline| next.min(deadline));
            tokio::select! {
                () = &mut bell => {}
                () = sleep_until(next) => {}
                () = self.draining.cancelled() => {}
            }
        }
    }

    /// Reads the task; its payloads only if the wait ends with this read.
    async fn look(
        &self,
        caller: &Caller,
        right: Right,
        wait: &Wait,
        last: bool,
    ) -> Result<(Snapshot, bool), Refusal> {
        let select = |task: &Task, now: Timestamp| {
            may_see(task, caller, right, now)?;
            Ok(if last || wait.is_over(task) { View::Snapshot.payloads(task) } else { Vec::new() })
        };
        match self.store.read(wait.id, &select).await? {
            None => Err(Refusal::NotFound),
            Some(Err(rejection)) => Err(rejection.into()),
            Some(Ok(Reading { task, payloads, now })) => {
                let over = wait.is_over(&task);
                Ok((Snapshot { task, payloads, now }, over))
            }
        }
    }
}
