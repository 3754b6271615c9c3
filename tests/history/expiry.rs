//! A command that begins after somebody was told that the task is gone must be told so too. The store decides a group
//! of commands at the time at which the group began, and lets commands join while it decides: with many of them at once,
//! a late one may be decided at a time before its own. See "What was found" in docs/history-checker.md.

use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::json;

use crate::call::Who;
use crate::harness::link::Link;
use crate::harness::{Broker, BrokerOptions, Store, token};

/// Clients that keep the groups large, and tasks that expire meanwhile.
const CROWD: usize = 150;
const TASKS: usize = 100;

fn open(broker: &Broker) -> Link {
    Link::open(broker.address(), Some(&token::good(Who::Worker.subject())))
}

/// Ends the crowd, also when the test panics.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_command_after_the_end_of_a_task_finds_it_gone() {
    let broker = BrokerOptions::new(Store::Sled).start();
    let stop = AtomicBool::new(false);
    let mut found = Vec::new();
    std::thread::scope(|scope| {
        let _stop = Stop(&stop);
        for client in 0..CROWD {
            let (stop, mut link) = (&stop, open(&broker));
            scope.spawn(move || {
                let id = link.ask("store/create", &json!({"toolName": "crowd"})).result()["task"]["taskId"]
                    .clone();
                let mut n = 0;
                while !stop.load(Ordering::Relaxed) {
                    n += 1;
                    link.ask("store/setMeta", &json!({"taskId": id, "meta": {"client": client, "n": n}}));
                }
            });
        }
        let mut link = open(&broker);
        for n in 0..TASKS {
            let params = json!({"toolName": "short", "ttlMs": 60 + n % 40});
            let id = link.ask("store/create", &params).result()["task"]["taskId"].clone();
            while !link.ask("store/get", &json!({"taskId": id})).is_error() {}
            let late = link.ask("store/complete", &json!({"taskId": id, "result": {}}));
            if !late.is_error() {
                found.push(late.json());
            }
        }
    });
    assert!(found.is_empty(), "{} of {TASKS}: told that it is gone, and then {}", found.len(), found[0]);
}
