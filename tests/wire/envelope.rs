//! The JSON-RPC envelope: ids, notifications, members, and what is not a call.

use serde_json::{Value, json};

use crate::harness::{Broker, accept};

/// A `store/info` call with the id as it is written.
fn info(id: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"store/info"}}"#)
}

async fn ids_come_back_as_they_were_written(broker: &Broker) {
    let alice = broker.user("alice");
    for id in [
        "0",
        "-1",
        "1",
        "4294967296",
        "9007199254740993",
        "18446744073709551615",
        "123456789012345678901234567890",
        "1.5",
        "1.0",
        "1e3",
        "1E+3",
        "\"\"",
        "\"1\"",
        "\"a b\"",
        "\"\\u0000\"",
        "\"\\u0041\"",
        "\"\\/\"",
        "\"é\"",
        "\"\\ud83d\\ude00\"",
    ] {
        let answer = alice.post(info(id)).await;
        assert_eq!(answer.status, 200, "{answer}");
        assert_eq!(answer.raw(&["id"]), id);
        answer.raw(&["result", "api"]);

        let unknown =
            format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"store/get","params":{{"taskId":"x"}}}}"#);
        let answer = alice.post(unknown).await;
        assert_eq!((answer.raw(&["id"]).as_str(), answer.raw(&["error", "code"]).as_str()), (id, "-32602"));

        let refused = format!(r#"{{"jsonrpc":"1.0","id":{id},"method":"store/info"}}"#);
        let answer = alice.post(refused).await;
        assert_eq!((answer.raw(&["id"]).as_str(), answer.status), (id, 400), "also in an error: {answer}");
    }
}

async fn ids_of_another_kind_are_refused(broker: &Broker) {
    let alice = broker.user("alice");
    for id in ["null", "[]", "[1]", "{}", "{\"a\":1}", "true", "false"] {
        let error = alice.post(info(id)).await.error();
        assert_eq!((error.kind.as_str(), &error.id), ("invalid_request", &Value::Null), "{id}");
    }
}

async fn what_is_no_call_is_an_invalid_request(broker: &Broker) {
    let alice = broker.user("alice");
    for body in [
        "1",
        "\"x\"",
        "null",
        "true",
        "{}",
        r#"{"jsonrpc":"2.0","id":1}"#,
        r#"{"id":1,"method":"store/info"}"#,
        r#"{"jsonrpc":2.0,"id":1,"method":"store/info"}"#,
        r#"{"jsonrpc":"2.1","id":1,"method":"store/info"}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":5}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":null}"#,
        r#"{"jsonrpc":"2.0","id":1,"result":{}}"#,
    ] {
        assert_eq!(alice.post(body).await.error().kind, "invalid_request", "{body}");
    }
}

async fn what_is_no_json_is_a_parse_error(broker: &Broker) {
    let alice = broker.user("alice");
    for body in [
        "",
        " ",
        "{",
        "[",
        "nonsense",
        r#"{"jsonrpc":"2.0","id":1,"method":"store/info""#,
        r#"{"jsonrpc":"2.0","id":1,"method":"store/info"}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"store/info"} x"#,
        r#"{'jsonrpc':"2.0"}"#,
        r#"{"jsonrpc":"2.0","id":01,"method":"store/info"}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"store/info","params":{"a":1,}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"store/info","params":{"a":NaN}}"#,
        "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"store\n/info\"}",
    ] {
        let error = alice.post(body).await.error();
        assert_eq!(error.kind, "parse_error", "{body}");
        assert!(error.id.is_null() || body.contains("\"id\""), "{body}: {error:?}");
    }
    let error = alice.post(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\xff\"}".to_vec()).await.error();
    assert_eq!(error.kind, "parse_error", "not UTF-8");
}

async fn an_unknown_method_is_said_to_be_unknown(broker: &Broker) {
    let alice = broker.user("alice");
    for method in
        ["store/nothing", "STORE/INFO", "tasks/list", "tasks/result", "", "rpc.discover", "store/info "]
    {
        let error = alice.call(method, json!({})).await.error();
        assert_eq!((error.kind.as_str(), &error.id), ("method_not_found", &json!(1)), "{method}");
    }
}

async fn params_are_an_object(broker: &Broker) {
    let alice = broker.user("alice");
    for (method, params) in [
        ("store/get", "[]"),
        ("store/get", r#"["0123456789abcdef0123456789abcdef"]"#),
        ("store/info", "[]"),
        ("store/create", r#"[{"toolName":"tool"}]"#),
    ] {
        assert_eq!(alice.call_text(method, params).await.error().kind, "invalid_params", "{method} {params}");
    }
    for params in ["5", "\"x\"", "true"] {
        let error = alice.call_text("store/create", params).await.error();
        assert!(["invalid_params", "invalid_request"].contains(&error.kind.as_str()), "{params}: {error:?}");
    }
    let bare = alice.post(r#"{"jsonrpc":"2.0","id":1,"method":"store/get"}"#).await.error();
    assert_eq!(bare.kind, "invalid_params", "absent params have no taskId");
}

async fn duplicate_members_are_refused_and_nothing_is_done(broker: &Broker) {
    let alice = broker.user("alice");
    for body in [
        r#"{"jsonrpc":"2.0","jsonrpc":"2.0","id":1,"method":"store/create","params":{"toolName":"t"}}"#,
        r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"store/create","params":{"toolName":"t"}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"store/info","method":"store/create","params":{"toolName":"t"}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"store/create","params":{"toolName":"t"},"params":{"toolName":"t"}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"store/create","m\u0065thod":"store/create","params":{"toolName":"t"}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"store/create","params":{"toolName":"t","toolName":"t"}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"store/create","params":{"toolName":"t","tool\u004eame":"u"}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"store/create","params":{"toolName":"t","arguments":1,"arguments":1}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"store/create","params":{"toolName":"t","ttlMs":1,"ttlMs":null}}"#,
    ] {
        let error = alice.post(body).await.error();
        assert!(
            ["invalid_request", "invalid_params", "parse_error"].contains(&error.kind.as_str()),
            "{body}"
        );
    }
    assert_eq!(alice.call("store/list", json!({})).await.result()["tasks"], json!([]));
}

async fn unknown_members_are_ignored(broker: &Broker) {
    let alice = broker.user("alice");
    let body = r#"{"extra":{"a":[1]},"jsonrpc":"2.0","id":1,"method":"store/create","trace":null,
        "params":{"x":1,"toolName":"tool","_meta":{"io.example/a":1},"taskid":7,"TTLMS":"x"}}"#;
    let created = alice.post(body).await.result();
    assert_eq!((&created["toolName"], &created["task"]["ttlMs"]), (&json!("tool"), &json!(300_000)));
}

async fn member_names_may_be_written_with_escapes(broker: &Broker) {
    let alice = broker.user("alice");
    let body =
        r#"{"jsonrpc":"2.0","id":1,"m\u0065thod":"store\/create","params":{"tool\u004eame":"t\u006fol"}}"#;
    assert_eq!(alice.post(body).await.result()["toolName"], "tool");
}

async fn a_notification_is_accepted_without_a_body(broker: &Broker) {
    let alice = broker.user("alice");
    for body in [
        r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
        r#"{"jsonrpc":"2.0","method":"no/such/method","params":{}}"#,
        r#"{"jsonrpc":"2.0","method":"store/get","params":{"taskId":5}}"#,
        r#"{"jsonrpc":"2.0","method":"store/get","params":[]}"#,
        r#"{"jsonrpc":"2.0","method":"store/get","params":{"taskId":"unknown"}}"#,
        r#"{"jsonrpc":"2.0","method":"store/info"}"#,
    ] {
        alice.post(body).await.assert_accepted();
    }
}

async fn a_notification_is_carried_out(broker: &Broker) {
    let alice = broker.user("alice");
    let id = alice.asking_task(&["k"]).await;
    let notify = async |method: &str, params: Value| {
        let body = json!({"jsonrpc": "2.0", "method": method, "params": params}).to_string();
        alice.post(body).await.assert_accepted();
    };

    notify("tasks/update", json!({"taskId": id, "inputResponses": {"k": accept("k")}})).await;
    assert_eq!(alice.get(&id).await["task"]["status"], "working");
    notify("store/setMeta", json!({"taskId": id, "meta": {"n": 1}})).await;
    assert_eq!(alice.get(&id).await["task"]["_meta"], json!({"n": 1}));
    notify("tasks/cancel", json!({"taskId": id})).await;
    assert_eq!(alice.get(&id).await["task"]["status"], "cancelled");
    notify("store/create", json!({"toolName": "by notification"})).await;
    let listed = alice.call("store/list", json!({"status": ["working"]})).await.result();
    assert_eq!(listed["tasks"][0]["toolName"], "by notification");
}

async fn white_space_around_a_call_does_not_matter(broker: &Broker) {
    let alice = broker.user("alice");
    let body = "\r\n\t {\r\n \"jsonrpc\" : \"2.0\" ,\t\"id\" : 7 , \"method\" : \"store/info\" } \r\n";
    assert_eq!(alice.post(body).await.raw(&["id"]), "7");
}

async fn nul_characters_are_kept_or_refused_but_never_dropped(broker: &Broker) {
    let alice = broker.user("alice");
    let text = "a\u{0}b \\u0000 c";

    let created = alice.call("store/create", json!({"toolName": text})).await;
    if created.is_error() {
        created.error().assert_invalid("toolName");
    } else {
        assert_eq!(created.result()["toolName"], text);
    }
    let id = alice.new_task().await;
    let failed = alice.call("store/fail", json!({"taskId": id, "error": {"code": 1, "message": text}})).await;
    failed.result();
    assert_eq!(alice.get(&id).await["error"]["message"], text);
    let id = alice.new_task().await;
    alice.ask(&id, &[text]).await;
    let outcome = alice.reply(&id, &[text]).await;
    assert_eq!(outcome["accepted"], json!([text]));
}

on_memory!(
    ids_come_back_as_they_were_written,
    ids_of_another_kind_are_refused,
    what_is_no_call_is_an_invalid_request,
    what_is_no_json_is_a_parse_error,
    an_unknown_method_is_said_to_be_unknown,
    params_are_an_object,
    duplicate_members_are_refused_and_nothing_is_done,
    unknown_members_are_ignored,
    member_names_may_be_written_with_escapes,
    a_notification_is_accepted_without_a_body,
    a_notification_is_carried_out,
    white_space_around_a_call_does_not_matter,
    nul_characters_are_kept_or_refused_but_never_dropped,
);
