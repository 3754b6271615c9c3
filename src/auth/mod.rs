//! From the `Authorization` header of a request to the [`Caller`](task_broker_core::Caller) who sent it.
//!
//! The room knows neither HTTP nor the clock: it takes the raw header values and the time, and answers with a
//! caller or with the reason for a 401. The steps are the files, in this order:
//!
//! 1. `bearer`: exactly one header, exactly one token;
//! 2. `header`: what the token says about itself, read strictly;
//! 3. [`keys`](Keys): a key that fits, bound to one algorithm by the operator, never by the token, and the
//!    signature;
//! 4. `claims`: only then what the token claims, read strictly and held against the [`Policy`].
//!
//! Nothing of a token or a key appears in an answer, a log line or a `Debug` text. All texts are fixed.

mod authenticator;
mod bearer;
mod claims;
mod header;
mod json;
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
pub use keys::{Key, Keys};
pub use mint::{MintClaims, MintError, mint};
pub use mode::{AuthMode, UnknownAuthMode};
pub use policy::{MAX_LEEWAY_SECS, Policy};
pub use secret::{KeyError, MAX_SECRET_FILE_BYTES, SHORT_SECRET_BYTES, Secret, SecretFile};
pub use unauthorized::Unauthorized;
