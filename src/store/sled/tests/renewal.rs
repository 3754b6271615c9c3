//! Writing sled's files anew while the store serves: whoever reads or writes sees nothing of it, and nothing is lost,
//! wherever it is cut.

use super::super::files::Files;
use super::super::journal::Position;
use super::super::open::{Opened, open as open_as_it_is};
use super::super::reached;
use super::super::renewer::{MANY_EXPIRED, Renewer};
use super::compaction::{freeze, picture_at, quiet};
use super::*;

/// A renewal pays for anything that is smaller than a third of one of sled's segments.
fn eager(path: &Path) -> SledOptions {
    SledOptions { compact_above: Some(0), ..SledOptions::new(path) }
}

fn current(root: &Path) -> String {
    fs::read_to_string(root.join("CURRENT")).unwrap().trim_end().to_owned()
}

fn generations(root: &Path) -> Vec<String> {
    let names = fs::read_dir(root).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.starts_with("generation-")).collect()
}

/// Waits until the store is in another generation than this, and the only one.
async fn renewed(root: &Path, before: &str) -> String {
    for _ in 0..2_000 {
        let now = current(root);
        if now != before && generations(root) == [now.clone()] {
            return now;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("{} holds {:?}, and CURRENT is {before}", root.display(), generations(root));
}

/// More records than one step takes, of every kind.
async fn fill(store: &dyn Store, clock: &Clock) {
    populate(store, clock).await;
    for number in 100..300 {
        let length = if number % 20 == 0 { 70_000 } else { 100 };
        created(store, NewTask { arguments: payload_of(length, number), ..new_task(number) }).await;
    }
}

/// A store with all that in a directory, what it shows, and the same opened without being served.
async fn filled(clock: &Clock) -> (TempDir, Picture, Opened) {
    let home = TempDir::new().unwrap();
    let options = quiet(home.path());
    let store = SledStore::open(&options, clock.clone()).unwrap();
    fill(&store, clock).await;
    let picture = Picture::of(&store).await;
    store.close().await;
    let opened = open_as_it_is(&options).unwrap();
    (home, picture, opened)
}

#[tokio::test]
async fn a_renewal_that_is_cut_anywhere_leaves_a_store_with_everything() {
    let clock = new_clock();
    let (home, before, opened) = filled(&clock).await;
    let root = home.path();
    let Opened { directory, db, mut tree, checkpoint, index, live_bytes, .. } = opened;
    let files = Arc::new(Files::new(db, tree.path()).unwrap());
    let mut renewer = Renewer::new(Arc::new(Mutex::new(directory)), Arc::clone(&files), &eager(root));
    let mut cuts = Vec::new();
    let tasks = index.len() as u64;
    renewer.look(&mut tree, tasks, MANY_EXPIRED + 1, live_bytes, clock.now());
    assert!(renewer.is_idle(), "what is removed anyway is not copied");
    renewer.look(&mut tree, tasks, MANY_EXPIRED, live_bytes, clock.now());
    assert!(!renewer.is_idle());
    loop {
        cuts.push(freeze(root));
        if renewer.step(&mut tree, &checkpoint, clock.now()).unwrap() {
            break;
        }
        assert!(!renewer.is_idle(), "it was given up");
    }
    assert!(renewer.is_idle());
    assert_eq!(generations(root), ["generation-2"]);
    assert!(tree.path().starts_with(root.join("generation-2")));
    cuts.push(freeze(root));
    assert!(cuts.len() > 8, "{} steps", cuts.len());
    for (step, frozen) in cuts.iter().enumerate() {
        assert_eq!(picture_at(frozen.path(), &clock).await, before, "cut before step {step}");
        assert_eq!(generations(frozen.path()).len(), 1);
    }
}

#[tokio::test]
async fn a_renewal_gets_to_its_end_while_it_is_noted_how_far_the_journal_has_come() {
    let clock = new_clock();
    let (home, before, opened) = filled(&clock).await;
    let root = home.path();
    let Opened { directory, db, mut tree, checkpoint, index, live_bytes, .. } = opened;
    let files = Arc::new(Files::new(db, tree.path()).unwrap());
    let mut renewer = Renewer::new(Arc::new(Mutex::new(directory)), Arc::clone(&files), &eager(root));
    renewer.look(&mut tree, index.len() as u64, 0, live_bytes, clock.now());
    let mut noted = Position::default();
    loop {
        // Another note before each step, and none beyond what the journal has.
        noted.sequence += 1;
        assert!(noted.sequence < checkpoint.position.sequence);
        tree.note(&noted).unwrap();
        assert!(!renewer.is_idle(), "it was given up");
        if renewer.step(&mut tree, &checkpoint, clock.now()).unwrap() {
            break;
        }
    }
    assert_eq!(generations(root), ["generation-2"]);
    assert_eq!(reached::read(tree.db()).unwrap(), Some(noted), "the copy knows it as the original did");
    drop((tree, files, renewer));
    assert_eq!(picture_at(root, &clock).await, before);
}

#[tokio::test]
async fn whoever_reads_and_writes_meanwhile_sees_nothing_of_it() {
    let clock = new_clock();
    let directory = TempDir::new().unwrap();
    let root = directory.path();
    let mut store = SledStore::open(&eager(root), clock.clone()).unwrap();
    fill(&store, &clock).await;
    let mut at = current(root);
    for round in 0..3 {
        // Changes of old tasks and new ones, some of them in the part that was copied and some in the part that was not.
        for number in (100..300).filter(|number| number % 7 == round) {
            carried_out(&store, id(number), set_meta(&format!(r#"{{"round":{round}}}"#))).await;
            created(&store, new_task(1_000 * (round + 1) + number)).await;
            follow(&store).await;
            assert!(whole(&store, id(number)).await.is_some());
        }
        for number in (100..300).filter(|number| number % 14 == round) {
            carried_out(&store, id(1_000 * (round + 1) + number), Command::Discard).await;
        }
        follow(&store).await;
        at = renewed(root, &at).await;
        assert_eq!(store.health(), Health::Ready);
        follow(&store).await;
        // Another time in the same process only when the file has grown by half.
        store.close().await;
        store = SledStore::open(&eager(root), clock.clone()).unwrap();
    }
    // As a process that is killed now leaves it: the journal that both generations had is still the one in use.
    created(&store, new_task(5_000)).await;
    carried_out(&store, id(5_000), complete(&payload("1"))).await;
    let before = Picture::of(&store).await;
    quiet_generation(&store, root).await;
    let killed = freeze(root);
    let killed = SledStore::open(&quiet(killed.path()), clock.clone()).unwrap();
    assert_eq!(Picture::of(&killed).await, before);
    assert!(whole(&killed, id(5_000)).await.is_some());
    killed.close().await;
    store.close().await;
    assert_eq!(picture_at(root, &clock).await, before);
    raw_at(&root.join(current(root)), |db| {
        assert_eq!(keys_in(db, &keys::NAMED_BY_HEADS), named_keys(db), "nothing was copied that had gone");
    });
}

/// Waits until nothing is being written, so that files can be copied one by one.
async fn quiet_generation(store: &SledStore, root: &Path) {
    while generations(root).len() > 1 || store.follower.stage() == Stage::Working {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn damage_that_a_renewal_meets_is_not_copied() {
    let clock = new_clock();
    let (home, _, opened) = filled(&clock).await;
    let root = home.path();
    let Opened { directory, db, mut tree, checkpoint, .. } = opened;
    let chunk = db.scan_prefix([keys::CHUNK]).keys().last().unwrap().unwrap();
    db.insert(&chunk, b"damage").unwrap();
    let files = Arc::new(Files::new(db, tree.path()).unwrap());
    let mut renewer = Renewer::new(Arc::new(Mutex::new(directory)), files, &eager(root));
    renewer.look(&mut tree, 1, 0, 1, clock.now());
    while !renewer.is_idle() {
        assert!(!renewer.step(&mut tree, &checkpoint, clock.now()).unwrap());
    }
    assert_eq!(generations(root), ["generation-1"]);
    assert_eq!(current(root), "generation-1");
    // Not again at once, and later.
    renewer.look(&mut tree, 1, 0, 1, clock.now());
    assert!(renewer.is_idle());
    clock.advance(Duration::from_secs(601));
    renewer.look(&mut tree, 1, 0, 1, clock.now());
    assert!(!renewer.is_idle());
    renewer.end(&mut tree);
    assert_eq!(generations(root), ["generation-1"]);
}

#[tokio::test]
async fn a_store_that_is_small_or_switched_off_or_has_no_room_is_left_alone() {
    let clock = new_clock();
    let (home, _, opened) = filled(&clock).await;
    let root = home.path();
    let Opened { directory, db, mut tree, live_bytes, .. } = opened;
    let directory = Arc::new(Mutex::new(directory));
    let files = Arc::new(Files::new(db, tree.path()).unwrap());
    let size = super::super::compaction::size_of(tree.path());
    let mut begins = |options: SledOptions, live_bytes: u64| {
        let mut renewer = Renewer::new(Arc::clone(&directory), Arc::clone(&files), &options);
        renewer.look(&mut tree, 1, 0, live_bytes, clock.now());
        let begins = !renewer.is_idle();
        renewer.end(&mut tree);
        begins
    };
    assert!(begins(eager(root), live_bytes));
    assert!(!begins(eager(root), size.div_ceil(3)), "three times what it holds is not too much");
    assert!(!begins(SledOptions { compact_above: Some(size), ..eager(root) }, live_bytes), "small");
    assert!(!begins(SledOptions { spare_bytes: u64::MAX / 2, ..eager(root) }, live_bytes), "no room");
    assert!(!begins(quiet(root), live_bytes), "switched off");
    assert_eq!(generations(root), ["generation-1"]);
}
