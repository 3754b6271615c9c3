//! The journal's format as a fuzz target: frames, sectors, replay; see the crate's module `fuzzing`.
//!
//! The main kind of input is a script: what is written, and what happens to the files afterwards. What is read then must
//! be what was written, or the beginning of it, or be refused.

#![allow(
    clippy::indexing_slicing,
    reason = "a target that panics has found something; places are computed from lengths of these very files"
)]

mod harm;
mod script;

use std::collections::BTreeSet;
use std::path::PathBuf;

use bytes::Bytes;
use task_broker_core::PayloadRef;

use super::frame::{HEADER_BYTES, Header, Image, decode_body, encode_body};
use super::replay::{Damage, Replayed, read_files};
use super::{Position, SECTOR};
use crate::fuzzing::{Gauge, Reached, within};
use crate::store::ListPlace;
use crate::store::sled::overlay::{Layer, Pending};

use self::harm::Harmed;
use self::script::{KEY, Script, Written};

/// What reading may have allocated at one moment: a file, the body of a frame, and about 110 bytes for an image, of
/// which the shortest has 37, twice while a list of them grows.
const fn room(length: usize) -> usize {
    32 * length + 64 * 1024
}

/// A journal. The first byte says what the others are.
pub(crate) fn journal(data: &[u8], gauge: Gauge) -> Reached {
    let Some((kind, data)) = data.split_first() else { return Reached::Refused };
    match kind {
        b'B' => body(data, gauge),
        b'H' => header(data),
        b'F' => files(data, gauge),
        _ => history(data, gauge),
    }
}

/// The body of a frame: what can be read is written as the same bytes.
fn body(data: &[u8], gauge: Gauge) -> Reached {
    let data = Bytes::copy_from_slice(data);
    let Some(images) = within(gauge, room(data.len()), || decode_body(&data)) else {
        return Reached::Refused;
    };
    let image = |(place, pending): &'_ (ListPlace, Pending)| -> Option<Bytes> {
        let Pending { head, payloads, dropped } = pending;
        encode_body(std::iter::once(Image { place: *place, head: head.as_deref(), payloads, dropped }))
    };
    let again: Option<Vec<Bytes>> = images.iter().map(image).collect();
    assert_eq!(
        again.unwrap_or_default().concat(),
        data,
        "a body is not what it was when it is written again"
    );
    Reached::Taken
}

/// A key and a header.
fn header(data: &[u8]) -> Reached {
    let Some((key, bytes)) = data.split_first_chunk::<8>() else { return Reached::Refused };
    let key = u64::from_le_bytes(*key);
    let Some((header, checksum)) = Header::decode(bytes, key) else { return Reached::Refused };
    let (again, same) = header.encode(key);
    assert_eq!((Some(&again[..]), same), (bytes.get(..HEADER_BYTES), checksum));
    assert!(Header::decode(bytes, key ^ 1).is_none(), "under another key");
    Reached::Taken
}

/// Two files of any bytes, of equal length.
fn files(data: &[u8], gauge: Gauge) -> Reached {
    let (first, second) = data.split_at(data.len() / 2);
    let files = [first.to_vec(), second.to_vec()];
    Reached::taken(read(&files, Position::default(), gauge).is_ok_and(|read| read.frames > 0))
}

fn read(files: &[Vec<u8>; 2], checkpoint: Position, gauge: Gauge) -> Result<Replayed, Damage> {
    let [first, second] = files;
    let take = |slot| {
        let file = if slot == 0 { first } else { second };
        Ok::<_, std::convert::Infallible>((PathBuf::from("journal"), file.clone()))
    };
    let Ok(read) = within(gauge, room(first.len() + second.len()), || read_files(KEY, checkpoint, take));
    read
}

/// Writes what the script says, harms it, and reads it.
fn history(data: &[u8], gauge: Gauge) -> Reached {
    let mut script = Script::new(data);
    let written = Written::by(&mut script);
    let files = harm::harm(&written, &mut script);
    let harmed = Harmed::of(&written, &files);
    match read(&files, written.checkpoint, gauge) {
        Ok(read) => {
            is_a_beginning(&written, &read);
            if harmed.stale == 0 || harmed.swapped {
                assert_eq!((read.frames, &read.cut), (written.frames(), &None), "lost without a word");
            }
            if harmed.torn {
                assert_eq!(read.frames + 1, written.frames(), "a group that is not whole");
                assert_eq!(read.cut.is_some(), !harmed.all_of_the_newest, "a cut is told");
            }
            Reached::taken(read.frames > 0)
        }
        Err(damage) => {
            assert!(harmed.any(), "refused though nothing is wrong: {damage}");
            assert!(!harmed.torn, "a crash must not be taken for damage: {damage}");
            Reached::Refused
        }
    }
}

/// A task as a layer has it, in an order of its own.
type Shown<'a> = (ListPlace, &'a Option<Bytes>, &'a [(PayloadRef, Bytes)], BTreeSet<(u64, u16, u32, u64)>);

fn shown(layer: &Layer) -> Vec<Shown<'_>> {
    fn show((place, pending): (ListPlace, &Pending)) -> Shown<'_> {
        let Pending { head, payloads, dropped } = pending;
        let dropped = dropped.iter().map(|gone| (gone.revision, gone.place(), gone.len, gone.checksum));
        (place, head, payloads, dropped.collect())
    }
    layer.iter().map(show).collect()
}

/// What was read is the beginning of what was written, and nothing else.
fn is_a_beginning(written: &Written, read: &Replayed) {
    let count = usize::try_from(read.frames).unwrap_or(usize::MAX);
    let layer = written.layer_after(count);
    assert_eq!(shown(&read.layer), shown(&layer), "other states than were written");
    let (position, newest) = written.after(count);
    assert_eq!(read.newest, newest);
    assert_eq!((read.position.sequence, read.position.checksum), (position.sequence, position.checksum));
    let turned = read.position.generation.checked_sub(position.generation);
    assert!(turned == Some(0) || (turned.is_some() && read.cut.is_some()), "the next generation is not free");
    if let Some(cut) = &read.cut {
        assert!(cut.offset.is_multiple_of(SECTOR as u64) && cut.length > 0, "{cut:?}");
    }
}
