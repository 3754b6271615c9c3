//! A typed async client for task-broker.

mod builder;
mod calls;
mod client;
mod error;
mod retry;
mod sse;
mod token;
#[cfg(feature = "tower-mcp")]
pub mod tower_mcp;
mod transport;
mod watch;

pub use builder::{BuildError, ClientBuilder};
pub use calls::Ended;
pub use client::{Client, idempotency_key};
pub use error::{Error, HttpError, ProtocolError, RpcError, TokenError, TransportError};
pub use task_broker_protocol::{Json, Kind, methods, shapes};
pub use token::{TokenProvider, TokenSource};
pub use watch::Watch;

#[cfg(feature = "tower-mcp")]
pub use crate::tower_mcp::RemoteTaskStore;
