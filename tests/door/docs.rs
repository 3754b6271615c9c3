//! docs/authentication.md: its commands work, its flags exist, and openssl signs what the broker verifies.

use std::path::Path;
use std::process::Command;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use clap::CommandFactory as _;
use tempfile::TempDir;

use super::{assert_bad, assert_good, claims, file, flag};
use crate::harness::token::unsigned;
use crate::harness::{Auth, BrokerOptions, Store};

const PAGE: &str = include_str!("../../docs/authentication.md");

fn commands(beginning: &str) -> Vec<&'static str> {
    PAGE.lines().filter(|line| line.starts_with(beginning)).collect()
}

fn run(directory: &Path, line: &str) {
    let done = Command::new("sh").args(["-euc", line]).current_dir(directory).output().unwrap();
    assert!(done.status.success(), "{line}: {}", String::from_utf8_lossy(&done.stderr));
}

#[tokio::test]
async fn each_way_to_make_a_key_gives_one_that_the_broker_takes() {
    let making = commands("openssl genpkey");
    assert_eq!(making.len(), 4);
    for line in making {
        let directory = TempDir::new().unwrap();
        run(directory.path(), line);
        run(directory.path(), commands("openssl pkey").first().unwrap());
        let public = flag(&directory.path().join("public.pem"));
        let options = BrokerOptions::new(Store::Memory).auth(Auth::Required).without_secret();
        let broker = options.flag("--jwt-public-key-file", public).start();
        let (algorithm, sign) = match line {
            line if line.contains("RSA") => {
                ("RS256", "openssl dgst -sha256 -sign private.pem -out signature message")
            }
            line if line.contains("ED25519") => {
                ("EdDSA", "openssl pkeyutl -sign -inkey private.pem -rawin -in message -out signature")
            }
            // openssl writes signatures of these as DER.
            _ => continue,
        };
        let message = unsigned(&format!(r#"{{"alg":"{algorithm}"}}"#), &claims("alice"));
        file(&directory, "message", &message);
        run(directory.path(), sign);
        let signature = std::fs::read(directory.path().join("signature")).unwrap();
        let token = format!("{message}.{}", URL_SAFE_NO_PAD.encode(&signature));
        assert_good(&broker, line, &token).await;
        let mut changed = signature;
        changed[7] ^= 1;
        assert_bad(&broker, line, &format!("{message}.{}", URL_SAFE_NO_PAD.encode(&changed))).await;
    }
}

#[test]
fn the_flags_of_the_page_exist() {
    let program = task_broker::config::Cli::command();
    let known: Vec<_> = program
        .get_subcommands()
        .flat_map(clap::Command::get_arguments)
        .filter_map(|argument| Some(format!("--{}", argument.get_long()?)))
        .collect();
    let words = PAGE.split(|c: char| !c.is_ascii_alphanumeric() && c != '-');
    let flags: Vec<_> = words.filter(|word| word.starts_with("--") && word.len() > 3).collect();
    assert!(flags.len() > 20);
    for flag in flags {
        assert!(known.iter().any(|known| known == flag), "{flag}");
    }
}

#[test]
fn the_first_way_serves_and_a_token_is_made_for_it() {
    let directory = TempDir::new().unwrap();
    run(directory.path(), commands("head -c").first().unwrap());
    let minting = PAGE.split('`').find(|text| text.starts_with("task-broker token ")).unwrap();
    let program = Path::new(env!("CARGO_BIN_EXE_task-broker")).parent().unwrap();
    let line = format!("PATH=\"{}:$PATH\"; {minting} > token", program.display());
    run(directory.path(), &line);
    let token = std::fs::read_to_string(directory.path().join("token")).unwrap();
    let secret = flag(&directory.path().join("secret"));
    let options = BrokerOptions::new(Store::Memory).auth(Auth::Required).without_secret();
    let broker = options.flag("--jwt-secret-file", secret).start();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(assert_good(&broker, "minted", token.trim()));
}
