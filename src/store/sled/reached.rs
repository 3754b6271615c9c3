//! How far the journal has come, noted in sled twice a second.
//!
//! The newest file of the journal proves itself up to its end, and nothing in it says where that end must be: an older
//! copy of the file, put in its place, would be taken for a journal to which less was written, and so would a file from
//! which a disk has lost what it had confirmed. The note says that there was more. It is written after what it tells of
//! was synced, so no crash makes it claim too much; what came within the last half second it does not know.

use std::time::Duration;

use ::sled::Db;

use super::database::sled_says;
use super::journal::{Position, Replayed};
use super::keys;
use super::seal::{self, Broken};

/// How often it is noted, if the journal has come further.
pub(super) const NOTE_EVERY: Duration = Duration::from_millis(500);

/// What is kept under [`keys::REACHED`], without its seal.
pub(super) fn encode(position: &Position) -> Result<Vec<u8>, Broken> {
    postcard::to_stdvec(position).map_err(|_what| Broken::Content)
}

/// What was noted. There are stores from before there was a note, and new ones.
pub(super) fn read(db: &Db) -> Result<Option<Position>, String> {
    let damaged = |what: &dyn std::fmt::Display| format!("the note of how far the journal has come: {what}");
    let Some(value) = db.get(keys::REACHED).map_err(|error| damaged(&sled_says(&error)))? else {
        return Ok(None);
    };
    let body = seal::open(keys::REACHED, &value).map_err(|broken| damaged(&broken))?;
    match postcard::take_from_bytes(body) {
        Ok((position, [])) => Ok(Some(position)),
        _ => Err(damaged(&Broken::Content)),
    }
}

/// What is missing in a journal that was read, if it had come further than it does now.
pub(super) fn missing(noted: Option<Position>, replayed: &Replayed) -> Option<String> {
    let (noted, found) = (noted?, replayed.position);
    let is_there = match found.sequence.cmp(&noted.sequence) {
        std::cmp::Ordering::Less => false,
        std::cmp::Ordering::Equal => found.checksum == noted.checksum,
        // The chain of checksums leads through it.
        std::cmp::Ordering::Greater => true,
    };
    (!is_there).then(|| {
        format!(
            "it ends with group {}, and group {} was written and synced: an older copy of the file is in its place, or \
             the disk has lost what it had confirmed",
            found.sequence, noted.sequence
        )
    })
}

#[cfg(test)]
mod tests {
    use super::super::overlay::Layer;
    use super::*;

    fn replayed(sequence: u64, checksum: u64) -> Replayed {
        let position = Position { generation: 3, sequence, checksum };
        Replayed { layer: Layer::default(), position, newest: None, frames: 0, cut: None }
    }

    #[test]
    fn only_a_journal_that_ends_before_what_was_noted_misses_something() {
        let noted = Position { generation: 3, sequence: 7, checksum: 70 };
        assert_eq!(missing(None, &replayed(0, 0)), None);
        assert_eq!(missing(Some(noted), &replayed(7, 70)), None);
        assert_eq!(missing(Some(noted), &replayed(8, 80)), None);
        for (sequence, checksum) in [(6, 60), (0, 0), (7, 71)] {
            let what = missing(Some(noted), &replayed(sequence, checksum)).unwrap();
            assert!(what.contains(&format!("group {sequence}, and group 7")), "{what}");
        }
    }
}
