//! Where in the files of a stopped store live data is.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::*;

/// Where the bytes of the newest generation's frames are: headers and bodies, without what fills up a sector behind them.
/// See docs/storage.md: sectors of 512 bytes, in each a mark of 12 that begins with the generation; a frame begins with
/// `taskbrk1` and has the length of its body at byte 64 of a header of 88.
fn live_frames(generation: &Path) -> (PathBuf, Vec<u64>) {
    const SECTOR: usize = 512;
    const MARK: usize = 12;
    const HEADER: usize = 88;
    let newest = journal_generation(generation.parent().unwrap());
    let path = generation.join(format!("journal-{}", newest % 2));
    let content = fs::read(&path).unwrap();
    let number = |at: usize| u64::from_le_bytes(content[at..at + 8].try_into().unwrap());
    let mut live = Vec::new();
    let mut sector = 0;
    while (sector + 1) * SECTOR <= content.len() && number(sector * SECTOR) == newest {
        let begin = sector * SECTOR + MARK;
        assert_eq!(&content[begin..begin + 8], b"taskbrk1", "no frame begins at {begin}");
        let length = HEADER + usize::try_from(number(begin + 64)).unwrap();
        for at in 0..length {
            let (sectors, within) = (at / (SECTOR - MARK), at % (SECTOR - MARK));
            live.push(((sector + sectors) * SECTOR + MARK + within) as u64);
        }
        sector += length.div_ceil(SECTOR - MARK);
    }
    (path, live)
}

/// Where in sled's file those cells and tool names of living tasks are that are in it exactly once: one place each.
fn live_in_db(db: &[u8], stopped: &Stopped) -> Vec<u64> {
    let mut found: BTreeMap<&[u8], (u64, usize)> = BTreeMap::new();
    for at in 0..db.len().saturating_sub(CELL) {
        let rest = &db[at..at + CELL];
        let text = if rest.starts_with(CELL_MARK) {
            rest
        } else if rest.starts_with(TOOL_MARK) {
            &rest[..TOOL_MARK.len() + 3]
        } else {
            continue;
        };
        found.entry(text).or_insert((at as u64, 0)).1 += 1;
    }
    let all = stopped.contents.values().map(String::as_str).collect::<String>();
    let living: std::collections::BTreeSet<&str> =
        all.match_indices("cell-").filter_map(|(at, _)| all.get(at..at + CELL)).collect();
    let is_living = |text: &[u8]| {
        let text = std::str::from_utf8(text).unwrap_or_default();
        living.contains(text) || stopped.tools.iter().any(|tool| tool == text)
    };
    found
        .into_iter()
        .filter(|(text, (_, times))| *times == 1 && is_living(text))
        .map(|(_, (at, _))| at)
        .collect()
}

/// What is known of a stopped store's files.
pub(super) struct Map {
    journal: (PathBuf, Vec<u64>),
    db: (PathBuf, Vec<u64>, Vec<u64>),
    snapshot: PathBuf,
    conf: PathBuf,
}

impl Map {
    pub(super) fn of(stopped: &Stopped) -> Self {
        let generation = generation(&stopped.data);
        let db = generation.join("db");
        let content = fs::read(&db).unwrap();
        let live = live_in_db(&content, stopped);
        assert!(live.len() > 100, "only {} places in sled's file are known to be live", live.len());
        let not_zero = (0..content.len()).filter(|at| content[*at] != 0).map(|at| at as u64).collect();
        let journal =
            if stopped.clean { (generation.join("journal-0"), Vec::new()) } else { live_frames(&generation) };
        eprintln!(
            "{} live bytes in the journal, {} live places in sled's file of {} bytes",
            journal.1.len(),
            live.len(),
            content.len()
        );
        let snapshot = newest_snapshot(&generation).expect("sled has written a snapshot");
        Self { journal, db: (db, live, not_zero), snapshot, conf: generation.join("conf") }
    }

    /// A file, a place in it, and whether that is known to hold live data.
    pub(super) fn choose(&self, place: Place, clean: bool, rng: &mut fastrand::Rng) -> (&Path, u64, bool) {
        let whole = |path: &Path, rng: &mut fastrand::Rng| rng.u64(..length(path));
        match place {
            // After a clean stop all of it is in sled.
            Place::Journal if clean => (&self.journal.0, whole(&self.journal.0, rng), false),
            Place::Journal => (&self.journal.0, *rng.choice(&self.journal.1).unwrap(), true),
            Place::Db if rng.usize(..ANYWHERE_IN) == 0 => {
                (&self.db.0, *rng.choice(&self.db.2).unwrap(), false)
            }
            Place::Db => (&self.db.0, *rng.choice(&self.db.1).unwrap() + rng.u64(..7), true),
            Place::Snapshot => (&self.snapshot, whole(&self.snapshot, rng), true),
            Place::Conf => (&self.conf, whole(&self.conf, rng), true),
        }
    }
}
