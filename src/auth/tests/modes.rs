//! The three modes, the settings, and what may stand in the header (case C13).

use super::*;
use crate::auth::AuthConfigError;

const MODES_WITH_KEY: [AuthMode; 2] = [AuthMode::Optional, AuthMode::Required];

#[test]
fn off_makes_everyone_the_anonymous_caller_who_may_name_owners() {
    let broker = Authenticator::new(AuthMode::Off, Keys::none(), Policy::default()).expect("good settings");
    let everyone = Caller::anonymous().with_delegation();
    let none: [&[u8]; 0] = [];
    assert_eq!(broker.authenticate(none, now()), Ok(everyone.clone()));
    let alice = format!("Bearer {}", persona("alice"));
    for value in [alice.as_bytes(), b"Bearer nonsense", b"Basic abc", b"\xff", b""] {
        assert_eq!(broker.authenticate([value], now()), Ok(everyone.clone()));
        assert_eq!(broker.authenticate([value, value], now()), Ok(everyone.clone()));
    }
}

#[test]
fn without_a_header_optional_is_anonymous_without_delegation_and_required_refuses() {
    let none: [&[u8]; 0] = [];
    let optional = broker_with(AuthMode::Optional, policy(0));
    assert_eq!(optional.authenticate(none, now()), Ok(Caller::anonymous()));
    let refusal = broker().authenticate(none, now()).expect_err("a token is required");
    assert_eq!(refusal, Unauthorized::MISSING);
    assert_eq!(refusal.challenge(), r#"Bearer realm="task-broker""#);
}

#[test]
fn a_good_token_counts_in_both_modes_and_in_any_case_of_the_scheme() {
    let alice = persona("alice");
    for mode in MODES_WITH_KEY {
        let broker = broker_with(mode, policy(0));
        for scheme in ["Bearer", "bearer", "BEARER"] {
            let value = format!("{scheme} {alice}");
            assert_eq!(broker.authenticate([value.as_bytes()], now()), Ok(Caller::named("alice")), "{mode}");
        }
    }
}

#[test]
fn a_header_that_is_present_and_bad_is_refused_in_both_modes() {
    let alice = format!("Bearer {}", persona("alice"));
    let stranger =
        seal_with(&base64url(HEADER.as_bytes()), &base64url(claims(&[]).as_bytes()), "x", Algorithm::HS256);
    let expired = token(HEADER, claims(&[("exp", Some("1799999999"))]));
    let long = format!("Bearer {}", "a".repeat(1024 * 1024));
    let good = alice.as_bytes();
    let stranger = format!("Bearer {stranger}");
    let expired = format!("Bearer {expired}");
    let trailing = format!("{alice}.d");
    let twice = format!("{alice}, {alice}");
    let cases: &[(&[&[u8]], Unauthorized)] = &[
        (&[b""], Unauthorized::NOT_BEARER),
        (&[b"Basic abc"], Unauthorized::NOT_BEARER),
        (&[b"Bearer"], Unauthorized::NOT_ONE_TOKEN),
        (&[b"Bearer "], Unauthorized::NOT_ONE_TOKEN),
        (&[b"Bearer a"], Unauthorized::NOT_A_JWT),
        (&[b"Bearer a.b"], Unauthorized::NOT_A_JWT),
        (&[b"Bearer a.b.c"], Unauthorized::BAD_HEADER),
        (&[b"Bearer a.b.c.d"], Unauthorized::NOT_A_JWT),
        (&[b"Bearer .."], Unauthorized::BAD_HEADER),
        (&[b"Bearer \xc3\xa9.b.c"], Unauthorized::NOT_A_JWT),
        (&[trailing.as_bytes()], Unauthorized::NOT_A_JWT),
        (&[twice.as_bytes()], Unauthorized::NOT_ONE_TOKEN),
        (&[long.as_bytes()], Unauthorized::TOO_LONG),
        (&[expired.as_bytes()], Unauthorized::EXPIRED),
        (&[stranger.as_bytes()], Unauthorized::BAD_SIGNATURE),
        (&[good, good], Unauthorized::SEVERAL_HEADERS),
        (&[good, b"Basic abc"], Unauthorized::SEVERAL_HEADERS),
        (&[b"", good], Unauthorized::SEVERAL_HEADERS),
    ];
    for mode in MODES_WITH_KEY {
        let broker = broker_with(mode, policy(0));
        for (values, refusal) in cases {
            let got = broker.authenticate(values.iter().copied(), now());
            assert_eq!(got, Err(*refusal), "{mode}");
        }
    }
}

#[test]
fn settings_that_contradict_each_other_are_refused_and_the_flag_is_named() {
    let keys = || Keys::new(vec![Key::hs256(&secret(SECRET))]);
    let rules = |audience: &[&str], issuer: Option<&str>, leeway_secs| Policy {
        audience: audience.iter().map(|&name| name.to_owned()).collect(),
        issuer: issuer.map(str::to_owned),
        leeway_secs,
        ..Policy::default()
    };
    let good = rules(&["a"], None, 30);
    let cases = [
        (
            AuthMode::Required,
            Keys::none(),
            good.clone(),
            AuthConfigError::NoKey(AuthMode::Required),
            "--auth required",
        ),
        (
            AuthMode::Optional,
            Keys::none(),
            good.clone(),
            AuthConfigError::NoKey(AuthMode::Optional),
            "--auth optional",
        ),
        (AuthMode::Off, keys(), good, AuthConfigError::KeyBesideOff, "--auth off"),
        (
            AuthMode::Off,
            Keys::none(),
            rules(&["a"], None, 30),
            AuthConfigError::PolicyWithoutKey("--jwt-audience"),
            "--jwt-audience",
        ),
        (
            AuthMode::Off,
            Keys::none(),
            rules(&[], Some("i"), 30),
            AuthConfigError::PolicyWithoutKey("--jwt-issuer"),
            "--jwt-issuer",
        ),
        (AuthMode::Required, keys(), rules(&[], None, 30), AuthConfigError::NoAudience, "--jwt-audience"),
        (
            AuthMode::Required,
            keys(),
            rules(&["a", ""], None, 30),
            AuthConfigError::EmptyAudience,
            "--jwt-audience",
        ),
        (
            AuthMode::Required,
            keys(),
            rules(&["a"], Some(""), 30),
            AuthConfigError::EmptyIssuer,
            "--jwt-issuer",
        ),
        (
            AuthMode::Required,
            keys(),
            rules(&["a"], None, 3601),
            AuthConfigError::LeewayTooLong,
            "--jwt-leeway-secs",
        ),
    ];
    for (mode, keys, policy, error, flag) in cases {
        let got = Authenticator::new(mode, keys, policy).expect_err(flag);
        assert_eq!(got, error);
        assert!(got.to_string().contains(flag), "{got}");
    }
    assert!(Authenticator::new(AuthMode::Off, Keys::none(), rules(&[], None, 30)).is_ok());
    assert!(Authenticator::new(AuthMode::Required, keys(), rules(&["a"], Some("i"), 3600)).is_ok());
}

#[test]
fn a_caller_is_known_until_the_token_and_the_leeway_end() {
    let alice = format!("Bearer {}", persona("alice"));
    let broker = broker_with(AuthMode::Optional, policy(30));
    let end = Timestamp::from_millis((NOW + 3630) * 1000);
    let verified = broker.verify([alice.as_bytes()], now()).expect("a good token");
    assert_eq!(verified.valid_until, Some(end));
    assert_eq!(broker.authenticate([alice.as_bytes()], end), Err(Unauthorized::EXPIRED));
    let none: [&[u8]; 0] = [];
    assert_eq!(broker.verify(none, now()).expect("anonymous").valid_until, None);
}
