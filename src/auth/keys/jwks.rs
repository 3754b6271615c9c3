//! Key sets (RFC 7517): a document with public keys, from a file or from a server.
//!
//! Read by the same strict reader as tokens. A key that cannot be used here is left out, as RFC 7517 5 asks, and told
//! to the operator; a set of which nothing is left is an error.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::Algorithm;
use serde_json::value::RawValue;

use super::public::{self, KeyFault, Verifier};
use super::{Key, Keys};
use crate::auth::json::{members, typed};

/// The largest document, in bytes. Sets of large issuers have some 10 KiB.
pub const MAX_JWKS_BYTES: u64 = 256 * 1024;

/// How many keys one set may have. A token without `kid` is tried with every key that has none, so their number is
/// what one bad token may cost.
pub const MAX_JWKS_KEYS: usize = 64;

/// The longest name of a key, in bytes.
const MAX_KID_BYTES: usize = 512;

/// Why a document gave no keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JwksError {
    /// It is larger than any key set.
    #[error("the key set is larger than 256 KiB")]
    TooLarge,
    /// It is no JSON, or none with the member `keys`.
    #[error("it is no key set: a JSON object with the array `keys`")]
    NotAKeySet,
    /// There are too many.
    #[error("the key set has more than {MAX_JWKS_KEYS} keys")]
    TooMany,
    /// Nothing is left.
    #[error("the key set has no key that can be used to check signatures")]
    NoUsableKey,
}

/// Why a key of a set is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Skipped {
    /// It is not even an object, or has a member twice, or one of a wrong type.
    #[error("it is malformed")]
    Malformed,
    /// Everybody who can read the set could make tokens.
    #[error("it is a private or a shared key, which does not belong into a key set")]
    Private,
    /// `use` or `key_ops` say that it is for something else.
    #[error("it is not for signatures")]
    OtherUse,
    /// Its kind, curve or algorithm is none of those that are known.
    #[error("its kty, crv or alg is not supported")]
    Unsupported,
    /// `alg` says what `kty` contradicts.
    #[error("its alg does not belong to its kty")]
    Contradiction,
    /// The key as such.
    #[error(transparent)]
    Key(KeyFault),
}

/// A key set, as far as it can be used.
#[derive(Debug)]
pub struct KeySet {
    /// The keys.
    pub keys: Keys,
    /// Why others were left out: their place in the set, counted from 1, and the reason.
    pub skipped: Vec<(usize, Skipped)>,
}

impl KeySet {
    /// Reads a document.
    ///
    /// # Errors
    /// [`JwksError`] if there is not one key in it that can be used.
    pub fn parse(document: &[u8]) -> Result<Self, JwksError> {
        if u64::try_from(document.len()).is_ok_and(|length| length > MAX_JWKS_BYTES) {
            return Err(JwksError::TooLarge);
        }
        let Ok(json) = serde_json::from_slice::<&RawValue>(document) else {
            return Err(JwksError::NotAKeySet);
        };
        let [keys] = members(json, ["keys"]).ok_or(JwksError::NotAKeySet)?;
        let entries = keys.and_then(|keys| serde_json::from_str::<Vec<&RawValue>>(keys.get()).ok());
        let entries = entries.ok_or(JwksError::NotAKeySet)?;
        if entries.len() > MAX_JWKS_KEYS {
            return Err(JwksError::TooMany);
        }
        let mut set = Self { keys: Keys::none(), skipped: Vec::new() };
        for (place, entry) in entries.into_iter().enumerate() {
            match read_key(entry) {
                Ok(keys) => set.keys.extend(keys),
                Err(skipped) => set.skipped.push((place + 1, skipped)),
            }
        }
        if set.keys.is_empty() { Err(JwksError::NoUsableKey) } else { Ok(set) }
    }
}

/// A text that may be absent, but not be anything else.
fn text(member: Option<&RawValue>) -> Result<Option<String>, Skipped> {
    member.map(|member| typed(member).ok_or(Skipped::Malformed)).transpose()
}

/// A number in base64url, big-endian.
fn number(member: Option<&RawValue>) -> Result<Vec<u8>, Skipped> {
    let text = text(member)?.ok_or(Skipped::Malformed)?;
    URL_SAFE_NO_PAD.decode(text).map_err(|_not_base64| Skipped::Malformed)
}

fn read_key(json: &RawValue) -> Result<Vec<Key>, Skipped> {
    let names = ["kty", "use", "key_ops", "alg", "kid", "d", "k"];
    let [kty, usage, key_ops, alg, kid, private, shared] = members(json, names).ok_or(Skipped::Malformed)?;
    if private.or(shared).is_some() {
        return Err(Skipped::Private);
    }
    let operations: Option<Vec<String>> =
        key_ops.map(|operations| typed(operations).ok_or(Skipped::Malformed)).transpose()?;
    let for_signatures = text(usage)?.is_none_or(|usage| usage == "sig")
        && operations.is_none_or(|operations| operations.iter().any(|operation| operation == "verify"));
    if !for_signatures {
        return Err(Skipped::OtherUse);
    }
    let kid = text(kid)?;
    if kid.as_ref().is_some_and(|kid| kid.len() > MAX_KID_BYTES) {
        return Err(Skipped::Malformed);
    }
    let only = text(alg)?.map(|alg| algorithm(&alg)).transpose()?;
    let kty = text(kty)?.ok_or(Skipped::Malformed)?;
    Ok(Key::public(kid.as_deref(), read_material(json, &kty, only)?))
}

/// The key itself, if it is for the algorithm that it is said to be for.
fn read_material(json: &RawValue, kty: &str, only: Option<Algorithm>) -> Result<Vec<Verifier>, Skipped> {
    let [curve, modulus, exponent, x, y] =
        members(json, ["crv", "n", "e", "x", "y"]).ok_or(Skipped::Malformed)?;
    let verifiers = match (kty, text(curve)?.as_deref()) {
        ("RSA", _) => {
            if only.is_some_and(|only| !public::is_rsa(only)) {
                return Err(Skipped::Contradiction);
            }
            public::from_rsa(&number(modulus)?, &number(exponent)?, only)
        }
        ("EC", Some("P-256")) => public::from_p256(&number(x)?, &number(y)?),
        ("EC", Some("P-384")) => public::from_p384(&number(x)?, &number(y)?),
        ("OKP", Some("Ed25519")) => public::from_ed25519(&number(x)?),
        _ => return Err(Skipped::Unsupported),
    };
    let verifiers = verifiers.map_err(Skipped::Key)?;
    let agrees = |verifier: &Verifier| only.is_none_or(|only| verifier.algorithm() == only);
    if verifiers.iter().all(agrees) { Ok(verifiers) } else { Err(Skipped::Contradiction) }
}

fn algorithm(name: &str) -> Result<Algorithm, Skipped> {
    match name {
        // The newer name of the same algorithm (RFC 9864).
        "Ed25519" => Ok(Algorithm::EdDSA),
        name => name.parse().map_err(|_unknown| Skipped::Unsupported),
    }
}
