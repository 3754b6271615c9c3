//! One JSON object, split into its members without building a tree, and typed access to them.
//!
//! # `null`
//! A client library often writes an optional member that it does not set as `null`. For every optional member
//! `null` is therefore the same as absent, except where WIRE.md makes it a value of its own: `arguments` and
//! `error.data` (a payload that is `null`), `ttlMs` of `store/create` (the maximum) and `owner` (nobody). A
//! required member that is `null` has the wrong type.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use bytes::Bytes;
use serde_json::value::RawValue;

use crate::json::{Json, JsonKind, MAX_NESTING, kind_of, nests_too_deep};
pub use crate::split::SplitError;
use crate::split::{Entries, elements, names_a_method, split, text};

/// How many members an envelope or a `params` object may have. More is refused, known members or not, so that
/// looking for duplicates stays cheap.
pub const MAX_MEMBERS: usize = 64;

/// How many entries `inputRequests` and `inputResponses` may have: 64 outstanding and 1024 spent keys (WIRE.md,
/// Limits) are all that a task can know.
pub const MAX_INPUTS: usize = 64 + 1024;

/// The longest member name that an error repeats, in bytes. A name may come from the client.
const MAX_NAME_BYTES: usize = 256;

const NEED_STRING: &str = "must be a string";
const NEED_UNSIGNED: &str =
    "must be a JSON integer from 0 to 18446744073709551615 without fraction or exponent";
const NEED_I32: &str = "must be a JSON integer of 32 bits without fraction or exponent";
const NOT_TEXT: &str = "must be a string of Unicode text (it has a lone surrogate escape)";

/// A member of `params` that is missing or has the wrong shape: `invalid_params` on the wire.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{member} {reason}")]
pub struct ParamError {
    /// The member, with its path inside `params`: `taskId`, `error.code`, `inputRequests.k1`. At most 256 bytes.
    pub member: String,
    /// What is wrong with it, to be read behind the member's name. Never repeats a value.
    pub reason: String,
}

impl ParamError {
    /// An error about `member`. A name of more than 256 bytes is cut.
    #[must_use]
    pub fn new(member: &str, reason: impl Into<String>) -> Self {
        let end = member.floor_char_boundary(MAX_NAME_BYTES);
        let member = member.get(..end).unwrap_or_default().to_owned();
        Self { member, reason: reason.into() }
    }
}

/// The members of one JSON object, borrowed from the request's body.
///
/// `Debug` shows how many there are and nothing else.
#[derive(Clone, Default)]
pub struct Members<'a> {
    /// The name of the object inside `params`, empty for `params` itself; errors put it before the member's name.
    path: String,
    entries: Entries<'a>,
}

impl fmt::Debug for Members<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Members({})", self.entries.len())
    }
}

impl<'a> Members<'a> {
    /// Splits an object of at most `bound` members.
    ///
    /// # Errors
    /// When `raw` is no object, has more members, has one twice, or one whose name cannot be decoded.
    pub fn split(raw: &'a RawValue, bound: usize) -> Result<Self, SplitError> {
        let (members, flaw) = Self::split_leniently(raw, bound)?;
        flaw.map_or(Ok(members), Err)
    }

    /// Splits an object as far as it goes and says what is wrong with it: an envelope with a duplicate member is
    /// refused, but its id is echoed.
    pub(crate) fn split_leniently(
        raw: &'a RawValue,
        bound: usize,
    ) -> Result<(Self, Option<SplitError>), SplitError> {
        let (entries, flaw) = split(raw, bound)?;
        Ok((Self::of(entries), flaw))
    }

    /// Members that were split already.
    pub(crate) fn of(entries: Entries<'a>) -> Self {
        Self { path: String::new(), entries }
    }

    /// How many members there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is no member.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// All members in the order of the text.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &'a RawValue)> {
        self.entries.iter().map(|(name, value)| (name.as_ref(), *value))
    }

    /// The member as written, `null` included.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&'a RawValue> {
        self.iter().find(|(candidate, _)| *candidate == name).map(|(_, value)| value)
    }

    /// The member unless it is absent or `null`.
    fn present(&self, name: &str) -> Option<&'a RawValue> {
        self.get(name).filter(|raw| raw.get() != "null")
    }

    fn required(&self, name: &str) -> Result<&'a RawValue, ParamError> {
        self.get(name).ok_or_else(|| self.error(name, "is missing"))
    }

    /// An error about the member `name` of this object, with the path to it.
    #[must_use]
    pub fn error(&self, name: &str, reason: impl Into<String>) -> ParamError {
        ParamError::new(&self.path_to(name), reason)
    }

    fn path_to(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) }
    }

    /// A string.
    ///
    /// # Errors
    /// When it is missing, no string, or not decodable.
    pub fn string(&self, name: &str) -> Result<String, ParamError> {
        self.read_string(name, self.required(name)?)
    }

    /// A string that may be absent or `null`.
    ///
    /// # Errors
    /// When it is something else.
    pub fn optional_string(&self, name: &str) -> Result<Option<String>, ParamError> {
        self.present(name).map(|raw| self.read_string(name, raw)).transpose()
    }

    /// A string that `read` knows.
    ///
    /// # Errors
    /// When it is missing, no string, or `read` answers `None`: then it "must be `expected`".
    pub fn word<T>(
        &self,
        name: &str,
        expected: &str,
        read: impl FnOnce(&str) -> Option<T>,
    ) -> Result<T, ParamError> {
        let text = self.string(name)?;
        read(&text).ok_or_else(|| self.error(name, format!("must be {expected}")))
    }

    /// As [`Members::word`], but the member may be absent or `null`.
    ///
    /// # Errors
    /// When it is no string, or one that `read` does not know.
    pub fn optional_word<T>(
        &self,
        name: &str,
        expected: &str,
        read: impl FnOnce(&str) -> Option<T>,
    ) -> Result<Option<T>, ParamError> {
        if self.present(name).is_none() {
            return Ok(None);
        }
        self.word(name, expected, read).map(Some)
    }

    /// A JSON integer without sign, fraction or exponent that fits 64 bits.
    ///
    /// # Errors
    /// When it is missing or anything else: `1.0`, `1e3`, `-1`, `"5"`, 18446744073709551616.
    pub fn unsigned(&self, name: &str) -> Result<u64, ParamError> {
        self.read_unsigned(name, self.required(name)?)
    }

    /// As [`Members::unsigned`], but the member may be absent or `null`.
    ///
    /// # Errors
    /// When it is anything else.
    pub fn optional_unsigned(&self, name: &str) -> Result<Option<u64>, ParamError> {
        self.present(name).map(|raw| self.read_unsigned(name, raw)).transpose()
    }

    /// A JSON integer without fraction or exponent that fits 32 bits with a sign.
    ///
    /// # Errors
    /// When it is missing or anything else.
    pub fn signed32(&self, name: &str) -> Result<i32, ParamError> {
        let text = self.required(name)?.get();
        // Rust's parser takes the sign and digits only, which is what a JSON integer is made of.
        text.parse().ok().ok_or_else(|| self.error(name, NEED_I32))
    }

    /// An array of at most `bound` strings.
    ///
    /// # Errors
    /// When it is missing, no array, longer, or has an element that is no string (named as `taskIds.3`).
    pub fn strings(&self, name: &str, bound: usize) -> Result<Vec<String>, ParamError> {
        let raw = self.required(name)?;
        if kind_of(raw.get().as_bytes()) != Some(JsonKind::Array) {
            return Err(self.error(name, "must be an array of strings"));
        }
        let Some(elements) = elements(raw.get(), bound) else {
            return Err(self.error(name, format!("has more than {bound} elements")));
        };
        let named = elements.into_iter().enumerate();
        named.map(|(index, element)| self.read_string(&format!("{name}.{index}"), element)).collect()
    }

    /// As [`Members::strings`], but the member may be absent or `null`.
    ///
    /// # Errors
    /// When it is anything else.
    pub fn optional_strings(&self, name: &str, bound: usize) -> Result<Option<Vec<String>>, ParamError> {
        self.present(name).map(|_| self.strings(name, bound)).transpose()
    }

    /// Any JSON payload that may be absent; `null` is a payload. `body` is the body that this object came in.
    ///
    /// # Errors
    /// When it nests too deeply.
    pub fn optional_payload(&self, name: &str, body: &Bytes) -> Result<Option<Json>, ParamError> {
        self.get(name).map(|raw| self.read_payload(name, raw, body)).transpose()
    }

    /// A payload that is an object.
    ///
    /// # Errors
    /// When it is missing, no object, or nests too deeply.
    pub fn object(&self, name: &str, body: &Bytes) -> Result<Json, ParamError> {
        self.read_object(name, self.required(name)?, body)
    }

    /// As [`Members::object`], but the member may be absent or `null`.
    ///
    /// # Errors
    /// When it is anything else or nests too deeply.
    pub fn optional_object(&self, name: &str, body: &Bytes) -> Result<Option<Json>, ParamError> {
        self.present(name).map(|raw| self.read_object(name, raw, body)).transpose()
    }

    /// An object whose members are read by name in turn; their errors carry the path.
    ///
    /// # Errors
    /// When it is missing, no object, has more than `bound` members or one of them twice.
    pub fn members(&self, name: &str, bound: usize) -> Result<Members<'a>, ParamError> {
        let raw = self.required(name)?;
        let mut inner = Self::split(raw, bound).map_err(|error| self.error(name, error.to_string()))?;
        inner.path = self.path_to(name);
        Ok(inner)
    }

    /// A map of at most [`MAX_INPUTS`] keys to any JSON payloads.
    ///
    /// # Errors
    /// When it is missing, no object, has too many keys or one of them twice, or a payload nests too deeply.
    pub fn payloads(&self, name: &str, body: &Bytes) -> Result<BTreeMap<String, Json>, ParamError> {
        let inner = self.members(name, MAX_INPUTS)?;
        let read = |(key, raw): (&str, &RawValue)| Ok((key.to_owned(), inner.read_payload(key, raw, body)?));
        inner.iter().map(read).collect()
    }

    /// As [`Members::payloads`], but each payload is an object with a string member `method`.
    ///
    /// # Errors
    /// As there, and when a payload is no such object. Duplicates inside a payload are legal.
    pub fn requests(&self, name: &str, body: &Bytes) -> Result<BTreeMap<String, Json>, ParamError> {
        let inner = self.members(name, MAX_INPUTS)?;
        let read = |(key, raw): (&str, &RawValue)| {
            let payload = inner.read_object(key, raw, body)?;
            if !names_a_method(raw) {
                return Err(inner.error(key, "must have a member `method` that is a string"));
            }
            Ok((key.to_owned(), payload))
        };
        inner.iter().map(read).collect()
    }

    fn read_string(&self, name: &str, raw: &RawValue) -> Result<String, ParamError> {
        if kind_of(raw.get().as_bytes()) != Some(JsonKind::String) {
            return Err(self.error(name, NEED_STRING));
        }
        text(raw).map(Cow::into_owned).ok_or_else(|| self.error(name, NOT_TEXT))
    }

    fn read_unsigned(&self, name: &str, raw: &RawValue) -> Result<u64, ParamError> {
        // Rust's parser refuses a minus, `-0` too, and the `+` that it would take is no JSON.
        raw.get().parse().ok().ok_or_else(|| self.error(name, NEED_UNSIGNED))
    }

    fn read_object(&self, name: &str, raw: &RawValue, body: &Bytes) -> Result<Json, ParamError> {
        if kind_of(raw.get().as_bytes()) != Some(JsonKind::Object) {
            return Err(self.error(name, "must be an object"));
        }
        self.read_payload(name, raw, body)
    }

    fn read_payload(&self, name: &str, raw: &RawValue, body: &Bytes) -> Result<Json, ParamError> {
        if nests_too_deep(raw.get().as_bytes()) {
            return Err(self.error(name, format!("nests deeper than {MAX_NESTING} levels")));
        }
        Ok(Json::from_raw(raw, body))
    }
}
