//! The embedded driver: sled 0.34.7, made safe. docs/storage.md tells why it is built like this.
//!
//! ```text
//! queue -> writer: decide, commit (journal), publish (index, change log), answer
//!                     |
//!                     +-> overlay -> follower -> sled
//!
//! readers: index, then payloads from the overlay or sled
//! ```

mod bundle;
mod census;
mod check;
mod checkpoint;
mod compaction;
mod cursor;
mod database;
mod directory;
mod disk;
mod draft;
mod extending;
mod files;
mod follower;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
mod import;
mod index;
mod intern;
mod journal;
mod keys;
mod ledger;
mod loading;
mod meter;
mod migration;
mod open;
mod orphans;
mod overlay;
mod payloads;
mod proof;
mod queue;
mod reached;
mod record;
mod refusal;
mod renewal;
mod renewer;
mod room;
mod seal;
mod stored;
mod tree;
mod writer;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use async_trait::async_trait;
use parking_lot::{Mutex, RwLock};
use task_broker_core::{OwnerFrom, PayloadRef, Rejection, Subject, Task, TaskId, Timestamp};
use tokio::sync::{broadcast, oneshot};

use self::disk::Disk;
use self::extending::Extending;
use self::files::Files;
use self::follower::{Follower, Line, Stage};
use self::journal::Journal;
use self::meter::{Meter, Room};
use self::orphans::Orphans;
use self::overlay::Overlay;
use self::payloads::PayloadReader;
use self::queue::{Job, Queue};
use self::renewer::Renewer;
use self::writer::{Pulse, Shared, Writer};
use super::changelog::ChangeLog;
use super::{
    Changes, EmbeddedStats, Health, Hint, Inserted, Insertion, ListQuery, Page, Payloads, Reading, Select,
    Store, StoreError, StoreStats, Swept, Update, Updated, random_name,
};
use crate::clock::Clock;

pub use self::check::{CheckError, CheckOptions, Checked, check};
pub use self::compaction::{Compacted, CompactionPlan, compact};
pub use self::directory::DirectoryError;
pub use self::import::Import;
pub use self::open::{OpenError, SledOptions};

/// How many places of a list are looked at under one lock.
const LIST_STEP: usize = 1024;

/// The embedded store.
#[derive(Debug)]
pub struct SledStore {
    queue: Queue,
    /// For payloads; taken away when the store is closed, because sled holds its files while a handle lives.
    reader: RwLock<Option<PayloadReader>>,
    shared: Arc<Shared>,
    follower: Arc<Line>,
    store_id: String,
    owner_from: OwnerFrom,
    /// Whether the log knows that the file is gone.
    told_gone: AtomicBool,
    room: Arc<Room>,
}

impl SledStore {
    /// Opens the store in a directory, or makes one. Blocks: a million tasks take some seconds.
    ///
    /// # Errors
    /// [`OpenError`] says where and what. Nothing is changed then, but for what an earlier, interrupted first
    /// start has left.
    pub fn open(options: &SledOptions, clock: Clock) -> Result<Self, OpenError> {
        let opened = open::open(options)?;
        clock.not_before(opened.floor);
        let io = |error| OpenError::Io { path: options.path.clone(), error };
        let tasks = opened.index.len();
        if opened.fresh {
            tracing::warn!(store = opened.store_id, path = %options.path.display(), "made a new, empty store");
        } else {
            tracing::info!(
                store = opened.store_id,
                path = %options.path.display(),
                tasks,
                clean_stop = opened.clean,
                "opened the store"
            );
        }
        let shared = Arc::new(Shared {
            index: opened.index,
            log: Mutex::new(ChangeLog::new(random_name().map_err(io)?)),
            hints: broadcast::channel(1024).0,
            pulse: Pulse::default(),
            extending: Extending::default(),
            meter: Meter::default(),
            clock,
            durable_until: AtomicU64::new(opened.floor.as_millis()),
        });
        let directory = Arc::new(Mutex::new(opened.directory));
        let files = Arc::new(Files::new(opened.db, opened.tree.path()).map_err(io)?);
        let overlay = Arc::new(Overlay::default());
        let checkpoint = opened.checkpoint;
        let journal = Journal::go_on(checkpoint.key, opened.segments, checkpoint.position);
        let follower = Follower::start(
            opened.tree,
            Arc::clone(&overlay),
            Arc::clone(&shared),
            checkpoint,
            options.spare_bytes,
            Orphans::new(opened.orphans),
            Renewer::new(Arc::clone(&directory), Arc::clone(&files), options),
        );
        let follower = follower.map_err(io)?;
        let line = follower.line();
        let reader = PayloadReader { overlay, files };
        let (queue, jobs) = Queue::new();
        let writer = Writer {
            disk: Disk::new(journal, reader.clone(), follower, checkpoint.census),
            ledger: opened.ledger,
            names: opened.names,
            shared: Arc::clone(&shared),
            _directory: directory,
        };
        std::thread::Builder::new()
            .name("store-writer".into())
            .spawn(move || writer.run(jobs))
            .map_err(io)?;
        Ok(Self {
            queue,
            reader: RwLock::new(Some(reader)),
            shared,
            follower: line,
            store_id: opened.store_id,
            owner_from: opened.owner_from,
            told_gone: AtomicBool::new(false),
            room: Arc::new(Room::new(options.path.clone())),
        })
    }

    /// Reads payloads of a task. `Ok(None)` when one is not there.
    fn payloads(&self, task: &Task, wanted: &[PayloadRef]) -> Result<Option<Payloads>, StoreError> {
        let reader = self.reader.read();
        let reader = reader.as_ref().ok_or(StoreError::Broken)?;
        let read =
            |reference: &PayloadRef| Ok(reader.read(task, reference)?.map(|bytes| (*reference, bytes)));
        wanted
            .iter()
            .map(|reference| read(reference).transpose())
            .collect::<Option<Result<_, _>>>()
            .transpose()
    }

    /// Whether a task that was found expired may be alive again by now; see [`extending`].
    async fn may_live_on(&self, task: &Task, now: Timestamp) -> bool {
        // What follows is large and rare, and would make the future of every read large.
        task.is_expired(now) && Box::pin(self.settle_end(task)).await
    }

    /// Waits until it is settled whether a task that was found expired lives on, and makes its end durable if it does not.
    async fn settle_end(&self, task: &Task) -> bool {
        if self.shared.extending.settle(task.id).await {
            return true;
        }
        // Somebody is about to be told that it has expired. That must stay true after a crash, also if the machine
        // comes back with an earlier clock, so the time is made durable first; once, not for each reader.
        if !self.shared.is_over_for_good(task.expires_at())
            && let Err(error) = self.queue.ask(0, Job::Mark).await
        {
            // On a full disk, or at the end: what the clock says is still the best answer that there is.
            tracing::debug!(%error, "the time at which a task has expired could not be made durable");
        }
        false
    }

    fn file_is_gone(&self) -> bool {
        // Not under its lock: a disk may hang.
        let files = self.reader.read().as_ref().map(|reader| Arc::clone(&reader.files));
        let Some(file) = files.and_then(|files| files.gone()) else { return false };
        if !self.told_gone.swap(true, Ordering::AcqRel) {
            tracing::error!(file = %file.display(), "the store's file was deleted, moved or replaced");
        }
        true
    }

    fn serves(&self) -> Result<(), StoreError> {
        if self.shared.pulse.is_alive() { Ok(()) } else { Err(StoreError::Broken) }
    }
}

#[async_trait]
impl Store for SledStore {
    async fn insert(&self, insertion: Insertion) -> Result<Inserted, StoreError> {
        let bytes = insertion.payload_bytes;
        self.queue.ask(bytes, |reply| Job::Insert(insertion, reply)).await
    }

    async fn update(&self, update: Update) -> Result<Updated, StoreError> {
        let bytes = update.payload_bytes;
        self.queue.ask(bytes, |reply| Job::Update(update, reply)).await
    }

    async fn read(
        &self,
        id: TaskId,
        select: Select<'_>,
    ) -> Result<Option<Result<Reading, Rejection>>, StoreError> {
        self.serves()?;
        let mut seen: Option<Arc<Task>> = None;
        loop {
            let Some(task) = self.shared.index.get(id) else { return Ok(None) };
            let now = self.shared.clock.now();
            if self.may_live_on(&task, now).await {
                continue;
            }
            let wanted = match select(&task, now) {
                Ok(wanted) => wanted,
                Err(rejection) => return Ok(Some(Err(rejection))),
            };
            if let Some(payloads) = self.payloads(&task, &wanted)? {
                return Ok(Some(Ok(Reading { task, payloads, now })));
            }
            // A payload is gone: either the task has moved on since, and is read again, or it is damage.
            if seen.as_ref().is_some_and(|seen| Arc::ptr_eq(seen, &task)) {
                return Err(StoreError::Damaged { place: format!("a payload of task {id} is missing") });
            }
            seen = Some(task);
        }
    }

    async fn heads(&self, ids: &[TaskId]) -> Result<(Vec<Option<Arc<Task>>>, Timestamp), StoreError> {
        self.serves()?;
        loop {
            let heads: Vec<_> = ids.iter().map(|id| self.shared.index.get(*id)).collect();
            let now = self.shared.clock.now();
            let mut again = false;
            for task in heads.iter().flatten() {
                again |= self.may_live_on(task, now).await;
            }
            if !again {
                return Ok((heads, now));
            }
        }
    }

    async fn list(&self, query: &ListQuery) -> Result<Page, StoreError> {
        self.serves()?;
        let now = self.shared.clock.now();
        let mut tasks = Vec::new();
        let mut after = query.after;
        loop {
            let places = self.shared.index.places(&query.whose, after, LIST_STEP);
            for place in &places {
                let Some(mut task) = self.shared.index.get(place.id) else { continue };
                while self.may_live_on(&task, now).await {
                    let Some(newer) = self.shared.index.get(place.id) else { break };
                    task = newer;
                }
                if task.is_expired(now) || !query.wants(&task) {
                    continue;
                }
                if tasks.len() == query.limit {
                    return Ok(Page { tasks, more: true, now });
                }
                tasks.push(task);
            }
            after = places.last().copied();
            if places.len() < LIST_STEP {
                return Ok(Page { tasks, more: false, now });
            }
            // A filter that matches little makes a long walk; others get their turn in between.
            tokio::task::yield_now().await;
        }
    }

    async fn changes(
        &self,
        creator: &Subject,
        since: Option<&str>,
        max: usize,
    ) -> Result<Changes, StoreError> {
        self.serves()?;
        Ok(self.shared.log.lock().read(creator, since, max, self.shared.clock.now()))
    }

    fn hints(&self) -> broadcast::Receiver<Arc<[Hint]>> {
        self.shared.hints.subscribe()
    }

    async fn part(&self, number: usize) -> Result<Option<Vec<TaskId>>, StoreError> {
        self.serves()?;
        Ok(self.shared.index.part(number))
    }

    async fn sweep(&self, max: usize) -> Result<Swept, StoreError> {
        self.queue.ask(0, |reply| Job::Sweep(max, reply)).await
    }

    fn health(&self) -> Health {
        let (pulse, now) = (&self.shared.pulse, self.shared.clock.now());
        if pulse.has_failed() {
            return Health::Failed("a change could not be made durable");
        }
        if !pulse.is_alive() {
            return Health::Closed;
        }
        match self.follower.stage() {
            Stage::Failed => Health::Failed("sled could not follow the journal"),
            _ if self.follower.is_stuck(now) => Health::Failed("sled does not come back"),
            _ if pulse.is_stuck(now) => Health::Failed("the disk does not come back"),
            _ if self.file_is_gone() => Health::Failed("its files were deleted, moved or replaced"),
            Stage::NoRoom => Health::Unavailable("there is no room on the disk"),
            Stage::Idle | Stage::Working | Stage::Ended => Health::Ready,
        }
    }

    async fn stats(&self) -> StoreStats {
        let (shared, meter) = (&self.shared, &self.shared.meter);
        let (tasks, task_bytes) = shared.index.tally().read();
        let (queue_commands, queue_bytes) = self.queue.depth();
        let room = self.room.look().await;
        StoreStats {
            tasks,
            task_bytes,
            expired: meter.expired.load(Ordering::Relaxed),
            embedded: Some(EmbeddedStats {
                queue_commands,
                queue_bytes,
                commits: meter.commits.snapshot(),
                group_commands: meter.group_commands.snapshot(),
                journal_bytes: meter.journal.load(Ordering::Relaxed),
                journal_capacity_bytes: meter.journal_capacity.load(Ordering::Relaxed),
                follower: self.follower.stage().as_str(),
                disk_bytes: room.used,
                free_bytes: room.free,
            }),
        }
    }

    fn store_id(&self) -> &str {
        &self.store_id
    }

    fn owner_from(&self) -> OwnerFrom {
        self.owner_from
    }

    async fn close(&self) {
        // The writer's handle is the last one then: when it ends, the files are closed and the directory is free.
        drop(self.reader.write().take());
        loop {
            let (done, closed) = oneshot::channel();
            match self.queue.put(Job::Close(done), 0).await {
                // An error means that the writer has ended already, which is what is wanted.
                Ok(()) => break drop(closed.await),
                // The queue is full: what is in it comes first.
                Err(StoreError::Unavailable { .. }) => {}
                Err(_) => break,
            }
        }
    }
}

#[cfg(test)]
mod tests;
