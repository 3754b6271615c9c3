//! JSON texts that are kept byte for byte, and the two questions asked about them without building a tree.

use std::fmt;

use bytes::Bytes;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de, ser};
use serde_json::value::RawValue;

/// How many levels of arrays and objects a payload may nest, its own outermost one included (WIRE.md, `POST /rpc`).
///
/// The bound is for those who read the payload later: most JSON libraries stop at 128 levels, and an answer wraps
/// the payload in a few more.
pub const MAX_NESTING: usize = 100;

/// One JSON text, kept as the bytes that were received.
///
/// Numbers keep their digits, strings their escapes, objects their order, their duplicates and their white space.
/// Cloning is cheap. `Debug` shows the length and never the content, because payloads must not reach logs.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Json(Bytes);

impl Json {
    /// Keeps the text of `raw`, as a slice of `source` when it lies inside it (no copy), otherwise as a copy.
    ///
    /// A slice keeps all of `source` alive; see [`Json::detached`].
    #[must_use]
    pub fn from_raw(raw: &RawValue, source: &Bytes) -> Self {
        let text = raw.get().as_bytes();
        let (outer, inner) = (source.as_ptr_range(), text.as_ptr_range());
        // `slice_ref` panics for a slice from elsewhere, so the question is asked first.
        if outer.start <= inner.start && inner.end <= outer.end {
            Self(source.slice_ref(text))
        } else {
            Self(Bytes::copy_from_slice(text))
        }
    }

    /// Takes bytes that were a [`Json`] before, as a store returns them, without looking at them.
    ///
    /// Should they be no JSON after all, serialising fails; a broken answer is never written.
    #[must_use]
    pub const fn from_trusted(bytes: Bytes) -> Self {
        Self(bytes)
    }

    /// Takes bytes of unknown origin, as a slice of them. White space around the text is dropped.
    ///
    /// # Errors
    /// When the bytes are not exactly one JSON text in UTF-8. The depth is not checked; see [`nests_too_deep`].
    pub fn parse(bytes: &Bytes) -> Result<Self, serde_json::Error> {
        let raw: &RawValue = serde_json::from_slice(bytes)?;
        Ok(Self::from_raw(raw, bytes))
    }

    /// Writes a value as JSON and keeps the text.
    ///
    /// # Errors
    /// When the value cannot be written as JSON.
    pub fn of<T: Serialize + ?Sized>(value: &T) -> Result<Self, serde_json::Error> {
        serde_json::to_vec(value).map(|text| Self(Bytes::from(text)))
    }

    /// The text `{}`.
    #[must_use]
    pub const fn empty_object() -> Self {
        Self(Bytes::from_static(b"{}"))
    }

    /// The text.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The text, given away.
    #[must_use]
    pub fn into_bytes(self) -> Bytes {
        self.0
    }

    /// The same text in memory of its own, for keeping a small payload longer than the large body it came in.
    #[must_use]
    pub fn detached(&self) -> Self {
        Self(Bytes::copy_from_slice(&self.0))
    }

    /// Reads the text as a value.
    ///
    /// # Errors
    /// When the text does not have the shape of `T`.
    pub fn read<'a, T: Deserialize<'a>>(&'a self) -> Result<T, serde_json::Error> {
        serde_json::from_slice(&self.0)
    }

    /// What kind of JSON value this is; `None` when it is none at all.
    #[must_use]
    pub fn kind(&self) -> Option<JsonKind> {
        kind_of(&self.0)
    }
}

impl fmt::Debug for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Json({} bytes)", self.0.len())
    }
}

impl Serialize for Json {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let raw: &RawValue = serde_json::from_slice(&self.0).map_err(ser::Error::custom)?;
        raw.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        let text: Box<str> = raw.into();
        Ok(Self(Bytes::from(text.into_boxed_bytes())))
    }
}

/// The six kinds of JSON value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum JsonKind {
    /// `{...}`
    Object,
    /// `[...]`
    Array,
    /// `"..."`
    String,
    /// Any number.
    Number,
    /// `true` or `false`
    Bool,
    /// `null`
    Null,
}

/// The kind of a JSON text, told by its first byte that is not white space. The rest is not looked at.
#[must_use]
pub fn kind_of(json: &[u8]) -> Option<JsonKind> {
    match json.trim_ascii_start().first()? {
        b'{' => Some(JsonKind::Object),
        b'[' => Some(JsonKind::Array),
        b'"' => Some(JsonKind::String),
        b'-' | b'0'..=b'9' => Some(JsonKind::Number),
        b't' | b'f' => Some(JsonKind::Bool),
        b'n' => Some(JsonKind::Null),
        _ => None,
    }
}

/// Whether a JSON text nests deeper than [`MAX_NESTING`]. Brackets inside strings do not count.
///
/// One pass over the bytes with a counter, so that no input can exhaust the stack. The text need not be valid.
#[must_use]
pub fn nests_too_deep(json: &[u8]) -> bool {
    let mut level = 0_usize;
    let mut rest = json;
    while let Some((byte, behind)) = rest.split_first() {
        rest = behind;
        match byte {
            b'"' => rest = behind_string(rest),
            b'{' | b'[' => {
                level = level.saturating_add(1);
                if level > MAX_NESTING {
                    return true;
                }
            }
            b'}' | b']' => level = level.saturating_sub(1),
            _ => {}
        }
    }
    false
}

/// What comes behind the end of a string, of which `text` is the rest.
fn behind_string(mut text: &[u8]) -> &[u8] {
    while let Some(at) = memchr::memchr2(b'"', b'\\', text) {
        // Whatever follows a backslash is no closing quote.
        let escapes = text.get(at) == Some(&b'\\');
        text = text.get(at + 1 + usize::from(escapes)..).unwrap_or_default();
        if !escapes {
            return text;
        }
    }
    &[]
}

/// Reads one JSON object as two types, each taking the members it knows.
///
/// serde's `flatten` would do the same through a buffer of decoded values, in which a [`Json`] cannot be kept.
pub(crate) fn read_twice<'de, D, A, B>(deserializer: D) -> Result<(A, B), D::Error>
where
    D: Deserializer<'de>,
    A: de::DeserializeOwned,
    B: de::DeserializeOwned,
{
    let raw = Box::<RawValue>::deserialize(deserializer)?;
    let first = serde_json::from_str(raw.get()).map_err(de::Error::custom)?;
    let second = serde_json::from_str(raw.get()).map_err(de::Error::custom)?;
    Ok((first, second))
}
