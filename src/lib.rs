//! A service that owns the state of MCP tasks (SEP-2663), so that MCP servers keep none.
//!
//! The rooms, from the socket to the disk: [`http`] maps requests, [`auth`] says who sends them with the keys that [`keysource`] keeps up to date, [`broker`]
//! authorises and executes, [`store`] keeps. The rules are in the crate `task-broker-core`, the wire types in
//! `task-broker-protocol`. ARCHITECTURE.md has the picture.

pub mod archive;
pub mod auth;
pub mod broker;
pub mod clock;
pub mod config;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
pub mod healthcheck;
pub mod histogram;
pub mod http;
pub mod keysource;
pub mod panics;
pub mod process;
pub mod request;
mod run;
pub mod stderr;
pub mod store;
pub mod telemetry;
pub mod tools;
pub mod traces;
pub mod trust;

pub use run::{RunError, open_store, run};
