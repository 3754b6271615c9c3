//! Tokens, as HTTP shows them: which are refused, and how.

use hyper::Method;
use serde_json::{Value, json};

use crate::harness::raw;
use crate::harness::{Answer, Auth, Broker, BrokerOptions, Outgoing, Store, token};

const INFO: &str = r#"{"jsonrpc":"2.0","id":1,"method":"store/info"}"#;

/// Checks for a 401 with one Bearer challenge, and gives the challenge.
fn challenge(answer: &Answer) -> String {
    let error = answer.http_error(401);
    assert_eq!(error.id, Value::Null, "{answer}");
    let challenge = answer.header("www-authenticate").unwrap_or_else(|| panic!("no challenge: {answer}"));
    assert!(challenge.starts_with("Bearer"), "{challenge}");
    challenge.to_owned()
}

/// Sends `Authorization: <value>` as it is.
async fn with(broker: &Broker, value: &str) -> Answer {
    broker.anonymous().send(Outgoing::new(INFO).header("authorization", value)).await
}

async fn assert_refused(broker: &Broker, why: &str, token: &str) {
    let answer = with(broker, &format!("Bearer {token}")).await;
    assert_eq!(answer.status, 401, "{why}: {answer}");
    assert!(challenge(&answer).contains("error=\"invalid_token\""), "{why}: {answer}");
    let signature = token.rsplit('.').next().unwrap();
    if signature.len() > 10 {
        assert!(!answer.text().contains(signature), "{why}: the token is echoed: {answer}");
    }
}

fn payload(claims: &Value) -> String {
    let mut all = json!({"sub": "alice", "aud": token::AUDIENCE, "exp": token::now() + 3600});
    all.as_object_mut().unwrap().extend(claims.as_object().unwrap().clone());
    all.to_string()
}

async fn a_good_token_is_taken_and_the_scheme_is_case_insensitive(broker: &Broker) {
    let good = token::good("alice");
    for scheme in ["Bearer", "bearer", "BEARER"] {
        with(broker, &format!("{scheme} {good}")).await.result();
    }
    for claims in [
        json!({"aud": ["other", token::AUDIENCE]}),
        json!({"nbf": token::now() - 5}),
        json!({"iat": token::now(), "jti": "x", "iss": "anyone"}),
        json!({"sub": "s".repeat(512)}),
        json!({"sub": " a "}),
    ] {
        let token = token::sign(token::HEADER, &payload(&claims));
        with(broker, &format!("Bearer {token}")).await.result();
    }
    with(broker, &format!("Bearer {}", token::sign(r#"{"alg":"HS256"}"#, &payload(&json!({})))))
        .await
        .result();
}

async fn a_bad_token_is_refused_also_where_none_is_needed(broker: &Broker) {
    let now = token::now();
    let good = payload(&json!({}));
    let wrong_key = token::sign_with(token::HEADER, &good, b"another-secret-another-secret-another-secret");
    assert_refused(broker, "wrong key", &wrong_key).await;
    assert_refused(broker, "empty key", &token::sign_with(token::HEADER, &good, b"")).await;
    let newline = format!("{}\n", token::SECRET);
    assert_refused(broker, "the file's newline", &token::sign_with(token::HEADER, &good, newline.as_bytes()))
        .await;
    assert_refused(broker, "expired", &token::expired("alice")).await;

    for (why, claims) in [
        ("nbf as a string", json!({"nbf": "99999999999"})),
        ("nbf as a string in the past", json!({"nbf": "5"})),
        ("nbf in the future", json!({"nbf": 99_999_999_999_u64})),
        ("nbf as an object", json!({"nbf": {}})),
        ("exp as a string", json!({"exp": (now + 3600).to_string()})),
        ("exp null", json!({"exp": null})),
        ("aud of another service", json!({"aud": "other-service"})),
        ("aud that begins alike", json!({"aud": "task-broker-evil"})),
        ("aud in capitals", json!({"aud": "Task-Broker"})),
        ("aud with a slash", json!({"aud": "task-broker/"})),
        ("aud list without ours", json!({"aud": ["a", "b"]})),
        ("aud empty list", json!({"aud": []})),
        ("aud null", json!({"aud": null})),
        ("sub empty", json!({"sub": ""})),
        ("sub blank", json!({"sub": " "})),
        ("sub blank, more", json!({"sub": " \t\n"})),
        ("sub a number", json!({"sub": 5})),
        ("sub null", json!({"sub": null})),
        ("sub a list", json!({"sub": ["alice"]})),
        ("sub of 513 bytes", json!({"sub": "s".repeat(513)})),
        ("sub of 514 bytes in 257 characters", json!({"sub": "é".repeat(257)})),
        ("sub of 4 kB", json!({"sub": "s".repeat(4096)})),
    ] {
        assert_refused(broker, why, &token::sign(token::HEADER, &payload(&claims))).await;
    }
    for missing in ["sub", "aud", "exp"] {
        let mut claims: Value = serde_json::from_str(&good).unwrap();
        claims.as_object_mut().unwrap().remove(missing);
        assert_refused(broker, missing, &token::sign(token::HEADER, &claims.to_string())).await;
    }
    for text in ["", "null", "[]", "{", "\"alice\""] {
        assert_refused(broker, text, &token::sign(token::HEADER, text)).await;
    }
}

async fn the_token_does_not_choose_the_algorithm(broker: &Broker) {
    let good = payload(&json!({}));
    for alg in ["none", "None", "nOnE", "NONE", ""] {
        let unsigned = token::unsigned(&json!({"alg": alg}).to_string(), &good);
        assert_refused(broker, alg, &format!("{unsigned}.")).await;
        assert_refused(broker, alg, &token::sign(&json!({"alg": alg}).to_string(), &good)).await;
    }
    assert_refused(broker, "no alg", &token::sign(r#"{"typ":"JWT"}"#, &good)).await;
    let hs512 = r#"{"alg":"HS512","typ":"JWT"}"#;
    assert_refused(broker, "HS512", &token::sign_sha512(hs512, &good)).await;
    assert_refused(broker, "HS256 signed with SHA-512", &token::sign_sha512(token::HEADER, &good)).await;
    assert_refused(broker, "HS512 signed with SHA-256", &token::sign(hs512, &good)).await;
    for alg in ["RS256", "ES256", "EdDSA", "PS256", "HS384", "hs256"] {
        assert_refused(broker, alg, &token::sign(&json!({"alg": alg}).to_string(), &good)).await;
    }
    let mut tampered = token::good("alice");
    tampered.pop();
    assert_refused(broker, "a signature that was cut", &tampered).await;
    assert_refused(broker, "no signature", &format!("{}.", token::unsigned(token::HEADER, &good))).await;
}

async fn a_critical_header_is_refused(broker: &Broker) {
    for header in [
        r#"{"alg":"HS256","crit":["require-mfa"],"require-mfa":true}"#,
        r#"{"alg":"HS256","crit":[]}"#,
        r#"{"alg":"HS256","crit":["alg"]}"#,
        r#"{"alg":"HS256","crit":["b64"],"b64":false}"#,
        r#"{"alg":"HS256","crit":"x"}"#,
        r#"{"alg":"HS256","crit":["absent"]}"#,
    ] {
        assert_refused(broker, header, &token::sign(header, &payload(&json!({})))).await;
    }
}

async fn malformed_headers_are_refused_without_a_server_error(broker: &Broker) {
    for value in [
        "Bearer",
        "Bearer ",
        "Basic abc",
        "Bearer a",
        "Bearer a.b",
        "Bearer a.b.c",
        "Bearer a.b.c.d",
        "Bearer ...",
        ",",
    ] {
        let answer = with(broker, value).await;
        assert!([400, 401].contains(&answer.status), "{value:?}: {answer}");
        if answer.status == 401 {
            challenge(&answer);
        }
    }
    let two_tokens = with(broker, &format!("Bearer {} {}", token::good("alice"), token::good("bob"))).await;
    assert!([400, 401].contains(&two_tokens.status), "{two_tokens}");
    let bytes = [b"Authorization: Bearer \xff\xfe\r\nContent-Type: application/json\r\n".as_slice()].concat();
    let mut request = raw::post(broker.address(), "", INFO);
    let at = request.windows(4).position(|window| window == b"\r\n\r\n").unwrap() + 2;
    request.splice(at..at, bytes);
    let answer = raw::exchange(broker.address(), request);
    assert!([400, 401].contains(&answer.status), "{answer:?}");
}

async fn two_authorization_headers_are_refused(broker: &Broker) {
    let (alice, bob) = (format!("Bearer {}", token::good("alice")), format!("Bearer {}", token::good("bob")));
    for (first, second) in [(&alice, &bob), (&alice, &alice)] {
        let request =
            Outgoing::new(INFO).header("authorization", first).second_header("authorization", second);
        let answer = broker.anonymous().send(request).await;
        assert!([400, 401].contains(&answer.status), "{answer}");
    }
}

async fn a_token_that_is_too_large_for_a_header_breaks_nothing(broker: &Broker) {
    let line = format!("Authorization: Bearer {}\r\n", "a".repeat(1024 * 1024));
    let request = raw::post(broker.address(), &format!("{line}Content-Type: application/json\r\n"), INFO);
    // The broker may close the connection on such a head.
    if let Some(answer) = raw::try_exchange(broker.address(), request) {
        assert!([400, 401, 431].contains(&answer.status), "{answer:?}");
    }
    broker.user("alice").call("store/info", json!({})).await.result();
}

async fn no_token_is_the_anonymous_caller_where_tokens_are_optional(broker: &Broker) {
    let id = broker.anonymous().new_task().await;
    assert_eq!(broker.anonymous().get(&id).await["owner"], json!(null));
}

async fn a_token_in_the_query_is_no_token(broker: &Broker) {
    let alice = broker.user("alice");
    let id = alice.new_task().await;
    let body =
        json!({"jsonrpc": "2.0", "id": 1, "method": "store/get", "params": {"taskId": id}}).to_string();
    let target = format!("POST /rpc?access_token={} HTTP/1.1", alice.token());
    let request = raw::post(broker.address(), "Content-Type: application/json\r\n", &body);
    let request = String::from_utf8(request).unwrap().replacen("POST /rpc HTTP/1.1", &target, 1);
    let answer = raw::exchange(broker.address(), request);
    assert!(!answer.body.contains(&id), "{answer:?}");
}

#[tokio::test]
async fn a_required_token_that_is_absent_gets_a_bare_challenge() {
    let broker = BrokerOptions::new(Store::Memory).auth(Auth::Required).start();
    let anonymous = broker.anonymous();

    let answer = anonymous.call("store/info", json!({})).await;
    let bare = challenge(&answer);
    assert!(!bare.contains("error="), "no token was sent: {bare}");

    let watch = json!({"jsonrpc": "2.0", "id": 1, "method": "store/watch"}).to_string();
    challenge(&anonymous.send(Outgoing::new(watch).header("accept", "text/event-stream")).await);
    challenge(&anonymous.post("this is not JSON").await);
    let notification = r#"{"jsonrpc":"2.0","method":"store/create","params":{"toolName":"tool"}}"#;
    challenge(&anonymous.post(notification).await);
    challenge(&anonymous.post(format!("[{INFO}]")).await);

    broker.user("alice").call("store/info", json!({})).await.result();
    a_bad_token_is_refused_also_where_none_is_needed(&broker).await;
}

#[tokio::test]
async fn the_mode_off_ignores_tokens() {
    let broker = BrokerOptions::new(Store::Memory).auth(Auth::Off).start();
    let id = broker.anonymous().new_task().await;
    for token in ["garbage", &token::good("alice"), &token::expired("alice")] {
        assert_eq!(broker.bearer(token).get(&id).await["owner"], json!(null));
    }
    assert_eq!(broker.anonymous().http(Method::GET, "/readyz").await.status, 200);
}

#[tokio::test]
async fn neither_secret_nor_token_nor_payload_is_logged_at_any_level() {
    let options = BrokerOptions::new(Store::Memory).env("RUST_LOG", "trace");
    let broker = options.start();
    let (good, forged) = (token::good("alice"), token::sign_with(token::HEADER, "{}", b"forged"));
    let alice = broker.bearer(&good);
    let created = alice.create(json!({"arguments": {"marker": "ARG-77"}})).await;
    let complete = json!({"taskId": created["task"]["taskId"], "result": {"marker": "RES-77"}});
    alice.call("store/complete", complete).await.result();
    assert_refused(&broker, "forged", &forged).await;
    assert_refused(&broker, "expired", &token::expired("alice")).await;

    let log = broker.log_lines().join("\n");
    for secret in [token::SECRET, good.rsplit('.').next().unwrap(), forged.rsplit('.').next().unwrap()] {
        assert!(!log.contains(secret), "{secret} is in the log");
    }
    for marker in ["ARG-77", "RES-77"] {
        assert!(!log.contains(marker), "{marker} is in the log");
    }
    for line in broker.log_lines() {
        assert!(serde_json::from_str::<Value>(&line).is_ok(), "not JSON: {line}");
    }
}

on_memory!(
    a_good_token_is_taken_and_the_scheme_is_case_insensitive,
    a_bad_token_is_refused_also_where_none_is_needed,
    the_token_does_not_choose_the_algorithm,
    a_critical_header_is_refused,
    malformed_headers_are_refused_without_a_server_error,
    two_authorization_headers_are_refused,
    a_token_that_is_too_large_for_a_header_breaks_nothing,
    no_token_is_the_anonymous_caller_where_tokens_are_optional,
    a_token_in_the_query_is_no_token,
);
