//! Looking at everything in a store without changing a byte of it.
//!
//! sled 0.34.7 cannot open files without the right to change them: it writes snapshots, repairs its tail and creates
//! what is missing. So it is given a private copy of the generation; the store itself is only ever opened for reading.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use ::sled::Db;
use task_broker_core::TaskId;

use super::census::Census;
use super::compaction::size_of;
use super::database::{bounded, open_sled, remove_stale_snapshots, sled_says};
use super::directory::{DirectoryError, free_bytes, is_remnant, watch};
use super::journal::{Replayed, replay};
use super::loading::{FORMAT, Facts, Loaded, newest_file, open_segments, read_facts, read_format};
use super::migration::older::{Fault, Take};
use super::migration::{format_1, format_2};
use super::open::{OpenError, has_blobs};
use super::overlay::Layer;
use super::stored::read_payload;
use super::tree::Tree;
use super::{keys, reached, seal};
use crate::store::{ListPlace, StoreError, random_name};

/// Room that is left alone where the copy is made, in bytes.
const SPARE_BYTES: u64 = 64 << 20;

/// How a store is checked.
#[derive(Clone, Debug)]
pub struct CheckOptions {
    /// The data directory.
    pub path: PathBuf,
    /// Where the private copy is made, and removed again.
    pub scratch: PathBuf,
    /// sled's cache in bytes.
    pub cache_bytes: u64,
}

/// Why a store could not be looked at. Nothing is said about its state.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// The directory.
    #[error(transparent)]
    Directory(DirectoryError),
    /// There is no room for the copy.
    #[error(
        "the copy that is checked needs {needed} bytes in {}, and {free} are free; name another directory with \
         --scratch", .scratch.display()
    )]
    NoRoom {
        /// Where.
        scratch: PathBuf,
        /// How much is needed.
        needed: u64,
        /// How much there is.
        free: u64,
    },
    /// It could not be copied.
    #[error(
        "cannot copy the store to {}: {error} (uid {})", .scratch.display(), rustix::process::getuid().as_raw()
    )]
    Copy {
        /// Where.
        scratch: PathBuf,
        /// What the system said.
        error: std::io::Error,
    },
    /// It did not open, and not because it is damaged.
    #[error(transparent)]
    Open(OpenError),
}

/// What was looked at, and what was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// The name of the generation in use.
    pub generation: String,
    /// The id of the store.
    pub store_id: String,
    /// The version of its layout; 0 if it is not known.
    pub format: u64,
    /// Whether the last stop was clean.
    pub clean: bool,
    /// Tasks whose heads are good.
    pub tasks: u64,
    /// The exclusive or of a hash of each head: with the number of tasks, what the store must hold.
    pub digest: u128,
    /// Payloads that are good.
    pub payloads: u64,
    /// Their bytes.
    pub payload_bytes: u64,
    /// Groups in the journal that sled does not have yet.
    pub frames: u64,
    /// Where and how much a crash has torn off the journal before anybody was told of it; the next start cuts it off.
    pub torn: Option<String>,
    /// Records that no task names any more. They are no damage; a start removes them.
    pub orphans: u64,
    /// Their bytes.
    pub orphan_bytes: u64,
    /// How many faults there are.
    pub faults: u64,
}

/// Looks at everything, and tells each fault as it is found.
///
/// # Errors
/// [`CheckError`] when it cannot look.
pub fn check(options: &CheckOptions, tell: &mut dyn FnMut(&str)) -> Result<Checked, CheckError> {
    let mut found = Finding { checked: Checked::default(), tell };
    let watched = match watch(&options.path) {
        Ok(watched) => watched,
        // Where nothing speaks of a store there is none to be damaged.
        Err(DirectoryError::NotAStore(root)) if !is_remnant(&root) => {
            return Err(CheckError::Directory(DirectoryError::NotAStore(root)));
        }
        Err(error @ (DirectoryError::NoGeneration { .. } | DirectoryError::NotAStore(_))) => {
            found.fault(&error.to_string());
            return Ok(found.checked);
        }
        Err(error) => return Err(CheckError::Directory(error)),
    };
    let name = watched.generation.file_name().unwrap_or_default().to_string_lossy().into_owned();
    found.checked.generation.clone_from(&name);
    let copy = Copied::make(&watched.generation, &options.scratch)?;
    let generation = copy.0.join(&name);
    match open(&generation, options.cache_bytes) {
        Ok(db) => found.look(&db, &generation)?,
        Err(OpenError::Damaged { what, .. }) => found.fault(&what),
        Err(OpenError::TimedOut { .. }) => found.fault("sled hangs while opening db"),
        Err(other) => return Err(CheckError::Open(other)),
    }
    Ok(found.checked)
}

fn open(generation: &Path, cache_bytes: u64) -> Result<Db, OpenError> {
    remove_stale_snapshots(generation)?;
    open_sled(generation, cache_bytes)
}

/// The private copy, removed when dropped.
struct Copied(PathBuf);

impl Copied {
    fn make(generation: &Path, scratch: &Path) -> Result<Self, CheckError> {
        let failed = |error| CheckError::Copy { scratch: scratch.to_owned(), error };
        let needed = size_of(generation).saturating_mul(5) / 4 + SPARE_BYTES;
        let free = free_bytes(scratch).map_err(failed)?;
        if free < needed {
            return Err(CheckError::NoRoom { scratch: scratch.to_owned(), needed, free });
        }
        let name = random_name().map_err(failed)?;
        let copy = scratch.join(format!("task-broker-check-{name}"));
        DirBuilder::new().mode(0o700).create(&copy).map_err(failed)?;
        let copied = Self(copy);
        let inside = copied.0.join(generation.file_name().unwrap_or_default());
        copy_directory(generation, &inside).map_err(failed)?;
        Ok(copied)
    }
}

impl Drop for Copied {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            tracing::warn!(%error, path = %self.0.display(), "the private copy could not be removed");
        }
    }
}

fn copy_directory(from: &Path, to: &Path) -> io::Result<()> {
    DirBuilder::new().mode(0o700).create(to)?;
    for entry in fs::read_dir(from)? {
        let path = entry?.path();
        let target = to.join(path.file_name().unwrap_or_default());
        if path.is_dir() {
            copy_directory(&path, &target)?;
        } else {
            let named =
                |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
            fs::copy(&path, &target).map_err(named)?;
            // A store that was set read-only is checked too, and sled writes to its copy.
            fs::set_permissions(&target, std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
        }
    }
    Ok(())
}

/// What was found so far.
struct Finding<'a> {
    checked: Checked,
    tell: &'a mut dyn FnMut(&str),
}

impl Finding<'_> {
    fn fault(&mut self, what: &str) {
        self.checked.faults += 1;
        let generation = &self.checked.generation;
        (self.tell)(&if generation.is_empty() { what.to_owned() } else { format!("{generation}: {what}") });
    }

    /// Takes the good, or tells the fault.
    fn good<T>(&mut self, result: Result<T, OpenError>) -> Result<Option<T>, CheckError> {
        match result {
            Ok(good) => Ok(Some(good)),
            Err(OpenError::Damaged { what, .. }) => {
                self.fault(&what);
                Ok(None)
            }
            Err(other) => Err(CheckError::Open(other)),
        }
    }

    fn look(&mut self, db: &Db, path: &Path) -> Result<(), CheckError> {
        if has_blobs(path) {
            self.fault("there are files in blobs/, which this program never makes");
        }
        let format = self.good(bounded(path, || read_format(db, path)))?;
        self.checked.format = format.unwrap_or_default();
        match format {
            Some(format_1::FORMAT) => {
                // It has no count of its tasks to be held against.
                return self.look_at_older(path, |fault, take| format_1::for_each(db, fault, take)).map(drop);
            }
            Some(found) if found != FORMAT && found != format_2::FORMAT => {
                return Err(CheckError::Open(OpenError::Format { path: path.to_owned(), found }));
            }
            Some(_) | None => {}
        }
        let facts = self.good(bounded(path, || read_facts(db, path)))?;
        let mut journal = None;
        if let Some(facts) = &facts {
            self.checked.store_id.clone_from(&facts.store_id);
            journal = self.look_at_journal(path, facts)?;
        }
        let census = journal.as_ref().zip(facts.as_ref()).map(|(replayed, facts)| {
            self.checked.clean = facts.checkpoint.clean && replayed.frames == 0;
            replayed.newest.map_or(facts.checkpoint.census, |(census, _)| census)
        });
        let layer = journal.map(|replayed| replayed.layer).unwrap_or_default();
        if format == Some(format_2::FORMAT) {
            let found =
                self.look_at_older(path, |fault, take| format_2::for_each(db, &layer, fault, take))?;
            // A task that could not be read is missing in the count, and was told.
            let missed = census.filter(|_| self.checked.faults == 0).and_then(|census| census.misses(found));
            if let Some(what) = missed {
                self.fault(&what);
            }
            return Ok(());
        }
        let loaded = self.look_at_heads(db, path, &layer);
        (self.checked.tasks, self.checked.digest) = (loaded.census.count, loaded.census.digest);
        if let Some(what) = census.and_then(|census| census.misses(loaded.census)) {
            self.fault(&what);
        }
        self.look_at_the_rest(db, path, loaded, &layer)
    }

    fn look_at_journal(
        &mut self,
        path: &Path,
        Facts { checkpoint, reached, .. }: &Facts,
    ) -> Result<Option<Replayed>, CheckError> {
        let Some(segments) = self.good(open_segments(path, checkpoint))? else { return Ok(None) };
        let name = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        match replay(&segments, checkpoint.key, checkpoint.position) {
            Err((path, error)) => Err(CheckError::Open(OpenError::Io { path, error })),
            Ok(Err(damage)) => {
                self.fault(&format!("{}, offset {}: {}", name(&damage.path), damage.offset, damage.what));
                Ok(None)
            }
            Ok(Ok(replayed)) => {
                if let Some(what) = reached::missing(*reached, &replayed) {
                    self.fault(&format!("{}: {what}", name(newest_file(&segments, *reached))));
                }
                self.checked.frames = replayed.frames;
                let torn = replayed.cut.as_ref();
                self.checked.torn = torn
                    .map(|cut| format!("{}, offset {}, {} bytes", name(&cut.path), cut.offset, cut.length));
                Ok(Some(replayed))
            }
        }
    }

    fn look_at_heads(&mut self, db: &Db, path: &Path, layer: &Layer) -> Loaded {
        let mut loaded = Loaded::default();
        let read = bounded(path, || {
            loaded.read(db, layer, &mut |what| {
                self.fault(&what);
                Ok::<_, OpenError>(())
            })
        });
        if read.is_err() {
            self.fault("sled panicked while heads were read; those behind that place were not looked at");
        }
        loaded
    }

    /// Payloads, and what nobody names. The private copy follows the journal first, as a start would let it.
    fn look_at_the_rest(
        &mut self,
        db: &Db,
        path: &Path,
        loaded: Loaded,
        layer: &Layer,
    ) -> Result<(), CheckError> {
        let Loaded { index, overflows, .. } = loaded;
        let tree = Tree::new(db.clone(), path, overflows);
        let mut tree =
            tree.map_err(|error| CheckError::Open(OpenError::Io { path: path.to_owned(), error }))?;
        if let Err(error) = tree.carry(layer, |_| Ok(())) {
            self.fault(&format!("the journal cannot be carried over: {error}"));
        }
        for id in index.all() {
            let Some(task) = index.get(id) else { continue };
            for payload in task.payloads() {
                match read_payload(db, ListPlace::of(&task), payload) {
                    Ok(Some(bytes)) => {
                        self.checked.payloads += 1;
                        self.checked.payload_bytes += bytes.len() as u64;
                    }
                    Ok(None) => {
                        let (revision, place) = (payload.revision, payload.place());
                        self.fault(&format!("payload {revision}/{place} of task {id} is missing"));
                    }
                    Err(StoreError::Damaged { place }) => self.fault(&place),
                    Err(other) => self.fault(&format!("a payload of task {id}: {other}")),
                }
            }
        }
        let walked = bounded(path, || {
            for entry in db.iter() {
                match entry {
                    Ok((key, value)) => {
                        self.look_at_record(&tree, &key, &value, |id| index.get(id));
                    }
                    Err(error) => {
                        self.fault(&format!("reading all records: {}", sled_says(&error)));
                        break;
                    }
                }
            }
            Ok(())
        });
        if walked.is_err() {
            self.fault("sled panicked while all records were read");
        }
        Ok(())
    }

    fn look_at_record(
        &mut self,
        tree: &Tree,
        key: &[u8],
        value: &[u8],
        find: impl Fn(TaskId) -> Option<std::sync::Arc<task_broker_core::Task>>,
    ) {
        match key.first() {
            Some(&keys::HEAD) => {}
            Some(kind) if keys::NAMED_BY_HEADS.contains(kind) => {
                if !tree.is_named(key, &find) {
                    self.checked.orphans += 1;
                    self.checked.orphan_bytes += (key.len() + value.len()) as u64;
                }
            }
            Some(b'm') => {
                if let Err(broken) = seal::open(key, value) {
                    self.fault(&format!("the record {}: {broken}", key.escape_ascii()));
                }
            }
            Some(_) | None => self.fault(&format!("a record of an unknown kind: {}", key.escape_ascii())),
        }
    }

    /// Formats that this program migrates. Gives the census of what could be read.
    fn look_at_older(
        &mut self,
        path: &Path,
        for_each: impl FnOnce(&mut Fault<'_>, &mut Take<'_>) -> Result<(), OpenError>,
    ) -> Result<Census, CheckError> {
        let (mut census, mut payloads, mut payload_bytes) = (Census::default(), 0, 0);
        let read = bounded(path, || {
            let mut fault = |what: String| {
                self.fault(&what);
                Ok(())
            };
            for_each(&mut fault, &mut |record| {
                census.add(record.place.id, &record.head);
                payloads += record.payloads.len() as u64;
                payload_bytes += record.payloads.iter().map(|(_, bytes)| bytes.len() as u64).sum::<u64>();
                Ok(())
            })
        });
        self.good(read)?;
        let checked = &mut self.checked;
        (checked.tasks, checked.digest) = (census.count, census.digest);
        (checked.payloads, checked.payload_bytes) = (payloads, payload_bytes);
        Ok(census)
    }
}
