//! Sectors: what a disk writes whole or not at all.
//!
//! A power cut can leave some sectors of a write new and others old. Each sector of the journal therefore says to which
//! generation it belongs. A frame that lacks some of its sectors was torn by a crash, and was never acknowledged; one
//! that has all of them and is wrong all the same was damaged afterwards.

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// The smallest unit that disks write as a whole, in bytes. Many have 4096; those write eight of these at once.
pub(in super::super) const SECTOR: usize = 512;
/// Generation, and its check.
const MARK: usize = 12;
/// How much of a frame fits into a sector.
pub(super) const ROOM: usize = SECTOR - MARK;

/// How many sectors `bytes` of a frame take.
pub(super) const fn sectors_of(bytes: usize) -> usize {
    bytes.div_ceil(ROOM)
}

/// The mark of a sector: to which generation it belongs. The check binds it to its journal and place.
fn mark(key: u64, generation: u64, index: u64) -> [u8; MARK] {
    let mut place = [0; 16];
    let (front, back) = place.split_at_mut(8);
    front.copy_from_slice(&generation.to_le_bytes());
    back.copy_from_slice(&index.to_le_bytes());
    let [a, b, c, d, ..] = xxh3_64_with_seed(&place, key).to_le_bytes();
    let mut mark = [0; MARK];
    let (front, back) = mark.split_at_mut(8);
    front.copy_from_slice(&generation.to_le_bytes());
    back.copy_from_slice(&[a, b, c, d]);
    mark
}

/// Appends a frame's parts to `sectors`, cut into marked sectors from number `index` on; the last one is filled up with
/// zeros.
pub(super) fn scatter(sectors: &mut Vec<u8>, parts: [&[u8]; 2], key: u64, generation: u64, index: u64) {
    let mut at = index;
    let mut left = 0;
    for mut part in parts {
        while !part.is_empty() {
            if left == 0 {
                sectors.extend_from_slice(&mark(key, generation, at));
                at += 1;
                left = ROOM;
            }
            let (now, later) = part.split_at(part.len().min(left));
            sectors.extend_from_slice(now);
            left -= now.len();
            part = later;
        }
    }
    sectors.resize(sectors.len() + left, 0);
}

/// Appends `count` empty sectors of a generation that is over.
pub(super) fn blank(sectors: &mut Vec<u8>, key: u64, generation: u64, index: u64, count: usize) {
    for at in (index..).take(count) {
        sectors.extend_from_slice(&mark(key, generation, at));
        sectors.resize(sectors.len() + ROOM, 0);
    }
}

/// The generation of sector `index`; nothing if its mark is not one that was written for this place.
pub(super) fn generation(sector: &[u8], key: u64, index: u64) -> Option<u64> {
    let (found, _) = sector.split_first_chunk::<MARK>()?;
    let generation = u64::from_le_bytes(*found.first_chunk()?);
    (*found == mark(key, generation, index)).then_some(generation)
}

/// What sectors hold, without their marks.
pub(super) fn gather(sectors: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(sectors.len());
    for sector in sectors.chunks(SECTOR) {
        bytes.extend_from_slice(sector.get(MARK..).unwrap_or_default());
    }
    bytes
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_was_scattered_is_gathered_and_every_sector_is_marked(
            head in proptest::collection::vec(any::<u8>(), 0..1500),
            body in proptest::collection::vec(any::<u8>(), 1..3000),
            index in 0..1_000_000_u64,
        ) {
            let mut sectors = Vec::new();
            scatter(&mut sectors, [&head, &body], 7, 3, index);
            let length = head.len() + body.len();
            prop_assert_eq!(sectors.len(), sectors_of(length) * SECTOR);
            let gathered = gather(&sectors);
            prop_assert_eq!(&gathered[..length], [head, body].concat());
            prop_assert!(gathered[length..].iter().all(|byte| *byte == 0));
            for (at, sector) in (index..).zip(sectors.chunks(SECTOR)) {
                prop_assert_eq!(generation(sector, 7, at), Some(3));
                prop_assert_eq!(generation(sector, 8, at), None, "of another journal");
                prop_assert_eq!(generation(sector, 7, at + 1), None, "at another place");
            }
        }
    }

    #[test]
    fn no_flipped_bit_of_a_mark_makes_another_mark() {
        let mut sector = Vec::new();
        blank(&mut sector, 7, 0, 9, 1);
        assert_eq!(generation(&sector, 7, 9), Some(0));
        for bit in 0..MARK * 8 {
            let mut flipped = sector.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(generation(&flipped, 7, 9), None, "bit {bit}");
        }
        assert_eq!(generation(&[0; SECTOR], 7, 9), None, "zeros are no mark");
        assert_eq!(generation(&sector[..MARK - 1], 7, 9), None);
    }
}
