//! An export from a running broker.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, Read as _};
use std::net::TcpStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hyper::Method;
use serde_json::{Value, json};

use crate::files::scratch;
use crate::harness::attempt::Start;
use crate::harness::{Auth, Broker, BrokerOptions, Store, id_of, token};
use crate::{DEADLINE, Ended, SECRET, command, json_lines, on, path, pipe, run, served};

const ADMIN: &str = "tasks:admin";

fn export(broker: &Broker, token: Option<&str>, out: &Path) -> Ended {
    let url = format!("http://{}", broker.address());
    let mut args = vec!["export".into(), "--url".into(), url.into(), "--out".into(), out.into()];
    let file = out.with_extension("token");
    if let Some(token) = token {
        fs::write(&file, format!("{token}\n")).unwrap();
        args.extend(["--token-file".into(), file.into()]);
    }
    run(&args)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_administrator_has_the_tasks_of_everybody_and_the_log_says_so() {
    for store in [Store::Sled, Store::Memory] {
        let files = scratch();
        let out = files.path().join("export");
        let broker = BrokerOptions::new(store).start();
        let alice = broker.user("alice");
        let id = id_of(&alice.create(json!({"arguments": {"text": SECRET}})).await);
        broker.anonymous().new_task().await;
        let admin = token::scoped("boss", ADMIN);
        let done = export(&broker, Some(&admin), &out).assert_code(0);
        assert!(done.stderr.starts_with("exported 2 tasks"), "{done:?}");
        let text = fs::read_to_string(&out).unwrap();
        assert!(text.contains(SECRET) && text.contains(&id));
        let ended = broker.wait_log(DEADLINE, |record| {
            (record["fields"]["message"] == "an export has ended").then(|| record["fields"].clone())
        });
        let ended = ended.unwrap();
        assert_eq!(
            (&ended["subject"], &ended["tasks"], &ended["end"]),
            (&json!("boss"), &json!(2), &json!("complete"))
        );
        assert!(broker.log_lines().iter().any(|line| line.contains("an export has begun")));
        assert!(!broker.log_lines().concat().contains(SECRET));
        let other = files.path().join("other");
        run(&on(&other, "import", &["--in", path(&out)])).assert_code(0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_else_has_it_and_no_file_is_left() {
    let files = scratch();
    let out = files.path().join("export");
    let broker = BrokerOptions::new(Store::Sled).start();
    broker.user("alice").new_task().await;
    for (token, named) in [
        (None, "tasks:admin"),
        (Some(token::good("alice")), "tasks:admin"),
        (Some(token::scoped("server", token::DELEGATE)), "tasks:admin"),
        (Some(token::expired("boss")), "401"),
        (Some("rubbish".to_owned()), "401"),
    ] {
        let refused = export(&broker, token.as_deref(), &out).assert_code(1);
        assert!(refused.stderr.contains(named), "{refused:?}");
        assert!(!out.exists() && !out.with_extension("partial").exists());
    }
    let refused = broker.user("alice").http(Method::POST, "/export").await.http_error(403);
    assert_eq!((refused.kind.as_str(), &refused.data["scope"]), ("forbidden", &json!("tasks:admin")));
    broker.anonymous().http(Method::GET, "/export").await.http_error(405);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_authentication_only_a_broker_on_loopback_gives_everything() {
    let files = scratch();
    let out = files.path().join("export");
    let broker = BrokerOptions::new(Store::Memory).auth(Auth::Off).start();
    broker.anonymous().new_task().await;
    export(&broker, None, &out).assert_code(0);
    fs::remove_file(&out).unwrap();
    // On the network nobody has it.
    let args = ["serve", "--listen", "0.0.0.0:0", "--store", "memory:", "--allow-anonymous-network"];
    let mut open = command(&args.map(Into::into)).spawn().unwrap();
    let log = std::io::BufReader::new(open.stderr.take().unwrap()).lines();
    let mut log = log.map(Result::unwrap).filter(|line| line.contains("listening"));
    let line = log.next().unwrap();
    let port: u16 = line.split("0.0.0.0:").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
    let refused = crate::harness::raw::exchange(
        ([127, 0, 0, 1], port).into(),
        "POST /export HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n",
    );
    open.kill().unwrap();
    open.wait().unwrap();
    assert_eq!(refused.status, 403, "{}", refused.body);
    let data = files.path().join("data");
    let serving = Start::on(&data).serve();
    let page = crate::harness::raw::exchange(
        serving.address,
        "POST /export HTTP/1.1\r\nhost: x\r\norigin: http://evil.example\r\ncontent-length: 0\r\n\r\n",
    );
    assert_eq!(page.status, 403, "a web page has nothing: {}", page.body);
    assert!(serving.stop(DEADLINE).status.success());
}

/// Under load: everything acknowledged before the export began and still alive is in it, each at a revision that it had
/// during the export, and it imports elsewhere with the same digest.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_export_under_load_has_every_task_at_a_revision_of_its_time() {
    let files = scratch();
    let (out, other) = (files.path().join("export"), files.path().join("other"));
    let broker = BrokerOptions::new(Store::Sled).auth(Auth::Off).start();
    let client = broker.anonymous();
    let mut before = BTreeMap::new();
    for n in 0..400 {
        let fill = "x".repeat(if n % 40 == 0 { 200_000 } else { 100 });
        let id = id_of(&client.create(json!({"arguments": {"fill": fill}, "ttlMs": 3_600_000})).await);
        before.insert(id, 1u64);
    }
    let stop = AtomicBool::new(false);
    let revision = |answer: Value| answer["revision"].as_u64().unwrap();
    let ids: Vec<_> = before.keys().cloned().collect();
    let load = async {
        let mut after = BTreeMap::new();
        for id in ids.iter().cycle() {
            if stop.load(Ordering::Acquire) {
                break;
            }
            let meta = json!({"taskId": id, "meta": {"n": after.len(), "fill": "y".repeat(2_000)}});
            after.insert(id.clone(), revision(client.call("store/setMeta", meta).await.result()));
            client.new_task().await;
        }
        after
    };
    let exporting = async {
        let (url, out) = (format!("http://{}", broker.address()), out.clone());
        let done = tokio::task::spawn_blocking(move || {
            run(&["export".into(), "--url".into(), url.into(), "--out".into(), out.into()])
        });
        let done = done.await.unwrap();
        stop.store(true, Ordering::Release);
        done
    };
    let (after, done) = tokio::join!(load, exporting);
    let done = done.assert_code(0);
    let lines = json_lines(&fs::read_to_string(&out).unwrap());
    let exported: BTreeMap<_, _> = lines[1..lines.len() - 1]
        .iter()
        .map(|line| (line["task"]["taskId"].as_str().unwrap().to_owned(), line["task"].clone()))
        .collect();
    assert_eq!(exported.len(), lines.len() - 2, "each task once");
    for (id, first) in &before {
        let task = exported.get(id).unwrap_or_else(|| panic!("{id} is missing"));
        let found = task["revision"].as_u64().unwrap();
        let last = after.get(id).copied().unwrap_or(*first);
        assert!((*first..=last).contains(&found), "{id} at {found}, not from {first} to {last}");
        let meta = task["meta"]["revision"].as_u64();
        assert_eq!(meta, (found > 1).then_some(found), "payloads of the same revision: {id}");
    }
    let imported = run(&on(&other, "import", &["--in", path(&out)])).assert_code(0);
    assert_eq!(imported.stdout.replace("imported", "exported"), done.stderr);
    let again = run(&on(&other, "export", &[])).assert_code(0);
    assert_eq!(again.stderr, done.stderr, "the import exports to an equal digest");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_takes_an_export_slowly_holds_nobody_up_and_the_end_cuts_it_off() {
    let files = scratch();
    let data = files.path().join("data");
    let broker = Start::on(&data).serve();
    let mut link = broker.link();
    let fill = "x".repeat(400_000);
    for _ in 0..40 {
        link.ask("store/create", &json!({"toolName": "t", "arguments": fill, "ttlMs": 3_600_000})).result();
    }
    let mut slow = TcpStream::connect(broker.address).unwrap();
    std::io::Write::write_all(&mut slow, b"POST /export HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n")
        .unwrap();
    let mut begun = [0; 1024];
    slow.read_exact(&mut begun).unwrap();
    assert!(begun.starts_with(b"HTTP/1.1 200"));
    // A second one waits for its turn; everybody else goes on.
    let url = format!("http://{}", broker.address);
    let second = run(&["export".into(), "--url".into(), url.into()]).assert_code(1);
    assert!(second.stderr.contains("503"), "{second:?}");
    for n in 0..50 {
        link.ask("store/create", &json!({"toolName": format!("while-{n}"), "ttlMs": 3_600_000})).result();
    }
    let stopped = broker.stop(Duration::from_secs(20));
    assert!(stopped.status.success(), "{stopped:?}");
    assert!(stopped.text().contains("an export has ended") && !stopped.text().contains("\"complete\""));
    let mut rest = Vec::new();
    drop(slow.read_to_end(&mut rest));
    let whole = [&begun[..], &rest].concat();
    let text = String::from_utf8_lossy(&whole);
    assert!(!text.contains("\"end\""), "what was cut off has no last line");
    let (_, body) = text.split_once("\r\n\r\n").unwrap();
    pipe(&on(&files.path().join("other"), "import", &["--in", "-"]), body.as_bytes()).assert_code(1);
    assert_eq!(served(&data).len(), 90);
}
