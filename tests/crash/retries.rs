//! The reply is lost after the commit, with or without the broker. A retry under the same key gets the first outcome,
//! for every method that changes something.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use serde_json::{Value, json};
use task_broker_protocol::methods::TABLE;

use crate::harness::link::Link;
use crate::harness::{Broker, BrokerOptions, Store, accept, question, token};

const DEADLINE: Duration = Duration::from_secs(10);
const KEY: &str = "retry";

/// A call that changes something on a task that waits for the answer to `k1`, and another call that must not pass for
/// the same one.
struct Case {
    params: Value,
    other: (&'static str, Value),
}

/// One row for every changing method.
fn case(method: &'static str, id: &str) -> Option<Case> {
    let answers = |text: &str| json!({"taskId": id, "inputResponses": {"k1": accept(text)}});
    let same_method = |params, other| Case { params, other: (method, other) };
    let on_task = |one: Value, other: Value| {
        let with_id = |mut params: Value| {
            params["taskId"] = json!(id);
            params
        };
        same_method(with_id(one), with_id(other))
    };
    Some(match method {
        "store/create" => same_method(
            json!({"toolName": "tool", "arguments": {"n": 1}, "meta": {"m": 1}}),
            json!({"toolName": "tool", "arguments": {"n": 2}, "meta": {"m": 1}}),
        ),
        "store/requireInput" => on_task(
            json!({"inputRequests": {"k2": question("one")}}),
            json!({"inputRequests": {"k2": question("another")}}),
        ),
        "store/applyInput" | "tasks/update" => same_method(answers("yes"), answers("no")),
        "store/setStatus" => on_task(
            json!({"status": "working", "message": "one"}),
            json!({"status": "working", "message": "another"}),
        ),
        "store/setTtl" => on_task(json!({"ttlMs": 700_000}), json!({"ttlMs": 700_001})),
        "store/setMeta" => on_task(json!({"meta": {"n": 1}}), json!({"meta": {"n": 1.0}})),
        "store/complete" => on_task(json!({"result": {"n": 1}}), json!({"result": {"n": 2}})),
        "store/fail" => on_task(
            json!({"error": {"code": 1, "message": "one", "data": [1]}}),
            json!({"error": {"code": 1, "message": "one", "data": [2]}}),
        ),
        "store/cancel" => on_task(json!({"reason": "one"}), json!({"reason": "another"})),
        "store/discard" => on_task(json!({}), json!({"expectedRevision": 2})),
        "tasks/cancel" => Case { params: json!({"taskId": id}), other: ("tasks/update", answers("yes")) },
        _ => return None,
    })
}

fn changing() -> impl Iterator<Item = &'static str> {
    TABLE.iter().filter(|entry| entry.changes).map(|entry| entry.name)
}

#[test]
fn every_changing_method_has_a_case_here() {
    let missing: Vec<_> = changing().filter(|method| case(method, "").is_none()).collect();
    assert!(missing.is_empty(), "no case for {missing:?}: its retries are not tested");
    assert!(changing().count() >= 12);
}

/// Between a client and the broker: forwards one request, and cuts the client off when the first byte of the reply
/// arrives. Keeps the reply.
fn cut_off(
    broker: SocketAddr,
    token: &str,
    method: &str,
    params: &Value,
    at_first_byte: impl FnOnce(),
) -> Value {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let proxy = listener.local_addr().unwrap();
    std::thread::scope(|scope| {
        let call = scope.spawn(move || Link::open(proxy, Some(token)).call(method, &params.to_string()));
        let (client, _) = listener.accept().unwrap();
        let mut upstream = TcpStream::connect(broker).unwrap();
        upstream.set_read_timeout(Some(DEADLINE)).unwrap();
        let (mut from, mut to) = (client.try_clone().unwrap(), upstream.try_clone().unwrap());
        scope.spawn(move || {
            let mut buffer = [0; 16 * 1024];
            while let Ok(count @ 1..) = from.read(&mut buffer) {
                if to.write_all(&buffer[..count]).is_err() {
                    return;
                }
            }
        });
        let mut reply = vec![0; 64 * 1024];
        let mut count = upstream.read(&mut reply).unwrap();
        assert!(count > 0, "the broker closed the connection without a reply");
        at_first_byte();
        client.shutdown(Shutdown::Both).unwrap();
        assert!(call.join().unwrap().is_none(), "the client got a reply");
        // What else has arrived by now.
        loop {
            let text = String::from_utf8_lossy(&reply[..count]).into_owned();
            let body = text.split_once("\r\n\r\n").map_or("", |(_, body)| body);
            if let Ok(reply) = serde_json::from_str::<Value>(body) {
                assert!(reply.get("error").is_none(), "{method}: {reply}");
                return reply["result"].clone();
            }
            let more = upstream.read(&mut reply[count..]).unwrap_or(0);
            assert!(more > 0, "half a reply: {text}");
            count += more;
        }
    })
}

/// A broker that one caller talks to.
struct Scene {
    broker: Broker,
    token: String,
}

impl Scene {
    fn new() -> Self {
        Self { broker: BrokerOptions::new(Store::Sled).start(), token: token::good("retrying") }
    }

    fn link(&self) -> Link {
        Link::open(self.broker.address(), Some(&self.token))
    }

    /// A task that waits for the answer to `k1`, at revision 2.
    fn asking_task(&self) -> String {
        let mut link = self.link();
        let created = link.ask("store/create", &json!({"toolName": "tool"})).result();
        let id = created["task"]["taskId"].as_str().unwrap().to_owned();
        link.ask("store/requireInput", &json!({"taskId": id, "inputRequests": {"k1": question("k1")}}))
            .result();
        id
    }

    fn kill_and_restart(&mut self) {
        self.broker.kill9();
        self.broker.restart();
    }

    /// What the retry of a call must find whose first reply was `first`, or was never seen.
    fn check_retry(&self, method: &'static str, id: &str, case: &Case, first: Option<&Value>) {
        let mut link = self.link();
        let retry = link.ask(method, &case.params);
        let snapshot = link.ask("store/get", &json!({"taskId": id}));
        match method {
            "store/create" => {
                let retry = retry.result();
                if let Some(first) = first {
                    assert_eq!(
                        (&first["created"], &retry["created"]),
                        (&json!(true), &json!(false)),
                        "{method}"
                    );
                    assert_eq!(retry["task"], first["task"], "{method}: the same task");
                }
                let listed = link.ask("store/list", &json!({"limit": 1000})).result();
                let id = &retry["task"]["taskId"];
                let same = |row: &&Value| row["task"]["_meta"] == json!({"m": 1});
                let made: Vec<_> = listed["tasks"].as_array().unwrap().iter().filter(same).collect();
                assert_eq!(made.len(), 1, "created once");
                assert_eq!(&made[0]["task"]["taskId"], id);
                link.ask("store/discard", &json!({"taskId": id})).result();
                return;
            }
            "store/discard" => {
                if first.is_some() {
                    assert_eq!(retry.error().kind, "task_not_found", "{method}");
                }
                assert_eq!(snapshot.error().kind, "task_not_found", "{method}: gone");
                return;
            }
            _ if method.starts_with("tasks/") => {
                assert_eq!(retry.result()["resultType"], "complete", "{method}");
            }
            _ => {
                let retry = retry.result();
                assert_eq!(
                    (&retry["applied"], &retry["revision"]),
                    (&json!(true), &json!(3)),
                    "{method}: {retry}"
                );
                if let Some(first) = first {
                    assert_eq!(retry["replayed"], true, "{method}: {retry}");
                    assert_eq!(essence(&retry), essence(first), "{method}");
                }
            }
        }
        let snapshot = snapshot.result();
        assert_eq!(snapshot["revision"], 3, "{method}: carried out once: {snapshot}");
    }

    fn check_mismatch(&self, method: &str, id: &str, case: &Case) {
        let mut link = self.link();
        let (other, mut params) = case.other.clone();
        params["idempotencyKey"] = json!(KEY);
        let before = link.ask("store/get", &json!({"taskId": id}));
        let answer = link.ask(other, &params);
        if method == "store/discard" {
            assert_eq!(answer.error().kind, "task_not_found", "a discarded task takes its outcomes along");
            return;
        }
        assert_eq!(answer.error().kind, "idempotency_mismatch", "{method}: {answer}");
        let after = link.ask("store/get", &json!({"taskId": id}));
        assert_eq!(
            without_time(after.result()),
            without_time(before.result()),
            "{method}: changed by a mismatch"
        );
    }
}

fn without_time(mut snapshot: Value) -> Value {
    snapshot.as_object_mut().unwrap().remove("remainingMs");
    snapshot
}

/// What is the same in the first outcome and in its replay.
fn essence(outcome: &Value) -> Value {
    let mut essence = without_time(outcome.clone());
    essence.as_object_mut().unwrap().remove("replayed");
    essence
}

fn keyed(method: &'static str, id: &str) -> Case {
    let mut case = case(method, id).unwrap_or_else(|| panic!("no case for {method}"));
    case.params["idempotencyKey"] = json!(KEY);
    case
}

fn the_reply_is_cut(kill: bool) {
    let mut scene = Scene::new();
    for method in changing() {
        let id = scene.asking_task();
        let case = keyed(method, &id);
        let address = scene.broker.address();
        let first = {
            let (token, broker) = (scene.token.clone(), &mut scene.broker);
            cut_off(address, &token, method, &case.params, || {
                if kill {
                    broker.kill9();
                }
            })
        };
        if kill {
            scene.broker.restart();
        }
        if method == "store/create" {
            // Before the check, which discards the task that the key belongs to.
            scene.check_mismatch(method, first["task"]["taskId"].as_str().unwrap(), &case);
            scene.check_retry(method, &id, &case, Some(&first));
        } else {
            scene.check_retry(method, &id, &case, Some(&first));
            scene.check_mismatch(method, &id, &case);
        }
    }
    scene.broker.assert_no_error_logged();
}

#[test]
fn a_retry_after_a_cut_reply_gets_the_first_outcome() {
    the_reply_is_cut(false);
}

#[test]
fn a_retry_after_a_cut_reply_and_a_kill_gets_the_first_outcome() {
    the_reply_is_cut(true);
}

#[test]
fn an_outcome_is_kept_through_many_kills() {
    let mut scene = Scene::new();
    let mut kept = Vec::new();
    for method in changing().filter(|method| *method != "store/create") {
        let id = scene.asking_task();
        let case = keyed(method, &id);
        let first = scene.link().ask(method, &case.params).result();
        kept.push((method, id, case, first));
    }
    for _ in 0..3 {
        scene.kill_and_restart();
        for (method, id, case, first) in &kept {
            scene.check_retry(method, id, case, Some(first));
        }
    }
}

/// A client that goes away before the reply may or may not have been heard. Either way the retry makes it happen once.
#[test]
fn a_command_whose_client_goes_away_at_once_happens_once() {
    let scene = Scene::new();
    for method in changing() {
        for _ in 0..5 {
            let id = scene.asking_task();
            let case = keyed(method, &id);
            let mut link = scene.link();
            link.send(method, &case.params.to_string()).unwrap();
            drop(link);
            scene.check_retry(method, &id, &case, None);
        }
    }
    scene.broker.assert_no_error_logged();
}
