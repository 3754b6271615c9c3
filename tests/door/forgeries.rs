//! Attacks of our own, beyond the reported cases: each row is one, and each is refused.
//!
//! The broker of this table has what an attacker could hope to play off against each other: a secret and public keys of
//! each kind, in a key set and in PEM files, and keys in the set that are there for something else.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE, URL_SAFE_NO_PAD};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::signer::Signer;
use super::{assert_bad, assert_good, file, flag, set};
use crate::harness::{Auth, Broker, BrokerOptions, Outgoing, Store, raw, token};

const ISSUER: &str = "https://issuer.example";
const INFO: &str = r#"{"jsonrpc":"2.0","id":1,"method":"store/info"}"#;

/// The keys that are in the set and not for signatures of tokens: kid, algorithm, and what is said about them.
const OTHER_KEYS: [(&str, &str, &str); 8] = [
    ("encrypts", "RS256", r#"{"use":"enc"}"#),
    ("wraps", "RS256", r#"{"key_ops":["wrapKey","encrypt"]}"#),
    ("signs", "ES256", r#"{"key_ops":["sign"]}"#),
    ("does nothing", "ES256", r#"{"key_ops":[]}"#),
    ("has another alg", "ES256", r#"{"alg":"ES384"}"#),
    ("encrypts by alg", "RS256", r#"{"alg":"RSA-OAEP-256"}"#),
    ("is a secret by alg", "RS256", r#"{"alg":"HS256"}"#),
    ("has no alg", "EdDSA", r#"{"alg":"none"}"#),
];

struct Door {
    broker: Broker,
    /// From a PEM file: good whatever name a token says.
    nameless: Signer,
    others: Vec<(&'static str, &'static str, Signer)>,
    _directory: TempDir,
}

impl Door {
    fn open() -> Self {
        let directory = TempDir::new().unwrap();
        let mut keys: Vec<_> = ["RS256", "ES256", "ES384", "EdDSA"]
            .into_iter()
            .map(|algorithm| Signer::shared(algorithm).named_jwk(algorithm))
            .collect();
        let mut others = Vec::new();
        for (kid, algorithm, said) in OTHER_KEYS {
            let signer = Signer::new(algorithm);
            let mut jwk = signer.named_jwk(kid);
            let said: Value = serde_json::from_str(said).unwrap();
            jwk.as_object_mut().unwrap().extend(said.as_object().unwrap().clone());
            keys.push(jwk);
            others.push((kid, algorithm, signer));
        }
        let nameless = Signer::new("ES256");
        let pem = flag(&file(&directory, "ec.pem", nameless.pem()));
        let broker = BrokerOptions::new(Store::Memory)
            .auth(Auth::Required)
            .flag("--jwks-file", flag(&file(&directory, "keys", set(&keys))))
            .flag("--jwt-public-key-file", pem)
            .flag("--jwt-issuer", ISSUER)
            .start();
        Self { broker, nameless, others, _directory: directory }
    }
}

/// Good claims, with some of them replaced by these; `null` takes one away.
fn claims(changes: Value) -> String {
    let mut all = json!({"sub": "alice", "aud": token::AUDIENCE, "iss": ISSUER, "exp": token::now() + 3600});
    for (name, value) in changes.as_object().unwrap() {
        if value.is_null() {
            all.as_object_mut().unwrap().remove(name);
        } else {
            all[name] = value.clone();
        }
    }
    all.to_string()
}

/// Good claims with one more member, as it is written here.
fn with(member: &str) -> String {
    let good = claims(json!({}));
    format!("{{{member},{}", &good[1..])
}

/// Good claims but for this one, whose value is as it is written here.
fn instead(name: &str, value: &str) -> String {
    let rest = claims(json!({name: null}));
    format!("{{\"{name}\":{value},{}", &rest[1..])
}

/// Tokens that are well signed and claim what they must not.
fn well_signed(table: &mut Vec<(String, String)>) {
    let signer = Signer::shared("ES256");
    let mut row = |why: &str, payload: String| {
        table.push((why.to_owned(), signer.named_token("ES256", "ES256", &payload)));
        table.push((format!("{why}, by the secret"), token::sign(token::HEADER, &payload)));
    };
    for (why, changes) in [
        ("no sub", json!({"sub": null})),
        ("sub in another case of letters", json!({"sub": null, "Sub": "alice"})),
        ("no iss", json!({"iss": null})),
        ("iss with a slash", json!({"iss": "https://issuer.example/"})),
        ("iss of a page below", json!({"iss": "https://issuer.example/tenant"})),
        ("iss that ends in the right one", json!({"iss": "https://evil.example/https://issuer.example"})),
        ("iss as a list", json!({"iss": [ISSUER]})),
        ("aud with the right one in a text", json!({"aud": "other task-broker"})),
        ("aud as a list in a list", json!({"aud": [["task-broker"]]})),
        ("aud as a list with a number", json!({"aud": ["task-broker", 5]})),
        ("aud as an object", json!({"aud": {"0": "task-broker"}})),
        ("azp in place of aud", json!({"aud": null, "azp": "task-broker"})),
        ("a sub of a list", json!({"sub": ["alice"]})),
        ("a sub of white space of Unicode", json!({"sub": "\u{2003}\u{a0}"})),
        ("an exp as text", json!({"exp": "99999999999"})),
        ("an exp as a list", json!({"exp": [99_999_999_999_u64]})),
        ("an exp of true", json!({"exp": true})),
        ("an nbf as text", json!({"nbf": "0"})),
        ("an nbf in the future", json!({"nbf": token::now() + 600})),
        ("an iat as text", json!({"iat": "0"})),
    ] {
        row(why, claims(changes));
    }
    for (why, name, value) in [
        ("an exp that no float holds", "exp", "1e400"),
        ("an exp that is as good as infinite and negative", "exp", "-1e308"),
        ("an exp of zero", "exp", "0"),
        ("an exp below zero", "exp", "-1"),
        ("an exp that is no number", "exp", "NaN"),
        ("an exp in hexadecimal", "exp", "0xffffffffff"),
        ("an nbf that no integer holds", "nbf", "1e300"),
        ("an nbf of null", "nbf", "null"),
        ("a sub of half a character", "sub", r#""\ud800""#),
        ("a sub of null", "sub", "null"),
        ("an iss of null", "iss", "null"),
    ] {
        row(why, instead(name, value));
    }
    for (why, member) in [
        ("two subs", r#""sub":"mallory""#),
        ("two subs, one written in escapes", r#""\u0073\u0075\u0062":"mallory""#),
        ("two auds", r#""aud":"other""#),
        ("two exps", r#""exp":1"#),
        ("two nbfs", r#""nbf":0,"nbf":1"#),
        ("two iss", r#""iss":"https://evil.example""#),
        ("two scopes", r#""scope":"","scope":"tasks:admin""#),
    ] {
        row(why, with(member));
    }
    row("claims behind a mark of byte order", format!("\u{feff}{}", claims(json!({}))));
    row("claims with a comma at the end", claims(json!({})).replacen('}', ",}", 1));
    row("claims with a comment", format!("/**/{}", claims(json!({}))));
    row("claims twice", claims(json!({})).repeat(2));
}

/// Tokens whose header tries to choose key or algorithm.
fn badly_headed(door: &Door, table: &mut Vec<(String, String)>) {
    let good = claims(json!({}));
    for (kid, algorithm, signer) in &door.others {
        table.push((format!("the key that {kid}"), signer.named_token(algorithm, kid, &good)));
        table.push((format!("the key that {kid}, without its name"), signer.token(algorithm, &good)));
    }
    let (p256, rsa) = (Signer::shared("ES256"), Signer::shared("RS256"));
    for (why, header) in [
        ("ES384 on a key of P-256", json!({"alg": "ES384", "kid": "ES256"})),
        ("ES256K on a key of P-256", json!({"alg": "ES256K", "kid": "ES256"})),
        ("the kid of another key", json!({"alg": "ES256", "kid": "ES384"})),
        ("a kid with white space", json!({"alg": "ES256", "kid": "ES256 "})),
        ("a kid with a byte of zero", json!({"alg": "ES256", "kid": "ES256\0"})),
        ("a kid as a list", json!({"alg": "ES256", "kid": ["ES256"]})),
        ("a key of its own beside a known kid", json!({"alg": "ES256", "kid": "ES256", "jwk": p256.jwk()})),
        ("a body that is not in base64", json!({"alg": "ES256", "b64": false, "crit": ["b64"]})),
        ("a compressed body", json!({"alg": "ES256", "zip": "DEF", "crit": ["zip"]})),
        ("a critical member that is known", json!({"alg": "ES256", "kid": "ES256", "crit": ["kid"]})),
    ] {
        table.push((why.to_owned(), p256.seal("ES256", &header.to_string(), &good)));
    }
    for said in ["ES384", "ES256K", "EdDSA", "RS256", "HS256", "none"] {
        let header = json!({"alg": said}).to_string();
        table.push((
            format!("{said} on a nameless key of P-256"),
            door.nameless.seal("ES256", &header, &good),
        ));
    }
    for header in [json!({"alg": "ES256", "b64": false}), json!({"alg": "ES256", "jku": ISSUER})] {
        let sealed = door.nameless.seal("ES256", &header.to_string(), &good);
        table.push((format!("{header} on a nameless key"), sealed));
    }
    table.push(("PS256 said, RS256 signed".into(), {
        rsa.seal("RS256", &json!({"alg": "PS256", "kid": "RS256"}).to_string(), &good)
    }));
    for secret in [p256.pem(), rsa.pem(), rsa.jwk()["n"].as_str().unwrap().to_owned()] {
        let header = json!({"alg": "HS256", "kid": "RS256"}).to_string();
        table.push(("a public key as secret".into(), token::sign_with(&header, &good, secret.as_bytes())));
    }
    let null = json!({"alg": "HS256", "kid": "/dev/null"}).to_string();
    table.push(("the content of a file as secret".into(), token::sign_with(&null, &good, b"")));
    let utf16: Vec<u8> = r#"{"alg":"ES256"}"#.encode_utf16().flat_map(u16::to_be_bytes).collect();
    table.push(("a header in UTF-16".into(), by(&door.nameless, &utf16, good.as_bytes())));
    let mut invalid = good.clone().into_bytes();
    invalid.splice(1..1, *b"\"x\":\"\xff\",");
    table.push(("claims that are no UTF-8".into(), by(&door.nameless, br#"{"alg":"ES256"}"#, &invalid)));
}

/// Header and payload of any bytes, well signed.
fn by(signer: &Signer, header: &[u8], payload: &[u8]) -> String {
    let message = format!("{}.{}", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(payload));
    let signature = URL_SAFE_NO_PAD.encode(signer.signature("ES256", message.as_bytes()));
    format!("{message}.{signature}")
}

/// A good token that was written in another way.
fn badly_written(signer: &Signer, table: &mut Vec<(String, String)>) {
    let (header, payload) = (json!({"alg": "ES256"}).to_string(), claims(json!({"pad": "??>>~~"})));
    let good = signer.seal("ES256", &header, &payload);
    let parts: Vec<_> = good.split('.').collect();
    for (why, engine) in [("padded base64url", &URL_SAFE), ("plain base64", &STANDARD)] {
        let message = format!("{}.{}", engine.encode(&header), engine.encode(&payload));
        assert_ne!(message, format!("{}.{}", parts[0], parts[1]));
        let signature = signer.signature("ES256", message.as_bytes());
        table.push((format!("{why}, signed as such"), format!("{message}.{}", engine.encode(signature))));
    }
    for (why, text) in [
        ("a dot at the end", format!("{good}.")),
        ("a dot at the beginning", format!(".{good}")),
        ("a tab inside", good.replacen('.', ".\t", 1)),
        ("parts divided by something else", good.replace('.', ":")),
        ("parts in another order", [parts[1], parts[0], parts[2]].join(".")),
        ("the header twice", [parts[0], parts[0], parts[1], parts[2]].join(".")),
        ("no header", format!(".{}.{}", parts[1], parts[2])),
        (
            "the JSON form",
            json!({"protected": parts[0], "payload": parts[1], "signature": parts[2]}).to_string(),
        ),
        ("an encrypted token", [parts[0], parts[1], parts[2], parts[1], parts[2]].join(".")),
        ("quoted", format!("\"{good}\"")),
        ("escaped as in a URL", good.replace('.', "%2E")),
        ("letters of another case", good.to_uppercase()),
        ("a token in a token", signer.seal("ES256", r#"{"alg":"ES256","cty":"JWT"}"#, &good)),
    ] {
        table.push((why.to_owned(), text));
    }
}

#[tokio::test]
async fn a_hundred_forged_tokens_are_refused_and_cost_nothing() {
    let door = Door::open();
    let good = claims(json!({}));
    let controls = [
        Signer::shared("RS256").named_token("RS256", "RS256", &good),
        Signer::shared("RS256").named_token("PS512", "RS256", &good),
        Signer::shared("ES256").named_token("ES256", "ES256", &good),
        door.nameless.token("ES256", &good),
        door.nameless.named_token("ES256", "any", &good),
        token::sign(token::HEADER, &good),
        token::sign(token::HEADER, &with(r#""scope":"tasks:delegate","aud2":[1,"x"]"#)),
        token::sign(token::HEADER, &claims(json!({"aud": ["other", token::AUDIENCE]}))),
    ];
    let mut table = Vec::new();
    well_signed(&mut table);
    badly_headed(&door, &mut table);
    badly_written(&door.nameless, &mut table);
    assert!(table.len() > 100, "{}", table.len());
    for (why, forged) in &table {
        assert_bad(&door.broker, why, forged).await;
    }
    for control in &controls {
        assert_good(&door.broker, "a control", control).await;
    }
    door.broker.assert_no_error_logged();
    let log = door.broker.log_lines().join("\n");
    for (why, forged) in &table {
        let signature = forged.rsplit('.').next().unwrap();
        assert!(signature.len() < 11 || !log.contains(signature), "{why} is in the log");
    }
}

#[tokio::test]
async fn a_token_counts_in_one_place_alone_and_once() {
    let door = Door::open();
    let good = token::sign(token::HEADER, &claims(json!({})));
    let other = token::sign(token::HEADER, &claims(json!({"sub": "bob"})));
    let anonymous = door.broker.anonymous();
    let send = async |headers: &[(&'static str, String)]| {
        let add =
            |request: Outgoing, (name, value): &(&'static str, String)| request.second_header(name, value);
        anonymous.send(headers.iter().fold(Outgoing::new(INFO), add)).await
    };
    for scheme in ["Bearer", "bearer", "BEARER", "bEARER"] {
        send(&[("authorization", format!("{scheme} {good}"))]).await.result();
    }
    for (why, headers) in [
        (
            "two, the second one bad",
            vec![("authorization", format!("Bearer {good}")), ("authorization", "Bearer x".into())],
        ),
        (
            "two, the first one bad",
            vec![("authorization", "Bearer x".into()), ("authorization", format!("Bearer {good}"))],
        ),
        (
            "two good ones",
            vec![("authorization", format!("Bearer {good}")), ("authorization", format!("Bearer {other}"))],
        ),
        (
            "the same twice",
            vec![("authorization", format!("Bearer {good}")), ("authorization", format!("Bearer {good}"))],
        ),
        (
            "one of another scheme beside it",
            vec![("authorization", "Basic YTpi".into()), ("authorization", format!("Bearer {good}"))],
        ),
        ("two in one header", vec![("authorization", format!("Bearer {good}, Bearer {other}"))]),
        ("another scheme", vec![("authorization", format!("Token {good}"))]),
        ("DPoP, whose proof nobody would check", vec![("authorization", format!("DPoP {good}"))]),
        ("no scheme", vec![("authorization", good.clone())]),
        ("the header for proxies", vec![("proxy-authorization", format!("Bearer {good}"))]),
        ("a header of gateways", vec![("x-forwarded-access-token", good.clone())]),
        ("a cookie", vec![("cookie", format!("access_token={good}; Authorization=Bearer {good}"))]),
    ] {
        let answer = send(&headers).await;
        answer.http_error(401);
        assert!(answer.header("www-authenticate").unwrap().starts_with("Bearer"), "{why}: {answer}");
    }
    // In the address, where logs of proxies would keep it.
    for target in [format!("/rpc?access_token={good}"), format!("/rpc?authorization=Bearer%20{good}")] {
        let request = raw::post(door.broker.address(), "Content-Type: application/json\r\n", INFO);
        let request = String::from_utf8(request).unwrap().replacen("/rpc", &target, 1);
        assert_eq!(raw::exchange(door.broker.address(), request).status, 401);
    }
    // In the body, as a form or beside the call.
    let form = Outgoing::new(format!("access_token={good}"))
        .header("content-type", "application/x-www-form-urlencoded");
    anonymous.send(form).await.http_error(401);
    let beside = format!(r#"{{"access_token":"{good}",{}"#, &INFO[1..]);
    anonymous.post(beside).await.http_error(401);
}
