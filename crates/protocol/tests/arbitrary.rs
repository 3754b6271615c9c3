//! Whatever arrives, reading it never panics, and what is kept is a part of what arrived.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use bytes::Bytes;
use proptest::prelude::*;
use task_broker_protocol::json::nests_too_deep;
use task_broker_protocol::methods::{
    TaskOnly, apply_input, cancel, complete, create, discard, fail, info, list, require_input, set_meta,
    set_status, set_ttl, statuses, tasks_cancel, wait, watch,
};
use task_broker_protocol::{Call, Decode, Id, Json, Parsed, Response, envelope, parse};

fn decode_as_everything(call: &Call<'_>, body: &Bytes) {
    fn attempt<P: Decode>(call: &Call<'_>, body: &Bytes) {
        if let Err(error) = P::decode(&call.params, body) {
            assert!(!error.member.is_empty() || call.params.get("").is_some());
        }
    }
    attempt::<TaskOnly>(call, body);
    attempt::<info::Params>(call, body);
    attempt::<create::Params>(call, body);
    attempt::<wait::Params>(call, body);
    attempt::<list::Params>(call, body);
    attempt::<statuses::Params>(call, body);
    attempt::<require_input::Params>(call, body);
    attempt::<apply_input::Params>(call, body);
    attempt::<set_status::Params>(call, body);
    attempt::<set_ttl::Params>(call, body);
    attempt::<set_meta::Params>(call, body);
    attempt::<discard::Params>(call, body);
    attempt::<complete::Params>(call, body);
    attempt::<fail::Params>(call, body);
    attempt::<cancel::Params>(call, body);
    attempt::<tasks_cancel::Params>(call, body);
    attempt::<watch::Params>(call, body);
}

fn read(body: &Bytes) {
    let elements = match parse(body) {
        Parsed::Single(element) => vec![element],
        Parsed::Batch(elements) => {
            assert!((1..=envelope::MAX_BATCH).contains(&elements.len()));
            elements
        }
    };
    for element in elements {
        match element {
            Ok(call) => decode_as_everything(&call, body),
            Err(refusal) => {
                let answer = envelope::failure(refusal.id.as_ref(), &refusal.error);
                let read = Response::<()>::parse(&answer).unwrap();
                assert_eq!((read.id, read.outcome), (refusal.id, Err(refusal.error)));
            }
        }
    }
}

/// Any JSON text, as text, with the names that the methods know.
fn json_text() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("null".to_owned()),
        Just("true".to_owned()),
        Just(r#""\ud800""#.to_owned()),
        Just("1e400".to_owned()),
        Just("-0".to_owned()),
        any::<u64>().prop_map(|n| n.to_string()),
        any::<f32>().prop_filter("JSON has no infinity", |n| n.is_finite()).prop_map(|n| n.to_string()),
        any::<String>().prop_map(|s| serde_json::to_string(&s).unwrap()),
    ];
    leaf.prop_recursive(4, 64, 8, |inner| {
        let object = prop::collection::vec((name(), inner.clone()), 0..8).prop_map(|entries| {
            let entries: Vec<_> =
                entries.iter().map(|(name, value)| format!("\"{name}\" : {value}")).collect();
            format!("{{{}}}", entries.join(","))
        });
        let array =
            prop::collection::vec(inner, 0..8).prop_map(|items| format!("[{}]", items.join(" ,\r\n")));
        prop_oneof![object, array]
    })
}

fn name() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "taskId",
        "taskIds",
        "toolName",
        "arguments",
        "ttlMs",
        "owner",
        "meta",
        "status",
        "message",
        "error",
        "code",
        "data",
        "method",
        "result",
        "inputRequests",
        "inputResponses",
        "cursor",
        "limit",
        "id",
        "idempotencyKey",
        "expectedRevision",
        "\\u0061",
        "a",
        "\\ud800",
        "",
    ])
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn reading_any_bytes_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..256)) {
        read(&Bytes::from(bytes));
    }

    #[test]
    fn reading_bytes_that_look_like_json_never_panics(text in r#"[\[\]{}":,\\a-e0-9\-.u \n]{0,64}"#) {
        read(&Bytes::from(text));
    }

    #[test]
    fn reading_a_call_with_any_params_never_panics(params in json_text(), id in json_text()) {
        read(&Bytes::from(format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"m","params":{params}}}"#)));
        read(&Bytes::from(format!(r#"[{{"jsonrpc":"2.0","id":1,"method":"m","params":{params}}},{id}]"#)));
        read(&Bytes::from(params));
    }

    #[test]
    fn reading_a_damaged_call_never_panics(params in json_text(), at in any::<prop::sample::Index>(), byte: u8) {
        let mut text = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"m","params":{params}}}"#).into_bytes();
        let at = at.index(text.len());
        if let Some(place) = text.get_mut(at) {
            *place = byte;
        }
        read(&Bytes::from(text));
    }

    #[test]
    fn any_payload_comes_back_byte_for_byte(payload in json_text()) {
        let text = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"m","params":{{"toolName":"t","arguments":{payload}}}}}"#);
        let body = Bytes::from(text);
        let Parsed::Single(Ok(call)) = parse(&body) else { return Err(TestCaseError::fail("no call")) };
        let kept = create::Params::decode(&call.params, &body).unwrap().arguments.unwrap();
        prop_assert_eq!(kept.as_bytes(), payload.as_bytes());
        let answer = envelope::success(&Id::from(1), &kept).unwrap();
        // A result that is `null` counts as none, so it is looked at as text.
        let expected = format!(r#"{{"jsonrpc":"2.0","id":1,"result":{payload}}}"#);
        prop_assert_eq!(answer, expected.into_bytes());
    }

    #[test]
    fn the_depth_scan_agrees_with_a_parser(levels in 0_usize..127, inner in r"[a-z\[\]{}]{0,16}") {
        let text = format!("{}\"{inner}\"{}", "[".repeat(levels), "]".repeat(levels));
        prop_assert!(serde_json::from_str::<serde_json::Value>(&text).is_ok());
        prop_assert_eq!(nests_too_deep(text.as_bytes()), levels > 100);
        prop_assert!(Json::parse(&Bytes::from(text)).is_ok());
    }
}
