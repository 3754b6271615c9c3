//! What the store must hold, in one small value: sled does not tell when records are gone.

use serde::{Deserialize, Serialize};
use task_broker_core::TaskId;
use xxhash_rust::xxh3::{xxh3_64, xxh3_128_with_seed};

/// How many heads there are, and the exclusive or of a 128-bit hash of each. A head holds length and checksum of its
/// payloads, so they are counted too. It follows single changes without reading the rest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Census {
    pub(super) count: u64,
    pub(super) digest: u128,
}

impl Census {
    /// Counts a head in.
    pub(super) fn add(&mut self, id: TaskId, head: &[u8]) {
        self.count = self.count.wrapping_add(1);
        self.digest ^= hash(id, head);
    }

    /// What is wrong when there is `found` where this should be.
    pub(super) fn misses(self, found: Self) -> Option<String> {
        let Self { count, .. } = self;
        let found_count = found.count;
        (self != found).then(|| {
            let how = if found_count == count { "not all as they were" } else { "or not as they were" };
            format!(
                "sled's files do not hold what was stored: {count} tasks should be there, {found_count} are, {how}"
            )
        })
    }

    /// Counts a head out.
    pub(super) fn remove(&mut self, id: TaskId, head: &[u8]) {
        self.count = self.count.wrapping_sub(1);
        self.digest ^= hash(id, head);
    }
}

fn hash(id: TaskId, head: &[u8]) -> u128 {
    xxh3_128_with_seed(head, xxh3_64(id.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u8) -> TaskId {
        TaskId::from_bytes([number; 16])
    }

    #[test]
    fn it_depends_on_what_is_there_and_not_on_the_way_there() {
        let mut one = Census::default();
        one.add(id(1), b"a");
        one.add(id(2), b"b");
        let mut other = Census::default();
        other.add(id(2), b"x");
        other.add(id(3), b"c");
        other.add(id(1), b"a");
        other.remove(id(2), b"x");
        other.remove(id(3), b"c");
        assert_ne!(one, other);
        other.add(id(2), b"b");
        assert_eq!(one, other);
    }

    #[test]
    fn heads_that_changed_places_are_noticed() {
        let mut one = Census::default();
        one.add(id(1), b"a");
        one.add(id(2), b"b");
        let mut other = Census::default();
        other.add(id(1), b"b");
        other.add(id(2), b"a");
        assert_ne!(one, other);
    }
}
