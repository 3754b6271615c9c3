//! The header of a token chooses nothing (cases C03, C04, C05, C08).

use super::*;

fn ask_header(header: &str) -> Result<Caller, Unauthorized> {
    ask(&broker(), &token(header, claims(&[])))
}

#[test]
fn unsigned_tokens_are_refused() {
    let payload = base64url(claims(&[]).as_bytes());
    for header in [
        r#"{"alg":"none"}"#,
        r#"{"alg":"None"}"#,
        r#"{"alg":"nOnE"}"#,
        r#"{"alg":""}"#,
        r#"{"alg":"hs256"}"#,
        r#"{"alg":"HS256 "}"#,
    ] {
        let header = base64url(header.as_bytes());
        assert_eq!(ask(&broker(), &format!("{header}.{payload}.")), Err(Unauthorized::NO_KEY));
        assert_eq!(ask(&broker(), &seal(&header, &payload)), Err(Unauthorized::NO_KEY));
    }
    let unsigned = format!("{}.{payload}.", base64url(HEADER.as_bytes()));
    assert_eq!(ask(&broker(), &unsigned), Err(Unauthorized::BAD_SIGNATURE));
}

#[test]
fn a_token_of_another_algorithm_is_refused_even_with_the_right_secret() {
    let payload = base64url(claims(&[]).as_bytes());
    for (named, used, refusal) in [
        ("HS512", Algorithm::HS512, Unauthorized::NO_KEY),
        ("HS384", Algorithm::HS384, Unauthorized::NO_KEY),
        ("HS256", Algorithm::HS512, Unauthorized::BAD_SIGNATURE),
        ("HS512", Algorithm::HS256, Unauthorized::NO_KEY),
        ("RS256", Algorithm::HS256, Unauthorized::NO_KEY),
        ("ES256", Algorithm::HS256, Unauthorized::NO_KEY),
        ("EdDSA", Algorithm::HS256, Unauthorized::NO_KEY),
    ] {
        let header = base64url(format!(r#"{{"alg":"{named}"}}"#).as_bytes());
        let got = ask(&broker(), &seal_with(&header, &payload, SECRET, used));
        assert_eq!(got, Err(refusal), "{named} signed with {used:?}");
    }
}

#[test]
fn a_token_of_another_secret_is_refused() {
    let (header, payload) = (base64url(HEADER.as_bytes()), base64url(claims(&[]).as_bytes()));
    for key in ["x", "A secret of the tests, 32 bytes or more", &format!("{SECRET}\n"), &SECRET[..31]] {
        let got = ask(&broker(), &seal_with(&header, &payload, key, Algorithm::HS256));
        assert_eq!(got, Err(Unauthorized::BAD_SIGNATURE), "{key:?}");
    }
}

#[test]
fn headers_of_real_issuers_are_accepted() {
    for header in [
        r#"{"alg":"HS256"}"#,
        r#" { "typ" : "JWT" , "alg" : "HS256" } "#,
        r#"{"alg":"HS256","typ":"jwt"}"#,
        r#"{"alg":"HS256","typ":"at+jwt"}"#,
        r#"{"alg":"HS256","typ":"application/at+JWT","cty":"x"}"#,
        r#"{"alg":"HS256","x5t":"abc","x5t#S256":"abc","other":{"alg":"none"},"other":2}"#,
        r#"{"\u0061lg":"HS\u003256"}"#,
    ] {
        assert_eq!(ask_header(header), Ok(Caller::named("alice")), "{header}");
    }
}

#[test]
fn a_kid_is_a_name_and_nothing_else() {
    for kid in [r#""""#, r#""../../../../dev/null""#, r#""x' UNION SELECT 'k""#, r#""a\r\nX: y""#] {
        let header = format!(r#"{{"alg":"HS256","kid":{kid}}}"#);
        assert_eq!(
            ask_header(&header),
            Ok(Caller::named("alice")),
            "an HS256 key without a name is for any token: {kid}"
        );
        let payload = base64url(claims(&[]).as_bytes());
        let forged = seal_with(&base64url(header.as_bytes()), &payload, "\n", Algorithm::HS256);
        assert_eq!(ask(&broker(), &forged), Err(Unauthorized::BAD_SIGNATURE), "{kid}");
    }
    for kid in ["5", "null", "[]", "{}", "true", r#""\ud800""#] {
        let header = format!(r#"{{"alg":"HS256","kid":{kid}}}"#);
        assert_eq!(ask_header(&header), Err(Unauthorized::BAD_HEADER), "{kid}");
    }
    let header = format!(r#"{{"alg":"HS256","kid":"{}"}}"#, "k".repeat(64 * 1024));
    assert_eq!(ask_header(&header), Err(Unauthorized::TOO_LONG));
}

#[test]
fn malformed_headers_are_refused() {
    for header in [
        "",
        " ",
        "{}",
        "[]",
        "null",
        r#""HS256""#,
        r#"{"alg":"HS256""#,
        r#"{"alg":"HS256"}}"#,
        r#"{"alg":"HS256"} {}"#,
        r#"{"alg":"HS256",}"#,
        r#"{alg:"HS256"}"#,
        "\u{feff}{\"alg\":\"HS256\"}",
        r#"{"alg":null}"#,
        r#"{"alg":256}"#,
        r#"{"alg":["HS256"]}"#,
        r#"{"typ":"JWT"}"#,
        r#"{"ALG":"HS256"}"#,
        r#"{"alg":"HS256","typ":1}"#,
        r#"{"alg":"HS256","typ":null}"#,
        r#"{"alg":"HS256","alg":"HS256"}"#,
        r#"{"alg":"none","alg":"HS256"}"#,
        r#"{"alg":"HS256","\u0061lg":"HS256"}"#,
        r#"{"alg":"HS256","typ":"JWT","typ":"JWT"}"#,
        r#"{"alg":"HS256","kid":"1","kid":"1"}"#,
        r#"{"alg":"HS256","crit":["x"],"crit":null}"#,
    ] {
        assert_eq!(ask_header(header), Err(Unauthorized::BAD_HEADER), "{header}");
    }
    let not_utf8 = token(b"{\"alg\":\"HS256\",\"x\":\"\xff\"}", claims(&[]));
    assert_eq!(ask(&broker(), &not_utf8), Err(Unauthorized::BAD_HEADER));
}

#[test]
fn critical_extensions_are_refused_in_any_form() {
    for members in [
        r#""crit":["require-mfa"],"require-mfa":true"#,
        r#""crit":["require-mfa"]"#,
        r#""crit":[]"#,
        r#""crit":["alg"]"#,
        r#""crit":["b64"],"b64":false"#,
        r#""crit":["b64"],"b64":true"#,
        r#""b64":true"#,
        r#""b64":false"#,
        r#""b64":"false""#,
        r#""crit":"x""#,
        r#""crit":null"#,
        r#""\u0063rit":["exp"]"#,
    ] {
        let header = format!(r#"{{"alg":"HS256",{members}}}"#);
        assert_eq!(ask_header(&header), Err(Unauthorized::EXTENSION), "{members}");
    }
}

#[test]
fn tokens_that_bring_their_own_key_are_refused() {
    for member in [
        r#""jwk":{"kty":"oct","k":"AA"}"#,
        r#""jku":"http://127.0.0.1:9999/jwks.json""#,
        r#""jku":"file:///etc/passwd""#,
        r#""x5u":"http://169.254.169.254/""#,
        r#""x5c":["MIIB"]"#,
        r#""x5c":null"#,
    ] {
        for kid in ["", r#","kid":"1""#] {
            let header = format!(r#"{{"alg":"HS256",{member}{kid}}}"#);
            assert_eq!(ask_header(&header), Err(Unauthorized::OWN_KEY), "{header}");
        }
    }
}
