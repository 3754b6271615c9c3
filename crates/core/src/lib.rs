//! The rules of MCP tasks (SEP-2663), as pure functions.
//!
//! Everything that decides what may happen to a task is in this crate and nowhere else: the life cycle
//! ([`apply`]), who may see what ([`access`]), when a task is gone ([`Task::is_expired`]), what a repeated call
//! answers ([`execute`]), what is too much ([`Limits`], [`Quota`]). A store loads a task, lets these functions
//! decide and writes what they return; an HTTP handler maps words. Nothing here reads a clock, touches a disk or
//! waits: `now` is always an argument.
//!
//! The entry points are [`create`] for a new task and [`execute`] for a command on an existing one.

#![deny(clippy::wildcard_enum_match_arm, clippy::arithmetic_side_effects, clippy::as_conversions)]

pub mod access;
mod apply;
mod command;
mod create;
pub mod digest;
mod execute;
mod id;
mod inputs;
mod invariants;
mod limits;
mod owner_from;
mod payload;
mod rejection;
mod replay;
mod status;
mod task;
mod text;
mod time;
mod transition;

pub use access::{Caller, Right};
pub use apply::apply;
pub use command::{Ask, Command, OnSpentKey};
pub use create::{NewTask, TtlWish, create};
pub use execute::{Guard, Request, execute, may_see, replay_create};
pub use id::TaskId;
pub use inputs::{Inputs, Question};
pub use invariants::{Violation, check};
pub use limits::{Limits, Quota, Usage};
pub use owner_from::{OwnerFrom, UnknownOwnerFrom};
pub use payload::{Payload, PayloadRef};
pub use rejection::Rejection;
pub use replay::{CreateKey, IdempotencyKey, Remembered, Replay};
pub use status::{Phase, Status};
pub use task::{Actor, HistoryEntry, Subject, Task};
pub use text::standard_message;
pub use time::Timestamp;
pub use transition::{Detail, Effect, Event, EventKind, Outcome, Transition};
