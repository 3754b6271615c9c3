//! Who may come in, read from the RFCs a second time and by other means than `auth` does it.

use std::collections::HashSet;
use std::fmt;

use aws_lc_rs::hmac;
use aws_lc_rs::signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::Value;
use serde_json::value::RawValue;

use super::{AUDIENCE, LEEWAY, NOW, SECRET};
use crate::auth::MAX_TOKEN_BYTES;

/// What must happen to a header.
pub(super) enum Judgement {
    /// It must be refused, for this reason.
    Refuse(&'static str),
    /// It must be accepted.
    Accept { subject: String, may_delegate: bool, may_administer: bool },
    /// It is signed, but it is not for this reading to say whether a time is just in or out.
    Unsure,
}

/// The members of an object, in order, with those that are there twice.
struct Pairs(Vec<(String, Box<RawValue>)>);

impl<'de> serde::Deserialize<'de> for Pairs {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> serde::de::Visitor<'de> for Reader {
            type Value = Pairs;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<Pairs, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(Pairs(pairs))
            }
        }
        deserializer.deserialize_map(Reader)
    }
}

impl Pairs {
    fn read(bytes: &[u8], known: &[&str]) -> Result<Self, &'static str> {
        let pairs: Self = serde_json::from_slice(bytes).map_err(|_what| "no JSON object")?;
        let mut seen = HashSet::new();
        let mut names = pairs.0.iter().map(|(name, _)| name.as_str()).filter(|name| known.contains(name));
        if names.all(|name| seen.insert(name)) { Ok(pairs) } else { Err("a member is there twice") }
    }

    fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(known, _)| known == name)
    }

    /// The member as a value of its own; `Value::Null` stands for one that cannot be a value, such as a lone surrogate.
    fn get(&self, name: &str) -> Option<Value> {
        let (_, raw) = self.0.iter().find(|(known, _)| known == name)?;
        Some(serde_json::from_str(raw.get()).unwrap_or(Value::Null))
    }
}

/// base64url without padding, in its one spelling.
fn decode(part: &str) -> Result<Vec<u8>, &'static str> {
    let bytes = URL_SAFE_NO_PAD.decode(part).map_err(|_what| "not base64url")?;
    if URL_SAFE_NO_PAD.encode(&bytes) == part { Ok(bytes) } else { Err("another spelling of base64url") }
}

/// Who may come in with the header `value`.
pub(super) fn judge(value: &[u8], key: &Ed25519KeyPair) -> Judgement {
    match read(value, key) {
        Ok(judgement) => judgement,
        Err(why) => Judgement::Refuse(why),
    }
}

fn read(value: &[u8], key: &Ed25519KeyPair) -> Result<Judgement, &'static str> {
    let text = str::from_utf8(value).ok().filter(|text| text.is_ascii()).ok_or("not ASCII")?;
    let (scheme, token) = text.split_once(' ').ok_or("one word")?;
    let token = token.trim_start_matches(' ');
    if !scheme.eq_ignore_ascii_case("bearer") || token.contains(' ') || token.len() > MAX_TOKEN_BYTES {
        return Err("not one bearer token");
    }
    let parts: Vec<&str> = token.split('.').collect();
    let [header, claims, signature] = parts[..] else { return Err("not three parts") };
    let (signed, signature) = (format!("{header}.{claims}"), decode(signature)?);
    signed_by_us(&decode(header)?, signed.as_bytes(), &signature, key)?;
    claimed(&decode(claims)?)
}

fn signed_by_us(
    header: &[u8],
    message: &[u8],
    signature: &[u8],
    key: &Ed25519KeyPair,
) -> Result<(), &'static str> {
    const KEYS_OF_ITS_OWN: [&str; 6] = ["crit", "b64", "jwk", "jku", "x5u", "x5c"];
    let known = [&KEYS_OF_ITS_OWN[..], &["alg", "typ", "kid"]].concat();
    let header = Pairs::read(header, &known)?;
    if KEYS_OF_ITS_OWN.iter().any(|name| header.has(name)) {
        return Err("an extension, or a key of its own");
    }
    if ["typ", "kid"].iter().any(|name| header.get(name).is_some_and(|value| !value.is_string())) {
        return Err("typ or kid is no string");
    }
    let good = match header.get("alg").as_ref().and_then(Value::as_str) {
        Some("HS256") => {
            let key = hmac::Key::new(hmac::HMAC_SHA256, SECRET);
            hmac::verify(&key, message, signature).is_ok()
        }
        Some("EdDSA") => {
            let key = UnparsedPublicKey::new(&ED25519, key.public_key().as_ref());
            key.verify(message, signature).is_ok()
        }
        _ => return Err("an algorithm that no key has"),
    };
    if good { Ok(()) } else { Err("the signature") }
}

/// A number of seconds, not negative; `-0` is.
fn date(value: &Value, raw: &str) -> Option<f64> {
    value.as_f64().filter(|seconds| *seconds >= 0.0 && !raw.starts_with('-'))
}

fn strings(value: &Value, spaces: bool, lists: bool) -> Option<Vec<String>> {
    match value {
        Value::String(text) if spaces => Some(text.split(' ').map(str::to_owned).collect()),
        Value::String(text) => Some(vec![text.clone()]),
        Value::Array(items) if lists => {
            items.iter().map(|item| item.as_str().map(str::to_owned)).collect::<Option<_>>()
        }
        _ => None,
    }
}

fn claimed(claims: &[u8]) -> Result<Judgement, &'static str> {
    let known = ["sub", "exp", "nbf", "iat", "aud", "iss", "scope", "scp"];
    let claims = Pairs::read(claims, &known)?;
    let mut sure = true;
    let mut time = |name: &str| -> Result<Option<f64>, &'static str> {
        let Some((_, raw)) = claims.0.iter().find(|(known, _)| known == name) else { return Ok(None) };
        let value = claims.get(name).unwrap_or(Value::Null);
        // A number that is larger than any double is still a number, and still no date.
        let seconds = date(&value, raw.get()).ok_or("a time that is no number")?;
        sure &= seconds < 1e15;
        Ok(Some(seconds))
    };
    #[allow(clippy::cast_precision_loss, reason = "seconds of this century")]
    let (now, leeway) = (NOW as f64, LEEWAY as f64);
    let expires = time("exp")?.ok_or("no exp")?;
    let starts = time("nbf")?;
    time("iat")?;
    let audience = claims.get("aud").and_then(|aud| strings(&aud, false, true)).ok_or("no aud")?;
    let subject = claims.get("sub").and_then(|sub| sub.as_str().map(str::to_owned)).ok_or("no sub")?;
    if subject.trim().is_empty() || subject.len() > 512 {
        return Err("a sub that is none");
    }
    if claims.get("iss").is_some_and(|iss| !iss.is_string()) {
        return Err("an iss that is no string");
    }
    let scope = claims.get("scope").map(|scope| strings(&scope, true, false).ok_or("scope")).transpose()?;
    let scp = claims.get("scp").map(|scp| strings(&scp, true, true).ok_or("scp")).transpose()?;
    if !audience.iter().any(|name| name == AUDIENCE) {
        return Err("for somebody else");
    }
    // Times are kept to the millisecond.
    let (left, early) = (expires + leeway - now, starts.map_or(f64::MIN, |starts| starts - leeway - now));
    if left < -0.002 || early > 0.002 {
        return Err("expired, or not valid yet");
    }
    if !sure || left <= 0.002 || early > -0.002 {
        return Ok(Judgement::Unsure);
    }
    let granted = |wanted: &str| scope.iter().chain(&scp).flatten().any(|scope| scope == wanted);
    let (may_delegate, may_administer) = (granted("tasks:delegate"), granted("tasks:admin"));
    Ok(Judgement::Accept { subject, may_delegate, may_administer })
}
