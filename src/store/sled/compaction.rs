//! Writing a store anew that nobody uses, so that its files are as large as what they hold. (A broker does it while it
//! serves: [`super::renewer`].)

use std::path::Path;

use bytes::Bytes;

use super::database::{bounded, sled_says};
use super::directory::{Directory, abandon, free_bytes};
use super::draft::Draft;
use super::keys;
use super::open::{OpenError, Opened, SledOptions, open, open_files, open_generation};
use super::stored::{Stored, read_payload};

/// What a compaction did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compacted {
    /// How many tasks there are.
    pub tasks: u64,
    /// What heads and payloads have, in bytes.
    pub live_bytes: u64,
    /// The size of the old generation, in bytes.
    pub before: u64,
    /// The size of the new one.
    pub after: u64,
}

/// What a compaction is about to need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompactionPlan {
    /// How many tasks there are.
    pub tasks: u64,
    /// What heads and payloads have, in bytes.
    pub live_bytes: u64,
    /// The size of the generation in use, in bytes.
    pub before: u64,
    /// How much room is needed beside it, in bytes, at most.
    pub needed: u64,
    /// How much there is.
    pub free: u64,
}

/// The places at which a compaction can be cut, for whoever watches it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// There is a new, empty generation.
    Begun,
    /// So many tasks are in it.
    Copied(u64),
    /// It is complete, durable and proved.
    Proved,
    /// CURRENT names it.
    Turned,
    /// It was opened; the old one is going to be removed.
    Opened,
    /// The old one is gone.
    Removed,
}

/// What a file, or a generation, takes on the disk, in bytes.
pub(super) fn size_of(path: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt as _;
    let size = |path: &Path| std::fs::metadata(path).map_or(0, |file| file.blocks() * 512);
    match std::fs::read_dir(path) {
        Ok(entries) => entries.flatten().map(|entry| size(&entry.path())).sum(),
        Err(_no_directory) => size(path),
    }
}

/// The room that a new generation with so much in it may take: sled writes bulk loads at up to twice their size, and more
/// than a kilobyte for each task of a hundred bytes (measured: 20,000 of them took 27 MB, 150 MB of large ones 280 MB).
pub(super) fn room_for(tasks: u64, live_bytes: u64) -> u64 {
    live_bytes.saturating_mul(2).saturating_add(tasks.saturating_mul(1536)).saturating_add(64 << 20)
}

impl CompactionPlan {
    fn of(opened: &Opened) -> Result<Self, OpenError> {
        let root = &opened.directory.root;
        let free = free_bytes(root).map_err(|error| OpenError::Io { path: root.clone(), error })?;
        let (tasks, live_bytes) = (opened.checkpoint.census.count, opened.live_bytes);
        let generation = &opened.directory.generation;
        let before = size_of(generation);
        Ok(Self { tasks, live_bytes, before, needed: room_for(tasks, live_bytes), free })
    }

    pub(super) fn has_room(&self) -> bool {
        self.free >= self.needed
    }
}

/// Compacts a store that nobody uses. `tell` is called before anything is written.
///
/// # Errors
/// [`OpenError`]; the store is as it was then.
pub fn compact(options: &SledOptions, tell: impl FnOnce(&CompactionPlan)) -> Result<Compacted, OpenError> {
    let options = SledOptions { existing_only: true, ..options.clone() };
    let opened = open(&options)?;
    let plan = CompactionPlan::of(&opened)?;
    tell(&plan);
    if !plan.has_room() {
        let path = options.path;
        return Err(OpenError::NoRoom { path, needed: plan.needed, free: plan.free });
    }
    let compacted = rewrite(opened, options.cache_bytes, &mut |_| {})?;
    let after = size_of(&compacted.directory.generation);
    drop(compacted.leave()?);
    Ok(Compacted { tasks: plan.tasks, live_bytes: plan.live_bytes, before: plan.before, after })
}

/// Copies all tasks into a new generation, proves it, makes it the current one, opens it, and removes the old one.
pub(super) fn rewrite(
    opened: Opened,
    cache_bytes: u64,
    step: &mut dyn FnMut(Step),
) -> Result<Opened, OpenError> {
    let path = opened.directory.draft()?;
    step(Step::Begun);
    if let Err(error) = copy(&opened, &path, cache_bytes, step) {
        abandon(&path);
        return Err(error);
    }
    step(Step::Proved);
    let mut directory = opened.close();
    directory.turn_to(path)?;
    step(Step::Turned);
    let db = open_files(&directory.generation, cache_bytes)?;
    let opened = open_generation(directory, db)?;
    step(Step::Opened);
    opened.directory.tidy()?;
    step(Step::Removed);
    Ok(opened)
}

fn copy(opened: &Opened, path: &Path, cache_bytes: u64, step: &mut dyn FnMut(Step)) -> Result<(), OpenError> {
    let generation = &opened.directory.generation;
    let damaged = |what: String| OpenError::Damaged { path: generation.clone(), what };
    let mut draft = Draft::new(path, cache_bytes)?;
    bounded(generation, || {
        let mut copied = 0;
        for entry in opened.db.scan_prefix([keys::HEAD]) {
            let (key, value) = entry.map_err(|error| damaged(sled_says(&error)))?;
            let place = keys::place_of(&key).ok_or_else(|| damaged("a head has a wrong key".into()))?;
            let id = place.id;
            let broken = |broken| damaged(format!("task {id}: {broken}"));
            let stored = Stored::read(&opened.db, place, &key, &value).map_err(broken)?;
            let bundle = stored.bundle().map_err(broken)?;
            let task = opened.index.get(id).ok_or_else(|| damaged(format!("task {id} is not known")))?;
            let read = |payload: &_| {
                let missing = || damaged(format!("a payload of task {id} is missing"));
                let bytes = if keys::is_small(payload) {
                    bundle.get(payload).map(Bytes::copy_from_slice)
                } else {
                    read_payload(&opened.db, place, payload).map_err(|error| damaged(error.to_string()))?
                };
                Ok::<_, OpenError>((*payload, bytes.ok_or_else(missing)?))
            };
            let payloads = task.payloads().map(read).collect::<Result<_, _>>()?;
            draft.put(place, Bytes::copy_from_slice(bundle.head), payloads)?;
            copied += 1;
            step(Step::Copied(copied));
        }
        Ok(())
    })?;
    let census = draft.finish(&opened.store_id, opened.owner_from, opened.floor)?;
    match opened.checkpoint.census.misses(census) {
        Some(what) => Err(damaged(what)),
        None => Ok(()),
    }
}

impl Opened {
    /// Lets go of the files and of everything in memory; the directory stays held.
    fn close(self) -> Directory {
        self.directory
    }

    /// Lets go of a store that was opened and not served: its next start finds it as clean as this one did.
    /// The directory stays held.
    pub(super) fn leave(mut self) -> Result<Directory, OpenError> {
        let path = self.directory.generation.clone();
        self.checkpoint.clean = self.clean;
        let marked = self.tree.checkpoint(&self.checkpoint);
        marked.map_err(|error| OpenError::Damaged { path, what: error.to_string() })?;
        Ok(self.directory)
    }
}
