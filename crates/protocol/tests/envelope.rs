//! The JSON-RPC envelope: what is a call, what is refused, and what an answer echoes.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking, in its helpers too")]

use bytes::Bytes;
use task_broker_protocol::envelope::{self, MAX_BATCH, MAX_ID_BYTES, ResponseError};
use task_broker_protocol::{Call, ErrorObject, Id, Kind, Parsed, Refusal, Response, parse};

fn body(text: impl Into<Vec<u8>>) -> Bytes {
    Bytes::from(text.into())
}

fn refusal(body: &Bytes) -> Refusal {
    match parse(body) {
        Parsed::Single(Err(refusal)) => refusal,
        other => panic!("{other:?} from {body:?}"),
    }
}

fn call(body: &Bytes) -> Call<'_> {
    match parse(body) {
        Parsed::Single(Ok(call)) => call,
        other => panic!("{other:?} from {body:?}"),
    }
}

fn batch(body: &Bytes) -> Vec<Result<Call<'_>, Refusal>> {
    match parse(body) {
        Parsed::Batch(elements) => elements,
        Parsed::Single(other) => panic!("{other:?} from {body:?}"),
    }
}

fn kind(refusal: &Refusal) -> Kind {
    refusal.error.kind().unwrap()
}

fn id_text(id: Option<&Id>) -> Option<&str> {
    id.map(Id::as_json)
}

#[test]
fn a_call_has_id_method_and_params() {
    let body = body(r#" {"jsonrpc":"2.0","id":"a","method":"store\/get","params":{"taskId":"t"},"x":[1]} "#);
    let call = call(&body);
    assert_eq!(id_text(call.id.as_ref()), Some(r#""a""#));
    assert_eq!(call.method, "store/get");
    assert_eq!(call.params.string("taskId").unwrap(), "t");
}

#[test]
fn absent_params_are_no_members() {
    let body = body(r#"{"jsonrpc":"2.0","id":1,"method":"store/info"}"#);
    assert!(call(&body).params.is_empty());
}

#[test]
fn a_body_that_is_not_one_json_text_is_a_parse_error_without_an_id() {
    let deep = "[".repeat(100_000);
    let texts: [&[u8]; 12] = [
        b"",
        b" ",
        b"{",
        b"nul",
        b"{} {}",
        br#"{"jsonrpc":"2.0","id":1,"method":"m"}x"#,
        b"\xef\xbb\xbf{}",
        b"{\"jsonrpc\":\"2.0\",\"id\":\"\xff\",\"method\":\"m\"}",
        b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m\",\"x\":\"\xed\xa0\x80\"}",
        b"{\"id\":01}",
        b"{\"id\":\"a\nb\"}",
        deep.as_bytes(),
    ];
    for text in texts {
        let refusal = refusal(&body(text));
        assert_eq!(kind(&refusal), Kind::ParseError, "{}", String::from_utf8_lossy(text));
        assert_eq!((refusal.id, refusal.notification), (None, false));
    }
}

// B01
#[test]
fn an_empty_batch_is_one_invalid_request() {
    for text in ["[]", " [ ] "] {
        let refusal = refusal(&body(text));
        assert_eq!(kind(&refusal), Kind::InvalidRequest);
        assert!(!refusal.notification);
        let answer = envelope::failure(refusal.id.as_ref(), &refusal.error);
        let answer: serde_json::Value = serde_json::from_slice(&answer).unwrap();
        assert_eq!(answer["id"], serde_json::Value::Null);
        assert_eq!(answer["error"]["code"], -32600);
    }
}

// B01
#[test]
fn each_bad_element_of_a_batch_is_an_invalid_request_of_its_own() {
    for (text, length) in [("[[]]", 1), (r#"[1,"x",null]"#, 3), ("[{}]", 1), ("[[[]],[]]", 2)] {
        let body = body(text);
        let elements = batch(&body);
        assert_eq!(elements.len(), length);
        for element in elements {
            let refusal = element.unwrap_err();
            assert_eq!(kind(&refusal), Kind::InvalidRequest);
            assert_eq!((refusal.id, refusal.notification), (None, false));
        }
    }
}

// B03
#[test]
fn a_batch_keeps_its_order_and_tells_notifications_and_kinds_of_id_apart() {
    let body = body(
        r#"[{"jsonrpc":"2.0","method":"notifications/x"},
            {"jsonrpc":"2.0","id":2,"method":"tasks/get","params":{"taskId":"ID1"}},
            {"jsonrpc":"2.0","method":"notifications/y"},
            {"jsonrpc":"2.0","id":"2","method":"tasks/get","params":{"taskId":"ID2"}},
            {"jsonrpc":"2.0","id":2,"method":"tasks/get"}]"#,
    );
    let calls: Vec<_> = batch(&body).into_iter().map(Result::unwrap).collect();
    let ids: Vec<_> = calls.iter().map(|call| id_text(call.id.as_ref())).collect();
    assert_eq!(ids, [None, Some("2"), None, Some(r#""2""#), Some("2")]);
    let mut answers = std::collections::HashMap::new();
    for call in &calls {
        answers.insert(call.id.clone(), call.params.optional_string("taskId").unwrap());
    }
    assert_eq!(answers.len(), 3);
}

#[test]
fn a_batch_above_the_bound_is_one_invalid_request_whatever_is_in_it() {
    let element = r#"{"jsonrpc":"2.0","id":1,"method":"store/info"}"#;
    let at_bound = body(format!("[{}]", vec![element; MAX_BATCH].join(",")));
    assert_eq!(batch(&at_bound).len(), MAX_BATCH);
    for count in [MAX_BATCH + 1, 20_000] {
        let refusal = refusal(&body(format!("[{}]", vec![element; count].join(","))));
        assert_eq!((kind(&refusal), refusal.id), (Kind::InvalidRequest, None));
    }
}

// B05
#[test]
fn a_notification_is_recognised_even_when_its_params_are_bad() {
    let bodies =
        [r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#, r#"{"jsonrpc":"2.0","method":""}"#];
    for text in bodies {
        assert_eq!(call(&body(text)).id, None);
    }
    for params in ["[]", "null", "1", r#"{"a":1,"a":2}"#] {
        let refusal =
            refusal(&body(format!(r#"{{"jsonrpc":"2.0","method":"tasks/cancel","params":{params}}}"#)));
        assert_eq!(kind(&refusal), Kind::InvalidParams);
        assert!(refusal.notification);
    }
}

// B05
#[test]
fn something_without_id_that_is_no_call_either_is_answered() {
    for text in [
        r#"{"method":"m"}"#,
        r#"{"jsonrpc":"2.0"}"#,
        r#"{"jsonrpc":"2.0","method":"m","id":null}"#,
        r#"{"jsonrpc":"2.0","method":"m","method":"m"}"#,
    ] {
        let refusal = refusal(&body(text));
        assert_eq!((kind(&refusal), refusal.notification), (Kind::InvalidRequest, false), "{text}");
    }
}

// B06
#[test]
fn an_id_is_echoed_as_it_was_written() {
    let longest = format!("\"{}\"", "x".repeat(MAX_ID_BYTES - 2));
    for id in [
        "0",
        "-1",
        "-0",
        "4294967296",
        "9007199254740993",
        "18446744073709551615",
        "123456789012345678901234567890",
        "1.5",
        "1e3",
        "1.0",
        r#""""#,
        r#""\u0000""#,
        r#""\ud800""#,
        r#""\u0061\/é""#,
        &longest,
    ] {
        let body = body(format!(r#"{{"jsonrpc":"2.0","id": {id} ,"method":"m"}}"#));
        let call = call(&body);
        let success = envelope::success(call.id.as_ref().unwrap(), &()).unwrap();
        let expected = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":null}}"#);
        assert_eq!(String::from_utf8(success).unwrap(), expected);
        let failure = envelope::failure(call.id.as_ref(), &ErrorObject::task_not_found());
        let expected = format!(
            r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32602,"message":"Task not found","data":{{"kind":"task_not_found"}}}}}}"#
        );
        assert_eq!(String::from_utf8(failure).unwrap(), expected);
    }
}

// B06
#[test]
fn an_id_of_another_kind_or_too_long_is_refused_and_not_echoed() {
    let too_long = format!("\"{}\"", "x".repeat(MAX_ID_BYTES - 1));
    let huge = format!("\"{}\"", "x".repeat(100_000));
    for id in ["null", "[]", "[1]", "{}", "true", "false", &too_long, &huge] {
        let refusal = refusal(&body(format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"m"}}"#)));
        assert_eq!((kind(&refusal), refusal.id, refusal.notification), (Kind::InvalidRequest, None, false));
    }
}

#[test]
fn a_refused_envelope_echoes_its_id_when_there_is_one() {
    let many = (0..64).map(|n| format!(r#","m{n}":0"#)).collect::<Vec<_>>().concat();
    for text in [
        r#"{"id":7,"method":"m"}"#.to_owned(),
        r#"{"id":7,"jsonrpc":"1.0","method":"m"}"#.to_owned(),
        r#"{"id":7,"jsonrpc":2.0,"method":"m"}"#.to_owned(),
        r#"{"id":7,"jsonrpc":"2.0"}"#.to_owned(),
        r#"{"id":7,"jsonrpc":"2.0","method":1}"#.to_owned(),
        r#"{"id":7,"jsonrpc":"2.0","method":null}"#.to_owned(),
        r#"{"id":7,"jsonrpc":"2.0","method":"\ud800"}"#.to_owned(),
        r#"{"id":7,"jsonrpc":"2.0","method":"m","method":"m"}"#.to_owned(),
        r#"{"id":7,"jsonrpc":"2.0","method":"m","\u006dethod":"m"}"#.to_owned(),
        r#"{"jsonrpc":"2.0","method":"m","x":1,"x":1,"id":7}"#.to_owned(),
        r#"{"jsonrpc":"2.0","method":"m","\ud800":1,"id":7}"#.to_owned(),
        format!(r#"{{"id":7,"jsonrpc":"2.0","method":"m"{many}}}"#),
    ] {
        let refusal = refusal(&body(text.clone()));
        assert_eq!(kind(&refusal), Kind::InvalidRequest, "{text}");
        assert_eq!(id_text(refusal.id.as_ref()), Some("7"), "{text}");
    }
}

#[test]
fn an_id_that_is_there_twice_is_not_echoed() {
    for text in [
        r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"m"}"#,
        r#"{"jsonrpc":"2.0","id":1,"\u0069d":1,"method":"m"}"#,
    ] {
        let refusal = refusal(&body(text));
        assert_eq!((kind(&refusal), refusal.id), (Kind::InvalidRequest, None));
    }
}

#[test]
fn bad_params_are_named_and_the_id_is_echoed() {
    let many = (0..65).map(|n| format!(r#""m{n}":0"#)).collect::<Vec<_>>().join(",");
    let many = format!("{{{many}}}");
    for (params, member) in [
        ("[]", "params"),
        (r#"["a"]"#, "params"),
        ("null", "params"),
        ("1", "params"),
        (r#""a""#, "params"),
        (r#"{"taskId":"a","taskId":"a"}"#, "taskId"),
        (r#"{"taskId":"a","\u0074askId":"b"}"#, "taskId"),
        (r#"{"unknown":1,"unknown":1}"#, "unknown"),
        (r#"{"\ud800":1}"#, "params"),
        (&many, "params"),
    ] {
        let refusal = refusal(&body(format!(r#"{{"jsonrpc":"2.0","id":7,"method":"m","params":{params}}}"#)));
        assert_eq!(kind(&refusal), Kind::InvalidParams, "{params}");
        assert_eq!(refusal.error.data.member.as_deref(), Some(member), "{params}");
        assert_eq!((id_text(refusal.id.as_ref()), refusal.notification), (Some("7"), false));
    }
}

#[test]
fn nesting_of_any_depth_does_not_exhaust_the_stack() {
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let objects = format!("{}1{}", r#"{"a":"#.repeat(100_000), "}".repeat(100_000));
    for deep in [deep, objects] {
        let unknown = body(format!(r#"{{"jsonrpc":"2.0","id":1,"method":"m","x":{deep}}}"#));
        assert_eq!(id_text(call(&unknown).id.as_ref()), Some("1"));
        let in_params = body(format!(r#"{{"jsonrpc":"2.0","id":1,"method":"m","params":{{"x":{deep}}}}}"#));
        assert_eq!(call(&in_params).params.len(), 1);
        let as_id = body(format!(r#"{{"jsonrpc":"2.0","id":{deep},"method":"m"}}"#));
        assert_eq!(kind(&refusal(&as_id)), Kind::InvalidRequest);
        let bare = body(deep);
        assert!(!matches!(parse(&bare), Parsed::Single(Ok(_))));
    }
}

#[test]
fn debug_of_a_call_shows_no_payload() {
    let body = body(r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"result":{"secret":"s3cr3t"}}}"#);
    assert!(!format!("{:?}", call(&body)).contains("s3cr3t"));
}

#[test]
fn a_request_written_by_the_client_is_a_call() {
    let written = envelope::request(&Id::from(9), "store/get", &serde_json::json!({"taskId": "t"})).unwrap();
    let body = body(written);
    let call = call(&body);
    assert_eq!(call.id, Some(Id::from(9)));
    assert_eq!(call.params.string("taskId").unwrap(), "t");
}

#[test]
fn an_answer_is_read_with_its_result_or_its_error() {
    let written = envelope::success(&Id::from(9), &5).unwrap();
    assert_eq!(Response::parse(&written).unwrap(), Response { id: Some(Id::from(9)), outcome: Ok(5) });

    let error = ErrorObject::revision_conflict(4);
    let read: Response<u64> = Response::parse(&envelope::failure(None, &error)).unwrap();
    assert_eq!(read, Response { id: None, outcome: Err(error) });
}

#[test]
fn an_answer_of_another_making_is_read_as_far_as_it_goes() {
    let unknown =
        br#"{"jsonrpc":"2.0","id":1,"error":{"code":7,"message":"m","data":{"kind":"brand_new","x":1}}}"#;
    let error = Response::<u64>::parse(unknown).unwrap().outcome.unwrap_err();
    assert_eq!((error.kind(), error.data.kind.as_ref()), (None, "brand_new"));

    for data in ["", r#","data":null"#, r#","data":"text""#, r#","data":[1]"#, r#","data":{"kind":5}"#] {
        let text = format!(r#"{{"jsonrpc":"2.0","id":1,"error":{{"code":7,"message":"m"{data}}}}}"#);
        let error = Response::<u64>::parse(text.as_bytes()).unwrap().outcome.unwrap_err();
        assert_eq!((error.code, error.message.as_str(), error.kind()), (7, "m", None));
    }
}

#[test]
fn something_that_is_no_answer_is_an_error_of_its_own() {
    let neither = Response::<u64>::parse(br#"{"jsonrpc":"2.0","id":1}"#);
    assert!(matches!(neither, Err(ResponseError::Neither)));
    let both = Response::<u64>::parse(br#"{"id":1,"result":1,"error":{"code":1,"message":"m"}}"#);
    assert!(matches!(both, Err(ResponseError::Neither)));
    let bad_id = Response::<u64>::parse(br#"{"id":[],"result":1}"#);
    assert!(matches!(bad_id, Err(ResponseError::BadId(_))));
    let html = Response::<u64>::parse(b"<html>");
    assert!(matches!(html, Err(ResponseError::Malformed(_))));
}
