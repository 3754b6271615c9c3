//! What was appended is there again; what is torn is cut; what is damaged is refused.

use std::fs;
use std::path::PathBuf;

use proptest::prelude::*;
use task_broker_core::{PayloadRef, TaskId};
use tempfile::TempDir;

use super::replay::Cut;
use super::segment::path_of;
use super::*;
use crate::store::ListPlace;

const KEY: u64 = 0x5eed;

fn place(number: u8) -> ListPlace {
    let created_at = Timestamp::from_millis(u64::from(number));
    ListPlace { created_at, id: TaskId::from_bytes([number; 16]) }
}

struct Scene {
    directory: TempDir,
    journal: Journal,
    /// What was appended, by task.
    heads: Vec<(ListPlace, Vec<u8>)>,
    census: Census,
}

impl Scene {
    fn new(sectors: u64) -> Self {
        let directory = TempDir::new().unwrap();
        let segments = [0, 1].map(|slot| Segment::make(directory.path(), slot, KEY, 0, sectors).unwrap());
        let journal = Journal::go_on(KEY, segments, Position::default());
        Self { directory, journal, heads: Vec::new(), census: Census::default() }
    }

    /// Appends a frame with one new task; gives the bytes of its file that it takes.
    fn append(&mut self, number: u8, length: usize) -> std::ops::Range<usize> {
        let (place, head) = (place(number), vec![number; length]);
        let image = Image { place, head: Some(&head), payloads: &[], dropped: &[] };
        let body = encode_body([image].into_iter()).unwrap();
        self.census.add(place.id, &head);
        if !self.journal.has_room(sectors_for(body.len())) {
            self.journal.turn();
            assert!(self.journal.has_room(sectors_for(body.len())));
        }
        let before = self.journal.next;
        self.journal.append(&body, self.census, Timestamp::from_millis(u64::from(number))).unwrap();
        self.heads.push((place, head));
        let byte = |sector: u64| usize::try_from(sector).unwrap() * SECTOR;
        byte(before)..byte(self.journal.next)
    }

    fn file(&self) -> PathBuf {
        self.journal.path().to_owned()
    }

    fn replay(&self) -> Result<Replayed, (PathBuf, u64)> {
        let segments = [0, 1].map(|slot| Segment::open(self.directory.path(), slot).unwrap());
        let replayed = replay(&segments, KEY, Position::default()).unwrap();
        replayed.map_err(|damage| (damage.path, damage.offset))
    }

    /// Checks that exactly the first `count` frames are there.
    fn holds(&self, count: usize) -> Replayed {
        let replayed = self.replay().unwrap();
        assert_eq!(replayed.frames, count as u64);
        assert_eq!(replayed.position.sequence, count as u64);
        for (at, (place, head)) in self.heads.iter().enumerate() {
            let found = replayed.layer.get(*place).map(|pending| pending.head.clone().unwrap());
            assert_eq!(found.as_deref(), (at < count).then_some(head.as_slice()));
        }
        let mut census = Census::default();
        self.heads[..count].iter().for_each(|(place, head)| census.add(place.id, head));
        if let Some((found, clock)) = replayed.newest {
            assert_eq!(found, census);
            assert_eq!(clock, Timestamp::from_millis(u64::from(self.heads[count - 1].1[0])));
        }
        replayed
    }
}

#[test]
fn frames_are_there_again_across_both_files_and_not_beyond() {
    let mut scene = Scene::new(16);
    scene.holds(0);
    for number in 1..=8 {
        scene.append(number, 1500);
    }
    assert_eq!(scene.journal.position.generation, 2);
    let replayed = scene.holds(8);
    assert_eq!(replayed.position, scene.journal.position());
    assert_eq!(replayed.cut, None);
}

#[test]
fn older_generations_are_not_taken_for_newer_ones() {
    let mut scene = Scene::new(16);
    for number in 1..=9 {
        scene.append(number, 1500);
    }
    // The third generation has overwritten a part of the first: whoever still needs the first is told.
    assert_eq!(scene.journal.position.generation, 3);
    assert_eq!(scene.replay().unwrap_err(), (path_of(scene.directory.path(), 1), 0));
    // A checkpoint after the second generation finds one frame, and none of the old ones behind it.
    let segments = [0, 1].map(|slot| Segment::open(scene.directory.path(), slot).unwrap());
    let first = replay(&segments, KEY, Position::default()).unwrap();
    assert!(first.is_err());
    let second = {
        let mut again = Scene::new(16);
        for number in 1..=8 {
            again.append(number, 1500);
        }
        again.journal.position()
    };
    let replayed = replay(&segments, KEY, second).unwrap().unwrap();
    assert_eq!((replayed.frames, replayed.position.sequence, replayed.cut), (1, 9, None));
}

#[test]
fn a_frame_that_is_torn_in_any_way_is_cut_and_told() {
    let mut scene = Scene::new(64);
    scene.append(1, 700);
    let file = scene.file();
    let before = fs::read(&file).unwrap();
    let torn = scene.append(2, 2000);
    let after = fs::read(&file).unwrap();
    let sectors = torn.len() / SECTOR;
    assert_eq!(sectors, 5);
    for kept in 0..1_u32 << sectors {
        let mut bytes = before.clone();
        for sector in (0..sectors).filter(|sector| kept & 1 << sector != 0) {
            let range = torn.start + sector * SECTOR..torn.start + (sector + 1) * SECTOR;
            bytes[range.clone()].copy_from_slice(&after[range]);
        }
        fs::write(&file, &bytes).unwrap();
        let all = kept == (1 << sectors) - 1;
        let replayed = scene.holds(if all { 2 } else { 1 });
        let told = kept != 0 && !all;
        assert_eq!(replayed.cut.is_some(), told, "{kept:b}");
        if let Some(Cut { path, offset, length }) = replayed.cut {
            assert_eq!((path, offset), (file.clone(), torn.start as u64));
            assert!(length > 0 && length <= torn.len() as u64);
        }
    }
}

#[test]
fn after_a_torn_frame_nothing_may_follow() {
    let mut scene = Scene::new(64);
    scene.append(1, 700);
    let file = scene.file();
    let before = fs::read(&file).unwrap();
    let lost = scene.append(2, 2000);
    let next = scene.append(3, 10);
    let whole = fs::read(&file).unwrap();
    for lost_sector in 0..lost.len() / SECTOR {
        let mut bytes = whole.clone();
        let range = lost.start + lost_sector * SECTOR..lost.start + (lost_sector + 1) * SECTOR;
        bytes[range.clone()].copy_from_slice(&before[range]);
        fs::write(&file, &bytes).unwrap();
        assert_eq!(scene.replay().unwrap_err(), (file.clone(), next.start as u64));
    }
    // The same where the frame after it is in the other file.
    let mut scene = Scene::new(8);
    let lost = scene.append(1, 2000);
    let first = scene.file();
    scene.append(2, 2000);
    assert_ne!(scene.file(), first);
    let blank = Scene::new(8);
    let mut bytes = fs::read(&first).unwrap();
    bytes[lost.clone()].copy_from_slice(&fs::read(path_of(blank.directory.path(), 1)).unwrap()[lost]);
    fs::write(&first, &bytes).unwrap();
    assert_eq!(scene.replay().unwrap_err().0, scene.file());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn no_damage_to_a_frame_is_silent(
        lengths in proptest::collection::vec(1_usize..3000, 1..6),
        place in any::<proptest::sample::Index>(),
        bit in 0..8_u32,
        zeroed in any::<bool>(),
    ) {
        let mut scene = Scene::new(64);
        let mut end = 0;
        for (number, length) in (1..).zip(&lengths) {
            end = scene.append(number, *length).end;
        }
        let file = scene.file();
        let mut bytes = fs::read(&file).unwrap();
        let at = place.index(end);
        if zeroed {
            let sector = at / SECTOR * SECTOR;
            bytes[sector..sector + SECTOR].fill(0);
        } else {
            bytes[at] ^= 1 << bit;
        }
        fs::write(&file, &bytes).unwrap();
        match scene.replay() {
            // What fills up the last sector of a frame proves nothing and means nothing.
            Ok(replayed) => {
                prop_assert!(!zeroed);
                prop_assert_eq!(replayed.frames, lengths.len() as u64);
                prop_assert_eq!(replayed.cut, None);
            }
            Err((path, offset)) => {
                prop_assert_eq!(path, file);
                prop_assert!(offset <= at as u64);
            }
        }
    }

    #[test]
    fn a_body_that_is_cut_or_changed_is_never_more_than_it_was(
        body in proptest::collection::vec(any::<u8>(), 0..400),
    ) {
        // Whatever the bytes are: an answer, in bounded memory.
        if let Some(images) = decode_body(&Bytes::from(body.clone())) {
            prop_assert!(images.len() * 37 <= body.len());
        }
    }
}

#[test]
fn a_generation_whose_file_was_made_anew_is_missed() {
    let mut scene = Scene::new(64);
    scene.append(1, 700);
    Segment::make(scene.directory.path(), 1, KEY, 1, 128).unwrap();
    assert_eq!(scene.replay().unwrap_err(), (scene.file(), 0), "of a checkpoint before it");
    let segments = [0, 1].map(|slot| Segment::open(scene.directory.path(), slot).unwrap());
    let after = replay(&segments, KEY, scene.journal.position()).unwrap().unwrap();
    assert_eq!((after.frames, after.cut), (0, None));
}

#[test]
fn a_payload_that_looks_like_a_frame_is_none() {
    let mut scene = Scene::new(64);
    scene.append(1, 700);
    let file = scene.file();
    let before = fs::read(&file).unwrap();
    // A header as anybody could make it who knows the format and not the key, at every place of a sector.
    let forged = Header {
        generation: 1,
        sequence: 9,
        previous: 0,
        clock: Timestamp::from_millis(1),
        census: Census::default(),
        body_bytes: 0,
        body_checksum: Header::checksum_of(&[], 9),
    };
    let (forged, _) = forged.encode(0);
    let head: Vec<_> = forged.iter().copied().cycle().take(40 * SECTOR).collect();
    let image = Image { place: place(2), head: Some(&head), payloads: &[], dropped: &[] };
    let body = encode_body([image].into_iter()).unwrap();
    let start = usize::try_from(scene.journal.next).unwrap() * SECTOR;
    scene.journal.append(&body, scene.census, Timestamp::from_millis(2)).unwrap();
    let mut bytes = fs::read(&file).unwrap();
    bytes[start..start + SECTOR].copy_from_slice(&before[start..start + SECTOR]);
    fs::write(&file, &bytes).unwrap();
    assert_eq!(scene.replay().unwrap().cut.unwrap().offset, start as u64);
}

#[test]
fn a_reference_that_would_be_read_as_another_is_refused() {
    let dropped = [PayloadRef::new(1, 3, 2, 0)];
    let image = Image { place: place(1), head: None, payloads: &[], dropped: &dropped };
    let body = encode_body([image].into_iter()).unwrap();
    assert!(decode_body(&body).is_some());
    let mut last = body.to_vec();
    let at = last.len() - 2;
    last[at..].fill(0xff);
    assert!(decode_body(&last.into()).is_none());
}

#[test]
fn files_that_have_changed_places_are_damage() {
    for (lengths, newest) in [(vec![700], 1), (vec![2000, 2000], 0)] {
        let mut scene = Scene::new(8);
        for (number, length) in (1..).zip(lengths) {
            scene.append(number, length);
        }
        let [first, second] = [0, 1].map(|slot| path_of(scene.directory.path(), slot));
        assert_eq!(scene.file(), [&first, &second][newest].clone());
        let [one, other] = [&first, &second].map(|path| fs::read(path).unwrap());
        fs::write(&first, other).unwrap();
        fs::write(&second, one).unwrap();
        assert!(scene.replay().is_err(), "the newest frames would be lost without a word");
    }
}
