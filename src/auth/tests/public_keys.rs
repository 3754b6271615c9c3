//! Key sets, and the published examples of each kind of key.

use super::*;
use crate::auth::{JwksError, KeyFault, KeySet, Skipped};

const RSA_N: &str = "ofgWCuLjybRlzo0tZWJjNiuSfb4p4fAkd_wWJcyQoTbji9k0l8W26mPddxHmfHQp-Vaw-4qPCJrcS2mJPMEzP1Pt0Bm4d4QlL-yRT-SFd2lZS-pCgNMsD1W_YpRPEwOWvG6b32690r2jZ47soMZo9wGzjb_7OMg0LOL-bSf63kpaSHSXndS5z5rexMdbBYUsLA9e-KXBdQOS-UTo7WTBEMa2R2CapHg665xsmtdVMTBQY4uDZlxvb3qCo5ZwKh9kG4LT6_I5IhlJH7aGhyxXFvUK-DWNmoudF8NAco9_h9iaGNj8q2ethFkMLs91kzk2PAcDTW9gb54h4FRWyuXpoQ";

fn set(keys: &str) -> Result<KeySet, JwksError> {
    KeySet::parse(format!(r#"{{"keys":[{keys}]}}"#).as_bytes())
}

/// The reason for which the only key of a set is left out.
fn skipped(key: &str) -> Skipped {
    let good = format!(r#"{{"kty":"RSA","kid":"good","n":"{RSA_N}","e":"AQAB"}}"#);
    let set = set(&format!("{good},{key}")).unwrap();
    assert_eq!(set.skipped.len(), 1, "{key}");
    assert_eq!(set.skipped[0].0, 2);
    set.skipped[0].1
}

fn verify(set: &KeySet, algorithm: Algorithm, kid: Option<&str>, token: &str) -> Result<(), Unauthorized> {
    let (message, signature) = token.rsplit_once('.').unwrap();
    let header = super::super::header::Header { algorithm, kid: kid.map(str::to_owned) };
    set.keys.verify(&header, message, signature)
}

#[test]
fn the_examples_of_the_rfcs_are_verified() {
    let ec = r#"{"kty":"EC","crv":"P-256","x":"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU","y":"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"}"#;
    let ed = r#"{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}"#;
    let rsa = format!(r#"{{"kty":"RSA","n":"{RSA_N}","e":"AQAB"}}"#);
    let set = set(&[ec, ed, &rsa].join(",")).unwrap();
    assert!(set.skipped.is_empty());
    assert_eq!(set.keys.len(), 8, "one on P-256, one on Ed25519, six for RSA");
    // RFC 7515 A.2 and A.3, RFC 8037 A.4.
    let claims =
        "eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ";
    let rs256 = format!(
        "eyJhbGciOiJSUzI1NiJ9.{claims}.cC4hiUPoj9Eetdgtv3hF80EGrhuB__dzERat0XF9g2VtQgr9PJbu3XOiZj5RZmh7AAuHIm4Bh-0Qc_lF5YKt_O8W2Fp5jujGbds9uJdbF9CUAr7t1dnZcAcQjbKBYNX4BAynRFdiuB--f_nZLgrnbyTyWzO75vRK5h6xBArLIARNPvkSjtQBMHlb1L07Qe7K0GarZRmB_eSN9383LcOLn6_dO--xi12jzDwusC-eOkHWEsqtFZESc6BfI7noOPqvhJ1phCnvWh6IeYI2w9QOYEUipUTI8np6LbgGY9Fs98rqVt5AXLIhWkWywlVmtVrBp0igcN_IoypGlUPQGe77Rw"
    );
    let es256 = format!(
        "eyJhbGciOiJFUzI1NiJ9.{claims}.DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-Kg6NU1Q"
    );
    let eddsa = "eyJhbGciOiJFZERTQSJ9.RXhhbXBsZSBvZiBFZDI1NTE5IHNpZ25pbmc.hgyY0il_MGCjP0JzlnLWG1PPOt7-09PGcvMg3AIbQR6dWbhijcNR4ki4iylGjg5BhVsPt9g7sVvpAr_MuM0KAg";
    for (algorithm, token) in
        [(Algorithm::RS256, rs256.as_str()), (Algorithm::ES256, es256.as_str()), (Algorithm::EdDSA, eddsa)]
    {
        assert_eq!(verify(&set, algorithm, None, token), Ok(()), "{algorithm:?}");
        let (message, signature) = token.rsplit_once('.').unwrap();
        let changed = format!("{message}x.{signature}");
        assert_eq!(
            verify(&set, algorithm, None, &changed),
            Err(Unauthorized::BAD_SIGNATURE),
            "{algorithm:?}"
        );
        for length in 0..signature.len() {
            let cut = format!("{message}.{}", &signature[..length]);
            assert!(verify(&set, algorithm, None, &cut).is_err(), "{algorithm:?} cut at {length}");
        }
        for longer in ["A", "AAAA"] {
            assert!(verify(&set, algorithm, None, &format!("{token}{longer}")).is_err(), "{algorithm:?}");
        }
        let zeros = format!("{message}.{}", "A".repeat(signature.len()));
        assert!(verify(&set, algorithm, None, &zeros).is_err(), "{algorithm:?}: zeros");
    }
    for wrong in [Algorithm::RS384, Algorithm::RS512, Algorithm::PS256, Algorithm::ES256, Algorithm::EdDSA] {
        assert!(verify(&set, wrong, None, &rs256).is_err(), "{wrong:?}");
    }
    for hmac in [Algorithm::HS256, Algorithm::HS384, Algorithm::HS512, Algorithm::ES384] {
        assert_eq!(verify(&set, hmac, None, &rs256), Err(Unauthorized::NO_KEY), "{hmac:?}");
    }
}

#[test]
fn a_key_that_says_its_algorithm_is_for_no_other() {
    let set = set(&format!(r#"{{"kty":"RSA","alg":"PS512","kid":"k","n":"{RSA_N}","e":"AQAB"}}"#)).unwrap();
    assert_eq!(set.keys.len(), 1);
    for algorithm in [Algorithm::RS256, Algorithm::RS512, Algorithm::PS256] {
        assert_eq!(verify(&set, algorithm, Some("k"), "a.b.AA"), Err(Unauthorized::NO_KEY));
    }
    assert_eq!(verify(&set, Algorithm::PS512, Some("k"), "a.b.AA"), Err(Unauthorized::BAD_SIGNATURE));
    assert_eq!(
        verify(&set, Algorithm::PS512, None, "a.b.AA"),
        Err(Unauthorized::NO_KEY),
        "a kid must be said"
    );
}

#[test]
fn a_key_that_is_of_no_use_is_left_out_with_the_reason() {
    let rsa = |more: &str| format!(r#"{{"kty":"RSA","n":"{RSA_N}","e":"AQAB"{more}}}"#);
    let weak = "A".repeat(170);
    for (key, reason) in [
        ("5".to_owned(), Skipped::Malformed),
        ("{}".to_owned(), Skipped::Malformed),
        (rsa(r#","kty":"RSA""#), Skipped::Malformed),
        (rsa(r#","kid":5"#), Skipped::Malformed),
        (rsa(r#","kid":null"#), Skipped::Malformed),
        (rsa(&format!(r#","kid":"{}""#, "k".repeat(513))), Skipped::Malformed),
        (rsa(r#","use":"enc""#), Skipped::OtherUse),
        (rsa(r#","key_ops":["encrypt"]"#), Skipped::OtherUse),
        (rsa(r#","key_ops":"verify""#), Skipped::Malformed),
        (rsa(r#","alg":"RSA-OAEP""#), Skipped::Unsupported),
        (rsa(r#","alg":"none""#), Skipped::Unsupported),
        (rsa(r#","alg":"HS256""#), Skipped::Contradiction),
        (rsa(r#","alg":"ES256""#), Skipped::Contradiction),
        (rsa(r#","d":"AQAB""#), Skipped::Private),
        (r#"{"kty":"oct","k":"c2VjcmV0"}"#.to_owned(), Skipped::Private),
        (r#"{"kty":"oct"}"#.to_owned(), Skipped::Unsupported),
        (format!(r#"{{"kty":"RSA","n":"_{weak}","e":"AQAB"}}"#), Skipped::Key(KeyFault::RsaSize)),
        (format!(r#"{{"kty":"RSA","n":"{RSA_N}","e":"AQ"}}"#), Skipped::Key(KeyFault::RsaExponent)),
        (format!(r#"{{"kty":"RSA","n":"{RSA_N}="}}"#), Skipped::Malformed),
        (r#"{"kty":"EC","crv":"P-521","x":"AA","y":"AA"}"#.to_owned(), Skipped::Unsupported),
        (r#"{"kty":"EC","crv":"secp256k1","x":"AA","y":"AA"}"#.to_owned(), Skipped::Unsupported),
        (r#"{"kty":"EC","x":"AA","y":"AA"}"#.to_owned(), Skipped::Unsupported),
        (r#"{"kty":"EC","crv":"P-256","x":"AA","y":"AA"}"#.to_owned(), Skipped::Key(KeyFault::Malformed)),
        (
            r#"{"kty":"EC","crv":"P-256","alg":"ES384","x":"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU","y":"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"}"#.to_owned(),
            Skipped::Contradiction,
        ),
        (r#"{"kty":"OKP","crv":"Ed448","x":"AA"}"#.to_owned(), Skipped::Unsupported),
        (r#"{"kty":"OKP","crv":"X25519","x":"AA"}"#.to_owned(), Skipped::Unsupported),
    ] {
        assert_eq!(skipped(&key), reason, "{key}");
    }
}

#[test]
fn what_is_no_key_set_is_refused_as_a_whole() {
    for text in [
        "",
        "[]",
        "null",
        "{}",
        r#"{"keys":{}}"#,
        r#"{"keys":null}"#,
        r#"{"keys":[],"keys":[]}"#,
        "{\"keys\"",
    ] {
        assert_eq!(KeySet::parse(text.as_bytes()).unwrap_err(), JwksError::NotAKeySet, "{text}");
    }
    assert_eq!(set("").unwrap_err(), JwksError::NoUsableKey);
    assert_eq!(set(r#"{"kty":"oct","k":"AA"}"#).unwrap_err(), JwksError::NoUsableKey);
    assert_eq!(set(&vec!["{}"; 65].join(",")).unwrap_err(), JwksError::TooMany);
    assert_eq!(KeySet::parse(&vec![b' '; 256 * 1024 + 1]).unwrap_err(), JwksError::TooLarge);
    let deep = format!(r#"{{"keys":{}1{}}}"#, "[".repeat(100_000), "]".repeat(100_000));
    assert_eq!(KeySet::parse(deep.as_bytes()).unwrap_err(), JwksError::NoUsableKey);
}
