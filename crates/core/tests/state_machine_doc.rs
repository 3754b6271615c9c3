//! `docs/state-machine.md` against the code: every arrow of the picture and every cell of the table.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that panics has failed, as it should; clippy.toml covers only functions marked as tests"
)]

mod support;

use std::collections::{BTreeMap, BTreeSet};

use support::*;
use task_broker_core::{Command, Effect, Rejection, Right, Status, Task, create, execute, may_see};

const PAGE: &str = include_str!("../../../docs/state-machine.md");

const META: &str = r#"{"trace":"first"}"#;

/// A column of the table: its header, and a task that stands there.
type Column = (&'static str, fn() -> Task);

/// The columns of the table, as tasks. All have meta, and a key `spent` that was answered.
const COLUMNS: [Column; 6] = [
    ("working", working),
    ("working, questions open", || after(&input_required(), &set_status(Status::Working, None))),
    ("input_required", input_required),
    ("completed", || after(&working(), &complete())),
    ("failed", || after(&working(), &fail("broken"))),
    ("cancelled", || after(&working(), &cancel(None))),
];

fn working() -> Task {
    after_all(&task(), &[set_meta(META), require_keys(["spent"]), answer_keys(["spent"])])
}

fn input_required() -> Task {
    after(&working(), &require_keys(["a", "b"]))
}

/// The rows of the table, as commands. A row that stands for several commands must mean the same for all of them.
fn commands_of(row: &str) -> Vec<Command> {
    const OTHER: &str = r#"{"method":"other"}"#;
    let one = match row {
        "requireInput: new keys" => require_keys(["c"]),
        "requireInput: the open questions again" => require_keys(["a", "b"]),
        "requireInput: a spent key, `askAgain`" => require_keys(["spent"]),
        "requireInput: a spent key, `reject`" => require_input(&[("spent", QUESTION)], Reject),
        "requireInput: an open key with another question, `askAgain`" => {
            require_input(&[("a", OTHER)], AskAgain)
        }
        "requireInput: an open key with another question, `reject`" => require_input(&[("a", OTHER)], Reject),
        "applyInput: every open key" => answer_keys(["a", "b"]),
        "applyInput: some of the open keys" => answer_keys(["a"]),
        "applyInput: no open key" => answer_keys(["spent", "never asked"]),
        "setStatus: `working`" => set_status(Status::Working, None),
        "setStatus: `working`, with a message" => set_status(Status::Working, Some("Half way")),
        "setStatus: `input_required`" => set_status(Status::InputRequired, None),
        "setStatus: `completed`, `failed` or `cancelled`" => {
            return Status::ALL
                .into_iter()
                .filter(|status| status.is_terminal())
                .map(|status| set_status(status, None))
                .collect();
        }
        "setTtl: another one" => set_ttl(TTL_MS + 1),
        "setTtl: the one in force" => set_ttl(TTL_MS),
        "setMeta: other bytes" => set_meta(r#"{"trace":"another"}"#),
        "setMeta: the same bytes" => set_meta(META),
        "complete" => complete(),
        "fail" => fail("no disk"),
        "cancel" => cancel(None),
        "discard" => Command::Discard,
        _ => panic!("the page has a row that this test does not know: {row}"),
    };
    vec![one]
}

/// What a command really does, in the words of the page.
fn cell_of(task: &Task, command: &Command) -> String {
    let transition = match execute(task, &by_worker(command.clone()), &limits(), &NO_USAGE, at(2_000)) {
        Ok(transition) => transition,
        Err(Rejection::InvalidTransition(_)) => return "refused".to_owned(),
        Err(other) => panic!("{command:?}: {other}"),
    };
    let moved = transition.outcome.revision != task.revision;
    let told = event_of(&transition).is_some();
    match (transition.outcome.applied, moved, told, transition.effect) {
        (true, true, true, Effect::Write { task: after, .. }) => {
            assert_eq!(after.updated_at, at(2_000));
            status_word(after.status()).to_owned()
        }
        (true, true, true, Effect::Remove { .. }) => "removed".to_owned(),
        (true, false, false, Effect::None) => "unchanged".to_owned(),
        (false, false, false, Effect::None) => "not applied".to_owned(),
        (false, false, true, Effect::Write { task: after, .. }) => {
            assert_eq!(after.updated_at, task.updated_at);
            assert!(after.cancel_requested && !task.cancel_requested);
            "noted".to_owned()
        }
        other => panic!("the page has no word for this: {other:?}"),
    }
}

/// The cells of the table whose first header is `command`, header row first.
fn table() -> Vec<Vec<&'static str>> {
    let lines = PAGE.lines().skip_while(|line| !line.starts_with("| command |"));
    let rows = lines.take_while(|line| line.starts_with('|')).filter(|line| !line.starts_with("|---"));
    rows.map(|line| line.trim_matches('|').split('|').map(str::trim).collect()).collect()
}

/// What the page says, by row and column.
fn said() -> BTreeMap<(&'static str, &'static str), &'static str> {
    let table = table();
    let (header, rows) = table.split_first().expect("the page has the table");
    let mut cells = BTreeMap::new();
    for row in rows {
        assert_eq!(row.len(), header.len(), "a row is not as wide as its header: {row:?}");
        for (column, cell) in header.iter().zip(row).skip(1) {
            assert!(cells.insert((row[0], *column), *cell).is_none(), "the row stands twice: {}", row[0]);
        }
    }
    cells
}

#[test]
fn every_cell_of_the_table_is_what_the_code_does() {
    for ((row, column), cell) in said() {
        let make = COLUMNS.iter().find(|(name, _)| *name == column);
        let (_, make) =
            make.unwrap_or_else(|| panic!("the page has a column that this test does not know: {column}"));
        for command in commands_of(row) {
            assert_eq!(cell_of(&make(), &command), cell, "{row}, when {column}");
        }
    }
}

#[test]
fn the_table_has_every_status_and_every_command() {
    let said = said();
    let columns: BTreeSet<_> = said.keys().map(|(_, column)| *column).collect();
    assert_eq!(columns, COLUMNS.iter().map(|(name, _)| *name).collect());
    let statuses: BTreeSet<_> = COLUMNS.iter().map(|(_, make)| status_name(&make().status())).collect();
    assert_eq!(statuses, STATUSES.iter().copied().collect());
    let commands = said.keys().flat_map(|(row, _)| commands_of(row));
    let commands: BTreeSet<_> = commands.map(|command| command_name(&command)).collect();
    assert_eq!(commands, COMMANDS.iter().copied().collect());
    for (row, _) in said.keys() {
        for command in commands_of(row) {
            let named = row.split(':').next();
            assert_eq!(named, Some(kind_word(command.kind())), "the row is called after its command");
        }
    }
}

#[test]
fn every_word_of_the_table_is_explained_and_no_other() {
    let statuses = Status::ALL.map(status_word);
    let used: BTreeSet<_> = said().into_values().filter(|cell| !statuses.contains(cell)).collect();
    let lines = PAGE.lines().skip_while(|line| !line.starts_with("| cell |")).skip(3);
    let explained = lines.take_while(|line| line.starts_with('|'));
    let explained: BTreeSet<_> = explained.map(|line| line.split('|').nth(1).unwrap().trim()).collect();
    assert_eq!(used, explained);
}

/// An arrow: from, label, to. The store's outside is `[*]`.
type Arrow = (String, String, String);

/// The arrows of the picture, one for each status of a group and each label.
fn drawn() -> BTreeSet<Arrow> {
    let picture = PAGE.lines().skip_while(|line| *line != "```mermaid").skip(1);
    let mut arrows = Vec::new();
    let mut groups: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let mut group = None;
    for line in picture.take_while(|line| *line != "```").map(str::trim) {
        let mut mentions = |status| {
            if let Some(group) = group {
                groups.entry(group).or_default().insert(status);
            }
        };
        if line.is_empty() || line == "stateDiagram-v2" {
        } else if let Some(name) = line.strip_prefix("state ").and_then(|rest| rest.strip_suffix(" {")) {
            assert_eq!(group.replace(name), None, "groups are not nested");
        } else if line == "}" {
            assert!(group.take().is_some());
        } else if let Some((from, rest)) = line.split_once(" --> ") {
            let (to, labels) = rest.split_once(" : ").unwrap_or_else(|| panic!("no label: {line}"));
            mentions(from);
            mentions(to);
            arrows.extend(labels.split(", ").map(|label| (from, label, to)));
        } else {
            mentions(line);
        }
    }
    let each = |name: &str| match groups.get(name) {
        Some(members) => members.iter().map(ToString::to_string).collect(),
        None => vec![name.to_owned()],
    };
    let mut all = BTreeSet::new();
    for (from, label, to) in arrows {
        assert!(!groups.contains_key(to), "an arrow leads to one status: {to}");
        for from in each(from) {
            let arrow = (from, label.to_owned(), to.to_owned());
            assert!(all.insert(arrow.clone()), "drawn twice: {arrow:?}");
        }
    }
    all
}

/// What the code does with every task of the table under every command of the table, arrows to itself left out.
fn done() -> BTreeSet<Arrow> {
    let arrow = |from: &str, label: &str, to: &str| (from.to_owned(), label.to_owned(), to.to_owned());
    let new = written(create(new_task(), &worker(), &limits(), &NO_USAGE, START).unwrap());
    let mut arrows = BTreeSet::from([arrow("[*]", "create", status_word(new.status()))]);
    for (_, make) in COLUMNS {
        let task = make();
        let from = status_word(task.status());
        if may_see(&task, &worker(), Right::Creator, task.expires_at()) == Err(Rejection::Expired) {
            arrows.insert(arrow(from, "expired", "[*]"));
        }
        for row in table().iter().skip(1) {
            for command in commands_of(row[0]) {
                let cell = cell_of(&task, &command);
                let label = kind_word(command.kind());
                if cell == "removed" {
                    arrows.insert(arrow(from, label, "[*]"));
                } else if Status::ALL.map(status_word).contains(&&*cell) && cell != from {
                    arrows.insert(arrow(from, label, &cell));
                }
            }
        }
    }
    arrows
}

#[test]
fn the_picture_has_exactly_the_arrows_that_the_code_follows() {
    let (drawn, done) = (drawn(), done());
    let missing: Vec<_> = done.difference(&drawn).collect();
    let invented: Vec<_> = drawn.difference(&done).collect();
    assert!(missing.is_empty() && invented.is_empty(), "missing: {missing:?}, invented: {invented:?}");
}
