//! Why a request is not served to the caller it claims to come from.

/// A request whose caller could not be established: HTTP 401 with [`Unauthorized::challenge`].
///
/// Both texts are fixed when the program is built. Nothing that a client sent gets into them, so they can be
/// logged and sent back without escaping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{description}")]
pub struct Unauthorized {
    /// The error code of RFC 6750 3.1, `invalid_token` or `invalid_request`. `None` when no bearer token was
    /// sent: the RFC asks for a challenge without any error information then, because nothing was wrong yet.
    pub error: Option<&'static str>,
    /// What is wrong, for people.
    pub description: &'static str,
}

impl Unauthorized {
    /// The value of the `WWW-Authenticate` header (RFC 6750 3).
    #[must_use]
    pub fn challenge(&self) -> String {
        let description = self.description;
        self.error.map_or_else(
            || r#"Bearer realm="task-broker""#.to_owned(),
            |error| {
                format!(r#"Bearer realm="task-broker", error="{error}", error_description="{description}""#)
            },
        )
    }

    /// Whether the token may well be good, but cannot be checked now: HTTP 503 instead of 401.
    #[must_use]
    pub fn is_for_lack_of_keys(&self) -> bool {
        *self == Self::NO_KEYS_YET
    }

    /// No bearer token was sent: there is no error to name.
    const fn unasked(description: &'static str) -> Self {
        Self { error: None, description: quotable(description) }
    }

    /// The request as such is malformed.
    const fn request(description: &'static str) -> Self {
        Self { error: Some("invalid_request"), description: quotable(description) }
    }

    /// A token was sent and is not good.
    const fn token(description: &'static str) -> Self {
        Self { error: Some("invalid_token"), description: quotable(description) }
    }
}

/// Every refusal there is. They are constants so that `quotable` is checked when the program is built.
impl Unauthorized {
    pub(super) const MISSING: Self = Self::unasked("no bearer token was sent");
    pub(super) const NOT_BEARER: Self = Self::unasked("the authorization scheme must be Bearer");

    pub(super) const SEVERAL_HEADERS: Self = Self::request("more than one Authorization header was sent");
    pub(super) const NOT_ONE_TOKEN: Self = Self::request("exactly one token must follow the scheme Bearer");

    pub(super) const TOO_LONG: Self = Self::token("the token is longer than 16 KiB");
    pub(super) const NOT_A_JWT: Self = Self::token("the token is not a JWT of three base64url parts");
    pub(super) const BAD_HEADER: Self = Self::token("the header of the token is malformed");
    pub(super) const EXTENSION: Self =
        Self::token("the token needs a header extension that is not supported");
    pub(super) const OWN_KEY: Self = Self::token("the token must not carry a key or point to one");
    pub(super) const NO_KEY: Self = Self::token("no key fits the alg and kid of the token");
    /// The fault is not the token's: the broker has not heard from its key server yet.
    pub(super) const NO_KEYS_YET: Self = Self::unasked("the keys of the broker are not there yet");
    pub(super) const BAD_SIGNATURE: Self = Self::token("the signature does not match");
    pub(super) const BAD_CLAIMS: Self = Self::token("the claims are not one JSON object without repetition");
    pub(super) const BAD_EXP: Self = Self::token("exp must be there and must be a NumericDate");
    pub(super) const BAD_NBF: Self = Self::token("nbf must be a NumericDate");
    pub(super) const BAD_IAT: Self = Self::token("iat must be a NumericDate");
    pub(super) const BAD_AUD: Self = Self::token("aud must be there, as a string or an array of strings");
    pub(super) const BAD_ISS: Self = Self::token("iss must be a string");
    pub(super) const BAD_SUB: Self = Self::token("sub must be a string of 1 to 512 bytes that is not blank");
    pub(super) const BAD_SCOPE: Self =
        Self::token("scope must be a string, scp a string or an array of strings");
    pub(super) const NO_ISS: Self = Self::token("iss must be there and must have no white space");
    pub(super) const LONG_ISS_SUB: Self = Self::token("iss and sub together must have at most 511 bytes");
    pub(super) const EXPIRED: Self = Self::token("the token has expired");
    pub(super) const NOT_YET: Self = Self::token("the token is not valid yet");
    pub(super) const OTHER_AUDIENCE: Self = Self::token("the token is meant for another audience");
    pub(super) const OTHER_ISSUER: Self = Self::token("the token comes from another issuer");
}

/// The text itself, if it may stand in a quoted string without escapes (RFC 6750 3: printable ASCII without `"`
/// and `\`). As all callers are constants, a text that may not is an error of the build.
const fn quotable(text: &'static str) -> &'static str {
    let mut rest = text.as_bytes();
    while let [byte, tail @ ..] = rest {
        assert!(matches!(byte, b' '..=b'~') && *byte != b'"' && *byte != b'\\', "not quotable");
        rest = tail;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_token_is_named_in_the_challenge() {
        assert_eq!(
            Unauthorized::EXPIRED.challenge(),
            r#"Bearer realm="task-broker", error="invalid_token", error_description="the token has expired""#
        );
        assert_eq!(
            Unauthorized::SEVERAL_HEADERS.challenge(),
            r#"Bearer realm="task-broker", error="invalid_request", error_description="more than one Authorization header was sent""#
        );
    }

    #[test]
    fn without_a_token_the_challenge_names_no_error() {
        for refusal in [Unauthorized::MISSING, Unauthorized::NOT_BEARER] {
            assert_eq!(refusal.challenge(), r#"Bearer realm="task-broker""#);
        }
    }
}
