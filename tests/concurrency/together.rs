//! Many callers at once: each on a connection of its own, all let go at the same moment.

use std::sync::Barrier;

use serde_json::{Value, json};

use crate::harness::link::Link;
use crate::harness::{Broker, BrokerOptions, Store, question, token};

/// A broker and the one caller that all clients are.
pub(crate) struct Scene {
    pub(crate) broker: Broker,
    token: String,
}

impl Scene {
    pub(crate) fn new() -> Self {
        Self { broker: BrokerOptions::new(Store::Sled).start(), token: token::good("everybody") }
    }

    pub(crate) fn link(&self) -> Link {
        Link::open(self.broker.address(), Some(&self.token))
    }

    /// Kills the broker and starts it again.
    pub(crate) fn kill_and_restart(&mut self) {
        self.broker.kill9();
        self.broker.restart();
    }

    /// Creates a task.
    pub(crate) fn task(&self, more: &Value) -> String {
        let mut params = json!({"toolName": "tool"});
        params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let created = self.link().ask("store/create", &params).result();
        created["task"]["taskId"].as_str().unwrap().to_owned()
    }

    /// Asks under these keys.
    pub(crate) fn require(&self, id: &str, keys: &[&str]) {
        let questions: serde_json::Map<_, _> =
            keys.iter().map(|key| ((*key).to_owned(), question(key))).collect();
        self.link().ask("store/requireInput", &json!({"taskId": id, "inputRequests": questions})).result();
    }

    pub(crate) fn get(&self, id: &str) -> Value {
        self.link().ask("store/get", &json!({"taskId": id})).result()
    }

    /// Lets `count` clients act at the same moment, and gives what came of each, in order.
    pub(crate) fn together<T: Send>(
        &self,
        count: usize,
        act: impl Fn(usize, &mut Link) -> T + Sync,
    ) -> Vec<T> {
        let gate = Barrier::new(count);
        std::thread::scope(|scope| {
            let clients: Vec<_> = (0..count)
                .map(|n| {
                    let (gate, act, mut link) = (&gate, &act, self.link());
                    scope.spawn(move || {
                        gate.wait();
                        act(n, &mut link)
                    })
                })
                .collect();
            clients.into_iter().map(|client| client.join().unwrap()).collect()
        })
    }
}

/// Params about a task.
pub(crate) fn on(id: &str, more: &Value) -> Value {
    let mut params = json!({"taskId": id});
    params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    params
}

pub(crate) fn is_terminal(status: &Value) -> bool {
    ["completed", "failed", "cancelled"].iter().any(|terminal| status == terminal)
}
