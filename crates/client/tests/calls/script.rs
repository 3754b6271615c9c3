//! A server that answers each request with the next step of a script, and remembers what it was asked.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use task_broker_client::{Client, ClientBuilder};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio_rustls::TlsAcceptor;

/// What happens to one request.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    /// It is answered with this result.
    Result(Value),
    /// It is answered with an error: code, message and data.
    Error(i32, Value),
    /// The connection is closed after the request was read, and nothing is answered.
    Cut,
    /// A part of an answer, and the connection is closed.
    Partial,
    /// Any HTTP answer: status line, headers, body.
    Http(&'static str, Vec<(&'static str, String)>, String),
    /// It is answered as soon as somebody says so.
    After(Arc<Notify>, Box<Step>),
    /// It is never answered.
    Silence,
}

/// One request as it came.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) head: String,
    pub(crate) body: Value,
}

impl Seen {
    /// The value of a header, as it came.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let named = |line: &&str| line.split_once(':').is_some_and(|(key, _)| key.eq_ignore_ascii_case(name));
        self.head.lines().find(named).map(|line| line.split_once(':').unwrap().1.trim())
    }

    pub(crate) fn key(&self) -> &str {
        self.body["params"]["idempotencyKey"].as_str().expect("a changing call has a key")
    }
}

#[derive(Default)]
struct State {
    steps: Mutex<VecDeque<Step>>,
    seen: Mutex<Vec<Seen>>,
    arrived: Notify,
}

pub(crate) struct Script {
    state: Arc<State>,
    url: String,
    work: tokio::task::JoinHandle<()>,
}

impl Drop for Script {
    fn drop(&mut self) {
        self.work.abort();
    }
}

impl Script {
    pub(crate) async fn new(steps: impl IntoIterator<Item = Step>) -> Self {
        Self::start(steps, None).await
    }

    /// The same behind TLS, as `localhost`.
    #[cfg(feature = "tls")]
    pub(crate) async fn with_tls(steps: impl IntoIterator<Item = Step>, tls: TlsAcceptor) -> Self {
        Self::start(steps, Some(tls)).await
    }

    async fn start(steps: impl IntoIterator<Item = Step>, tls: Option<TlsAcceptor>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let url = match tls {
            Some(_) => format!("https://localhost:{}", address.port()),
            None => format!("http://{address}"),
        };
        let state = Arc::new(State { steps: Mutex::new(steps.into_iter().collect()), ..State::default() });
        let work = tokio::spawn({
            let state = Arc::clone(&state);
            async move {
                while let Ok((stream, _)) = listener.accept().await {
                    let (state, tls) = (Arc::clone(&state), tls.clone());
                    tokio::spawn(async move {
                        match tls {
                            None => serve(stream, state).await,
                            // A client that does not trust the certificate goes away in the middle of it.
                            Some(tls) => {
                                if let Ok(stream) = tls.accept(stream).await {
                                    serve(stream, state).await;
                                }
                            }
                        }
                    });
                }
            }
        });
        Self { state, url, work }
    }

    pub(crate) fn builder(&self) -> ClientBuilder {
        Client::builder(&self.url)
    }

    pub(crate) fn client(&self) -> Client {
        self.builder().build().unwrap()
    }

    /// Everything that was asked so far. The script has to be at its end.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        assert!(self.state.steps.lock().unwrap().is_empty(), "not everything of the script was asked for");
        self.so_far()
    }

    pub(crate) fn so_far(&self) -> Vec<Seen> {
        self.state.seen.lock().unwrap().clone()
    }

    /// Waits until so many requests have come.
    pub(crate) async fn arrived(&self, count: usize) {
        while self.so_far().len() < count {
            self.state.arrived.notified().await;
        }
    }
}

async fn serve(mut stream: impl AsyncRead + AsyncWrite + Unpin, state: Arc<State>) {
    while let Some(seen) = read(&mut stream).await {
        let id = seen.body["id"].clone();
        let mut step =
            state.steps.lock().unwrap().pop_front().expect("the script has a step for each request");
        state.seen.lock().unwrap().push(seen);
        state.arrived.notify_one();
        while let Step::After(signal, then) = step {
            signal.notified().await;
            step = *then;
        }
        let answer = match step {
            Step::Result(result) => ok(&json!({"jsonrpc": "2.0", "id": id, "result": result}).to_string()),
            Step::Error(code, data) => {
                let error = json!({"code": code, "message": "told so", "data": data});
                ok(&json!({"jsonrpc": "2.0", "id": id, "error": error}).to_string())
            }
            Step::Http(status, headers, body) => http(status, &headers, &body),
            Step::Partial => {
                let whole = ok(&json!({"jsonrpc": "2.0", "id": id, "result": {}}).to_string());
                let half = whole.len() - 10;
                stream.write_all(&whole.as_bytes()[..half]).await.unwrap();
                return;
            }
            Step::Silence => std::future::pending().await,
            Step::Cut | Step::After(..) => return,
        };
        if stream.write_all(answer.as_bytes()).await.is_err() {
            return;
        }
    }
}

fn ok(body: &str) -> String {
    http("200 OK", &[("content-type", "application/json".to_owned())], body)
}

fn http(status: &str, headers: &[(&str, String)], body: &str) -> String {
    let mut answer = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n", body.len());
    for (name, value) in headers {
        write!(answer, "{name}: {value}\r\n").unwrap();
    }
    answer + "\r\n" + body
}

async fn read(stream: &mut (impl AsyncRead + Unpin)) -> Option<Seen> {
    let mut text = Vec::new();
    let head = loop {
        if let Some(end) = text.windows(4).position(|end| end == b"\r\n\r\n") {
            break end + 4;
        }
        more(stream, &mut text).await?;
    };
    let seen = Seen { head: String::from_utf8(text[..head].to_vec()).unwrap(), body: Value::Null };
    let length: usize = seen.header("content-length").unwrap().parse().unwrap();
    while text.len() < head + length {
        more(stream, &mut text).await?;
    }
    Some(Seen { body: serde_json::from_slice(&text[head..]).unwrap(), ..seen })
}

async fn more(stream: &mut (impl AsyncRead + Unpin), text: &mut Vec<u8>) -> Option<()> {
    let mut piece = [0; 4096];
    let read = stream.read(&mut piece).await.ok().filter(|read| *read > 0)?;
    text.extend_from_slice(&piece[..read]);
    Some(())
}

/// A snapshot as a broker gives it.
pub(crate) fn snapshot() -> Value {
    json!({
        "task": {
            "taskId": "8c1f", "status": "working", "createdAt": "2026-01-01T00:00:00.000Z",
            "lastUpdatedAt": "2026-01-01T00:00:00.000Z", "ttlMs": 1000, "pollIntervalMs": 100,
        },
        "owner": null, "toolName": "tool", "revision": 1, "remainingMs": 1000, "cancelRequested": false,
        "inputRequests": {},
    })
}

pub(crate) fn outcome() -> Value {
    json!({"applied": true, "status": "completed", "revision": 2})
}

pub(crate) fn not_found() -> Step {
    Step::Error(-32602, json!({"kind": "task_not_found"}))
}

/// Not now, and again after a moment.
pub(crate) fn unavailable() -> Step {
    Step::Error(1006, json!({"kind": "unavailable", "retryAfterMs": 1}))
}

/// A broker that is about to stop.
pub(crate) fn draining() -> Step {
    Step::Http("503 Service Unavailable", vec![("retry-after", "0".to_owned())], String::new())
}
