//! A service that owns the state of MCP tasks (SEP-2663), so that MCP servers keep none.

pub mod auth;
pub mod broker;
pub mod clock;
pub mod store;
