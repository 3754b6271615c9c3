//! Tokens by somebody who has no key (cases C01 to C13, and more). Each is refused, nothing of it is logged.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde_json::json;
use tempfile::TempDir;
use tokio::net::TcpListener;

use super::signer::Signer;
use super::{ask, assert_bad, assert_good, claims, file, flag, set};
use crate::harness::{Auth, Broker, BrokerOptions, Store, token};

/// A broker with a key of each kind, in a key set and in PEM files, that logs all it can.
fn broker(directory: &TempDir) -> Broker {
    let mut keys: Vec<_> = ["RS256", "ES256", "ES384", "EdDSA"]
        .into_iter()
        .map(|algorithm| Signer::shared(algorithm).named_jwk(algorithm))
        .collect();
    keys.push(Signer::shared("ES256").named_jwk("../../etc/passwd"));
    let mut options = BrokerOptions::new(Store::Memory).auth(Auth::Required).without_secret();
    options =
        options.flag("--jwks-file", flag(&file(directory, "keys", set(&keys)))).env("RUST_LOG", "trace");
    for algorithm in ["RS256", "ES256", "EdDSA"] {
        let path = file(directory, &format!("{algorithm}.pem"), Signer::shared(algorithm).pem());
        options = options.flag("--jwt-public-key-file", flag(&path));
    }
    options.start()
}

#[tokio::test]
async fn a_public_key_is_no_secret_of_hs256() {
    let directory = TempDir::new().unwrap();
    let broker = broker(&directory);
    for algorithm in ["RS256", "ES256", "ES384", "EdDSA"] {
        let signer = Signer::shared(algorithm);
        let (pem, der, jwk) = (signer.pem(), signer.der(), signer.jwk());
        let mut secrets: Vec<Vec<u8>> = vec![
            pem.clone().into(),
            pem.trim_end().into(),
            pem.replace('\n', "\r\n").into(),
            pem.lines().filter(|line| !line.starts_with('-')).collect::<String>().into(),
            der.clone(),
            STANDARD.encode(&der).into(),
            jwk.to_string().into(),
            signer.named_jwk(algorithm).to_string().into(),
            Vec::new(),
        ];
        for member in ["n", "x", "y", "e"] {
            if let Some(text) = jwk[member].as_str() {
                secrets.push(text.into());
                secrets.push(URL_SAFE_NO_PAD.decode(text).unwrap());
            }
        }
        for secret in secrets {
            for header in [
                json!({"alg": "HS256"}),
                json!({"alg": "HS256", "kid": algorithm}),
                json!({"alg": algorithm, "kid": algorithm}),
                json!({"alg": algorithm}),
            ] {
                let forged = token::sign_with(&header.to_string(), &claims("alice"), &secret);
                assert_bad(&broker, &header.to_string(), &forged).await;
            }
        }
    }
}

#[tokio::test]
async fn a_token_is_not_good_for_what_its_header_says() {
    let directory = TempDir::new().unwrap();
    let broker = broker(&directory);
    let (signer, alice) = (Signer::shared("ES256"), claims("alice"));
    let good = signer.named_token("ES256", "ES256", &alice);
    assert_good(&broker, "the control", &good).await;
    for alg in
        ["none", "None", "nOnE", "NONE", "", " ES256", "es256", "ES256 ", "ES256\u{0}", "PBES2-HS256+A128KW"]
    {
        let header = json!({"alg": alg, "kid": "ES256"}).to_string();
        assert_bad(&broker, alg, &format!("{}.", token::unsigned(&header, &alice))).await;
        assert_bad(&broker, alg, &signer.seal("ES256", &header, &alice)).await;
    }
    for header in [
        r#"{"kid":"ES256"}"#,
        r#"{"alg":null}"#,
        r#"{"alg":["ES256"]}"#,
        r#"{"alg":{"alg":"ES256"}}"#,
        r#"{"alg":5}"#,
        // Two parsers could read two algorithms.
        r#"{"alg":"ES256","alg":"ES256"}"#,
        r#"{"alg":"none","alg":"ES256"}"#,
        r#"{"alg":"ES256","\u0061lg":"none"}"#,
        r#"{"alg":"ES256","kid":"ES256","kid":"EdDSA"}"#,
        // What is not understood must not be ignored.
        r#"{"alg":"ES256","crit":["require-mfa"],"require-mfa":true}"#,
        r#"{"alg":"ES256","crit":[]}"#,
        r#"{"alg":"ES256","crit":["alg"]}"#,
        r#"{"alg":"ES256","crit":["b64"],"b64":false}"#,
        r#"{"alg":"ES256","b64":false}"#,
        r#"{"alg":"ES256","crit":"x"}"#,
        r#"{"alg":"ES256","crit":null}"#,
        r#"["alg","ES256"]"#,
        r#""ES256""#,
        "",
        "null",
        "{\"alg\":\"ES256\"",
        "{\"alg\":\"ES256\"}{}",
        "{\"alg\":\"ES256\"} x",
    ] {
        assert_bad(&broker, header, &signer.seal("ES256", header, &alice)).await;
    }
}

#[tokio::test]
async fn a_kid_is_compared_and_nothing_else() {
    let directory = TempDir::new().unwrap();
    let broker = broker(&directory);
    let (signer, alice) = (Signer::new("ES384"), claims("alice"));
    let long = "k".repeat(9000);
    for kid in [
        "../../../../dev/null",
        "../../etc/passwd",
        "/etc/passwd",
        "file:///etc/passwd",
        "http://127.0.0.1:9/",
        "x' UNION SELECT 'k",
        "a\r\nX: y",
        "a\n2030-01-01T00:00:00Z INFO forged line",
        "\u{1b}[2J\u{1b}]0;pwn\u{7}",
        "\u{85}\u{2028}",
        "$(touch /tmp/pwned)",
        "*",
        "",
        "\u{0}",
        &long,
    ] {
        let header = json!({"alg": "HS256", "kid": kid}).to_string();
        assert_bad(&broker, kid, &token::sign_with(&header, &alice, b"")).await;
        assert_bad(&broker, kid, &signer.named_token("ES384", kid, &alice)).await;
    }
    for kid in ["5", "null", "[]", "{}", "true", "[\"ES256\"]"] {
        let header = format!(r#"{{"alg":"ES256","kid":{kid}}}"#);
        assert_bad(&broker, kid, &Signer::shared("ES256").seal("ES256", &header, &alice)).await;
    }
    // A name that looks like a path is a name.
    let odd = Signer::shared("ES256").named_token("ES256", "../../etc/passwd", &alice);
    assert_good(&broker, "the name of a key", &odd).await;
    for line in broker.log_lines() {
        let record: serde_json::Value = serde_json::from_str(&line).expect("each line is one record");
        assert_ne!(record["message"], "forged line");
        assert!(
            !line.contains("forged line") && !line.contains("UNION") && !line.contains(&long[..100]),
            "{line}"
        );
    }
}

#[tokio::test]
async fn a_token_cannot_bring_its_key_or_have_it_fetched() {
    let directory = TempDir::new().unwrap();
    let broker = broker(&directory);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let here = format!("http://{}/jwks.json", listener.local_addr().unwrap());
    let (own, alice) = (Signer::new("ES256"), claims("alice"));
    let mut headers = Vec::new();
    for url in
        [here.as_str(), "http://169.254.169.254/latest/meta-data", "file:///etc/passwd", "\\\\host\\share"]
    {
        headers.push(json!({"alg": "ES256", "jku": url}));
        headers.push(json!({"alg": "ES256", "x5u": url}));
        headers.push(json!({"alg": "ES256", "kid": url}));
    }
    let chain = super::https::Certificate::new();
    let body: String = chain.chain_pem.lines().filter(|line| !line.starts_with('-')).collect();
    headers.push(json!({"alg": "ES256", "x5c": [body]}));
    headers.push(json!({"alg": "ES256", "jwk": own.jwk()}));
    headers.push(json!({"alg": "ES256", "jwk": own.jwk(), "jku": here}));
    for mut header in headers {
        for kid in [None, Some("ES256"), Some("EdDSA")] {
            if let Some(kid) = kid {
                header["kid"] = json!(kid);
            }
            assert_bad(&broker, &header.to_string(), &own.seal("ES256", &header.to_string(), &alice)).await;
        }
    }
    let asked = tokio::time::timeout(Duration::from_millis(500), listener.accept()).await;
    assert!(asked.is_err(), "somebody came to ask");
}

/// n of P-256: a signature (r, s) has a twin (r, n - s).
const P256_N: [u8; 32] = [
    0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xbc, 0xe6, 0xfa,
    0xad, 0xa7, 0x17, 0x9e, 0x84, 0xf3, 0xb9, 0xca, 0xc2, 0xfc, 0x63, 0x25, 0x51,
];

fn minus(left: &[u8; 32], right: &[u8]) -> Vec<u8> {
    let mut difference = vec![0; 32];
    let mut borrow = 0;
    for at in (0..32).rev() {
        let digit = i16::from(left[at]) - i16::from(right[at]) - borrow;
        borrow = i16::from(digit < 0);
        difference[at] = u8::try_from(digit.rem_euclid(256)).unwrap();
    }
    difference
}

fn der_integer(number: &[u8]) -> Vec<u8> {
    let mut body = number.to_vec();
    if body[0] >= 0x80 {
        body.insert(0, 0);
    }
    [vec![2, u8::try_from(body.len()).unwrap()], body].concat()
}

#[tokio::test]
async fn a_signature_has_one_spelling_and_its_twin_is_nobody_else() {
    let directory = TempDir::new().unwrap();
    let broker = broker(&directory);
    let signer = Signer::shared("ES256");
    let message = token::unsigned(r#"{"alg":"ES256"}"#, &claims("alice"));
    let signature = signer.signature("ES256", message.as_bytes());
    let (r, s) = signature.split_at(32);
    let with = |signature: &[u8]| format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature));
    // Whoever has a token can make its twin: it is as good, and says the same. Nothing here takes a token's text for
    // its name.
    let twin = with(&[r, &minus(&P256_N, s)].concat());
    for token in [with(&signature), twin] {
        let id = broker.bearer(&token).new_task().await;
        assert_eq!(broker.bearer(&with(&signature)).get(&id).await["owner"], "alice");
    }
    let body = [der_integer(r), der_integer(s)].concat();
    let der = [vec![0x30, u8::try_from(body.len()).unwrap()], body].concat();
    for (why, bad) in [
        ("DER", der),
        ("zeros", vec![0; 64]),
        ("r of zero", [&[0; 32], s].concat()),
        ("s of zero", [r, &[0; 32]].concat()),
        ("n and n", [P256_N, P256_N].concat()),
        ("r and n", [r, &P256_N].concat()),
        ("the halves swapped", [s, r].concat()),
        ("one byte less", signature[..63].to_vec()),
        ("one byte more", [&signature[..], &[0]].concat()),
        ("padded halves", [&[0], r, &[0], s].concat()),
        ("half", r.to_vec()),
        ("nothing", Vec::new()),
        ("all ones", vec![0xff; 64]),
    ] {
        assert_bad(&broker, why, &with(&bad)).await;
    }
    let good = with(&signature);
    for spelled in [
        format!("{good}="),
        format!("{good}=="),
        format!("{good}A"),
        format!("{}\u{20}", &good[..good.len() - 1]),
        good.replace('-', "+").replace('_', "/") + if good.contains(['-', '_']) { "" } else { "=" },
        {
            // The last letter carries bits that mean nothing.
            let last = good.chars().last().unwrap();
            let other = char::from(u8::try_from(u32::from(last)).unwrap() + 1);
            format!("{}{other}", &good[..good.len() - 1])
        },
    ] {
        let answer = ask(&broker, &spelled).await;
        assert!([400, 401].contains(&answer.status), "{spelled}: {answer}");
    }
}

#[tokio::test]
async fn signatures_that_are_cut_or_moved_are_refused_for_every_algorithm() {
    let directory = TempDir::new().unwrap();
    let broker = broker(&directory);
    for algorithm in super::signer::ALGORITHMS {
        let signer = Signer::shared(algorithm);
        let kid = if matches!(signer, Signer::Rsa(_)) { "RS256" } else { algorithm };
        let good = signer.named_token(algorithm, kid, &claims("alice"));
        assert_good(&broker, algorithm, &good).await;
        let (message, signature) = good.rsplit_once('.').unwrap();
        for length in [0, 1, 2, signature.len() / 2, signature.len() - 4, signature.len() - 1] {
            assert_bad(&broker, algorithm, &format!("{message}.{}", &signature[..length])).await;
        }
        let (header, _) = message.split_once('.').unwrap();
        let other = URL_SAFE_NO_PAD.encode(claims("mallory"));
        assert_bad(&broker, algorithm, &format!("{header}.{other}.{signature}")).await;
        assert_bad(&broker, algorithm, &format!("{message}.{signature}.{signature}")).await;
        assert_bad(&broker, algorithm, &format!(".{message}.{signature}")).await;
        let elsewhere = Signer::shared(algorithm).token(algorithm, &claims("bob"));
        let moved = elsewhere.rsplit('.').next().unwrap();
        assert_bad(&broker, algorithm, &format!("{message}.{moved}")).await;
    }
}

#[tokio::test]
async fn claims_of_a_well_signed_token_are_read_strictly() {
    let directory = TempDir::new().unwrap();
    let broker = broker(&directory);
    let signer = Signer::shared("EdDSA");
    let exp = token::now() + 3600;
    let deep = format!("{}1{}", "[".repeat(4000), "]".repeat(4000));
    for payload in [
        format!(r#"{{"sub":"alice","aud":"task-broker","exp":{exp},"nbf":"99999999999"}}"#),
        format!(r#"{{"sub":"alice","aud":"task-broker","exp":{exp},"nbf":99999999999}}"#),
        format!(r#"{{"sub":"alice","sub":"bob","aud":"task-broker","exp":{exp}}}"#),
        format!(r#"{{"sub":"alice","\u0073ub":"bob","aud":"task-broker","exp":{exp}}}"#),
        format!(r#"{{"sub":"alice","aud":"task-broker","exp":{exp},"exp":{exp}}}"#),
        format!(r#"{{"sub":"alice","aud":"task-broker","exp":"{exp}"}}"#),
        format!(r#"{{"sub":"alice","aud":"task-broker","exp":{}}}"#, exp - 7200),
        r#"{"sub":"alice","aud":"task-broker","exp":1e400}"#.to_owned(),
        r#"{"sub":"alice","aud":"task-broker","exp":-1}"#.to_owned(),
        format!(r#"{{"sub":"alice","aud":"task-broker-evil","exp":{exp}}}"#),
        format!(r#"{{"sub":"alice","aud":{{"task-broker":1}},"exp":{exp}}}"#),
        format!(r#"{{"sub":"alice","exp":{exp}}}"#),
        format!(r#"{{"sub":{{"sub":"alice"}},"aud":"task-broker","exp":{exp}}}"#),
        format!(r#"{{"sub":"\ud800","aud":"task-broker","exp":{exp}}}"#),
        format!(r#"[{{"sub":"alice","aud":"task-broker","exp":{exp}}}]"#),
        format!(r#"{{"sub":"alice","aud":"task-broker","exp":{exp}}}{{}}"#),
    ] {
        assert_bad(&broker, &payload[..payload.len().min(120)], &signer.token("EdDSA", &payload)).await;
    }
    // A claim that nobody reads may be anything, and reading over it needs no stack.
    let odd = format!(r#"{{"sub":"alice","aud":"task-broker","exp":{exp},"deep":{deep}}}"#);
    assert_good(&broker, "deep", &signer.token("EdDSA", &odd)).await;
    let nested = signer.token("EdDSA", &signer.token("EdDSA", &claims("alice")));
    assert_bad(&broker, "a token in a token", &nested).await;
    let mut invalid = claims("alice").into_bytes();
    invalid[9] = 0xff;
    let message =
        format!("{}.{}", URL_SAFE_NO_PAD.encode(r#"{"alg":"EdDSA"}"#), URL_SAFE_NO_PAD.encode(&invalid));
    let signature = URL_SAFE_NO_PAD.encode(signer.signature("EdDSA", message.as_bytes()));
    assert_bad(&broker, "no UTF-8", &format!("{message}.{signature}")).await;
}

#[tokio::test]
async fn huge_and_odd_tokens_cost_an_answer_and_no_more() {
    let directory = TempDir::new().unwrap();
    let broker = broker(&directory);
    let signer = Signer::shared("ES256");
    let padded = |bytes: usize| {
        let header = json!({"alg": "ES256", "pad": "p".repeat(bytes)}).to_string();
        signer.seal("ES256", &header, &claims("alice"))
    };
    assert_good(&broker, "just small enough", &padded(10_000)).await;
    for bytes in [13_000, 20_000, 40_000] {
        let answer = ask(&broker, &padded(bytes)).await;
        assert!([401, 431].contains(&answer.status), "{answer}");
    }
    for text in [".", "..", "...", "a", "a.b", "e30.e30.", "e30.e30.e30", ".e30.", "=.=.=", "a.b.c.d.e"] {
        let answer = ask(&broker, text).await;
        assert_eq!(answer.status, 401, "{text}: {answer}");
    }
    assert_good(&broker, "the broker is well", &signer.token("ES256", &claims("alice"))).await;
    broker.assert_no_error_logged();
}
