//! The keys of the operator, and the signature of a token.

use std::fmt;

use jsonwebtoken::{Algorithm, DecodingKey, crypto};

use super::{Secret, Unauthorized, header::Header};

/// One key, for one algorithm.
///
/// The algorithm belongs to the key, never to the token: otherwise whoever knows a public key could sign tokens
/// with it as an HMAC secret (RFC 8725 3.1; case C03). Keys of other kinds get a constructor each.
#[derive(Clone)]
pub struct Key {
    algorithm: Algorithm,
    /// The name by which tokens must ask for it; a key without one is tried for any token of its algorithm.
    id: Option<String>,
    material: DecodingKey,
}

impl Key {
    /// A key for HS256 without a name.
    #[must_use]
    pub fn hs256(secret: &Secret) -> Self {
        Self { algorithm: Algorithm::HS256, id: None, material: secret.verifying().clone() }
    }

    /// Whether tokens with this header may be signed with this key. A key that has a name is only for tokens that
    /// say it, one without a name is for any. The `kid` is compared and used for nothing else (case C05).
    fn fits(&self, header: &Header) -> bool {
        self.algorithm == header.algorithm && (self.id.is_none() || self.id == header.kid)
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

    /// Checks that one of the fitting keys signed `message`. `signature` is the third part of the token as it was
    /// sent.
    pub(super) fn verify(&self, header: &Header, message: &str, signature: &str) -> Result<(), Unauthorized> {
        let mut fitting = self.0.iter().filter(|key| key.fits(header)).peekable();
        if fitting.peek().is_none() {
            return Err(Unauthorized::NO_KEY);
        }
        // The comparison takes constant time (aws-lc). The signature is decoded strictly, so that it has exactly
        // one spelling; one that cannot be decoded is an error and counts as "does not match".
        let signed = fitting.any(|key| {
            crypto::verify(signature, message.as_bytes(), &key.material, key.algorithm).unwrap_or(false)
        });
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
        Key { id: id.map(str::to_owned), ..Key::hs256(&secret(text)) }
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
