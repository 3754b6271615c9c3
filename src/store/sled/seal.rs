//! The envelope of every value: a version byte, a checksum over key and body, the body.

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

/// The version of the records this code writes.
const VERSION: u8 = 1;
const ENVELOPE_BYTES: usize = 9;

/// Why a stored value is not what was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Broken {
    /// It is shorter than any value.
    #[error("the record is cut")]
    Short,
    /// Another version.
    #[error("the record has version {0}, this program knows version 1")]
    Version(u8),
    /// The bytes are others.
    #[error("the record's checksum is wrong")]
    Checksum,
    /// The bytes are those that were written, but they make no sense.
    #[error("the record cannot be decoded")]
    Content,
}

fn checksum(key: &[u8], body: &[u8]) -> [u8; 8] {
    // With the key, so that an intact value under a wrong key is found too.
    xxh3_64_with_seed(body, xxh3_64(key)).to_le_bytes()
}

/// Makes the value for `body` under `key`.
pub(super) fn seal(key: &[u8], body: &[u8]) -> Vec<u8> {
    let mut value = Vec::with_capacity(ENVELOPE_BYTES + body.len());
    value.push(VERSION);
    value.extend_from_slice(&checksum(key, body));
    value.extend_from_slice(body);
    value
}

/// The body of a value, unproved: for whoever has a better proof, and asks [`open`] only to learn what is wrong.
pub(super) fn peek(value: &[u8]) -> &[u8] {
    value.get(ENVELOPE_BYTES..).unwrap_or_default()
}

/// The body of a value, if it is what was written under this key.
pub(super) fn open<'a>(key: &[u8], value: &'a [u8]) -> Result<&'a [u8], Broken> {
    let (version, rest) = value.split_first().ok_or(Broken::Short)?;
    if *version != VERSION {
        return Err(Broken::Version(*version));
    }
    let (sum, body) = rest.split_at_checked(8).ok_or(Broken::Short)?;
    if sum == checksum(key, body) { Ok(body) } else { Err(Broken::Checksum) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sealed_value_opens_only_under_its_key_and_unchanged() {
        let value = seal(b"key", b"body");
        assert_eq!(open(b"key", &value), Ok(&b"body"[..]));
        assert_eq!(open(b"kez", &value), Err(Broken::Checksum));
        for at in 0..value.len() {
            let mut changed = value.clone();
            changed[at] ^= 1;
            assert!(open(b"key", &changed).is_err(), "byte {at}");
            assert!(open(b"key", &value[..at]).is_err(), "cut at {at}");
        }
    }
}
