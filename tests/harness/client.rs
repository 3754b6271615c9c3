//! A client over real TCP, with keep-alive.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap};
use hyper::{Method, Request, Response};
use hyper_util::client::legacy::Client as Pool;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};

use super::answer::Answer;
use super::sse::EventStream;

/// How long one answer may take; well above everything that the tests wait for.
const ANSWER_DEADLINE: Duration = Duration::from_secs(20);

/// A client of one broker, for one caller. It belongs to the runtime of the test that made it; clones share its
/// connections.
#[derive(Clone)]
pub(crate) struct Client {
    pool: Pool<HttpConnector, Full<Bytes>>,
    address: SocketAddr,
    token: Option<String>,
    subject: Option<String>,
}

/// A request to `/rpc` in the making, for tests of the transport itself.
pub(crate) struct Outgoing {
    request: Request<Full<Bytes>>,
    text: String,
}

impl Outgoing {
    /// A POST of `body` with `Content-Type: application/json` and nothing else.
    pub(crate) fn new(body: impl Into<Vec<u8>>) -> Self {
        let body = body.into();
        let text = String::from_utf8_lossy(&body[..body.len().min(400)]).into_owned();
        let mut request = Request::new(Full::new(Bytes::from(body)));
        *request.method_mut() = Method::POST;
        request.headers_mut().insert(CONTENT_TYPE, "application/json".parse().unwrap());
        Self { request, text }
    }

    /// Sets a header, in place of one that was there.
    pub(crate) fn header(mut self, name: &'static str, value: &str) -> Self {
        self.request.headers_mut().insert(name, value.parse().unwrap());
        self
    }

    /// Adds a header beside those that are there.
    pub(crate) fn second_header(mut self, name: &'static str, value: &str) -> Self {
        self.request.headers_mut().append(name, value.parse().unwrap());
        self
    }

    /// Takes a header away.
    pub(crate) fn without(mut self, name: &str) -> Self {
        self.request.headers_mut().remove(name);
        self
    }
}

impl Client {
    pub(crate) fn new(address: SocketAddr, token: Option<String>) -> Self {
        let pool = Pool::builder(TokioExecutor::new()).build_http();
        Self { pool, address, token, subject: None }
    }

    /// The same caller over sockets that take in next to nothing, so that a reader who does not read is felt soon.
    pub(crate) fn with_small_buffers(mut self) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_recv_buffer_size(Some(4096));
        self.pool = Pool::builder(TokioExecutor::new()).build(connector);
        self
    }

    pub(crate) fn with_subject(mut self, subject: &str) -> Self {
        self.subject = Some(subject.to_owned());
        self
    }

    /// The subject of the token; fails for a client that has none.
    pub(crate) fn subject(&self) -> &str {
        self.subject.as_deref().expect("this client has a subject")
    }

    /// What a row shows as owner or creator for this caller: the subject, or null.
    pub(crate) fn principal(&self) -> Value {
        self.subject.clone().map_or(Value::Null, Value::String)
    }

    /// Where the broker of this client listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The text of the token; fails for a client that has none.
    pub(crate) fn token(&self) -> &str {
        self.token.as_deref().expect("this client has a token")
    }

    /// One call with the id 1.
    pub(crate) async fn call(&self, method: &str, params: Value) -> Answer {
        self.call_text(method, &params.to_string()).await
    }

    /// One call whose params are sent as they are written here.
    pub(crate) async fn call_text(&self, method: &str, params: &str) -> Answer {
        let method = Value::from(method);
        self.post(format!(r#"{{"jsonrpc":"2.0","id":1,"method":{method},"params":{params}}}"#)).await
    }

    /// A POST of `body` to `/rpc`.
    pub(crate) async fn post(&self, body: impl Into<Vec<u8>>) -> Answer {
        self.send(Outgoing::new(body)).await
    }

    /// Sends a request to `/rpc`; the caller's token is added unless the request brings its own `Authorization`.
    pub(crate) async fn send(&self, outgoing: Outgoing) -> Answer {
        let text = outgoing.text.clone();
        let response = self.exchange("/rpc", outgoing.request).await;
        read(text, response).await
    }

    /// A request with another method or to another path, without a body.
    pub(crate) async fn http(&self, method: Method, path: &str) -> Answer {
        let text = format!("{method} {path}");
        let mut request = Request::new(Full::new(Bytes::new()));
        *request.method_mut() = method;
        let response = self.exchange(path, request).await;
        read(text, response).await
    }

    /// Opens `store/watch` and checks that it is a stream.
    pub(crate) async fn watch(&self, params: Value) -> EventStream {
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": "store/watch", "params": params});
        let mut request = Outgoing::new(body.to_string()).request;
        request.headers_mut().insert(ACCEPT, "text/event-stream".parse().unwrap());
        let response = self.exchange("/rpc", request).await;
        if response.status() != 200 {
            let answer = read(body.to_string(), response).await;
            panic!("the watch was refused: {answer}");
        }
        EventStream::new(response)
    }

    async fn exchange(&self, path: &str, mut request: Request<Full<Bytes>>) -> Response<Incoming> {
        *request.uri_mut() = format!("http://{}{path}", self.address).parse().unwrap();
        if let Some(token) = &self.token
            && !request.headers().contains_key(AUTHORIZATION)
        {
            request.headers_mut().insert(AUTHORIZATION, format!("Bearer {token}").parse().unwrap());
        }
        let response = tokio::time::timeout(ANSWER_DEADLINE, self.pool.request(request)).await;
        response.expect("an answer within the deadline").expect("an answer")
    }

    // The calls that almost every test makes.

    /// Creates a task with these params over `toolName: "tool"`, and gives the snapshot.
    pub(crate) async fn create(&self, params: Value) -> Value {
        let mut all = json!({"toolName": "tool"});
        all.as_object_mut().unwrap().extend(params.as_object().unwrap().clone());
        self.call("store/create", all).await.result()
    }

    /// Creates a task with nothing but a tool name, and gives its id.
    pub(crate) async fn new_task(&self) -> String {
        id_of(&self.create(json!({})).await)
    }

    /// Creates a task that waits for the answer to the questions with these keys.
    pub(crate) async fn asking_task(&self, keys: &[&str]) -> String {
        let id = self.new_task().await;
        self.ask(&id, keys).await;
        id
    }

    /// Asks under these keys, and gives the outcome.
    pub(crate) async fn ask(&self, id: &str, keys: &[&str]) -> Value {
        let questions: serde_json::Map<_, _> =
            keys.iter().map(|key| ((*key).to_owned(), question(key))).collect();
        self.call("store/requireInput", json!({"taskId": id, "inputRequests": questions})).await.result()
    }

    /// Answers the questions with these keys, and gives the outcome.
    pub(crate) async fn reply(&self, id: &str, keys: &[&str]) -> Value {
        let responses: serde_json::Map<_, _> =
            keys.iter().map(|key| ((*key).to_owned(), accept(key))).collect();
        self.call("store/applyInput", json!({"taskId": id, "inputResponses": responses})).await.result()
    }

    /// The snapshot of a task.
    pub(crate) async fn get(&self, id: &str) -> Value {
        self.call("store/get", json!({"taskId": id})).await.result()
    }

    /// A task that expired while it was waiting for an answer.
    pub(crate) async fn expired_task(&self) -> String {
        let id = self.asking_task(&["k1"]).await;
        self.call("store/setTtl", json!({"taskId": id, "ttlMs": 0})).await.result();
        id
    }

    /// Reads a task until it is gone, and fails when it is still there after `deadline`.
    pub(crate) async fn until_gone(&self, id: &str, deadline: Duration) {
        poll_until(deadline, "the task is gone", async || {
            let answer = self.call("store/get", json!({"taskId": id})).await;
            answer.is_error().then(|| assert_eq!(answer.error().kind, "task_not_found"))
        })
        .await;
    }
}

/// Asks again and again until there is something, for what gives no signal of its own.
pub(crate) async fn poll_until<T>(
    deadline: Duration,
    what: &str,
    mut ask: impl AsyncFnMut() -> Option<T>,
) -> T {
    let end = tokio::time::Instant::now() + deadline;
    loop {
        if let Some(found) = ask().await {
            return found;
        }
        assert!(tokio::time::Instant::now() < end, "not within {deadline:?}: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// A question as an MCP server would ask it.
pub(crate) fn question(text: &str) -> Value {
    let params = json!({"mode": "form", "message": text, "requestedSchema": {"type": "object"}});
    json!({"method": "elicitation/create", "params": params})
}

/// An answer as an MCP client would give it.
pub(crate) fn accept(text: &str) -> Value {
    json!({"action": "accept", "content": {"answer": text}})
}

/// The id of the task in a snapshot or row.
pub(crate) fn id_of(snapshot: &Value) -> String {
    snapshot["task"]["taskId"].as_str().unwrap_or_else(|| panic!("no task.taskId in {snapshot}")).to_owned()
}

async fn read(sent: String, response: Response<Incoming>) -> Answer {
    let (head, body) = response.into_parts();
    let body = tokio::time::timeout(ANSWER_DEADLINE, body.collect()).await.expect("a whole body in time");
    let headers: HeaderMap = head.headers;
    Answer { sent, status: head.status.as_u16(), headers, body: body.expect("a whole body").to_bytes() }
}
