//! Directories that are no store, no longer one, or not yet one.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::Instant;

use crate::files::{changes, copy, generation, scratch, tree};
use crate::harness::attempt::{Attempt, Outcome, Start};
use crate::restarts::{create, tools};

const DEADLINE: Duration = Duration::from_secs(9);
const EXISTING_ONLY: &str = "--existing-store-only";

/// A stopped store with one task.
fn store(data: &Path) {
    let broker = Start::on(data).serve();
    create(&mut broker.link(), "kept");
    assert!(broker.stop(DEADLINE).status.success());
}

/// The start is refused and every file is as before.
fn refused_untouched(start: &Start, data: &Path) -> String {
    let before = tree(data);
    let refused = start.refuse(DEADLINE);
    let mut changed = changes(&before, &tree(data));
    // The lock file of a store says who holds it now; in a directory that is no store there must be none.
    changed.retain(|name| !(name == Path::new("LOCK") && before.contains_key(name)));
    assert_eq!(changed, Vec::<PathBuf>::new(), "the start was refused, and changed files: {refused:?}");
    refused.text()
}

#[test]
fn a_directory_with_something_else_in_it_is_refused_and_not_touched() {
    let foreign: [(&str, &[&str]); 5] = [
        ("a file", &["notes.txt"]),
        ("a hidden file", &[".profile"]),
        ("another database", &["db", "conf", "blobs/1"]),
        ("a directory that has the name of a generation", &["generation-1/thesis.tex"]),
        ("a generation of another number", &["generation-7/db"]),
    ];
    for (what, names) in foreign {
        let files = scratch();
        let data = files.path().join("data");
        for name in names {
            let path = data.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "precious").unwrap();
        }
        let text = refused_untouched(&Start::on(&data), &data);
        assert!(text.contains("not a store"), "{what}: {text}");
    }
}

#[test]
fn an_empty_directory_and_a_fresh_file_system_become_a_store() {
    for names in [&[][..], &["lost+found"][..]] {
        let files = scratch();
        let data = files.path().join("data");
        fs::create_dir_all(&data).unwrap();
        for name in names {
            fs::create_dir(data.join(name)).unwrap();
        }
        store(&data);
        assert_eq!(tools(&mut Start::on(&data).serve().link()), ["kept"]);
    }
}

#[test]
fn a_fresh_store_is_announced_as_a_warning_and_an_old_one_is_not() {
    let files = scratch();
    let data = files.path().join("data");
    let warns =
        |said: String| said.lines().any(|line| line.contains("\"WARN\"") && line.contains("new, empty"));
    assert!(warns(Start::on(&data).serve().stop(DEADLINE).text()));
    assert!(!warns(Start::on(&data).serve().stop(DEADLINE).text()));
}

#[test]
fn a_path_that_is_a_file_is_refused() {
    let files = scratch();
    let data = files.path().join("data");
    fs::write(&data, "precious").unwrap();
    Start::on(&data).refuse(DEADLINE);
    assert_eq!(fs::read_to_string(&data).unwrap(), "precious");
}

#[test]
fn a_store_without_a_readable_current_is_refused_and_not_touched() {
    let files = scratch();
    let data = files.path().join("data");
    store(&data);
    let current = data.join("CURRENT");
    fs::remove_file(&current).unwrap();
    let text = refused_untouched(&Start::on(&data), &data);
    assert!(text.contains("CURRENT"), "{text}");
    let rubbish: [&[u8]; 10] = [
        b"",
        b"\n",
        b"generation-2\n",
        b"generation-\n",
        b"generation-x\n",
        b"../data/generation-1\n",
        b"/etc\n",
        b"generation-1/../generation-1\n",
        b"\xff\xfe\x00\x01",
        &[0; 4096],
    ];
    for content in rubbish {
        fs::write(&current, content).unwrap();
        let text = refused_untouched(&Start::on(&data), &data);
        assert!(text.contains("CURRENT"), "{content:?}: {text}");
    }
    fs::remove_file(&current).unwrap();
    fs::create_dir(&current).unwrap();
    let text = refused_untouched(&Start::on(&data), &data);
    assert!(text.contains("CURRENT"), "a directory: {text}");
    fs::remove_dir(&current).unwrap();

    // The way out that the message names works.
    fs::write(&current, "generation-1\n").unwrap();
    assert_eq!(tools(&mut Start::on(&data).serve().link()), ["kept"]);
}

#[test]
fn a_generation_without_its_database_is_refused_and_not_made_anew() {
    let files = scratch();
    let data = files.path().join("data");
    store(&data);
    fs::remove_file(generation(&data).join("db")).unwrap();
    Start::on(&data).refuse(DEADLINE);
    Start::on(&data).refuse(DEADLINE);
    fs::remove_dir_all(generation(&data)).unwrap();
    Start::on(&data).refuse(DEADLINE);
    Start::on(&data).refuse(DEADLINE);
}

#[test]
fn existing_store_only_serves_a_store_and_makes_none() {
    let files = scratch();
    let data = files.path().join("data");
    let only = Start::on(&data).arg(EXISTING_ONLY);
    let text = only.refuse(DEADLINE).text();
    assert!(text.contains(EXISTING_ONLY), "{text}");
    assert!(!data.exists(), "a directory was made all the same");

    fs::create_dir(&data).unwrap();
    let text = refused_untouched(&only, &data);
    assert!(text.contains(EXISTING_ONLY), "{text}");

    store(&data);
    assert_eq!(tools(&mut only.serve().link()), ["kept"]);

    fs::remove_file(data.join("CURRENT")).unwrap();
    let text = refused_untouched(&only, &data);
    assert!(text.contains("no readable CURRENT") && !text.contains(EXISTING_ONLY), "{text}");
}

/// What a first start leaves behind it on its way, in order.
const STAGES: [&str; 6] =
    ["LOCK", "generation-1", "generation-1/INCOMPLETE", "generation-1/conf", "generation-1/db", "CURRENT"];

/// Starts a broker on a new directory and gives it when it has come as far as this.
fn first_start_up_to(stage: &str, data: &Path) -> Attempt {
    let first = Start::on(data).spawn();
    let end = Instant::now() + DEADLINE;
    while !data.join(stage).exists() {
        // Too short a moment to sleep in.
        assert!(Instant::now() < end, "a first start never made {stage:?}");
        std::thread::yield_now();
    }
    first
}

/// The next start works and is empty, and what it takes is there at the one after it.
fn begins_empty(data: &Path, stage: &str) {
    let left: Vec<_> = tree(data).into_keys().collect();
    let second = Start::on(data).serve();
    let mut link = second.link();
    assert_eq!(tools(&mut link), Vec::<String>::new(), "{stage}: {left:?}");
    create(&mut link, "kept");
    second.kill9();
    let third = Start::on(data).serve();
    assert_eq!(tools(&mut third.link()), ["kept"], "{stage}: {left:?}");
}

#[test]
fn a_kill_during_the_very_first_start_leaves_a_directory_that_works_and_is_empty() {
    for stage in STAGES {
        for _ in 0..2 {
            let files = scratch();
            let data = files.path().join("data");
            let mut first = first_start_up_to(stage, &data);
            first.send_kill9();
            drop(first);
            begins_empty(&data, stage);
        }
    }
}

#[test]
fn a_sigterm_during_the_very_first_start_ends_it_and_leaves_a_directory_that_works_and_is_empty() {
    for stage in STAGES {
        let files = scratch();
        let data = files.path().join("data");
        let first = first_start_up_to(stage, &data);
        first.send_sigterm();
        match first.outcome(DEADLINE) {
            Outcome::Refused(ended) => {
                assert!(ended.status.success(), "{stage}: {ended:?}");
                ended.assert_no_panic_text();
            }
            // It was quicker. Then it ends like any other.
            Outcome::Serving(mut first) => {
                let ended =
                    first.ended(DEADLINE).unwrap_or_else(|said| panic!("{stage}: goes on: {said:#?}"));
                assert!(ended.status.success(), "{stage}: {ended:?}");
            }
            Outcome::Hung(said) => panic!("{stage}: neither serves nor ends: {said:#?}"),
        }
        begins_empty(&data, stage);
    }
}

/// The last thing that a first start does is to remove its mark. A kill just before leaves the mark in a store that
/// is current and takes tasks from then on.
#[test]
fn a_first_start_that_was_cut_at_its_very_end_never_costs_later_tasks() {
    let files = scratch();
    let data = files.path().join("data");
    assert!(Start::on(&data).serve().stop(DEADLINE).status.success());
    fs::write(generation(&data).join("INCOMPLETE"), "").unwrap();
    store(&data);
    let backup = files.path().join("backup");
    copy(&data, &backup);

    fs::remove_file(data.join("CURRENT")).unwrap();
    Start::on(&data).refuse(DEADLINE);

    let changed = changes(&tree(&backup), &tree(&data));
    assert!(
        changed.iter().all(|name| name == Path::new("CURRENT") || name == Path::new("LOCK")),
        "{changed:?}"
    );
}
