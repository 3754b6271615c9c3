//! What happens to the files afterwards.

use super::super::sector::{SECTOR, generation};
use super::script::{KEY, Script, Written};

/// Blows of one script, at most. With these few bytes no checksum can be made good again.
const MOST_BLOWS: usize = 3;

/// The files after what the rest of the script does to them.
pub(super) fn harm(written: &Written, script: &mut Script<'_>) -> [Vec<u8>; 2] {
    let mut files = written.files.clone();
    let count = files[0].len() / SECTOR;
    for _ in 0..MOST_BLOWS {
        if script.is_over() {
            break;
        }
        let kind = script.next();
        let (slot, at) = (usize::from(script.next() % 2), script.below(count));
        let range = at * SECTOR..(at + 1) * SECTOR;
        match kind % 8 {
            // A bit has changed.
            0 => files[slot][range][script.next() as usize * 2] ^= 1 << (kind / 8 % 8),
            1 => files[slot][range].fill(0),
            2 => files[slot][range].fill(script.next()),
            // Writes that the disk has lost: one sector, or everything from one on.
            3 | 4 => {
                let before = script.below(written.earlier.len());
                let end = if kind % 8 == 3 { range.end } else { files[slot].len() };
                if let Some(earlier) = written.earlier.get(before) {
                    files[slot][range.start..end].copy_from_slice(&earlier[slot][range.start..end]);
                }
            }
            // A write that went to another place.
            5 => {
                let (from_slot, from) = (usize::from(script.next() % 2), script.below(count) * SECTOR);
                let sector = written.files[from_slot][from..from + SECTOR].to_vec();
                files[slot][range].copy_from_slice(&sector);
            }
            // A crash while the newest frame was written.
            6 => tear(written, script, &mut files),
            _ => files.swap(0, 1),
        }
    }
    files
}

fn tear(written: &Written, script: &mut Script<'_>, files: &mut [Vec<u8>; 2]) {
    let (Some((slot, sectors)), Some(before)) = (&written.newest, written.earlier.last()) else { return };
    let lost = u32::from(script.next()) << 8 | u32::from(script.next());
    for (bit, sector) in sectors.clone().enumerate() {
        if lost & 1 << (bit % 16) != 0 {
            let range = sector * SECTOR..(sector + 1) * SECTOR;
            files[*slot][range.clone()].copy_from_slice(&before[*slot][range]);
        }
    }
}

/// What has become of the sectors.
#[derive(Debug, Default)]
pub(super) struct Harmed {
    /// How many say that they are of a generation that they were of before.
    pub(super) stale: usize,
    /// How many are something else.
    broken: usize,
    /// Only sectors of the newest frame are others, and are what they were before it: what a crash does.
    pub(super) torn: bool,
    /// And none of the newest frame is left.
    pub(super) all_of_the_newest: bool,
    /// The files are in each other's place, and nothing else is wrong.
    pub(super) swapped: bool,
}

impl Harmed {
    pub(super) const fn any(&self) -> bool {
        self.stale + self.broken > 0
    }

    pub(super) fn of(written: &Written, files: &[Vec<u8>; 2]) -> Self {
        let [first, second] = &written.files;
        let swapped = first != second && *files == [second.clone(), first.clone()];
        let mut harmed = Self { swapped, ..Self::default() };
        let mut lost = 0;
        for (slot, file) in files.iter().enumerate() {
            for (index, now) in file.chunks(SECTOR).enumerate() {
                let part = |files: &[Vec<u8>; 2]| files[slot][index * SECTOR..(index + 1) * SECTOR].to_vec();
                if now == part(&written.files) {
                    continue;
                }
                let of_newest =
                    written.newest.as_ref().is_some_and(|(at, range)| *at == slot && range.contains(&index));
                if of_newest && written.earlier.last().is_some_and(|before| now == part(before)) {
                    lost += 1;
                }
                let mark = |sector: &[u8]| generation(sector, KEY, index as u64);
                let before = written.earlier.iter().map(|before| mark(&part(before)));
                if mark(now) != mark(&part(&written.files))
                    && before.flatten().any(|old| mark(now) == Some(old))
                {
                    harmed.stale += 1;
                } else {
                    harmed.broken += 1;
                }
            }
        }
        harmed.torn = lost > 0 && lost == harmed.stale + harmed.broken;
        harmed.all_of_the_newest = written.newest.as_ref().is_some_and(|(_, range)| lost == range.len());
        harmed
    }
}
