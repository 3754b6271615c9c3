//! What a token claims (RFC 7519 4.1), read strictly.

use serde_json::value::RawValue;
use task_broker_core::access::{ADMIN_SCOPE, DELEGATE_SCOPE};
use task_broker_core::{Limits, Timestamp};

use super::{
    Unauthorized,
    json::{members, typed},
    numeric_date::numeric_date,
};

/// The claims that matter here, each with its right type. A claim of a wrong type is never taken for an absent
/// one, not even `null`. There is no `Debug`: what a token says belongs into no log.
pub(super) struct Claims {
    pub(super) subject: String,
    pub(super) expires: Timestamp,
    pub(super) not_before: Option<Timestamp>,
    pub(super) audience: Vec<String>,
    pub(super) issuer: Option<String>,
    pub(super) may_delegate: bool,
    pub(super) may_administer: bool,
}

impl Claims {
    /// Reads the claims. Whether they are good for this broker and this time is the policy's question.
    pub(super) fn read(json: &RawValue) -> Result<Self, Unauthorized> {
        let [sub, exp, nbf, iat, aud, iss, scope, scp] =
            members(json, ["sub", "exp", "nbf", "iat", "aud", "iss", "scope", "scp"])
                .ok_or(Unauthorized::BAD_CLAIMS)?;
        // Nothing depends on iat, but a token in which it is no number was not made by an issuer to be trusted.
        optional(iat, numeric_date, Unauthorized::BAD_IAT)?;
        Ok(Self {
            expires: exp.and_then(numeric_date).ok_or(Unauthorized::BAD_EXP)?,
            not_before: optional(nbf, numeric_date, Unauthorized::BAD_NBF)?,
            audience: aud.and_then(one_or_many).ok_or(Unauthorized::BAD_AUD)?,
            issuer: optional(iss, typed, Unauthorized::BAD_ISS)?,
            subject: sub.and_then(subject).ok_or(Unauthorized::BAD_SUB)?,
            may_delegate: grants(scope, scp, DELEGATE_SCOPE)?,
            may_administer: grants(scope, scp, ADMIN_SCOPE)?,
        })
    }
}

/// A claim that may be absent, but not be anything else than `read` can read.
fn optional<T>(
    claim: Option<&RawValue>,
    read: impl FnOnce(&RawValue) -> Option<T>,
    refusal: Unauthorized,
) -> Result<Option<T>, Unauthorized> {
    claim.map(|value| read(value).ok_or(refusal)).transpose()
}

/// The subject, byte by byte as the issuer wrote it: trimming, folding case or normalising would make one owner
/// of two (case C11). Blank means empty or only Unicode white space, such names are accidents; a NUL or a
/// zero-width character alone is odd, but a name of its own.
fn subject(value: &RawValue) -> Option<String> {
    let subject: String = typed(value)?;
    let blank = subject.chars().all(char::is_whitespace);
    (!blank && subject.len() <= Limits::MAX_SUBJECT_BYTES).then_some(subject)
}

/// A string, or an array of strings.
fn one_or_many(value: &RawValue) -> Option<Vec<String>> {
    typed(value).map(|one| vec![one]).or_else(|| typed(value))
}

/// Whether one of the two usual claims grants a scope: `scope`, scopes with spaces between
/// them (RFC 8693 4.2), or `scp`, which some issuers write the same way and others as an array.
fn grants(scope: Option<&RawValue>, scp: Option<&RawValue>, wanted: &str) -> Result<bool, Unauthorized> {
    let listed = |value: &RawValue| listed(value, wanted);
    let by_scope = optional(scope, listed, Unauthorized::BAD_SCOPE)?;
    let either = |value: &RawValue| listed(value).or_else(|| member(value, wanted));
    let by_scp = optional(scp, either, Unauthorized::BAD_SCOPE)?;
    Ok(by_scope.unwrap_or(false) || by_scp.unwrap_or(false))
}

/// Whether the scope is among those of a string with spaces between them.
fn listed(value: &RawValue, wanted: &str) -> Option<bool> {
    typed(value).map(|list: String| list.split(' ').any(|scope| scope == wanted))
}

/// Whether the scope is among those of an array, each of which is one scope.
fn member(value: &RawValue, wanted: &str) -> Option<bool> {
    typed(value).map(|scopes: Vec<String>| scopes.iter().any(|scope| scope == wanted))
}
