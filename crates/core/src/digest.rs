//! Digests of JSON texts that see through white space and member order.
//!
//! Two uses: whether a question is asked again unchanged, and whether a call under a used idempotency key is the
//! same call. Both compare what one and the same party sent earlier, so a fast hash that is not
//! collision-resistant against an attacker is enough: whoever forges a collision fools only itself.

use xxhash_rust::xxh3::{Xxh3, xxh3_128};

/// A 128-bit digest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest(pub u128);

/// A text that is not JSON, or nested deeper than the digest follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a JSON text that can be digested")]
pub struct NotDigestible;

/// How deep [`canonical`] follows. Payloads are refused above 100 levels; a call's params add a few.
const MAX_DEPTH: u32 = 128;

/// The digest of what a JSON text says: objects without regard to member order (members of the same name keep
/// their order), numbers by their text (`1.0` is not `1`, and nothing is rounded), strings by their characters
/// (an escape is the character it stands for; a lone surrogate is itself).
///
/// # Errors
/// [`NotDigestible`] for a text that is no JSON or nested deeper than 128 levels.
pub fn canonical(text: &[u8]) -> Result<Digest, NotDigestible> {
    let mut cursor = Cursor { rest: text };
    let digest = cursor.value(0)?;
    cursor.skip_space();
    if cursor.rest.is_empty() { Ok(Digest(digest)) } else { Err(NotDigestible) }
}

/// The digest of a call: its method and what its params say, given as decoded names with the text of each value.
///
/// # Errors
/// [`NotDigestible`] when a value is no JSON or nested too deep.
pub fn call<'a>(
    method: &str,
    params: impl Iterator<Item = (&'a str, &'a [u8])>,
) -> Result<Digest, NotDigestible> {
    let mut members = Vec::new();
    for (name, value) in params {
        members.push((format!("\"{name}").into_bytes(), canonical(value)?.0));
    }
    let mut hasher = Xxh3::new();
    hasher.update(&xxh3_128(method.as_bytes()).to_le_bytes());
    hasher.update(&object_digest(members).to_le_bytes());
    Ok(Digest(hasher.digest128()))
}

struct Cursor<'a> {
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    fn skip_space(&mut self) {
        while let Some((b' ' | b'\t' | b'\n' | b'\r', rest)) = self.rest.split_first() {
            self.rest = rest;
        }
    }

    /// Takes the next byte that is not white space.
    fn next(&mut self) -> Result<u8, NotDigestible> {
        self.skip_space();
        self.take()
    }

    fn take(&mut self) -> Result<u8, NotDigestible> {
        let (byte, rest) = self.rest.split_first().ok_or(NotDigestible)?;
        self.rest = rest;
        Ok(*byte)
    }

    fn peek(&mut self) -> Option<u8> {
        self.skip_space();
        self.rest.first().copied()
    }

    fn value(&mut self, depth: u32) -> Result<u128, NotDigestible> {
        let deeper = depth.checked_add(1).filter(|depth| *depth <= MAX_DEPTH).ok_or(NotDigestible)?;
        match self.peek().ok_or(NotDigestible)? {
            b'{' => self.object(deeper),
            b'[' => self.array(deeper),
            b'"' => Ok(xxh3_128(&self.string()?)),
            _ => self.scalar(),
        }
    }

    /// A number or a literal, by its text.
    fn scalar(&mut self) -> Result<u128, NotDigestible> {
        let is_end =
            |byte: &u8| matches!(byte, b',' | b']' | b'}' | b':' | b'"' | b' ' | b'\t' | b'\n' | b'\r');
        let length = self.rest.iter().position(is_end).unwrap_or(self.rest.len());
        let (text, rest) = self.rest.split_at_checked(length).ok_or(NotDigestible)?;
        if text.is_empty() {
            return Err(NotDigestible);
        }
        self.rest = rest;
        Ok(tagged(b'#', text))
    }

    fn array(&mut self, depth: u32) -> Result<u128, NotDigestible> {
        self.take()?;
        let mut hasher = Xxh3::new();
        hasher.update(b"[");
        if self.peek() == Some(b']') {
            self.take()?;
            return Ok(hasher.digest128());
        }
        loop {
            hasher.update(&self.value(depth)?.to_le_bytes());
            match self.next()? {
                b',' => {}
                b']' => return Ok(hasher.digest128()),
                _ => return Err(NotDigestible),
            }
        }
    }

    fn object(&mut self, depth: u32) -> Result<u128, NotDigestible> {
        self.take()?;
        let mut members = Vec::new();
        if self.peek() == Some(b'}') {
            self.take()?;
            return Ok(object_digest(members));
        }
        loop {
            if self.peek() != Some(b'"') {
                return Err(NotDigestible);
            }
            let name = self.string()?;
            if self.next()? != b':' {
                return Err(NotDigestible);
            }
            members.push((name, self.value(depth)?));
            match self.next()? {
                b',' => {}
                b'}' => break,
                _ => return Err(NotDigestible),
            }
        }
        Ok(object_digest(members))
    }

    /// The characters of a string, with a leading quote so that a string never digests like a number.
    fn string(&mut self) -> Result<Vec<u8>, NotDigestible> {
        self.take()?;
        let mut decoded = vec![b'"'];
        loop {
            match self.take()? {
                b'"' => return Ok(decoded),
                b'\\' => self.escape(&mut decoded)?,
                byte => decoded.push(byte),
            }
        }
    }

    fn escape(&mut self, decoded: &mut Vec<u8>) -> Result<(), NotDigestible> {
        let byte = match self.take()? {
            byte @ (b'"' | b'\\' | b'/') => byte,
            b'b' => 0x08,
            b'f' => 0x0c,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'u' => {
                let unit = self.hex_unit()?;
                let scalar = self.low_surrogate_after(unit)?.unwrap_or(unit);
                push_generalized_utf8(scalar, decoded);
                return Ok(());
            }
            _ => return Err(NotDigestible),
        };
        decoded.push(byte);
        Ok(())
    }

    fn hex_unit(&mut self) -> Result<u32, NotDigestible> {
        let (digits, rest) = self.rest.split_at_checked(4).ok_or(NotDigestible)?;
        let digits = std::str::from_utf8(digits).map_err(|_not_ascii| NotDigestible)?;
        self.rest = rest;
        u32::from_str_radix(digits, 16).map_err(|_not_hex| NotDigestible)
    }

    /// If `unit` is a high surrogate and its partner follows, takes the partner and gives the character of both.
    fn low_surrogate_after(&mut self, unit: u32) -> Result<Option<u32>, NotDigestible> {
        let Some(high) = unit.checked_sub(0xd800).filter(|high| *high < 0x400) else { return Ok(None) };
        let Some(rest) = self.rest.strip_prefix(b"\\u") else { return Ok(None) };
        let before: &'a [u8] = self.rest;
        self.rest = rest;
        let low = self.hex_unit()?.checked_sub(0xdc00).filter(|low| *low < 0x400);
        if low.is_none() {
            self.rest = before;
        }
        Ok(low.map(|low| 0x1_0000_u32.saturating_add(high << 10).saturating_add(low)))
    }
}

fn object_digest(mut members: Vec<(Vec<u8>, u128)>) -> u128 {
    // Stable: members of the same name stay in the order in which they were written, because that order can carry
    // meaning for whoever reads the payload.
    members.sort_by(|a, b| a.0.cmp(&b.0));
    let mut hasher = Xxh3::new();
    hasher.update(b"{");
    for (name, value) in members {
        hasher.update(&xxh3_128(&name).to_le_bytes());
        hasher.update(&value.to_le_bytes());
    }
    hasher.digest128()
}

fn tagged(tag: u8, text: &[u8]) -> u128 {
    let mut hasher = Xxh3::new();
    hasher.update(&[tag]);
    hasher.update(text);
    hasher.digest128()
}

/// UTF-8 that also writes lone surrogates, so that two different lone surrogates stay different.
fn push_generalized_utf8(scalar: u32, into: &mut Vec<u8>) {
    if let Some(character) = char::from_u32(scalar) {
        into.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
        return;
    }
    let byte = |value: u32| u8::try_from(value).unwrap_or(u8::MAX);
    into.extend([
        byte(0xe0 | (scalar >> 12)),
        byte(0x80 | ((scalar >> 6) & 0x3f)),
        byte(0x80 | (scalar & 0x3f)),
    ]);
}

#[cfg(test)]
mod tests {
    use super::{call, canonical};

    fn same(a: &str, b: &str) -> bool {
        canonical(a.as_bytes()).unwrap() == canonical(b.as_bytes()).unwrap()
    }

    #[test]
    fn white_space_and_member_order_do_not_count() {
        assert!(same(r#"{"a":1,"b":[true,null]}"#, "{ \"b\" : [ true , null ],\r\n\t\"a\":1 }"));
    }

    #[test]
    fn everything_else_counts() {
        for (a, b) in [
            ("1", "1.0"),
            ("1", "\"1\""),
            ("1e2", "100"),
            ("[]", "{}"),
            ("[1,2]", "[2,1]"),
            ("[[1],2]", "[1,[2]]"),
            (r#"{"a":1}"#, r#"{"a":2}"#),
            (r#"{"a":1,"a":2}"#, r#"{"a":2,"a":1}"#),
            (r#""\ud800""#, r#""\ud801""#),
            ("true", "\"true\""),
            ("12345678901234567890", "12345678901234567891"),
        ] {
            assert!(!same(a, b), "{a} and {b}");
        }
    }

    #[test]
    fn an_escape_is_the_character_it_stands_for() {
        for (a, b) in [
            (r#""\u0041\/\n""#, "\"A/\\u000a\""),
            (r#""\ud83d\ude00""#, "\"\u{1f600}\""),
            (r#""\udbff\udfff""#, "\"\u{10ffff}\""),
            (r#""\ud800\udc00""#, "\"\u{10000}\""),
            (r#"{"\u0061":1}"#, r#"{"a":1}"#),
            (r#""\ud800\u0041""#, r#""\ud800A""#),
        ] {
            assert!(same(a, b), "{a} and {b}");
        }
    }

    #[test]
    fn what_is_no_json_or_too_deep_is_refused() {
        for text in ["", "[", "{\"a\"}", "\"", "\"\\u12\"", "[1 2]", "{1:2}", "1 1", "\"\\x\""] {
            assert!(canonical(text.as_bytes()).is_err(), "{text}");
        }
        let nested = |levels| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        assert!(canonical(nested(127).as_bytes()).is_ok());
        assert!(canonical(nested(129).as_bytes()).is_err());
        assert!(canonical(nested(1_000_000).as_bytes()).is_err());
    }

    #[test]
    fn a_call_is_its_method_and_its_params_in_any_order() {
        let params = [("a", &b"1"[..]), ("b", b"[ 2 ]")];
        let digest = call("store/complete", params.into_iter()).unwrap();
        assert_eq!(digest, call("store/complete", [("b", &b"[2]"[..]), ("a", b"1")].into_iter()).unwrap());
        assert_ne!(digest, call("store/fail", params.into_iter()).unwrap());
        assert_ne!(digest, call("store/complete", params.into_iter().take(1)).unwrap());
    }
}
