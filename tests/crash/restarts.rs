//! Stops and starts in quick succession, and a directory that two processes want (D03).

use std::time::Duration;

use serde_json::json;

use crate::files::{changes, scratch, tree};
use crate::harness::attempt::{Outcome, Start};
use crate::harness::link::Link;

/// Longer than a start waits for another process to let go of the directory.
const PATIENCE: Duration = Duration::from_secs(9);
const STOP_DEADLINE: Duration = Duration::from_secs(12);

pub(crate) fn create(link: &mut Link, tool: &str) -> String {
    let created = link.ask("store/create", &json!({"toolName": tool, "ttlMs": 3_600_000})).result();
    created["task"]["taskId"].as_str().unwrap().to_owned()
}

/// The tool names of all tasks, sorted.
pub(crate) fn tools(link: &mut Link) -> Vec<String> {
    let mut tools = Vec::new();
    let mut params = json!({"limit": 1000});
    loop {
        let listed = link.ask("store/list", &params).result();
        let rows = listed["tasks"].as_array().unwrap();
        tools.extend(rows.iter().map(|row| row["toolName"].as_str().unwrap().to_owned()));
        match listed["nextCursor"].as_str() {
            Some(next) => params["cursor"] = json!(next),
            None => break,
        }
    }
    tools.sort();
    tools
}

fn number(n: usize) -> String {
    format!("tool-{n:03}")
}

#[test]
fn thirty_restarts_with_no_pause_all_succeed_and_lose_nothing() {
    let files = scratch();
    let data = files.path().join("data");
    for round in 0..30 {
        let broker = Start::on(&data).serve();
        let mut link = broker.link();
        assert_eq!(tools(&mut link), (0..round).map(number).collect::<Vec<_>>(), "round {round}");
        create(&mut link, &number(round));
        if round % 2 == 0 {
            let stopped = broker.stop(STOP_DEADLINE);
            assert!(stopped.status.success(), "round {round}: {stopped:?}");
        } else {
            broker.kill9();
        }
    }
}

#[test]
fn a_start_waits_for_a_process_that_is_still_dying() {
    let files = scratch();
    let data = files.path().join("data");
    for round in 0..10 {
        let mut old = Start::on(&data).serve();
        create(&mut old.link(), &number(round));
        // The new process is started first, while the old one still serves and holds the directory.
        let new = Start::on(&data).spawn();
        if round % 2 == 0 {
            old.send_kill9();
        } else {
            let stopped = old.stop(STOP_DEADLINE);
            assert!(stopped.status.success(), "round {round}: {stopped:?}");
        }
        let new = new.serve();
        assert_eq!(tools(&mut new.link()), (0..=round).map(number).collect::<Vec<_>>(), "round {round}");
    }
}

#[test]
fn a_lock_file_that_was_left_behind_never_blocks() {
    let files = scratch();
    let data = files.path().join("data");
    let broker = Start::on(&data).serve();
    create(&mut broker.link(), "kept");
    broker.kill9();
    for content in ["", "1", "99999999", "not a process id", "\u{fffd}\0"] {
        std::fs::write(data.join("LOCK"), content).unwrap();
        let broker = Start::on(&data).serve();
        assert_eq!(tools(&mut broker.link()), ["kept"], "{content:?}");
        broker.kill9();
    }
}

#[test]
fn a_second_process_on_the_directory_is_told_who_holds_it_and_harms_nobody() {
    let files = scratch();
    let data = files.path().join("data");
    let first = Start::on(&data).serve();
    let mut link = first.link();
    create(&mut link, "before");

    let second = Start::on(&data).spawn();
    let (told, done) = std::sync::mpsc::channel();
    let outcome = std::thread::scope(|scope| {
        // The first one keeps working meanwhile.
        let link = &mut link;
        scope.spawn(move || {
            let mut made = 0;
            while done.try_recv().is_err() {
                create(link, &format!("during-{made:05}"));
                made += 1;
            }
            assert!(made > 0);
        });
        let outcome = second.outcome(PATIENCE);
        told.send(()).unwrap();
        outcome
    });

    let Outcome::Refused(refused) = outcome else { panic!("two processes on one directory") };
    refused.assert_clear(&data);
    let text = refused.text();
    assert!(text.contains("in use") && text.contains(&first.pid().to_string()), "{text}");
    for cryptic in ["WouldBlock", "os error 11", "Resource temporarily unavailable"] {
        assert!(!text.contains(cryptic), "{text}");
    }
    create(&mut link, "later");
    let before = tools(&mut link);
    first.kill9();
    let again = Start::on(&data).serve();
    assert_eq!(tools(&mut again.link()), before);
}

/// What an operator does who takes a lock file for the reason that a start is refused.
#[test]
fn a_lock_file_that_was_deleted_lets_no_second_process_in() {
    let files = scratch();
    let data = files.path().join("data");
    let first = Start::on(&data).serve();
    create(&mut first.link(), "kept");
    std::fs::remove_file(data.join("LOCK")).unwrap();

    let refused = Start::on(&data).refuse(PATIENCE);

    create(&mut first.link(), "later");
    first.kill9();
    assert_eq!(tools(&mut Start::on(&data).serve().link()), ["kept", "later"]);
    assert!(refused.text().contains("in use"), "{refused:?}");
}

#[test]
fn an_address_that_is_taken_leaves_the_store_as_it_is() {
    let files = scratch();
    let data = files.path().join("data");
    let broker = Start::on(&data).serve();
    create(&mut broker.link(), "kept");
    assert!(broker.stop(STOP_DEADLINE).status.success());
    let other = scratch();
    let holder = Start::on(&other.path().join("data")).serve();

    // Later flags of the same name are refused, so the port comes from the environment of a wrapper.
    let listen = format!("exec \"$0\" serve --listen {} --store \"sled:{}\"", holder.address, data.display());
    let taken = Start::on(&data).under(["sh", "-c", &listen]).outcome(PATIENCE);

    let Outcome::Refused(refused) = taken else { panic!("two processes on one address") };
    assert!(refused.status.code().is_some_and(|code| code != 0), "{refused:?}");
    refused.assert_no_panic_text();
    assert!(refused.text().contains("--listen"), "{refused:?}");
    let broker = Start::on(&data).serve();
    assert_eq!(tools(&mut broker.link()), ["kept"]);
}

#[test]
fn a_stop_right_after_an_acknowledgement_loses_nothing() {
    let files = scratch();
    let data = files.path().join("data");
    for round in 0..10 {
        let broker = Start::on(&data).serve();
        let mut link = broker.link();
        assert_eq!(tools(&mut link), (0..round).map(number).collect::<Vec<_>>());
        let id = create(&mut link, &number(round));
        link.ask("store/complete", &json!({"taskId": id, "result": {"round": round}})).result();
        assert!(broker.stop(STOP_DEADLINE).status.success());
        let broker = Start::on(&data).serve();
        let result = broker.link().ask("store/get", &json!({"taskId": id})).result();
        assert_eq!(result["result"], json!({"round": round}));
    }
}

#[test]
fn a_clean_stop_leaves_nothing_to_repair() {
    let files = scratch();
    let data = files.path().join("data");
    let broker = Start::on(&data).serve();
    create(&mut broker.link(), "kept");
    assert!(broker.stop(STOP_DEADLINE).status.success());
    for _ in 0..3 {
        let stopped = Start::on(&data).serve().stop(STOP_DEADLINE);
        assert!(stopped.text().contains("\"clean_stop\":true"), "{stopped:?}");
    }
    Start::on(&data).serve().kill9();
    let stopped = Start::on(&data).serve().stop(STOP_DEADLINE);
    assert!(stopped.text().contains("\"clean_stop\":false"), "{stopped:?}");
}

#[test]
fn a_refused_second_process_changes_no_file() {
    let files = scratch();
    let data = files.path().join("data");
    let first = Start::on(&data).serve();
    create(&mut first.link(), "kept");
    let stable = || {
        let mut tree = tree(&data);
        // sled's own threads may write to its files at any time; the names and everything else must stay.
        tree.retain(|name, _| !name.starts_with("generation-1/"));
        tree
    };
    let before = stable();
    Start::on(&data).refuse(PATIENCE);
    assert_eq!(changes(&before, &stable()), Vec::<std::path::PathBuf>::new());
}
