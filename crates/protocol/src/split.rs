//! Splitting one level of a JSON text into raw pieces, without recursion and without a tree.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;

use serde::Deserializer;
use serde::de::{DeserializeSeed, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use crate::json::{JsonKind, kind_of};

/// The members of an object in the order of the text, names decoded.
pub(crate) type Entries<'a> = Vec<(Cow<'a, str>, &'a RawValue)>;

/// Why a JSON text could not be split into members.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SplitError {
    /// It is some other kind of JSON value.
    #[error("must be an object")]
    NotAnObject,
    /// It has more members than allowed.
    #[error("has more than {bound} members")]
    TooMany {
        /// How many are allowed.
        bound: usize,
    },
    /// The name of a member is no Unicode text (it has a lone surrogate escape).
    #[error("has a member whose name is not Unicode text")]
    NameNotText,
    /// A member is there twice; names are compared after their escapes are decoded.
    #[error("has a member twice")]
    Duplicate(String),
}

/// Splits an object into its first `bound` members, as far as their names can be decoded, and says what is wrong
/// with it.
///
/// # Errors
/// When it is no object, so that there is nothing to split.
pub(crate) fn split(raw: &RawValue, bound: usize) -> Result<(Entries<'_>, Option<SplitError>), SplitError> {
    if kind_of(raw.get().as_bytes()) != Some(JsonKind::Object) {
        return Err(SplitError::NotAnObject);
    }
    let mut deserializer = serde_json::Deserializer::from_str(raw.get());
    let Ok((entries, flaw)) = deserializer.deserialize_map(Splitter { bound }) else {
        return Err(SplitError::NotAnObject);
    };
    let flaw = flaw.or_else(|| twice(&entries).map(|name| SplitError::Duplicate(name.to_owned())));
    Ok((entries, flaw))
}

/// Up to so many names are compared each with each, which costs less than a table.
const FEW: usize = 16;

/// A name that is there twice.
fn twice<'a>(entries: &'a Entries<'_>) -> Option<&'a str> {
    let names = || entries.iter().map(|(name, _)| name.as_ref());
    if entries.len() <= FEW {
        return names().enumerate().find(|(at, name)| names().take(*at).any(|it| it == *name)).map(|it| it.1);
    }
    let mut seen = HashSet::with_capacity(entries.len());
    names().find(|name| !seen.insert(*name))
}

/// The decoded text of a JSON string, borrowed when it has no escapes; `None` for other kinds of value and for
/// lone surrogate escapes, which are legal JSON but no text.
pub(crate) fn text(raw: &RawValue) -> Option<Cow<'_, str>> {
    let inner = raw.get().strip_prefix('"')?.strip_suffix('"')?;
    if memchr::memchr(b'\\', inner.as_bytes()).is_some() {
        serde_json::from_str(raw.get()).ok().map(Cow::Owned)
    } else {
        Some(Cow::Borrowed(inner))
    }
}

/// The elements of an array, or `None` when there are more than `bound` (or `json` is no array, or no JSON). Stops at the
/// first one too many.
pub(crate) fn elements(json: &str, bound: usize) -> Option<Vec<&RawValue>> {
    let mut deserializer = serde_json::Deserializer::from_str(json);
    let elements = deserializer.deserialize_seq(Collector { bound }).ok()?;
    deserializer.end().ok()?;
    Some(elements)
}

/// A call and its `params`, if there are any.
pub(crate) type CallEntries<'a> = (Entries<'a>, Option<Entries<'a>>);

/// Splits a call and its params in one walk over the text, if nothing at all is wrong with either, and they have at most
/// `bound` members each. What is wrong with others is for those to find out who look again, step by step.
pub(crate) fn split_call(json: &str, bound: usize) -> Option<CallEntries<'_>> {
    let mut deserializer = serde_json::Deserializer::from_str(json);
    let call = deserializer.deserialize_map(CallSplitter { bound }).ok()?;
    deserializer.end().ok()?;
    Some(call)
}

/// Whether an object has a member `method`, and each one of that name is a string.
pub(crate) fn names_a_method(raw: &RawValue) -> bool {
    serde_json::Deserializer::from_str(raw.get()).deserialize_map(MethodFinder).unwrap_or(false)
}

/// How many members an envelope has, and most params.
const USUAL: usize = 4;

struct Splitter {
    bound: usize,
}

impl<'de> Visitor<'de> for Splitter {
    type Value = (Entries<'de>, Option<SplitError>);

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let (mut entries, mut flaw) = (Vec::with_capacity(USUAL), None);
        // Names are taken raw, because decoding one with a lone surrogate would end the walk.
        while let Some((name, value)) = map.next_entry::<&'de RawValue, &'de RawValue>()? {
            if entries.len() >= self.bound {
                flaw = Some(SplitError::TooMany { bound: self.bound });
                while map.next_entry::<&'de RawValue, IgnoredAny>()?.is_some() {}
                break;
            }
            match text(name) {
                Some(name) => entries.push((name, value)),
                None => flaw = Some(SplitError::NameNotText),
            }
        }
        Ok((entries, flaw))
    }
}

/// The same, of an object without a flaw.
impl<'de> DeserializeSeed<'de> for Splitter {
    type Value = Entries<'de>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        let (entries, flaw) = deserializer.deserialize_map(self)?;
        if flaw.is_some() || twice(&entries).is_some() {
            return Err(D::Error::custom("a flaw in the params"));
        }
        Ok(entries)
    }
}

struct CallSplitter {
    bound: usize,
}

impl<'de> Visitor<'de> for CallSplitter {
    type Value = CallEntries<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a call")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let (mut entries, mut params) = (Vec::with_capacity(USUAL), None);
        while let Some(name) = map.next_key::<&'de RawValue>()? {
            let name = text(name).ok_or_else(|| A::Error::custom("a name that is no text"))?;
            if name == "params" && params.is_none() {
                params = Some(map.next_value_seed(Splitter { bound: self.bound })?);
            } else {
                entries.push((name, map.next_value()?));
            }
            if entries.len() + usize::from(params.is_some()) > self.bound {
                return Err(A::Error::custom("too many members"));
            }
        }
        let params_again = params.is_some() && entries.iter().any(|(name, _)| name == "params");
        if params_again || twice(&entries).is_some() {
            return Err(A::Error::custom("a member is there twice"));
        }
        Ok((entries, params))
    }
}

struct MethodFinder;

impl<'de> Visitor<'de> for MethodFinder {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<bool, A::Error> {
        let (mut found, mut all_strings) = (false, true);
        while let Some((name, value)) = map.next_entry::<&'de RawValue, &'de RawValue>()? {
            if text(name).as_deref() == Some("method") {
                found = true;
                all_strings &= kind_of(value.get().as_bytes()) == Some(JsonKind::String);
            }
        }
        Ok(found && all_strings)
    }
}

struct Collector {
    bound: usize,
}

impl<'de> Visitor<'de> for Collector {
    type Value = Vec<&'de RawValue>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let mut elements = Vec::new();
        while let Some(element) = seq.next_element::<&'de RawValue>()? {
            if elements.len() >= self.bound {
                return Err(serde::de::Error::custom("too many elements"));
            }
            elements.push(element);
        }
        Ok(elements)
    }
}
