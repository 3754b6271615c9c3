//! `store/watch`: a stream of what happens to the caller's tasks.
//!
//! The call is answered by a stream of notifications, not by a result; the shapes of its two notifications are
//! here. Each is sent with its `position` as the SSE `id`.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::{Decode, Method, MethodName};
use crate::envelope;
use crate::members::{Members, ParamError};
use crate::shapes::Status;

/// The method of the notification that carries an [`Event`].
pub const EVENT: &str = "store/event";

/// The method of the notification that carries a [`Synced`].
pub const SYNCED: &str = "store/synced";

/// `store/watch`
#[derive(Debug, Clone, Copy)]
pub struct Watch;

impl Method for Watch {
    const METHOD: MethodName = MethodName::Watch;
    type Params = Params;
    /// There is none; only an error is answered in the usual way.
    type Result = ();
}

/// Where the stream begins.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Params {
    /// The last position seen; without it the stream begins now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
}

impl Decode for Params {
    fn decode(members: &Members<'_>, _body: &Bytes) -> Result<Self, ParamError> {
        Ok(Self { since: members.optional_string("since")? })
    }
}

/// `store/event`: something happened to a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Event {
    /// Where the stream stands with this event; opaque.
    pub position: String,
    /// The task.
    pub task_id: String,
    /// What happened.
    pub kind: EventKind,
    /// The status afterwards.
    pub status: Status,
    /// The revision afterwards.
    pub revision: u64,
    /// Milliseconds until it expires.
    pub remaining_ms: u64,
    /// Whether somebody asked to cancel it.
    pub cancel_requested: bool,
}

/// What happened: the command's name, or that the task expired.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum EventKind {
    /// It was created.
    Create,
    /// Questions were asked.
    RequireInput,
    /// Questions were answered.
    ApplyInput,
    /// Its status was set.
    SetStatus,
    /// Its time to live was set.
    SetTtl,
    /// Its `_meta` was set.
    SetMeta,
    /// It ended with a result.
    Complete,
    /// It ended with an error.
    Fail,
    /// Somebody asked to cancel it.
    Cancel,
    /// It was discarded.
    Discard,
    /// Its time was up.
    Expired,
    /// Something that a newer server knows.
    #[serde(untagged)]
    Other(String),
}

/// `store/synced`: where the stream stands, first of all and after a gap.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Synced {
    /// Where the stream stands; opaque.
    pub position: String,
    /// Events may have been missed: re-read what you hold with `store/statuses`.
    pub reset: bool,
}

/// One message of the stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message {
    /// `store/event`
    Event(Event),
    /// `store/synced`
    Synced(Synced),
    /// A notification that this version does not know, to be skipped.
    Unknown,
}

impl Message {
    /// Reads the data of one SSE message.
    ///
    /// # Errors
    /// When it is no notification, or a known one of another shape.
    pub fn parse(data: &[u8]) -> Result<Self, serde_json::Error> {
        #[derive(Deserialize)]
        struct Head {
            method: String,
        }
        #[derive(Deserialize)]
        struct Body<P> {
            params: P,
        }
        let head: Head = serde_json::from_slice(data)?;
        match head.method.as_str() {
            EVENT => serde_json::from_slice(data).map(|body: Body<Event>| Self::Event(body.params)),
            SYNCED => serde_json::from_slice(data).map(|body: Body<Synced>| Self::Synced(body.params)),
            _ => Ok(Self::Unknown),
        }
    }
}

impl Event {
    /// Writes the notification, on one line.
    ///
    /// # Errors
    /// None is known; the signature is the writer's.
    pub fn to_notification(&self) -> Result<Vec<u8>, serde_json::Error> {
        envelope::notification(EVENT, self)
    }
}

impl Synced {
    /// Writes the notification, on one line.
    ///
    /// # Errors
    /// None is known; the signature is the writer's.
    pub fn to_notification(&self) -> Result<Vec<u8>, serde_json::Error> {
        envelope::notification(SYNCED, self)
    }
}
