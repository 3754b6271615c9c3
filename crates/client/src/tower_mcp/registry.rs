//! Which tasks this process works on, and the token of each.
//!
//! A token is raised for three reasons, and for no other: somebody asked to cancel the task, the task's time is over,
//! or the broker says that there is no such task any more. That the broker cannot be reached is none of them.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ::tower_mcp::async_task::CancellationToken;
use task_broker_protocol::shapes::Status;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::knowledge::Knowledge;

/// Events about tasks that are not held, kept because the answer to their creation may still be on its way. It has to
/// cover the events of one round trip, not more.
const MAX_STRANGERS: usize = 4096;

/// A task is looked at after so long, however far away its end is.
const LONGEST_UNSEEN: Duration = Duration::from_hours(24);

/// What stands for the end of a task beyond what a clock can add up.
const FARTHEST: Duration = Duration::from_hours(24 * 365 * 10);

/// What the broker said about a task.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seen {
    /// `None` where the answer has no status.
    pub(crate) status: Option<Status>,
    pub(crate) revision: u64,
    pub(crate) remaining: Duration,
    pub(crate) cancel_requested: bool,
    /// How old the task is, where the answer tells.
    pub(crate) age: Option<Duration>,
    /// When it arrived.
    pub(crate) at: Instant,
}

impl Seen {
    pub(crate) fn now(
        status: Option<Status>,
        revision: u64,
        remaining_ms: u64,
        cancel_requested: bool,
    ) -> Self {
        let remaining = Duration::from_millis(remaining_ms);
        Self { status, revision, remaining, cancel_requested, age: None, at: Instant::now() }
    }
}

/// More tasks are held than allowed, and none of them has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Full {
    pub(crate) maximum: usize,
}

#[derive(Debug)]
pub(crate) struct Registry {
    maximum: usize,
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    held: HashMap<String, Held>,
    /// When to look at which task, in order.
    checks: BTreeSet<(Instant, String)>,
    /// The newest events about tasks that are not held; `None` when the task is gone.
    strangers: VecDeque<(String, Option<Seen>)>,
    /// Places taken by tasks whose ids are not known yet.
    expected: usize,
    /// How many times everything was read again.
    resyncs: u64,
}

#[derive(Debug)]
struct Held {
    token: CancellationToken,
    revision: u64,
    ended: bool,
    created: Option<Instant>,
    /// When the time is over, as far as is known.
    deadline: Instant,
    /// When to look next.
    check: Instant,
}

/// A task whose time seems to be over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Due {
    pub(crate) id: String,
    pub(crate) deadline: Instant,
}

/// A place for a task that is being created or taken up.
#[derive(Debug)]
pub(crate) struct Place<'a> {
    registry: &'a Registry,
    resyncs: u64,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut state = self.registry.lock();
        state.expected = state.expected.saturating_sub(1);
    }
}

impl Registry {
    pub(crate) fn new(maximum: usize) -> Self {
        Self { maximum, state: Mutex::default(), changed: Notify::new() }
    }

    /// Nothing in here panics while it holds the lock, and every change is whole; so a poisoned lock is as good.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a place before the broker is asked, so that a task is never created and then not held. `id` is known
    /// for one that is taken up again; when it is held already it needs no more room.
    pub(crate) fn place(&self, id: Option<&str>) -> Result<Place<'_>, Full> {
        let mut state = self.lock();
        let held = id.is_some_and(|id| state.held.contains_key(id));
        if !held && state.held.len().saturating_add(state.expected) >= self.maximum {
            state.forget_ended(self.maximum / 16 + 1);
        }
        if !held && state.held.len().saturating_add(state.expected) >= self.maximum {
            return Err(Full { maximum: self.maximum });
        }
        state.expected = state.expected.saturating_add(1);
        Ok(Place { registry: self, resyncs: state.resyncs })
    }

    /// Takes in what was said about a task; one that is not held is remembered for a moment.
    pub(crate) fn learn(&self, id: &str, seen: Seen) {
        let mut state = self.lock();
        if state.learn(id, seen) {
            self.changed.notify_one();
        }
    }

    /// As [`Registry::learn`] for an event: the task may be one whose id has not arrived yet.
    ///
    /// Makes what was read before void, unless the event tells nothing new, as that of one's own write does, which
    /// often comes right after the answer. `shown`: a read has shown its revision. Both is decided under the lock, so
    /// that what a write has told before its snapshot was kept cannot make that void afterwards.
    pub(crate) fn event(&self, id: &str, seen: Option<Seen>, shown: bool) {
        let mut state = self.lock();
        let known = match (state.held.get(id), seen) {
            (Some(held), Some(seen)) => held.revision >= seen.revision,
            _ => shown,
        };
        if !known {
            Knowledge::learnt(id);
        }
        if !state.held.contains_key(id) {
            if state.expected > 0 {
                if state.strangers.len() >= MAX_STRANGERS {
                    state.strangers.pop_front();
                }
                state.strangers.push_back((id.to_owned(), seen));
            } else {
                state.strangers.clear();
            }
            return;
        }
        match seen {
            Some(seen) => {
                if state.learn(id, seen) {
                    self.changed.notify_one();
                }
            }
            None => state.gone(id),
        }
    }

    /// The task is not there any more: its token is raised, and it is no longer held.
    pub(crate) fn gone(&self, id: &str) {
        self.lock().gone(id);
    }

    /// Somebody asked to cancel the task. It stays held: other work on it may still wind down.
    pub(crate) fn raise(&self, id: &str) {
        let state = self.lock();
        if let Some(held) = state.held.get(id) {
            held.token.cancel();
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.lock().held.len()
    }

    /// How old a task is, as far as is known.
    pub(crate) fn age(&self, id: &str) -> Option<Duration> {
        self.lock().held.get(id).and_then(|held| held.created).map(|created| created.elapsed())
    }

    /// A command has told the status, and nothing about the time.
    pub(crate) fn status(&self, id: &str, revision: u64, status: Status) {
        if let Some(held) = self.lock().held.get_mut(id).filter(|held| held.revision <= revision) {
            held.revision = revision;
            held.ended = status.is_terminal();
        }
    }

    /// All tasks that are held, and a mark that what is read about them from now on is newer.
    pub(crate) fn begin_resync(&self) -> Vec<String> {
        let mut state = self.lock();
        state.resyncs = state.resyncs.wrapping_add(1);
        state.held.keys().cloned().collect()
    }

    /// Waits until the first check may have moved.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    pub(crate) fn next_check(&self) -> Option<Instant> {
        self.lock().checks.first().map(|(at, _)| *at)
    }

    /// The live tasks that have to be looked at now. Ended ones are let go on the way: nobody works on them, so the
    /// token may be raised without asking.
    pub(crate) fn due(&self, now: Instant, most: usize) -> Vec<Due> {
        let mut state = self.lock();
        let mut due = Vec::new();
        let ready: Vec<_> = state.checks.iter().take_while(|(at, _)| *at <= now).cloned().collect();
        for (_, id) in ready {
            let Some(held) = state.held.get(&id) else { continue };
            if held.ended && held.deadline <= now {
                state.gone(&id);
            } else if due.len() < most {
                due.push(Due { id, deadline: held.deadline });
            }
        }
        due
    }

    /// A task is looked at again at `at`, whatever is known about its end.
    pub(crate) fn look(&self, id: &str, at: Instant) {
        self.lock().check_at(id, at);
        self.changed.notify_one();
    }
}

impl Place<'_> {
    /// The task is there: what hands out its token, and the same one every time.
    pub(crate) fn fill(self, id: &str, seen: Seen) -> CancellationToken {
        let mut state = self.registry.lock();
        let token = state.hold(id, seen);
        // What happened between the broker's answer and now came as events of a task that nobody knew.
        let missed: Vec<_> =
            state.strangers.iter().filter(|(stranger, _)| stranger == id).map(|(_, seen)| *seen).collect();
        for seen in missed {
            match seen {
                Some(seen) => drop(state.learn(id, seen)),
                None => state.gone(id),
            }
        }
        // Events may have been lost while the answer was on its way, and the task was not among those read again.
        if state.resyncs != self.resyncs {
            state.check_at(id, Instant::now());
        }
        self.registry.changed.notify_one();
        drop(state);
        token
    }
}

impl State {
    fn hold(&mut self, id: &str, seen: Seen) -> CancellationToken {
        if let Some(held) = self.held.get(id) {
            let token = held.token.clone();
            self.learn(id, seen);
            return token;
        }
        let token = CancellationToken::new();
        let deadline = deadline(seen);
        let check = deadline.min(seen.at + LONGEST_UNSEEN);
        let held = Held { token: token.clone(), revision: 0, ended: false, created: None, deadline, check };
        self.held.insert(id.to_owned(), held);
        self.checks.insert((check, id.to_owned()));
        self.learn(id, seen);
        token
    }

    /// Whether the next check has moved.
    fn learn(&mut self, id: &str, seen: Seen) -> bool {
        let Some(held) = self.held.get_mut(id) else { return false };
        // A wish to cancel is never taken back, so it counts from an older state too.
        if seen.cancel_requested {
            held.token.cancel();
        }
        held.created = held.created.or_else(|| seen.age.and_then(|age| seen.at.checked_sub(age)));
        if seen.revision < held.revision {
            return false;
        }
        if seen.remaining.is_zero() {
            self.gone(id);
            return false;
        }
        // Each answer was some time on its way. Of several about the same revision the earliest end is the nearest,
        // unless the broker says that it has not come.
        let end = deadline(seen);
        let nearer = seen.revision == held.revision && held.deadline > seen.at;
        held.deadline = if nearer { held.deadline.min(end) } else { end };
        held.revision = seen.revision;
        if let Some(status) = seen.status {
            held.ended = status.is_terminal();
        }
        let at = held.deadline.min(seen.at + LONGEST_UNSEEN);
        self.check_at(id, at);
        true
    }

    fn check_at(&mut self, id: &str, at: Instant) {
        let Some(held) = self.held.get_mut(id) else { return };
        self.checks.remove(&(held.check, id.to_owned()));
        held.check = at;
        self.checks.insert((at, id.to_owned()));
    }

    fn gone(&mut self, id: &str) {
        if let Some(held) = self.held.remove(id) {
            held.token.cancel();
            self.checks.remove(&(held.check, id.to_owned()));
        }
    }

    /// Lets go of tasks that have ended, the ones nearest to their own end first. Nobody works on them; all that is
    /// lost is that a cancel of such a task raises its token too.
    fn forget_ended(&mut self, most: usize) {
        let held = &self.held;
        let ended = self.checks.iter().filter(|(_, id)| held.get(id).is_some_and(|held| held.ended));
        let ended: Vec<_> = ended.take(most).cloned().collect();
        for check in ended {
            self.held.remove(&check.1);
            self.checks.remove(&check);
        }
    }
}

fn deadline(seen: Seen) -> Instant {
    seen.at.checked_add(seen.remaining).unwrap_or(seen.at + FARTHEST)
}

#[cfg(test)]
#[path = "registry_tests.rs"]
mod tests;
