//! What a token says about itself (RFC 7515 4, the JOSE header).

use jsonwebtoken::Algorithm;
use serde_json::value::RawValue;

use super::{
    Unauthorized,
    json::{members, typed},
};

/// The part of a header that chooses among the configured keys. It can only ever rule keys out.
/// There is no `Debug`: what a token says belongs into no log.
pub(super) struct Header {
    /// The algorithm the token says it was signed with.
    pub(super) algorithm: Algorithm,
    /// The name of the key the token says it was signed with.
    pub(super) kid: Option<String>,
}

impl Header {
    /// Reads the header strictly.
    ///
    /// - `crit` means "refuse unless you understand these" and we implement no extension, so its mere presence is
    ///   a refusal, whatever is in it (RFC 7515 4.1.11; case C08). `b64` changes what is signed (RFC 7797) and is
    ///   refused the same way, even without `crit`.
    /// - `jwk`, `jku`, `x5u`, `x5c` carry a key or point to one. They are never used; that they are refused and
    ///   not just ignored keeps it visible: whoever sends them believes that they count (case C04). `x5t` and
    ///   `x5t#S256` only name a certificate, are common, and are ignored.
    /// - `typ` may be any string. RFC 8725 3.11 lets an issuer keep kinds of tokens apart by it, but issuers
    ///   write "JWT", "at+jwt" or nothing for the same kind; what keeps foreign tokens out here is the audience,
    ///   which is always checked.
    pub(super) fn read(json: &RawValue) -> Result<Self, Unauthorized> {
        let [alg, typ, kid, crit, b64, jwk, jku, x5u, x5c] =
            members(json, ["alg", "typ", "kid", "crit", "b64", "jwk", "jku", "x5u", "x5c"])
                .ok_or(Unauthorized::BAD_HEADER)?;
        if crit.or(b64).is_some() {
            return Err(Unauthorized::EXTENSION);
        }
        if jwk.or(jku).or(x5u).or(x5c).is_some() {
            return Err(Unauthorized::OWN_KEY);
        }
        text(typ)?;
        let alg: String = alg.and_then(typed).ok_or(Unauthorized::BAD_HEADER)?;
        // "none" is not among the names, nor is any other spelling of a known one.
        let Ok(algorithm) = alg.parse() else { return Err(Unauthorized::NO_KEY) };
        Ok(Self { algorithm, kid: text(kid)? })
    }
}

/// A member that is absent or a string.
fn text(value: Option<&RawValue>) -> Result<Option<String>, Unauthorized> {
    value.map(|value| typed(value).ok_or(Unauthorized::BAD_HEADER)).transpose()
}
