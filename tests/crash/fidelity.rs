//! Payloads come back byte for byte after a kill: odd ones from every method that shows them, and large ones of every
//! length at which a store would cut.

use std::fmt::Write as _;
use std::time::Duration;

use crate::harness::link::Link;
use crate::harness::{Answer, Broker, BrokerOptions, Store, token};

/// Objects that a careless parser or store would change.
fn odd_objects() -> Vec<String> {
    let mut objects: Vec<String> = [
        r#"{"twenty":12345678901234567890,"u":18446744073709551615,"i":-9223372036854775808}"#,
        r#"{"over":1e400,"under":1e-400,"minus":-0.0,"one":1.0,"E":1E+2,"long":0.1000000000000000055511151231257827}"#,
        r#"{"lone":"\ud800","low":"\udc00","pair":"\ud83d\ude00","nul":"\u0000","lone key \udfff":1}"#,
        r#"{"twice":1,"twice":2,"tw\u0069ce":3,"in":{"a":1,"a":[],"a":{}}}"#,
        "{\r\n  \"pretty\" : [\r\n    1,\r\n\t2\r\n  ],\r\n\r\n  \"empty\" : { },\r\n  \"list\" : [ ]\r\n}",
        r#"{"esc":"\"\\\/\b\f\n\r\t\u001f\u007f","raw":"é😀/","":"","sep":"\u2028\u2029","bom":"\ufeff"}"#,
        "{ }",
    ]
    .map(str::to_owned)
    .into();
    // 100 levels: the object itself is the first one.
    objects.push(format!("{{\"deep\":{}{}}}", "[".repeat(99), "]".repeat(99)));
    objects.push(format!("{}1{}", "{\"d\":".repeat(100), "}".repeat(100)));
    objects
}

/// A broker and its one caller.
struct Scene {
    broker: Broker,
    token: String,
}

impl Scene {
    fn new() -> Self {
        Self { broker: BrokerOptions::new(Store::Sled).start(), token: token::good("faithful") }
    }

    fn link(&self) -> Link {
        Link::open(self.broker.address(), Some(&self.token))
    }

    /// Carries out a call whose params are written as they are here; gives the id of its task.
    fn send(&self, method: &str, params: &str) -> String {
        let answer = self.link().call(method, params).unwrap();
        assert!(!answer.is_error(), "{answer}");
        if method == "store/create" {
            answer.raw(&["result", "task", "taskId"]).replace('"', "")
        } else {
            String::new()
        }
    }

    fn read(&self, method: &str, id: &str) -> Answer {
        let more = if method == "store/wait" { r#","timeoutMs":0"# } else { "" };
        self.link().call(method, &format!(r#"{{"taskId":"{id}"{more}}}"#)).unwrap()
    }

    fn kill_and_restart(&mut self) {
        self.broker.kill9();
        self.broker.restart();
    }
}

/// The tasks that hold one object in every place there is.
struct Kept {
    object: String,
    completed: String,
    failed: String,
    asking: String,
}

impl Kept {
    fn put(scene: &Scene, object: String) -> Self {
        let create = || {
            scene.send("store/create", &format!(r#"{{"toolName":"t","arguments":{object},"meta":{object}}}"#))
        };
        // A question has a level more, so the deepest object is asked without it.
        let question = question(&object);
        let ask = |id: &str| {
            scene.send(
                "store/requireInput",
                &format!(r#"{{"taskId":"{id}","inputRequests":{{"k":{question}}}}}"#),
            );
        };
        let completed = create();
        ask(&completed);
        scene.send(
            "tasks/update",
            &format!(r#"{{"taskId":"{completed}","inputResponses":{{"k":{object}}}}}"#),
        );
        scene.send("store/complete", &format!(r#"{{"taskId":"{completed}","result":{object}}}"#));
        let failed = create();
        let error = format!(r#"{{"code":-2147483648,"message":"m","data":{}}}"#, data(&object));
        scene.send("store/fail", &format!(r#"{{"taskId":"{failed}","error":{error}}}"#));
        let asking = create();
        ask(&asking);
        Self { object, completed, failed, asking }
    }

    /// Everything that shows the object, as the bytes of whole members.
    fn shown(&self, scene: &Scene) -> Vec<(String, String)> {
        let mut shown = Vec::new();
        let mut show = |answer: &Answer, path: &[&str], expected: &str| {
            let raw = answer.raw(path);
            assert!(raw == expected, "{path:?} is {raw}, sent was {expected}: {answer}");
            shown.push((path.join("."), raw));
        };
        let object = self.object.as_str();
        for id in [&self.completed, &self.failed, &self.asking] {
            for method in ["store/get", "store/wait"] {
                show(&scene.read(method, id), &["result", "task", "_meta"], object);
            }
            show(&scene.read("store/resume", id), &["result", "arguments"], object);
        }
        show(&scene.read("store/resume", &self.completed), &["result", "inputResponses", "k"], object);
        for method in ["store/get", "store/wait", "tasks/get"] {
            show(&scene.read(method, &self.completed), &["result", "result"], object);
            show(&scene.read(method, &self.asking), &["result", "inputRequests", "k"], &question(object));
            show(&scene.read(method, &self.failed), &["result", "error", "data"], &data(object));
        }
        shown
    }
}

/// The deepest objects are at the limit by themselves; where one more level is around them, a shallower part is used.
fn inner(object: &str) -> &str {
    if object.starts_with("{\"d") { "[0.10]" } else { object }
}

fn question(object: &str) -> String {
    format!("{{\"method\":\"m\", \"params\":{}}}", inner(object))
}

fn data(object: &str) -> String {
    inner(object).to_owned()
}

/// The `_meta` of every row of the list, by the id of its task, as bytes.
fn metas_of_the_list(scene: &Scene) -> Vec<(String, String)> {
    let answer = scene.link().call("store/list", r#"{"limit":1000}"#).unwrap();
    let rows: Vec<&serde_json::value::RawValue> = {
        let result: std::collections::BTreeMap<String, &serde_json::value::RawValue> =
            serde_json::from_str(answer.text()).unwrap();
        let result: std::collections::BTreeMap<String, &serde_json::value::RawValue> =
            serde_json::from_str(result["result"].get()).unwrap();
        serde_json::from_str(result["tasks"].get()).unwrap()
    };
    let member = |raw: &str, name: &str| {
        let members: std::collections::BTreeMap<String, &serde_json::value::RawValue> =
            serde_json::from_str(raw).unwrap();
        members[name].get().to_owned()
    };
    let both = rows.into_iter().map(|row| {
        let task = member(row.get(), "task");
        (member(&task, "taskId").replace('"', ""), member(&task, "_meta"))
    });
    both.collect()
}

#[test]
fn odd_payloads_are_the_same_bytes_after_two_kills_wherever_they_are_shown() {
    let mut scene = Scene::new();
    let kept: Vec<_> = odd_objects().into_iter().map(|object| Kept::put(&scene, object)).collect();
    let before: Vec<_> = kept.iter().map(|kept| kept.shown(&scene)).collect();
    let listed = metas_of_the_list(&scene);
    assert_eq!(listed.len(), 3 * kept.len());
    for kept in &kept {
        for id in [&kept.completed, &kept.failed, &kept.asking] {
            assert!(
                listed.contains(&(id.clone(), kept.object.clone())),
                "the list shows {} differently",
                kept.object
            );
        }
    }
    for _ in 0..2 {
        scene.kill_and_restart();
        for (kept, before) in kept.iter().zip(&before) {
            assert_eq!(&kept.shown(&scene), before);
        }
        assert_eq!(metas_of_the_list(&scene), listed);
    }
    scene.broker.assert_no_error_logged();
}

#[test]
fn a_payload_that_is_one_level_too_deep_is_refused_and_nothing_of_it_is_there_after_a_kill() {
    let mut scene = Scene::new();
    let deep = format!("{}1{}", "{\"d\":".repeat(101), "}".repeat(101));
    let id = scene.send("store/create", r#"{"toolName":"t"}"#);
    for (method, params) in [
        ("store/create", format!(r#"{{"toolName":"t","arguments":{deep}}}"#)),
        ("store/setMeta", format!(r#"{{"taskId":"{id}","meta":{deep}}}"#)),
        ("store/complete", format!(r#"{{"taskId":"{id}","result":{deep}}}"#)),
    ] {
        let answer = scene.link().call(method, &params).unwrap();
        assert!(answer.is_error(), "{method}: {answer}");
        assert_ne!(answer.error().kind, "internal", "{method}: {answer}");
    }
    scene.kill_and_restart();
    let snapshot = scene.read("store/get", &id).result();
    assert_eq!((&snapshot["revision"], &snapshot["task"]["status"]), (&1.into(), &"working".into()));
    assert_eq!(scene.link().call("store/list", "{}").unwrap().result()["tasks"].as_array().unwrap().len(), 1);
}

/// A JSON string of exactly this many bytes, quotes included, that says at which place each part of it belongs.
fn string_of(length: usize) -> String {
    let mut text = String::from("\"");
    let mut n = 0_u32;
    while text.len() < length - 1 {
        write!(text, "{n:07x}.").unwrap();
        n += 1;
    }
    text.truncate(length - 1);
    text.push('"');
    text
}

/// An object of exactly this many bytes, at least 8.
fn object_of(length: usize) -> String {
    format!("{{\"r\":{}}}", string_of(length - 6))
}

fn assert_same(found: &str, sent: &str, what: &str) {
    let differs = found.bytes().zip(sent.bytes()).position(|(found, sent)| found != sent);
    assert!(
        found == sent,
        "{what}: {} bytes became {}, different from {differs:?} on",
        sent.len(),
        found.len()
    );
}

#[test]
fn payloads_of_every_length_at_which_a_store_would_cut_are_whole_after_a_kill() {
    let mut scene = Scene::new();
    // A value of 4096 bytes, one chunk of 32 KiB less its frame, and their like.
    let around = [4096, 32_704, 32_768, 65_408, 65_536, 98_112];
    let mut lengths: Vec<usize> = around.into_iter().flat_map(|length| length - 2..=length + 2).collect();
    lengths.extend([8, 9, 100, 327_040, 327_041]);
    let mut kept = Vec::new();
    for length in lengths {
        let (arguments, result) = (string_of(length), object_of(length));
        assert_eq!((arguments.len(), result.len()), (length, length));
        let id = scene.send("store/create", &format!(r#"{{"toolName":"t","arguments":{arguments}}}"#));
        let meta = object_of(length.min(65_536));
        scene.send("store/setMeta", &format!(r#"{{"taskId":"{id}","meta":{meta}}}"#));
        scene.send("store/complete", &format!(r#"{{"taskId":"{id}","result":{result}}}"#));
        kept.push((id, arguments, meta, result));
    }
    scene.kill_and_restart();
    for (id, arguments, meta, result) in &kept {
        assert_same(&scene.read("store/resume", id).raw(&["result", "arguments"]), arguments, "arguments");
        let get = scene.read("store/get", id);
        assert_same(&get.raw(&["result", "task", "_meta"]), meta, "meta");
        assert_same(&get.raw(&["result", "result"]), result, "result");
    }
}

#[test]
fn the_largest_payloads_are_whole_after_a_kill_and_after_a_stop() {
    let mut scene = Scene::new();
    let largest = 4 << 20;
    let (arguments, result, answer) = (string_of(largest), object_of(1 << 20), object_of(largest));
    let create = format!(r#"{{"toolName":"t","arguments":{arguments}}}"#);
    let ids: Vec<_> = (0..3).map(|_| scene.send("store/create", &create)).collect();
    for id in &ids {
        let ask = format!(r#"{{"taskId":"{id}","inputRequests":{{"k":{{"method":"m"}}}}}}"#);
        scene.send("store/requireInput", &ask);
        scene.send("store/applyInput", &format!(r#"{{"taskId":"{id}","inputResponses":{{"k":{answer}}}}}"#));
        scene.send("store/complete", &format!(r#"{{"taskId":"{id}","result":{result}}}"#));
    }
    let check = |scene: &Scene| {
        for id in &ids {
            let resume = scene.read("store/resume", id);
            assert_same(&resume.raw(&["result", "arguments"]), &arguments, "arguments");
            assert_same(&resume.raw(&["result", "inputResponses", "k"]), &answer, "an answer");
            assert_same(&scene.read("tasks/get", id).raw(&["result", "result"]), &result, "result");
        }
    };
    scene.kill_and_restart();
    check(&scene);
    scene.broker.sigterm();
    assert!(scene.broker.wait_exit(Duration::from_secs(12)).success());
    scene.broker.restart();
    check(&scene);
    let too_large = format!(r#"{{"toolName":"t","arguments":{}}}"#, string_of(largest + 1));
    scene.link().call("store/create", &too_large).unwrap().error().assert_limit();
}
