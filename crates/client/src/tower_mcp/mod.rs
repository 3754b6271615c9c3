//! The task store of an MCP server that is built with tower-mcp.

mod announce;
mod builder;
mod convert;
mod failure;
mod follow;
mod handoff;
mod registry;
mod store;
mod task_store;

pub use announce::Announcer;
pub use builder::{ConnectError, RemoteTaskStoreBuilder};
pub use store::RemoteTaskStore;
