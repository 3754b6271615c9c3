//! A store that does what the memory store does, but for the ways in which it is bent.

use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::sync::broadcast;

use super::*;
use crate::store::memory::MemoryStore;
use crate::store::{Changes, Hint, Select, Swept};

#[derive(Debug)]
pub(super) struct Bent {
    inner: MemoryStore,
    /// Hints go nowhere.
    nowhere: Option<broadcast::Sender<Arc<[Hint]>>>,
    /// What is carried out right after the next read has read, before its caller gets the answer.
    after_read: Mutex<Option<Update>>,
    /// Every insertion finds this task under its key.
    found: Option<TaskId>,
    /// So many of the next calls that are not reads of a task fail with this.
    failures: AtomicUsize,
    error: StoreError,
    /// How many reads there were.
    pub(super) reads: AtomicUsize,
}

impl Bent {
    pub(super) fn new(clock: &Clock) -> Self {
        Self {
            inner: MemoryStore::new(clock.clone(), "bent".into()),
            nowhere: None,
            after_read: Mutex::new(None),
            found: None,
            failures: AtomicUsize::new(0),
            error: StoreError::Unavailable { retry_after_ms: 7 },
            reads: AtomicUsize::new(0),
        }
    }

    /// Drops every hint.
    pub(super) fn deaf(clock: &Clock) -> Self {
        Self { nowhere: Some(broadcast::channel(1).0), ..Self::new(clock) }
    }

    /// Finds a task under every key that is gone when it is looked at.
    pub(super) fn haunted(clock: &Clock) -> Self {
        Self { found: Some(id(66)), ..Self::new(clock) }
    }

    /// Fails with this error, once told to.
    pub(super) fn failing(error: StoreError) -> impl FnOnce(&Clock) -> Self {
        move |clock| Self { error, ..Self::new(clock) }
    }

    pub(super) fn fail(&self, times: usize) {
        self.failures.store(times, Ordering::Release);
    }

    pub(super) fn after_next_read(&self, number: u8, request: Request) {
        let decide = move |task: &Task, situation: &crate::store::Situation| {
            execute(task, &request, &limits(), &situation.usage, situation.now)
        };
        *self.after_read.lock() =
            Some(Update { id: id(number), payload_bytes: 0, decide: Box::new(decide), show: None });
    }

    fn fails(&self) -> Result<(), StoreError> {
        let fewer = |left: usize| left.checked_sub(1);
        match self.failures.fetch_update(Ordering::AcqRel, Ordering::Acquire, fewer) {
            Ok(_) => Err(self.error.clone()),
            Err(_) => Ok(()),
        }
    }
}

#[async_trait]
impl Store for Bent {
    async fn insert(&self, insertion: Insertion) -> Result<Inserted, StoreError> {
        self.fails()?;
        match self.found {
            Some(id) => Ok(Inserted::Existing(id)),
            None => self.inner.insert(insertion).await,
        }
    }

    async fn update(&self, update: Update) -> Result<Updated, StoreError> {
        self.fails()?;
        self.inner.update(update).await
    }

    async fn read(
        &self,
        id: TaskId,
        select: Select<'_>,
    ) -> Result<Option<Result<Reading, Rejection>>, StoreError> {
        self.reads.fetch_add(1, Ordering::AcqRel);
        let reading = self.inner.read(id, select).await;
        let then = self.after_read.lock().take();
        if let Some(update) = then {
            assert!(matches!(self.inner.update(update).await, Ok(Updated::Applied(_))));
            // The hint is passed on before the caller sees what it has read.
            settle().await;
        }
        reading
    }

    async fn heads(&self, ids: &[TaskId]) -> Result<(Vec<Option<Arc<Task>>>, Timestamp), StoreError> {
        self.fails()?;
        self.inner.heads(ids).await
    }

    async fn list(&self, query: &ListQuery) -> Result<Page, StoreError> {
        self.fails()?;
        self.inner.list(query).await
    }

    async fn changes(
        &self,
        creator: &Subject,
        since: Option<&str>,
        max: usize,
    ) -> Result<Changes, StoreError> {
        self.fails()?;
        self.inner.changes(creator, since, max).await
    }

    fn hints(&self) -> broadcast::Receiver<Arc<[Hint]>> {
        self.nowhere.as_ref().map_or_else(|| self.inner.hints(), broadcast::Sender::subscribe)
    }

    async fn sweep(&self, max: usize) -> Result<Swept, StoreError> {
        self.fails()?;
        self.inner.sweep(max).await
    }

    fn health(&self) -> Health {
        self.inner.health()
    }

    fn store_id(&self) -> &str {
        self.inner.store_id()
    }

    async fn close(&self) {
        self.inner.close().await;
    }
}
