//! What a test knows to be acknowledged, and how to see that it is there.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::harness::RpcError;
use crate::harness::link::Link;
use crate::restarts::tools;

/// Tasks that were created, one by one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Kept {
    /// The arguments by id and tool.
    acknowledged: BTreeMap<(String, String), Value>,
    /// Tools of tasks whose creation was neither acknowledged nor refused.
    unknown: BTreeSet<String>,
    name: String,
    next: usize,
}

/// What became of a command.
#[derive(Debug)]
pub(crate) enum Made {
    Acknowledged,
    Refused(RpcError),
    /// The connection ended.
    Gone,
}

impl Kept {
    /// A part that is told from others by its name.
    pub(crate) fn named(name: impl Into<String>) -> Self {
        Self { name: name.into(), ..Self::default() }
    }

    /// Creates one more task, with arguments of about this size, which expires in an hour.
    pub(crate) fn make(&mut self, link: &mut Link, size: usize) -> Made {
        self.next += 1;
        let tool = format!("tool-{}-{:05}", self.name, self.next);
        let arguments = json!({"n": self.next, "fill": tool.repeat(size / tool.len() + 1)});
        let params = json!({"toolName": tool, "arguments": arguments, "ttlMs": 3_600_000}).to_string();
        let Some(answer) = link.call("store/create", &params) else {
            self.unknown.insert(tool);
            return Made::Gone;
        };
        if answer.status == 503 {
            // It is ending.
            return Made::Refused(answer.http_error(503));
        }
        if answer.is_error() {
            return Made::Refused(answer.error());
        }
        let id = answer.result()["task"]["taskId"].as_str().unwrap().to_owned();
        self.acknowledged.insert((id, tool), arguments);
        Made::Acknowledged
    }

    /// The same, and it must succeed.
    pub(crate) fn must_make(&mut self, link: &mut Link, size: usize) {
        let made = self.make(link, size);
        assert!(matches!(made, Made::Acknowledged), "{made:?}");
    }

    /// A refusal of a broker that is ending may be a command whose outcome is unknown.
    pub(crate) fn last_is_unknown(&mut self) {
        self.unknown.insert(format!("tool-{}-{:05}", self.name, self.next));
    }

    /// Takes in what another part of the test knows.
    pub(crate) fn join(&mut self, other: Self) {
        self.acknowledged.extend(other.acknowledged);
        self.unknown.extend(other.unknown);
    }

    pub(crate) fn len(&self) -> usize {
        self.acknowledged.len()
    }

    /// An id of those that must be there.
    pub(crate) fn any_id(&self) -> &str {
        &self.acknowledged.keys().next().unwrap().0
    }

    /// All that was acknowledged is there with all of its bytes, and nothing that was refused.
    pub(crate) fn check(&self, link: &mut Link) -> Result<(), String> {
        for ((id, tool), arguments) in &self.acknowledged {
            let answer = link.ask("store/resume", &json!({"taskId": id}));
            if answer.is_error() || answer.result()["arguments"] != *arguments {
                return Err(format!("{tool} was acknowledged: {answer}"));
            }
        }
        let listed: BTreeSet<_> = tools(link).into_iter().collect();
        let expected: BTreeSet<_> = self.acknowledged.keys().map(|(_, tool)| tool.clone()).collect();
        let missing: Vec<_> = expected.difference(&listed).collect();
        let strange: Vec<_> =
            listed.difference(&expected).filter(|tool| !self.unknown.contains(*tool)).collect();
        if missing.is_empty() && strange.is_empty() {
            return Ok(());
        }
        Err(format!("missing in the list: {missing:?}; there and not acknowledged: {strange:?}"))
    }
}
