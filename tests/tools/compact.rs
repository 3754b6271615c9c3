//! `task-broker compact`: smaller, and with everything, also when it is killed.

use std::process::Stdio;

use crate::files::{generation, scratch};
use crate::harness::attempt::Start;
use crate::{DEADLINE, command, ended, on, run, served, stopped};

#[test]
fn a_compacted_store_has_everything_and_says_what_was_gained() {
    let files = scratch();
    let data = files.path().join("data");
    let contents = stopped(&data, 30, false);
    let done = run(&on(&data, "compact", &[])).assert_code(0);
    let lines: Vec<_> = done.stdout.lines().collect();
    assert!(lines[0].starts_with("30 tasks, ") && lines[0].contains(" bytes of free room"), "{done:?}");
    assert!(lines[1].starts_with("compacted: ") && lines[1].ends_with(" after"), "{done:?}");
    assert!(generation(&data).ends_with("generation-2"));
    assert!(!data.join("generation-1").exists());
    assert_eq!(served(&data), contents);
    run(&on(&data, "check", &[])).assert_code(0);
    run(&on(&data, "compact", &[])).assert_code(0);
    assert!(generation(&data).ends_with("generation-3"));
    assert_eq!(served(&data), contents);
}

#[test]
fn beside_a_running_broker_nothing_is_compacted_exported_or_imported() {
    let files = scratch();
    let data = files.path().join("data");
    let broker = Start::on(&data).serve();
    let input = files.path().join("in");
    std::fs::write(&input, {
        let other = files.path().join("other");
        stopped(&other, 1, true);
        run(&on(&other, "export", &[])).assert_code(0).stdout
    })
    .unwrap();
    for (command, more) in
        [("compact", &[][..]), ("export", &[]), ("import", &["--in", input.to_str().unwrap()])]
    {
        let refused = run(&on(&data, command, more)).assert_code(1);
        assert!(refused.stderr.contains(&format!("process {}", broker.pid())), "{command}: {refused:?}");
    }
    assert!(broker.stop(DEADLINE).status.success());
}

#[test]
fn there_is_nothing_to_compact_or_export_where_there_is_no_store() {
    let files = scratch();
    let data = files.path().join("data");
    for command in ["compact", "export"] {
        run(&on(&data, command, &[])).assert_code(1);
        assert!(!data.exists(), "{command} makes no store");
    }
}

#[test]
fn a_compaction_that_is_killed_leaves_a_store_with_everything() {
    let files = scratch();
    let data = files.path().join("data");
    let contents = stopped(&data, 60, true);
    // What it leaves on its way, in order; each is waited for, then it is killed.
    for stage in ["", "/INCOMPLETE", "/db", "/journal-0", "/journal-1", "CURRENT"] {
        let old = generation(&data);
        let number: u64 = old.to_str().unwrap().rsplit_once('-').unwrap().1.parse().unwrap();
        let new = data.join(format!("generation-{}", number + 1));
        let mut child = command(&on(&data, "compact", &[])).stdout(Stdio::null()).spawn().unwrap();
        let reached = || match stage {
            "CURRENT" => generation(&data) != old,
            stage => new.join(stage.trim_start_matches('/')).exists(),
        };
        while !reached() && child.try_wait().unwrap().is_none() {
            std::thread::yield_now();
        }
        drop(child.kill());
        drop(child.wait());
        let found = run(&on(&data, "check", &[])).assert_code(0);
        assert!(found.stdout.contains("60, digest"), "killed at {stage:?}: {found:?}");
        assert_eq!(served(&data), contents, "killed at {stage:?}");
        let left = std::fs::read_dir(&data).unwrap().count();
        assert_eq!(left, 3, "CURRENT, LOCK and one generation after a kill at {stage:?}");
    }
    let done = ended(command(&on(&data, "compact", &[])).spawn().unwrap()).assert_code(0);
    assert!(done.stdout.starts_with("60 tasks"), "{done:?}");
    assert_eq!(served(&data), contents);
}
