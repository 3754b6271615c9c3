//! The table of methods, and params on their way from client to server.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking, in its helpers too")]

use std::collections::BTreeMap;
use std::fmt::Debug;

use bytes::Bytes;
use serde_json::json;
use task_broker_protocol::methods::{
    TABLE, TaskOnly, apply_input, cancel, complete, create, discard, fail, get, info, list, require_input,
    resume, set_meta, set_status, set_ttl, statuses, tasks_cancel, tasks_get, tasks_update, wait, watch,
};
use task_broker_protocol::shapes::{Guard, Status, TaskError};
use task_broker_protocol::{Audience, Decode, Id, Json, Method, MethodName, Parsed, envelope, lookup, parse};

fn raw(text: &'static str) -> Json {
    Json::parse(&Bytes::from_static(text.as_bytes())).unwrap()
}

fn id() -> String {
    "0123456789abcdef0123456789abcdef".to_owned()
}

fn guard() -> Guard {
    Guard { idempotency_key: Some("key".to_owned()), expected_revision: Some(7) }
}

/// Writes params as the client does and reads them as the server does.
fn round_trip<M: Method>(params: &M::Params, wire: &serde_json::Value)
where
    M::Params: PartialEq + Debug,
{
    let body = Bytes::from(envelope::request(&Id::from(1), M::NAME, params).unwrap());
    let sent: serde_json::Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(sent.get("params"), Some(wire), "{}", M::NAME);
    let Parsed::Single(Ok(call)) = parse(&body) else { panic!("{body:?}") };
    assert_eq!(call.method, M::NAME);
    assert_eq!(&M::Params::decode(&call.params, &body).unwrap(), params, "{}", M::NAME);
}

#[test]
fn every_line_of_the_table_has_a_method_of_its_name() {
    fn check<M: Method>(seen: &mut Vec<MethodName>) {
        assert_eq!(M::NAME, M::METHOD.as_str());
        assert_eq!(lookup(M::NAME).unwrap().method, M::METHOD);
        seen.push(M::METHOD);
    }
    let mut seen = Vec::new();
    check::<info::Info>(&mut seen);
    check::<create::Create>(&mut seen);
    check::<get::Get>(&mut seen);
    check::<wait::Wait>(&mut seen);
    check::<list::List>(&mut seen);
    check::<statuses::Statuses>(&mut seen);
    check::<resume::Resume>(&mut seen);
    check::<require_input::RequireInput>(&mut seen);
    check::<apply_input::ApplyInput>(&mut seen);
    check::<set_status::SetStatus>(&mut seen);
    check::<set_ttl::SetTtl>(&mut seen);
    check::<set_meta::SetMeta>(&mut seen);
    check::<discard::Discard>(&mut seen);
    check::<complete::Complete>(&mut seen);
    check::<fail::Fail>(&mut seen);
    check::<cancel::Cancel>(&mut seen);
    check::<watch::Watch>(&mut seen);
    check::<tasks_get::TasksGet>(&mut seen);
    check::<tasks_update::TasksUpdate>(&mut seen);
    check::<tasks_cancel::TasksCancel>(&mut seen);
    let table: Vec<_> = TABLE.iter().map(|entry| entry.method).collect();
    assert_eq!(seen, table);
}

#[test]
fn the_table_says_who_may_call_what() {
    for entry in TABLE {
        let audience = match entry.name {
            "store/info" => Audience::Anyone,
            name if name.starts_with("store/") => Audience::Creator,
            _ => Audience::Owner,
        };
        assert_eq!(entry.audience, audience, "{}", entry.name);
        assert_eq!(entry.single_only, ["store/wait", "store/watch"].contains(&entry.name));
        let without_task = ["store/info", "store/create", "store/list", "store/statuses", "store/watch"];
        assert_eq!(entry.takes_task, !without_task.contains(&entry.name), "{}", entry.name);
        let reading = ["info", "get", "wait", "list", "statuses", "resume", "watch"];
        let last = entry.name.split('/').next_back().unwrap();
        assert_eq!(entry.changes, !reading.contains(&last), "{}", entry.name);
    }
    for unknown in ["", "store/Get", "tasks/result", "tasks/list", "store/get "] {
        assert_eq!(lookup(unknown), None);
    }
}

#[test]
fn params_of_reading_methods_arrive_as_sent() {
    let task_only = TaskOnly { task_id: id() };
    round_trip::<info::Info>(&info::Params {}, &json!({}));
    round_trip::<get::Get>(&task_only, &json!({"taskId": id()}));
    round_trip::<resume::Resume>(&task_only, &json!({"taskId": id()}));
    round_trip::<tasks_get::TasksGet>(&task_only, &json!({"taskId": id()}));
    round_trip::<wait::Wait>(
        &wait::Params { task_id: id(), timeout_ms: None, since_revision: None },
        &json!({"taskId": id()}),
    );
    round_trip::<wait::Wait>(
        &wait::Params { task_id: id(), timeout_ms: Some(0), since_revision: Some(u64::MAX) },
        &json!({"taskId": id(), "timeoutMs": 0, "sinceRevision": u64::MAX}),
    );
    round_trip::<list::List>(&list::Params::default(), &json!({}));
    round_trip::<list::List>(
        &list::Params {
            role: list::Role::Owner,
            owner: list::OwnerFilter::Subject(String::new()),
            status: Some(Status::ALL.to_vec()),
            cursor: Some("c".to_owned()),
            limit: Some(5),
        },
        &json!({"role": "owner", "owner": "", "cursor": "c", "limit": 5,
            "status": ["working", "input_required", "completed", "failed", "cancelled"]}),
    );
    let nobody = list::Params { owner: list::OwnerFilter::Nobody, ..list::Params::default() };
    round_trip::<list::List>(&nobody, &json!({"owner": null}));
    round_trip::<statuses::Statuses>(
        &statuses::Params { task_ids: vec![id(), String::new()] },
        &json!({"taskIds": [id(), ""]}),
    );
    round_trip::<watch::Watch>(&watch::Params { since: None }, &json!({}));
    round_trip::<watch::Watch>(&watch::Params { since: Some("p".to_owned()) }, &json!({"since": "p"}));
}

#[test]
fn params_of_a_create_arrive_as_sent() {
    round_trip::<create::Create>(&create::Params::new("t"), &json!({"toolName": "t"}));
    let params = create::Params {
        arguments: Some(raw("null")),
        ttl: create::Ttl::Maximum,
        owner: create::Owner::Nobody,
        ..create::Params::new("t")
    };
    round_trip::<create::Create>(
        &params,
        &json!({"toolName": "t", "arguments": null, "ttlMs": null, "owner": null}),
    );
    let params = create::Params {
        arguments: Some(raw("[1]")),
        ttl: create::Ttl::Millis(0),
        owner: create::Owner::Subject("alice\0".to_owned()),
        poll_interval_ms: Some(100),
        meta: Some(raw("{}")),
        guard: guard(),
        ..create::Params::new("t")
    };
    round_trip::<create::Create>(
        &params,
        &json!({"toolName": "t", "arguments": [1], "ttlMs": 0, "owner": "alice\0", "pollIntervalMs": 100,
            "meta": {}, "idempotencyKey": "key", "expectedRevision": 7}),
    );
}

#[test]
fn params_of_input_methods_arrive_as_sent() {
    let requests: BTreeMap<_, _> = [("k".to_owned(), raw(r#"{"method":"m"}"#))].into();
    round_trip::<require_input::RequireInput>(
        &require_input::Params {
            task_id: id(),
            input_requests: requests,
            message: Some("m".to_owned()),
            on_spent_key: require_input::OnSpentKey::Reject,
            guard: guard(),
        },
        &json!({"taskId": id(), "inputRequests": {"k": {"method": "m"}}, "message": "m", "onSpentKey": "reject",
            "idempotencyKey": "key", "expectedRevision": 7}),
    );
    round_trip::<require_input::RequireInput>(
        &require_input::Params {
            task_id: id(),
            input_requests: BTreeMap::new(),
            message: None,
            on_spent_key: require_input::OnSpentKey::AskAgain,
            guard: Guard::default(),
        },
        &json!({"taskId": id(), "inputRequests": {}}),
    );
    let input_responses = [("k".to_owned(), raw("null")), ("é\"".to_owned(), raw("1"))].into();
    let params = apply_input::Params { task_id: id(), input_responses, guard: guard() };
    let wire = json!({"taskId": id(), "inputResponses": {"k": null, "é\"": 1}, "idempotencyKey": "key",
        "expectedRevision": 7});
    round_trip::<apply_input::ApplyInput>(&params, &wire);
    round_trip::<tasks_update::TasksUpdate>(&params, &wire);
}

#[test]
fn params_of_other_changing_methods_arrive_as_sent() {
    let with_guard = |wire: serde_json::Value| {
        let mut wire = wire;
        wire["taskId"] = json!(id());
        wire["idempotencyKey"] = json!("key");
        wire["expectedRevision"] = json!(7);
        wire
    };
    round_trip::<set_status::SetStatus>(
        &set_status::Params {
            task_id: id(),
            status: Status::InputRequired,
            message: Some(String::new()),
            guard: guard(),
        },
        &with_guard(json!({"status": "input_required", "message": ""})),
    );
    round_trip::<set_ttl::SetTtl>(
        &set_ttl::Params { task_id: id(), ttl_ms: u64::MAX, guard: guard() },
        &with_guard(json!({"ttlMs": u64::MAX})),
    );
    round_trip::<set_meta::SetMeta>(
        &set_meta::Params { task_id: id(), meta: raw(r#"{"a":1}"#), guard: guard() },
        &with_guard(json!({"meta": {"a": 1}})),
    );
    round_trip::<discard::Discard>(
        &discard::Params { task_id: id(), guard: guard() },
        &with_guard(json!({})),
    );
    round_trip::<complete::Complete>(
        &complete::Params { task_id: id(), result: raw(r#"{"isError":true}"#), guard: guard() },
        &with_guard(json!({"result": {"isError": true}})),
    );
    for (data, wire) in [
        (None, json!({"code": -1, "message": "m"})),
        (Some(raw("null")), json!({"code": -1, "message": "m", "data": null})),
    ] {
        let error = TaskError { code: -1, message: "m".to_owned(), data };
        assert_eq!(Json::of(&error).unwrap().read::<TaskError>().unwrap(), error);
        round_trip::<fail::Fail>(
            &fail::Params { task_id: id(), error, guard: guard() },
            &with_guard(json!({"error": wire})),
        );
    }
    round_trip::<cancel::Cancel>(
        &cancel::Params { task_id: id(), reason: Some("r".to_owned()), guard: guard() },
        &with_guard(json!({"reason": "r"})),
    );
    round_trip::<tasks_cancel::TasksCancel>(
        &tasks_cancel::Params { task_id: id(), guard: guard() },
        &with_guard(json!({})),
    );
}
