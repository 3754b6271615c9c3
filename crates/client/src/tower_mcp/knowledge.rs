//! What this process has learnt about tasks, as far as it makes void what was read before.

use std::sync::atomic::{AtomicU64, Ordering};

/// What counts the things learnt about tasks, by a hash of the id: for all stores of the process, since two stores may
/// show the same task. Two ids with one number cost a read more, and nothing else.
static LEARNT: [AtomicU64; 1024] = [const { AtomicU64::new(0) }; 1024];

/// Counts what this process has learnt about a task.
fn counter(id: &str) -> Option<&'static AtomicU64> {
    // FNV-1a: any spread will do.
    let hash = id.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let at = usize::try_from(hash >> 32).unwrap_or_default();
    LEARNT.get(at % LEARNT.len())
}

/// The state of knowledge about a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Knowledge(u64);

impl Knowledge {
    pub(crate) fn now(id: &str) -> Self {
        Self(counter(id).map_or(0, |counter| counter.load(Ordering::SeqCst)))
    }

    /// Something was learnt: what was read before is void.
    pub(crate) fn learnt(id: &str) {
        if let Some(counter) = counter(id) {
            counter.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Makes what was read before void when it is dropped: at the end of a write, whatever that end is.
    pub(crate) fn learnt_at_the_end(id: &str) -> Writing {
        Writing(id.to_owned())
    }
}

/// A write that is going on.
#[derive(Debug)]
pub(crate) struct Writing(String);

impl Drop for Writing {
    fn drop(&mut self) {
        Knowledge::learnt(&self.0);
    }
}
