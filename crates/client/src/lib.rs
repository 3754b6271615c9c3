//! A typed async client for task-broker, the service that owns the state of MCP tasks
//! (SEP-2663), and a task store for tower-mcp on it.
//!
//! - [`Client`] has one method for each method of the broker, with the wire's own types ([`methods`], [`shapes`]).
//! - With the feature `tower-mcp`, `RemoteTaskStore` is the task store of an MCP server: one line in place of the
//!   in-memory store. Its page is the module `tower_mcp`.
//!
//! ```no_run
//! use task_broker_client::methods::{complete, create};
//! use task_broker_client::shapes::Guard;
//! use task_broker_client::{Client, Json};
//!
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let client = Client::builder("http://127.0.0.1:8420").build()?;
//! println!("connected to {}", client.info().await?.version);
//!
//! let mut params = create::Params::new("report");
//! params.arguments = Some(Json::of(&["2026"])?);
//! let task_id = client.create(params).await?.snapshot.task.task_id;
//!
//! let result = Json::parse(&r#"{"content": []}"#.into())?;
//! let outcome = client.complete(complete::Params { task_id, result, guard: Guard::default() }).await?;
//! assert!(outcome.applied, "the task had ended before");
//! # Ok(())
//! # }
//! ```
//!
//! # Retries, and why they are safe
//!
//! A call is repeated while that can help: no connection, a connection that broke off, no answer in time, an answer
//! that says "not now" (`unavailable`, HTTP 408, 429, 500, 502, 503, 504). Pauses double from 50 ms to 2 s, are spread
//! at random over their upper half, and are longer when the broker asks for it (`retryAfterMs`, `Retry-After`). After
//! the [retry budget](ClientBuilder::retry_budget) no further attempt begins, and the error is [`Error::GaveUp`].
//!
//! Reads can be repeated as they are. A call that changes something carries an idempotency key, one for all of its
//! attempts: the broker stores the key with the change and answers a repetition with what the first attempt did, even
//! over a restart. So a retried `complete` whose first answer was lost still says `applied: true`. The key is made up
//! for each call; put one of your own into `guard.idempotency_key` when a call shall stay one call over a restart of
//! *your* process.
//!
//! `discard`, and a `set_ttl` that ends the task, take the task's keys away with it. When a repetition finds no task
//! any more, and an earlier attempt may be the reason, they answer [`Ended::Gone`] in place of "not found".
//!
//! # Cancellation safety
//!
//! Every future can be dropped at any time without harm to the client. Dropping one that reads changes nothing.
//! Dropping one that changes something leaves open whether it was carried out: read the task, or make the same call
//! with the same idempotency key.
//!
//! # Bounds
//!
//! | what | bound |
//! |---|---|
//! | attempts in flight; waits in flight | [`max_in_flight`](ClientBuilder::max_in_flight), [`max_waits`](ClientBuilder::max_waits) |
//! | one attempt; all attempts | [`request_timeout`](ClientBuilder::request_timeout), [`retry_budget`](ClientBuilder::retry_budget) |
//! | an answer; a message of a stream | [`max_response_bytes`](ClientBuilder::max_response_bytes), [`max_message_bytes`](ClientBuilder::max_message_bytes) |
//! | a request | what the broker takes: 8 MiB until [`Client::info`] has told its limit |
//! | a token file | 64 KiB |
//!
//! # Tokens
//!
//! A [`TokenSource`] is a text, a file that is read again when it changes, or a [`TokenProvider`]. `Debug` of
//! everything in this crate leaves the token out, and so does the log. After a 401 a file or provider is asked once
//! more before the call fails.
//!
//! # Features
//!
//! | feature | | |
//! |---|---|---|
//! | `tls` | default | https, with rustls; roots of the system or [of your own](ClientBuilder::tls_roots_pem) |
//! | `tower-mcp` | | `RemoteTaskStore` |
//!
//! What it does is logged with `tracing`: repeated calls at `debug`, what an operator should see at `warn`.

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
