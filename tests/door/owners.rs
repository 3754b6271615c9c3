//! Whose a task is: by `sub`, or by `iss` and `sub`; a store keeps the one it was made with.

use std::process::Command;

use serde_json::json;
use tempfile::TempDir;

use super::flag;
use crate::harness::{Auth, Broker, BrokerOptions, Store, token};

fn token_of(iss: &str, sub: &str) -> String {
    let claims = json!({"iss": iss, "sub": sub, "aud": token::AUDIENCE, "exp": token::now() + 3600});
    token::sign(token::HEADER, &claims.to_string())
}

fn broker(owner_from: &str) -> Broker {
    BrokerOptions::new(Store::Memory).auth(Auth::Required).flag("--owner-from", owner_from).start()
}

#[tokio::test]
async fn with_iss_sub_the_same_sub_of_two_issuers_is_two_people() {
    let broker = broker("iss-sub");
    let a = broker.bearer(&token_of("https://a.example", "alice"));
    let b = broker.bearer(&token_of("https://b.example", "alice"));
    let id = a.new_task().await;
    assert_eq!(a.get(&id).await["owner"], "https://a.example alice");
    assert_eq!(b.call("tasks/get", json!({"taskId": id})).await.error().kind, "task_not_found");
    // What would be one text if the two were just put together.
    let joined = broker.bearer(&token_of("https://a.example a", "lice"));
    joined.call("store/info", json!({})).await.http_error(401);
    broker.bearer(&token::good("alice")).call("store/info", json!({})).await.http_error(401);
}

#[tokio::test]
async fn with_sub_the_issuer_does_not_matter() {
    let broker = broker("sub");
    let a = broker.bearer(&token_of("https://a.example", "alice"));
    let b = broker.bearer(&token_of("https://b.example", "alice"));
    let id = a.new_task().await;
    assert_eq!(b.get(&id).await["owner"], "alice");
}

#[tokio::test]
async fn a_service_may_name_an_owner_of_an_issuer() {
    let broker = broker("iss-sub");
    let claims = json!({
        "iss": "https://a.example", "sub": "service", "aud": token::AUDIENCE, "exp": token::now() + 3600,
        "scope": token::DELEGATE,
    });
    let service = broker.bearer(&token::sign(token::HEADER, &claims.to_string()));
    let created = service.create(json!({"owner": "https://b.example alice"})).await;
    let id = created["task"]["taskId"].as_str().unwrap();
    let alice = broker.bearer(&token_of("https://b.example", "alice"));
    alice.call("tasks/get", json!({"taskId": id})).await.result();
}

/// Starts on a store with this mode, and gives what is said when that is refused.
fn start(directory: &TempDir, owner_from: &[&str]) -> Result<(), String> {
    let mut child = Command::new(env!("CARGO_BIN_EXE_task-broker"))
        .args(["serve", "--listen", "127.0.0.1:0", "--store"])
        .arg(format!("sled:{}", flag(&directory.path().join("data"))))
        .args(owner_from)
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = String::new();
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(child.stderr.take().unwrap()));
    while let Some(Ok(line)) = lines.next() {
        if line.contains("listening") {
            let pid = rustix::process::Pid::from_child(&child);
            rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        }
        said.push_str(&line);
        said.push('\n');
    }
    if child.wait().unwrap().success() { Ok(()) } else { Err(said) }
}

#[test]
fn a_store_of_the_other_mode_is_refused_and_both_are_named() {
    for (made, other) in [("sub", "iss-sub"), ("iss-sub", "sub")] {
        let directory = TempDir::new().unwrap();
        start(&directory, &["--owner-from", made]).unwrap();
        let said = start(&directory, &["--owner-from", other]).unwrap_err();
        let stored = format!("made with --owner-from {made}");
        let asked = format!("--owner-from {other} is asked for");
        assert!(said.contains(&stored) && said.contains(&asked), "{said}");
        start(&directory, &["--owner-from", made]).unwrap();
    }
    let directory = TempDir::new().unwrap();
    start(&directory, &[]).unwrap();
    assert!(start(&directory, &["--owner-from", "iss-sub"]).is_err(), "without a word it is sub");
}
