//! Task ids.

use std::fmt;

/// The id of a task: 128 random bits, written as 32 lower-case hex digits.
///
/// An id can act as a bearer token (SEP-2663), so it must be unguessable; the caller of
/// [`TaskId::from_bytes`] takes the bytes from the operating system's generator.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId([u8; 16]);

impl TaskId {
    /// The id made of these random bytes.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// The bytes of the id, in the order in which they are written.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// Reads an id as it is written on the wire. Anything that this service could not have issued, upper-case
    /// digits included, is `None`: such a string is simply unknown.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let digits: &[u8; 32] = text.as_bytes().try_into().ok()?;
        let mut bytes = [0u8; 16];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            let [high, low] = pair else { return None };
            *byte = (hex(*high)? << 4) | hex(*low)?;
        }
        Some(Self(bytes))
    }
}

fn hex(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => digit.checked_sub(b'0'),
        b'a'..=b'f' => digit.checked_sub(b'a').and_then(|value| value.checked_add(10)),
        _ => None,
    }
}

impl fmt::Display for TaskId {
    /// In one piece: an id stands in every answer, and byte by byte the formatting took half a microsecond of it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = [0; 32];
        for (pair, byte) in text.chunks_exact_mut(2).zip(self.0) {
            pair.copy_from_slice(&[digit(byte >> 4), digit(byte & 0xf)]);
        }
        f.write_str(std::str::from_utf8(&text).unwrap_or_default())
    }
}

/// The digit of four bits.
fn digit(value: u8) -> u8 {
    b"0123456789abcdef".get(usize::from(value)).copied().unwrap_or(b'0')
}

impl fmt::Debug for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::TaskId;

    #[test]
    fn an_id_reads_back_as_it_was_written() {
        let id = TaskId::from_bytes([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff]);
        assert_eq!(id.to_string(), "00010203040506070809aabbccddeeff");
        assert_eq!(TaskId::parse(&id.to_string()), Some(id));
    }

    #[test]
    fn anything_else_is_unknown() {
        for text in ["", "x", "00010203040506070809AABBCCDDEEFF", "00010203040506070809aabbccddeef", "é"] {
            assert_eq!(TaskId::parse(text), None, "{text}");
        }
        assert_eq!(TaskId::parse(&"0".repeat(10_000)), None);
    }
}
