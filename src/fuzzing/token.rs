//! The verifier of tokens. The input says what a token claims and what is done to it afterwards; [`oracle`] says, by a
//! reading of its own, whether the result may come in, and as whom.

mod oracle;

use std::sync::OnceLock;

use aws_lc_rs::hmac;
use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use task_broker_core::Timestamp;

use self::oracle::Judgement;
use super::gauge::{Gauge, Reached, within};
use crate::auth::{AuthMode, Authenticator, Key, KeySet, MAX_TOKEN_BYTES, Policy, Secret};

/// The time of all runs, in seconds.
const NOW: u64 = 1_800_000_000;
const LEEWAY: u64 = 30;
const AUDIENCE: &str = "task-broker";
const SECRET: &[u8] = b"a secret of the fuzz targets, 32 bytes or more";

/// What reading a header may have allocated at one moment. A token has at most 16 KiB; beyond that nothing is decoded.
const fn room(length: usize) -> usize {
    let looked_at = if length < 2 * MAX_TOKEN_BYTES { length } else { 2 * MAX_TOKEN_BYTES };
    8 * looked_at + 16 * 1024
}

/// A broker with two keys, and what signs for them.
struct Scene {
    broker: Authenticator,
    ed25519: Ed25519KeyPair,
}

fn scene() -> &'static Scene {
    static SCENE: OnceLock<Option<Scene>> = OnceLock::new();
    let scene = SCENE.get_or_init(|| {
        let ed25519 = Ed25519KeyPair::from_seed_unchecked(&[7; 32]).ok()?;
        let x = URL_SAFE_NO_PAD.encode(ed25519.public_key().as_ref());
        let set = format!(r#"{{"keys":[{{"kty":"OKP","crv":"Ed25519","x":"{x}"}}]}}"#);
        let mut keys = KeySet::parse(set.as_bytes()).ok()?.keys;
        keys.extend([Key::hs256(&Secret::new(SECRET)?)]);
        let policy = Policy { audience: vec![AUDIENCE.to_owned()], leeway_secs: LEEWAY, ..Policy::default() };
        let broker = Authenticator::new(AuthMode::Required, keys, policy).ok()?;
        Some(Scene { broker, ed25519 })
    });
    #[allow(clippy::expect_used, reason = "the keys and settings are fixed")]
    scene.as_ref().expect("good keys and settings")
}

fn hmac(algorithm: hmac::Algorithm, secret: &[u8], message: &str) -> Vec<u8> {
    hmac::sign(&hmac::Key::new(algorithm, secret), message.as_bytes()).as_ref().to_vec()
}

/// The value of a header `Authorization`: four bytes that say what is done, then a JOSE header, a line break, claims.
fn made(data: &[u8]) -> Vec<u8> {
    let Some(([how, high, low, with], rest)) = data.split_first_chunk::<4>() else { return data.to_vec() };
    if *how == b'R' {
        return rest.to_vec();
    }
    let mut halves = rest.splitn(2, |byte| *byte == b'\n');
    let (header, claims) = (halves.next().unwrap_or_default(), halves.next().unwrap_or_default());
    let part = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
    let message = format!("{}.{}", part(header), part(claims));
    let ed25519 = || scene().ed25519.sign(message.as_bytes()).as_ref().to_vec();
    let public = scene().ed25519.public_key().as_ref().to_vec();
    let good = || hmac(hmac::HMAC_SHA256, SECRET, &message);
    let signature = match how {
        b'E' => ed25519(),
        b'N' => Vec::new(),
        // A key that everybody knows, as a secret.
        b'P' => hmac(hmac::HMAC_SHA256, &public, &message),
        b'3' => hmac(hmac::HMAC_SHA384, SECRET, &message),
        b'O' => hmac(hmac::HMAC_SHA256, b"another secret of 32 bytes or more, too", &message),
        // Of other claims.
        b'X' => hmac(hmac::HMAC_SHA256, SECRET, &format!("{}.{}", part(header), part(b"{}"))),
        _ => good(),
    };
    let tail = if *how == b'D' { STANDARD.encode(&signature) } else { part(&signature) };
    let mut value = format!("Bearer {message}.{tail}").into_bytes();
    let at = usize::from(u16::from_be_bytes([*high, *low])).checked_rem(value.len()).unwrap_or(0);
    match how {
        b'C' => value.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= with),
        b'T' => value.truncate(at),
        b'I' => value.insert(at, *with),
        b'L' => drop(value.remove(at)),
        b'A' => value.push(*with),
        _ => {}
    }
    value
}

/// A header, from a description.
pub(super) fn token(data: &[u8], gauge: Gauge) -> Reached {
    let value = made(data);
    let broker = &scene().broker;
    let now = Timestamp::from_millis(NOW * 1000);
    let answer = within(gauge, room(value.len()), || broker.verify([&value[..]], now));
    let again = broker.verify([&value[..]], now);
    assert_eq!(answer, again, "what is remembered is what was found");
    let shown = || String::from_utf8_lossy(&value).into_owned();
    match (oracle::judge(&value, &scene().ed25519), &answer) {
        (Judgement::Refuse(why), Ok(_)) => assert_eq!(why, "", "accepted all the same: {}", shown()),
        (Judgement::Accept { .. }, Err(why)) => assert_eq!(why.description, "", "refused: {}", shown()),
        (Judgement::Accept { subject, may_delegate, may_administer }, Ok(verified)) => {
            let caller = &verified.caller;
            assert_eq!(caller.subject.as_deref(), Some(&*subject), "{}", shown());
            assert_eq!((caller.may_delegate, caller.may_administer), (may_delegate, may_administer));
        }
        (Judgement::Refuse(_), Err(_)) | (Judgement::Unsure, _) => {}
    }
    if let Ok(verified) = &answer {
        let end = verified.valid_until.unwrap_or(now);
        assert!(end > now, "an expired token was accepted: {}", shown());
        assert!(broker.verify([&value[..]], end).is_err(), "it outlives its end: {}", shown());
        assert!(broker.verify([&value[..], &value[..]], now).is_err(), "two headers");
    }
    Reached::taken(answer.is_ok())
}
