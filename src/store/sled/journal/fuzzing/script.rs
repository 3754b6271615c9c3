//! What is written: groups of images, and generations.

use bytes::Bytes;
use task_broker_core::{Payload, PayloadRef, TaskId, Timestamp};

use super::super::frame::{Image, encode_body};
use super::super::sector::{SECTOR, blank};
use super::super::{Position, lay_out, sectors_for, slot_of};
use crate::store::ListPlace;
use crate::store::sled::census::Census;
use crate::store::sled::overlay::{Layer, Pending};

/// The journal's key in all runs.
pub(super) const KEY: u64 = 0x5eed;

/// Frames and turns of one script, at most.
const MOST_STEPS: usize = 24;

/// The bytes of an input, one after the other; zeros behind its end.
pub(super) struct Script<'a>(&'a [u8]);

impl<'a> Script<'a> {
    pub(super) const fn new(data: &'a [u8]) -> Self {
        Self(data)
    }

    pub(super) fn next(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    pub(super) fn below(&mut self, bound: usize) -> usize {
        let two = u16::from_be_bytes([self.next(), self.next()]);
        usize::from(two).checked_rem(bound).unwrap_or(0)
    }

    pub(super) const fn is_over(&self) -> bool {
        self.0.is_empty()
    }
}

/// One frame as it was written.
struct Frame {
    images: Vec<(ListPlace, Pending)>,
    /// Where the chain is with it.
    position: Position,
    newest: (Census, Timestamp),
}

/// The files, what is in them, and what was in them.
pub(super) struct Written {
    pub(super) files: [Vec<u8>; 2],
    /// The files before each change of them.
    pub(super) earlier: Vec<[Vec<u8>; 2]>,
    /// Up to here everything is in sled.
    pub(super) checkpoint: Position,
    /// The frames behind it.
    frames: Vec<Frame>,
    /// Where the generation before the current one ended.
    ended: Position,
    position: Position,
    next: usize,
    /// File and sectors of the newest frame.
    pub(super) newest: Option<(usize, std::ops::Range<usize>)>,
}

impl Written {
    /// Carries out the first part of a script.
    pub(super) fn by(script: &mut Script<'_>) -> Self {
        let sectors = 4 + script.below(24);
        let file = || {
            let mut file = Vec::new();
            blank(&mut file, KEY, 0, 0, sectors);
            file
        };
        let start = Position { generation: 1, ..Position::default() };
        let mut written = Self {
            files: [file(), file()],
            earlier: Vec::new(),
            checkpoint: Position::default(),
            frames: Vec::new(),
            ended: Position::default(),
            position: start,
            next: 0,
            newest: None,
        };
        for _ in 0..MOST_STEPS {
            match script.next() {
                0 => break,
                0xff => written.turn(),
                _ => written.append(script),
            }
        }
        written
    }

    /// How many frames are behind the checkpoint.
    pub(super) fn frames(&self) -> u64 {
        u64::try_from(self.frames.len()).unwrap_or(u64::MAX)
    }

    /// Where the chain is after so many frames, and what the newest of them says.
    pub(super) fn after(&self, count: usize) -> (Position, Option<(Census, Timestamp)>) {
        let Some(last) = count.checked_sub(1) else { return (self.checkpoint, None) };
        let frame = self.frames.get(last);
        assert!(frame.is_some(), "{count} frames were read of {}", self.frames.len());
        frame.map_or((self.checkpoint, None), |frame| (frame.position, Some(frame.newest)))
    }

    /// The states of tasks after so many frames.
    pub(super) fn layer_after(&self, count: usize) -> Layer {
        let mut layer = Layer::default();
        self.frames.iter().take(count).for_each(|frame| layer.follow(frame.images.clone()));
        layer
    }

    /// Begins the next generation. The one that was in its file is in sled by then.
    fn turn(&mut self) {
        let over = self.ended;
        self.frames.retain(|frame| frame.position.sequence > over.sequence);
        self.checkpoint = over;
        if self.frames.is_empty() {
            self.newest = None;
        }
        self.ended = self.position;
        self.position.generation += 1;
        self.next = 0;
    }

    fn append(&mut self, script: &mut Script<'_>) {
        let revision = self.position.sequence + 1;
        let images: Vec<_> = (0..=script.next() % 3).map(|_| image(script, revision)).collect();
        let parts = images.iter().map(|(place, pending)| {
            let Pending { head, payloads, dropped } = pending;
            Image { place: *place, head: head.as_deref(), payloads, dropped }
        });
        let body = encode_body(parts).unwrap_or_default();
        let room = |written: &Self| written.files[0].len() / SECTOR - written.next;
        let needed = usize::try_from(sectors_for(body.len())).unwrap_or(usize::MAX);
        if room(self) < needed {
            self.turn();
        }
        if room(self) < needed {
            return;
        }
        self.earlier.push(self.files.clone());
        let count = u64::from(script.next());
        let newest =
            (Census { count, digest: u128::from(revision) << 64 }, Timestamp::from_millis(revision * 1000));
        let mut sectors = Vec::new();
        let at = u64::try_from(self.next).unwrap_or(u64::MAX);
        let position = lay_out(&mut sectors, KEY, self.position, at, (&body, newest.0, newest.1));
        assert!(position.is_ok(), "a body of {} bytes is not too long", body.len());
        self.position = position.unwrap_or_default();
        let slot = slot_of(self.position.generation);
        let range = self.next..self.next + needed;
        self.files[slot][range.start * SECTOR..range.end * SECTOR].copy_from_slice(&sectors);
        self.next = range.end;
        self.newest = Some((slot, range));
        self.frames.push(Frame { images, position: self.position, newest });
    }
}

/// A task as a group leaves it.
fn image(script: &mut Script<'_>, revision: u64) -> (ListPlace, Pending) {
    let number = script.next() % 8;
    let created_at = Timestamp::from_millis(u64::from(number));
    let place = ListPlace { created_at, id: TaskId::from_bytes([number; 16]) };
    let there = script.next();
    let head = (there != 0).then(|| Bytes::from(vec![there; usize::from(script.next()) * 4]));
    let payloads = (0..u16::from(script.next() % 3)).map(|ordinal| {
        let bytes = Bytes::from(vec![script.next(); usize::from(script.next()) * 8]);
        (Payload::new(bytes.clone()).reference(revision, ordinal), bytes)
    });
    let payloads: Vec<_> = payloads.collect();
    let dropped = (0..script.next() % 3)
        .map(|_| PayloadRef::new(u64::from(script.next()), 0, u32::from(script.next()), 0))
        .collect();
    (place, Pending { head, payloads, dropped })
}
