//! Payloads leave as they came, whatever is in them, and are refused only for their depth.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking, in its helpers too")]

use bytes::Bytes;
use task_broker_protocol::json::{kind_of, nests_too_deep};
use task_broker_protocol::methods::{apply_input, cancel, complete, create, fail, require_input, resume};
use task_broker_protocol::shapes::{Outcome, Row, Snapshot, Status, Task};
use task_broker_protocol::{Decode, Id, Json, JsonKind, ParamError, Parsed, Response, envelope, parse};

/// Texts that a parse into a tree would change.
const FRAGILE: [&str; 9] = [
    r#"{"n":12345678901234567890123}"#,
    r#"{"n":1e400,"m":1.0,"k":-0,"l":1E+2}"#,
    r#"{"s":"\ud800","t":"\u0041\/\u0000"}"#,
    r#"{"a":1,"a":2,"\u0061":3}"#,
    "{\r\n  \"a\" : [ 1 ,\t2 ] ,\r\n  \"b\" : \"é\"\r\n}",
    r#"{"z":1,"a":2}"#,
    r#"{"structuredContent":null}"#,
    r#"{"$serde_json::private::RawValue":"x"}"#,
    "{}",
];

fn decode<P: Decode>(params: &str) -> Result<(P, Bytes), ParamError> {
    let body = Bytes::from(format!(r#"{{"jsonrpc":"2.0","id":1,"method":"m","params":{params}}}"#));
    match parse(&body) {
        Parsed::Single(Ok(call)) => Ok((P::decode(&call.params, &body)?, body.clone())),
        other => panic!("{other:?} from {params}"),
    }
}

fn json(text: &str) -> Json {
    Json::parse(&Bytes::copy_from_slice(text.as_bytes())).unwrap()
}

fn nested(levels: usize) -> String {
    format!("{}{}", "[".repeat(levels), "]".repeat(levels))
}

fn snapshot(payload: &str) -> Snapshot {
    let task = Task {
        task_id: "0".repeat(32),
        status: Status::InputRequired,
        status_message: None,
        created_at: "2026-01-01T00:00:00.000Z".to_owned(),
        last_updated_at: "2026-01-01T00:00:00.000Z".to_owned(),
        ttl_ms: u64::MAX,
        poll_interval_ms: 1,
        meta: Some(json(payload)),
    };
    let row = Row {
        task,
        owner: None,
        tool_name: "t".to_owned(),
        revision: 3,
        remaining_ms: u64::MAX,
        cancel_requested: false,
    };
    let input_requests = [("k".to_owned(), json(payload))].into();
    Snapshot { result: Some(json(payload)), error: Some(json(payload)), input_requests, ..Snapshot::of(row) }
}

#[test]
fn a_payload_is_kept_as_the_bytes_received_without_a_copy() {
    for text in FRAGILE {
        let (params, body) =
            decode::<complete::Params>(&format!(r#"{{"taskId":"t", "result" : {text} }}"#)).unwrap();
        assert_eq!(params.result.as_bytes(), text.as_bytes());
        assert!(body.as_ptr_range().contains(&params.result.as_bytes().as_ptr()));
    }
}

#[test]
fn every_payload_member_keeps_its_bytes() {
    for text in FRAGILE {
        let with_method = text.replacen('{', r#"{"method":"m","#, 1).replace(",}", "}");
        let (params, _) =
            decode::<create::Params>(&format!(r#"{{"toolName":"t","arguments":{text},"meta":{text}}}"#))
                .unwrap();
        assert_eq!(params.arguments.unwrap().as_bytes(), text.as_bytes());
        assert_eq!(params.meta.unwrap().as_bytes(), text.as_bytes());
        let (params, _) = decode::<fail::Params>(&format!(
            r#"{{"taskId":"t","error":{{"code":1,"message":"m","data":{text}}}}}"#
        ))
        .unwrap();
        assert_eq!(params.error.data.unwrap().as_bytes(), text.as_bytes());
        let (params, _) =
            decode::<apply_input::Params>(&format!(r#"{{"taskId":"t","inputResponses":{{"k":{text}}}}}"#))
                .unwrap();
        assert_eq!(params.input_responses["k"].as_bytes(), text.as_bytes());
        let (params, _) = decode::<require_input::Params>(&format!(
            r#"{{"taskId":"t","inputRequests":{{"k":{with_method}}}}}"#
        ))
        .unwrap();
        assert_eq!(params.input_requests["k"].as_bytes(), with_method.as_bytes());
    }
}

#[test]
fn a_payload_written_by_the_client_reaches_the_server_unchanged() {
    for text in FRAGILE {
        let params = complete::Params {
            task_id: "t".to_owned(),
            result: json(text),
            guard: task_broker_protocol::shapes::Guard::default(),
        };
        let body = Bytes::from(envelope::request(&Id::from(1), "m", &params).unwrap());
        let Parsed::Single(Ok(call)) = parse(&body) else { panic!("{body:?}") };
        assert_eq!(complete::Params::decode(&call.params, &body).unwrap(), params);
    }
}

#[test]
fn a_payload_in_an_answer_reaches_the_client_unchanged() {
    for text in FRAGILE {
        let created = create::Created { snapshot: snapshot(text), created: true };
        let answer = envelope::success(&Id::from(1), &created).unwrap();
        assert!(String::from_utf8(answer.clone()).unwrap().matches(text).count() >= 4);
        assert_eq!(Response::parse(&answer).unwrap().outcome, Ok(created));

        let outcome = Outcome { applied: true, status: Status::Cancelled, revision: 3, replayed: true };
        let cancelled = cancel::Cancelled { outcome, snapshot: snapshot(text) };
        let answer = envelope::success(&Id::from(1), &cancelled).unwrap();
        assert_eq!(Response::parse(&answer).unwrap().outcome, Ok(cancelled));

        let context = resume::Context {
            tool_name: "t".to_owned(),
            arguments: json(text),
            input_responses: [("k".to_owned(), json(text)), ("n".to_owned(), json("null"))].into(),
            revision: 1,
            remaining_ms: 1,
            cancel_requested: true,
        };
        let answer = envelope::success(&Id::from(1), &context).unwrap();
        assert_eq!(Response::parse(&answer).unwrap().outcome, Ok(context));
    }
}

#[test]
fn a_payload_may_nest_100_levels_counted_from_its_own_outermost_one() {
    let members: [(&str, &str); 2] = [
        (r#"{"toolName":"t","arguments":"#, "arguments"),
        (r#"{"toolName":"t","arguments":[],"meta":"#, "meta"),
    ];
    let (arguments, name) = members[0];
    decode::<create::Params>(&format!("{arguments}{}}}", nested(100))).unwrap();
    for levels in [101, 1000, 100_000] {
        let error = decode::<create::Params>(&format!("{arguments}{}}}", nested(levels))).unwrap_err();
        assert_eq!(error.member, name);
    }
    let (meta, name) = members[1];
    decode::<create::Params>(&format!("{meta}{{\"a\":{}}}}}", nested(99))).unwrap();
    let error = decode::<create::Params>(&format!("{meta}{{\"a\":{}}}}}", nested(100))).unwrap_err();
    assert_eq!(error.member, name);
}

#[test]
fn each_payload_of_a_map_is_counted_from_its_own_outermost_level() {
    let response = |levels| format!(r#"{{"taskId":"t","inputResponses":{{"k1":{}}}}}"#, nested(levels));
    decode::<apply_input::Params>(&response(100)).unwrap();
    let error = decode::<apply_input::Params>(&response(101)).unwrap_err();
    assert_eq!(error.member, "inputResponses.k1");
    let data =
        |levels| format!(r#"{{"taskId":"t","error":{{"code":1,"message":"m","data":{}}}}}"#, nested(levels));
    decode::<fail::Params>(&data(100)).unwrap();
    assert_eq!(decode::<fail::Params>(&data(101)).unwrap_err().member, "error.data");
}

#[test]
fn what_nests_as_deep_as_allowed_can_be_read_back() {
    let text = format!("{{\"a\":{}}}", nested(99));
    let created = create::Created { snapshot: snapshot(&text), created: false };
    let answer = envelope::success(&Id::from(1), &created).unwrap();
    assert_eq!(Response::parse(&answer).unwrap().outcome, Ok(created));
}

#[test]
fn brackets_in_strings_do_not_nest() {
    for text in [
        format!(r#"{{"a":"{}"}}"#, "[{".repeat(1000)),
        format!(r#"{{"a":"\"{}"}}"#, "[".repeat(1000)),
        format!(r#"{{"a":"\\","b":"\\\"{}"}}"#, "[".repeat(1000)),
        format!("[{}[]]", "[],".repeat(1000)),
    ] {
        assert!(!nests_too_deep(text.as_bytes()), "{text}");
    }
    assert!(nests_too_deep(format!(r#"["\\",{}]"#, nested(100)).as_bytes()));
    assert!(nests_too_deep("[".repeat(101).as_bytes()));
}

#[test]
fn the_kind_is_told_by_the_first_byte() {
    for (text, kind) in [
        ("{}", JsonKind::Object),
        (" \r\n\t[]", JsonKind::Array),
        (r#""""#, JsonKind::String),
        ("-1", JsonKind::Number),
        ("0", JsonKind::Number),
        ("true", JsonKind::Bool),
        ("false", JsonKind::Bool),
        ("null", JsonKind::Null),
    ] {
        assert_eq!(kind_of(text.as_bytes()), Some(kind));
    }
    assert_eq!(kind_of(b""), None);
    assert_eq!(kind_of(b"+1"), None);
}

#[test]
fn bytes_that_are_no_json_are_an_error_and_never_a_broken_answer() {
    for text in [&b"{"[..], b"", b"{} {}", b"\xff"] {
        let stored = Json::from_trusted(Bytes::copy_from_slice(text));
        assert!(envelope::success(&Id::from(1), &stored).is_err());
        assert!(Json::parse(&Bytes::copy_from_slice(text)).is_err());
    }
    assert_eq!(json(" [1] \n").as_bytes(), b"[1]");
}

#[test]
fn a_slice_of_another_body_is_copied() {
    let (one, other) = (Bytes::from_static(b"[1,2]"), Bytes::from_static(b"[3]"));
    let raw: &serde_json::value::RawValue = serde_json::from_slice(&one).unwrap();
    assert_eq!(Json::from_raw(raw, &other).as_bytes(), b"[1,2]");
    let kept = Json::from_raw(raw, &one);
    assert_eq!(kept.as_bytes().as_ptr(), one.as_ptr());
    assert_ne!(kept.detached().as_bytes().as_ptr(), one.as_ptr());
    assert_eq!(kept.detached(), kept);
}

#[test]
fn debug_shows_the_length_and_not_the_content() {
    assert_eq!(format!("{:?}", json(r#"{"secret":1}"#)), "Json(12 bytes)");
}
