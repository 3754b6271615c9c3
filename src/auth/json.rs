//! Reading the JSON of a token strictly.
//!
//! serde's derived readers are not strict enough for a security decision: an `Option` takes `null` for absent, a
//! number may be read from a string by a lenient field type, and a repeated member is an accident of the map that
//! is used. So the members are taken out as raw text, each at most once, and every one is typed by hand.

use std::fmt;

use serde::de::{DeserializeOwned, DeserializeSeed, Error as _, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

/// The JSON text that one part of a token encodes: strict base64url without padding, and in it one JSON value in
/// UTF-8.
pub(super) fn decode_part(part: &str) -> Option<Box<RawValue>> {
    // jsonwebtoken does not offer its base64 decoder. What it calls insecure decoding is exactly that decoder
    // plus serde_json for the middle one of three parts, so the part is handed over as the middle of a token that
    // has nothing else. One decoder for all parts also means that signature and claims cannot be read by
    // different rules. The signature is checked by `keys`, before claims come here.
    jsonwebtoken::dangerous::insecure_decode_claims(format!(".{part}.")).ok()
}

/// The raw values of the members `names` of the JSON object `json`, in that order, `None` for an absent one.
///
/// Answers `None` if `json` is no object or has one of these members twice (two parsers could then see two
/// different tokens). Names are compared after decoding escapes. Other members are ignored, as RFC 7519 4 and
/// RFC 7515 4 ask.
pub(super) fn members<'a, const N: usize>(
    json: &'a RawValue,
    names: [&str; N],
) -> Option<[Option<&'a RawValue>; N]> {
    let mut reader = serde_json::Deserializer::from_str(json.get());
    // There is nothing behind the value: a `RawValue` is exactly one.
    Members(names).deserialize(&mut reader).ok()
}

/// The value as a `T`, e.g. as a `String`: anything else, `null` and lone surrogate escapes are `None`.
pub(super) fn typed<T: DeserializeOwned>(value: &RawValue) -> Option<T> {
    serde_json::from_str(value.get()).ok()
}

struct Members<'n, const N: usize>([&'n str; N]);

impl<'de, const N: usize> DeserializeSeed<'de> for Members<'_, N> {
    type Value = [Option<&'de RawValue>; N];

    fn deserialize<D: serde::Deserializer<'de>>(self, reader: D) -> Result<Self::Value, D::Error> {
        reader.deserialize_map(self)
    }
}

impl<'de, const N: usize> Visitor<'de> for Members<'_, N> {
    type Value = [Option<&'de RawValue>; N];

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut found = [None; N];
        while let Some(key) = map.next_key::<String>()? {
            match self.0.iter().zip(&mut found).find(|(name, _)| **name == key) {
                Some((_, Some(_))) => return Err(A::Error::custom("repeated member")),
                Some((_, slot)) => *slot = Some(map.next_value()?),
                None => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<[Option<String>; 2]> {
        let json: Box<RawValue> = serde_json::from_str(text).expect("the tests write JSON");
        members(&json, ["a", "b"]).map(|found| found.map(|value| value.map(|value| value.get().to_owned())))
    }

    #[test]
    fn the_wanted_members_are_found_as_they_are_written() {
        assert_eq!(read("{}"), Some([None, None]));
        assert_eq!(read(r#" { "b" : [1, 2] , "c":{"a":1} } "#), Some([None, Some("[1, 2]".to_owned())]));
        assert_eq!(read(r#"{"\u0061":null}"#), Some([Some("null".to_owned()), None]));
    }

    #[test]
    fn repeated_wanted_members_are_refused_and_others_ignored() {
        assert_eq!(read(r#"{"a":1,"a":1}"#), None);
        assert_eq!(read(r#"{"a":1,"b":1,"\u0061":1}"#), None);
        assert_eq!(read(r#"{"a":null,"a":1}"#), None);
        assert_eq!(read(r#"{"c":1,"c":2,"A":1,"a ":2}"#), Some([None, None]));
    }

    #[test]
    fn only_objects_have_members() {
        for text in ["[]", "null", "1", r#""a""#, r#"[{"a":1}]"#] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
