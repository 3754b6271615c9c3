//! Reading the journal at start: what sled may not have yet, and whether anything is missing.
//!
//! A crash can tear the newest frame: some of its sectors are of this generation, others are older. That frame was never
//! acknowledged; it is cut off, and the cut is told. Everything else that does not fit is damage: a sector whose mark
//! was never written, a wrong checksum under marks that are all of this generation, a frame that does not continue the
//! chain, a good frame behind a bad one.

use std::path::{Path, PathBuf};

use task_broker_core::Timestamp;

use super::super::census::Census;
use super::super::overlay::{Layer, Pending};
use super::frame::{HEADER_BYTES, Header, decode_body};
use super::sector::{ROOM, SECTOR, gather, generation};
use super::{Position, SLOTS, Segment, sectors_for, slot_of};
use crate::store::ListPlace;

/// What is wrong with the journal, and where.
#[derive(Debug, thiserror::Error)]
#[error("{}, offset {offset}: {what}", .path.display())]
pub(in super::super) struct Damage {
    pub(in super::super) path: PathBuf,
    /// In bytes.
    pub(in super::super) offset: u64,
    pub(in super::super) what: &'static str,
}

/// A torn frame that was cut off.
#[derive(Debug, PartialEq, Eq)]
pub(in super::super) struct Cut {
    pub(in super::super) path: PathBuf,
    /// In bytes.
    pub(in super::super) offset: u64,
    /// In bytes, as far as it had come.
    pub(in super::super) length: u64,
}

/// What the journal holds beyond a checkpoint.
#[derive(Debug)]
pub(in super::super) struct Replayed {
    /// The newest states of the tasks that changed.
    pub(in super::super) layer: Layer,
    /// The newest frame. Its generation is the newest of which anything was written, so that the next one is free.
    pub(in super::super) position: Position,
    /// What the store must hold, and the time of the newest frame; nothing if there is no frame.
    pub(in super::super) newest: Option<(Census, Timestamp)>,
    pub(in super::super) frames: u64,
    pub(in super::super) cut: Option<Cut>,
}

/// Reads what was written after `checkpoint`, up to two generations.
pub(in super::super) fn replay(
    segments: &[Segment; SLOTS],
    key: u64,
    checkpoint: Position,
) -> Result<Result<Replayed, Damage>, (PathBuf, std::io::Error)> {
    read_files(key, checkpoint, |slot| {
        let [first, second] = segments;
        let segment = if slot == 0 { first } else { second };
        let sectors = segment.read().map_err(|error| (segment.path().to_owned(), error))?;
        Ok((segment.path().to_owned(), sectors))
    })
}

/// The same with the files of the slots from wherever `read` has them, one after the other.
pub(super) fn read_files<E>(
    key: u64,
    checkpoint: Position,
    mut read: impl FnMut(usize) -> Result<(PathBuf, Vec<u8>), E>,
) -> Result<Result<Replayed, Damage>, E> {
    let mut replayed =
        Replayed { layer: Layer::default(), position: checkpoint, newest: None, frames: 0, cut: None };
    for generation in [checkpoint.generation + 1, checkpoint.generation + 2] {
        let (path, sectors) = read(slot_of(generation))?;
        let reader = Reader { path: &path, sectors: &sectors, key, generation };
        if let Err(damage) = reader.read(&mut replayed) {
            return Ok(Err(damage));
        }
    }
    Ok(Ok(replayed))
}

/// What stands at the place where the next frame would begin.
enum Next {
    /// This frame: header, its checksum, images, sectors.
    Frame(Header, u64, Vec<(ListPlace, Pending)>, u64),
    /// Nothing of this generation.
    Nothing,
    /// Parts of a frame, so many sectors.
    Torn(u64),
}

struct Reader<'a> {
    path: &'a Path,
    sectors: &'a [u8],
    key: u64,
    generation: u64,
}

impl Reader<'_> {
    fn damage(&self, at: u64, what: &'static str) -> Damage {
        Damage { path: self.path.to_owned(), offset: at * SECTOR as u64, what }
    }

    fn count(&self) -> u64 {
        (self.sectors.len() / SECTOR) as u64
    }

    /// So many sectors from number `at` on; fewer at the end of the file.
    fn at(&self, at: u64, count: u64) -> &[u8] {
        let byte = |sector: u64| usize::try_from(sector * SECTOR as u64).unwrap_or(usize::MAX);
        let end = byte(at.saturating_add(count)).min(self.sectors.len());
        self.sectors.get(byte(at)..end).unwrap_or_default()
    }

    /// To which generation a sector belongs. One of the other file's generations is none that was written here: the two
    /// files, or sectors of them, have changed places. (0 is what both files are made with.)
    fn mark(&self, at: u64) -> Option<u64> {
        let found = generation(self.at(at, 1), self.key, at)?;
        (found == 0 || slot_of(found) == slot_of(self.generation)).then_some(found)
    }

    fn header(&self, at: u64) -> Option<(Header, u64)> {
        Header::decode(&gather(self.at(at, 1)), self.key)
    }

    /// Reads this generation to its end.
    fn read(&self, replayed: &mut Replayed) -> Result<(), Damage> {
        let mut at = 0;
        loop {
            match self.next(at, &replayed.position)? {
                Next::Frame(..) if replayed.cut.is_some() => {
                    return Err(self.damage(at, "a frame follows one that is torn"));
                }
                Next::Frame(header, checksum, images, sectors) => {
                    replayed.layer.follow(images);
                    replayed.position =
                        Position { generation: self.generation, sequence: header.sequence, checksum };
                    replayed.newest = Some((header.census, header.clock));
                    replayed.frames += 1;
                    at += sectors;
                }
                Next::Nothing => break,
                Next::Torn(sectors) => {
                    if let Some(later) = self.frame_behind(at, replayed.position.sequence + 1) {
                        return Err(self.damage(later, "a frame follows one that is torn"));
                    }
                    if replayed.cut.is_some() {
                        return Err(self.damage(at, "a second frame is torn"));
                    }
                    replayed.position.generation = self.generation;
                    replayed.cut = Some(Cut {
                        path: self.path.to_owned(),
                        offset: at * SECTOR as u64,
                        length: sectors * SECTOR as u64,
                    });
                    break;
                }
            }
        }
        Ok(())
    }

    fn next(&self, at: u64, position: &Position) -> Result<Next, Damage> {
        if at >= self.count() {
            return Ok(Next::Nothing);
        }
        match self.mark(at) {
            None => return Err(self.damage(at, "a sector has no valid mark")),
            Some(found) if found > self.generation => {
                return Err(self.damage(at, "a sector is newer than the checkpoint allows"));
            }
            Some(found) if found < self.generation => return Ok(self.nothing_or_torn(at)),
            Some(_) => {}
        }
        let Some((header, checksum)) = self.header(at) else {
            return Err(self.damage(at, "the header of a frame is wrong"));
        };
        if (header.generation, header.sequence, header.previous)
            != (self.generation, position.sequence + 1, position.checksum)
        {
            return Err(self.damage(at, "a frame does not continue the one before"));
        }
        let body_bytes = usize::try_from(header.body_bytes).unwrap_or(usize::MAX);
        let sectors = sectors_for(body_bytes);
        if at + sectors > self.count() {
            return Err(self.damage(at, "a frame is longer than its file"));
        }
        let mut torn = false;
        for sector in at..at + sectors {
            match self.mark(sector) {
                None => return Err(self.damage(sector, "a sector has no valid mark")),
                Some(found) => torn |= found != self.generation,
            }
        }
        if torn {
            return Ok(Next::Torn(sectors));
        }
        let mut body = gather(self.at(at, sectors));
        body.drain(..HEADER_BYTES);
        body.truncate(body_bytes);
        if Header::checksum_of(&body, header.sequence) != header.body_checksum {
            return Err(self.damage(at, "the checksum of a frame is wrong"));
        }
        let images = decode_body(&body.into());
        let images = images.ok_or_else(|| self.damage(at, "a frame cannot be decoded"))?;
        Ok(Next::Frame(header, checksum, images, sectors))
    }

    /// Before a sector of an earlier generation: the end, unless later sectors of a frame have come to the disk before
    /// its first one.
    fn nothing_or_torn(&self, at: u64) -> Next {
        let mine = |sector: &u64| self.mark(*sector) == Some(self.generation);
        match (at..self.count()).rev().find(mine) {
            Some(last) => Next::Torn(last + 1 - at),
            None => Next::Nothing,
        }
    }

    /// Where behind sector `at` a good frame begins that is newer than number `sequence`.
    fn frame_behind(&self, at: u64, sequence: u64) -> Option<u64> {
        (at + 1..self.count()).find(|sector| {
            self.mark(*sector) == Some(self.generation)
                && self.header(*sector).is_some_and(|(header, _)| header.sequence > sequence)
        })
    }
}

const _: () = assert!(HEADER_BYTES <= ROOM, "a header must be there whole or not at all");
