//! The one entry: header values and a time in, a caller out.

use std::sync::Arc;

use jsonwebtoken::crypto::CryptoProvider;
use task_broker_core::{Caller, Timestamp};

use super::{
    AuthMode, Keyring, MAX_LEEWAY_SECS, Policy, Unauthorized, bearer, cache::Known, cache::TokenName,
    claims::Claims, header::Header, json::decode_part,
};

/// Decides who sends a request.
#[derive(Clone, Debug)]
pub struct Authenticator {
    mode: AuthMode,
    keyring: Arc<Keyring>,
    policy: Policy,
    /// With `off`: whether everybody may look at everything.
    open: bool,
}

/// A caller, and how long it is known to be one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verified {
    /// Who sends the request.
    pub caller: Caller,
    /// The first instant at which the same token would be refused, leeway included; `None` without a token. What
    /// goes on longer than a request, such as a stream, must end then (case C09).
    pub valid_until: Option<Timestamp>,
}

/// Settings that contradict each other or would leave the broker open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AuthConfigError {
    /// Tokens were to be checked, but there is nothing to check them with.
    #[error(
        "--auth {0} needs a key: give --jwt-secret-file, --jwt-public-key-file, --jwks-file or --jwks-url"
    )]
    NoKey(AuthMode),
    /// A key was given, but it would not be used.
    #[error(
        "--auth off contradicts a key: remove --auth off, or --jwt-secret-file, --jwt-public-key-file, --jwks-file and \
         --jwks-url"
    )]
    KeyBesideOff,
    /// A rule for tokens was given, but no token would ever be looked at.
    #[error(
        "{0} has no effect without a key: give --jwt-secret-file, --jwt-public-key-file, --jwks-file or --jwks-url, or \
         remove it"
    )]
    PolicyWithoutKey(&'static str),
    /// Any token that was signed with the key, for whatever service, would be good.
    #[error("a key needs --jwt-audience")]
    NoAudience,
    /// Most likely a variable that was never set.
    #[error("--jwt-audience must not be empty")]
    EmptyAudience,
    /// Most likely a variable that was never set.
    #[error("--jwt-issuer must not be empty")]
    EmptyIssuer,
    /// Expired tokens would live on.
    #[error("--jwt-leeway-secs must be at most {MAX_LEEWAY_SECS}")]
    LeewayTooLong,
    /// The program was built without (or with two) implementations of the algorithms.
    #[error("this build cannot check signatures")]
    NoCryptography,
}

impl Authenticator {
    /// Checks the settings against each other.
    ///
    /// # Errors
    /// [`AuthConfigError`], naming the flag.
    pub fn new(
        mode: AuthMode,
        keyring: impl Into<Arc<Keyring>>,
        policy: Policy,
    ) -> Result<Self, AuthConfigError> {
        let keyring = keyring.into();
        if policy.leeway_secs > MAX_LEEWAY_SECS {
            return Err(AuthConfigError::LeewayTooLong);
        }
        if policy.audience.iter().any(String::is_empty) {
            return Err(AuthConfigError::EmptyAudience);
        }
        if policy.issuer.as_deref().is_some_and(str::is_empty) {
            return Err(AuthConfigError::EmptyIssuer);
        }
        match (mode, !keyring.is_configured()) {
            (AuthMode::Off, false) => return Err(AuthConfigError::KeyBesideOff),
            (AuthMode::Off, true) if !policy.audience.is_empty() => {
                return Err(AuthConfigError::PolicyWithoutKey("--jwt-audience"));
            }
            (AuthMode::Off, true) if policy.issuer.is_some() => {
                return Err(AuthConfigError::PolicyWithoutKey("--jwt-issuer"));
            }
            (AuthMode::Off, true) => {}
            (AuthMode::Optional | AuthMode::Required, true) => return Err(AuthConfigError::NoKey(mode)),
            (AuthMode::Optional | AuthMode::Required, false) => {
                if policy.audience.is_empty() {
                    return Err(AuthConfigError::NoAudience);
                }
                // jsonwebtoken panics in the first check if there is no provider: rather find out now.
                CryptoProvider::try_get_default().ok_or(AuthConfigError::NoCryptography)?;
            }
        }
        Ok(Self { mode, keyring, policy, open: false })
    }

    /// The same, but with the mode `off` everybody may also look at everything: for a broker that only its own machine
    /// can call.
    #[must_use]
    pub fn open_to_administration(self) -> Self {
        Self { open: true, ..self }
    }

    /// The mode in force.
    #[must_use]
    pub const fn mode(&self) -> AuthMode {
        self.mode
    }

    /// The keys in force.
    #[must_use]
    pub const fn keyring(&self) -> &Arc<Keyring> {
        &self.keyring
    }

    /// Who sends a request with these values of the header `Authorization`, one item for each header.
    ///
    /// # Errors
    /// [`Unauthorized`] if the mode needs a token and there is none, and in all modes but `off` if there is
    /// anything but one good token.
    pub fn authenticate<'h>(
        &self,
        authorization: impl IntoIterator<Item = &'h [u8]>,
        now: Timestamp,
    ) -> Result<Caller, Unauthorized> {
        self.verify(authorization, now).map(|verified| verified.caller)
    }

    /// The same as [`Authenticator::authenticate`], for what must end when the token does.
    ///
    /// # Errors
    /// As [`Authenticator::authenticate`].
    pub fn verify<'h>(
        &self,
        authorization: impl IntoIterator<Item = &'h [u8]>,
        now: Timestamp,
    ) -> Result<Verified, Unauthorized> {
        let verified = match self.mode {
            AuthMode::Off if self.open => {
                Ok(anonymous(Caller::anonymous().with_delegation().with_administration()))
            }
            AuthMode::Off => Ok(anonymous(Caller::anonymous().with_delegation())),
            AuthMode::Optional | AuthMode::Required => match bearer::token(authorization) {
                Ok(Some(token)) => self.verify_token(token, now),
                Ok(None) if self.mode == AuthMode::Optional => Ok(anonymous(Caller::anonymous())),
                Ok(None) => Err(Unauthorized::MISSING),
                Err(refusal) => Err(refusal),
            },
        };
        if let Err(refusal) = &verified {
            // The fixed text only: a log must not become a place where tokens are found, nor one that a client
            // can write into.
            tracing::debug!(reason = refusal.description, "caller refused");
        }
        verified
    }

    fn verify_token(&self, token: &str, now: Timestamp) -> Result<Verified, Unauthorized> {
        let name = TokenName::of(token);
        if let Some(known) = name.and_then(|name| self.keyring.known(&name)) {
            return known.at(now);
        }
        // One set of keys from here to the end: what is verified by it is kept with it.
        let snapshot = self.keyring.current();
        let (message, signature) = token.rsplit_once('.').ok_or(Unauthorized::NOT_A_JWT)?;
        let (header, claims) = message.split_once('.').ok_or(Unauthorized::NOT_A_JWT)?;
        if claims.contains('.') {
            return Err(Unauthorized::NOT_A_JWT);
        }
        let header = Header::read(&decode_part(header).ok_or(Unauthorized::BAD_HEADER)?)?;
        // Before the signature is known to be good, nothing that is claimed is looked at.
        if let Err(refusal) = snapshot.keys.verify(&header, message, signature) {
            // A key without a name was tried where one fits, and says nothing about the key that the token names.
            let names_unknown = header.kid.is_some_and(|kid| !snapshot.keys.knows(&kid));
            if names_unknown {
                self.keyring.tell_unknown_key();
            }
            let may_be_good = !snapshot.complete && (names_unknown || refusal == Unauthorized::NO_KEY);
            return Err(if may_be_good { Unauthorized::NO_KEYS_YET } else { refusal });
        }
        let claims = Claims::read(&decode_part(claims).ok_or(Unauthorized::BAD_CLAIMS)?)?;
        self.policy.check(&claims, now)?;
        let subject = self.policy.subject(&claims)?;
        let caller = Caller {
            subject: Some(Arc::from(subject)),
            may_delegate: claims.may_delegate,
            may_administer: claims.may_administer,
        };
        let verified = Verified { caller, valid_until: Some(self.policy.valid_until(&claims)) };
        if let Some(name) = name {
            let known = Known { verified: verified.clone(), valid_from: self.policy.valid_from(&claims) };
            snapshot.verified.insert(name, known);
        }
        Ok(verified)
    }
}

/// A caller without a token, for whom nothing can expire.
const fn anonymous(caller: Caller) -> Verified {
    Verified { caller, valid_until: None }
}
