//! Public keys from PEM files.

use std::io;
use std::path::{Path, PathBuf};

use super::Key;
use super::public::{self, KeyFault};
use crate::auth::files::read_bounded;

/// The largest PEM file, in bytes. A larger one is surely the wrong file.
const MAX_PEM_BYTES: u64 = 64 * 1024;

/// A file that holds one public key.
#[derive(Clone, Copy, Debug)]
pub struct PublicKeyFile;

/// Why a PEM file gave no key.
#[derive(Debug, thiserror::Error)]
#[error("{}: {fault}", path.display())]
pub struct PemError {
    /// The file.
    path: PathBuf,
    fault: PemFault,
}

#[derive(Debug, thiserror::Error)]
enum PemFault {
    #[error("cannot be read: {0}")]
    Unreadable(io::Error),
    #[error("is larger than 64 KiB")]
    TooLarge,
    #[error("holds no PEM block, which begins with -----BEGIN PUBLIC KEY-----")]
    NoPem,
    #[error("holds more than one key; give each a file of its own and repeat the flag")]
    Several,
    #[error(
        "holds a private key, which belongs to the issuer alone; take the public one: openssl pkey -in FILE -pubout"
    )]
    Private,
    #[error("holds a certificate; take the key out of it: openssl x509 -in FILE -pubkey -noout")]
    Certificate,
    #[error("holds no public key")]
    NotAKey,
    #[error(transparent)]
    Key(KeyFault),
}

impl PublicKeyFile {
    /// Reads the key, which has no name: it is tried for every token of its algorithms. An RSA key is taken for RS256,
    /// RS384, RS512, PS256, PS384 and PS512; a key on P-256 for ES256, on P-384 for ES384, on Ed25519 for EdDSA.
    ///
    /// # Errors
    /// [`PemError`] names the file, and what to do.
    pub fn read(path: &Path) -> Result<Vec<Key>, PemError> {
        let read = || {
            let bytes = read_bounded(path, MAX_PEM_BYTES).map_err(PemFault::Unreadable)?;
            parse(&bytes.ok_or(PemFault::TooLarge)?)
        };
        read().map_err(|fault| PemError { path: path.to_owned(), fault })
    }
}

fn parse(text: &[u8]) -> Result<Vec<Key>, PemFault> {
    let Ok(blocks) = ::pem::parse_many(text) else { return Err(PemFault::NoPem) };
    let block = match blocks.as_slice() {
        [] => return Err(PemFault::NoPem),
        [block] => block,
        _ => return Err(PemFault::Several),
    };
    match block.tag() {
        "PUBLIC KEY" | "RSA PUBLIC KEY" => {
            let verifiers = public::from_der(block.contents()).map_err(PemFault::Key)?;
            Ok(Key::public(None, verifiers))
        }
        "CERTIFICATE" => Err(PemFault::Certificate),
        tag if tag.ends_with("PRIVATE KEY") => Err(PemFault::Private),
        _ => Err(PemFault::NotAKey),
    }
}
