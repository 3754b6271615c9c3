//! `store/info`: what this broker is and which limits are in force.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::{Decode, Method, MethodName};
use crate::members::{Members, ParamError};

/// The version of the wire that this crate describes.
pub const API: u32 = 1;

/// `store/info`
#[derive(Debug, Clone, Copy)]
pub struct Info;

impl Method for Info {
    const METHOD: MethodName = MethodName::Info;
    type Params = Params;
    type Result = Description;
}

/// It takes nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Params {}

impl Decode for Params {
    fn decode(_members: &Members<'_>, _body: &Bytes) -> Result<Self, ParamError> {
        Ok(Self {})
    }
}

/// What a broker says about itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Description {
    /// The name of the program.
    pub name: String,
    /// Its version.
    pub version: String,
    /// The version of the wire, [`API`].
    pub api: u32,
    /// Tells one store from another: it is made with the store and stays with it.
    pub store_id: String,
    /// The limits in force.
    #[serde(default)]
    pub limits: Limits,
}

/// The limits in force (WIRE.md, Limits). Zero for one that the server does not tell.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Limits {
    /// Bytes of one payload.
    pub max_payload_bytes: u64,
    /// Bytes of one request's body, decompressed.
    pub max_body_bytes: u64,
    /// Bytes of a batch's answer.
    pub max_batch_answer_bytes: u64,
    /// Calls in one batch.
    pub max_batch_calls: u64,
    /// Levels of nesting in a payload.
    pub max_nesting: u64,
    /// The TTL of a task that was created without one, in milliseconds.
    pub default_ttl_ms: u64,
    /// The longest TTL, in milliseconds; longer wishes are cut to it.
    pub max_ttl_ms: u64,
    /// The poll interval of a task that was created without one, in milliseconds.
    pub default_poll_interval_ms: u64,
    /// The longest that `store/wait` waits, in milliseconds.
    pub max_wait_ms: u64,
    /// Bytes of a tool's name.
    pub max_tool_name_bytes: u64,
    /// Bytes of `meta`.
    pub max_meta_bytes: u64,
    /// Questions of one task that are outstanding at once.
    pub max_outstanding_inputs: u64,
    /// Question keys that one task has used up.
    pub max_spent_inputs: u64,
    /// Waits at once, in all.
    pub max_waits: u64,
    /// Streams at once, in all.
    pub max_streams: u64,
    /// Requests at once, in all.
    pub max_requests: u64,
    /// Waits at once of one subject.
    pub max_waits_per_subject: u64,
    /// Streams at once of one subject.
    pub max_streams_per_subject: u64,
    /// Live tasks of one owner.
    pub quota_tasks_per_owner: u64,
    /// Bytes of one owner's live tasks.
    pub quota_bytes_per_owner: u64,
    /// Live tasks in all.
    pub max_tasks: u64,
}
