//! `store/list`: the caller's tasks, newest first, page by page.

use bytes::Bytes;
use serde::{Deserialize, Serialize, Serializer};

use super::{Decode, Method, MethodName};
use crate::json::{JsonKind, kind_of};
use crate::members::{Members, ParamError};
use crate::shapes::{Row, Status, is_default};

/// How many words the `status` filter may have; there are five different ones.
const MAX_STATUSES: usize = 64;

/// `store/list`
#[derive(Debug, Clone, Copy)]
pub struct List;

impl Method for List {
    const METHOD: MethodName = MethodName::List;
    type Params = Params;
    type Result = Page;
}

/// Which tasks, and which page.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Params {
    /// By which tie the tasks are the caller's.
    #[serde(skip_serializing_if = "is_default")]
    pub role: Role,
    /// Only the tasks of this owner.
    #[serde(skip_serializing_if = "is_default")]
    pub owner: OwnerFilter,
    /// Only tasks in one of these statuses; `None` is all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<Vec<Status>>,
    /// Where the page begins: `nextCursor` of the page before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    /// The most rows on a page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
}

impl Decode for Params {
    fn decode(members: &Members<'_>, _body: &Bytes) -> Result<Self, ParamError> {
        Ok(Self {
            role: members.optional_word("role", "creator or owner", Role::from_word)?.unwrap_or_default(),
            owner: OwnerFilter::decode(members)?,
            status: decode_statuses(members)?,
            cursor: members.optional_string("cursor")?,
            limit: members.optional_unsigned("limit")?,
        })
    }
}

fn decode_statuses(members: &Members<'_>) -> Result<Option<Vec<Status>>, ParamError> {
    let Some(words) = members.optional_strings("status", MAX_STATUSES)? else { return Ok(None) };
    let read = |(index, word): (usize, &String)| {
        let wrong = || members.error(&format!("status.{index}"), format!("must be {}", Status::EXPECTED));
        Status::from_word(word).ok_or_else(wrong)
    };
    words.iter().enumerate().map(read).collect::<Result<_, _>>().map(Some)
}

/// By which tie a task is the caller's.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// The caller created it.
    #[default]
    Creator,
    /// The caller owns it.
    Owner,
}

impl Role {
    fn from_word(word: &str) -> Option<Self> {
        match word {
            "creator" => Some(Self::Creator),
            "owner" => Some(Self::Owner),
            _ => None,
        }
    }
}

/// The filter `owner`: absent, `null` and a string mean three things, as they do at `store/create`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub enum OwnerFilter {
    /// Absent: whoever owns them.
    #[default]
    Any,
    /// `null`: those that nobody owns.
    Nobody,
    /// Those of that subject.
    Subject(String),
}

impl OwnerFilter {
    fn decode(members: &Members<'_>) -> Result<Self, ParamError> {
        match members.get("owner").map(|raw| kind_of(raw.get().as_bytes())) {
            None => Ok(Self::Any),
            Some(Some(JsonKind::Null)) => Ok(Self::Nobody),
            Some(Some(JsonKind::String)) => members.string("owner").map(Self::Subject),
            Some(_) => Err(members.error("owner", "must be a string or null")),
        }
    }
}

impl Serialize for OwnerFilter {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Any | Self::Nobody => serializer.serialize_none(),
            Self::Subject(subject) => serializer.serialize_str(subject),
        }
    }
}

/// One page.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Page {
    /// Newest first by (`createdAt`, `taskId`).
    pub tasks: Vec<Row>,
    /// Where the next page begins; absent on the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}
