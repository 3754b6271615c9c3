//! Writing an export, line by line.

use bytes::Bytes;
use task_broker_core::{OwnerFrom, PayloadRef, Task, Timestamp};
use xxhash_rust::xxh3::xxh3_128;

use super::line::Chain;
use super::read::{Ending, Header, hex};
use super::task;

/// Makes the lines of one export. It holds no task.
#[derive(Debug, Default)]
pub struct Writer {
    chain: Chain,
    tasks: u64,
    digest: u128,
}

impl Writer {
    /// A writer that has written nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The first line.
    #[must_use]
    pub fn header(&mut self, store_id: &str, owner_from: OwnerFrom, now: Timestamp) -> Vec<u8> {
        let header = Header::new(store_id, owner_from, now.as_millis());
        self.chain.write("header", &to_json(&header))
    }

    /// The line of a task; `payload` must give the bytes of each of its payloads.
    ///
    /// Nothing if one is missing: that can only be a mistake of whoever has read the task.
    pub fn task<'a>(
        &mut self,
        task: &Task,
        payload: impl Fn(&PayloadRef) -> Option<&'a Bytes>,
    ) -> Option<Vec<u8>> {
        let text = to_json(&task::Stored::of(task, payload)?);
        self.tasks += 1;
        self.digest ^= xxh3_128(&text);
        Some(self.chain.write("task", &text))
    }

    /// The last line. Without it an export is not complete.
    #[must_use]
    pub fn end(&mut self, now: Timestamp) -> (Vec<u8>, Ending) {
        let ending = Ending { tasks: self.tasks, digest: hex(self.digest), time: now.as_millis() };
        (self.chain.write("end", &to_json(&ending)), ending)
    }

    /// How many tasks were written.
    #[must_use]
    pub const fn tasks(&self) -> u64 {
        self.tasks
    }
}

fn to_json(value: &impl serde::Serialize) -> Vec<u8> {
    // Only maps with keys that are no text can fail, and there are none.
    serde_json::to_vec(value).unwrap_or_default()
}
