//! Tokens for development and for small set-ups without an issuer: `task-broker token`.

use jsonwebtoken::{Algorithm, Header, crypto::CryptoProvider, encode};
use serde::Serialize;
use task_broker_core::{Limits, Timestamp};

use super::{MAX_TOKEN_BYTES, Secret};

/// What a new token shall say.
#[derive(Clone, Copy, Debug)]
pub struct MintClaims<'a> {
    /// Who the token is for.
    pub sub: &'a str,
    /// Which service the token is for.
    pub aud: &'a str,
    /// Scopes, with spaces between them.
    pub scope: Option<&'a str>,
    /// Who says so.
    pub iss: Option<&'a str>,
    /// How long the token is good, in seconds, counted from the last full second.
    pub lifetime_secs: u64,
}

/// Why no token was made. Whatever [`mint`] makes, a broker with the same key, audience and issuer accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MintError {
    /// No broker would accept the subject.
    #[error("--sub must have 1 to 512 bytes and must not be blank")]
    Subject,
    /// No broker has this audience.
    #[error("--aud must not be empty")]
    Audience,
    /// No broker has this issuer.
    #[error("--iss must not be empty")]
    Issuer,
    /// The token would be expired at once, or its end is beyond the calendar.
    #[error("--lifetime-secs must be at least 1 and not end beyond what a time can hold")]
    Lifetime,
    /// No broker would read the token.
    #[error("the token would be longer than 16 KiB")]
    TooLong,
    /// The signature could not be made.
    #[error("the token cannot be signed")]
    Signing,
}

#[derive(Serialize)]
struct Payload<'a> {
    sub: &'a str,
    aud: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    iss: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    scope: Option<&'a str>,
    iat: u64,
    exp: u64,
}

/// A token with these claims, signed with HS256.
///
/// # Errors
/// [`MintError`] if a broker would refuse the token, or it cannot be signed.
pub fn mint(secret: &Secret, claims: &MintClaims<'_>, now: Timestamp) -> Result<String, MintError> {
    let MintClaims { sub, aud, scope, iss, lifetime_secs } = *claims;
    if sub.chars().all(char::is_whitespace) || sub.len() > Limits::MAX_SUBJECT_BYTES {
        return Err(MintError::Subject);
    }
    if aud.is_empty() {
        return Err(MintError::Audience);
    }
    if iss.is_some_and(str::is_empty) {
        return Err(MintError::Issuer);
    }
    let iat = now.as_millis() / 1000;
    let exp = iat.checked_add(lifetime_secs).filter(|exp| {
        // The reader holds times in milliseconds. A lifetime of 0 would be expired at once.
        exp.checked_mul(1000).is_some() && lifetime_secs > 0
    });
    let payload = Payload { sub, aud, iss, scope, iat, exp: exp.ok_or(MintError::Lifetime)? };
    // Without a provider `encode` would panic; with the features of this crate there always is one.
    CryptoProvider::try_get_default().ok_or(MintError::Signing)?;
    let Ok(token) = encode(&Header::new(Algorithm::HS256), &payload, secret.signing()) else {
        return Err(MintError::Signing);
    };
    if token.len() > MAX_TOKEN_BYTES { Err(MintError::TooLong) } else { Ok(token) }
}
