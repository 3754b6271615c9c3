//! The thread that lets sled follow the journal.
//!
//! It takes over a layer of the overlay when its generation of the journal is full, carries it into sled, and writes the
//! checkpoint that frees the generation's file. In between it removes orphans. It alone writes to sled while the store is open, so
//! whether a key is an orphan is decided and acted upon in one place.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};
use task_broker_core::Timestamp;

use super::census::Census;
use super::checkpoint::Checkpoint;
use super::database::OPEN_LIMIT;
use super::directory;
use super::journal::{Position, SECTOR, Segment, slot_of};
use super::orphans::Orphans;
use super::overlay::{Layer, Overlay};
use super::reached::NOTE_EVERY;
use super::renewer::{self, Renewer};
use super::tree::{Tree, TreeError, bounded};
use super::writer::{STUCK_MS, Shared};
use crate::clock::Stopwatch;

/// How long it may get nowhere in a step of a renewal, in milliseconds. One of them opens a copy, which has a limit of its own.
const STUCK_RENEWING_MS: u64 = OPEN_LIMIT.as_secs() * 1000 + STUCK_MS;

/// How long it rests between two steps of what nobody waits for.
const REST: Duration = Duration::from_millis(1);

/// How long there must be nothing to carry before a renewal begins. Under a load that gives it more to carry all the time,
/// the copy would be as full of garbage as the original when it is done, and both would grow meanwhile: measured with
/// steps after each layer, the directory had 10.8 times the live bytes instead of 4.9 (`bench turnover`).
const QUIET: Duration = Duration::from_millis(500);

/// How long it works at a time while nobody waits for it, and how long it rests then. Whoever removes a million tasks must
/// leave the processors to those who read (`bench expiry`).
const STINT: Duration = Duration::from_micros(100);
const PAUSE: Duration = Duration::from_micros(500);

/// How often a disk without room is looked at again.
const ROOM_EVERY: Duration = Duration::from_secs(1);
/// After how many tasks the room is looked at.
const LOOK_EVERY: u32 = 64;

/// How large the files of the journal grow by themselves, in sectors: 16 MiB each. A larger journal lets more changes of
/// one task come to sled as one, and takes more memory and a longer start after a crash.
const FULL_SECTORS: u64 = (16 << 20) / SECTOR as u64;
/// They grow only where so many times the new length is free.
const GROWTH_ROOM: u64 = 8;

/// What the follower is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// It has followed.
    Idle,
    /// It is following.
    Working,
    /// It waits for room on the disk.
    NoRoom,
    /// It has ended, as it was told to.
    Ended,
    /// It has failed, for good.
    Failed,
}

/// Why the writer cannot go on.
#[derive(Debug, thiserror::Error)]
pub(super) enum Stopped {
    /// For now.
    #[error("there is no room on the disk")]
    NoRoom,
    #[error("sled has failed; the log says how")]
    Failed,
    #[error("sled does not come back")]
    Stuck,
}

enum Work {
    Carry {
        layer: Arc<Layer>,
        position: Position,
        census: Census,
        clock: Timestamp,
        last: bool,
    },
    Enlarge {
        slot: usize,
        sectors: u64,
    },
    Close,
    /// End without a word in the checkpoint.
    Abandon,
}

struct State {
    work: Option<Work>,
    stage: Stage,
    /// A file of the journal that was made anew.
    remade: Option<(usize, Segment)>,
    /// Where the journal's files are now, if they have got other names.
    moved: Option<PathBuf>,
    /// Do not wait for room any more.
    give_up: bool,
}

/// What writer, follower and probes share.
pub(super) struct Line {
    state: Mutex<State>,
    changed: Condvar,
    /// When the follower last got anywhere, in milliseconds of the store's clock.
    progress: AtomicU64,
    /// It is in a step of a renewal.
    renewing: AtomicBool,
    /// Somebody waits until it has followed.
    awaited: AtomicBool,
    /// The newest frame that is durable.
    durable: Mutex<Position>,
}

impl std::fmt::Debug for Line {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Line").field("stage", &self.stage()).finish_non_exhaustive()
    }
}

impl Stage {
    /// Its word in [`crate::store::FOLLOWER_STAGES`].
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Working => "working",
            Self::NoRoom => "no_room",
            Self::Ended => "ended",
            Self::Failed => "failed",
        }
    }
}

impl Line {
    /// What the follower is doing.
    pub(super) fn stage(&self) -> Stage {
        self.state.lock().stage
    }

    /// Whether it has got nowhere for too long.
    pub(super) fn is_stuck(&self, now: Timestamp) -> bool {
        let since = Timestamp::from_millis(self.progress.load(Ordering::Acquire));
        let limit = if self.renewing.load(Ordering::Acquire) { STUCK_RENEWING_MS } else { STUCK_MS };
        self.stage() == Stage::Working && now.saturating_since(since) > limit
    }

    fn set(&self, locked: &mut MutexGuard<'_, State>, stage: Stage) {
        locked.stage = stage;
        self.changed.notify_all();
    }
}

/// The writer's hold on the follower.
#[derive(Debug)]
pub(super) struct Follower {
    line: Arc<Line>,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Follower {
    /// Starts the thread.
    pub(super) fn start(
        tree: Tree,
        overlay: Arc<Overlay>,
        shared: Arc<Shared>,
        checkpoint: Checkpoint,
        spare_bytes: u64,
        orphans: Orphans,
        renewer: Renewer,
    ) -> std::io::Result<Self> {
        let state = State { work: None, stage: Stage::Idle, remade: None, moved: None, give_up: false };
        let line = Arc::new(Line {
            state: Mutex::new(state),
            changed: Condvar::new(),
            progress: AtomicU64::new(shared.clock.now().as_millis()),
            renewing: AtomicBool::new(false),
            awaited: AtomicBool::new(false),
            durable: Mutex::new(checkpoint.position),
        });
        let thread = Thread {
            tree,
            overlay,
            shared: Arc::clone(&shared),
            line: Arc::clone(&line),
            checkpoint,
            spare_bytes,
            orphans,
            renewer,
            noted: Noted { position: checkpoint.position, time: Stopwatch::start() },
        };
        let thread = std::thread::Builder::new().name("store-follower".into()).spawn(move || thread.run())?;
        Ok(Self { line, shared, thread: Some(thread) })
    }

    /// For probes.
    pub(super) fn line(&self) -> Arc<Line> {
        Arc::clone(&self.line)
    }

    /// Tells how far the journal has come, durably.
    pub(super) fn has_come_to(&self, position: Position) {
        *self.line.durable.lock() = position;
    }

    /// Whether it has followed.
    pub(super) fn is_idle(&self) -> bool {
        self.line.stage() == Stage::Idle
    }

    /// Waits until it has followed, as long as it gets on.
    pub(super) fn settle(&self) -> Result<(), Stopped> {
        self.line.awaited.store(true, Ordering::Release);
        let mut state = self.line.state.lock();
        loop {
            match state.stage {
                Stage::Idle => return Ok(()),
                Stage::NoRoom => return Err(Stopped::NoRoom),
                Stage::Failed | Stage::Ended => return Err(Stopped::Failed),
                Stage::Working => {}
            }
            self.line.changed.wait_for(&mut state, Duration::from_secs(1));
            let stuck = MutexGuard::unlocked(&mut state, || self.line.is_stuck(self.shared.clock.now()));
            if stuck {
                return Err(Stopped::Stuck);
            }
        }
    }

    fn hand_over(&self, work: Work) {
        let mut state = self.line.state.lock();
        self.line.progress.store(self.shared.clock.now().as_millis(), Ordering::Release);
        self.line.awaited.store(false, Ordering::Release);
        state.work = Some(work);
        self.line.set(&mut state, Stage::Working);
    }

    /// Lets it carry a layer. It must have settled. `last` says that no other will come.
    pub(super) fn carry(
        &self,
        layer: Arc<Layer>,
        position: Position,
        census: Census,
        clock: Timestamp,
        last: bool,
    ) {
        self.hand_over(Work::Carry { layer, position, census, clock, last });
    }

    /// Lets it make a file of the journal anew, with at least so many sectors, and waits for it. It must have settled,
    /// and the file must not be in use.
    pub(super) fn enlarge(&self, slot: usize, sectors: u64) -> Result<(), Stopped> {
        self.hand_over(Work::Enlarge { slot, sectors });
        self.settle()?;
        if self.line.state.lock().remade.is_some() { Ok(()) } else { Err(Stopped::NoRoom) }
    }

    /// A file of the journal that was made anew since this was last asked.
    pub(super) fn take_remade(&self) -> Option<(usize, Segment)> {
        self.line.state.lock().remade.take()
    }

    /// Where the journal's files are, if they have got other names since this was last asked.
    pub(super) fn take_moved(&self) -> Option<PathBuf> {
        self.line.state.lock().moved.take()
    }

    /// Ends the thread, and waits for that: then nothing holds sled's files but readers. What was not carried stays in
    /// the journal.
    pub(super) fn close(&mut self) -> Result<(), Stopped> {
        let settled = self.settle();
        {
            let mut state = self.line.state.lock();
            state.give_up = true;
            state.work.get_or_insert(Work::Close);
            self.line.changed.notify_all();
        }
        if matches!(settled, Err(Stopped::Stuck)) {
            // It may never come back; the process is ending.
            return settled;
        }
        if let Some(thread) = self.thread.take() {
            thread.join().map_err(|_panic| Stopped::Failed)?;
        }
        if self.line.stage() == Stage::Failed { Err(Stopped::Failed) } else { settled }
    }
}

impl Drop for Follower {
    /// Only where nobody has closed it: the writer has failed. What was not carried is in the journal.
    fn drop(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        {
            let mut state = self.line.state.lock();
            state.give_up = true;
            state.work = Some(Work::Abandon);
            self.line.changed.notify_all();
        }
        if !self.line.is_stuck(self.shared.clock.now()) {
            // Whoever opens the store next must find sled's files closed. How the thread ended does not matter here.
            drop(thread.join());
        }
    }
}

/// The thread itself.
struct Thread {
    tree: Tree,
    overlay: Arc<Overlay>,
    shared: Arc<Shared>,
    line: Arc<Line>,
    checkpoint: Checkpoint,
    /// Room on the disk that is left alone. sled must never meet a full disk: its error would stay until a restart. It
    /// writes at most 1 MiB between two looks, and now and then a segment of 4 MiB or a snapshot.
    spare_bytes: u64,
    orphans: Orphans,
    renewer: Renewer,
    noted: Noted,
}

/// How far the journal had come when that was noted last, or, with an older time, when it was opened.
struct Noted {
    position: Position,
    time: Stopwatch,
}

impl Noted {
    /// Notes how far the journal has come, if that is due.
    fn follow(&mut self, tree: &mut Tree, line: &Line, spare_bytes: u64) -> Result<(), TreeError> {
        if self.time.elapsed() < NOTE_EVERY {
            return Ok(());
        }
        let durable = *line.durable.lock();
        if durable != self.position && has_room(tree, spare_bytes) {
            tree.note(&durable)?;
            self.position = durable;
        }
        self.time = Stopwatch::start();
        Ok(())
    }
}

/// Whether there is room for what nobody waits for.
fn has_room(tree: &mut Tree, spare_bytes: u64) -> bool {
    let free = directory::free_bytes(tree.path()).is_ok_and(|room| room >= spare_bytes);
    free && tree.hold_room().unwrap_or(false)
}

/// Says that the thread has failed, however it ends, unless it has said something better.
struct OnExit(Arc<Line>);

impl Drop for OnExit {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        if state.stage != Stage::Ended {
            self.0.set(&mut state, Stage::Failed);
        }
    }
}

impl Thread {
    fn run(mut self) {
        let on_exit = OnExit(Arc::clone(&self.line));
        let ended = self.work();
        self.renewer.end(&mut self.tree);
        let file = self.tree.path().to_owned();
        // sled's files are closed before anybody is told.
        drop(self);
        match ended {
            Ok(()) => {
                let mut state = on_exit.0.state.lock();
                on_exit.0.set(&mut state, Stage::Ended);
            }
            Err(TreeError::NoRoom) => {
                tracing::warn!("stopped without room on the disk: the journal keeps what sled does not have");
                let mut state = on_exit.0.state.lock();
                on_exit.0.set(&mut state, Stage::Ended);
            }
            Err(error) => tracing::error!(%error, file = %file.display(), "sled cannot follow the journal"),
        }
    }

    fn work(&mut self) -> Result<(), TreeError> {
        loop {
            match self.next()? {
                Work::Carry { layer, position, census, clock, last } => {
                    self.carry(&layer, position, census, clock)?;
                    self.overlay.forget();
                    if !last {
                        self.grow(position.generation)?;
                    }
                }
                Work::Enlarge { slot, sectors } => self.remake(slot, sectors)?,
                Work::Close => return self.close(),
                Work::Abandon => return Ok(()),
            }
            let mut state = self.line.state.lock();
            self.line.set(&mut state, Stage::Idle);
        }
    }

    /// The next thing to do. While there is none it removes orphans, then goes on with a renewal, or begins one.
    fn next(&mut self) -> Result<Work, TreeError> {
        loop {
            let rests = if self.orphans.is_done() && self.renewer.is_idle() { QUIET } else { REST };
            {
                let mut state = self.line.state.lock();
                if state.work.is_none() && !self.line.changed.wait_for(&mut state, rests).timed_out() {
                    // Woken, for work or for nothing: only a whole rest counts.
                    if state.work.is_none() {
                        continue;
                    }
                }
                if let Some(work) = state.work.take() {
                    return Ok(work);
                }
            }
            self.noted.follow(&mut self.tree, &self.line, self.spare_bytes)?;
            if !self.orphans.is_done() {
                self.remove_orphans();
            } else if self.renewer.is_idle() {
                self.look();
            } else {
                self.renew()?;
            }
        }
    }

    /// Begins a renewal where that pays.
    fn look(&mut self) {
        let Shared { index, clock, meter, .. } = &*self.shared;
        let (tasks, expired) = (index.len() as u64, meter.expired.load(Ordering::Relaxed));
        self.renewer.look(&mut self.tree, tasks, expired, index.tally().read().1, clock.now());
    }

    /// A step of a renewal.
    fn renew(&mut self) -> Result<(), TreeError> {
        self.line.renewing.store(true, Ordering::Release);
        let turned = self.renewer.step(&mut self.tree, &self.checkpoint, self.shared.clock.now());
        self.line.progress.store(self.shared.clock.now().as_millis(), Ordering::Release);
        self.line.renewing.store(false, Ordering::Release);
        if turned? {
            self.line.state.lock().moved = Some(self.tree.directory().to_owned());
        }
        Ok(())
    }

    /// One step.
    fn remove_orphans(&mut self) {
        if !has_room(&mut self.tree, self.spare_bytes) {
            return;
        }
        if let Err(error) = self.orphans.step(&mut self.tree, &self.shared) {
            // If sled has failed for good, the next layer finds that out, and stops the store.
            tracing::warn!(%error, "leftovers of a crash could not be removed");
            self.orphans = Orphans::new(Vec::new());
        }
    }

    fn carry(
        &mut self,
        layer: &Layer,
        position: Position,
        census: Census,
        clock: Timestamp,
    ) -> Result<(), TreeError> {
        let Self { tree, line, shared, spare_bytes, noted, .. } = self;
        let directory = tree.directory().to_owned();
        let mut seen = 0;
        let mut stint = Stopwatch::start();
        tree.carry(layer, |tree| {
            if stint.elapsed() >= STINT {
                if !line.awaited.load(Ordering::Acquire) && shared.meter.journal_is_half_empty() {
                    std::thread::sleep(PAUSE);
                }
                stint = Stopwatch::start();
            }
            line.progress.store(shared.clock.now().as_millis(), Ordering::Release);
            noted.follow(tree, line, *spare_bytes)?;
            if seen % LOOK_EVERY == 0 || !tree.hold_room()? {
                wait_for_room(line, tree, &directory, *spare_bytes)?;
            }
            seen = seen.wrapping_add(1);
            Ok(())
        })?;
        self.checkpoint.position = position;
        self.checkpoint.census = census;
        self.checkpoint.not_before(clock);
        self.tree.checkpoint(&self.checkpoint)
    }

    /// Makes the file of a generation that is over larger, if the journal has not reached its full length.
    fn grow(&mut self, generation: u64) -> Result<(), TreeError> {
        let slot = slot_of(generation);
        let now = self.checkpoint.sectors.get(slot).copied().unwrap_or(FULL_SECTORS);
        let wanted = (now * 2).min(FULL_SECTORS);
        let room = directory::free_bytes(self.tree.path());
        if wanted > now
            && room.is_ok_and(|room| {
                room >= (wanted * SECTOR as u64 * GROWTH_ROOM).saturating_add(self.spare_bytes)
            })
        {
            self.remake(slot, wanted)?;
        }
        Ok(())
    }

    /// Makes the file of the newest generation that is over anew. Where that fails, the old one is still there.
    fn remake(&mut self, slot: usize, sectors: u64) -> Result<(), TreeError> {
        match Segment::make(
            self.tree.directory(),
            slot,
            self.checkpoint.key,
            self.checkpoint.position.generation,
            sectors,
        ) {
            Ok(segment) => {
                if let Some(length) = self.checkpoint.sectors.get_mut(slot) {
                    *length = segment.sectors();
                }
                // A longer file than the checkpoint knows is none that was cut; so this order is safe.
                self.tree.checkpoint(&self.checkpoint)?;
                self.line.state.lock().remade = Some((slot, segment));
            }
            Err(error) => tracing::warn!(%error, slot, "a file of the journal could not be made larger"),
        }
        Ok(())
    }

    fn close(&mut self) -> Result<(), TreeError> {
        self.renewer.end(&mut self.tree);
        self.checkpoint.clean = true;
        self.checkpoint.not_before(self.shared.clock.now());
        self.tree.checkpoint(&self.checkpoint)
    }
}

/// Waits until there is room on the disk, or nobody wants to wait any more.
fn wait_for_room(line: &Line, tree: &mut Tree, directory: &Path, spare_bytes: u64) -> Result<(), TreeError> {
    let mut told = false;
    loop {
        if tree.hold_room()? && directory::free_bytes(directory)? >= spare_bytes {
            if told {
                tracing::info!("there is room on the disk again");
                let mut state = line.state.lock();
                line.set(&mut state, Stage::Working);
            }
            return Ok(());
        }
        if !told {
            tracing::error!(directory = %directory.display(), spare_bytes, "no room on the disk");
            told = true;
            renewer::make_room(tree);
            // There is room for what sled has been given; nothing of it shall be left for later.
            bounded(|| tree.sync())?;
        }
        let mut state = line.state.lock();
        line.set(&mut state, Stage::NoRoom);
        if state.give_up {
            return Err(TreeError::NoRoom);
        }
        line.changed.wait_for(&mut state, ROOM_EVERY);
    }
}
