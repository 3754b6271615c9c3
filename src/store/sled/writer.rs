//! The one writer: it decides commands in groups on the newest states, makes the group durable with one commit,
//! then shows it to readers and answers.
//!
//! Everything in a group waits for the commit, rejections and replays too: they may have been decided against a
//! state of the same group, and no answer may speak of a state that a crash could take back.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use bytes::Bytes;
use foldhash::quality::RandomState;
use parking_lot::Mutex;
use task_broker_core::{Effect, Event, PayloadRef, Rejection, Subject, Task, TaskId, Timestamp, Transition};
use tokio::sync::{broadcast, mpsc, oneshot};

use super::directory::Directory;
use super::disk::{AfterImage, CommitError, Disk};
use super::extending::Extending;
use super::index::Index;
use super::intern::Interner;
use super::ledger::Ledger;
use super::meter::Meter;
use super::queue::{Job, Queued, Reply};
use super::record;
use crate::clock::{Clock, Stopwatch};
use crate::store::changelog::ChangeLog;
use crate::store::{
    Applied, Hint, Inserted, Insertion, ListPlace, Payloads, Show, Situation, StoreError, Swept, Update,
    Updated, expired,
};

/// How many commands share a commit.
const GROUP_COMMANDS: usize = 1024;
/// How many bytes of payloads and heads share a commit; one command may have more.
const GROUP_BYTES: u64 = 4 << 20;
/// What callers are told to wait when there is no room, in milliseconds.
const NO_ROOM_RETRY_MS: u64 = 1000;
/// How long a commit, or one step of sled, may take before the disk is given up, in milliseconds.
pub(super) const STUCK_MS: u64 = 60_000;

/// Whether the writer still works; read by probes.
#[derive(Debug, Default)]
pub(super) struct Pulse {
    state: AtomicU8,
    /// Since when a commit is under way, in milliseconds of the store's clock; 0 while there is none.
    committing: AtomicU64,
}

impl Pulse {
    const ALIVE: u8 = 0;
    const CLOSED: u8 = 1;
    const FAILED: u8 = 2;

    pub(super) fn is_alive(&self) -> bool {
        self.state.load(Ordering::Acquire) == Self::ALIVE
    }

    pub(super) fn has_failed(&self) -> bool {
        self.state.load(Ordering::Acquire) == Self::FAILED
    }

    /// Whether a commit does not come back.
    pub(super) fn is_stuck(&self, now: Timestamp) -> bool {
        let since = self.committing.load(Ordering::Acquire);
        since != 0 && now.saturating_since(Timestamp::from_millis(since)) > STUCK_MS
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
    pub(super) meter: Meter,
    pub(super) clock: Clock,
    /// The highest time that is durable, in milliseconds: the next process does not begin before it.
    pub(super) durable_until: AtomicU64,
}

impl Shared {
    /// Whether the next process, whatever its clock says, will find what was over at this time over too.
    pub(super) fn is_over_for_good(&self, deadline: Timestamp) -> bool {
        self.durable_until.load(Ordering::Acquire) >= deadline.as_millis()
    }
}

/// See the module.
pub(super) struct Writer {
    pub(super) disk: Disk,
    pub(super) ledger: Ledger,
    pub(super) names: Interner,
    pub(super) shared: Arc<Shared>,
    /// Dropped last: whoever takes the directory next finds the files closed.
    pub(super) _directory: Arc<Mutex<Directory>>,
}

/// The newest state of one task of the group, ahead of what is durable.
#[derive(Default)]
struct Staged {
    created_at: Timestamp,
    /// With its encoded form.
    head: Option<(Arc<Task>, Vec<u8>)>,
    payloads: Vec<(PayloadRef, Bytes)>,
    dropped: Vec<PayloadRef>,
}

/// A group in the making.
#[derive(Default)]
struct Group {
    staged: HashMap<TaskId, Staged, RandomState>,
    events: Vec<(Subject, TaskId, Event)>,
    answers: Vec<Answer>,
    bytes: u64,
    commands: usize,
    /// How many tasks are new.
    created: usize,
    /// Somebody is told what the time alone has done.
    mark: bool,
}

/// An answer that waits for the commit.
enum Answer {
    Insert(Reply<Inserted>, Inserted),
    Update(Reply<Updated>, Result<Updated, StoreError>),
    Sweep(Reply<Swept>, Swept),
    Mark(Reply<()>),
}

impl Writer {
    /// Works until it is told to close or a commit fails. A failed commit is final: what is on disk is unknown.
    pub(super) fn run(mut self, mut jobs: mpsc::Receiver<Queued>) {
        // Also when a decision panics: a writer that is gone must never look alive.
        let shared = Arc::clone(&self.shared);
        let _on_exit = OnExit(&shared);
        let closing = loop {
            let Some(first) = jobs.blocking_recv() else { break None };
            // Room is given back only when all are answered.
            let mut held = Vec::new();
            match self.work_on(first, &mut jobs, &mut held) {
                Ok(None) => {}
                Ok(Some(done)) => break Some(done),
                Err(error) => {
                    tracing::error!(%error, file = %self.disk.path().display(), "the store failed to commit");
                    self.shared.pulse.state.store(Pulse::FAILED, Ordering::Release);
                    return;
                }
            }
        };
        let state = match self.disk.close(self.shared.clock.now()) {
            Ok(()) => Pulse::CLOSED,
            Err(error) => {
                tracing::error!(%error, "the store failed to close");
                Pulse::FAILED
            }
        };
        self.shared.pulse.state.store(state, Ordering::Release);
        // From here on no job is taken, so that a later call cannot take the end for an unknown outcome.
        drop(jobs);
        drop(self);
        if let Some(done) = closing {
            // Nobody waits for the close any more: then nobody needs to know.
            done.send(()).unwrap_or_default();
        }
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
        #[cfg(test)]
        let mut following = Vec::new();
        let mut next = Some(first);
        let mut now = self.shared.clock.now();
        while let Some(mut queued) = next.take() {
            // Each at a time after it was sent: whoever was told that a task has expired must not get it changed by the
            // next command, though that may join a group that was begun before.
            now = self.shared.clock.now();
            group.commands += 1;
            group.bytes += queued.bytes;
            match std::mem::replace(&mut queued.job, Job::Sweep(0, oneshot::channel().0)) {
                Job::Insert(insertion, reply) => {
                    let answer = self.insert(&mut group, &insertion, now)?;
                    group.created += usize::from(matches!(answer, Inserted::Created(_)));
                    group.answers.push(Answer::Insert(reply, answer));
                }
                Job::Update(update, reply) => {
                    let answer = self.update(&mut group, &update, now)?;
                    let answer = self.show(&group, update.show, answer);
                    group.answers.push(Answer::Update(reply, answer));
                }
                Job::Sweep(max, reply) => {
                    let answer = self.sweep(&mut group, max, now);
                    group.answers.push(Answer::Sweep(reply, answer));
                }
                Job::Mark(reply) => {
                    group.mark = true;
                    group.answers.push(Answer::Mark(reply));
                }
                #[cfg(test)]
                Job::Follow(done) => following.push(done),
                Job::Close(done) => closing = Some(done),
            }
            held.push(queued);
            if closing.is_none() && group.commands < GROUP_COMMANDS && group.bytes < GROUP_BYTES {
                next = jobs.try_recv().ok();
            }
        }
        self.make_way(&mut group, now);
        self.finish(group, now)?;
        #[cfg(test)]
        for done in following {
            self.disk.follow(now)?;
            done.send(()).unwrap_or_default();
        }
        self.disk.rest(now);
        Ok(closing)
    }

    /// Tells who asks how things stand.
    fn tell(&mut self, now: Timestamp) {
        let meter = &self.shared.meter;
        let (written, capacity) = self.disk.fill();
        meter.journal.store(written, Ordering::Relaxed);
        meter.journal_capacity.store(capacity, Ordering::Relaxed);
        meter.expired.store(self.ledger.overdue(now), Ordering::Relaxed);
    }

    /// The newest decided state of a task: of this group, or the durable one.
    fn newest(&self, group: &Group, id: TaskId) -> Option<Arc<Task>> {
        match group.staged.get(&id) {
            Some(staged) => staged.head.as_ref().map(|(task, _)| Arc::clone(task)),
            None => self.shared.index.get(id),
        }
    }

    fn insert(
        &mut self,
        group: &mut Group,
        insertion: &Insertion,
        now: Timestamp,
    ) -> Result<Inserted, CommitError> {
        if let Some(key) = &insertion.key
            && let Some(id) = self.ledger.created_under(&insertion.creator, key.key())
        {
            match self.newest(group, id) {
                Some(task) if !task.is_expired(now) => return Ok(Inserted::Existing(id)),
                // The key of an expired task is free, and the task in its way can go at once.
                Some(task) => self.retire(group, &task),
                None => {}
            }
        }
        let situation = Situation { now, usage: self.ledger.usage(&insertion.owner) };
        match (insertion.decide)(&situation) {
            Err(rejection) => Ok(Inserted::Rejected(rejection)),
            Ok(transition) => match self.stage(group, insertion.id, None, transition, now)? {
                Some(applied) => Ok(Inserted::Created(applied)),
                None => Ok(Inserted::Rejected(Rejection::invalid("taskId", "nothing was to be written"))),
            },
        }
    }

    fn update(&mut self, group: &mut Group, update: &Update, now: Timestamp) -> Result<Updated, CommitError> {
        let Some(before) = self.newest(group, update.id) else { return Ok(Updated::Absent) };
        let situation = Situation { now, usage: self.ledger.usage(&before.owner) };
        match (update.decide)(&before, &situation) {
            Err(rejection) => {
                group.mark |= before.is_expired(now) && !self.shared.is_over_for_good(before.expires_at());
                Ok(Updated::Rejected(rejection))
            }
            Ok(transition) if self.extends_too_late(&before, &transition) => {
                Ok(Updated::Rejected(Rejection::Expired))
            }
            Ok(transition) => match self.stage(group, update.id, Some(before), transition, now)? {
                Some(applied) => Ok(Updated::Applied(applied)),
                None => Ok(Updated::Absent),
            },
        }
    }

    /// Reads the payloads that come with an answer: as they are decided now, before a later command can drop them.
    fn show(&self, group: &Group, show: Option<Show>, updated: Updated) -> Result<Updated, StoreError> {
        let (Some(show), Updated::Applied(applied)) = (show, &updated) else { return Ok(updated) };
        let staged = group.staged.get(&applied.task.id);
        let find = |reference: PayloadRef| {
            let new = staged.and_then(|staged| staged.payloads.iter().find(|(new, _)| *new == reference));
            let bytes = match new {
                Some((_, bytes)) => Some(bytes.clone()),
                None => self.disk.payload(&applied.task, &reference)?,
            };
            let id = applied.task.id;
            let missing = || StoreError::Damaged { place: format!("a payload of task {id} is missing") };
            Ok((reference, bytes.ok_or_else(missing)?))
        };
        let payloads = show(&applied.task).into_iter().map(find).collect::<Result<_, _>>()?;
        let Updated::Applied(applied) = updated else { return Ok(updated) };
        Ok(Updated::Applied(Applied { payloads, ..applied }))
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
        // Commands come first: when a million tasks expire at once, removing them must not fill the journal, or
        // everybody would wait for sled.
        if !self.disk.has_room_to_spare() {
            return Swept { removed: 0, more: self.ledger.any_due(now) };
        }
        // None, while it is still being learned how many there are.
        let due = self.ledger.due(now, max);
        for id in &due {
            if let Some(task) = self.newest(group, *id) {
                self.retire(group, &task);
            }
        }
        Swept { removed: due.len(), more: self.ledger.any_due(now) }
    }

    /// Takes as many tasks out of what is over as the group brings in. The sweeper alone is slow on purpose, and what it
    /// leaves takes up memory and disk: with more new tasks a second than it removes, that would grow to the limit of tasks.
    fn make_way(&mut self, group: &mut Group, now: Timestamp) {
        if group.created == 0 {
            return;
        }
        for id in self.ledger.due(now, group.created) {
            // One that is new itself and lives for no time is left to the sweeper: it is told first.
            let known = self.shared.index.get(id).is_some();
            if let Some(task) = self.newest(group, id).filter(|_| known) {
                self.retire(group, &task);
            }
        }
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
        staged.created_at = task.created_at;
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
    ) -> Result<Option<Applied>, CommitError> {
        let changed = transition.is_change();
        let Transition { outcome, replayed, effect } = transition;
        let task = match (effect, before) {
            (Effect::None | Effect::Remove { .. }, None) => return Ok(None),
            (Effect::None, Some(before)) => before,
            (Effect::Remove { event }, Some(before)) => {
                self.remove(group, &before, event);
                before
            }
            (Effect::Write { mut task, payloads, dropped, event }, before) => {
                if before.is_none() {
                    self.share_names(&mut task);
                }
                let task = Arc::<Task>::from(task);
                self.ledger.follow(before.as_deref(), Some(&task));
                let head = record::encode(&task).map_err(|_what| CommitError::Encode)?;
                group.bytes += head.len() as u64;
                let staged = group.staged.entry(id).or_default();
                staged.created_at = task.created_at;
                staged.head = Some((Arc::clone(&task), head));
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
        Ok(Some(Applied { outcome, replayed, changed, task, payloads: Payloads::default(), now }))
    }

    fn share_names(&mut self, task: &mut Task) {
        task.tool_name = self.names.get(&task.tool_name);
        for subject in [&mut task.creator, &mut task.owner] {
            if let Some(name) = subject.as_deref().map(|name| self.names.get(name)) {
                *subject = Some(name);
            }
        }
    }

    /// Makes the group durable, shows it, answers. Without room for it, nothing of it has happened.
    fn finish(&mut self, group: Group, now: Timestamp) -> Result<(), CommitError> {
        let Group { staged, events, answers, commands, mark, .. } = group;
        if !staged.is_empty() {
            self.shared.meter.group_commands.observe(u64::try_from(commands).unwrap_or(u64::MAX));
        }
        if !staged.is_empty() || mark {
            let before = |id| self.shared.index.get(id);
            let images: Vec<_> = staged
                .into_iter()
                .map(|(id, Staged { created_at, head, payloads, dropped })| AfterImage {
                    place: ListPlace { created_at, id },
                    before: before(id),
                    head,
                    payloads,
                    dropped,
                })
                .collect();
            match self.commit(&images, now) {
                Ok(()) => {}
                Err(CommitError::NoRoom) => {
                    self.undo(&images);
                    self.shared.extending.finish();
                    let retry = StoreError::Unavailable { retry_after_ms: NO_ROOM_RETRY_MS };
                    for answer in answers {
                        answer.refuse(retry.clone());
                    }
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
            for image in &images {
                match &image.head {
                    Some((task, _)) => self.shared.index.publish(task),
                    None => self.shared.index.withdraw(image.place.id),
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
        self.tell(now);
        answers.into_iter().for_each(Answer::send);
        Ok(())
    }

    fn commit(&mut self, images: &[AfterImage], now: Timestamp) -> Result<(), CommitError> {
        let committing = &self.shared.pulse.committing;
        committing.store(self.shared.clock.now().as_millis(), Ordering::Release);
        let took = Stopwatch::start();
        let committed = self.disk.commit(images, now);
        self.shared.meter.commits.observe_time(took.elapsed());
        committing.store(0, Ordering::Release);
        if committed.is_ok() {
            self.shared.durable_until.fetch_max(now.as_millis(), Ordering::AcqRel);
        }
        committed
    }

    /// Takes back what the ledger has followed. Tasks that would have been new go first: they may hold a create key that
    /// an expired task has to get back.
    fn undo(&mut self, images: &[AfterImage]) {
        for image in images {
            self.ledger.follow(image.head.as_ref().map(|(task, _)| &**task), None);
        }
        for image in images {
            self.ledger.follow(None, image.before.as_deref());
        }
    }
}

impl Answer {
    /// A caller that has gone away does not want its answer; what it asked for was done all the same.
    fn send(self) {
        match self {
            Self::Insert(reply, answer) => drop(reply.send(Ok(answer))),
            Self::Update(reply, answer) => drop(reply.send(answer)),
            Self::Sweep(reply, answer) => drop(reply.send(Ok(answer))),
            Self::Mark(reply) => drop(reply.send(Ok(()))),
        }
    }

    /// As with [`Answer::send`], nobody may want it any more.
    fn refuse(self, error: StoreError) {
        match self {
            Self::Insert(reply, _) => drop(reply.send(Err(error))),
            Self::Update(reply, _) => drop(reply.send(Err(error))),
            Self::Sweep(reply, _) => drop(reply.send(Err(error))),
            Self::Mark(reply) => drop(reply.send(Err(error))),
        }
    }
}

/// Marks the writer as failed when it ends in any other way than by closing, and lets nobody wait for it.
struct OnExit<'a>(&'a Shared);

impl Drop for OnExit<'_> {
    fn drop(&mut self) {
        self.0.extending.finish();
        let state = &self.0.pulse.state;
        let left = state.compare_exchange(Pulse::ALIVE, Pulse::FAILED, Ordering::AcqRel, Ordering::Acquire);
        if left.is_ok() {
            tracing::error!("the store's writer ended without being told to");
        }
    }
}
