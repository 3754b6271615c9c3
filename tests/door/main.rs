//! The door, tested from outside: keys, owners, rates, TLS and floods, through the real process.
//!
//! The keys are made by each run, and the key server is a real one, over TLS.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that panics has failed, as it should; clippy.toml covers only functions marked as tests"
)]
#![allow(
    clippy::needless_pass_by_value,
    reason = "params are written as json!(..) right where they are passed"
)]

#[path = "../harness/mod.rs"]
mod harness;
mod https;
mod signer;

mod attacks;
mod docs;
mod expiry;
mod floods;
mod forgeries;
mod gone;
mod health;
mod key_files;
mod key_server;
mod load;
mod owners;
mod rates;
mod tls;
mod untaken;

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tempfile::TempDir;

use harness::{Answer, Broker, token};

/// The claims of a good token for `sub`.
fn claims(sub: &str) -> String {
    json!({"sub": sub, "aud": token::AUDIENCE, "exp": token::now() + 3600}).to_string()
}

/// A file of this name and content.
fn file(directory: &TempDir, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
    let path = directory.path().join(name);
    std::fs::write(&path, content).unwrap();
    path
}

fn flag(path: &Path) -> String {
    path.display().to_string()
}

/// A key set of these keys.
fn set(keys: &[Value]) -> String {
    json!({"keys": keys}).to_string()
}

/// What the broker says to this token.
async fn ask(broker: &Broker, token: &str) -> Answer {
    broker.bearer(token).call("store/info", json!({})).await
}

/// Checks that the token is good.
async fn assert_good(broker: &Broker, why: &str, token: &str) {
    let answer = ask(broker, token).await;
    assert_eq!(answer.status, 200, "{why}: {answer}");
    answer.result();
}

/// Checks that the token is refused as such, and that nothing of it is in the answer.
async fn assert_bad(broker: &Broker, why: &str, token: &str) {
    let answer = ask(broker, token).await;
    assert_eq!(answer.status, 401, "{why}: {answer}");
    answer.http_error(401);
    let challenge = answer.header("www-authenticate").unwrap();
    assert!(
        challenge.starts_with("Bearer ") && challenge.contains("error=\"invalid_token\""),
        "{why}: {answer}"
    );
    let signature = token.rsplit('.').next().unwrap();
    assert!(signature.len() < 11 || !answer.text().contains(signature), "{why}: {answer}");
}

/// A number from the environment: scripts/door.sh makes the tests larger by it.
fn from_env(name: &str, otherwise: usize) -> usize {
    std::env::var(name).map_or(otherwise, |text| text.parse().unwrap())
}

/// How much memory the broker has, in bytes.
fn resident_bytes(broker: &Broker) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", broker.pid())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

/// How many files and sockets the broker has open.
fn open_files(broker: &Broker) -> usize {
    std::fs::read_dir(format!("/proc/{}/fd", broker.pid())).unwrap().count()
}
