//! Opening: from a directory to a store that serves.

use std::collections::HashMap;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use ::sled::Db;
use task_broker_core::{Task, TaskId, Timestamp};

use super::census::Census;
use super::checkpoint::Checkpoint;
use super::directory::{Directory, DirectoryError, LOCK_PATIENCE, LOCK_STEP};
use super::index::Index;
use super::intern::Interner;
use super::journal::{Replayed, SECTOR, SLOTS, Segment, replay};
use super::ledger::Ledger;
use super::overlay::Layer;
use super::seal::Broken;
use super::tree::{StoredHead, Tree};
use super::{keys, record, seal};
use crate::store::{ListPlace, random_name};

/// The version of the layout on disk. See migrations/README.md.
const FORMAT: u64 = 2;

/// How large the files of a new journal are, in sectors: 1 MiB each. They grow under load.
const FIRST_SECTORS: u64 = (1 << 20) / SECTOR as u64;

/// How long sled may take to open. A million tasks take a few seconds; some damage makes it hang.
const OPEN_LIMIT: Duration = Duration::from_mins(5);

/// How an embedded store is opened.
#[derive(Clone, Debug)]
pub struct SledOptions {
    /// The data directory.
    pub path: PathBuf,
    /// Refuse to make a new store.
    pub existing_only: bool,
    /// sled's cache in bytes. Its real use of memory is a multiple of this.
    pub cache_bytes: u64,
    /// Room on the disk that is left alone, in bytes: with less, commands are refused.
    pub spare_bytes: u64,
}

impl SledOptions {
    /// The options with which the broker opens a store by default.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), existing_only: false, cache_bytes: 64 << 20, spare_bytes: 16 << 20 }
    }
}

/// Why a store cannot be opened. The text tells an operator where and what.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The directory.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    /// Stored data is missing or wrong.
    #[error("the store in {} is damaged: {what}. No task was changed; restore a backup", .path.display())]
    Damaged {
        /// The generation.
        path: PathBuf,
        /// What is wrong, and where.
        what: String,
    },
    /// Written by another version of this program.
    #[error("the store in {} has format {found}, this program knows format {known}", .path.display(), known = FORMAT)]
    Format {
        /// The generation.
        path: PathBuf,
        /// Its format.
        found: u64,
    },
    /// sled did not come back.
    #[error("the store in {} did not open within {} s", .path.display(), OPEN_LIMIT.as_secs())]
    TimedOut {
        /// The generation.
        path: PathBuf,
    },
    /// The operating system says no.
    #[error("cannot open the store in {}: {error}", .path.display())]
    Io {
        /// The generation.
        path: PathBuf,
        /// What the system said.
        error: std::io::Error,
    },
}

/// Everything that an open store is made of.
pub(super) struct Opened {
    pub(super) directory: Directory,
    pub(super) db: Db,
    pub(super) tree: Tree,
    pub(super) segments: [Segment; SLOTS],
    /// As it is in sled now.
    pub(super) checkpoint: Checkpoint,
    pub(super) index: Index,
    pub(super) ledger: Ledger,
    pub(super) names: Interner,
    pub(super) store_id: String,
    pub(super) clean: bool,
    /// The highest time that was persisted.
    pub(super) floor: Timestamp,
    pub(super) fresh: bool,
}

/// Opens the store, or says what is wrong with it.
pub(super) fn open(options: &SledOptions) -> Result<Opened, OpenError> {
    let mut directory = Directory::hold(&options.path, options.existing_only)?;
    let fresh = directory.fresh;
    let path = directory.generation.clone();
    remove_stale_snapshots(&path)?;
    let db = open_sled(&path, options.cache_bytes)?;
    if fresh {
        initialise(&db, &path)?;
        directory.complete()?;
    }
    let damaged = |what: String| OpenError::Damaged { path: path.clone(), what };
    let io = |error| OpenError::Io { path: path.clone(), error };
    let facts = bounded(&path, || read_facts(&db, &path))?;
    let mut checkpoint = facts.checkpoint;
    let segments = open_segments(&path, &checkpoint)?;
    let replayed = read_journal(&segments, &checkpoint)?;
    let loaded = bounded(&path, || read_heads(&db, &path, &replayed.layer))?;
    let (census, clock) = replayed.newest.unwrap_or((checkpoint.census, checkpoint.clock()));
    if loaded.census != census {
        return Err(damaged(format!(
            "sled's files do not hold what was stored: {} tasks should be there, {} are, {}",
            census.count,
            loaded.census.count,
            if loaded.census.count == census.count { "not all as they were" } else { "or not as they were" },
        )));
    }
    if fs::read_dir(path.join("blobs")).is_ok_and(|mut blobs| blobs.next().is_some()) {
        return Err(damaged("there are files in blobs/, which this program never makes".into()));
    }
    // What the journal holds goes into sled before anything new is taken, and from here on a stop is unclean until it
    // is marked clean again, durably.
    let clean = checkpoint.clean && replayed.frames == 0;
    checkpoint.position = replayed.position;
    checkpoint.census = census;
    checkpoint.not_before(clock);
    checkpoint.clean = false;
    checkpoint.sectors = segments.each_ref().map(Segment::sectors);
    let mut tree = Tree::new(db.clone(), &path, loaded.overflows).map_err(io)?;
    tree.carry(&replayed.layer, || Ok(()))
        .and_then(|()| tree.checkpoint(&checkpoint))
        .map_err(|error| damaged(error.to_string()))?;
    Ok(Opened {
        directory,
        db,
        tree,
        segments,
        checkpoint,
        index: loaded.index,
        ledger: loaded.ledger,
        names: loaded.names,
        store_id: facts.store_id,
        clean,
        floor: loaded.floor.max(checkpoint.clock()),
        fresh,
    })
}

/// sled panics where its files are damaged.
fn bounded<T>(path: &Path, read: impl FnOnce() -> Result<T, OpenError>) -> Result<T, OpenError> {
    let panicked = |_panic| OpenError::Damaged {
        path: path.to_owned(),
        what: "sled panicked while reading its files".into(),
    };
    catch_unwind(AssertUnwindSafe(read)).map_err(panicked)?
}

/// Opens the journal's files. A file that is missing, or shorter than it was made, held what nobody knows now.
fn open_segments(path: &Path, checkpoint: &Checkpoint) -> Result<[Segment; SLOTS], OpenError> {
    let open = |slot: usize| {
        let segment = Segment::open(path, slot).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => {
                OpenError::Damaged { path: path.to_owned(), what: format!("journal-{slot} is missing") }
            }
            _ => OpenError::Io { path: path.to_owned(), error },
        })?;
        let made = checkpoint.sectors.get(slot).copied().unwrap_or_default();
        if segment.sectors() < made {
            return Err(OpenError::Damaged {
                path: path.to_owned(),
                what: format!(
                    "journal-{slot} was cut: it has {} bytes of {}",
                    segment.sectors() * SECTOR as u64,
                    made * SECTOR as u64
                ),
            });
        }
        Ok(segment)
    };
    Ok([open(0)?, open(1)?])
}

/// Reads what sled may not have yet.
fn read_journal(segments: &[Segment; SLOTS], checkpoint: &Checkpoint) -> Result<Replayed, OpenError> {
    let replayed = replay(segments, checkpoint.key, checkpoint.position)
        .map_err(|(path, error)| OpenError::Io { path, error })?
        .map_err(|damage| OpenError::Damaged {
            what: format!("offset {}: {}", damage.offset, damage.what),
            path: damage.path,
        })?;
    if let Some(cut) = &replayed.cut {
        tracing::warn!(
            file = %cut.path.display(),
            offset = cut.offset,
            length = cut.length,
            "the newest group was torn by a crash before anybody was told of it; it is cut off"
        );
    }
    Ok(replayed)
}

/// sled refuses to open beside the leftovers of a snapshot that was being written; removing them loses nothing
/// (measured).
fn remove_stale_snapshots(path: &Path) -> Result<(), OpenError> {
    let io = |error| OpenError::Io { path: path.to_owned(), error };
    for entry in fs::read_dir(path).map_err(io)? {
        let entry = entry.map_err(io)?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.starts_with("snap.") && name.ends_with(".generating") {
            fs::remove_file(entry.path()).map_err(io)?;
        }
    }
    Ok(())
}

/// Opens sled on a thread of its own: damage can make it panic or hang, and neither may be the last word.
fn open_sled(path: &Path, cache_bytes: u64) -> Result<Db, OpenError> {
    let config = ::sled::Config::new()
        .path(path)
        .cache_capacity(cache_bytes)
        .segment_size(4 << 20)
        .flush_every_ms(Some(500));
    let (tell, told) = mpsc::sync_channel(1);
    let opening = move || {
        let opened = catch_unwind(AssertUnwindSafe(|| open_patiently(&config)));
        // Nobody listens any more if the time limit has passed; the process is ending then.
        drop(tell.send(opened));
    };
    let io = |error| OpenError::Io { path: path.to_owned(), error };
    std::thread::Builder::new().name("sled-open".into()).spawn(opening).map_err(io)?;
    let damaged = |what: String| OpenError::Damaged { path: path.to_owned(), what };
    match told.recv_timeout(OPEN_LIMIT) {
        Ok(Ok(Ok(db))) => Ok(db),
        // sled's own lock, which is in the way for long only if somebody removed the directory's lock file.
        Ok(Ok(Err(error))) if is_locked(&error) => {
            let path = path.parent().unwrap_or(path).to_owned();
            Err(DirectoryError::InUse { path, holder: "another process".into() }.into())
        }
        Ok(Ok(Err(::sled::Error::Io(error)))) => Err(io(error)),
        Ok(Ok(Err(error))) => Err(damaged(error.to_string())),
        Ok(Err(_panic)) => Err(damaged("sled panicked while opening its files".into())),
        Err(mpsc::RecvTimeoutError::Timeout) => Err(OpenError::TimedOut { path: path.to_owned() }),
        Err(mpsc::RecvTimeoutError::Disconnected) => Err(damaged("sled's thread ended".into())),
    }
}

/// Opens sled, waiting a moment for its own lock: a process that dies gives the directory's lock and this one back in
/// no certain order, and sled's threads may let go of it after its last handle is gone.
pub(super) fn open_patiently(config: &::sled::Config) -> ::sled::Result<Db> {
    let mut waited = Duration::ZERO;
    loop {
        match config.open() {
            Err(error) if is_locked(&error) && waited < LOCK_PATIENCE => {
                std::thread::sleep(LOCK_STEP);
                waited += LOCK_STEP;
            }
            opened => return opened,
        }
    }
}

/// Whether somebody else holds sled's files. sled has no kind of error for it, only a text.
fn is_locked(error: &::sled::Error) -> bool {
    matches!(error, ::sled::Error::Io(error) if error.to_string().contains("could not acquire lock"))
}

/// Writes the facts about a new store, and its journal, durably.
fn initialise(db: &Db, path: &Path) -> Result<(), OpenError> {
    let io = |error| OpenError::Io { path: path.to_owned(), error };
    let damaged = |what: String| OpenError::Damaged { path: path.to_owned(), what };
    let id = random_name().map_err(io)?;
    let mut key = [0; 8];
    getrandom::fill(&mut key).map_err(std::io::Error::other).map_err(io)?;
    let key = u64::from_le_bytes(key);
    for slot in 0..SLOTS {
        Segment::make(path, slot, key, 0, FIRST_SECTORS).map_err(io)?;
    }
    let checkpoint = Checkpoint::first(key, [FIRST_SECTORS; SLOTS]);
    let checkpoint = checkpoint.seal().map_err(|broken| damaged(broken.to_string()))?;
    let write = |key: &[u8], body: &[u8]| db.insert(key, seal::seal(key, body));
    write(keys::FORMAT, &FORMAT.to_be_bytes())
        .and_then(|_old| write(keys::STORE_ID, id.as_bytes()))
        .and_then(|_old| db.insert(keys::CHECKPOINT, checkpoint))
        .and_then(|_old| db.flush())
        .map_err(|error| damaged(error.to_string()))?;
    for name in ["db", "conf"] {
        fs::File::open(path.join(name)).and_then(|file| file.sync_all()).map_err(io)?;
    }
    Ok(())
}

struct Facts {
    store_id: String,
    checkpoint: Checkpoint,
}

/// Reads what is known about the store itself.
fn read_facts(db: &Db, path: &Path) -> Result<Facts, OpenError> {
    let damaged = |what: String| OpenError::Damaged { path: path.to_owned(), what };
    let fact = |key: &'static [u8], name: &str| -> Result<Vec<u8>, OpenError> {
        let value = db.get(key).map_err(|error| damaged(format!("{name}: {error}")))?;
        let value = value.ok_or_else(|| damaged(format!("the record of {name} is missing")))?;
        seal::open(key, &value).map(<[u8]>::to_vec).map_err(|broken| damaged(format!("{name}: {broken}")))
    };
    let format = fact(keys::FORMAT, "the format")?;
    let format = format.try_into().map(u64::from_be_bytes);
    match format.map_err(|_length| damaged("the format: wrong length".into()))? {
        FORMAT => {}
        found => return Err(OpenError::Format { path: path.to_owned(), found }),
    }
    let store_id = String::from_utf8(fact(keys::STORE_ID, "the store's id")?);
    let store_id = store_id.map_err(|_text| damaged("the store's id is no text".into()))?;
    let checkpoint = Checkpoint::decode(&fact(keys::CHECKPOINT, "the checkpoint")?);
    let checkpoint = checkpoint.map_err(|broken| damaged(format!("the checkpoint: {broken}")))?;
    Ok(Facts { store_id, checkpoint })
}

#[derive(Default)]
struct Loaded {
    index: Index,
    ledger: Ledger,
    names: Interner,
    overflows: HashMap<TaskId, Vec<Vec<u8>>>,
    census: Census,
    floor: Timestamp,
}

impl Loaded {
    fn take(
        &mut self,
        place: ListPlace,
        head: &[u8],
        decode: impl Fn(&mut Interner) -> Result<Task, Broken>,
    ) -> Result<(), Broken> {
        let task = decode(&mut self.names)?;
        if ListPlace::of(&task) != place {
            return Err(Broken::Content);
        }
        self.census.add(place.id, head);
        self.floor = self.floor.max(task.updated_at);
        self.ledger.follow(None, Some(&task));
        self.index.publish(&Arc::new(task));
        Ok(())
    }
}

/// Reads all heads, the newer ones from the journal. Payloads are proved when they are read.
fn read_heads(db: &Db, path: &Path, layer: &Layer) -> Result<Loaded, OpenError> {
    let damaged = |what: String| OpenError::Damaged { path: path.to_owned(), what };
    let mut loaded = Loaded::default();
    for entry in db.scan_prefix([keys::HEAD]) {
        let (key, value) = entry.map_err(|error| damaged(format!("reading heads: {error}")))?;
        let place = keys::place_of(&key).filter(|_| key.len() == keys::HEAD_BYTES);
        let place = place.ok_or_else(|| damaged(format!("a head has a key of {} bytes", key.len())))?;
        let id = place.id;
        let wrong = |broken| damaged(format!("the head of task {id}: {broken}"));
        let stored = StoredHead::read(db, place, &key, &value);
        if layer.get(place).is_some() {
            // It is about to be written anew, so what is wrong with it does not matter; its pieces do.
            loaded
                .overflows
                .extend(stored.ok().filter(|head| !head.pieces.is_empty()).map(|head| (id, head.pieces)));
            continue;
        }
        let stored = stored.map_err(wrong)?;
        loaded.take(place, &stored.bytes, |names| stored.task(id, names)).map_err(wrong)?;
        if !stored.pieces.is_empty() {
            loaded.overflows.insert(id, stored.pieces);
        }
    }
    for (place, pending) in layer.iter() {
        let id = place.id;
        let Some(head) = &pending.head else { continue };
        loaded
            .take(place, head, |names| record::decode(id, head, names))
            .map_err(|broken| damaged(format!("the head of task {id} in the journal: {broken}")))?;
    }
    Ok(loaded)
}
