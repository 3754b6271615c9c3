//! What a store tells about itself: numbers for operators, nothing about any one task.

use task_broker_core::Status;

use crate::histogram::HistogramSnapshot;

/// What a store holds and how it fares.
#[derive(Clone, Debug, Default)]
pub struct StoreStats {
    /// How many tasks there are in each status, in the order of [`Status::ALL`]. Expired ones count until they are
    /// removed.
    pub tasks: [u64; Status::ALL.len()],
    /// What quotas count of all of them together, in bytes.
    pub task_bytes: u64,
    /// How many of them have expired and are still to be removed.
    pub expired: u64,
    /// More about an embedded store; nothing where there is none.
    pub embedded: Option<EmbeddedStats>,
}

/// How an embedded store fares.
#[derive(Clone, Debug)]
pub struct EmbeddedStats {
    /// Commands that wait for the writer.
    pub queue_commands: u64,
    /// Bytes of payloads that wait for it.
    pub queue_bytes: u64,
    /// How long commits took, in microseconds.
    pub commits: HistogramSnapshot,
    /// How many commands shared a commit.
    pub group_commands: HistogramSnapshot,
    /// How much of the current file of the journal is written.
    pub journal_bytes: u64,
    /// How long that file is.
    pub journal_capacity_bytes: u64,
    /// What the follower is doing: one of [`FOLLOWER_STAGES`].
    pub follower: &'static str,
    /// What the store takes on the disk; nothing while that is unknown.
    pub disk_bytes: Option<u64>,
    /// How much room is left there.
    pub free_bytes: Option<u64>,
}

/// What a follower may be doing.
pub const FOLLOWER_STAGES: [&str; 5] = ["idle", "working", "no_room", "ended", "failed"];
