//! Stores that older programs have made. The fixtures are what `populate` made with the program of the time.

use std::process::Command as Process;

use super::super::directory::Directory;
use super::super::migration::{Step, bring_up_in_steps};
use super::super::open::open_files;
use super::compaction::freeze;
use super::*;

/// A store of format 1, closed cleanly.
fn format_1() -> TempDir {
    unpacked("0002-journal/format-1.tar.xz")
}

/// Two stores of format 2: `closed`, which has what `populate` and `later` make, and `killed`, of which sled has what
/// `populate` makes and the journal has the rest.
fn format_2() -> TempDir {
    unpacked("0003-records/format-2.tar.xz")
}

fn unpacked(archive: &str) -> TempDir {
    let directory = TempDir::new().unwrap();
    let archive = Path::new(env!("CARGO_MANIFEST_DIR")).join("migrations").join(archive);
    let unpacked = Process::new("tar").arg("-xJf").arg(archive).arg("-C").arg(directory.path()).status();
    assert!(unpacked.expect("tar is needed").success(), "tar and xz are needed");
    directory
}

/// What `populate` makes today.
async fn expected() -> Picture {
    let clock = new_clock();
    let (store, _directory) = open(&clock);
    populate(&store, &clock).await;
    let picture = Picture::of(&store).await;
    store.close().await;
    picture
}

/// Opens the store and looks at everything in it; the clock must be moved by what is stored.
async fn picture_at(path: &Path) -> Picture {
    let store = open_at(path, &new_clock());
    let picture = Picture::of(&store).await;
    store.close().await;
    picture
}

#[tokio::test]
async fn a_store_of_format_1_opens_with_everything_byte_for_byte() {
    let directory = format_1();
    assert_eq!(picture_at(directory.path()).await, expected().await);
    assert_eq!(fs::read_to_string(directory.path().join("CURRENT")).unwrap(), "generation-2\n");
    assert!(!generation(directory.path()).exists(), "the old one goes when the new one was opened");
    assert_eq!(picture_at(directory.path()).await, expected().await, "and so does the next start");
}

#[tokio::test]
async fn a_migration_from_format_1_that_is_cut_anywhere_is_made_again() {
    let directory = format_1();
    cut_anywhere(directory.path(), &expected().await).await;
}

/// Migrates a store, and looks at what is there after each step, as if it had been cut there.
async fn cut_anywhere(path: &Path, expected: &Picture) {
    let mut cuts = Vec::new();
    {
        let mut held = Directory::hold(path, true).unwrap();
        let db = open_files(&held.generation, 64 << 20).unwrap();
        let cut = &mut |step| cuts.push((step, freeze(path)));
        drop(bring_up_in_steps(&mut held, db, 64 << 20, cut).unwrap());
    }
    let steps: Vec<_> = cuts.iter().map(|(step, _)| *step).collect();
    assert!(steps.contains(&Step::Copied(9)) && steps.ends_with(&[Step::Proved, Step::Turned]), "{steps:?}");
    for (step, frozen) in cuts {
        assert_eq!(&picture_at(frozen.path()).await, expected, "cut at {step:?}");
        assert_eq!(fs::read_to_string(frozen.path().join("CURRENT")).unwrap(), "generation-2\n", "{step:?}");
    }
}

#[tokio::test]
async fn a_store_of_format_1_that_is_damaged_stays_what_it_is() {
    let directory = format_1();
    raw(directory.path(), |db| {
        let key = keys_in(db, b"p").pop_first().unwrap();
        db.remove(key).unwrap();
    });
    let error = try_open(directory.path(), &new_clock()).unwrap_err().to_string();
    assert!(error.contains("task ") && error.contains("missing"), "{error}");
    assert_eq!(fs::read_to_string(directory.path().join("CURRENT")).unwrap(), "generation-1\n");
    assert!(!directory.path().join("generation-2").exists());
}

#[test]
fn a_store_of_format_1_can_be_checked_before_it_is_migrated() {
    let (directory, scratch) = (format_1(), TempDir::new().unwrap());
    let options = CheckOptions {
        path: directory.path().to_owned(),
        scratch: scratch.path().to_owned(),
        cache_bytes: 64 << 20,
    };
    let checked = check(&options, &mut |fault| panic!("{fault}")).unwrap();
    assert_eq!((checked.format, checked.tasks, checked.faults), (1, 9, 0));
    raw(directory.path(), |db| {
        let key = keys_in(db, b"p").pop_first().unwrap();
        db.remove(key).unwrap();
    });
    let mut faults = Vec::new();
    let checked = check(&options, &mut |fault| faults.push(fault.to_owned())).unwrap();
    assert_eq!((checked.tasks, checked.faults), (8, 1), "{faults:?}");
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 0);
}

/// What `populate` and `later` make today.
async fn expected_later() -> Picture {
    let clock = new_clock();
    let (store, _directory) = open(&clock);
    populate(&store, &clock).await;
    later(&store).await;
    let picture = Picture::of(&store).await;
    store.close().await;
    picture
}

#[tokio::test]
async fn a_store_of_format_2_opens_with_everything_byte_for_byte_also_what_only_its_journal_has() {
    let directory = format_2();
    let expected = expected_later().await;
    assert_eq!(expected.tasks.len(), 9);
    for name in ["closed", "killed"] {
        let path = directory.path().join(name);
        assert_eq!(picture_at(&path).await, expected, "{name}");
        assert_eq!(fs::read_to_string(path.join("CURRENT")).unwrap(), "generation-2\n");
        assert!(!generation(&path).exists(), "the old one goes when the new one was opened");
        assert_eq!(picture_at(&path).await, expected, "{name}: and so does the next start");
    }
}

#[tokio::test]
async fn a_migration_from_format_2_that_is_cut_anywhere_is_made_again() {
    let expected = expected_later().await;
    let directory = format_2();
    cut_anywhere(&directory.path().join("killed"), &expected).await;
}

#[tokio::test]
async fn a_store_of_format_2_that_is_damaged_stays_what_it_is() {
    for harm in [b"p", b"c", b"h"] {
        let directory = format_2();
        let path = directory.path().join("closed");
        raw(&path, |db| {
            let key = keys_in(db, harm).pop_first().unwrap();
            db.remove(key).unwrap();
        });
        let error = try_open(&path, &new_clock()).unwrap_err().to_string();
        let named = if harm == b"h" { "tasks should be there" } else { "is missing" };
        assert!(error.contains("task") && error.contains(named), "{error}");
        assert_eq!(fs::read_to_string(path.join("CURRENT")).unwrap(), "generation-1\n");
        assert!(!path.join("generation-2").exists());
    }
}

#[test]
fn a_store_of_format_2_can_be_checked_before_it_is_migrated() {
    let (directory, scratch) = (format_2(), TempDir::new().unwrap());
    for name in ["closed", "killed"] {
        let path = directory.path().join(name);
        let options =
            CheckOptions { path: path.clone(), scratch: scratch.path().to_owned(), cache_bytes: 64 << 20 };
        let checked = check(&options, &mut |fault| panic!("{fault}")).unwrap();
        assert_eq!((checked.format, checked.tasks, checked.faults), (2, 9, 0), "{name}");
        raw(&path, |db| {
            let of_task = |key: &Vec<u8>| keys::place_of(key).unwrap().id == id(1);
            let key = keys_in(db, b"h").into_iter().find(of_task).unwrap();
            db.remove(key).unwrap();
        });
        let mut faults = Vec::new();
        let checked = check(&options, &mut |fault| faults.push(fault.to_owned())).unwrap();
        // Its head is in the journal of the one that was killed, too.
        let gone = u64::from(name == "closed");
        assert_eq!((checked.tasks, checked.faults), (9 - gone, gone), "{name}: {faults:?}");
        assert!(faults.iter().all(|fault| fault.contains("9 tasks should be there, 8 are")), "{faults:?}");
    }
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn a_newer_format_is_refused_and_both_numbers_are_named() {
    let clock = new_clock();
    let (store, directory) = open(&clock);
    populate(&store, &clock).await;
    store.close().await;
    raw(directory.path(), |db| {
        db.insert(keys::FORMAT, seal::seal(keys::FORMAT, &7u64.to_be_bytes())).unwrap();
    });
    let error = try_open(directory.path(), &clock).unwrap_err();
    assert!(matches!(error, OpenError::Format { found: 7, .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains("format 7") && text.contains("format 3"), "{text}");
}

/// What comes when sled has what `populate` made: new payloads beside old ones, old ones that go, a task that comes, and
/// one that goes.
async fn later(store: &SledStore) {
    carried_out(store, id(1), set_meta(r#"{"trace":"2"}"#)).await;
    carried_out(store, id(3), complete(&payload_of(2_000, 12))).await;
    carried_out(store, id(5), answer([("b", r#"{"late":true}"#)])).await;
    carried_out(store, id(9), complete(&payload_of(70_000, 13))).await;
    created(store, NewTask { arguments: payload_of(300, 14), ..new_task(12) }).await;
    carried_out(store, id(6), Command::Discard).await;
}
