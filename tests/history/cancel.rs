//! What the checker has found in `store/cancel`, as small as it gets: its answer is put together from two instants, the
//! command and a look at the task after it. See "What was found" in docs/history-checker.md.

use std::sync::Barrier;

use serde_json::{Value, json};

use crate::call::Who;
use crate::harness::link::Link;
use crate::harness::{Broker, BrokerOptions, Store, token};

/// How often the two calls are let go together.
const TRIES: usize = 1500;

fn open(broker: &Broker) -> Link {
    Link::open(broker.address(), Some(&token::good(Who::Worker.subject())))
}

/// Lets `store/cancel` and another call go at the same moment, on one new task with `meta` after the other, and counts
/// the answers that contradict each other.
fn contradictions(method: &str, more: &Value, contradict: impl Fn(&Value, &Value) -> bool + Sync) -> usize {
    let broker = BrokerOptions::new(Store::Sled).start();
    let (mut cancels, mut others, mut link) = (open(&broker), open(&broker), open(&broker));
    let mut found = 0;
    for _ in 0..TRIES {
        let created = link.ask("store/create", &json!({"toolName": "tool", "meta": {"n": 1}})).result();
        let id = created["task"]["taskId"].clone();
        let mut params = more.clone();
        params["taskId"] = id.clone();
        let gate = Barrier::new(2);
        let (cancelled, other) = std::thread::scope(|scope| {
            let cancel = scope.spawn(|| {
                gate.wait();
                cancels.ask("store/cancel", &json!({"taskId": id})).json()
            });
            gate.wait();
            let other = others.ask(method, &params).json();
            (cancel.join().unwrap(), other)
        });
        if contradict(&cancelled, &other) {
            found += 1;
            if found == 1 {
                eprintln!(
                    "{method} {params}\n  store/cancel answers {cancelled}\n  {method} answers {other}"
                );
            }
        }
    }
    found
}

#[test]
fn the_answer_of_a_cancel_is_one_revision() {
    let found = contradictions("store/setMeta", &json!({"meta": {"n": 2}}), |cancelled, other| {
        // The cancel made revision 2 and the new meta revision 3, and both are in one answer.
        let shown = &cancelled["result"];
        other["result"]["revision"] == 3 && shown["revision"] == 2 && shown["task"]["_meta"]["n"] == 2
    });
    assert_eq!(found, 0, "of {TRIES}");
}

#[test]
fn a_cancel_that_was_carried_out_is_not_told_that_there_is_no_task() {
    let found = contradictions("store/discard", &json!({}), |cancelled, other| {
        // What was discarded was cancelled, by the only cancel there is.
        other["result"]["status"] == "cancelled" && cancelled["error"]["data"]["kind"] == "task_not_found"
    });
    assert_eq!(found, 0, "of {TRIES}");
}
