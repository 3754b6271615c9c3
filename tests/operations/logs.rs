//! Logs: no secret and no payload at any level, and no client writes lines of its own (cases F09 and F10).

use std::fs::{self, File};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde_json::{Value, json};

use super::{Broker, exchange, get, post, program, start_with, token, wait_for};

/// A broker that asks for tokens if there are any, and logs into a file.
fn start(files: &Path, format: &str, level: &str) -> Broker {
    let secret = files.join("secret");
    fs::write(&secret, token::SECRET).unwrap();
    let log = File::create(files.join("log")).unwrap();
    let secret = secret.display().to_string();
    let auth = ["--auth", "optional", "--jwt-secret-file", &secret, "--jwt-audience", token::AUDIENCE];
    let args = [&["--store", "memory:", "--log-format", format][..], &auth].concat();
    start_with(&args, level, log.into())
}

fn written(files: &Path) -> String {
    String::from_utf8(fs::read(files.join("log")).unwrap()).unwrap()
}

/// The log up to now, of a broker that tells each request: lines are written in their order, but not before the answer. So
/// one more request is made, and its line waited for.
fn log(broker: &Broker, files: &Path) -> String {
    static MARKS: AtomicUsize = AtomicUsize::new(0);
    let mark = format!("mark-{}.", MARKS.fetch_add(1, Ordering::Relaxed));
    let request =
        format!("GET /livez HTTP/1.1\r\nhost: x\r\nconnection: close\r\nx-request-id: {mark}\r\n\r\n");
    exchange(broker.address, request.as_bytes()).unwrap();
    wait_for("the line of the mark", || {
        let said = written(files);
        said.lines().any(|line| line.contains(&mark)) && said.ends_with('\n')
    });
    written(files).split_inclusive('\n').filter(|line| !line.contains("mark-")).collect()
}

fn bearer(token: &str) -> Vec<u8> {
    format!("authorization: Bearer {token}\r\n").into_bytes()
}

fn call(method: &str, params: &Value) -> String {
    json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).to_string()
}

fn id_of(answer: &str) -> String {
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    let answer: Value = serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {answer}"));
    answer["result"]["task"]["taskId"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
}

/// All forms in which a text could stand in a log.
fn forms(text: &str) -> Vec<String> {
    let hex = text.bytes().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().concat();
    let decimal = format!("{:?}", text.as_bytes());
    vec![
        text.to_owned(),
        hex.to_uppercase(),
        hex,
        STANDARD.encode(text).trim_end_matches('=').to_owned(),
        URL_SAFE_NO_PAD.encode(text),
        decimal.trim_matches(['[', ']']).to_owned(),
    ]
}

#[test]
fn no_secret_no_token_and_no_payload_is_logged_even_at_trace() {
    for format in ["text", "json"] {
        let files = tempfile::tempdir().unwrap();
        let mut broker = start(files.path(), format, "trace");
        let good = token::good("alice");
        let expired = token::expired("alice");
        let forged =
            token::sign_with(token::HEADER, r#"{"sub":"alice"}"#, b"some other secret of the right length");
        let create = call(
            "store/create",
            &json!({"toolName": "tool", "arguments": {"a": "ARG-77"}, "meta": {"m": "META-77"}}),
        );
        let id = id_of(&post(broker.address, &bearer(&good), &create));
        let complete = call("store/complete", &json!({"taskId": id, "result": {"r": "RES-77"}}));
        for token in [&expired, &forged] {
            assert!(post(broker.address, &bearer(token), &complete).contains(" 401 "));
        }
        assert!(post(broker.address, &bearer(&good), &complete).contains("\"applied\":true"));
        let fail = call("store/fail", &json!({"taskId": id, "error": {"code": 1, "message": "ERR-77"}}));
        post(broker.address, &bearer(&good), &fail);
        assert!(
            post(broker.address, &bearer(&good), &call("tasks/get", &json!({"taskId": id})))
                .contains("RES-77")
        );
        post(broker.address, &bearer(&good), "{\"ARG-77");
        let metrics = get(broker.address, "/metrics").unwrap();
        assert!(broker.stop().success());

        let said = format!("{}{metrics}", written(files.path()));
        assert!(said.contains("DEBUG"), "the log has its lines: {said}");
        let signature = |token: &str| token.rsplit_once('.').unwrap().1.to_owned();
        let mut hidden: Vec<_> =
            [&good, &expired, &forged].into_iter().map(|token| signature(token)).collect();
        hidden.extend([token::SECRET, "ARG-77", "RES-77", "META-77", "ERR-77"].map(str::to_owned));
        for hidden in hidden {
            for form in forms(&hidden) {
                assert!(!said.contains(&form), "{hidden} as {form} in: {said}");
            }
        }
    }
}

#[test]
fn the_programs_own_texts_show_no_secret() {
    // Where a setting may have a password, or what somebody takes for a place of one.
    let settings = [
        ("TASK_BROKER_OTLP_ENDPOINT", "http://user:PASS-77@127.0.0.1:4318"),
        ("TASK_BROKER_OTLP_ENDPOINT", "http://127.0.0.1:4318/?key=PASS-77"),
        ("TASK_BROKER_STORE", "postgres://user:PASS-77@db/tasks"),
        ("TASK_BROKER_JWKS_URL", "http://user:PASS-77@issuer.example/keys"),
        ("TASK_BROKER_JWKS_URL", "ftp://issuer.example/?key=PASS-77"),
        ("TASK_BROKER_ALLOW_ORIGIN", "http://user:PASS-77@page.example"),
    ];
    let said = |args: &[&str], (name, value): (&str, &str)| {
        let output = program().args(args).env(name, value).output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8(said).unwrap())
    };
    for setting in settings {
        for args in [&["--help"][..], &["serve", "--help"], &["man", "serve"], &["help", "serve"], &["serve"]]
        {
            let (done, text) = said(args, setting);
            assert_eq!(done, args != ["serve"], "{args:?} {setting:?}: {text}");
            assert!(!text.contains("PASS-77") && !text.is_empty(), "{args:?} {setting:?}: {text}");
        }
    }
    let url = "http://user:PASS-77@127.0.0.1:1";
    for args in [&["healthcheck", "--url", url][..], &["export", "--url", url], &["serve", "--store", url]] {
        let (done, text) = said(args, ("RUST_LOG", "trace"));
        assert!(!done && text.contains("127.0.0.1:1") && !text.contains("PASS-77"), "{args:?}: {text}");
    }
}

/// Where a client can put a text, and a request that has it there.
type Place = (&'static str, fn(&Broker, &str));

fn as_creator(broker: &Broker, method: &str, params: &Value) {
    post(broker.address, &bearer(&token::good("alice")), &call(method, params));
}

/// Everything that goes into a header must be without the bytes that end one.
fn in_header(text: &str) -> Vec<u8> {
    text.bytes().filter(|byte| *byte >= 0x20 && *byte != 0x7f).collect()
}

const PLACES: &[Place] = &[
    ("tool name", |broker, text| as_creator(broker, "store/create", &json!({"toolName": text}))),
    ("task id", |broker, text| as_creator(broker, "store/get", &json!({"taskId": text}))),
    ("method", |broker, text| as_creator(broker, text, &json!({}))),
    ("member", |broker, text| as_creator(broker, "store/get", &json!({text: 1}))),
    ("input key", |broker, text| {
        let questions = json!({text: {"method": "m"}});
        as_creator(broker, "store/requireInput", &json!({"taskId": "x", "inputRequests": questions}));
    }),
    ("message of an error", |broker, text| {
        as_creator(broker, "store/fail", &json!({"taskId": "x", "error": {"code": 1, "message": text}}));
    }),
    ("reason", |broker, text| as_creator(broker, "store/cancel", &json!({"taskId": "x", "reason": text}))),
    ("subject", |broker, text| {
        let claims = json!({"sub": format!("a{text}"), "aud": token::AUDIENCE, "exp": token::now() + 3600});
        let token = token::sign(token::HEADER, &claims.to_string());
        post(broker.address, &bearer(&token), &call("store/info", &json!({})));
    }),
    ("key id", |broker, text| {
        let header = json!({"alg": "HS256", "kid": text}).to_string();
        let claims = json!({"sub": "a", "aud": token::AUDIENCE, "exp": token::now() + 3600});
        post(
            broker.address,
            &bearer(&token::sign(&header, &claims.to_string())),
            &call("store/info", &json!({})),
        );
    }),
    ("user agent", |broker, text| {
        let header = [b"user-agent: ", &in_header(text)[..], b"\r\n"].concat();
        post(broker.address, &header, &call("store/info", &json!({})));
    }),
    ("request id", |broker, text| {
        let header = [b"x-request-id: ", &in_header(text)[..], b"\r\n"].concat();
        post(broker.address, &header, &call("store/info", &json!({})));
    }),
    ("path", |broker, text| {
        let path = text.bytes().map(|byte| format!("%{byte:02x}")).collect::<Vec<_>>().concat();
        let path: String = path.chars().take(3000).collect();
        get(broker.address, &format!("/{path}")).unwrap();
    }),
];

/// What must never reach a log as it is.
fn is_harmful(character: char) -> bool {
    character.is_control() || matches!(character, '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}')
}

#[test]
fn a_request_makes_the_same_lines_whatever_its_texts_hold() {
    let long = "x".repeat(1 << 20);
    let odd = [
        "x\n2030-01-01T00:00:00Z  INFO forged line",
        "\u{1b}[2J\u{1b}]0;pwn\u{7}",
        "\u{85}",
        "\u{2028}",
        "\u{9b}31m",
        "\u{202e}x",
        "\"},\"level\":\"INFO",
        &long,
    ];
    for format in ["text", "json"] {
        let files = tempfile::tempdir().unwrap();
        let broker = start(files.path(), format, "trace");
        for (place, send) in PLACES {
            let lines = |text: &str| {
                let before = log(&broker, files.path()).lines().count();
                send(&broker, text);
                let after = log(&broker, files.path());
                (after.lines().count() - before, after)
            };
            let (plain, _) = lines("plain");
            assert!(plain >= 1, "a line for the request: {place}");
            for text in odd {
                // The head of a request has a bound of its own, and one above it is no request.
                if text.len() > 1000 && ["subject", "key id", "user agent", "request id"].contains(place) {
                    continue;
                }
                let (odd, said) = lines(text);
                assert_eq!(odd, plain, "{place}, {format}, {:?}: {said}", &text[..text.len().min(50)]);
            }
        }
        for (_, send) in PLACES {
            send(&broker, &long);
        }
        let said = log(&broker, files.path());
        for line in said.split_terminator('\n') {
            assert!(!line.chars().any(is_harmful), "{line:?}");
            assert!(line.len() < 16 * 1024, "{}", line.len());
            if format == "json" {
                let record: Value =
                    serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
                assert!(record["level"].is_string() && record["fields"]["message"].is_string(), "{line}");
            } else {
                assert!(line.starts_with("20") && !line.starts_with("2030"), "{line}");
            }
        }
    }
}

#[test]
fn a_request_has_one_line_with_its_id_method_outcome_and_time() {
    let files = tempfile::tempdir().unwrap();
    let broker = start(files.path(), "json", "debug");
    let get = call("store/get", &json!({"taskId": "0".repeat(32)}));
    let answer = post(broker.address, b"x-request-id: my-request.1\r\n", &get);
    assert!(answer.to_lowercase().contains("x-request-id: my-request.1\r\n"), "{answer}");
    let said = log(&broker, files.path());
    let of_request = said.lines().filter(|line| line.contains("\"request\":\"my-request.1\""));
    let lines: Vec<Value> = of_request.map(|line| serde_json::from_str(line).unwrap()).collect();
    let [line] = &lines[..] else { panic!("one line: {said}") };
    let fields = &line["fields"];
    assert_eq!(
        (&fields["message"], &fields["method"], &fields["outcome"], &fields["status"], &line["level"]),
        (&json!("request"), &json!("store/get"), &json!("task_not_found"), &json!(200), &json!("DEBUG"))
    );
    assert!(fields["micros"].is_u64(), "{line}");
    // Why a token was refused, and the request that it was refused for, have the same id.
    post(broker.address, b"x-request-id: my-request.2\r\nauthorization: Bearer x\r\n", &get);
    let said = log(&broker, files.path());
    let lines: Vec<_> = said.lines().filter(|line| line.contains("\"request\":\"my-request.2\"")).collect();
    assert_eq!(lines.len(), 2, "{said}");
}

#[test]
fn at_info_a_request_makes_no_line() {
    let files = tempfile::tempdir().unwrap();
    let mut broker = start(files.path(), "text", "info");
    for _ in 0..10 {
        post(broker.address, b"", &call("store/info", &json!({})));
        get(broker.address, "/no/such");
    }
    assert!(broker.stop().success());
    let said = written(files.path());
    assert!(said.contains(" INFO stopped"), "{said}");
    assert!(!said.contains("request"), "{said}");
}
