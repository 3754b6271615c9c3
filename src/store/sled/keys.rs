//! The layout of the one sled tree.
//!
//! | prefix | key behind it | value |
//! |---|---|---|
//! | `h` | place | the head of a task |
//! | `p` | place, revision, ordinal | a payload of at most [`SMALL_BYTES`] |
//! | `c` | place, revision, ordinal, index | a chunk of a larger payload |
//! | `x` | place, digest of the head, index | a chunk of a head that is too large for one value |
//! | `m` | name | facts about the store |
//!
//! A *place* is the time of creation in milliseconds and the id: tasks that were created together are written, read and
//! removed together, and sled does twice as much where neighbours follow one another (measured: 22 us of processor time
//! for a task instead of 43 with keys that begin with the id). Numbers are big-endian. Small payloads and chunks are apart because sled rewrites whole leaves: a leaf of small
//! payloads must not drag large chunks along.

use task_broker_core::{PayloadRef, TaskId, Timestamp};

use crate::store::ListPlace;

/// The largest value in bytes. sled turns a leaf above a quarter of its segment into a file that it never syncs;
/// a leaf holds up to 16 records (measured; see STORAGE in docs/storage.md).
pub(super) const CHUNK_BYTES: usize = 32 * 1024 - 64;

/// Payloads up to this many bytes are one value under their own prefix.
pub(super) const SMALL_BYTES: usize = 4096;

pub(super) const HEAD: u8 = b'h';
/// The length of a head's key.
pub(super) const HEAD_BYTES: usize = 1 + 8 + 16;
const SMALL: u8 = b'p';
const CHUNK: u8 = b'c';
const OVERFLOW: u8 = b'x';
/// The prefixes of values that only mean something while a head names them.
pub(super) const NAMED_BY_HEADS: [u8; 3] = [SMALL, CHUNK, OVERFLOW];

/// The store's format version.
pub(super) const FORMAT: &[u8] = b"mformat";
/// The store's id.
pub(super) const STORE_ID: &[u8] = b"mid";
/// What in a token makes the subjects of this store. A store without the record is one of `sub`.
pub(super) const OWNER_FROM: &[u8] = b"mowner-from";
/// How far sled has followed the journal, and what it must hold then.
pub(super) const CHECKPOINT: &[u8] = b"mcheckpoint";

/// The key of a head.
pub(super) fn head(place: ListPlace) -> Vec<u8> {
    stem(HEAD, place, 0)
}

/// The beginning of a key, with room for so many bytes more.
fn stem(kind: u8, place: ListPlace, more: usize) -> Vec<u8> {
    let mut stem = Vec::with_capacity(HEAD_BYTES + more);
    stem.push(kind);
    stem.extend_from_slice(&place.created_at.as_millis().to_be_bytes());
    stem.extend_from_slice(place.id.as_bytes());
    stem
}

/// The keys under which a payload of this length is kept, with the range of bytes under each.
pub(super) fn payload(
    place: ListPlace,
    reference: &PayloadRef,
) -> impl Iterator<Item = (Vec<u8>, std::ops::Range<usize>)> + use<> {
    let length = usize::try_from(reference.len).unwrap_or(usize::MAX);
    let small = length <= SMALL_BYTES;
    let mut stem = stem(if small { SMALL } else { CHUNK }, place, 14);
    stem.extend_from_slice(&reference.revision.to_be_bytes());
    stem.extend_from_slice(&reference.place().to_be_bytes());
    pieces(stem, length, !small)
}

/// The keys of a head that does not fit into one value. The digest of its bytes is part of the key, so no two
/// states of a head share a key and none is ever rewritten.
pub(super) fn overflow(
    place: ListPlace,
    digest: u128,
    length: usize,
) -> impl Iterator<Item = (Vec<u8>, std::ops::Range<usize>)> + use<> {
    let mut stem = stem(OVERFLOW, place, 20);
    stem.extend_from_slice(&digest.to_be_bytes());
    pieces(stem, length, true)
}

fn pieces(
    stem: Vec<u8>,
    length: usize,
    numbered: bool,
) -> impl Iterator<Item = (Vec<u8>, std::ops::Range<usize>)> {
    let count = if numbered { length.div_ceil(CHUNK_BYTES) } else { 1 };
    (0..count).map(move |index| {
        let mut key = stem.clone();
        if numbered {
            key.extend_from_slice(&u32::try_from(index).unwrap_or(u32::MAX).to_be_bytes());
        }
        let start = index * CHUNK_BYTES;
        (key, start..length.min(start + CHUNK_BYTES))
    })
}

/// The task to which a key of a head, or of [`NAMED_BY_HEADS`], belongs.
pub(super) fn place_of(key: &[u8]) -> Option<ListPlace> {
    let (created_at, rest) = key.get(1..)?.split_first_chunk()?;
    let (id, _) = rest.split_first_chunk()?;
    let created_at = Timestamp::from_millis(u64::from_be_bytes(*created_at));
    Some(ListPlace { created_at, id: TaskId::from_bytes(*id) })
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use task_broker_core::Payload;

    use super::*;

    #[test]
    fn the_pieces_of_a_payload_cover_it_without_gap_or_overlap() {
        let place = ListPlace { created_at: Timestamp::from_millis(5), id: TaskId::from_bytes([7; 16]) };
        assert_eq!(place_of(&head(place)), Some(place));
        for length in [1, 2, SMALL_BYTES, SMALL_BYTES + 1, CHUNK_BYTES, CHUNK_BYTES + 1, 5 * CHUNK_BYTES + 3]
        {
            let reference = Payload::new(Bytes::from(vec![b'1'; length])).reference(3, 1);
            let mut covered = 0;
            for (key, range) in payload(place, &reference) {
                assert_eq!(range.start, covered);
                assert!(range.end - range.start <= CHUNK_BYTES);
                assert_eq!(place_of(&key), Some(place));
                covered = range.end;
            }
            assert_eq!(covered, length);
        }
    }
}
