//! The two files of the journal, which are used in turn.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::sector::{SECTOR, blank};

/// How many sectors are written at once where a whole file is.
const STEP: usize = 2048;

/// One preallocated file. Every byte of it was written and synced before it is used, so that a commit neither needs
/// room nor changes the file's length.
#[derive(Debug)]
pub(in super::super) struct Segment {
    file: File,
    path: PathBuf,
    sectors: u64,
}

/// Where the file of a slot is.
pub(in super::super) fn path_of(directory: &Path, slot: usize) -> PathBuf {
    directory.join(format!("journal-{slot}"))
}

impl Segment {
    /// Makes the file of a slot, in the place of the one that is there, which must not be needed any more. Durable on
    /// return. Its sectors belong to the generation that was in the old one: whoever looks for that generation, because
    /// sled has fallen back to an older checkpoint, finds that it was there and is gone.
    pub(in super::super) fn make(
        directory: &Path,
        slot: usize,
        key: u64,
        generation: u64,
        sectors: u64,
    ) -> io::Result<Self> {
        let path = path_of(directory, slot);
        let beside = path.with_extension("new");
        let mut file = OpenOptions::new()
            .write(true)
            .read(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&beside)?;
        let written = write_blank(&mut file, key, generation, sectors)
            .and_then(|()| file.sync_all())
            .and_then(|()| fs::rename(&beside, &path))
            .and_then(|()| File::open(directory)?.sync_all());
        if let Err(error) = written {
            // What there is of it only takes room, which may be what is missing; if it stays, the next try reuses it.
            drop(fs::remove_file(&beside));
            return Err(error);
        }
        Ok(Self { file, path, sectors })
    }

    /// Opens the file of a slot.
    pub(in super::super) fn open(directory: &Path, slot: usize) -> io::Result<Self> {
        let path = path_of(directory, slot);
        let file = OpenOptions::new().write(true).read(true).open(&path)?;
        let sectors = file.metadata()?.len() / SECTOR as u64;
        Ok(Self { file, path, sectors })
    }

    /// How many sectors it has.
    pub(in super::super) const fn sectors(&self) -> u64 {
        self.sectors
    }

    /// Where it is, for messages.
    pub(in super::super) fn path(&self) -> &Path {
        &self.path
    }

    /// It has another name.
    pub(super) fn moved_to(&mut self, path: PathBuf) {
        self.path = path;
    }

    /// All of it.
    pub(super) fn read(&self) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let mut file = &self.file;
        io::Seek::rewind(&mut file)?;
        file.read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// Writes sectors from number `at` on, and syncs them. It is an error too where nobody would find them again: a process
    /// can go on writing to a file that somebody has deleted, and one that was cut grows again with nothing in the gap.
    pub(super) fn write(&self, at: u64, sectors: &[u8]) -> io::Result<()> {
        self.file.write_all_at(sectors, at * SECTOR as u64)?;
        self.file.sync_data()?;
        let found = self.file.metadata()?;
        if found.nlink() == 0 {
            return Err(io::Error::other("the file was deleted"));
        }
        if found.len() < self.sectors * SECTOR as u64 {
            return Err(io::Error::other("the file was cut"));
        }
        Ok(())
    }
}

fn write_blank(file: &mut File, key: u64, generation: u64, sectors: u64) -> io::Result<()> {
    let mut bytes = Vec::with_capacity(STEP * SECTOR);
    let mut index = 0;
    while index < sectors {
        let count = usize::try_from(sectors - index).unwrap_or(STEP).min(STEP);
        bytes.clear();
        blank(&mut bytes, key, generation, index, count);
        file.write_all(&bytes)?;
        index += count as u64;
    }
    Ok(())
}
