//! One file per method of WIRE.md's table, with its params and its result side by side, and the table itself.
//!
//! Params are written by the client ([`Serialize`]) and read by the server ([`Decode`]), results the other way
//! round. The server reads params by hand because it must name the member that is wrong, refuse duplicates and keep
//! payloads as they came.

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::members::{Members, ParamError};

pub mod apply_input;
pub mod cancel;
pub mod complete;
pub mod create;
pub mod discard;
pub mod fail;
pub mod get;
pub mod info;
pub mod list;
pub mod require_input;
pub mod resume;
pub mod set_meta;
pub mod set_status;
pub mod set_ttl;
pub mod statuses;
pub mod tasks_cancel;
pub mod tasks_get;
pub mod tasks_update;
pub mod wait;
pub mod watch;

mod table;

pub use table::{Audience, Entry, MethodName, TABLE, lookup};

/// Params that the server can read.
pub trait Decode: Sized {
    /// Reads the members of `params`; those it does not know are ignored. `body` is the whole body of the request,
    /// of which payloads become slices.
    ///
    /// # Errors
    /// Names the first member that is missing or has the wrong shape. Bounds that are rules about tasks are not
    /// checked here.
    fn decode(members: &Members<'_>, body: &Bytes) -> Result<Self, ParamError>;
}

/// Ties a method's name to the shapes of its params and result.
pub trait Method {
    /// The method.
    const METHOD: MethodName;
    /// The name on the wire.
    const NAME: &'static str = Self::METHOD.as_str();
    /// What a call carries.
    type Params: Serialize + Decode;
    /// What a successful answer carries.
    type Result: Serialize + DeserializeOwned;
}

/// Params of a method that takes a task and nothing else.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TaskOnly {
    /// The task.
    pub task_id: String,
}

impl Decode for TaskOnly {
    fn decode(members: &Members<'_>, _body: &Bytes) -> Result<Self, ParamError> {
        Ok(Self { task_id: members.string("taskId")? })
    }
}
