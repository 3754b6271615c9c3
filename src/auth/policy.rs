//! Which good tokens are meant for this broker, now.

use std::borrow::Cow;

use task_broker_core::{Limits, OwnerFrom, Timestamp};

use super::{Unauthorized, claims::Claims};

/// The largest leeway, in seconds. Clocks differ by seconds; who sets more than an hour has probably taken the
/// unit for milliseconds and would keep expired tokens alive for hours.
pub const MAX_LEEWAY_SECS: u64 = 3600;

/// Which good tokens are meant for this broker, now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// The names of this broker: a token's `aud` must contain one of them. At least one is needed as soon as
    /// there is a key, otherwise a token made for any other service with the same key would be good here.
    pub audience: Vec<String>,
    /// The `iss` that tokens must have; `None` if any will do.
    pub issuer: Option<String>,
    /// By how many seconds the clocks of issuer and broker may differ, for `exp` and `nbf` alike.
    pub leeway_secs: u64,
    /// What makes the subject of a token.
    pub owner_from: OwnerFrom,
}

impl Policy {
    /// Checks that the claims are for this broker and for this time.
    ///
    /// Everything is compared byte by byte: an audience or issuer with another case, a trailing slash or a suffix
    /// is another one (case C12).
    pub(super) fn check(&self, claims: &Claims, now: Timestamp) -> Result<(), Unauthorized> {
        if self.valid_until(claims) <= now {
            return Err(Unauthorized::EXPIRED);
        }
        if self.valid_from(claims).is_some_and(|start| now < start) {
            return Err(Unauthorized::NOT_YET);
        }
        if !claims.audience.iter().any(|name| self.audience.contains(name)) {
            return Err(Unauthorized::OTHER_AUDIENCE);
        }
        if self.issuer.is_some() && self.issuer != claims.issuer {
            return Err(Unauthorized::OTHER_ISSUER);
        }
        Ok(())
    }

    /// The subject of a token.
    ///
    /// With `iss-sub` it is `iss`, one space, and `sub`. An `iss` that is no URI without white space is refused, so the
    /// first space is always the one between them: two different pairs never become one subject.
    pub(super) fn subject<'c>(&self, claims: &'c Claims) -> Result<Cow<'c, str>, Unauthorized> {
        match self.owner_from {
            OwnerFrom::Sub => Ok(Cow::Borrowed(&claims.subject)),
            OwnerFrom::IssSub => {
                let issuer = claims.issuer.as_deref().filter(|issuer| {
                    !issuer.is_empty() && !issuer.contains(|c: char| c.is_whitespace() || c.is_control())
                });
                let subject = format!("{} {}", issuer.ok_or(Unauthorized::NO_ISS)?, claims.subject);
                let fits = subject.len() <= Limits::MAX_SUBJECT_BYTES;
                fits.then_some(Cow::Owned(subject)).ok_or(Unauthorized::LONG_ISS_SUB)
            }
        }
    }

    /// The first instant at which the token is good; `None` if it always was.
    pub(super) fn valid_from(&self, claims: &Claims) -> Option<Timestamp> {
        let leeway = self.leeway_secs.saturating_mul(1000);
        claims.not_before.map(|start| Timestamp::from_millis(start.as_millis().saturating_sub(leeway)))
    }

    /// The first instant at which the token is no longer good.
    pub(super) const fn valid_until(&self, claims: &Claims) -> Timestamp {
        claims.expires.saturating_add(self.leeway_secs.saturating_mul(1000))
    }
}
