//! `task-broker check`: finds what is wrong, and never changes a byte.

use std::fs;
use std::path::Path;

use crate::files::{changes, generation, scratch, tree};
use crate::harness::attempt::Start;
use crate::{Ended, SECRET, find, flip, on, path, run, said, served, stopped};

/// Checks, and holds that not a byte of the store has changed and nothing was left in the scratch directory.
fn check(data: &Path) -> Ended {
    let room = scratch();
    let before = tree(data);
    let ended = run(&on(data, "check", &["--scratch", path(room.path())]));
    assert_eq!(changes(&before, &tree(data)), Vec::<std::path::PathBuf>::new(), "{ended:?}");
    assert_eq!(fs::read_dir(room.path()).unwrap().count(), 0, "the copy is removed: {ended:?}");
    assert!(!ended.stdout.contains(SECRET), "{ended:?}");
    ended
}

fn faults(ended: &Ended) -> Vec<&str> {
    ended.stdout.lines().filter_map(|line| line.strip_prefix("FAULT ")).collect()
}

#[test]
fn a_sound_store_is_sound_after_a_clean_stop_and_after_a_kill() {
    for clean in [true, false] {
        let files = scratch();
        let data = files.path().join("data");
        let contents = stopped(&data, 24, clean);
        let found = check(&data).assert_code(0);
        assert!(faults(&found).is_empty(), "{found:?}");
        assert!(said(&found.stdout, "tasks").starts_with("24, digest "), "{found:?}");
        assert_eq!(said(&found.stdout, "last stop"), if clean { "clean" } else { "not clean" });
        assert_eq!(said(&found.stdout, "result"), "sound");
        let frames: u64 = said(&found.stdout, "journal").split(' ').next().unwrap().parse().unwrap();
        assert_eq!(frames == 0, clean, "{found:?}");
        assert_eq!(served(&data), contents);
        // What was carried over has the same digest.
        let again = check(&data).assert_code(0);
        assert_eq!(said(&again.stdout, "tasks"), said(&found.stdout, "tasks"));
    }
}

#[test]
fn beside_a_running_broker_it_is_refused_and_the_broker_is_named() {
    let files = scratch();
    let data = files.path().join("data");
    let broker = Start::on(&data).serve();
    let ended = run(&on(&data, "check", &[])).assert_code(2);
    assert!(ended.stderr.contains(&format!("process {}", broker.pid())), "{ended:?}");
    assert!(broker.stop(crate::DEADLINE).status.success());
}

#[test]
fn what_cannot_be_looked_at_is_2_and_leaves_no_trace() {
    let files = scratch();
    let missing = files.path().join("missing");
    run(&on(&missing, "check", &[])).assert_code(2);
    assert!(!missing.exists());
    let empty = files.path().join("empty");
    fs::create_dir(&empty).unwrap();
    check(&empty).assert_code(2);
    // Nor what was never one.
    fs::write(empty.join("thesis.tex"), "precious").unwrap();
    let ended = check(&empty).assert_code(2);
    assert!(ended.stderr.contains("not a store"), "{ended:?}");
    run(&["check".into(), "--store".into(), "memory:".into()]).assert_code(2);
    let data = files.path().join("data");
    stopped(&data, 1, true);
    let ended = run(&on(&data, "check", &["--scratch", path(&missing)])).assert_code(2);
    assert!(ended.stderr.contains("missing"), "{ended:?}");
}

#[test]
fn a_store_whose_parts_are_missing_is_damaged_and_the_part_is_named() {
    let files = scratch();
    let data = files.path().join("data");
    let contents = stopped(&data, 6, true);
    let file = |name: &str| generation(&data).join(name);
    for (name, named) in
        [("db", "db in it is missing"), ("journal-0", "journal-0"), ("journal-1", "journal-1")]
    {
        let (there, away) = (file(name), files.path().join("away"));
        fs::rename(&there, &away).unwrap();
        let found = check(&data).assert_code(1);
        assert!(faults(&found)[0].contains(named), "{found:?}");
        fs::rename(&away, &there).unwrap();
    }
    for (current, named) in [("generation-7\n", "generation-7"), ("rubbish", "CURRENT")] {
        fs::write(data.join("CURRENT"), current).unwrap();
        let found = check(&data).assert_code(1);
        assert!(faults(&found)[0].contains(named), "{found:?}");
    }
    fs::remove_file(data.join("CURRENT")).unwrap();
    let found = check(&data).assert_code(1);
    assert!(faults(&found)[0].contains("no readable CURRENT"), "{found:?}");
    for (command, args) in [("compact", &[][..]), ("export", &["--out", "-"][..])] {
        let refused = run(&on(&data, command, args)).assert_code(1);
        assert!(refused.stderr.contains("no readable CURRENT"), "{refused:?}");
        // None of these commands has that flag.
        let missing = run(&on(&files.path().join("missing"), command, args)).assert_code(1);
        assert!(missing.stderr.contains("holds no store") && !missing.stderr.contains("--"), "{missing:?}");
    }
    fs::write(data.join("CURRENT"), "generation-1\n").unwrap();
    fs::write(file("blobs").join("1"), "x").unwrap();
    let found = check(&data).assert_code(1);
    assert!(faults(&found)[0].contains("blobs"), "{found:?}");
    fs::remove_file(file("blobs").join("1")).unwrap();
    check(&data).assert_code(0);
    assert_eq!(served(&data), contents);
}

#[test]
fn a_changed_byte_in_a_payload_is_found_and_its_place_is_named() {
    let files = scratch();
    let data = files.path().join("data");
    stopped(&data, 24, true);
    let db = generation(&data).join("db");
    let good = fs::read(&db).unwrap();
    let places = find(&good, SECRET);
    assert!(places.len() > 100, "payloads are found in the file");
    for at in [places[places.len() / 3], places[places.len() / 2], *places.last().unwrap()] {
        flip(&db, at);
        let found = check(&data);
        // sled keeps pages that are not used any more; a change there is none to the store.
        if found.code == 0 {
            assert!(faults(&found).is_empty(), "{found:?}");
        } else {
            let found = found.assert_code(1);
            assert!(!faults(&found).is_empty(), "{found:?}");
        }
        fs::write(&db, &good).unwrap();
    }
}

#[test]
fn a_changed_byte_in_the_journal_is_found_with_file_and_offset() {
    let files = scratch();
    let data = files.path().join("data");
    stopped(&data, 24, false);
    // Whichever file the newest generation is in has something that is not in sled yet.
    let harmed = ["journal-0", "journal-1"].iter().find_map(|name| {
        let file = generation(&data).join(name);
        let good = fs::read(&file).unwrap();
        let at = *find(&good, SECRET).first()?;
        flip(&file, at);
        let found = check(&data);
        fs::write(&file, good).unwrap();
        (found.code != 0).then_some((name, found))
    });
    let (name, found) = harmed.expect("one of them matters");
    let found = found.assert_code(1);
    assert!(faults(&found)[0].contains(name) && faults(&found)[0].contains("offset "), "{found:?}");
    check(&data).assert_code(0);
}

#[test]
fn a_store_that_was_made_read_only_and_one_without_a_lock_file_are_checked_too() {
    let files = scratch();
    let data = files.path().join("data");
    stopped(&data, 3, true);
    fs::remove_file(data.join("LOCK")).unwrap();
    for file in ["db", "conf", "journal-0", "journal-1"] {
        let file = generation(&data).join(file);
        let mut permissions = fs::metadata(&file).unwrap().permissions();
        permissions.set_readonly(true);
        fs::set_permissions(&file, permissions).unwrap();
    }
    check(&data).assert_code(0);
}
