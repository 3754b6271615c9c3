//! The shared secret of HS256, from a file.

use std::{
    fmt, io,
    path::{Path, PathBuf},
};

use jsonwebtoken::{DecodingKey, EncodingKey};

use super::files::read_bounded;

/// The largest secret file, in bytes. A larger one is surely the wrong file.
pub const MAX_SECRET_FILE_BYTES: u64 = 64 * 1024;

/// A secret with fewer bytes than this is weaker than the algorithm (RFC 7518 3.2).
pub const SHORT_SECRET_BYTES: usize = 32;

/// A shared secret. It is never empty, is never printed, and wipes its own memory when it is dropped.
#[derive(Clone)]
pub struct Secret {
    // Both of them wipe themselves. To hold both means that neither a check nor a signature has to handle a key
    // that could not be made.
    signing: EncodingKey,
    verifying: DecodingKey,
}

impl Secret {
    /// The secret with exactly these bytes, `None` if there are none.
    pub(crate) fn new(bytes: &[u8]) -> Option<Self> {
        let signing = EncodingKey::from_secret(bytes).ok()?;
        let verifying = DecodingKey::from_secret(bytes).ok()?;
        Some(Self { signing, verifying })
    }

    /// Whether the secret is shorter than RFC 7518 3.2 asks for. It works, but deserves a warning.
    #[must_use]
    pub fn is_short(&self) -> bool {
        self.signing.as_bytes().len() < SHORT_SECRET_BYTES
    }

    pub(super) const fn signing(&self) -> &EncodingKey {
        &self.signing
    }

    pub(super) const fn verifying(&self) -> &DecodingKey {
        &self.verifying
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(redacted)")
    }
}

/// A file that holds a secret.
#[derive(Clone, Copy, Debug)]
pub struct SecretFile;

impl SecretFile {
    /// Reads the secret: the bytes of the file without one trailing newline (`\n` or `\r\n`), because editors and
    /// `echo` write one that nobody means.
    ///
    /// # Errors
    /// [`KeyError`] if the file cannot be read, is larger than [`MAX_SECRET_FILE_BYTES`], or holds no secret.
    pub fn read(path: &Path) -> Result<Secret, KeyError> {
        let unreadable = |source| KeyError::Unreadable { path: path.to_owned(), source };
        let bytes = read_bounded(path, MAX_SECRET_FILE_BYTES).map_err(unreadable)?;
        let bytes = bytes.ok_or_else(|| KeyError::TooLarge { path: path.to_owned() })?;
        if is_known_to_others(&bytes) {
            return Err(KeyError::NoSecret { path: path.to_owned() });
        }
        Secret::new(without_newline(&bytes)).ok_or_else(|| KeyError::Empty { path: path.to_owned() })
    }
}

/// Whether this is a key or a certificate in PEM, or a JWK or a set of them: mostly public, and then everybody could sign.
fn is_known_to_others(bytes: &[u8]) -> bool {
    if bytes.trim_ascii_start().starts_with(b"-----BEGIN ") {
        return true;
    }
    let object = serde_json::from_slice::<serde_json::Map<String, serde_json::Value>>(bytes);
    object.is_ok_and(|object| object.contains_key("keys") || object.contains_key("kty"))
}

fn without_newline(bytes: &[u8]) -> &[u8] {
    bytes.strip_suffix(b"\r\n").or_else(|| bytes.strip_suffix(b"\n")).unwrap_or(bytes)
}

/// Why there is no key.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The file could not be read.
    #[error("cannot read the secret file {}: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The file is too large to be a secret.
    #[error("the secret file {} is larger than 64 KiB", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
    },
    /// The file holds a key, a certificate or a key set.
    #[error(
        "the secret file {} holds a PEM text or a JWK and no secret; public keys go to --jwt-public-key-file, key sets to \
         --jwks-file",
        path.display()
    )]
    NoSecret {
        /// The file.
        path: PathBuf,
    },
    /// The file holds nothing, or nothing but a newline.
    #[error("the secret file {} is empty", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn read(content: &[u8]) -> Result<Vec<u8>, KeyError> {
        let directory = tempfile::tempdir().expect("a directory for the test");
        let path = directory.path().join("secret");
        fs::write(&path, content).expect("written");
        SecretFile::read(&path).map(|secret| secret.signing().as_bytes().to_vec())
    }

    #[test]
    fn one_trailing_newline_is_not_part_of_the_secret() {
        for (content, secret) in [
            ("secret", "secret"),
            ("secret\n", "secret"),
            ("secret\r\n", "secret"),
            ("secret\n\n", "secret\n"),
            ("secret\r\n\r\n", "secret\r\n"),
            ("secret\r", "secret\r"),
            ("\nsecret", "\nsecret"),
            (" secret \n", " secret "),
        ] {
            assert_eq!(read(content.as_bytes()).expect("a secret"), secret.as_bytes(), "{content:?}");
        }
        assert_eq!(read(b"\x00\xff\n").expect("a secret may be any bytes"), b"\x00\xff");
    }

    #[test]
    fn what_others_know_is_no_secret() {
        for content in [
            "-----BEGIN PUBLIC KEY-----\nMCow\n-----END PUBLIC KEY-----\n",
            "\n-----BEGIN CERTIFICATE-----\n",
            r#"{"keys": []}"#,
            r#" {"kty": "RSA", "n": "AQ", "e": "AQAB"}"#,
        ] {
            assert!(matches!(read(content.as_bytes()), Err(KeyError::NoSecret { .. })), "{content:?}");
        }
        for content in [r#"{"secret": 1}"#, "[1]", "BEGIN", "-----"] {
            assert!(read(content.as_bytes()).is_ok(), "{content:?}");
        }
    }

    #[test]
    fn an_empty_secret_is_an_error() {
        for content in ["", "\n", "\r\n"] {
            assert!(matches!(read(content.as_bytes()), Err(KeyError::Empty { .. })), "{content:?}");
        }
    }

    #[test]
    fn a_file_above_64_kib_is_refused() {
        assert_eq!(read(&vec![b'a'; 64 * 1024]).expect("just small enough").len(), 64 * 1024);
        assert!(matches!(read(&vec![b'a'; 64 * 1024 + 1]), Err(KeyError::TooLarge { .. })));
        assert!(matches!(SecretFile::read(Path::new("/dev/zero")), Err(KeyError::TooLarge { .. })));
    }

    #[test]
    fn errors_name_the_file_and_the_reason() {
        let missing = SecretFile::read(Path::new("/no/such/file")).expect_err("there is no file");
        let text = missing.to_string();
        assert!(text.contains("/no/such/file") && text.contains("No such file"), "{text}");
        let directory = SecretFile::read(Path::new("/")).expect_err("a directory is no file");
        assert!(matches!(directory, KeyError::Unreadable { .. }));
    }

    #[test]
    fn a_secret_below_32_bytes_is_short() {
        for (length, short) in [(1, true), (31, true), (32, false), (64, false)] {
            assert_eq!(Secret::new(&vec![b'k'; length]).expect("not empty").is_short(), short, "{length}");
        }
    }
}
