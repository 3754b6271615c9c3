//! A typed async client for task-broker.
#[cfg(feature = "tower-mcp")]
pub mod tower_mcp;

#[cfg(feature = "tower-mcp")]
pub use crate::tower_mcp::RemoteTaskStore;
