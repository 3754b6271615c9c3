//! What the server refuses in params, member by member, and what it takes.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking, in its helpers too")]

use bytes::Bytes;
use task_broker_protocol::members::MAX_INPUTS;
use task_broker_protocol::methods::{
    apply_input, complete, create, fail, list, require_input, set_meta, set_status, set_ttl, statuses, wait,
    watch,
};
use task_broker_protocol::{Decode, ErrorObject, Kind, ParamError, Parsed, parse};

fn decode<P: Decode>(params: &str) -> Result<P, ParamError> {
    let body = Bytes::from(format!(r#"{{"jsonrpc":"2.0","id":1,"method":"m","params":{params}}}"#));
    match parse(&body) {
        Parsed::Single(Ok(call)) => P::decode(&call.params, &body),
        other => panic!("{other:?} from {params}"),
    }
}

/// The member that params of this shape are refused for.
fn refused<P: Decode>(params: &str) -> String {
    match decode::<P>(params) {
        Ok(_) => panic!("{params} was taken"),
        Err(error) => error.member,
    }
}

#[test]
fn an_integer_has_no_sign_fraction_exponent_or_quotes_and_fits_64_bits() {
    let ttl = |token: &str| format!(r#"{{"taskId":"t","ttlMs":{token}}}"#);
    for (token, value) in [("0", 0), ("1", 1), ("18446744073709551615", u64::MAX)] {
        assert_eq!(decode::<set_ttl::Params>(&ttl(token)).unwrap().ttl_ms, value);
    }
    let wrong = [
        "1.0",
        "1.5",
        "1e3",
        "1E3",
        "0e0",
        "-1",
        "-0",
        r#""5""#,
        "18446744073709551616",
        "null",
        "true",
        "[1]",
        "{}",
        "1e400",
    ];
    for token in wrong {
        assert_eq!(refused::<set_ttl::Params>(&ttl(token)), "ttlMs", "{token}");
    }
    assert_eq!(refused::<set_ttl::Params>(r#"{"taskId":"t"}"#), "ttlMs");
}

#[test]
fn an_error_code_has_32_bits_and_a_sign() {
    let error = |token: &str| format!(r#"{{"taskId":"t","error":{{"code":{token},"message":"m"}}}}"#);
    for (token, value) in [("0", 0), ("-32603", -32603), ("2147483647", i32::MAX), ("-2147483648", i32::MIN)]
    {
        assert_eq!(decode::<fail::Params>(&error(token)).unwrap().error.code, value);
    }
    for token in ["2147483648", "-2147483649", "1.0", "1e2", r#""1""#, "null", "[]"] {
        assert_eq!(refused::<fail::Params>(&error(token)), "error.code", "{token}");
    }
}

#[test]
fn a_task_error_is_an_object_with_code_and_message_and_maybe_data() {
    for (error, member) in [
        ("null", "error"),
        ("[]", "error"),
        (r#""boom""#, "error"),
        (r#"{"code":1,"code":1,"message":"m"}"#, "error"),
        (r#"{"message":"m"}"#, "error.code"),
        (r#"{"code":1}"#, "error.message"),
        (r#"{"code":1,"message":null}"#, "error.message"),
        (r#"{"code":1,"message":"\udc00"}"#, "error.message"),
    ] {
        assert_eq!(refused::<fail::Params>(&format!(r#"{{"taskId":"t","error":{error}}}"#)), member);
    }
    let data = |text: &str| {
        let params = format!(r#"{{"taskId":"t","error":{{"code":1,"message":"m","x":1{text}}}}}"#);
        decode::<fail::Params>(&params).unwrap().error.data
    };
    assert_eq!(data(""), None);
    assert_eq!(data(r#","data":null"#).unwrap().as_bytes(), b"null");
}

#[test]
fn a_string_is_a_string_of_unicode_text() {
    for token in ["null", "1", "[]", "{}", "true", r#""\ud800""#, r#""\udc00x""#] {
        let params = format!(r#"{{"taskId":{token},"ttlMs":1}}"#);
        assert_eq!(refused::<set_ttl::Params>(&params), "taskId", "{token}");
    }
    let params = decode::<set_ttl::Params>(r#"{"taskId":"\u0000\ud83d\ude00\/é","ttlMs":1}"#).unwrap();
    assert_eq!(params.task_id, "\0😀/é");
}

#[test]
fn null_is_the_same_as_absent_for_optional_members() {
    let params = decode::<wait::Params>(r#"{"taskId":"t","timeoutMs":null,"sinceRevision":null}"#).unwrap();
    assert_eq!((params.timeout_ms, params.since_revision), (None, None));
    let params =
        r#"{"taskId":"t","status":"working","message":null,"idempotencyKey":null,"expectedRevision":null}"#;
    let params = decode::<set_status::Params>(params).unwrap();
    assert_eq!((params.message, params.guard), (None, task_broker_protocol::shapes::Guard::default()));
    let params = r#"{"toolName":"t","pollIntervalMs":null,"meta":null}"#;
    assert_eq!(decode::<create::Params>(params).unwrap(), create::Params::new("t"));
    let params = r#"{"role":null,"status":null,"cursor":null,"limit":null}"#;
    assert_eq!(decode::<list::Params>(params).unwrap(), list::Params::default());
    assert_eq!(decode::<watch::Params>(r#"{"since":null}"#).unwrap(), watch::Params::default());
    let params = r#"{"taskId":"t","inputRequests":{},"onSpentKey":null}"#;
    let params = decode::<require_input::Params>(params).unwrap();
    assert_eq!(params.on_spent_key, require_input::OnSpentKey::AskAgain);
}

#[test]
fn null_is_a_value_of_its_own_for_arguments_ttl_and_owner() {
    let params = decode::<create::Params>(r#"{"toolName":"t","arguments":null,"ttlMs":null,"owner":null}"#);
    let params = params.unwrap();
    assert_eq!(params.arguments.unwrap().as_bytes(), b"null");
    assert_eq!((params.ttl, params.owner), (create::Ttl::Maximum, create::Owner::Nobody));

    let params = decode::<create::Params>(r#"{"toolName":"t"}"#).unwrap();
    assert_eq!(params.arguments, None);
    assert_eq!((params.ttl, params.owner), (create::Ttl::Default, create::Owner::Caller));

    let params = decode::<create::Params>(r#"{"toolName":"t","ttlMs":0,"owner":""}"#).unwrap();
    assert_eq!((params.ttl, params.owner), (create::Ttl::Millis(0), create::Owner::Subject(String::new())));

    assert_eq!(decode::<list::Params>(r#"{"owner":null}"#).unwrap().owner, list::OwnerFilter::Nobody);
    assert_eq!(decode::<list::Params>("{}").unwrap().owner, list::OwnerFilter::Any);
}

#[test]
fn optional_members_of_another_type_are_refused_by_name() {
    for (member, tokens) in [
        ("ttlMs", ["-1", "1.5", r#""60000""#, "18446744073709551616"]),
        ("owner", ["1", "[]", "{}", "false"]),
        ("pollIntervalMs", ["-1", "1.0", r#""1""#, "true"]),
        ("meta", ["1", "[]", r#""x""#, "true"]),
        ("idempotencyKey", ["1", "[]", "{}", r#""\ud800""#]),
        ("expectedRevision", ["-1", "1.0", r#""1""#, "{}"]),
    ] {
        for token in tokens {
            let params = format!(r#"{{"toolName":"t","{member}":{token}}}"#);
            assert_eq!(refused::<create::Params>(&params), member, "{token}");
        }
    }
}

#[test]
fn an_unknown_word_is_refused_by_name() {
    for status in [r#""Working""#, r#""done""#, r#""""#, "1", "null"] {
        let params = format!(r#"{{"taskId":"t","status":{status}}}"#);
        assert_eq!(refused::<set_status::Params>(&params), "status");
    }
    assert_eq!(refused::<list::Params>(r#"{"role":"admin"}"#), "role");
    assert_eq!(refused::<list::Params>(r#"{"status":"working"}"#), "status");
    assert_eq!(refused::<list::Params>(r#"{"status":["working","x"]}"#), "status.1");
    assert_eq!(refused::<list::Params>(r#"{"status":[1]}"#), "status.0");
    let params = r#"{"taskId":"t","inputRequests":{},"onSpentKey":"ask_again"}"#;
    assert_eq!(refused::<require_input::Params>(params), "onSpentKey");
}

#[test]
fn task_ids_are_an_array_of_at_most_1000_strings() {
    let ids = |count: usize| format!(r#"{{"taskIds":[{}]}}"#, vec![r#""t""#; count].join(","));
    assert_eq!(decode::<statuses::Params>(&ids(0)).unwrap().task_ids.len(), 0);
    assert_eq!(decode::<statuses::Params>(&ids(1000)).unwrap().task_ids.len(), 1000);
    assert_eq!(refused::<statuses::Params>(&ids(1001)), "taskIds");
    assert_eq!(refused::<statuses::Params>(r#"{"taskIds":["a",null]}"#), "taskIds.1");
    for token in ["null", "{}", r#""a""#, "1"] {
        assert_eq!(refused::<statuses::Params>(&format!(r#"{{"taskIds":{token}}}"#)), "taskIds");
    }
    assert_eq!(refused::<statuses::Params>("{}"), "taskIds");
}

#[test]
fn object_payloads_are_objects() {
    for token in ["null", "[]", "1", r#""x""#, "true"] {
        let params = format!(r#"{{"taskId":"t","result":{token}}}"#);
        assert_eq!(refused::<complete::Params>(&params), "result");
        let params = format!(r#"{{"taskId":"t","meta":{token}}}"#);
        assert_eq!(refused::<set_meta::Params>(&params), "meta");
        let params = format!(r#"{{"taskId":"t","inputResponses":{token}}}"#);
        assert_eq!(refused::<apply_input::Params>(&params), "inputResponses");
    }
}

#[test]
fn an_input_request_is_an_object_with_a_string_method() {
    let params = |request: &str| {
        format!(r#"{{"taskId":"t","inputRequests":{{"a":{{"method":"m"}},"k1":{request}}}}}"#)
    };
    for request in
        [r#"{"method":"x"}"#, r#"{"x":1,"x":2,"m\u0065thod":"x"}"#, r#"{"method":"a","method":"b"}"#]
    {
        assert_eq!(decode::<require_input::Params>(&params(request)).unwrap().input_requests.len(), 2);
    }
    for request in [
        "null",
        "[]",
        r#""method""#,
        "{}",
        r#"{"method":1}"#,
        r#"{"method":null}"#,
        r#"{"Method":"x"}"#,
        r#"{"method":"a","method":1}"#,
        r#"{"params":{"method":"x"}}"#,
    ] {
        assert_eq!(refused::<require_input::Params>(&params(request)), "inputRequests.k1", "{request}");
    }
    let empty = decode::<require_input::Params>(r#"{"taskId":"t","inputRequests":{}}"#).unwrap();
    assert!(empty.input_requests.is_empty());
}

#[test]
fn keys_of_a_map_are_bounded_and_there_once() {
    let responses = |count: usize| {
        let entries: Vec<_> = (0..count).map(|n| format!(r#""k{n}":{n}"#)).collect();
        format!(r#"{{"taskId":"t","inputResponses":{{{}}}}}"#, entries.join(","))
    };
    assert_eq!(
        decode::<apply_input::Params>(&responses(MAX_INPUTS)).unwrap().input_responses.len(),
        MAX_INPUTS
    );
    assert_eq!(refused::<apply_input::Params>(&responses(MAX_INPUTS + 1)), "inputResponses");
    for entries in [r#""a":1,"a":1"#, r#""a":1,"\u0061":2"#, r#""\ud800":1"#] {
        let params = format!(r#"{{"taskId":"t","inputResponses":{{{entries}}}}}"#);
        assert_eq!(refused::<apply_input::Params>(&params), "inputResponses");
    }
}

#[test]
fn unknown_members_are_ignored() {
    let params = r#"{"taskId":"t","ttlMs":1,"_meta":{"a":{}},"more":[[[]]]}"#;
    assert_eq!(decode::<set_ttl::Params>(params).unwrap().ttl_ms, 1);
}

#[test]
fn an_error_names_the_member_and_repeats_no_value() {
    let error = decode::<set_ttl::Params>(r#"{"taskId":"t","ttlMs":"s3cr3t"}"#).unwrap_err();
    let error = ErrorObject::from(error);
    assert_eq!((error.kind(), error.code), (Some(Kind::InvalidParams), -32602));
    assert_eq!(error.data.member.as_deref(), Some("ttlMs"));
    assert!(!error.message.contains("s3cr3t"));
}

#[test]
fn a_long_name_is_cut_on_a_character_boundary() {
    let params = format!(r#"{{"taskId":"t","inputRequests":{{"{}":1}}}}"#, "é".repeat(10_000));
    let member = refused::<require_input::Params>(&params);
    assert!(member.starts_with("inputRequests.é") && (253..=256).contains(&member.len()), "{}", member.len());
}
