//! What the embedded driver promises beyond the contract: what is on disk, and what a start makes of it.

mod check;
mod compaction;
mod damage;
mod directory;
mod groups;
mod journal;
mod leftovers;
mod migration;
mod renewal;
mod restart;
mod transfer;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tempfile::TempDir;

use super::*;
use crate::store::ListPlace;
use crate::store::Listed;
use crate::store::suite;
use crate::store::suite::{
    alice, all_pages, answer, ask, cancel, carried_out, carried_out_guarded, complete, created, created_by,
    everything, guarded, id, keyed, new_task, payload, payload_of, set_meta, set_ttl, subject, usage, whole,
    worker,
};
use ::sled::Db;
use bytes::Bytes;
use task_broker_core::{Command, NewTask, TtlWish, Usage};

fn open(clock: &Clock) -> (SledStore, TempDir) {
    let directory = TempDir::new().unwrap();
    (open_at(directory.path(), clock), directory)
}

suite::contract!(crate::store::sled::tests::open);

fn open_at(path: &Path, clock: &Clock) -> SledStore {
    try_open(path, clock).unwrap()
}

fn try_open(path: &Path, clock: &Clock) -> Result<SledStore, OpenError> {
    SledStore::open(&SledOptions::new(path), clock.clone())
}

fn new_clock() -> Clock {
    Clock::manual(suite::START)
}

fn generation(root: &Path) -> PathBuf {
    root.join("generation-1")
}

/// The store's handle on sled.
fn db(store: &SledStore) -> Db {
    store.reader.read().clone().unwrap().files.read(Db::clone)
}

/// A copy of the data of a store that is open and quiet: what a process that is killed now would leave behind.
fn copy(root: &Path) -> TempDir {
    let copy = TempDir::new().unwrap();
    fs::create_dir_all(generation(copy.path()).join("blobs")).unwrap();
    fs::copy(root.join("CURRENT"), copy.path().join("CURRENT")).unwrap();
    let mut files: Vec<_> = fs::read_dir(generation(root))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_file())
        .collect();
    // The log last: a snapshot must not be newer than it.
    files.sort_by_key(|path| path.ends_with("db"));
    for path in files {
        let copied = fs::copy(&path, generation(copy.path()).join(path.file_name().unwrap()));
        // Snapshots come and go by themselves.
        assert!(copied.is_ok() || path.to_string_lossy().contains("snap."), "{}", path.display());
    }
    copy
}

/// Looks at, or into, a store that nobody has open, past all that the driver does.
fn raw<T>(root: &Path, act: impl FnOnce(&Db) -> T) -> T {
    raw_at(&generation(root), act)
}

/// The same in this generation.
fn raw_at<T>(generation: &Path, act: impl FnOnce(&Db) -> T) -> T {
    let config = ::sled::Config::new().path(generation).segment_size(4 << 20).flush_every_ms(None);
    let db = database::open_patiently(&config).unwrap();
    let result = act(&db);
    db.flush().unwrap();
    result
}

/// The keys under these prefixes.
fn keys_in(db: &Db, prefixes: &[u8]) -> BTreeSet<Vec<u8>> {
    let keys = prefixes.iter().flat_map(|prefix| db.scan_prefix([*prefix]).keys());
    keys.map(|key| key.unwrap().to_vec()).collect()
}

/// The keys that the heads in `db` name: chunks of payloads, and pieces of tasks.
fn named_keys(db: &Db) -> BTreeSet<Vec<u8>> {
    let mut named = BTreeSet::new();
    for entry in db.scan_prefix([keys::HEAD]) {
        let (key, value) = entry.unwrap();
        let place = keys::place_of(&key).unwrap();
        let stored = stored::Stored::read(db, place, &key, &value).unwrap();
        let head = stored.bundle().unwrap().head;
        let task = record::decode(place.id, head, &mut intern::Interner::default()).unwrap();
        named.extend(stored.pieces);
        named.extend(task.payloads().flat_map(|payload| keys::chunks(place, payload)).map(|(key, _)| key));
    }
    named
}

/// Waits until sled has followed the journal.
async fn follow(store: &SledStore) {
    let (tell, told) = oneshot::channel();
    store.queue.put(Job::Follow(tell), 0).await.unwrap();
    told.await.unwrap();
}

/// Waits until sled is given nothing more: while it is, a file of the journal may be made anew, and a copy of the files,
/// taken one by one, may have the old one.
async fn quiet(store: &SledStore) {
    while store.follower.stage() == Stage::Working {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Waits until sled has followed and there is nothing in it that no head names. Leftovers are deleted late; more than
/// late is never.
async fn nothing_is_left(store: &SledStore) {
    follow(store).await;
    let db = db(store);
    for _ in 0..1_000 {
        if keys_in(&db, &keys::NAMED_BY_HEADS) == named_keys(&db) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(keys_in(&db, &keys::NAMED_BY_HEADS), named_keys(&db));
}

/// A task whose head does not fit into one value: 40 long keys that were answered, and the outcomes of all the calls.
async fn large_head(store: &dyn Store, number: u64) {
    created(store, new_task(number)).await;
    let keys: Vec<_> = (0..40).map(|n| format!("{n:0>120}")).collect();
    carried_out(store, id(number), ask(keys.iter().map(|key| (&**key, r#"{"method":"q"}"#)))).await;
    for (n, key) in keys.iter().enumerate() {
        carried_out_guarded(store, id(number), answer([(&**key, "{}")]), guarded(&format!("call {n}"))).await;
    }
}

/// Tasks in every status, of every size, with everything that a task can have; some are gone again.
async fn populate(store: &dyn Store, clock: &Clock) {
    let question = r#"{"method":"q","params":{}}"#;
    created(store, NewTask { meta: Some(payload("{}")), ..keyed(1, "key") }).await;
    created(store, NewTask { arguments: payload_of(100_000, 2), ..keyed(2, "another key") }).await;
    created_by(store, &None, NewTask { owner: None, ..new_task(3) }).await;
    created_by(store, &subject("another"), keyed(4, "key")).await;
    clock.advance(Duration::from_millis(10));
    for number in 5..=9 {
        created(store, new_task(number)).await;
    }
    carried_out_guarded(store, id(1), set_meta(r#"{"trace":"1"}"#), guarded("call")).await;
    carried_out(store, id(2), complete(&payload_of(4_097, 3))).await;
    carried_out(store, id(4), cancel()).await;
    carried_out(store, id(5), ask([("a", question), ("b", question)])).await;
    carried_out(store, id(5), answer([("a", "{}")])).await;
    let error = payload(r#"{"code":-32603,"message":"broken"}"#);
    carried_out(store, id(6), Command::Fail { error, message: "broken".into() }).await;
    carried_out(store, id(7), Command::SetMeta { meta: payload_of(40_000, 4) }).await;
    carried_out(store, id(7), Command::Discard).await;
    carried_out(store, id(8), set_ttl(1)).await;
    clock.advance(Duration::from_millis(10));
    assert_eq!(store.sweep(10).await.unwrap().removed, 1);
    carried_out(store, id(9), set_ttl(3 * suite::TTL_MS)).await;
    large_head(store, 10).await;
    created(store, NewTask { ttl: TtlWish::Millis(2 * suite::TTL_MS), ..keyed(11, "third key") }).await;
}

/// Everything that a store shows.
#[derive(Debug, PartialEq)]
struct Picture {
    tasks: Vec<(Arc<Task>, Vec<Bytes>)>,
    lists: Vec<Vec<TaskId>>,
    usage: Vec<Usage>,
    keys: Vec<Option<TaskId>>,
}

impl Picture {
    async fn of(store: &dyn Store) -> Self {
        let people = [worker(), alice(), subject("another"), subject("stranger"), None];
        let mut picture = Self { tasks: Vec::new(), lists: Vec::new(), usage: Vec::new(), keys: Vec::new() };
        for person in &people {
            for whose in [Listed::CreatedBy(person.clone()), Listed::OwnedBy(person.clone())] {
                picture.lists.push(all_pages(store, &everything(whose)).await);
            }
            picture.usage.push(usage(store, person).await);
            for key in ["key", "another key", "third key", "free key"] {
                picture.keys.push(owner_of_key(store, person, key).await);
            }
        }
        for number in 0..20 {
            let Some(reading) = whole(store, id(number)).await else { continue };
            let payloads =
                reading.task.payloads().map(|payload| reading.payloads.get(payload).unwrap().clone());
            picture.tasks.push((Arc::clone(&reading.task), payloads.collect()));
        }
        picture
    }
}

/// The live task that was created under this key.
async fn owner_of_key(store: &dyn Store, creator: &Subject, key: &str) -> Option<TaskId> {
    let mut probe = suite::insertion(creator, keyed(999, key), suite::limits());
    probe.decide = Box::new(|_| Err(Rejection::Foreign));
    match store.insert(probe).await.unwrap() {
        Inserted::Existing(id) => Some(id),
        Inserted::Rejected(Rejection::Foreign) => None,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn what_is_kept_in_memory_is_named_after_places_and_ids() {
    // `populate` must make what the other tests rely on.
    let clock = new_clock();
    let (store, _directory) = open(&clock);
    populate(&store, &clock).await;
    let picture = Picture::of(&store).await;
    assert_eq!(picture.tasks.len(), 9);
    let places: BTreeSet<_> = picture.tasks.iter().map(|(task, _)| ListPlace::of(task)).collect();
    assert_eq!(places.len(), 9);
    follow(&store).await;
    let heads_in_pieces = keys_in(&db(&store), b"x").len();
    assert!(heads_in_pieces > 0, "one head is too large for one value");
    store.close().await;
}
