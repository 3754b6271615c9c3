//! Files of the journal that are not what the broker has written: older copies, and files that somebody deletes or cuts
//! under a running broker.

use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::damage::broker;
use tokio::time::Instant;

use crate::files::{copy, generation, scratch};
use crate::harness::attempt::{Serving, Start};
use crate::restarts::{create, tools};

const DEADLINE: Duration = Duration::from_secs(9);
const JOURNALS: [&str; 2] = ["journal-0", "journal-1"];

/// What `task-broker check` prints.
fn check(data: &Path) -> String {
    let checked =
        broker().args(["check", "--store"]).arg(format!("sled:{}", data.display())).output().unwrap();
    String::from_utf8(checked.stdout).unwrap()
}

/// Creates tasks until sled's file has changed three times: then it has been noted there how far the journal had come
/// when there was one task at least.
fn create_until_noted(broker: &Serving, data: &Path) -> Vec<String> {
    let mut link = broker.link();
    let file = generation(data).join("db");
    let written = || fs::metadata(&file).unwrap().modified().unwrap();
    let (began, mut made) = (Instant::now(), Vec::new());
    let (mut last, mut changes) = (written(), 0);
    while changes < 3 {
        made.push(format!("tool-{:05}", made.len()));
        create(&mut link, made.last().unwrap());
        changes += usize::from(std::mem::replace(&mut last, written()) != last);
        assert!(began.elapsed() < DEADLINE, "sled's file has changed {changes} times");
    }
    made
}

#[test]
fn an_older_copy_of_a_journal_in_its_place_is_refused_and_told_by_check() {
    let files = scratch();
    let (data, old, new) = (files.path().join("data"), files.path().join("old"), files.path().join("new"));
    assert!(Start::on(&data).serve().stop(DEADLINE).status.success());
    copy(&data, &old);
    let broker = Start::on(&data).serve();
    let made = create_until_noted(&broker, &data);
    broker.kill9();
    copy(&data, &new);

    // Files that have grown since would give the older ones away by their length alone.
    let (from, to) = (generation(&old), generation(&data));
    for name in JOURNALS {
        let length = |path: PathBuf| fs::metadata(path).unwrap().len();
        assert_eq!(length(from.join(name)), length(to.join(name)), "{name} has grown: make fewer tasks");
        fs::copy(from.join(name), to.join(name)).unwrap();
    }

    let said = check(&data);
    assert!(said.contains("FAULT") && said.contains("an older copy of the file"), "{said}");
    let refused = Start::on(&data).refuse(DEADLINE);
    refused.assert_clear(&data);
    let text = refused.text();
    assert!(text.contains("journal-") && text.contains("an older copy of the file"), "{text}");
    // Nothing was changed: with its own files the store is whole.
    for name in JOURNALS {
        fs::copy(generation(&new).join(name), to.join(name)).unwrap();
    }
    assert!(check(&data).contains("sound"));
    assert_eq!(tools(&mut Start::on(&data).serve().link()), made);
}

/// A running broker whose journal is changed by `harm` acknowledges nothing more, ends, and says why.
fn ends_when(harm: impl Fn(&Path), why: &str) {
    let files = scratch();
    let data = files.path().join("data");
    let mut broker = Start::on(&data).serve();
    let mut link = broker.link();
    create(&mut link, "kept");
    for name in JOURNALS {
        harm(&generation(&data).join(name));
    }
    let answer = link.call("store/create", r#"{"toolName":"lost"}"#);
    assert!(
        answer.is_none_or(|answer| answer.is_error()),
        "acknowledged into a file that nobody finds again"
    );
    let ended = broker.ended(DEADLINE).expect("it goes on");
    assert!(!ended.status.success(), "{ended:?}");
    ended.assert_no_panic_text();
    let text = ended.text();
    assert!(text.contains("journal-") && text.contains(why), "{text}");
}

#[test]
fn a_broker_whose_journal_was_deleted_acknowledges_nothing_more() {
    ends_when(|path| fs::remove_file(path).unwrap(), "the file was deleted");
}

#[test]
fn a_broker_whose_journal_was_replaced_acknowledges_nothing_more() {
    let replace = |path: &Path| {
        let beside = path.with_extension("beside");
        fs::copy(path, &beside).unwrap();
        fs::rename(&beside, path).unwrap();
    };
    ends_when(replace, "the file was deleted");
}

#[test]
fn a_broker_whose_journal_was_cut_acknowledges_nothing_more() {
    let cut = |path: &Path| OpenOptions::new().write(true).open(path).unwrap().set_len(65_536).unwrap();
    ends_when(cut, "the file was cut");
}
