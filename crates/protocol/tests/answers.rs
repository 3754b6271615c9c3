//! The shapes of results and of a stream's messages, as they stand on the wire.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::fmt::Debug;

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;
use task_broker_protocol::Json;
use task_broker_protocol::methods::{
    apply_input, cancel, create, info, list, set_ttl, statuses, tasks_get, tasks_update, wait, watch,
};
use task_broker_protocol::shapes::{Outcome, Row, Snapshot, Status, Task};

fn raw(text: &'static str) -> Json {
    Json::parse(&Bytes::from_static(text.as_bytes())).unwrap()
}

fn id() -> String {
    "0123456789abcdef0123456789abcdef".to_owned()
}

/// Writes a result as the server does and reads it as the client does.
fn answer<R: Serialize + DeserializeOwned + PartialEq + Debug>(result: &R, wire: &str) {
    let text = serde_json::to_string(result).unwrap();
    assert_eq!(text, wire);
    assert_eq!(&serde_json::from_str::<R>(&text).unwrap(), result);
}

fn task(status: Status) -> Task {
    Task {
        task_id: id(),
        status,
        status_message: Some("m".to_owned()),
        created_at: "2026-01-01T00:00:00.000Z".to_owned(),
        last_updated_at: "2026-01-01T00:00:01.000Z".to_owned(),
        ttl_ms: 60_000,
        poll_interval_ms: 2000,
        meta: Some(raw(r#"{"x": 1}"#)),
    }
}

fn row(status: Status) -> Row {
    Row {
        task: task(status),
        owner: Some("alice".to_owned()),
        tool_name: "tool".to_owned(),
        revision: 2,
        remaining_ms: 59_000,
        cancel_requested: false,
    }
}

const TASK: &str = r#""taskId":"0123456789abcdef0123456789abcdef","status":"STATUS","statusMessage":"m","createdAt":"2026-01-01T00:00:00.000Z","lastUpdatedAt":"2026-01-01T00:00:01.000Z","ttlMs":60000,"pollIntervalMs":2000,"_meta":{"x": 1}"#;

fn task_text(status: Status) -> String {
    TASK.replace("STATUS", status.as_str())
}

#[test]
fn a_snapshot_is_flat_and_a_row_with_no_owner_says_so() {
    let bare = Snapshot::of(Row { owner: None, ..row(Status::Working) });
    let members = r#""toolName":"tool","revision":2,"remainingMs":59000,"cancelRequested":false"#;
    let working = task_text(Status::Working);
    let wire = format!(r#"{{"task":{{{working}}},"owner":null,{members},"inputRequests":{{}}}}"#);
    answer(&bare, &wire);
    answer(&bare.clone().into_row(), &wire.replace(r#","inputRequests":{}"#, ""));
    let created = create::Created { snapshot: bare.clone(), created: true };
    answer(&created, &wire.replace(r#""inputRequests":{}}"#, r#""inputRequests":{},"created":true}"#));
    let waited = wait::Waited { snapshot: bare, timed_out: false };
    answer(&waited, &wire.replace(r#""inputRequests":{}}"#, r#""inputRequests":{},"timedOut":false}"#));
}

#[test]
fn a_cancel_answers_outcome_and_snapshot_with_one_revision() {
    let outcome = Outcome { applied: true, status: Status::Cancelled, revision: 2, replayed: false };
    let cancelled = cancel::Cancelled { outcome, snapshot: Snapshot::of(row(Status::Cancelled)) };
    let task = task_text(Status::Cancelled);
    answer(
        &cancelled,
        &format!(
            r#"{{"applied":true,"status":"cancelled","revision":2,"task":{{{task}}},"owner":"alice","toolName":"tool","remainingMs":59000,"cancelRequested":false,"inputRequests":{{}}}}"#
        ),
    );
}

#[test]
fn an_outcome_says_replayed_only_when_it_is() {
    let outcome = Outcome { applied: false, status: Status::Completed, revision: 9, replayed: false };
    answer(&outcome, r#"{"applied":false,"status":"completed","revision":9}"#);
    let outcome = Outcome { replayed: true, ..outcome };
    answer(&outcome, r#"{"applied":false,"status":"completed","revision":9,"replayed":true}"#);
    let applied = apply_input::Applied {
        outcome,
        accepted: vec!["a".to_owned()],
        ignored: vec![],
        still_outstanding: vec!["b".to_owned()],
    };
    answer(
        &applied,
        r#"{"applied":false,"status":"completed","revision":9,"replayed":true,"accepted":["a"],"ignored":[],"stillOutstanding":["b"]}"#,
    );
    let ttl = set_ttl::TtlOutcome { outcome, ttl_ms: 5, remaining_ms: 4 };
    answer(
        &ttl,
        r#"{"applied":false,"status":"completed","revision":9,"replayed":true,"ttlMs":5,"remainingMs":4}"#,
    );
}

#[test]
fn lists_and_states_have_their_shapes() {
    let page = list::Page { tasks: vec![], next_cursor: None };
    answer(&page, r#"{"tasks":[]}"#);
    answer(&list::Page { next_cursor: Some("c".to_owned()), ..page }, r#"{"tasks":[],"nextCursor":"c"}"#);
    let state =
        statuses::State { status: Status::Failed, revision: 1, remaining_ms: 0, cancel_requested: true };
    let statuses = [("a".to_owned(), None), ("b".to_owned(), Some(state))].into();
    answer(
        &statuses::States { statuses },
        r#"{"statuses":{"a":null,"b":{"status":"failed","revision":1,"remainingMs":0,"cancelRequested":true}}}"#,
    );
    let limits: info::Limits = serde_json::from_str(r#"{"maxTasks":5,"newer":1}"#).unwrap();
    assert_eq!((limits.max_tasks, limits.max_wait_ms), (5, 0));
}

#[test]
fn tasks_get_shows_what_belongs_to_the_status_and_nothing_else() {
    for status in Status::ALL {
        let everything = Snapshot {
            result: Some(raw("{ }")),
            error: Some(raw(r#"{"code":1,"message":"m"}"#)),
            input_requests: [("k".to_owned(), raw(r#"{"method":"m"}"#))].into(),
            ..Snapshot::of(row(status))
        };
        let extra = match status {
            Status::InputRequired => r#","inputRequests":{"k":{"method":"m"}}"#,
            Status::Completed => r#","result":{ }"#,
            Status::Failed => r#","error":{"code":1,"message":"m"}"#,
            Status::Working | Status::Cancelled => "",
        };
        let task = task_text(status);
        let wire = format!(r#"{{"resultType":"complete",{task}{extra}}}"#);
        let text = serde_json::to_string(&tasks_get::DetailedTask::from(everything)).unwrap();
        assert_eq!(text, wire);
        let read: tasks_get::DetailedTask = serde_json::from_str(&text).unwrap();
        assert_eq!(serde_json::to_string(&read).unwrap(), wire);
    }
    let none_left = tasks_get::DetailedTask::from(Snapshot::of(row(Status::InputRequired)));
    assert!(serde_json::to_string(&none_left).unwrap().ends_with(r#","inputRequests":{}}"#));
}

#[test]
fn an_acknowledgement_is_empty_but_for_its_type() {
    answer(&tasks_update::Acknowledged::default(), r#"{"resultType":"complete"}"#);
    assert!(serde_json::from_str::<tasks_update::Acknowledged>("{}").is_ok());
}

#[test]
fn messages_of_a_stream_are_read_as_they_were_written() {
    let event = watch::Event {
        position: "7".to_owned(),
        task_id: id(),
        kind: watch::EventKind::RequireInput,
        status: Status::InputRequired,
        revision: 2,
        remaining_ms: 5,
        cancel_requested: false,
    };
    let text = event.to_notification().unwrap();
    assert_eq!(
        String::from_utf8(text.clone()).unwrap(),
        r#"{"jsonrpc":"2.0","method":"store/event","params":{"position":"7","taskId":"0123456789abcdef0123456789abcdef","kind":"requireInput","status":"input_required","revision":2,"remainingMs":5,"cancelRequested":false}}"#
    );
    assert_eq!(watch::Message::parse(&text).unwrap(), watch::Message::Event(event.clone()));
    let newer = String::from_utf8(text).unwrap().replace("requireInput", "claim");
    let kind = watch::EventKind::Other("claim".to_owned());
    let expected = watch::Message::Event(watch::Event { kind, ..event });
    assert_eq!(watch::Message::parse(newer.as_bytes()).unwrap(), expected);

    let synced = watch::Synced { position: "7".to_owned(), reset: true };
    let text = synced.to_notification().unwrap();
    let wire = r#"{"jsonrpc":"2.0","method":"store/synced","params":{"position":"7","reset":true}}"#;
    assert_eq!(String::from_utf8(text.clone()).unwrap(), wire);
    assert_eq!(watch::Message::parse(&text).unwrap(), watch::Message::Synced(synced));
    assert_eq!(watch::Message::parse(br#"{"method":"x"}"#).unwrap(), watch::Message::Unknown);
}
