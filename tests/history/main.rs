//! Every call on a task happens at one instant between its beginning and its answer: random concurrent calls through the
//! wire, with kills in between, are recorded and held against the rules of the core. docs/history-checker.md tells how.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stderr,
    reason = "a test that panics has failed, as it should, and what it prints is shown then; clippy.toml covers only \
              functions marked as tests"
)]
#![allow(clippy::needless_pass_by_value, reason = "the harness takes values of flags as they are written")]

#[path = "../harness/mod.rs"]
mod harness;

mod call;
mod cancel;
mod compare;
mod expiry;
mod fake;
mod faults;
mod hand;
mod judge;
mod load;
mod op;
mod recording;
mod report;
mod run;
mod runs;
mod search;
mod spec;
mod wire;
