//! The client against a server that answers from a script: what is repeated, with which key, and what is not.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that panics has failed, as it should; clippy.toml covers only functions marked as tests"
)]

mod answers;
mod bounds;
mod retries;
mod script;
mod streams;
#[cfg(feature = "tls")]
mod tls;
mod tokens;
