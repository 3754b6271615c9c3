//! An export comes back as it was, or is refused with the number of the line.

use bytes::Bytes;
use task_broker_core::{
    Caller, Command, Effect, Guard, Limits, NewTask, OwnerFrom, Payload, PayloadRef, Quota, Request, Right,
    Task, TaskId, Timestamp, TtlWish, Usage, create, execute,
};

use super::*;

const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_000);

type Whole = (Task, Vec<(PayloadRef, Bytes)>);

fn whole(number: u8, arguments: &'static [u8]) -> Whole {
    let new = NewTask {
        id: TaskId::from_bytes([number; 16]),
        tool_name: "tool \"\\\u{2028}é".into(),
        owner: Some("alice".into()),
        arguments: Payload::new(Bytes::from_static(arguments)),
        ttl: TtlWish::Millis(60_000),
        poll_interval_ms: None,
        meta: Some(Payload::new(Bytes::from_static(b"{}"))),
        key: None,
    };
    let caller = Caller::named("worker").with_delegation();
    let limits = Limits {
        default_ttl_ms: 60_000,
        max_ttl_ms: 60_000,
        default_poll_interval_ms: 2_000,
        max_payload_bytes: 4096,
        quota: Quota { tasks_per_owner: 10, bytes_per_owner: 1 << 20, max_tasks: 10 },
    };
    let effect = create(new, &caller, &limits, &Usage::default(), NOW).unwrap().effect;
    let Effect::Write { task, mut payloads, .. } = effect else { panic!("nothing was created") };
    let result = Payload::new(Bytes::from_static(br#"{"isError":false}"#));
    let request = Request {
        caller,
        right: Right::Creator,
        guard: Guard::default(),
        command: Command::Complete { result },
    };
    let effect = execute(&task, &request, &limits, &Usage::default(), NOW).unwrap().effect;
    let Effect::Write { task, payloads: more, .. } = effect else { panic!("nothing was completed") };
    payloads.extend(more);
    (*task, payloads)
}

/// The lines of an export of three tasks.
fn lines() -> Vec<Vec<u8>> {
    let mut writer = Writer::new();
    let mut lines = vec![writer.header("store", OwnerFrom::Sub, NOW)];
    for (task, payloads) in tasks() {
        let find =
            |wanted: &PayloadRef| payloads.iter().find(|(kept, _)| kept == wanted).map(|(_, bytes)| bytes);
        lines.push(writer.task(&task, find).unwrap());
    }
    lines.push(writer.end(NOW).0);
    lines
}

fn tasks() -> [Whole; 3] {
    [
        whole(1, br#" {"a" : 1e400, "a": "\ud800", "n": 12345678901234567890123} "#),
        whole(2, b"\"line\\nbreak\""),
        whole(3, b"\xff\xfe not text \0\n"),
    ]
}

fn read<L: AsRef<[u8]>>(lines: impl IntoIterator<Item = L>) -> Result<Vec<Whole>, ArchiveError> {
    let mut reader = Reader::new();
    let mut tasks = Vec::new();
    for line in lines {
        if let Part::Task(task, payloads) = reader.line(line.as_ref())? {
            tasks.push((*task, payloads));
        }
    }
    reader.finish()?;
    Ok(tasks)
}

fn refused<L: AsRef<[u8]>>(lines: impl IntoIterator<Item = L>) -> ArchiveError {
    read(lines).unwrap_err()
}

#[test]
fn tasks_come_back_with_every_byte() {
    let back = read(lines()).unwrap();
    for ((task, mut payloads), (expected, mut stored)) in back.into_iter().zip(tasks()) {
        assert_eq!(task, expected);
        payloads.sort_by_key(|(reference, _)| (reference.revision, reference.place()));
        stored.sort_by_key(|(reference, _)| (reference.revision, reference.place()));
        assert_eq!(payloads, stored);
    }
}

#[test]
fn every_line_is_json_and_shows_its_number() {
    for (at, line) in lines().iter().enumerate() {
        let value: serde_json::Value = serde_json::from_slice(line).unwrap();
        assert_eq!(value["line"], at + 1);
        assert_eq!(value["sum"].as_str().unwrap().len(), 16);
    }
    let text = String::from_utf8(lines()[1].clone()).unwrap();
    assert!(text.contains(r#""text":" {\"a\" : 1e400, \"a\": \"\\ud800\""#), "{text}");
    let text = String::from_utf8(lines()[3].clone()).unwrap();
    assert!(text.contains(r#""base64":"//4gbm90IHRleHQgAAo=""#), "{text}");
}

#[test]
fn a_changed_byte_is_refused_wherever_it_is() {
    let good = lines();
    for number in 0..good.len() {
        for at in 0..good[number].len() {
            let mut lines = good.clone();
            lines[number][at] ^= 1;
            let error = refused(&lines);
            assert_eq!(error.line, number as u64 + 1, "byte {at}: {error}");
        }
    }
}

#[test]
fn a_missing_doubled_or_moved_line_is_refused_and_its_number_is_named() {
    let good = lines();
    for number in 0..good.len() {
        let mut missing = good.clone();
        missing.remove(number);
        assert_eq!(refused(&missing).line, number as u64 + 1, "missing");
        let mut doubled = good.clone();
        doubled.insert(number, good[number].clone());
        assert_eq!(refused(&doubled).line, number as u64 + 2, "doubled");
        if number > 0 {
            let mut moved = good.clone();
            moved.swap(number - 1, number);
            assert_eq!(refused(&moved).line, number as u64, "moved");
        }
    }
}

#[test]
fn lines_of_another_export_do_not_fit_even_with_the_right_number() {
    let mut mixed = lines();
    let mut writer = Writer::new();
    let mut other = vec![writer.header("another store", OwnerFrom::Sub, NOW)];
    let (task, payloads) = whole(9, b"{}");
    let find = |wanted: &PayloadRef| payloads.iter().find(|(kept, _)| kept == wanted).map(|(_, bytes)| bytes);
    other.push(writer.task(&task, find).unwrap());
    mixed[1] = other.pop().unwrap();
    let error = refused(&mixed);
    assert!(error.line == 2 && error.what.contains("checksum"), "{error}");
}

#[test]
fn an_export_that_is_cut_anywhere_is_refused() {
    let whole = lines().concat();
    for end in 0..whole.len() {
        let cut = &whole[..end];
        let error = refused(cut.split_inclusive(|byte| *byte == b'\n'));
        let at = cut.split(|byte| *byte == b'\n').count() as u64;
        assert_eq!(error.line, at, "cut at {end}: {error}");
    }
}

#[test]
fn what_is_no_export_or_of_another_format_is_told_apart() {
    assert!(refused(["hello\n"]).what.contains("no export"));
    assert!(refused([""; 0]).what.contains("not complete"));
    let mut chain = super::line::Chain::default();
    let header = br#"{"taskBrokerExport":2,"store":"s","time":1,"program":"p"}"#;
    let error = refused([chain.write("header", header)]);
    assert!(error.what.contains("format 2") && error.what.contains("format 1"), "{error}");
}

#[test]
fn a_task_that_breaks_a_rule_is_refused_and_no_content_is_told() {
    let (task, payloads) = whole(1, br#""secret""#);
    let text = {
        let find =
            |wanted: &PayloadRef| payloads.iter().find(|(kept, _)| kept == wanted).map(|(_, bytes)| bytes);
        let line = String::from_utf8(Writer::new().task(&task, find).unwrap()).unwrap();
        let (_, rest) = line.split_once("\"task\":").unwrap();
        rest.rsplit_once(",\"sum\"").unwrap().0.to_owned()
    };
    for (from, to) in [
        ("\"revision\":2,\"cancelRequested\"", "\"revision\":0,\"cancelRequested\""),
        ("\"status\":\"completed\"", "\"status\":\"working\""),
        ("\"status\":\"completed\"", "\"status\":\"done\""),
        ("\"taskId\":\"01", "\"taskId\":\"x1"),
        ("\"place\":1,\"text\":\"{}\"", "\"place\":0,\"text\":\"{}\""),
        ("\"text\":\"{}\"", "\"base64\":\"?\""),
        ("\"text\":\"{}\"", "\"text\":\"{}\",\"base64\":\"e30=\""),
        ("\"ttlMs\":", "\"more\":1,\"ttlMs\":"),
        ("\"ttlMs\":", "\"revision\":1,\"ttlMs\":"),
    ] {
        let changed = text.replacen(from, to, 1);
        assert_ne!(changed, text, "{from}");
        let mut chain = super::line::Chain::default();
        let header = br#"{"taskBrokerExport":1,"store":"s","time":1,"program":"p"}"#;
        let error = refused([chain.write("header", header), chain.write("task", changed.as_bytes())]);
        assert_eq!(error.line, 2, "{to}: {error}");
        assert!(!error.to_string().contains("secret"), "{error}");
    }
}
