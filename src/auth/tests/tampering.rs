//! A token has exactly one spelling, and nothing that is sent can make the broker panic.

use proptest::prelude::*;

use super::*;

/// Which bits of the last character of a part of this length do not count.
fn spare_bits(length: usize) -> u32 {
    match length % 4 {
        2 => 4,
        3 => 2,
        _ => 0,
    }
}

/// All other spellings of a part that decode to the same bytes for a lax decoder: other bits behind the end, and
/// padding.
fn respellings(part: &str) -> Vec<String> {
    const ALPHABET: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let (body, last) = part.split_at(part.len() - 1);
    let place = ALPHABET.find(last).expect("base64url");
    let spare = (1 << spare_bits(part.len())) - 1;
    let mut spellings: Vec<String> =
        (1..=spare).map(|bits| format!("{body}{}", &ALPHABET[place | bits..=(place | bits)])).collect();
    spellings.extend(["=", "==", "\n", "%3D"].iter().map(|tail| format!("{part}{tail}")));
    spellings
}

#[test]
fn a_signature_has_one_spelling() {
    let alice = persona("alice");
    let (message, signature) = alice.rsplit_once('.').expect("three parts");
    let others = respellings(signature);
    assert_eq!(
        (signature.len(), others.len()),
        (43, 7),
        "32 bytes leave 2 bits, so 3 spellings, and padding"
    );
    for other in others {
        let got = ask(&broker(), &format!("{message}.{other}"));
        assert_eq!(got, Err(Unauthorized::BAD_SIGNATURE), "{other:?}");
    }
}

#[test]
fn header_and_claims_have_one_spelling_even_if_another_was_signed() {
    for filler in ["", "x", "xx"] {
        let header = base64url(format!(r#"{{"alg":"HS256","x":"{filler}"}}"#).as_bytes());
        let filler = format!("{filler:?}");
        let payload = base64url(claims(&[("x", Some(&filler))]).as_bytes());
        assert!(ask(&broker(), &seal(&header, &payload)).is_ok());
        for other in respellings(&header) {
            assert_eq!(ask(&broker(), &seal(&other, &payload)), Err(Unauthorized::BAD_HEADER), "{other:?}");
        }
        for other in respellings(&payload) {
            assert_eq!(ask(&broker(), &seal(&header, &other)), Err(Unauthorized::BAD_CLAIMS), "{other:?}");
        }
    }
}

#[test]
fn plain_base64_is_not_base64url() {
    let payload = base64url(claims(&[("x", Some(r#""\u003f??>>>~~~""#))]).as_bytes());
    assert!(payload.contains(['-', '_']), "{payload}");
    assert!(ask(&broker(), &seal(&base64url(HEADER.as_bytes()), &payload)).is_ok());
    let plain = payload.replace('-', "+").replace('_', "/");
    let got = ask(&broker(), &seal(&base64url(HEADER.as_bytes()), &plain));
    assert_eq!(got, Err(Unauthorized::BAD_CLAIMS));
}

#[test]
fn no_byte_of_a_token_can_be_changed_removed_or_added() {
    let broker = broker();
    let alice = persona("alice");
    let good = format!("Bearer {alice}").into_bytes();
    let start = good.len() - alice.len();
    let refused = |value: &[u8]| broker.authenticate([value], now()).is_err();
    assert!(!refused(&good));
    let mut value = good.clone();
    for place in start..good.len() {
        for byte in (0..=u8::MAX).filter(|byte| *byte != good[place]) {
            value[place] = byte;
            assert!(refused(&value), "byte {place} changed to {byte}");
        }
        value[place] = good[place];
        let removed = [&good[..place], &good[place + 1..]].concat();
        assert!(refused(&removed), "byte {place} removed");
        // A space in front of the token is allowed by HTTP and is not part of it.
        for byte in (0..=u8::MAX).filter(|byte| (place, *byte) != (start, b' ')) {
            let added = [&good[..place], &[byte], &good[place..]].concat();
            assert!(refused(&added), "{byte} added before byte {place}");
        }
    }
    for byte in 0..=u8::MAX {
        assert!(refused(&[&good[..], &[byte]].concat()), "{byte} added at the end");
    }
}

/// Bytes that come close to something: JSON fragments, base64 and separators among arbitrary ones.
fn nearly_json() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        prop::sample::select(vec![
            "{",
            "}",
            "[",
            "]",
            ":",
            ",",
            "\"",
            "null",
            "1e400",
            "-",
            "\\ud800",
            "\\u0000",
            "\"alg\"",
            "\"HS256\"",
            "\"sub\"",
            "\"alice\"",
            "\"exp\"",
            "1800003600",
            "\"aud\"",
            "\"task-broker\"",
            "\"scp\"",
            "\"kid\"",
        ])
        .prop_map(|text| text.as_bytes().to_vec()),
        prop::collection::vec(any::<u8>(), 0..4),
    ];
    prop::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn arbitrary_header_values_are_refused_without_a_panic(
        values in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 1..3),
        scheme in prop::sample::select(vec!["", "Bearer ", "bearer   "]),
    ) {
        let values: Vec<Vec<u8>> = values.iter().map(|value| [scheme.as_bytes(), value].concat()).collect();
        for mode in [AuthMode::Required, AuthMode::Optional] {
            let broker = broker_with(mode, policy(30));
            prop_assert!(broker.authenticate(values.iter().map(Vec::as_slice), now()).is_err());
        }
    }

    #[test]
    fn arbitrary_parts_with_a_good_signature_never_panic(header in nearly_json(), payload in nearly_json()) {
        // Whatever is accepted could only be alice: no other subject is among the pieces. Both are tried with a
        // good other half, so that each reader is reached.
        for token in [token(HEADER, &payload), token(&header, claims(&[])), token(&header, &payload)] {
            if let Ok(caller) = ask(&broker(), &token) {
                prop_assert!(caller.subject.is_some());
            }
        }
    }

    #[test]
    fn arbitrary_times_never_panic(millis in any::<u64>(), exp in any::<f64>(), leeway in 0..=3600_u64) {
        let exp = serde_json::to_string(&exp).expect("a number or null");
        let value = format!("Bearer {}", token(HEADER, claims(&[("exp", Some(&exp)), ("nbf", Some("0"))])));
        let broker = broker_with(AuthMode::Required, policy(leeway));
        let now = Timestamp::from_millis(millis);
        if let Ok(verified) = broker.verify([value.as_bytes()], now) {
            prop_assert!(verified.valid_until > Some(now));
        }
    }
}
