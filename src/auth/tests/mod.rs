//! The whole room from outside: header values in, callers or refusals out. Tokens are made from raw text, so that
//! wrong types, duplicate members and odd numbers survive.

mod cache;
mod claims;
mod headers;
mod minting;
mod modes;
mod owners;
mod public_keys;
mod quiet;
mod tampering;

use jsonwebtoken::{Algorithm, crypto};
use task_broker_core::{Caller, Timestamp};

use super::{AuthMode, Authenticator, Key, Keys, Policy, Secret, Unauthorized};

/// The time of all tests, in seconds.
const NOW: u64 = 1_800_000_000;

/// The secret of the broker.
const SECRET: &str = "a secret of the tests, 32 bytes or more";

const HEADER: &str = r#"{"alg":"HS256","typ":"JWT"}"#;

fn now() -> Timestamp {
    Timestamp::from_millis(NOW * 1000)
}

fn secret(text: &str) -> Secret {
    Secret::new(text.as_bytes()).expect("not empty")
}

fn policy(leeway_secs: u64) -> Policy {
    Policy {
        audience: vec!["task-broker".to_owned(), "tasks".to_owned()],
        issuer: None,
        leeway_secs,
        ..Policy::default()
    }
}

fn broker_with(mode: AuthMode, policy: Policy) -> Authenticator {
    Authenticator::new(mode, Keys::new(vec![Key::hs256(&secret(SECRET))]), policy).expect("good settings")
}

/// A broker in which every caller needs a token, with no leeway.
fn broker() -> Authenticator {
    broker_with(AuthMode::Required, policy(0))
}

fn ask(broker: &Authenticator, token: &str) -> Result<Caller, Unauthorized> {
    broker.authenticate([format!("Bearer {token}").as_bytes()], now())
}

/// base64url without padding, written again on purpose: the tests must not share the code they test.
fn base64url(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let word = chunk.iter().fold(0_usize, |word, byte| word << 8 | usize::from(*byte));
        let word = word << (8 * (3 - chunk.len()));
        for place in 0..=chunk.len() {
            text.push(char::from(ALPHABET[word >> (18 - 6 * place) & 63]));
        }
    }
    text
}

/// The token of these two parts, which are taken as they are.
fn seal(header: &str, payload: &str) -> String {
    seal_with(header, payload, SECRET, Algorithm::HS256)
}

fn seal_with(header: &str, payload: &str, key: &str, algorithm: Algorithm) -> String {
    let message = format!("{header}.{payload}");
    let signature = crypto::sign(message.as_bytes(), secret(key).signing(), algorithm).expect("signed");
    format!("{message}.{signature}")
}

/// A token with this raw header and payload, signed with the broker's secret.
fn token(header: impl AsRef<[u8]>, payload: impl AsRef<[u8]>) -> String {
    seal(&base64url(header.as_ref()), &base64url(payload.as_ref()))
}

/// The claims of a good token for alice, with these changes: a raw JSON text to set or add, nothing to remove.
fn claims(changes: &[(&str, Option<&str>)]) -> String {
    let exp = (NOW + 3600).to_string();
    let mut members = vec![("sub", r#""alice""#), ("exp", &exp), ("aud", r#""task-broker""#)];
    for (name, value) in changes {
        members.retain(|(other, _)| other != name);
        members.extend(value.map(|value| (*name, value)));
    }
    let members: Vec<String> = members.iter().map(|(name, value)| format!(r#""{name}":{value}"#)).collect();
    format!("{{{}}}", members.join(","))
}

/// What the broker says to a good header with these changes of the claims.
fn ask_with(broker: &Authenticator, changes: &[(&str, Option<&str>)]) -> Result<Caller, Unauthorized> {
    ask(broker, &token(HEADER, claims(changes)))
}

/// The tokens of three people: alice and bob are users, the service names owners.
fn persona(name: &str) -> String {
    let sub = format!("{name:?}");
    let scope = (name == "service").then_some(r#""tasks:delegate""#);
    token(HEADER, claims(&[("sub", Some(&sub)), ("scope", scope)]))
}

#[test]
fn the_encoder_of_the_tests_is_base64url() {
    for (text, encoded) in [("", ""), ("f", "Zg"), ("fo", "Zm8"), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")] {
        assert_eq!(base64url(text.as_bytes()), encoded, "RFC 4648 10");
    }
    assert_eq!(base64url(&[0xfb, 0xff]), "-_8");
}

#[test]
fn alice_bob_and_the_service_are_who_they_are() {
    let broker = broker();
    assert_eq!(ask(&broker, &persona("alice")), Ok(Caller::named("alice")));
    assert_eq!(ask(&broker, &persona("bob")), Ok(Caller::named("bob")));
    assert_eq!(ask(&broker, &persona("service")), Ok(Caller::named("service").with_delegation()));
}
