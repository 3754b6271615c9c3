//! The journal: what is acknowledged is here first, synced; sled follows behind.
//!
//! Two files are used in turn, each a run of sectors. A *generation* is one use of one file, from its first sector on;
//! frames are appended until the next one does not fit. A generation is over when all of it is in sled: then the
//! checkpoint says so, and its file is free for the generation after the next. Old sectors are not wiped: their marks tell
//! that they are of an earlier generation.

mod frame;
#[cfg(any(test, feature = "fuzzing"))]
pub(super) mod fuzzing;
mod replay;
mod sector;
mod segment;
#[cfg(test)]
mod tests;

use std::io;
use std::path::Path;

use bytes::Bytes;
use task_broker_core::Timestamp;

use self::frame::HEADER_BYTES;
pub(super) use self::frame::{Header, Image, decode_body, encode_body};
pub(super) use self::replay::{Replayed, replay};
pub(super) use self::sector::SECTOR;
use self::sector::{scatter, sectors_of};
pub(super) use self::segment::{Segment, path_of};
use super::census::Census;

/// How many files there are.
pub(super) const SLOTS: usize = 2;

/// The file in which a generation is.
pub(super) const fn slot_of(generation: u64) -> usize {
    if generation.is_multiple_of(2) { 0 } else { 1 }
}

/// How many sectors a frame with a body of this length takes.
pub(super) fn sectors_for(body_bytes: usize) -> u64 {
    sectors_of(HEADER_BYTES + body_bytes) as u64
}

/// Where the chain of frames has come to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(super) struct Position {
    /// The generation of the newest frame.
    pub(super) generation: u64,
    /// Its number, counted from 1 since the store was made.
    pub(super) sequence: u64,
    /// Its checksum.
    pub(super) checksum: u64,
}

/// Appends the frame that follows `position` to `buffer`, as sectors from number `at` on, and says where the chain has
/// come to with it.
fn lay_out(
    buffer: &mut Vec<u8>,
    key: u64,
    position: Position,
    at: u64,
    (body, census, clock): (&[u8], Census, Timestamp),
) -> io::Result<Position> {
    let Position { generation, sequence, checksum: previous } = position;
    let sequence = sequence + 1;
    let header = Header {
        generation,
        sequence,
        previous,
        clock,
        census,
        body_bytes: u32::try_from(body.len()).map_err(io::Error::other)?,
        body_checksum: Header::checksum_of(body, sequence),
    };
    let (head, checksum) = header.encode(key);
    scatter(buffer, [&head, body], key, generation, at);
    Ok(Position { generation, sequence, checksum })
}

/// The writer's side.
#[derive(Debug)]
pub(super) struct Journal {
    key: u64,
    segments: [Segment; SLOTS],
    /// The newest frame, and the generation in which the next one is written.
    position: Position,
    /// The sector after the newest frame.
    next: u64,
    /// Kept from frame to frame, up to a bound.
    buffer: Vec<u8>,
}

/// What the buffer may keep from one frame to the next, in bytes.
const KEPT_BUFFER: usize = 1 << 20;

impl Journal {
    /// A journal that goes on after `position` in a generation of its own. Everything up to there must be in sled,
    /// durably, and a durable checkpoint must say so.
    pub(super) fn go_on(key: u64, segments: [Segment; SLOTS], position: Position) -> Self {
        let position = Position { generation: position.generation + 1, ..position };
        Self { key, segments, position, next: 0, buffer: Vec::new() }
    }

    /// Where the chain has come to.
    pub(super) const fn position(&self) -> Position {
        self.position
    }

    fn segment(&self, generation: u64) -> &Segment {
        let [first, second] = &self.segments;
        if slot_of(generation) == 0 { first } else { second }
    }

    /// Whether a frame of so many sectors fits behind the newest one.
    pub(super) fn has_room(&self, sectors: u64) -> bool {
        self.next + sectors <= self.segment(self.position.generation).sectors()
    }

    /// Whether less than half of the current file is written.
    pub(super) fn is_half_empty(&self) -> bool {
        self.next * 2 < self.segment(self.position.generation).sectors()
    }

    /// How many bytes of the current file are written, and how many it has.
    pub(super) fn fill(&self) -> (u64, u64) {
        let sector = SECTOR as u64;
        (self.next * sector, self.segment(self.position.generation).sectors() * sector)
    }

    /// How many sectors the next generation will have.
    pub(super) fn next_room(&self) -> u64 {
        self.segment(self.position.generation + 1).sectors()
    }

    /// Begins the next generation, in the other file. What is in that file must be in sled.
    pub(super) fn turn(&mut self) {
        self.position.generation += 1;
        self.next = 0;
    }

    /// The files have got other names, in this directory.
    pub(super) fn moved_to(&mut self, directory: &Path) {
        for (slot, segment) in self.segments.iter_mut().enumerate() {
            segment.moved_to(path_of(directory, slot));
        }
    }

    /// Takes a file that was made anew in place of the old one of its slot, which must not be in use.
    pub(super) fn replace(&mut self, slot: usize, segment: Segment) {
        if let Some(old) = self.segments.get_mut(slot) {
            *old = segment;
        }
    }

    /// Writes a frame and syncs it. After an error the state of the file is unknown, and nothing may be written to it
    /// again.
    pub(super) fn append(&mut self, body: &Bytes, census: Census, clock: Timestamp) -> io::Result<()> {
        self.buffer.clear();
        let position = lay_out(&mut self.buffer, self.key, self.position, self.next, (body, census, clock))?;
        self.segment(position.generation).write(self.next, &self.buffer)?;
        self.next += (self.buffer.len() / SECTOR) as u64;
        self.buffer.shrink_to(KEPT_BUFFER);
        self.position = position;
        Ok(())
    }

    /// The file that is written to, for messages.
    pub(super) fn path(&self) -> &Path {
        self.segment(self.position.generation).path()
    }
}
