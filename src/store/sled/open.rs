//! Opening: from a directory to a store that serves.

use std::fs;
use std::path::{Path, PathBuf};

use ::sled::Db;
use task_broker_core::{OwnerFrom, TaskId, Timestamp};

use super::checkpoint::Checkpoint;
use super::database::{OPEN_LIMIT, bounded, open_sled, remove_stale_snapshots};
use super::directory::{Directory, DirectoryError};
use super::draft::Draft;
use super::index::Index;
use super::intern::Interner;
use super::journal::{SLOTS, Segment};
use super::ledger::Ledger;
use super::loading::{FORMAT, Facts, open_segments, read_all, read_facts, read_format, read_journal};
use super::migration;
use super::refusal::{Before, explained, place};
use super::tree::{Tree, TreeError};
use crate::store::random_name;

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
    /// What a new store is told about its subjects. One that exists keeps its own.
    pub owner_from: OwnerFrom,
    /// Write sled's file anew while the store serves, when it is larger than so many bytes and much larger than what it
    /// holds; never without a number.
    pub compact_above: Option<u64>,
}

impl SledOptions {
    /// The options with which the broker opens a store by default.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            existing_only: false,
            cache_bytes: 64 << 20,
            spare_bytes: 16 << 20,
            owner_from: OwnerFrom::default(),
            compact_above: Some(256 << 20),
        }
    }
}

/// Why a store cannot be opened. The text tells an operator where and what.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The directory.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    /// Stored data is missing or wrong.
    #[error(
        "the store in {} is damaged: {}: {what}. No acknowledged task was thrown away, but sled may have rewritten its \
         files: copy the directory before you try again; docs/when-something-is-wrong.md says what to do then",
        root_of(.path).display(),
        within(.path)
    )]
    Damaged {
        /// The generation, or a file in it.
        path: PathBuf,
        /// What is wrong, and where.
        what: String,
    },
    /// Written by another version of this program.
    #[error(
        "the store in {} ({}) has format {found}, this program knows format {FORMAT} and older ones: use the program that \
         wrote it, or a newer one",
        root_of(.path).display(),
        within(.path)
    )]
    Format {
        /// The generation.
        path: PathBuf,
        /// Its format.
        found: u64,
    },
    /// sled did not come back.
    #[error(
        "the store in {} ({}) did not open within {} s: sled hangs where its files are damaged",
        root_of(.path).display(),
        within(.path),
        OPEN_LIMIT.as_secs()
    )]
    TimedOut {
        /// The generation.
        path: PathBuf,
    },
    /// The disk is too full to write the store anew.
    #[error("no room to write the store in {} anew: {needed} bytes are needed and {free} are free", .path.display())]
    NoRoom {
        /// The data directory.
        path: PathBuf,
        /// How much is needed.
        needed: u64,
        /// How much there is.
        free: u64,
    },
    /// The disk has no room to open the store, or to make one.
    #[error("cannot open the store in {}: {place}{error}: {told}", .path.display())]
    Full {
        /// The data directory.
        path: PathBuf,
        /// What in it was being written.
        place: String,
        /// What the system said.
        error: std::io::Error,
        /// What is needed and what there was.
        told: String,
    },
    /// There are tasks where none may be.
    #[error("the store in {} is not empty: it has {tasks} tasks; import into an empty directory", .path.display())]
    NotEmpty {
        /// The data directory.
        path: PathBuf,
        /// How many.
        tasks: u64,
    },
    /// A task that is to be taken in is there already.
    #[error("task {0} comes twice")]
    Twice(TaskId),
    /// The operating system says no.
    #[error(
        "cannot open the store in {}: {}{error} (uid {})",
        root_of(.path).display(),
        place(.path.strip_prefix(root_of(.path)).unwrap_or(.path)),
        rustix::process::getuid().as_raw()
    )]
    Io {
        /// The generation, or a file in it.
        path: PathBuf,
        /// What the system said.
        error: std::io::Error,
    },
}

/// The data directory of a file or generation in it.
pub(super) fn root_of(path: &Path) -> &Path {
    let generation = path.ancestors().find(|part| is_generation(part));
    generation.and_then(Path::parent).unwrap_or(path)
}

/// The same as seen from the data directory.
fn within(path: &Path) -> String {
    path.strip_prefix(root_of(path)).unwrap_or(path).display().to_string()
}

fn is_generation(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("generation-"))
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
    pub(super) owner_from: OwnerFrom,
    pub(super) clean: bool,
    /// The highest time that was persisted.
    pub(super) floor: Timestamp,
    pub(super) fresh: bool,
    /// Beginnings of keys that no task names.
    pub(super) orphans: Vec<Vec<u8>>,
    /// What heads and payloads have, in bytes.
    pub(super) live_bytes: u64,
}

/// Opens the store, or says what is wrong with it.
pub(super) fn open(options: &SledOptions) -> Result<Opened, OpenError> {
    let before = Before::of(&options.path);
    open_or_make(options).map_err(|error| explained(error, &options.path, before))
}

fn open_or_make(options: &SledOptions) -> Result<Opened, OpenError> {
    let mut directory = Directory::hold(&options.path, options.existing_only)?;
    directory.discard_interrupted()?;
    let fresh = directory.fresh;
    if fresh {
        let id = random_name();
        let id = id.map_err(|error| OpenError::Io { path: directory.generation.clone(), error })?;
        Draft::new(&directory.generation, options.cache_bytes)?.finish(
            &id,
            options.owner_from,
            Timestamp::default(),
        )?;
        directory.complete()?;
    }
    let db = open_files(&directory.generation, options.cache_bytes)?;
    let db = migration::bring_up(&mut directory, db, options.cache_bytes)?;
    let mut opened = open_generation(directory, db)?;
    opened.fresh = fresh;
    // Now that this one is proved, what was before it is not needed.
    opened.directory.tidy()?;
    Ok(opened)
}

/// Opens sled's files, and nothing more.
pub(super) fn open_files(generation: &Path, cache_bytes: u64) -> Result<Db, OpenError> {
    remove_stale_snapshots(generation)?;
    open_sled(generation, cache_bytes)
}

/// Proves that the generation in use holds what it must, and lets sled follow its journal.
pub(super) fn open_generation(directory: Directory, db: Db) -> Result<Opened, OpenError> {
    let path = directory.generation.clone();
    let damaged = |what: String| OpenError::Damaged { path: path.clone(), what };
    let io = |error| OpenError::Io { path: path.clone(), error };
    match bounded(&path, || read_format(&db, &path))? {
        FORMAT => {}
        found => return Err(OpenError::Format { path, found }),
    }
    let facts = bounded(&path, || read_facts(&db, &path))?;
    let segments = open_segments(&path, &facts.checkpoint)?;
    let replayed = read_journal(&segments, &facts)?;
    let Facts { store_id, owner_from, mut checkpoint, .. } = facts;
    let loaded = read_all(&db, &path, &replayed.layer)?;
    let (census, clock) = replayed.newest.unwrap_or((checkpoint.census, checkpoint.clock()));
    if let Some(what) = census.misses(loaded.census) {
        return Err(damaged(what));
    }
    if has_blobs(&path) {
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
    if let Err(error) = tree.carry(&replayed.layer, |_| Ok(())).and_then(|()| tree.checkpoint(&checkpoint)) {
        leave_open(&db);
        return Err(failed(&path, error));
    }
    Ok(Opened {
        directory,
        db,
        tree,
        segments,
        checkpoint,
        index: loaded.index,
        ledger: loaded.ledger,
        names: loaded.names,
        store_id,
        owner_from,
        clean,
        floor: loaded.floor.max(checkpoint.clock()),
        fresh: false,
        orphans: loaded.orphans,
        live_bytes: loaded.live_bytes,
    })
}

/// What went wrong while writing to sled. A disk that fails is not a store that is damaged.
pub(super) fn failed(path: &Path, error: TreeError) -> OpenError {
    let path = path.to_owned();
    match error {
        TreeError::Sync(error) | TreeError::Sled(::sled::Error::Io(error)) => OpenError::Io { path, error },
        other => OpenError::Damaged { path, what: other.to_string() },
    }
}

/// Lets nobody close sled's files: it flushes them then, and panics where the disk has just failed. The process is about
/// to end.
pub(super) fn leave_open(db: &Db) {
    std::mem::forget(db.clone());
}

/// Whether sled has made files that it never syncs.
pub(super) fn has_blobs(generation: &Path) -> bool {
    fs::read_dir(generation.join("blobs")).is_ok_and(|mut blobs| blobs.next().is_some())
}
