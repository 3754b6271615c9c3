//! Many clients at once: what exactly one of them may do, and what all of them must agree on.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stderr,
    reason = "a test that panics has failed, as it should, and what it prints is shown then; clippy.toml covers only \
              functions marked as tests"
)]
#![allow(
    clippy::needless_pass_by_value,
    reason = "params are written as json!(..) right where they are passed"
)]

#[path = "../harness/mod.rs"]
mod harness;

mod creates;
mod endings;
mod expiry;
mod inputs;
mod revisions;
mod together;
mod waits;
