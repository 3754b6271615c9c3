//! The keys of the operator, and the signature of a token.

mod jwks;
mod pem;
mod public;

use std::fmt;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::{Algorithm, DecodingKey, crypto};

use self::public::Verifier;
use super::{Secret, Unauthorized, header::Header};

pub use self::jwks::{JwksError, KeySet, MAX_JWKS_BYTES, MAX_JWKS_KEYS, Skipped};
pub use self::pem::{PemError, PublicKeyFile};
pub use self::public::KeyFault;

/// One key, for one algorithm.
///
/// The algorithm belongs to the key, never to the token: otherwise whoever knows a public key could sign tokens
/// with it as an HMAC secret (RFC 8725 3.1; case C03). A public key that may be used with several algorithms is
/// several of these.
#[derive(Clone)]
pub struct Key {
    algorithm: Algorithm,
    /// The name by which tokens must ask for it; a key without one is tried for any token of its algorithm.
    id: Option<Arc<str>>,
    material: Material,
}

#[derive(Clone)]
enum Material {
    /// A shared secret.
    Shared(DecodingKey),
    /// Somebody's public key, which was parsed and checked once.
    Public(Arc<Verifier>),
}

impl Key {
    /// A key for HS256 without a name.
    #[must_use]
    pub fn hs256(secret: &Secret) -> Self {
        let material = Material::Shared(secret.verifying().clone());
        Self { algorithm: Algorithm::HS256, id: None, material }
    }

    /// One key for each algorithm that this public key may be used with.
    fn public(id: Option<&str>, verifiers: Vec<Verifier>) -> Vec<Self> {
        let id: Option<Arc<str>> = id.map(Arc::from);
        let key = |verifier: Verifier| Self {
            algorithm: verifier.algorithm(),
            id: id.clone(),
            material: Material::Public(Arc::new(verifier)),
        };
        verifiers.into_iter().map(key).collect()
    }

    /// Whether tokens with this header may be signed with this key. A key that has a name is only for tokens that
    /// say it, one without a name is for any. The `kid` is compared and used for nothing else (case C05).
    fn fits(&self, header: &Header) -> bool {
        self.algorithm == header.algorithm
            && (self.id.is_none() || self.id.as_deref() == header.kid.as_deref())
    }

    /// Whether this key signed the message. The signature comes in both forms, as it was sent and decoded.
    fn signed(&self, message: &str, text: &str, signature: &[u8]) -> bool {
        match &self.material {
            // The comparison takes constant time (aws-lc).
            Material::Shared(secret) => {
                crypto::verify(text, message.as_bytes(), secret, self.algorithm).unwrap_or(false)
            }
            Material::Public(verifier) => verifier.verify(message.as_bytes(), signature),
        }
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Key")
            .field("algorithm", &self.algorithm)
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

/// The keys that tokens may be signed with.
#[derive(Clone, Debug, Default)]
pub struct Keys(Vec<Key>);

impl Keys {
    /// No key at all, for the mode [`off`](super::AuthMode::Off).
    #[must_use]
    pub const fn none() -> Self {
        Self(Vec::new())
    }

    /// These keys.
    #[must_use]
    pub const fn new(keys: Vec<Key>) -> Self {
        Self(keys)
    }

    /// Whether there is no key.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many there are, one for each algorithm that a key is for.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.0.len()
    }

    /// Adds keys.
    pub fn extend(&mut self, keys: impl IntoIterator<Item = Key>) {
        self.0.extend(keys);
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Key> {
        self.0.iter()
    }

    /// Whether some key has this name.
    pub(super) fn knows(&self, kid: &str) -> bool {
        self.0.iter().any(|key| key.id.as_deref() == Some(kid))
    }

    /// Checks that one of the fitting keys signed `message`. `signature` is the third part of the token as it was
    /// sent.
    pub(super) fn verify(&self, header: &Header, message: &str, signature: &str) -> Result<(), Unauthorized> {
        let mut fitting = self.0.iter().filter(|key| key.fits(header)).peekable();
        if fitting.peek().is_none() {
            return Err(Unauthorized::NO_KEY);
        }
        // Strictly, so that a signature has exactly one spelling; one that cannot be decoded does not match.
        let Ok(decoded) = URL_SAFE_NO_PAD.decode(signature) else { return Err(Unauthorized::BAD_SIGNATURE) };
        let signed = fitting.any(|key| key.signed(message, signature, &decoded));
        if signed { Ok(()) } else { Err(Unauthorized::BAD_SIGNATURE) }
    }
}

#[cfg(test)]
mod tests {
    use jsonwebtoken::EncodingKey;

    use super::*;

    const MESSAGE: &str = "header.claims";

    fn secret(text: &str) -> Secret {
        Secret::new(text.as_bytes()).expect("not empty")
    }

    fn key(text: &str, id: Option<&str>) -> Key {
        Key { id: id.map(Arc::from), ..Key::hs256(&secret(text)) }
    }

    fn verify(keys: &Keys, signer: &str, kid: Option<&str>) -> Result<(), Unauthorized> {
        let signature = crypto::sign(MESSAGE.as_bytes(), secret(signer).signing(), Algorithm::HS256);
        let header = Header { algorithm: Algorithm::HS256, kid: kid.map(str::to_owned) };
        keys.verify(&header, MESSAGE, &signature.expect("signed"))
    }

    #[test]
    fn a_key_without_a_name_is_tried_for_any_token() {
        let keys = Keys::new(vec![key("old", None), key("new", None)]);
        for (signer, kid) in
            [("old", None), ("new", None), ("new", Some("")), ("old", Some("../../dev/null"))]
        {
            assert_eq!(verify(&keys, signer, kid), Ok(()), "{signer} {kid:?}");
        }
        assert_eq!(verify(&keys, "other", None), Err(Unauthorized::BAD_SIGNATURE));
    }

    #[test]
    fn a_key_with_a_name_is_only_for_tokens_that_say_it() {
        let keys = Keys::new(vec![key("one", Some("1")), key("two", Some("2"))]);
        assert_eq!(verify(&keys, "one", Some("1")), Ok(()));
        assert_eq!(verify(&keys, "two", Some("2")), Ok(()));
        assert_eq!(verify(&keys, "two", Some("1")), Err(Unauthorized::BAD_SIGNATURE));
        for kid in [None, Some(""), Some("3"), Some("1 ")] {
            assert_eq!(verify(&keys, "one", kid), Err(Unauthorized::NO_KEY), "{kid:?}");
        }
    }

    #[test]
    fn a_key_is_for_one_algorithm() {
        let keys = Keys::new(vec![key("one", None)]);
        for algorithm in [Algorithm::HS384, Algorithm::HS512, Algorithm::RS256, Algorithm::EdDSA] {
            let header = Header { algorithm, kid: None };
            assert_eq!(keys.verify(&header, MESSAGE, ""), Err(Unauthorized::NO_KEY), "{algorithm:?}");
        }
    }

    #[test]
    fn the_example_of_rfc_7515_a_1_is_verified() {
        let key = "AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ-EstJQLr_T-1qS0gZH75aKtMN3Yj0iPS4hcgUuTwjAzZr1Z9CAow==";
        let key = EncodingKey::from_urlsafe_base64_secret(key).expect("the key of the example");
        let keys = Keys::new(vec![Key::hs256(&Secret::new(key.as_bytes()).expect("not empty"))]);
        let header = Header { algorithm: Algorithm::HS256, kid: None };
        let message = "eyJ0eXAiOiJKV1QiLA0KICJhbGciOiJIUzI1NiJ9\
                       .eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ";
        let signature = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
        assert_eq!(keys.verify(&header, message, signature), Ok(()));
        let other = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXl";
        assert_eq!(keys.verify(&header, message, other), Err(Unauthorized::BAD_SIGNATURE), "a lax spelling");
    }
}
