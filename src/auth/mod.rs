//! From the `Authorization` header of a request to the [`Caller`](task_broker_core::Caller) who sent it.
//!
//! The room knows neither HTTP nor the clock: it takes the raw header values and the time, and answers with a
//! caller or with the reason for a 401. The steps are the files, in this order:
//!
//! 1. `bearer`: exactly one header, exactly one token;
//! 2. `header`: what the token says about itself, read strictly;
//! 3. [`keys`](Keys): a key that fits, bound to its algorithms by the operator, never by the token, and the
//!    signature;
//! 4. `claims`: only then what the token claims, read strictly and held against the [`Policy`].
//!
//! The keys in force are in the [`Keyring`]; whoever fetches keys puts them there. What was verified is kept in `cache`
//! as long as these keys are in force.
//!
//! Nothing of a token or a key appears in an answer, a log line or a `Debug` text. All texts are fixed.

mod authenticator;
mod bearer;
mod cache;
mod claims;
mod files;
mod header;
mod json;
mod keyring;
mod keys;
mod mint;
mod mode;
mod numeric_date;
mod policy;
mod secret;
mod unauthorized;

#[cfg(test)]
mod tests;

pub use authenticator::{AuthConfigError, Authenticator, Verified};
pub use bearer::MAX_TOKEN_BYTES;
pub use files::read_bounded;
pub use keyring::{Keyring, Source};
pub use keys::{
    JwksError, Key, KeyFault, KeySet, Keys, MAX_JWKS_BYTES, MAX_JWKS_KEYS, PemError, PublicKeyFile, Skipped,
};
pub use mint::{MintClaims, MintError, mint};
pub use mode::{AuthMode, UnknownAuthMode};
pub use policy::{MAX_LEEWAY_SECS, Policy};
pub use secret::{KeyError, MAX_SECRET_FILE_BYTES, SHORT_SECRET_BYTES, Secret, SecretFile};
pub use unauthorized::Unauthorized;
