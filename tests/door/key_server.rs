//! A key server over TLS: rotation, outages, floods of unknown names, and servers that misbehave.

use std::time::Duration;

use hyper::Method;
use serde_json::json;
use tempfile::TempDir;
use tokio::time::Instant;

use super::https::{Answering, Certificate, KeyServer};
use super::signer::Signer;
use super::{ask, assert_bad, assert_good, claims, file, flag, set};
use crate::harness::{Auth, Broker, BrokerOptions, Outgoing, Store, poll_until};

/// The least time between two questions, in the brokers of these tests.
const COOLDOWN_SECS: u64 = 1;
/// How long a test waits for something that takes one question.
const SOON: Duration = Duration::from_secs(10);

struct Setting {
    directory: TempDir,
    certificate: Certificate,
}

impl Setting {
    fn new() -> Self {
        Self { directory: TempDir::new().unwrap(), certificate: Certificate::new() }
    }

    async fn server(&self, answering: Answering) -> KeyServer {
        KeyServer::start(&self.certificate, answering).await
    }

    fn options(&self, url: &str, refresh_secs: u64) -> BrokerOptions {
        let roots = file(&self.directory, "roots.pem", &self.certificate.root_pem);
        BrokerOptions::new(Store::Memory)
            .auth(Auth::Required)
            .without_secret()
            .flag("--jwks-url", url)
            .flag("--jwks-ca-file", flag(&roots))
            .flag("--jwks-cooldown-secs", COOLDOWN_SECS)
            .flag("--jwks-refresh-secs", refresh_secs)
    }
}

async fn ready(broker: &Broker) -> u16 {
    broker.anonymous().http(Method::GET, "/readyz").await.status
}

async fn until_ready(broker: &Broker) {
    poll_until(SOON, "the broker is ready", async || (ready(broker).await == 200).then_some(())).await;
}

async fn until_good(broker: &Broker, token: &str) -> Duration {
    let began = Instant::now();
    poll_until(SOON, "the token is good", async || (ask(broker, token).await.status == 200).then_some(()))
        .await;
    began.elapsed()
}

#[tokio::test(flavor = "multi_thread")]
async fn with_the_key_server_down_at_start_the_broker_lives_is_not_ready_and_keeps_trying() {
    let setting = Setting::new();
    let signer = Signer::new("ES256");
    let mut server = setting.server(Answering::Keys(set(&[signer.named_jwk("one")]))).await;
    server.stop().await;
    let broker = setting.options(&server.url(), 60).start();
    let token = signer.named_token("ES256", "one", &claims("alice"));
    assert_eq!(broker.anonymous().http(Method::GET, "/livez").await.status, 200);
    assert_eq!(ready(&broker).await, 503);
    let answer = ask(&broker, &token).await;
    answer.http_error(503);
    assert!(answer.header("retry-after").is_some(), "it may be good: {answer}");
    broker.anonymous().call("store/info", json!({})).await.http_error(401);
    server.resume();
    until_ready(&broker).await;
    assert_good(&broker, "at last", &token).await;
    assert_bad(&broker, "another key", &Signer::new("ES256").named_token("ES256", "one", &claims("alice")))
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_key_is_found_when_a_token_asks_for_it_and_an_old_one_goes() {
    let setting = Setting::new();
    let (old, new) = (Signer::new("RS256"), Signer::new("RS256"));
    let server = setting.server(Answering::Keys(set(&[old.named_jwk("old")]))).await;
    // The timer is far away: what is found is found because it was asked for.
    let broker = setting.options(&server.url(), 3600).start();
    until_ready(&broker).await;
    let old_token = old.named_token("RS256", "old", &claims("alice"));
    let new_token = new.named_token("RS256", "new", &claims("alice"));
    assert_good(&broker, "old", &old_token).await;
    // As issuers do it: both for a while, then the new one alone.
    server.answer(Answering::Keys(set(&[old.named_jwk("old"), new.named_jwk("new")])));
    let took = until_good(&broker, &new_token).await;
    assert!(took < Duration::from_secs(COOLDOWN_SECS + 3), "{took:?}");
    assert_good(&broker, "old, still", &old_token).await;
    server.answer(Answering::Keys(set(&[new.named_jwk("new")])));
    assert_bad(&broker, "makes it ask", &new.named_token("RS256", "newer", &claims("alice"))).await;
    poll_until(SOON, "the old key is gone", async || {
        (ask(&broker, &old_token).await.status == 401).then_some(())
    })
    .await;
    assert_good(&broker, "new", &new_token).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_key_is_asked_for_also_where_a_key_without_a_name_could_have_been_meant() {
    let setting = Setting::new();
    let (unnamed, old, new) = (Signer::new("ES256"), Signer::new("ES256"), Signer::new("ES256"));
    let mut server = setting.server(Answering::Keys(set(&[old.named_jwk("old")]))).await;
    server.stop().await;
    let pem = file(&setting.directory, "unnamed.pem", unnamed.pem());
    let broker = setting.options(&server.url(), 3600).flag("--jwt-public-key-file", flag(&pem)).start();
    // Of a key that it does not have yet it cannot say that the signature is wrong.
    let old_token = old.named_token("ES256", "old", &claims("alice"));
    ask(&broker, &old_token).await.http_error(503);
    assert_good(&broker, "the key from the file", &unnamed.token("ES256", &claims("alice"))).await;
    server.resume();
    until_ready(&broker).await;
    assert_good(&broker, "old", &old_token).await;
    server.answer(Answering::Keys(set(&[new.named_jwk("new")])));
    until_good(&broker, &new.named_token("ES256", "new", &claims("alice"))).await;
    assert_bad(&broker, "the old key is gone", &old_token).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rotation_under_load_refuses_no_good_token_for_longer_than_one_refresh() {
    const REFRESH_SECS: u64 = 2;
    let setting = Setting::new();
    let mut signers = vec![Signer::new("ES256")];
    let server = setting.server(Answering::Keys(set(&[signers[0].named_jwk("0")]))).await;
    let broker = setting.options(&server.url(), REFRESH_SECS).start();
    until_ready(&broker).await;
    for round in 1..4 {
        signers.push(Signer::new("ES256"));
        let (before, after) = (&signers[round - 1], &signers[round]);
        let (old, new) = ((round - 1).to_string(), round.to_string());
        server.answer(Answering::Keys(set(&[before.named_jwk(&old), after.named_jwk(&new)])));
        let began = Instant::now();
        let old_token = before.named_token("ES256", &old, &claims("alice"));
        let new_token = after.named_token("ES256", &new, &claims("alice"));
        let mut new_since = None;
        while began.elapsed() < Duration::from_secs(3) {
            assert_good(&broker, "the key that is still there", &old_token).await;
            match ask(&broker, &new_token).await.status {
                200 => _ = new_since.get_or_insert(began.elapsed()),
                status => assert!(status == 401 && new_since.is_none(), "{status}: refused again"),
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let since = new_since.expect("the new key was taken");
        assert!(since < Duration::from_secs(REFRESH_SECS + 1), "{since:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn during_an_outage_the_last_good_keys_stay_in_force() {
    let setting = Setting::new();
    let (signer, new) = (Signer::new("EdDSA"), Signer::new("EdDSA"));
    let keys = set(&[signer.named_jwk("one")]);
    let mut server = setting.server(Answering::Keys(keys.clone())).await;
    let broker = setting.options(&server.url(), COOLDOWN_SECS).start();
    until_ready(&broker).await;
    let token = signer.named_token("EdDSA", "one", &claims("alice"));
    for answering in [
        Answering::Status(500, ""),
        Answering::Status(404, ""),
        Answering::Status(302, "location: https://127.0.0.1:9/keys\r\n"),
        Answering::Huge,
        Answering::Cut,
        Answering::Keys("not JSON".into()),
        Answering::Keys(set(&[])),
        Answering::Keys(r#"{"keys":[{"kty":"oct","k":"AAAA","kid":"one"}]}"#.into()),
        Answering::Keys("<html></html>".into()),
    ] {
        let asked = server.asked();
        server.answer(answering.clone());
        poll_until(Duration::from_secs(20), "it is asked", async || (server.asked() > asked).then_some(()))
            .await;
        assert_good(&broker, &format!("{answering:?}"), &token).await;
        assert_eq!(ready(&broker).await, 200);
    }
    server.stop().await;
    let end = Instant::now() + Duration::from_secs(3);
    while Instant::now() < end {
        assert_good(&broker, "the port is closed", &token).await;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    server.answer(Answering::Keys(set(&[signer.named_jwk("one"), new.named_jwk("two")])));
    server.resume();
    until_good(&broker, &new.named_token("EdDSA", "two", &claims("alice"))).await;
    broker.assert_no_error_logged();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_not_trusted_gives_no_keys() {
    let setting = Setting::new();
    let signer = Signer::new("ES256");
    let impostor = Certificate::new();
    let server = KeyServer::start(&impostor, Answering::Keys(set(&[signer.named_jwk("one")]))).await;
    let broker = setting.options(&server.url(), 60).start();
    let told = broker.wait_log(SOON, |record| {
        let fields = &record["fields"];
        let message = fields["message"].as_str()?;
        message.starts_with("the key server gave no keys").then(|| fields["error"].to_string())
    });
    let told = told.expect("the operator is told");
    assert!(told.contains("certificate"), "{told}");
    assert_eq!(ready(&broker).await, 503);
    assert_eq!(server.asked(), 0, "nothing was said to it");
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_unknown_names_are_a_handful_of_questions_and_good_tokens_do_not_wait() {
    let setting = Setting::new();
    let signer = Signer::new("RS256");
    let keys = set(&[signer.named_jwk("one")]);
    let server = setting.server(Answering::Keys(keys.clone())).await;
    let broker = setting.options(&server.url(), 3600).start();
    until_ready(&broker).await;
    let good = broker.bearer(&signer.named_token("RS256", "one", &claims("alice")));
    let quiet = latencies(&good, 200).await;
    // Each question takes long now; nobody waits for it.
    server.answer(Answering::Slow(keys, Duration::from_secs(5)));
    let (asked, began) = (server.asked(), Instant::now());
    let bad: Vec<_> = (0..4)
        .map(|lane| {
            let anonymous = broker.anonymous();
            tokio::spawn(async move {
                for number in 0..2500 {
                    // Half of them the same name again and again.
                    let kid = if number % 2 == 0 { format!("{lane}-{number}") } else { "same".into() };
                    let header = json!({"alg": "RS256", "kid": kid}).to_string();
                    let token = crate::harness::token::sign(&header, "{}");
                    let info = r#"{"jsonrpc":"2.0","id":1,"method":"store/info"}"#;
                    let request = Outgoing::new(info).header("authorization", &format!("Bearer {token}"));
                    anonymous.send(request).await.http_error(401);
                }
            })
        })
        .collect();
    let mut loaded = Vec::new();
    while bad.iter().any(|lane| !lane.is_finished()) {
        loaded.extend(latencies(&good, 10).await);
    }
    for lane in bad {
        lane.await.unwrap();
    }
    let questions = server.asked() - asked;
    let most = began.elapsed().as_secs() / 5 + 2;
    println!(
        "10,000 unknown kids in {:?}: {questions} questions; good tokens p99 {:?} quiet, {:?} meanwhile ({} calls)",
        began.elapsed(),
        p99(quiet),
        p99(loaded.clone()),
        loaded.len()
    );
    assert!(questions as u64 <= most, "{questions} questions in {:?}", began.elapsed());
    assert!(p99(loaded) < Duration::from_secs(1));
}

async fn latencies(client: &crate::harness::Client, count: usize) -> Vec<Duration> {
    let mut latencies = Vec::new();
    for _ in 0..count {
        let began = Instant::now();
        client.call("store/info", json!({})).await.result();
        latencies.push(began.elapsed());
    }
    latencies
}

fn p99(mut latencies: Vec<Duration>) -> Duration {
    latencies.sort();
    latencies[latencies.len() * 99 / 100]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_never_answers_is_given_up_and_holds_up_nothing() {
    let setting = Setting::new();
    let signer = Signer::new("ES256");
    let server = setting.server(Answering::Silence).await;
    let mut broker = setting.options(&server.url(), 60).start();
    poll_until(SOON, "it is asked", async || (server.asked() == 1).then_some(())).await;
    assert_eq!(ready(&broker).await, 503);
    server.answer(Answering::Keys(set(&[signer.named_jwk("one")])));
    let told =
        poll_until(Duration::from_secs(20), "it is asked again", async || (server.asked() > 1).then_some(()));
    told.await;
    until_ready(&broker).await;
    server.answer(Answering::Silence);
    broker.sigterm();
    let status = tokio::task::block_in_place(|| broker.wait_exit(SOON));
    assert!(status.success(), "{status}");
}
