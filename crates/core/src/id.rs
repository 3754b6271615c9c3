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
        let (mut bytes, mut all) = ([0; 16], 0);
        for (byte, pair) in bytes.iter_mut().zip(digits.as_chunks::<2>().0) {
            let [high, low] = pair.map(hex);
            *byte = (high << 4) | low;
            all |= high | low;
        }
        (all < 16).then_some(Self(bytes))
    }
}

/// What a digit is worth; [`NO_DIGIT`] for what is none. Ids come with nearly every call, in no order that a processor could
/// foresee, so their digits are looked at without a branch, and what is wrong is asked once for all of them.
const fn hex(digit: u8) -> u8 {
    let (number, letter) = (digit.wrapping_sub(b'0'), digit.wrapping_sub(b'a'));
    let of_letter = if letter < 6 { letter.wrapping_add(10) } else { NO_DIGIT };
    if number < 10 { number } else { of_letter }
}

/// More than any digit is worth.
const NO_DIGIT: u8 = 0xf0;

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

    #[test]
    fn every_place_takes_the_sixteen_digits_and_nothing_else() {
        for place in 0..32 {
            for byte in 0..128_u8 {
                let mut text = [b'0'; 32];
                text[place] = byte;
                let text = std::str::from_utf8(&text).unwrap();
                let read = TaskId::parse(text);
                assert_eq!(read.is_some(), b"0123456789abcdef".contains(&byte), "{text}");
                assert!(read.is_none_or(|id| id.to_string() == text), "{text}");
            }
        }
    }
}
