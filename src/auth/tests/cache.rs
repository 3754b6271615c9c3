//! Tokens that were verified before: never longer than they are good, nor longer than their keys.

use super::*;
use crate::auth::{Keyring, Source};
use std::sync::Arc;

fn at(broker: &Authenticator, token: &str, secs: u64) -> Result<Caller, Unauthorized> {
    broker.authenticate([format!("Bearer {token}").as_bytes()], Timestamp::from_millis(secs * 1000))
}

fn kept(broker: &Authenticator) -> usize {
    broker.keyring().current().verified.len()
}

#[test]
fn a_token_from_the_cache_expires_as_any_other_and_is_not_good_before_its_time() {
    let broker = broker_with(AuthMode::Required, policy(5));
    let nbf = (NOW - 10).to_string();
    let exp = (NOW + 10).to_string();
    let token = token(HEADER, claims(&[("nbf", Some(&nbf)), ("exp", Some(&exp))]));
    assert_eq!(at(&broker, &token, NOW), Ok(Caller::named("alice")));
    assert_eq!(kept(&broker), 1);
    assert_eq!(at(&broker, &token, NOW + 14), Ok(Caller::named("alice")));
    assert_eq!(at(&broker, &token, NOW + 15), Err(Unauthorized::EXPIRED));
    assert_eq!(at(&broker, &token, NOW - 15), Ok(Caller::named("alice")));
    assert_eq!(at(&broker, &token, NOW - 16), Err(Unauthorized::NOT_YET));
}

#[test]
fn what_is_refused_is_not_kept_and_a_good_token_makes_no_other_one_good() {
    let broker = broker();
    let good = persona("alice");
    assert!(ask(&broker, &good).is_ok());
    for bad in
        [format!("{good}A"), good[..good.len() - 1].to_owned(), format!("{good}."), good.replace('.', "..")]
    {
        assert!(ask(&broker, &bad).is_err(), "{bad}");
    }
    for number in 0..100 {
        let stranger =
            seal_with(&base64url(HEADER.as_bytes()), "e30", &format!("x{number}"), Algorithm::HS256);
        assert!(ask(&broker, &stranger).is_err());
    }
    assert!(ask(&broker, &token(HEADER, claims(&[("aud", Some(r#""other""#))]))).is_err());
    assert_eq!(kept(&broker), 1);
}

#[test]
fn what_is_kept_has_a_bound() {
    let broker = broker();
    for number in 0..18_000 {
        let sub = format!("\"{number}\"");
        assert!(ask(&broker, &token(HEADER, claims(&[("sub", Some(&sub))]))).is_ok());
    }
    assert!(kept(&broker) <= 16 * 1024);
}

#[test]
fn with_its_key_a_token_goes_out_of_the_cache_too() {
    let keyring = Arc::new(Keyring::new(Keys::none(), &[Source::File]));
    let broker = Authenticator::new(AuthMode::Required, Arc::clone(&keyring), policy(0)).unwrap();
    let alice = persona("alice");
    assert!(ask(&broker, &alice).unwrap_err().is_for_lack_of_keys());
    assert!(!keyring.is_complete());
    keyring.replace(Source::File, Keys::new(vec![Key::hs256(&secret(SECRET))]), now());
    assert!(keyring.is_complete());
    assert!(ask(&broker, &alice).is_ok() && ask(&broker, &alice).is_ok());
    keyring.replace(Source::File, Keys::new(vec![Key::hs256(&secret("another"))]), now());
    assert_eq!(ask(&broker, &alice), Err(Unauthorized::BAD_SIGNATURE));
    let later = Timestamp::from_millis(NOW * 1000 + 5000);
    assert_eq!(keyring.age(Source::File, later).unwrap().as_secs(), 5);
    keyring.confirm(Source::File, later);
    assert_eq!(keyring.age(Source::File, later).unwrap().as_secs(), 0);
    assert_eq!(keyring.age(Source::Server, later), None);
}
