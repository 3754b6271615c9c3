//! `task-broker token` makes what `task-broker serve` accepts.

use super::*;
use crate::auth::{MintClaims, MintError, mint};

const ALICE: MintClaims<'_> =
    MintClaims { sub: "alice", aud: "task-broker", scope: None, iss: None, lifetime_secs: 60 };

#[test]
fn a_minted_token_is_accepted_until_its_lifetime_ends() {
    let minted = mint(&secret(SECRET), &ALICE, Timestamp::from_millis(NOW * 1000 + 999)).expect("minted");
    let value = format!("Bearer {minted}");
    let at = |millis| broker().authenticate([value.as_bytes()], Timestamp::from_millis(NOW * 1000 + millis));
    assert_eq!(at(999), Ok(Caller::named("alice")));
    assert_eq!(at(59_999), Ok(Caller::named("alice")));
    assert_eq!(at(60_000), Err(Unauthorized::EXPIRED));
}

#[test]
fn a_minted_token_says_what_was_asked_for() {
    let issuer = Some("https://issuer.example".to_owned());
    let strict = broker_with(AuthMode::Required, Policy { issuer, ..policy(0) });
    let scope = Some("openid tasks:delegate");
    let odd = MintClaims { sub: "\"\\\n\u{1f980}", scope, iss: Some("https://issuer.example"), ..ALICE };
    let minted = mint(&secret(SECRET), &odd, now()).expect("minted");
    assert_eq!(ask(&strict, &minted), Ok(Caller::named(odd.sub).with_delegation()));
    let other = MintClaims { aud: "other", ..odd };
    let minted = mint(&secret(SECRET), &other, now()).expect("minted");
    assert_eq!(ask(&strict, &minted), Err(Unauthorized::OTHER_AUDIENCE));
}

#[test]
fn what_no_broker_would_accept_is_not_minted() {
    let long = "a".repeat(513);
    let huge = "a".repeat(20_000);
    for (claims, error) in [
        (MintClaims { sub: "", ..ALICE }, MintError::Subject),
        (MintClaims { sub: " \u{3000}", ..ALICE }, MintError::Subject),
        (MintClaims { sub: &long, ..ALICE }, MintError::Subject),
        (MintClaims { aud: "", ..ALICE }, MintError::Audience),
        (MintClaims { iss: Some(""), ..ALICE }, MintError::Issuer),
        (MintClaims { lifetime_secs: 0, ..ALICE }, MintError::Lifetime),
        (MintClaims { lifetime_secs: u64::MAX, ..ALICE }, MintError::Lifetime),
        (MintClaims { lifetime_secs: u64::MAX / 1000, ..ALICE }, MintError::Lifetime),
        (MintClaims { scope: Some(&huge), ..ALICE }, MintError::TooLong),
    ] {
        assert_eq!(mint(&secret(SECRET), &claims, now()), Err(error));
    }
}
