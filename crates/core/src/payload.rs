//! Payloads: the JSON texts of arguments, results, errors, meta, questions and answers.

use std::fmt;
use std::num::NonZeroU16;

use bytes::Bytes;
use xxhash_rust::xxh3::xxh3_64;

/// A JSON text as a client sent it, byte for byte, with its checksum.
///
/// The checksum is computed where the payload is made (on a request's own thread), so that the single writer of
/// a store does not have to. `Debug` shows the length only: payloads never reach a log.
#[derive(Clone, PartialEq, Eq)]
pub struct Payload {
    bytes: Bytes,
    checksum: u64,
}

impl Payload {
    /// Takes the bytes of a JSON text. Whether they are JSON was checked where they came in.
    #[must_use]
    pub fn new(bytes: Bytes) -> Self {
        let checksum = xxh3_64(&bytes);
        Self { bytes, checksum }
    }

    /// The bytes, as they were received.
    #[must_use]
    pub const fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// Length in bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        u64::try_from(self.bytes.len()).unwrap_or(u64::MAX)
    }

    /// Whether there are no bytes at all; no JSON text is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The reference under which a task keeps this payload. `revision` is the one of the transition that writes
    /// it, `place` its place among the payloads of that transition, from 0: so no two payloads of a task share one.
    #[must_use]
    pub fn reference(&self, revision: u64, place: u16) -> PayloadRef {
        let len = u32::try_from(self.bytes.len()).unwrap_or(u32::MAX);
        PayloadRef::new(revision, place, len, self.checksum)
    }
}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Payload({} bytes)", self.bytes.len())
    }
}

/// Where a payload of a task is, and what must be found there.
///
/// A reference is never reused for other bytes, which is what lets a store write payloads before the head that
/// names them, and tell a missing payload (damage) from an unknown task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PayloadRef {
    /// The revision of the transition that wrote it.
    pub revision: u64,
    /// XXH3-64 of the bytes.
    pub checksum: u64,
    /// Length in bytes.
    pub len: u32,
    /// Its place among the payloads of that transition, counted from 1: an optional reference then takes no more
    /// room than one that is there, and a store keeps one for each of a million tasks.
    ordinal: NonZeroU16,
}

impl PayloadRef {
    /// A reference from its parts, as a store keeps them; `place` counts from 0.
    #[must_use]
    pub const fn new(revision: u64, place: u16, len: u32, checksum: u64) -> Self {
        Self { revision, checksum, len, ordinal: NonZeroU16::MIN.saturating_add(place) }
    }

    /// Its place among the payloads of the transition that wrote it, from 0.
    #[must_use]
    pub const fn place(&self) -> u16 {
        self.ordinal.get().saturating_sub(1)
    }

    /// Whether `bytes` are the ones that were stored under this reference.
    #[must_use]
    pub fn matches(&self, bytes: &[u8]) -> bool {
        u32::try_from(bytes.len()) == Ok(self.len) && xxh3_64(bytes) == self.checksum
    }

    /// Whether both references stand for the same bytes, wherever they are kept.
    #[must_use]
    pub fn same_bytes(&self, other: &Self) -> bool {
        self.len == other.len && self.checksum == other.checksum
    }
}
