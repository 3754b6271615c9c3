//! The wire of task-broker, for both ends of it.
//!
//! The server decodes what clients send and the client decodes what the server answers, with the same types: one
//! file per method under [`methods`], each with its params and its result side by side. The [`envelope`] is
//! JSON-RPC 2.0 with WIRE.md's stricter rules, [`error`] is the error table, [`shapes`] are the objects that
//! several methods share.
//!
//! The crate stands alone and knows no rules about tasks. It refuses what has the wrong *shape* (a fraction where
//! an integer belongs, a member twice, a payload nested too deeply); whether an owner is too long or a transition
//! is allowed is decided elsewhere.
//!
//! Payloads are never turned into a tree: [`Json`] keeps the bytes as they came, so that a 20-digit number, `1e400`
//! or a lone surrogate escape leaves as it arrived.

pub mod envelope;
pub mod error;
pub mod json;
mod kind;
pub mod members;
pub mod methods;
pub mod shapes;
mod split;

pub use envelope::{Call, Id, Parsed, Refusal, Response, parse};
pub use error::{ErrorData, ErrorObject, Kind};
pub use json::{Json, JsonKind, MAX_NESTING};
pub use members::{Members, ParamError};
pub use methods::{Audience, Decode, Entry, Method, MethodName, lookup};
