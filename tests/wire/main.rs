//! The wire, tested from outside: a real process, real sockets, and nothing known but the contract.
//!
//! Each test is a function that takes a broker; `on_both_stores!` at the end of a module makes two tests of it. The
//! brokers are shared by all tests of the process, which stay apart by subjects of their own (see
//! [`harness::Broker::user`]); a test that kills, drains or configures its broker starts one for itself.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that panics has failed, as it should; clippy.toml covers only functions marked as tests"
)]
#![allow(
    clippy::needless_pass_by_value,
    reason = "params are written as json!(..) right where they are passed"
)]

#[path = "../harness/mod.rs"]
mod harness;
#[macro_use]
mod shared;

mod access;
mod auth;
mod batch;
mod create;
mod delegation;
mod drain;
mod durability;
mod envelope;
mod fidelity;
mod http;
mod idempotency;
mod idempotency_keys;
mod input;
mod input_again;
mod lifecycle;
mod list;
mod list_walks;
mod methods;
mod metrics;
mod nesting;
mod probes;
mod quotas;
mod revisions;
mod statuses;
mod terminal;
mod ttl;
mod ttl_values;
mod wait;
mod watch;
mod watch_resume;
