//! The task store of an MCP server that is built with tower-mcp: [`RemoteTaskStore`] keeps its tasks in a task-broker.
//!
//! ```no_run
//! use task_broker_client::{RemoteTaskStore, TokenSource};
//! use tower_mcp::McpRouter;
//!
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let store = RemoteTaskStore::builder("http://127.0.0.1:8420")
//!     .token(TokenSource::file("/run/secrets/broker-token"))
//!     .connect()
//!     .await?;
//! let router = McpRouter::new()
//!     .server_info("reports", "1.0.0")
//!     .task_store(store.clone().into())
//!     .with_tasks();
//! // Optional: subscribers of this instance hear of what other instances do.
//! let _announcer = store.announce_to(router.clone());
//! # Ok(())
//! # }
//! ```
//!
//! The store passes tower-mcp's `task_store_contract` and `task_store_optional_contract`. What follows is what the
//! contract leaves open.
//!
//! # Owners
//!
//! The router names the owner of each task, so the token needs the scope `tasks:delegate`, unless the broker runs
//! without authentication. A creation without it fails with an error that names the scope. A request without a
//! principal makes a task that nobody owns, which is naming an owner too.
//!
//! All instances of one server use tokens with the same `sub`: a broker shows a task to its creator only.
//!
//! # Signals
//!
//! A task has one cancellation token per store, which [`create_task`] and [`resume_context`] hand out. It is raised
//!
//! - by [`cancel_task`] on the same store before that returns, also for a task that has ended;
//! - by a cancel made anywhere else, as soon as the event arrives, and after a break of the connection as soon as it
//!   is back;
//! - when the task's time is over, by a timer of this process; the broker is asked first, so that a time that was
//!   prolonged elsewhere counts. If it does not answer within two seconds, the deadline that it gave last counts;
//! - when the broker answers that there is no such task any more.
//!
//! That the broker cannot be reached raises no token. Handlers go on, and their results are handed in when it is back
//! within the [retry budget](RemoteTaskStoreBuilder::retry_budget).
//!
//! # How often the broker is asked
//!
//! | the client's request | calls |
//! |---|---|
//! | `tools/call` that becomes a task | 1, and when the tool has ended 2: its result, and the state for subscribers |
//! | `tasks/get` | 1 |
//! | `tasks/update` | 3: who owns the task, the answers, the state for subscribers; and 1 when the tool goes on |
//! | `tasks/cancel` | 2: who owns the task, and the cancel, which tells the state too |
//!
//! Beside them there is one connection for events, and one call for the tasks whose time is over at one moment.
//!
//! One `tasks/get` is several calls of the store, which are answered from one snapshot, so that a client never sees a
//! state that the task did not have. A snapshot serves only the tokio task that asked for it, each part once, for some
//! milliseconds, and as long as this process has learnt nothing newer about the task: no write of any store or client
//! in it, no event, no other read. So what is read is never older than what this process knows, and as to other
//! processes never older than the request that is being answered. There is one exception, and it is meant:
//! [`outstanding_input_requests`] as the very next call after a [`get_task_result`] that has shown `input_required`
//! answers with the questions of the state that was shown.
//!
//! # Errors
//!
//! | `TaskStoreError` | when |
//! |---|---|
//! | `Backend` | the broker cannot be reached within the retry budget, or refuses: no token, no scope |
//! | `InvalidTransition` | the life of the task does not allow it: a spent key, too many questions |
//! | `RetentionLimitExceeded` | a payload, the number of tasks or an owner's quota |
//! | `Encode` | a value that the broker cannot keep: nested over 100 levels, `_meta` that is no object |
//! | `Decode` | what is kept cannot be read as tower-mcp's type; only this task is concerned, and lists leave out its `_meta` |
//!
//! A result or error that is too large leaves the task `failed` with an error of known size, and is reported, as
//! `MemoryTaskStore` does it.
//!
//! Two answers cannot be better than a guess, because an attempt's answer was lost and the task is gone: a repeated
//! [`discard_task`] says `true`, a repeated [`set_ttl`] says `true` when the new time is over.
//!
//! # What is different from `MemoryTaskStore`
//!
//! - An expired task is `Missing`, never `Expired`: the broker does not tell one from a task that never was.
//! - [`set_status`] with `input_required` needs outstanding questions.
//! - A message is cut at 1024 bytes; a TTL above the broker's maximum is cut to it.
//! - [`list_tasks`] lists what all instances of this server have created, up to 100 000 tasks.
//!
//! # Cancellation safety
//!
//! Every method can be dropped. One that reads changes nothing. One that changes something may have been carried out;
//! a dropped [`create_task`] may leave a task that nobody works on, until its time is over.
//!
//! [`create_task`]: ::tower_mcp::async_task::TaskStore::create_task
//! [`resume_context`]: ::tower_mcp::async_task::TaskStore::resume_context
//! [`cancel_task`]: ::tower_mcp::async_task::TaskStore::cancel_task
//! [`outstanding_input_requests`]: ::tower_mcp::async_task::TaskStore::outstanding_input_requests
//! [`get_task_result`]: ::tower_mcp::async_task::TaskStore::get_task_result
//! [`discard_task`]: ::tower_mcp::async_task::TaskStore::discard_task
//! [`set_ttl`]: ::tower_mcp::async_task::TaskStore::set_ttl
//! [`set_status`]: ::tower_mcp::async_task::TaskStore::set_status
//! [`list_tasks`]: ::tower_mcp::async_task::TaskStore::list_tasks

mod announce;
mod builder;
mod convert;
mod failure;
mod follow;
mod handoff;
mod knowledge;
mod registry;
mod store;
mod task_store;

pub use announce::Announcer;
pub use builder::{ConnectError, RemoteTaskStoreBuilder};
pub(crate) use knowledge::Knowledge;
pub use store::RemoteTaskStore;

/// The code of docs/use-from-tower-mcp.md, so that it compiles.
#[cfg(doctest)]
#[doc = include_str!("../../../../docs/use-from-tower-mcp.md")]
#[derive(Debug)]
pub struct UseFromTowerMcp;
