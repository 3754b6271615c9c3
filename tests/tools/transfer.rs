//! `task-broker export` and `import`: everything, elsewhere; or nothing.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use crate::files::scratch;
use crate::harness::attempt::Start;
use crate::{DEADLINE, json_lines, on, path, pipe, run, said, served, stopped};
use serde_json::json;

/// Nobody but the user may look at anything of a store.
fn assert_private(path: &Path) {
    let found = fs::metadata(path).unwrap();
    assert_eq!(found.permissions().mode() & 0o077, 0, "{}", path.display());
    if found.is_dir() {
        for entry in fs::read_dir(path).unwrap() {
            assert_private(&entry.unwrap().path());
        }
    }
}

#[test]
fn a_store_moves_by_export_and_import_with_every_byte_and_both_digests() {
    for clean in [true, false] {
        let files = scratch();
        let (data, other) = (files.path().join("data"), files.path().join("a/b/other"));
        let contents = stopped(&data, 30, clean);
        let file = files.path().join("export");
        let exported = run(&on(&data, "export", &["--out", path(&file)])).assert_code(0);
        assert!(exported.stderr.starts_with("exported 30 tasks, digest "), "{exported:?}");
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(!files.path().join("export.partial").exists());
        let lines = json_lines(&fs::read_to_string(&file).unwrap());
        assert_eq!(lines.len(), 32);
        assert_eq!(
            (&lines[0]["header"]["taskBrokerExport"], &lines[31]["end"]["tasks"]),
            (&json!(1), &json!(30))
        );
        let imported = run(&on(&other, "import", &["--in", path(&file)])).assert_code(0);
        assert_eq!(imported.stdout.replace("imported", "exported"), exported.stderr);
        assert_private(&other);
        // The same census: what check counts.
        let counted = |data| {
            let found = run(&on(data, "check", &[])).assert_code(0);
            said(&found.stdout, "tasks").to_owned()
        };
        assert_eq!(counted(&other), counted(&data));
        assert_eq!(served(&other), contents);
        assert_eq!(served(&data), contents);
        let again = run(&on(&other, "export", &["--out", path(&file)])).assert_code(0);
        assert_eq!(again.stderr, exported.stderr);
    }
}

#[test]
fn what_is_no_file_is_written_to_and_stays_and_the_store_itself_is_refused() {
    let files = scratch();
    let data = files.path().join("data");
    stopped(&data, 3, true);
    let export = |out: &Path| run(&on(&data, "export", &["--out", path(out)]));
    // A link keeps leading to its file.
    let (file, link) = (files.path().join("file"), files.path().join("link"));
    fs::write(&file, "old").unwrap();
    std::os::unix::fs::symlink(&file, &link).unwrap();
    export(&link).assert_code(0);
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(json_lines(&fs::read_to_string(&file).unwrap()).len(), 5);
    // A pipe gets everything.
    let pipe = files.path().join("pipe");
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RWXU).unwrap();
    let reading = std::thread::spawn({
        let pipe = pipe.clone();
        move || fs::read_to_string(pipe).unwrap()
    });
    export(&pipe).assert_code(0);
    assert_eq!(json_lines(&reading.join().unwrap()).len(), 5);
    assert!(!fs::symlink_metadata(&pipe).unwrap().is_file());
    // A device that takes nothing.
    let full = export(Path::new("/dev/full")).assert_code(1);
    assert!(full.stderr.contains("--out /dev/full: No space left"), "{full:?}");
    assert!(!fs::metadata("/dev/full").unwrap().is_file());
    for inside in ["CURRENT", "new", "generation-1/db"] {
        let refused = export(&data.join(inside)).assert_code(1);
        assert!(refused.stderr.contains("--out: this is inside"), "{refused:?}");
    }
    let refused = export(files.path()).assert_code(1);
    assert!(refused.stderr.contains("directory"), "{refused:?}");
    run(&on(&data, "check", &[])).assert_code(0);
}

#[test]
fn through_a_pipe_it_works_the_same() {
    let files = scratch();
    let (data, other) = (files.path().join("data"), files.path().join("other"));
    let contents = stopped(&data, 12, true);
    let exported = run(&on(&data, "export", &[])).assert_code(0);
    pipe(&on(&other, "import", &["--in", "-"]), exported.stdout.as_bytes()).assert_code(0);
    assert_eq!(served(&other), contents);
}

#[test]
fn an_idempotent_call_that_was_made_before_the_move_is_answered_after_it() {
    let files = scratch();
    let (data, other) = (files.path().join("data"), files.path().join("other"));
    let create = json!({"toolName": "tool", "idempotencyKey": "c", "ttlMs": 3_600_000});
    let broker = Start::on(&data).serve();
    let mut link = broker.link();
    let id = link.ask("store/create", &create).result()["task"]["taskId"].clone();
    let complete = json!({"taskId": id, "result": {}, "idempotencyKey": "k"});
    let first = link.ask("store/complete", &complete).result();
    assert!(broker.stop(DEADLINE).status.success());
    let exported = run(&on(&data, "export", &[])).assert_code(0);
    pipe(&on(&other, "import", &["--in", "-"]), exported.stdout.as_bytes()).assert_code(0);
    let broker = Start::on(&other).serve();
    let mut link = broker.link();
    let again = link.ask("store/create", &create).result();
    assert_eq!((&again["created"], &again["task"]["taskId"]), (&json!(false), &id));
    let mut replayed = link.ask("store/complete", &complete).result();
    assert_eq!(replayed.as_object_mut().unwrap().remove("replayed"), Some(json!(true)));
    assert_eq!(replayed, first);
}

#[test]
fn a_changed_cut_or_reordered_export_is_refused_with_the_line_and_leaves_no_store() {
    let files = scratch();
    let data = files.path().join("data");
    stopped(&data, 6, true);
    let exported = run(&on(&data, "export", &[])).assert_code(0).stdout;
    let lines: Vec<_> = exported.split_inclusive('\n').collect();
    let with = |change: &dyn Fn(&mut Vec<&str>)| {
        let mut lines = lines.clone();
        change(&mut lines);
        lines.concat()
    };
    let cases = [
        ("line 8", with(&|lines| lines.truncate(7))),
        (
            "line 4",
            with(&|lines| lines.retain(|line| *line != exported.split_inclusive('\n').nth(3).unwrap())),
        ),
        ("line 5", with(&|lines| lines.insert(3, lines[3]))),
        ("line 3", with(&|lines| lines.swap(2, 4))),
        ("line 9", with(&|lines| lines.push("{}\n"))),
        ("line 2", exported.replacen("\"toolName\":\"tool-", "\"toolName\":\"toil-", 1)),
        ("line 7", exported[..exported.len() - lines[7].len() - 5].to_owned()),
        ("line 1", "rubbish\n".to_owned()),
        ("line 1", String::new()),
    ];
    for (at, (named, text)) in cases.into_iter().enumerate() {
        let other = files.path().join(format!("other-{at}"));
        let refused = pipe(&on(&other, "import", &["--in", "-"]), text.as_bytes()).assert_code(1);
        assert!(
            refused.stderr.contains(named) && refused.stderr.contains("nothing was imported"),
            "{refused:?}"
        );
        assert!(!other.join("CURRENT").exists() && !other.join("generation-1").exists(), "{named}");
        if other.exists() {
            assert!(served(&other).is_empty());
        }
    }
}

#[test]
fn nothing_is_imported_over_tasks_and_an_empty_store_is_filled() {
    let files = scratch();
    let (data, empty) = (files.path().join("data"), files.path().join("empty"));
    let contents = stopped(&data, 6, true);
    let exported = run(&on(&data, "export", &[])).assert_code(0).stdout;
    let refused = pipe(&on(&data, "import", &["--in", "-"]), exported.as_bytes()).assert_code(1);
    assert!(refused.stderr.contains("not empty"), "{refused:?}");
    assert_eq!(served(&data), contents);
    let broker = Start::on(&empty).serve();
    let id = broker.link().ask("store/info", &json!({})).result()["storeId"].clone();
    assert!(broker.stop(DEADLINE).status.success());
    pipe(&on(&empty, "import", &["--in", "-"]), exported.as_bytes()).assert_code(0);
    assert_eq!(served(&empty), contents);
    let broker = Start::on(&empty).serve();
    assert_eq!(
        broker.link().ask("store/info", &json!({})).result()["storeId"],
        id,
        "it stays the same store"
    );
}

#[test]
fn a_file_that_cannot_be_written_is_an_error_and_no_half_export() {
    let files = scratch();
    let data = files.path().join("data");
    stopped(&data, 1, true);
    let out = files.path().join("no/such/directory");
    let failed = run(&on(&data, "export", &["--out", path(&out)])).assert_code(1);
    assert!(failed.stderr.contains("--out"), "{failed:?}");
}
