//! Tokens, minted from the raw text of header and payload, so that wrong types and duplicate members survive.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit, Mac};
use serde_json::json;
use sha2::{Sha256, Sha512};

/// The HMAC secret of every broker that the harness starts with authentication.
pub(crate) const SECRET: &str = "only-for-tests:2f6c1d0b9a8e7f5d4c3b2a190817263544536271809fa8b7";
/// The audience those brokers ask for.
pub(crate) const AUDIENCE: &str = "task-broker";
/// The scope that lets a service account name the owner of a task.
pub(crate) const DELEGATE: &str = "tasks:delegate";
/// The header of an ordinary token.
pub(crate) const HEADER: &str = r#"{"alg":"HS256","typ":"JWT"}"#;

/// Unix time in seconds, for `exp` and `nbf`.
#[allow(
    clippy::disallowed_methods,
    reason = "a token is made for the wall clock, which the test cannot inject"
)]
pub(crate) fn now() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    i64::try_from(since.as_secs()).unwrap()
}

/// A good token for `subject`, valid for an hour.
pub(crate) fn good(subject: &str) -> String {
    sign(HEADER, &json!({"sub": subject, "aud": AUDIENCE, "exp": now() + 3600}).to_string())
}

/// A good token for `subject` with the given `scope`.
pub(crate) fn scoped(subject: &str, scope: &str) -> String {
    sign(HEADER, &json!({"sub": subject, "aud": AUDIENCE, "exp": now() + 3600, "scope": scope}).to_string())
}

/// A token for `subject` that was good until an hour ago, well outside of any leeway.
pub(crate) fn expired(subject: &str) -> String {
    sign(HEADER, &json!({"sub": subject, "aud": AUDIENCE, "exp": now() - 3600}).to_string())
}

/// Header and payload as they are, signed with HMAC-SHA-256 and the right secret.
pub(crate) fn sign(header: &str, payload: &str) -> String {
    sign_with(header, payload, SECRET.as_bytes())
}

/// Header and payload as they are, signed with HMAC-SHA-256 and any secret.
pub(crate) fn sign_with(header: &str, payload: &str, secret: &[u8]) -> String {
    let text = unsigned(header, payload);
    let mut mac = Hmac::<Sha256>::new_from_slice(secret).unwrap();
    mac.update(text.as_bytes());
    format!("{text}.{}", URL_SAFE_NO_PAD.encode(mac.finalize().into_bytes()))
}

/// Header and payload as they are, signed with HMAC-SHA-512 and the right secret.
pub(crate) fn sign_sha512(header: &str, payload: &str) -> String {
    let text = unsigned(header, payload);
    let mut mac = Hmac::<Sha512>::new_from_slice(SECRET.as_bytes()).unwrap();
    mac.update(text.as_bytes());
    format!("{text}.{}", URL_SAFE_NO_PAD.encode(mac.finalize().into_bytes()))
}

/// `header.payload`, without the dot and the signature that a token ends with.
pub(crate) fn unsigned(header: &str, payload: &str) -> String {
    format!("{}.{}", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(payload))
}
