//! The client crate against a real broker: tower-mcp's own contract for stores, two stores on one broker, a broker
//! that is restarted, and what the router makes of the store.
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

mod contract;
mod payloads;
mod relay;
mod restart;
mod router;
mod scene;
mod start;
mod two_stores;
mod typed;
