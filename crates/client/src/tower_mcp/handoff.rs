//! One read of the broker for the several reads that the router makes of one request.
//!
//! For one `tasks/get` the router calls `task_presence`, `get_task_result` and perhaps `outstanding_input_requests`,
//! one right after the other. Three reads of the broker would be three instants, and a task that is answered in
//! between would be shown in a state that it never had. So the first call reads a whole snapshot and leaves it here
//! for the calls that follow, each of which takes its part once.
//!
//! What is left here is handed out only
//!
//! - to the same tokio task (or the same thread, outside of one), which is the one that asked for it;
//! - once for each kind of call, and for [`FOR_A_READ`] at most;
//! - while this process has learnt nothing about the task since before the broker was asked: every write of any store
//!   or client of this process, every event of a newer revision and every newer read makes it void;
//! - and not beyond the end of the task's time.
//!
//! `get_task_result` and `outstanding_input_requests` are one view in two calls, so they need more than that: when the
//! first has shown `input_required`, the second has to show the questions of that very state, whatever happens
//! elsewhere in between. There the snapshot is [pinned](Pin): it answers if that is the next call to any store that
//! the same tokio task makes, and comes within [`FOR_A_PAIR`].
//!
//! So a caller never gets a state from before something that this process already knew, and a state that another
//! process has changed in the meantime is at most as old as the request that is being answered.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;
use std::time::Duration;

use task_broker_protocol::shapes::Snapshot;
use tokio::time::Instant;

use super::knowledge::Knowledge;

/// How long a read is kept for the calls that belong to it. They follow within microseconds.
const FOR_A_READ: Duration = Duration::from_millis(50);

/// How long a snapshot is pinned. Nothing lies between the two calls but the scheduler of the machine.
const FOR_A_PAIR: Duration = Duration::from_millis(20);

/// How long the answer to a creation is kept for the read that the router makes before it answers its client. A
/// preparation of the tool's own may come between; one that takes long costs a read.
const FOR_A_CREATION: Duration = Duration::from_millis(100);

/// Snapshots kept at once, and their payloads together. Each is taken within moments or never.
const MAX_KEPT: usize = 1024;
const MAX_KEPT_BYTES: usize = 32 * 1024 * 1024;

/// The state that a caller has been shown last, until it makes another call.
#[derive(Debug)]
struct Pin {
    store: u64,
    id: String,
    snapshot: Arc<Snapshot>,
    until: Instant,
}

/// Of all stores of the process: whatever call a caller makes next, to whichever store, is its next one.
static PINS: LazyLock<Mutex<HashMap<Caller, Pin>>> = LazyLock::new(Mutex::default);

/// Callers that went away without another call leave their pin behind. Above this many, the old ones are let go.
const MANY_PINS: usize = 256;

fn pins() -> MutexGuard<'static, HashMap<Caller, Pin>> {
    PINS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The caller makes a call: what it was shown before is no longer the last thing.
pub(crate) fn begin_call() {
    pins().remove(&Caller::this());
}

/// The calls that can be answered from a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    Task,
    Result,
    Questions,
}

/// Who asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Caller {
    Task(tokio::task::Id),
    Thread(ThreadId),
}

impl Caller {
    fn this() -> Self {
        tokio::task::try_id().map_or_else(|| Self::Thread(std::thread::current().id()), Self::Task)
    }
}

/// A snapshot as it was read.
#[derive(Debug, Clone)]
pub(crate) struct Read {
    pub(crate) snapshot: Arc<Snapshot>,
    /// What was known before the broker was asked.
    pub(crate) knowledge: Knowledge,
    /// When the broker was asked; the task ends no earlier than so long after.
    pub(crate) asked: Instant,
}

#[derive(Debug)]
struct Kept {
    number: u64,
    caller: Caller,
    read: Read,
    parts: Vec<Part>,
    until: Instant,
    bytes: usize,
}

#[derive(Debug)]
pub(crate) struct Handoff {
    /// Tells the stores of the process apart.
    store: u64,
    state: Mutex<State>,
}

impl Default for Handoff {
    fn default() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self { store: NEXT.fetch_add(1, Ordering::Relaxed), state: Mutex::default() }
    }
}

#[derive(Debug, Default)]
struct State {
    kept: HashMap<String, Vec<Kept>>,
    /// In the order of arrival, to let go of the oldest.
    order: VecDeque<(u64, String)>,
    next: u64,
    count: usize,
    bytes: usize,
}

impl Handoff {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing panics under the lock; see the registry.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leaves a read for the calls that belong to it.
    pub(crate) fn leave(&self, id: &str, read: Read, parts: &[Part]) {
        self.keep(id, read, parts, FOR_A_READ);
    }

    /// Leaves the answer to a creation for the one read after it.
    pub(crate) fn leave_created(&self, id: &str, read: Read) {
        self.keep(id, read, &[Part::Task], FOR_A_CREATION);
    }

    fn keep(&self, id: &str, read: Read, parts: &[Part], time: Duration) {
        let caller = Caller::this();
        let now = Instant::now();
        let end = read.asked + Duration::from_millis(read.snapshot.remaining_ms).min(time);
        let bytes = size(&read.snapshot);
        let mut state = self.lock();
        // Of two reads by one caller the newer state is right for both.
        if let Some(kept) = state.kept.get(id).and_then(|kept| kept.iter().find(|kept| kept.caller == caller))
            && kept.read.snapshot.revision > read.snapshot.revision
            && kept.until > now
        {
            return;
        }
        state.remove(id, |kept| kept.caller == caller);
        state.make_room(now, bytes);
        let number = state.next;
        state.next = state.next.wrapping_add(1);
        state.count = state.count.saturating_add(1);
        state.bytes = state.bytes.saturating_add(bytes);
        state.order.push_back((number, id.to_owned()));
        let kept = Kept { number, caller, read, parts: parts.to_vec(), until: end, bytes };
        state.kept.entry(id.to_owned()).or_default().push(kept);
    }

    /// Takes a part of what was left for this caller, if it is still right.
    pub(crate) fn take(&self, id: &str, part: Part) -> Option<Arc<Snapshot>> {
        let (caller, now, knowledge) = (Caller::this(), Instant::now(), Knowledge::now(id));
        let mut state = self.lock();
        let kept = state.kept.get_mut(id)?.iter_mut().find(|kept| kept.caller == caller)?;
        let right = kept.until > now && kept.read.knowledge == knowledge;
        let at = kept.parts.iter().position(|left| *left == part);
        let snapshot = match at {
            Some(at) if right => {
                kept.parts.swap_remove(at);
                Some(Arc::clone(&kept.read.snapshot))
            }
            _ => None,
        };
        if !right || kept.parts.is_empty() {
            state.remove(id, |kept| kept.caller == caller);
        }
        snapshot
    }

    /// The caller is shown this state now.
    pub(crate) fn pin(&self, id: &str, snapshot: Arc<Snapshot>) {
        let now = Instant::now();
        let remaining = Duration::from_millis(snapshot.remaining_ms);
        let pin =
            Pin { store: self.store, id: id.to_owned(), snapshot, until: now + FOR_A_PAIR.min(remaining) };
        let mut pins = pins();
        if pins.len() >= MANY_PINS {
            pins.retain(|_, pin| pin.until > now);
        }
        pins.insert(Caller::this(), pin);
    }

    /// The state that the caller was shown by its last call, if that was about this task. Begins a call.
    pub(crate) fn pinned(&self, id: &str) -> Option<Arc<Snapshot>> {
        let pin = pins().remove(&Caller::this())?;
        let right = pin.store == self.store && pin.id == id && pin.until > Instant::now();
        right.then_some(pin.snapshot)
    }

    /// Whether there is a snapshot of this revision or a newer one.
    pub(crate) fn has(&self, id: &str, revision: u64) -> bool {
        let state = self.lock();
        state.kept.get(id).is_some_and(|kept| kept.iter().any(|kept| kept.read.snapshot.revision >= revision))
    }

    /// A read has shown a revision: older ones are void.
    pub(crate) fn observe(&self, id: &str, revision: u64) {
        self.lock().remove(id, |kept| kept.read.snapshot.revision < revision);
    }

    /// Nothing about the task is right any more.
    pub(crate) fn forget(&self, id: &str) {
        self.lock().remove(id, |_| true);
    }
}

impl State {
    fn remove(&mut self, id: &str, mut which: impl FnMut(&Kept) -> bool) {
        let Some(kept) = self.kept.get_mut(id) else { return };
        let (mut count, mut bytes) = (0_usize, 0_usize);
        kept.retain(|kept| {
            let goes = which(kept);
            if goes {
                count = count.saturating_add(1);
                bytes = bytes.saturating_add(kept.bytes);
            }
            !goes
        });
        if kept.is_empty() {
            self.kept.remove(id);
        }
        self.count = self.count.saturating_sub(count);
        self.bytes = self.bytes.saturating_sub(bytes);
    }

    /// Lets go of the oldest until there is room, and of what has been taken or is too old anyway.
    fn make_room(&mut self, now: Instant, bytes: usize) {
        while let Some((number, id)) = self.order.front() {
            let (number, id) = (*number, id.clone());
            let kept = self.kept.get(&id).and_then(|kept| kept.iter().find(|kept| kept.number == number));
            let full = self.count >= MAX_KEPT || self.bytes.saturating_add(bytes) > MAX_KEPT_BYTES;
            // Entries that were taken leave a number behind; the numbers are bounded like the entries.
            let goes = kept.is_none_or(|kept| full || kept.until <= now);
            if !goes && self.order.len() < 2 * MAX_KEPT {
                return;
            }
            self.remove(&id, |kept| kept.number == number);
            self.order.pop_front();
        }
    }
}

/// What a snapshot holds in memory, roughly.
fn size(snapshot: &Snapshot) -> usize {
    let payloads = [&snapshot.result, &snapshot.error, &snapshot.task.meta];
    let payloads = payloads.into_iter().flatten().chain(snapshot.input_requests.values());
    payloads.map(|payload| payload.as_bytes().len()).fold(1024, usize::saturating_add)
}

#[cfg(test)]
#[path = "handoff_tests.rs"]
mod tests;
