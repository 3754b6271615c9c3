//! Keys from files: every kind, each for its algorithms, and what is refused at start.

use std::process::Command;
use std::time::Duration;

use serde_json::json;
use tempfile::TempDir;

use super::signer::{ALGORITHMS, Signer, pem};
use super::{assert_bad, assert_good, claims, file, flag, set};
use crate::harness::{Auth, Broker, BrokerOptions, Store, poll_until, token};

fn options() -> BrokerOptions {
    BrokerOptions::new(Store::Memory).auth(Auth::Required).without_secret()
}

/// A broker with one public key of each kind, from PEM files.
fn with_pem_files(directory: &TempDir) -> Broker {
    let mut options = options();
    for algorithm in ["RS256", "ES256", "ES384", "EdDSA"] {
        let path = file(directory, &format!("{algorithm}.pem"), Signer::shared(algorithm).pem());
        options = options.flag("--jwt-public-key-file", flag(&path));
    }
    options.start()
}

#[tokio::test]
async fn each_algorithm_is_verified_by_a_key_from_a_pem_file_and_by_no_other() {
    let directory = TempDir::new().unwrap();
    let broker = with_pem_files(&directory);
    for algorithm in ALGORITHMS {
        let signer = Signer::shared(algorithm);
        assert_good(&broker, algorithm, &signer.token(algorithm, &claims("alice"))).await;
        assert_good(&broker, algorithm, &signer.named_token(algorithm, "any", &claims("alice"))).await;
        assert_bad(&broker, algorithm, &Signer::new(algorithm).token(algorithm, &claims("alice"))).await;
        for said in ALGORITHMS.into_iter().chain(["HS256", "none", "Ed25519", "ES512", "ES256K"]) {
            if said != algorithm {
                let header = json!({"alg": said}).to_string();
                let lie = signer.seal(algorithm, &header, &claims("alice"));
                assert_bad(&broker, &format!("{algorithm} as {said}"), &lie).await;
            }
        }
    }
    assert_bad(&broker, "the harness's secret is no key here", &token::good("alice")).await;
}

#[tokio::test]
async fn a_key_set_gives_the_key_that_the_kid_names() {
    let directory = TempDir::new().unwrap();
    let (one, two, ec) = (Signer::new("RS256"), Signer::shared("RS256"), Signer::shared("ES256"));
    let nameless = Signer::new("ES384");
    let mut only_pss = Signer::shared("PS256").named_jwk("pss");
    only_pss["alg"] = json!("PS256");
    let keys =
        set(&[one.named_jwk("one"), two.named_jwk("two"), ec.named_jwk("ec"), nameless.jwk(), only_pss]);
    let broker = options().flag("--jwks-file", flag(&file(&directory, "keys", keys))).start();
    let alice = claims("alice");
    assert_good(&broker, "one", &one.named_token("RS256", "one", &alice)).await;
    assert_good(&broker, "two", &two.named_token("RS512", "two", &alice)).await;
    assert_good(&broker, "ec", &ec.named_token("ES256", "ec", &alice)).await;
    assert_good(&broker, "a key without a name, named", &nameless.named_token("ES384", "x", &alice)).await;
    assert_good(&broker, "a key without a name", &nameless.token("ES384", &alice)).await;
    assert_good(&broker, "pss", &two.named_token("PS256", "pss", &alice)).await;
    for (why, bad) in [
        ("the key of another kid", one.named_token("RS256", "two", &alice)),
        ("the kid of another kind of key", one.named_token("RS256", "ec", &alice)),
        ("no kid for a key that has one", one.token("RS256", &alice)),
        ("an algorithm that the key is not for", two.named_token("RS256", "pss", &alice)),
        ("an algorithm that the key is not for", two.named_token("PS384", "pss", &alice)),
        ("a kid that is not there", one.named_token("RS256", "three", &alice)),
        ("a kid in another case", one.named_token("RS256", "ONE", &alice)),
    ] {
        assert_bad(&broker, why, &bad).await;
    }
}

#[tokio::test]
async fn a_key_set_is_read_again_when_it_changes_and_a_bad_one_changes_nothing() {
    let directory = TempDir::new().unwrap();
    let (old, new) = (Signer::new("ES256"), Signer::new("ES256"));
    let path = file(&directory, "keys", set(&[old.named_jwk("old")]));
    let broker = options().flag("--jwks-file", flag(&path)).start();
    let old_token = old.named_token("ES256", "old", &claims("alice"));
    let new_token = new.named_token("ES256", "new", &claims("alice"));
    assert_good(&broker, "old", &old_token).await;
    assert_bad(&broker, "not there yet", &new_token).await;

    for bad in ["", "{", "{\"keys\":[]}", "{\"keys\":[{\"kty\":\"oct\",\"k\":\"AAAA\"}]}"] {
        std::fs::write(&path, bad).unwrap();
    }
    let told = broker.wait_log(Duration::from_secs(10), |record| {
        let message = record["fields"]["message"].as_str()?;
        message.starts_with("the file with the key set cannot be used").then_some(())
    });
    assert!(told.is_some(), "the operator is told");
    assert_good(&broker, "the last good set stays", &old_token).await;

    std::fs::write(&path, set(&[new.named_jwk("new")])).unwrap();
    poll_until(Duration::from_secs(10), "the new key is taken", async || {
        (super::ask(&broker, &new_token).await.status == 200).then_some(())
    })
    .await;
    assert_bad(&broker, "its key is gone, whatever was verified before", &old_token).await;
    assert_eq!(broker.anonymous().http(hyper::Method::GET, "/readyz").await.status, 200);
}

/// Starts a broker that must not start, and gives what it says.
fn refused(flag: &str, path: &std::path::Path) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_task-broker"))
        .args(["serve", "--listen", "127.0.0.1:0", "--store", "memory:", "--jwt-audience", "a", flag])
        .arg(path)
        .output()
        .unwrap();
    assert!(!output.status.success());
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn a_file_that_holds_no_good_public_key_is_refused_at_start_with_what_to_do() {
    const WEAK: &str = "-----BEGIN PUBLIC KEY-----
MIGfMA0GCSqGSIb3DQEBAQUAA4GNADCBiQKBgQDA
-----END PUBLIC KEY-----
";
    let directory = TempDir::new().unwrap();
    let good = Signer::shared("ES256").pem();
    let weak = openssl(&["genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:1024"]);
    let weak = openssl_with(&["pkey", "-pubout"], &weak);
    let private = openssl(&["genpkey", "-algorithm", "ED25519"]);
    let curve = openssl(&["genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:secp256k1"]);
    let curve = openssl_with(&["pkey", "-pubout"], &curve);
    let p521 = openssl(&["genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-521"]);
    let p521 = openssl_with(&["pkey", "-pubout"], &p521);
    let certificate = super::https::Certificate::new().chain_pem;
    for (name, content, says) in [
        ("weak", weak.as_str(), "2048 to 8192 bits"),
        ("private", &private, "openssl pkey"),
        ("secp256k1", &curve, "no RSA, P-256, P-384 or Ed25519"),
        ("p521", &p521, "no RSA, P-256, P-384 or Ed25519"),
        ("certificate", &certificate, "openssl x509"),
        ("two", &format!("{good}{good}"), "more than one key"),
        ("empty", "", "no PEM block"),
        ("secret", "only a secret", "no PEM block"),
        ("cut", WEAK, "no RSA, P-256, P-384 or Ed25519"),
        ("large", &" ".repeat(70_000), "larger than 64 KiB"),
        ("parameters", &pem("EC PARAMETERS", &[6, 0]), "no public key"),
    ] {
        let path = file(&directory, name, content);
        let said = refused("--jwt-public-key-file", &path);
        assert!(said.contains(says) && said.contains(&flag(&path)), "{name}: {said}");
        assert!(said.contains("--jwt-public-key-file"), "{name}: {said}");
        assert!(!said.contains("only a secret"), "{said}");
    }
    for (name, content) in [("none", r#"{"keys":[]}"#), ("text", "text")] {
        let path = file(&directory, name, content);
        let said = refused("--jwks-file", &path);
        assert!(said.contains("--jwks-file") && said.contains(&flag(&path)), "{said}");
    }
}

/// What this program prints. It is there wherever keys are made.
fn openssl(arguments: &[&str]) -> String {
    openssl_with(arguments, "")
}

fn openssl_with(arguments: &[&str], input: &str) -> String {
    use std::io::Write as _;
    let mut child = Command::new("openssl")
        .args(arguments)
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::null())
        .spawn()
        .expect("openssl is there");
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap()
}
