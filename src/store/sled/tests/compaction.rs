//! Writing a store anew: nothing is lost, wherever it is cut.

use super::super::compaction::{Step, rewrite};
use super::super::open::open as open_as_it_is;
use super::*;

pub(super) fn quiet(path: &Path) -> SledOptions {
    SledOptions { compact_above: None, ..SledOptions::new(path) }
}

pub(super) async fn picture_at(path: &Path, clock: &Clock) -> Picture {
    let store = SledStore::open(&quiet(path), clock.clone()).unwrap();
    let picture = Picture::of(&store).await;
    store.close().await;
    picture
}

/// A copy of a directory as a process that is killed now would leave it.
pub(super) fn freeze(root: &Path) -> TempDir {
    fn copy(from: &Path, to: &Path) {
        fs::create_dir_all(to).unwrap();
        for entry in fs::read_dir(from).unwrap() {
            let path = entry.unwrap().path();
            let target = to.join(path.file_name().unwrap());
            if path.is_dir() { copy(&path, &target) } else { drop(fs::copy(&path, &target)) }
        }
    }
    let frozen = TempDir::new().unwrap();
    copy(root, frozen.path());
    frozen
}

#[tokio::test]
async fn a_compaction_that_is_cut_anywhere_leaves_a_store_with_everything() {
    let clock = new_clock();
    let (store, directory) = open(&clock);
    populate(&store, &clock).await;
    let before = Picture::of(&store).await;
    store.close().await;
    let root = directory.path();
    let mut cuts = Vec::new();
    let opened = open_as_it_is(&quiet(root)).unwrap();
    let compacted = rewrite(opened, 64 << 20, &mut |step| cuts.push((step, freeze(root))));
    let compacted = compacted.map_err(|error| error.to_string()).unwrap();
    assert!(compacted.directory.generation.ends_with("generation-2"));
    compacted.leave().unwrap();
    let steps: Vec<_> = cuts.iter().map(|(step, _)| *step).collect();
    let expected = [Step::Begun, Step::Copied(1), Step::Copied(9), Step::Proved, Step::Turned];
    assert!(expected.iter().all(|step| steps.contains(step)), "{steps:?}");
    assert!(steps.ends_with(&[Step::Opened, Step::Removed]), "{steps:?}");
    for (step, frozen) in &cuts {
        assert_eq!(picture_at(frozen.path(), &clock).await, before, "cut at {step:?}");
        let generations = fs::read_dir(frozen.path())
            .unwrap()
            .filter(|entry| entry.as_ref().unwrap().file_name().to_string_lossy().starts_with("generation-"));
        assert_eq!(generations.count(), 1, "what was cut at {step:?} is gone after the next start");
    }
    assert_eq!(picture_at(root, &clock).await, before);
}

#[tokio::test]
async fn a_compacted_store_has_lost_its_garbage_and_counts_as_closed_cleanly() {
    let clock = new_clock();
    let (store, directory) = open(&clock);
    populate(&store, &clock).await;
    for number in 20..60 {
        created(&store, NewTask { arguments: payload_of(200_000, number), ..new_task(number) }).await;
        carried_out(&store, id(number), Command::Discard).await;
        if number % 8 == 0 {
            follow(&store).await;
        }
    }
    let before = Picture::of(&store).await;
    store.close().await;
    let mut plans = Vec::new();
    let options = quiet(directory.path());
    let done = compact(&options, |plan| plans.push(*plan)).unwrap();
    assert_eq!((done.tasks, plans[0].tasks, plans[0].before), (9, 9, done.before));
    assert!(done.after < plans[0].needed, "{done:?} {plans:?}");
    let opened = open_as_it_is(&options).unwrap();
    assert!(opened.clean);
    let keys = keys_in(&opened.db, &keys::NAMED_BY_HEADS);
    assert_eq!(keys, named_keys(&opened.db));
    opened.leave().unwrap();
    assert_eq!(picture_at(directory.path(), &clock).await, before);
}

#[tokio::test]
async fn what_the_journal_has_and_sled_has_not_is_compacted_too() {
    let clock = new_clock();
    let (store, directory) = open(&clock);
    populate(&store, &clock).await;
    let before = Picture::of(&store).await;
    let killed = copy(directory.path());
    compact(&quiet(killed.path()), |_| {}).unwrap();
    assert_eq!(picture_at(killed.path(), &clock).await, before);
    store.close().await;
}

#[tokio::test]
async fn a_damaged_payload_is_never_compacted_away() {
    let clock = new_clock();
    let (store, directory) = open(&clock);
    created(&store, NewTask { arguments: payload_of(3_000, 1), ..new_task(1) }).await;
    store.close().await;
    raw(directory.path(), |db| {
        for key in keys_in(db, b"c") {
            db.remove(key).unwrap();
        }
    });
    let error = compact(&quiet(directory.path()), |_| {}).unwrap_err().to_string();
    assert!(error.contains(&id(1).to_string()) && error.contains("missing"), "{error}");
    assert_eq!(fs::read_to_string(directory.path().join("CURRENT")).unwrap(), "generation-1\n");
    assert!(!directory.path().join("generation-2").exists());
}

#[test]
fn a_plan_knows_whether_it_has_room() {
    let plan = super::super::compaction::CompactionPlan {
        tasks: 1,
        live_bytes: 1 << 30,
        before: 6 << 30,
        needed: super::super::compaction::room_for(1, 1 << 30),
        free: 1 << 30,
    };
    assert!(!plan.has_room());
    assert!(plan.needed > 2 << 30, "twice what is live, and a margin");
}
