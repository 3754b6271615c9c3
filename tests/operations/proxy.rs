//! Behind a proxy with its usual settings: streams come through at once and stay open, waits end in time (cases F06
//! and F13). The proxy is nginx, of the Debian package nginx-light, with a configuration of its own.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::{Broker, free_address, get, post, start_with, wait_for};

/// A private nginx, ended when this is dropped.
struct Proxy {
    child: Child,
    address: SocketAddr,
    _files: tempfile::TempDir,
}

impl Drop for Proxy {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// nginx where it is installed. Where CI runs it must be.
fn nginx() -> Option<&'static str> {
    let places = ["/usr/sbin/nginx", "/usr/bin/nginx", "/usr/local/sbin/nginx", "/usr/local/bin/nginx"];
    let found = places.into_iter().find(|place| Path::new(place).exists());
    assert!(found.is_some() || std::env::var_os("CI").is_none(), "nginx is missing: package nginx-light");
    found
}

/// nginx before a broker, with everything as it comes but for what is given.
fn proxy(nginx: &str, broker: &Broker, more: &str) -> Proxy {
    let files = tempfile::tempdir().unwrap();
    let address = free_address();
    let directory = files.path().display();
    let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|name| format!("{name}_temp_path {directory}/{name};\n"))
        .concat();
    let configuration = format!(
        "daemon off;\nmaster_process off;\npid {directory}/pid;\nerror_log stderr;\nevents {{}}\nhttp {{\naccess_log off;\n\
         {temporary}server {{\nlisten {address};\nlocation / {{\nproxy_pass http://{};\n{more}\n}}\n}}\n}}\n",
        broker.address
    );
    let path = files.path().join("nginx.conf");
    std::fs::write(&path, configuration).unwrap();
    let mut command = Command::new(nginx);
    command.arg("-e").arg("stderr").arg("-p").arg(files.path()).arg("-c").arg(&path);
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let proxy = Proxy { child, address, _files: files };
    wait_for("nginx serves", || get(address, "/livez").is_some_and(|answer| answer.contains(" 200 ")));
    proxy
}

/// The lines of a stream with the times at which they came.
struct Stream {
    lines: BufReader<TcpStream>,
    began: Instant,
}

impl Stream {
    fn open(address: SocketAddr) -> Self {
        let body = r#"{"jsonrpc":"2.0","id":1,"method":"store/watch"}"#;
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(14))).unwrap();
        write!(
            stream,
            "POST /rpc HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\naccept: text/event-stream\r\n\
             content-length: {}\r\n\r\n{body}",
            body.len()
        )
        .unwrap();
        Self { lines: BufReader::new(stream), began: Instant::now() }
    }

    /// Reads up to a line that holds this, and gives all of them.
    fn until(&mut self, wanted: &str) -> Vec<String> {
        let mut seen: Vec<String> = Vec::new();
        while !seen.last().is_some_and(|line| line.contains(wanted)) {
            let mut line = String::new();
            let count = self.lines.read_line(&mut line);
            assert!(
                count.is_ok_and(|count| count > 0),
                "the stream ended after {:?}: {seen:?}",
                self.began.elapsed()
            );
            seen.push(line.trim_end().to_owned());
        }
        seen
    }
}

fn call(address: SocketAddr, method: &str, params: &str) -> String {
    post(address, b"", &format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{params}}}"#))
}

fn new_task(address: SocketAddr) -> String {
    let answer = call(address, "store/create", r#"{"toolName":"x"}"#);
    let (_, rest) = answer.split_once("\"taskId\":\"").unwrap_or_else(|| panic!("{answer}"));
    rest[..32].to_owned()
}

/// A quiet stream through a proxy is open after `quiet`, and then an event comes through at once.
fn quiet_stream(address: SocketAddr, quiet: Duration) {
    let id = new_task(address);
    let mut stream = Stream::open(address);
    let head = stream.until("store/synced").join("\n").to_lowercase();
    assert!(stream.began.elapsed() < Duration::from_secs(1), "the first bytes come at once");
    assert!(head.contains("content-type: text/event-stream"), "{head}");
    assert!(head.contains("cache-control: no-cache, no-transform"), "{head}");
    let mut comments = 0;
    while stream.began.elapsed() < quiet {
        // A comment, and no event.
        let seen = stream.until(":");
        assert!(!seen.iter().any(|line| line.contains("data:") || line.contains("event:")), "{seen:?}");
        comments += 1;
    }
    assert!(comments >= 1);
    let done = Instant::now();
    call(address, "store/complete", &format!(r#"{{"taskId":"{id}","result":{{}}}}"#));
    let seen = stream.until("\"kind\":\"complete\"");
    assert!(done.elapsed() < Duration::from_secs(1), "{:?}: {seen:?}", done.elapsed());
}

#[test]
fn a_quiet_stream_stays_open_and_an_event_comes_at_once() {
    let Some(nginx) = nginx() else { return };
    let broker = start_with(&["--store", "memory:"], "info", Stdio::null());
    // Silence of more than this would end the stream.
    let proxy = proxy(nginx, &broker, "proxy_read_timeout 12s;");
    quiet_stream(proxy.address, Duration::from_secs(13));
}

#[test]
fn a_wait_that_is_shorter_than_the_proxys_limit_is_answered_through_it() {
    let Some(nginx) = nginx() else { return };
    let broker = start_with(&["--store", "memory:"], "info", Stdio::null());
    let proxy = proxy(nginx, &broker, "");
    let id = new_task(proxy.address);
    for (timeout, limit) in [("0", 1), ("1000", 3)] {
        let began = Instant::now();
        let params = format!(r#"{{"taskId":"{id}","timeoutMs":{timeout}}}"#);
        let answer = call(proxy.address, "store/wait", &params);
        assert!(
            answer.contains("\"timedOut\":true") && answer.contains("\"status\":\"working\""),
            "{answer}"
        );
        assert!(began.elapsed() < Duration::from_secs(limit), "{:?}", began.elapsed());
    }
    let told = call(proxy.address, "store/info", "{}");
    assert!(told.contains("\"maxWaitMs\":50000"), "below the 60 s after which proxies give up: {told}");
}

/// The same at full length, behind nginx as it comes: `cargo test --test operations proxy -- --ignored`.
#[test]
#[ignore = "takes 150 s"]
fn at_full_length_a_stream_outlives_the_proxys_limit_and_a_wait_ends_before_it() {
    let nginx = nginx().expect("nginx");
    let broker = start_with(&["--store", "memory:"], "info", Stdio::null());
    let proxy = proxy(nginx, &broker, "");
    let address = proxy.address;
    let id = new_task(address);
    std::thread::scope(|scope| {
        for timeout in ["59000", "61000", "3600000", "1000000000000000000"] {
            let id = &id;
            scope.spawn(move || {
                let body = format!(
                    r#"{{"jsonrpc":"2.0","id":1,"method":"store/wait","params":{{"taskId":"{id}","timeoutMs":{timeout}}}}}"#
                );
                let began = Instant::now();
                let mut stream = TcpStream::connect(address).unwrap();
                write!(
                    stream,
                    "POST /rpc HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: application/json\r\n\
                     content-length: {}\r\n\r\n{body}",
                    body.len()
                )
                .unwrap();
                let mut answer = String::new();
                stream.read_to_string(&mut answer).unwrap();
                assert!(answer.contains("\"timedOut\":true"), "{timeout}: {answer}");
                let took = began.elapsed().as_secs();
                assert!((49..60).contains(&took), "{timeout}: {took} s");
            });
        }
        scope.spawn(|| quiet_stream(address, Duration::from_secs(150)));
    });
}
