//! `store/create`: a new task.

use bytes::Bytes;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{Decode, Method, MethodName};
use crate::json::{Json, JsonKind, kind_of, read_twice};
use crate::members::{Members, ParamError};
use crate::shapes::{Guard, Snapshot, is_default};

/// `store/create`
#[derive(Debug, Clone, Copy)]
pub struct Create;

impl Method for Create {
    const METHOD: MethodName = MethodName::Create;
    type Params = Params;
    type Result = Created;
}

/// What the new task shall be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Params {
    /// The tool whose call it is.
    pub tool_name: String,
    /// The tool's arguments, any JSON, `null` included; absent stands for `{}`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arguments: Option<Json>,
    /// How long it shall live.
    #[serde(rename = "ttlMs", skip_serializing_if = "is_default")]
    pub ttl: Ttl,
    /// Whose it shall be.
    #[serde(skip_serializing_if = "is_default")]
    pub owner: Owner,
    /// How often to poll, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub poll_interval_ms: Option<u64>,
    /// Shown as the task's `_meta`; an object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub meta: Option<Json>,
    /// The idempotency key is scoped to the creator. There is no revision yet that could be expected.
    #[serde(flatten)]
    pub guard: Guard,
}

impl Params {
    /// A task for a call of `tool_name` with nothing else said.
    #[must_use]
    pub fn new(tool_name: impl Into<String>) -> Self {
        Self {
            tool_name: tool_name.into(),
            arguments: None,
            ttl: Ttl::Default,
            owner: Owner::Caller,
            poll_interval_ms: None,
            meta: None,
            guard: Guard::default(),
        }
    }
}

impl Decode for Params {
    fn decode(members: &Members<'_>, body: &Bytes) -> Result<Self, ParamError> {
        Ok(Self {
            tool_name: members.string("toolName")?,
            arguments: members.optional_payload("arguments", body)?,
            ttl: Ttl::decode(members)?,
            owner: Owner::decode(members)?,
            poll_interval_ms: members.optional_unsigned("pollIntervalMs")?,
            meta: members.optional_object("meta", body)?,
            guard: Guard::decode(members)?,
        })
    }
}

/// `ttlMs`: absent, `null` and a number mean three things.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Ttl {
    /// Absent: the broker's default.
    #[default]
    Default,
    /// `null`: the longest that the broker allows.
    Maximum,
    /// So many milliseconds from creation; 0 expires at once.
    Millis(u64),
}

impl Ttl {
    fn decode(members: &Members<'_>) -> Result<Self, ParamError> {
        if members.get("ttlMs").is_none() {
            return Ok(Self::Default);
        }
        Ok(members.optional_unsigned("ttlMs")?.map_or(Self::Maximum, Self::Millis))
    }
}

impl Serialize for Ttl {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Default | Self::Maximum => serializer.serialize_none(),
            Self::Millis(millis) => serializer.serialize_u64(*millis),
        }
    }
}

/// `owner`: absent, `null` and a string mean three things.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub enum Owner {
    /// Absent: whoever calls.
    #[default]
    Caller,
    /// `null`: nobody.
    Nobody,
    /// That subject; the empty string is one too.
    Subject(String),
}

impl Owner {
    fn decode(members: &Members<'_>) -> Result<Self, ParamError> {
        match members.get("owner").map(|raw| kind_of(raw.get().as_bytes())) {
            None => Ok(Self::Caller),
            Some(Some(JsonKind::Null)) => Ok(Self::Nobody),
            Some(Some(JsonKind::String)) => members.string("owner").map(Self::Subject),
            Some(_) => Err(members.error("owner", "must be a string or null")),
        }
    }
}

impl Serialize for Owner {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Caller | Self::Nobody => serializer.serialize_none(),
            Self::Subject(subject) => serializer.serialize_str(subject),
        }
    }
}

/// The new task: a snapshot's members and `created`, flat.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Created {
    /// The task.
    #[serde(flatten)]
    pub snapshot: Snapshot,
    /// `false` when the idempotency key had created it before.
    pub created: bool,
}

impl<'de> Deserialize<'de> for Created {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Extra {
            created: bool,
        }
        let (snapshot, Extra { created }) = read_twice(deserializer)?;
        Ok(Self { snapshot, created })
    }
}
