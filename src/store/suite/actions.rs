//! What the sentences do to a store, and who does it.
//!
//! The people: `worker` is a service account that makes tasks for `alice`.

use std::future::Future;
use std::sync::Arc;
use std::thread;

use bytes::Bytes;
use parking_lot::Mutex;
use task_broker_core::digest::{Digest, canonical};
use task_broker_core::{
    Ask, Caller, Command, CreateKey, Guard, Limits, NewTask, OnSpentKey, Payload, PayloadRef, Quota,
    Rejection, Request, Right, Subject, Task, TaskId, Timestamp, TtlWish, Usage, create, execute,
};
use tokio::runtime::Handle;

use crate::store::{
    Applied, Inserted, Insertion, ListPlace, ListQuery, Listed, Page, Reading, Situation, Store, StoreError,
    Update, Updated,
};

/// When a sentence begins.
pub(in crate::store) const START: Timestamp = Timestamp::from_millis(1_000_000);
/// The TTL of its tasks.
pub(in crate::store) const TTL_MS: u64 = 60_000;

/// Limits that no sentence meets by accident.
pub(in crate::store) fn limits() -> Limits {
    Limits {
        default_ttl_ms: TTL_MS,
        max_ttl_ms: 3_600_000,
        default_poll_interval_ms: 2_000,
        max_payload_bytes: 4 << 20,
        quota: Quota { tasks_per_owner: u64::MAX, bytes_per_owner: u64::MAX, max_tasks: u64::MAX },
    }
}

pub(in crate::store) fn subject(name: &str) -> Subject {
    Caller::named(name).subject
}

pub(in crate::store) fn worker() -> Subject {
    subject("worker")
}

pub(in crate::store) fn alice() -> Subject {
    subject("alice")
}

/// The id with this number. Ids of ascending numbers are in no order, as ids are.
pub(in crate::store) fn id(number: u64) -> TaskId {
    let scattered = number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&scattered);
    bytes[8..].copy_from_slice(&number.to_be_bytes());
    TaskId::from_bytes(bytes)
}

pub(in crate::store) fn payload(text: &str) -> Payload {
    Payload::new(Bytes::copy_from_slice(text.as_bytes()))
}

/// A payload of this length in which no two places look alike, so that a chunk in another's place is found.
pub(in crate::store) fn payload_of(length: usize, seed: u64) -> Payload {
    let mut state = seed.wrapping_mul(2).wrapping_add(1);
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(length);
    Payload::new(Bytes::from(bytes))
}

/// A task of alice's.
pub(in crate::store) fn new_task(number: u64) -> NewTask {
    NewTask {
        id: id(number),
        tool_name: Arc::from("report"),
        arguments: payload(&format!(r#"{{"task":{number}}}"#)),
        ttl: TtlWish::Millis(TTL_MS),
        owner: alice(),
        poll_interval_ms: None,
        meta: None,
        key: None,
    }
}

pub(in crate::store) fn keyed(number: u64, key: &str) -> NewTask {
    NewTask { key: Some(create_key(key)), ..new_task(number) }
}

pub(in crate::store) fn create_key(key: &str) -> CreateKey {
    CreateKey::new(key, Digest(1)).unwrap()
}

pub(in crate::store) fn insertion(creator: &Subject, new: NewTask, limits: Limits) -> Insertion {
    let caller = Caller { subject: creator.clone(), may_delegate: true };
    Insertion {
        id: new.id,
        creator: creator.clone(),
        owner: new.owner.clone(),
        key: new.key.clone(),
        payload_bytes: new.payload_bytes(),
        decide: Box::new(move |situation: &Situation| {
            create(new.clone(), &caller, &limits, &situation.usage, situation.now)
        }),
    }
}

pub(in crate::store) async fn insert(store: &dyn Store, creator: &Subject, new: NewTask) -> Inserted {
    store.insert(insertion(creator, new, limits())).await.unwrap()
}

/// The worker creates a task.
pub(in crate::store) async fn created(store: &dyn Store, new: NewTask) -> Arc<Task> {
    created_by(store, &worker(), new).await
}

pub(in crate::store) async fn created_by(store: &dyn Store, creator: &Subject, new: NewTask) -> Arc<Task> {
    match insert(store, creator, new).await {
        Inserted::Created(applied) => applied.task,
        other => panic!("the task was not created: {other:?}"),
    }
}

/// A command of the task's creator.
pub(in crate::store) fn update(id: TaskId, command: Command, guard: Guard) -> Update {
    let limits = limits();
    Update {
        id,
        payload_bytes: command.payload_bytes(),
        decide: Box::new(move |task: &Task, situation: &Situation| {
            let caller = Caller { subject: task.creator.clone(), may_delegate: true };
            let request =
                Request { caller, right: Right::Creator, guard: guard.clone(), command: command.clone() };
            execute(task, &request, &limits, &situation.usage, situation.now)
        }),
        show: None,
    }
}

/// A command that must be carried out.
pub(in crate::store) async fn carried_out(store: &dyn Store, id: TaskId, command: Command) -> Applied {
    carried_out_guarded(store, id, command, Guard::default()).await
}

pub(in crate::store) async fn carried_out_guarded(
    store: &dyn Store,
    id: TaskId,
    command: Command,
    guard: Guard,
) -> Applied {
    match store.update(update(id, command, guard)).await.unwrap() {
        Updated::Applied(applied) => applied,
        other => panic!("the command was not carried out: {other:?}"),
    }
}

pub(in crate::store) fn guarded(key: &str) -> Guard {
    Guard { key: Some(create_key(key)), expected_revision: None }
}

pub(in crate::store) fn set_meta(text: &str) -> Command {
    Command::SetMeta { meta: payload(text) }
}

pub(in crate::store) fn set_ttl(ttl_ms: u64) -> Command {
    Command::SetTtl { ttl_ms }
}

pub(in crate::store) fn complete(result: &Payload) -> Command {
    Command::Complete { result: result.clone() }
}

pub(in crate::store) fn cancel() -> Command {
    Command::Cancel { reason: None }
}

pub(in crate::store) fn ask<'a>(questions: impl IntoIterator<Item = (&'a str, &'a str)>) -> Command {
    let question = |text: &str| Ask { payload: payload(text), digest: canonical(text.as_bytes()).unwrap() };
    Command::RequireInput {
        requests: questions.into_iter().map(|(key, text)| (Arc::from(key), question(text))).collect(),
        message: None,
        on_spent: OnSpentKey::AskAgain,
    }
}

pub(in crate::store) fn answer<'a>(answers: impl IntoIterator<Item = (&'a str, &'a str)>) -> Command {
    Command::ApplyInput {
        responses: answers.into_iter().map(|(key, text)| (Arc::from(key), payload(text))).collect(),
    }
}

/// The task with all of its payloads.
pub(in crate::store) async fn whole(store: &dyn Store, id: TaskId) -> Option<Reading> {
    read_whole(store, id).await.unwrap()
}

pub(in crate::store) async fn read_whole(
    store: &dyn Store,
    id: TaskId,
) -> Result<Option<Reading>, StoreError> {
    let all = |task: &Task, _now| Ok(task.payloads().copied().collect());
    Ok(store.read(id, &all).await?.map(|reading| reading.unwrap()))
}

/// The payload of a reading that must be this one.
pub(in crate::store) fn assert_holds(reading: &Reading, reference: &PayloadRef, payload: &Payload) {
    let bytes = reading.payloads.get(reference).expect("the payload was asked for");
    // Not `assert_eq`, which would print megabytes.
    assert!(bytes == payload.bytes(), "other bytes under {reference:?} of {}", reading.task.id);
}

pub(in crate::store) async fn head(store: &dyn Store, id: TaskId) -> Option<Arc<Task>> {
    store.heads(&[id]).await.unwrap().0.pop().flatten()
}

/// What this owner, and all, keep: asked for by a decision that writes nothing.
pub(in crate::store) async fn usage(store: &dyn Store, owner: &Subject) -> Usage {
    let seen = Arc::new(Mutex::new(Usage::default()));
    let note = Arc::clone(&seen);
    let decide = move |situation: &Situation| {
        *note.lock() = situation.usage;
        Err(Rejection::Foreign)
    };
    let (creator, owner) = (subject("nobody in particular"), owner.clone());
    let insertion =
        Insertion { id: id(u64::MAX), creator, owner, key: None, payload_bytes: 0, decide: Box::new(decide) };
    assert!(matches!(store.insert(insertion).await, Ok(Inserted::Rejected(Rejection::Foreign))));
    *seen.lock()
}

/// The whole list of what `whose` names.
pub(in crate::store) fn everything(whose: Listed) -> ListQuery {
    ListQuery { whose, owner: None, statuses: Vec::new(), after: None, limit: 10_000 }
}

pub(in crate::store) async fn page(store: &dyn Store, query: &ListQuery) -> Page {
    store.list(query).await.unwrap()
}

pub(in crate::store) fn ids(page: &Page) -> Vec<TaskId> {
    page.tasks.iter().map(|task| task.id).collect()
}

/// All pages of a query, one after the other.
pub(in crate::store) async fn all_pages(store: &dyn Store, query: &ListQuery) -> Vec<TaskId> {
    let mut query = query.clone();
    let mut all = Vec::new();
    loop {
        let page = page(store, &query).await;
        assert!(page.tasks.len() <= query.limit);
        all.extend(ids(&page));
        if !page.more {
            return all;
        }
        query.after = page.tasks.last().map(|task| ListPlace::of(task));
        assert!(query.after.is_some(), "a page that promises more has a last task");
    }
}

/// Where a reader of these changes stands now.
pub(in crate::store) async fn position(store: &dyn Store, creator: &Subject) -> String {
    store.changes(creator, None, 1).await.unwrap().position
}

/// Runs each future on a thread of its own: a driver must meet true concurrency.
pub(in crate::store) fn in_parallel<F>(futures: Vec<F>) -> Vec<F::Output>
where
    F: Future + Send,
    F::Output: Send,
{
    let runtime = Handle::current();
    let run = |future| {
        let runtime = runtime.clone();
        move || runtime.block_on(future)
    };
    tokio::task::block_in_place(|| {
        thread::scope(|scope| {
            let threads: Vec<_> = futures.into_iter().map(|future| scope.spawn(run(future))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        })
    })
}
