//! The one writer: it decides commands in groups on the newest states, makes the group durable with one commit,
//! then shows it to readers and answers.
//!
//! Everything in a group waits for the commit, rejections and replays too: they may have been decided against a
//! state of the same group, and no answer may speak of a state that a crash could take back.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use task_broker_core::{Effect, Event, PayloadRef, Rejection, Subject, Task, TaskId, Timestamp, Transition};
use tokio::sync::mpsc::error::TryRecvError;
use tokio::sync::{broadcast, mpsc, oneshot};

use super::directory::Directory;
use super::disk::{AfterImage, CommitError, Disk};
use super::extending::Extending;
use super::index::Index;
use super::intern::Interner;
use super::keys;
use super::ledger::Ledger;
use super::queue::{Job, Queued, Reply};
use crate::clock::Clock;
use crate::store::changelog::ChangeLog;
use crate::store::{Applied, Hint, Inserted, Insertion, Situation, Swept, Update, Updated, expired};

/// How many commands share a commit.
const GROUP_COMMANDS: usize = 1024;
/// How many payload bytes share a commit; one command may have more.
const GROUP_BYTES: u64 = 4 << 20;
/// How many keys are looked at in one step of the search for orphans, between commands.
const ORPHAN_STEP: usize = 64;
/// How long the search rests after a step. Without a rest sled reads leaves faster than it gives old ones back:
/// half a gigabyte more at a million tasks (measured). A command that comes meanwhile waits no longer than this.
const ORPHAN_REST: Duration = Duration::from_millis(1);

/// Whether the writer still works; read by probes.
#[derive(Debug, Default)]
pub(super) struct Pulse(AtomicU8);

impl Pulse {
    const ALIVE: u8 = 0;
    const CLOSED: u8 = 1;
    const FAILED: u8 = 2;

    pub(super) fn is_alive(&self) -> bool {
        self.0.load(Ordering::Acquire) == Self::ALIVE
    }

    pub(super) fn has_failed(&self) -> bool {
        self.0.load(Ordering::Acquire) == Self::FAILED
    }
}

/// What the writer shares with the readers.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) index: Index,
    pub(super) log: Mutex<ChangeLog>,
    pub(super) hints: broadcast::Sender<Arc<[Hint]>>,
    pub(super) pulse: Pulse,
    pub(super) extending: Extending,
    pub(super) clock: Clock,
}

/// See the module.
pub(super) struct Writer {
    pub(super) disk: Disk,
    pub(super) ledger: Ledger,
    pub(super) names: Interner,
    pub(super) shared: Arc<Shared>,
    /// Where the search for orphans goes on; nothing when it is done.
    pub(super) orphans_from: Option<Vec<u8>>,
    /// Dropped last: whoever takes the directory next finds the files closed.
    pub(super) _directory: Directory,
}

/// The newest state of one task of the group, ahead of what is durable.
#[derive(Default)]
struct Staged {
    head: Option<Arc<Task>>,
    payloads: Vec<(PayloadRef, Bytes)>,
    dropped: Vec<PayloadRef>,
}

/// A group in the making.
#[derive(Default)]
struct Group {
    staged: HashMap<TaskId, Staged>,
    events: Vec<(Subject, TaskId, Event)>,
    answers: Vec<Answer>,
    bytes: u64,
    commands: usize,
}

/// An answer that waits for the commit.
enum Answer {
    Insert(Reply<Inserted>, Inserted),
    Update(Reply<Updated>, Updated),
    Sweep(Reply<Swept>, Swept),
}

impl Writer {
    /// Works until it is told to close or a commit fails. A failed commit is final: what is on disk is unknown.
    pub(super) fn run(mut self, mut jobs: mpsc::Receiver<Queued>) {
        // Also when a decision panics: a writer that is gone must never look alive.
        let shared = Arc::clone(&self.shared);
        let _on_exit = OnExit(&shared);
        let closing = loop {
            let Some(first) = self.next(&mut jobs) else { break None };
            // Room is given back only when all are answered.
            let mut held = Vec::new();
            match self.work_on(first, &mut jobs, &mut held) {
                Ok(None) => {}
                Ok(Some(done)) => break Some(done),
                Err(error) => {
                    tracing::error!(%error, file = %self.disk.path().display(), "the store failed to commit");
                    self.shared.pulse.0.store(Pulse::FAILED, Ordering::Release);
                    return;
                }
            }
        };
        // A search that was not finished is made again at the next start.
        let state = match self.disk.close(self.orphans_from.is_none()) {
            Ok(()) => Pulse::CLOSED,
            Err(error) => {
                tracing::error!(%error, "the store failed to close");
                Pulse::FAILED
            }
        };
        self.shared.pulse.0.store(state, Ordering::Release);
        // From here on no job is taken, so that a later call cannot take the end for an unknown outcome.
        drop(jobs);
        drop(self);
        if let Some(done) = closing {
            // Nobody waits for the close any more: then nobody needs to know.
            done.send(()).unwrap_or_default();
        }
    }

    /// The next job; leftovers are cleared away while there is none.
    fn next(&mut self, jobs: &mut mpsc::Receiver<Queued>) -> Option<Queued> {
        loop {
            match jobs.try_recv() {
                Ok(job) => return Some(job),
                Err(TryRecvError::Disconnected) => return None,
                Err(TryRecvError::Empty) => {}
            }
            if self.disk.has_garbage() {
                if let Err(error) = self.disk.collect_garbage() {
                    tracing::warn!(%error, "leftovers of earlier changes could not be deleted");
                }
            } else if !self.search_orphans() {
                return jobs.blocking_recv();
            }
        }
    }

    /// One step of the search; says whether there was one to make.
    fn search_orphans(&mut self) -> bool {
        let Some(from) = self.orphans_from.take() else { return false };
        let index = &self.shared.index;
        match self.disk.remove_orphans(&from, ORPHAN_STEP, |id| index.get(id)) {
            Ok(Some(next)) => self.orphans_from = Some(next),
            Ok(None) => {
                let prefix = from.first().copied();
                let later = keys::NAMED_BY_HEADS.iter().skip_while(|kind| Some(**kind) != prefix).nth(1);
                self.orphans_from = later.map(|kind| vec![*kind]);
            }
            Err(error) => tracing::warn!(%error, "the search for orphaned payloads stopped"),
        }
        std::thread::sleep(ORPHAN_REST);
        true
    }

    /// Takes what is waiting into one group and finishes it.
    fn work_on(
        &mut self,
        first: Queued,
        jobs: &mut mpsc::Receiver<Queued>,
        held: &mut Vec<Queued>,
    ) -> Result<Option<oneshot::Sender<()>>, CommitError> {
        let mut group = Group::default();
        let mut closing = None;
        let mut next = Some(first);
        let now = self.shared.clock.now();
        while let Some(mut queued) = next.take() {
            group.commands += 1;
            group.bytes += queued.bytes;
            match std::mem::replace(&mut queued.job, Job::Sweep(0, oneshot::channel().0)) {
                Job::Insert(insertion, reply) => {
                    let answer = self.insert(&mut group, &insertion, now);
                    group.answers.push(Answer::Insert(reply, answer));
                }
                Job::Update(update, reply) => {
                    let answer = self.update(&mut group, &update, now);
                    group.answers.push(Answer::Update(reply, answer));
                }
                Job::Sweep(max, reply) => {
                    let answer = self.sweep(&mut group, max, now);
                    group.answers.push(Answer::Sweep(reply, answer));
                }
                Job::Close(done) => closing = Some(done),
            }
            held.push(queued);
            if closing.is_none() && group.commands < GROUP_COMMANDS && group.bytes < GROUP_BYTES {
                next = jobs.try_recv().ok();
            }
        }
        self.finish(group, now)?;
        Ok(closing)
    }

    /// The newest decided state of a task: of this group, or the durable one.
    fn newest(&self, group: &Group, id: TaskId) -> Option<Arc<Task>> {
        match group.staged.get(&id) {
            Some(staged) => staged.head.clone(),
            None => self.shared.index.get(id),
        }
    }

    fn insert(&mut self, group: &mut Group, insertion: &Insertion, now: Timestamp) -> Inserted {
        if let Some(key) = &insertion.key
            && let Some(id) = self.ledger.created_under(&insertion.creator, key.key())
        {
            match self.newest(group, id) {
                Some(task) if !task.is_expired(now) => return Inserted::Existing(id),
                // The key of an expired task is free, and the task in its way can go at once.
                Some(task) => self.retire(group, &task),
                None => {}
            }
        }
        let situation = Situation { now, usage: self.ledger.usage(&insertion.owner) };
        match (insertion.decide)(&situation) {
            Err(rejection) => Inserted::Rejected(rejection),
            Ok(transition) => match self.stage(group, insertion.id, None, transition, now) {
                Some(applied) => Inserted::Created(applied),
                None => Inserted::Rejected(Rejection::invalid("taskId", "nothing was to be written")),
            },
        }
    }

    fn update(&mut self, group: &mut Group, update: &Update, now: Timestamp) -> Updated {
        let Some(before) = self.newest(group, update.id) else { return Updated::Absent };
        let situation = Situation { now, usage: self.ledger.usage(&before.owner) };
        match (update.decide)(&before, &situation) {
            Err(rejection) => Updated::Rejected(rejection),
            Ok(transition) if self.extends_too_late(&before, &transition) => {
                Updated::Rejected(Rejection::Expired)
            }
            Ok(transition) => match self.stage(group, update.id, Some(before), transition, now) {
                Some(applied) => Updated::Applied(applied),
                None => Updated::Absent,
            },
        }
    }

    /// Whether the decision moves a deadline that has passed since it was made: then a reader may have said so
    /// already. See [`super::extending`].
    fn extends_too_late(&self, before: &Task, transition: &Transition) -> bool {
        let Effect::Write { task, .. } = &transition.effect else { return false };
        if task.expires_at() <= before.expires_at() {
            return false;
        }
        self.shared.extending.begin(task.id);
        before.is_expired(self.shared.clock.now())
    }

    fn sweep(&mut self, group: &mut Group, max: usize, now: Timestamp) -> Swept {
        let due = self.ledger.due(now, max);
        for id in &due {
            if let Some(task) = self.newest(group, *id) {
                self.retire(group, &task);
            }
        }
        Swept { removed: due.len(), more: self.ledger.any_due(now) }
    }

    /// Removes an expired task.
    fn retire(&mut self, group: &mut Group, task: &Arc<Task>) {
        let event = expired(task);
        self.remove(group, task, event);
    }

    fn remove(&mut self, group: &mut Group, task: &Arc<Task>, event: Event) {
        self.ledger.follow(Some(task), None);
        group.events.push((task.creator.clone(), task.id, event));
        let staged = group.staged.entry(task.id).or_default();
        staged.head = None;
        let new = std::mem::take(&mut staged.payloads);
        let is_new = |reference: &PayloadRef| new.iter().any(|(kept, _)| kept == reference);
        staged.dropped.extend(task.payloads().filter(|reference| !is_new(reference)).copied());
    }

    /// Takes a decision into the group.
    fn stage(
        &mut self,
        group: &mut Group,
        id: TaskId,
        before: Option<Arc<Task>>,
        transition: Transition,
        now: Timestamp,
    ) -> Option<Applied> {
        let Transition { outcome, replayed, effect } = transition;
        let task = match effect {
            Effect::None => before?,
            Effect::Remove { event } => {
                let before = before?;
                self.remove(group, &before, event);
                before
            }
            Effect::Write { mut task, payloads, dropped, event } => {
                if before.is_none() {
                    self.share_names(&mut task);
                }
                let task = Arc::<Task>::from(task);
                self.ledger.follow(before.as_deref(), Some(&task));
                let staged = group.staged.entry(id).or_default();
                staged.head = Some(Arc::clone(&task));
                staged.payloads.extend(payloads);
                for reference in dropped {
                    // A payload that came and went within the group never reaches the disk.
                    let known = staged.payloads.len();
                    staged.payloads.retain(|(new, _)| *new != reference);
                    if staged.payloads.len() == known {
                        staged.dropped.push(reference);
                    }
                }
                if let Some(event) = event {
                    group.events.push((task.creator.clone(), id, event));
                }
                task
            }
        };
        Some(Applied { outcome, replayed, task, now })
    }

    fn share_names(&mut self, task: &mut Task) {
        task.tool_name = self.names.get(&task.tool_name);
        for subject in [&mut task.creator, &mut task.owner] {
            if let Some(name) = subject.as_deref().map(|name| self.names.get(name)) {
                *subject = Some(name);
            }
        }
    }

    /// Makes the group durable, shows it, answers.
    fn finish(&mut self, group: Group, now: Timestamp) -> Result<(), CommitError> {
        let Group { staged, events, answers, .. } = group;
        if !staged.is_empty() {
            let images: Vec<_> = staged
                .into_iter()
                .map(|(id, Staged { head, payloads, dropped })| AfterImage { id, head, payloads, dropped })
                .collect();
            self.disk.commit(&images, now)?;
            for image in &images {
                match &image.head {
                    Some(task) => self.shared.index.publish(task),
                    None => self.shared.index.withdraw(image.id),
                }
            }
        }
        self.shared.extending.finish();
        if !events.is_empty() {
            let mut log = self.shared.log.lock();
            for (creator, id, event) in &events {
                log.push(creator, *id, *event);
            }
            drop(log);
            let hints = events.into_iter().map(|(creator, id, _)| Hint { id, creator }).collect();
            // Nobody listens: fine, hints may be lost.
            drop(self.shared.hints.send(hints));
        }
        answers.into_iter().for_each(Answer::send);
        Ok(())
    }
}

impl Answer {
    /// A caller that has gone away does not want its answer; what it asked for was done all the same.
    fn send(self) {
        match self {
            Self::Insert(reply, answer) => drop(reply.send(Ok(answer))),
            Self::Update(reply, answer) => drop(reply.send(Ok(answer))),
            Self::Sweep(reply, answer) => drop(reply.send(Ok(answer))),
        }
    }
}

/// Marks the writer as failed when it ends in any other way than by closing, and lets nobody wait for it.
struct OnExit<'a>(&'a Shared);

impl Drop for OnExit<'_> {
    fn drop(&mut self) {
        self.0.extending.finish();
        let state = &self.0.pulse.0;
        let left = state.compare_exchange(Pulse::ALIVE, Pulse::FAILED, Ordering::AcqRel, Ordering::Acquire);
        if left.is_ok() {
            tracing::error!("the store's writer ended without being told to");
        }
    }
}
