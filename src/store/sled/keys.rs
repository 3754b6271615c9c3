//! The layout of the one sled tree.
//!
//! | prefix | key behind it | value |
//! |---|---|---|
//! | `h` | place | a task: its head, and its payloads of at most [`SMALL_BYTES`] (see [`super::bundle`]) |
//! | `c` | place, revision, ordinal, index | a chunk of a larger payload |
//! | `x` | place, digest of the whole, index | a piece of a task that is too large for one value |
//! | `m` | name | facts about the store |
//!
//! A *place* is the time of creation in milliseconds and the id: tasks that were created together are written, read and
//! removed together, and sled does twice as much where neighbours follow one another (measured: 22 us of processor time
//! for a task instead of 43 with keys that begin with the id). Numbers are big-endian. Chunks are apart because sled
//! rewrites whole leaves: a leaf of heads must not drag them along.

use task_broker_core::{PayloadRef, TaskId, Timestamp};

use crate::store::ListPlace;

/// The largest value in bytes. sled turns a leaf above a quarter of its segment into a file that it never syncs;
/// a leaf holds up to 16 records (measured; see STORAGE in docs/storage.md).
pub(super) const CHUNK_BYTES: usize = 32 * 1024 - 64;

/// Payloads up to this many bytes are kept with the head. They are written again with every change of it that reaches
/// sled, so they are few bytes; what most calls have fits.
pub(super) const SMALL_BYTES: u32 = 2048;

pub(super) const HEAD: u8 = b'h';
/// The length of a head's key.
pub(super) const HEAD_BYTES: usize = 1 + 8 + 16;
pub(super) const CHUNK: u8 = b'c';
pub(super) const OVERFLOW: u8 = b'x';
/// The prefixes of values that only mean something while a head names them.
pub(super) const NAMED_BY_HEADS: [u8; 2] = [CHUNK, OVERFLOW];

/// The store's format version.
pub(super) const FORMAT: &[u8] = b"mformat";
/// The store's id.
pub(super) const STORE_ID: &[u8] = b"mid";
/// What in a token makes the subjects of this store. A store without the record is one of `sub`.
pub(super) const OWNER_FROM: &[u8] = b"mowner-from";
/// How far sled has followed the journal, and what it must hold then.
pub(super) const CHECKPOINT: &[u8] = b"mcheckpoint";
/// How far the journal has come, as far as was noted; see [`super::reached`].
pub(super) const REACHED: &[u8] = b"mreached";

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

/// Whether a payload is kept with the head.
pub(super) const fn is_small(reference: &PayloadRef) -> bool {
    reference.len <= SMALL_BYTES
}

/// The keys under which the chunks of a payload are kept, with the range of bytes under each; none for a small one.
pub(super) fn chunks(
    place: ListPlace,
    reference: &PayloadRef,
) -> impl Iterator<Item = (Vec<u8>, std::ops::Range<usize>)> + use<> {
    let length = if is_small(reference) { 0 } else { usize::try_from(reference.len).unwrap_or(usize::MAX) };
    pieces(chunk_stem(place, reference.revision, reference.place()), length)
}

/// What the keys of all chunks of one payload begin with.
pub(super) fn chunk_stem(place: ListPlace, revision: u64, ordinal: u16) -> Vec<u8> {
    let mut stem = stem(CHUNK, place, 14);
    stem.extend_from_slice(&revision.to_be_bytes());
    stem.extend_from_slice(&ordinal.to_be_bytes());
    stem
}

/// What the key of a chunk says: of which task, of which payload (revision and place).
pub(super) fn chunk_of(key: &[u8]) -> Option<(ListPlace, u64, u16)> {
    let place = place_of(key)?;
    let (revision, rest) = key.get(HEAD_BYTES..)?.split_first_chunk()?;
    let (ordinal, index) = rest.split_first_chunk()?;
    (index.len() == 4).then_some((place, u64::from_be_bytes(*revision), u16::from_be_bytes(*ordinal)))
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
    pieces(stem, length)
}

fn pieces(stem: Vec<u8>, length: usize) -> impl Iterator<Item = (Vec<u8>, std::ops::Range<usize>)> {
    (0..length.div_ceil(CHUNK_BYTES)).map(move |index| {
        let mut key = stem.clone();
        key.extend_from_slice(&u32::try_from(index).unwrap_or(u32::MAX).to_be_bytes());
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
        for length in [1, 2_048, 2_049, CHUNK_BYTES, CHUNK_BYTES + 1, 5 * CHUNK_BYTES + 3] {
            let reference = Payload::new(Bytes::from(vec![b'1'; length])).reference(3, 1);
            if is_small(&reference) {
                assert!(length <= 2_048 && chunks(place, &reference).next().is_none());
                continue;
            }
            let mut covered = 0;
            for (key, range) in chunks(place, &reference) {
                assert_eq!(range.start, covered);
                assert!(range.end - range.start <= CHUNK_BYTES);
                assert_eq!(chunk_of(&key), Some((place, 3, 1)));
                covered = range.end;
            }
            assert_eq!(covered, length);
        }
    }
}
