//! Payloads come back as the bytes that were sent, on every path and after a kill.

use serde_json::json;

use crate::harness::{Answer, Broker, BrokerOptions, Client, Store};

/// Objects that a careless parser would change: numbers that no float holds, escapes that are no characters, members
/// that are there twice, white space, order.
const OBJECTS: [&str; 14] = [
    r#"{"id":9223372036854775807,"u":18446744073709551615,"n":-9007199254740993}"#,
    r#"{"huge":123456789012345678901234567890,"twenty":12345678901234567890}"#,
    r#"{"x":1.0,"e":1e-7,"E":1E+2,"d":0.1,"z":-0.0,"zero":-0,"long":0.10000000000000000000000001}"#,
    r#"{"over":1e400,"under":1e-400}"#,
    r#"{"lone":"\ud800","low":"\udc00 x","pair":"\ud83d\ude00","upper":"\uD83D\uDE00"}"#,
    r#"{"twice":1,"twice":2,"tw\u0069ce":3,"in":{"a":1,"a":[]}}"#,
    r#"{"nul":"a\u0000b","literal":"\\u0000","key\u0000":1}"#,
    r#"{"esc":"\"\\\/\b\f\n\r\t\u001f\u007f\u00e9","raw":"é😀/"}"#,
    r#"{"":"","z":1,"a":2,"m":{"z":1,"a":2}}"#,
    "{\r\n  \"pretty\" : [\r\n    1,\r\n\t2\r\n  ],\r\n  \"empty\" : { },\r\n  \"list\" : [ ]\r\n}",
    "{ \"a\"\n:\t1 , \"b\" : null }",
    r#"{"html":"<script>&amp;</script>","sep":"\u2028\u2029","bom":"\ufeff"}"#,
    r#"{"true":true,"null":null,"nested":[[],{},[{"a":null}]]}"#,
    "{}",
];

fn of(method: &str, id: &str) -> (String, String) {
    (method.to_owned(), json!({"taskId": id}).to_string())
}

async fn read(client: &Client, call: &(String, String)) -> Answer {
    client.call_text(&call.0, &call.1).await
}

/// Makes a task by the raw text of its params, and gives its id.
async fn create(client: &Client, more: &str) -> String {
    let answer = client.call_text("store/create", &format!(r#"{{"toolName":"tool",{more}}}"#)).await;
    let id = answer.raw(&["result", "task", "taskId"]);
    id.trim_matches('"').to_owned()
}

/// One payload in every place that takes one, and how to read it back.
struct Kept {
    object: &'static str,
    id: String,
    asking: String,
    failed: String,
}

impl Kept {
    /// Puts the object into arguments, meta, result, error data, a question and an answer.
    async fn put(client: &Client, object: &'static str) -> Self {
        let id = create(client, &format!(r#""arguments":{object},"meta":{object}"#)).await;
        let ask = |id: &str, key: &str| {
            format!(r#"{{"taskId":"{id}","inputRequests":{{"{key}":{{"method":"m","params":{object}}}}}}}"#)
        };
        client.call_text("store/requireInput", &ask(&id, "k")).await.raw(&["result", "applied"]);
        let reply = format!(r#"{{"taskId":"{id}","inputResponses":{{"k":{object}}}}}"#);
        client.call_text("store/applyInput", &reply).await.raw(&["result", "applied"]);
        let complete = format!(r#"{{"taskId":"{id}","result":{object}}}"#);
        client.call_text("store/complete", &complete).await.raw(&["result", "applied"]);

        let asking = create(client, r#""arguments":null"#).await;
        client.call_text("store/requireInput", &ask(&asking, "k")).await.raw(&["result", "applied"]);

        let failed = create(client, r#""arguments":null"#).await;
        let fail =
            format!(r#"{{"taskId":"{failed}","error":{{"code":-32099,"message":"m","data":{object}}}}}"#);
        client.call_text("store/fail", &fail).await.raw(&["result", "applied"]);
        Self { object, id, asking, failed }
    }

    /// Reads it back on every path.
    async fn check(&self, client: &Client) {
        let (id, object) = (&self.id, self.object);
        let resume = read(client, &of("store/resume", id)).await;
        assert_eq!(resume.raw(&["result", "arguments"]), object);
        assert_eq!(resume.raw(&["result", "inputResponses", "k"]), object);

        let wait = ("store/wait".to_owned(), format!(r#"{{"taskId":"{id}","timeoutMs":0}}"#));
        for call in [of("store/get", id), wait, of("store/cancel", id)] {
            let answer = read(client, &call).await;
            assert_eq!(answer.raw(&["result", "result"]), object, "{}", call.0);
            assert_eq!(answer.raw(&["result", "task", "_meta"]), object, "{}", call.0);
        }
        let flat = read(client, &of("tasks/get", id)).await;
        assert_eq!(flat.raw(&["result", "result"]), object);

        let question = format!(r#"{{"method":"m","params":{object}}}"#);
        let answer = read(client, &of("store/get", &self.asking)).await;
        assert_eq!(answer.raw(&["result", "inputRequests", "k"]), question);
        let answer = read(client, &of("tasks/get", &self.asking)).await;
        assert_eq!(answer.raw(&["result", "inputRequests", "k"]), question);

        for method in ["store/get", "tasks/get"] {
            let answer = read(client, &of(method, &self.failed)).await;
            assert_eq!(answer.raw(&["result", "error", "data"]), object, "{method}");
            assert_eq!(answer.raw(&["result", "error", "code"]), "-32099", "{method}");
        }
    }
}

async fn payloads_come_back_byte_for_byte_on_every_path(broker: &Broker) {
    let alice = broker.user("alice");
    for object in OBJECTS {
        Kept::put(&alice, object).await.check(&alice).await;
    }
}

#[tokio::test]
async fn payloads_come_back_byte_for_byte_after_a_kill() {
    let mut broker = BrokerOptions::new(Store::Sled).start();
    let alice = broker.user("alice");
    let subject = alice.subject().to_owned();
    let mut kept = Vec::new();
    for object in OBJECTS {
        kept.push(Kept::put(&alice, object).await);
    }

    broker.kill9();
    broker.restart();

    let alice = broker.subject(&subject);
    for one in kept {
        one.check(&alice).await;
    }
}

async fn meta_comes_back_byte_for_byte_from_create_and_list(broker: &Broker) {
    for object in OBJECTS {
        let alice = broker.user("alice");
        let params = format!(r#"{{"toolName":"tool","meta":{object}}}"#);
        let created = alice.call_text("store/create", &params).await;
        assert_eq!(created.raw(&["result", "task", "_meta"]), object);

        let listed = alice.call_text("store/list", "{}").await;
        let rows = listed.raw(&["result", "tasks"]);
        let row = rows.strip_prefix('[').unwrap().strip_suffix(']').unwrap();
        let row: std::collections::BTreeMap<String, Box<serde_json::value::RawValue>> =
            serde_json::from_str(row).unwrap();
        let task: std::collections::BTreeMap<String, Box<serde_json::value::RawValue>> =
            serde_json::from_str(row["task"].get()).unwrap();
        assert_eq!(task["_meta"].get(), object);
    }
}

async fn meta_is_the_same_in_every_view_and_apart_from_the_results_own(broker: &Broker) {
    let alice = broker.user("alice");
    let id = alice.asking_task(&["k"]).await;
    let meta = r#"{"io.example/trace":"abc","n":{"k":[1,2.0]}}"#;
    let set = format!(r#"{{"taskId":"{id}","meta":{meta}}}"#);
    alice.call_text("store/setMeta", &set).await.result();

    let flat = async || read(&alice, &of("tasks/get", &id)).await;
    let check = async |answer: Answer| {
        assert_eq!(answer.raw(&["result", "_meta", "io.example/trace"]), "\"abc\"");
        assert_eq!(answer.raw(&["result", "_meta", "n"]), r#"{"k":[1,2.0]}"#);
    };
    check(flat().await).await;
    alice.reply(&id, &["k"]).await;
    check(flat().await).await;
    let result = r#"{"_meta":{"r":1},"content":[]}"#;
    let complete = format!(r#"{{"taskId":"{id}","result":{result}}}"#);
    alice.call_text("store/complete", &complete).await.result();
    let last = flat().await;
    assert_eq!(last.raw(&["result", "result"]), result);
    assert!(last.result()["_meta"].get("r").is_none(), "a stored result's _meta is not mixed in");
    check(last).await;
    let snapshot = read(&alice, &of("store/get", &id)).await;
    assert_eq!(snapshot.raw(&["result", "task", "_meta"]), meta);
}

async fn scalar_arguments_come_back_as_they_were_written(broker: &Broker) {
    let alice = broker.user("alice");
    for arguments in
        ["1e400", "-0.0", "1.0", "12345678901234567890123", "\"\\ud800\"", "\"\\u0041\"", "[ 1 ,2 ]"]
    {
        let id = create(&alice, &format!(r#""arguments":{arguments}"#)).await;
        let resume = read(&alice, &of("store/resume", &id)).await;
        assert_eq!(resume.raw(&["result", "arguments"]), arguments);
    }
}

async fn a_payload_wakes_a_wait_byte_for_byte(broker: &Broker) {
    let alice = broker.user("alice");
    let object = OBJECTS[3];
    let id = alice.new_task().await;
    let waiting = tokio::spawn({
        let (alice, params) = (alice.clone(), format!(r#"{{"taskId":"{id}","timeoutMs":10000}}"#));
        async move { alice.call_text("store/wait", &params).await }
    });
    let complete = format!(r#"{{"taskId":"{id}","result":{object}}}"#);
    alice.call_text("store/complete", &complete).await.raw(&["result", "applied"]);
    assert_eq!(waiting.await.unwrap().raw(&["result", "result"]), object);
}

async fn a_payload_in_chunks_of_every_size_comes_back_whole(broker: &Broker) {
    let alice = broker.user("alice");
    // Around the sizes at which a store would cut: 32 KiB and its multiples.
    for size in [1, 32_767, 32_768, 32_769, 65_536, 65_537, 1_000_003] {
        let text: String = (0..size).map(|n| char::from(b'a' + u8::try_from(n % 26).unwrap())).collect();
        let id = create(&alice, &format!(r#""arguments":"{text}""#)).await;
        let resume = read(&alice, &of("store/resume", &id)).await;
        assert!(
            resume.raw(&["result", "arguments"]) == format!("\"{text}\""),
            "{size} bytes came back changed"
        );
    }
}

on_both_stores!(
    payloads_come_back_byte_for_byte_on_every_path,
    meta_comes_back_byte_for_byte_from_create_and_list,
    meta_is_the_same_in_every_view_and_apart_from_the_results_own,
    scalar_arguments_come_back_as_they_were_written,
    a_payload_wakes_a_wait_byte_for_byte,
    a_payload_in_chunks_of_every_size_comes_back_whole,
);
