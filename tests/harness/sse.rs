//! A reader of `text/event-stream`.

use std::collections::VecDeque;
use std::time::Duration;

use http_body_util::BodyExt as _;
use hyper::Response;
use hyper::body::Incoming;
use hyper::header::HeaderMap;
use serde_json::Value;

/// How long a test waits for the next message.
const MESSAGE_DEADLINE: Duration = Duration::from_secs(8);

/// One message of a stream.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Message {
    /// The `id:` line, which is the position.
    pub(crate) id: String,
    /// The JSON-RPC method of the notification.
    pub(crate) method: String,
    /// The JSON-RPC params of the notification.
    pub(crate) params: Value,
}

impl Message {
    /// The kind of a `store/event`.
    pub(crate) fn kind(&self) -> &str {
        self.params["kind"].as_str().unwrap_or_else(|| panic!("no kind: {self:?}"))
    }

    /// The position, as the params have it.
    pub(crate) fn position(&self) -> &Value {
        &self.params["position"]
    }
}

/// An open stream.
pub(crate) struct EventStream {
    pub(crate) headers: HeaderMap,
    /// The comments so far; heartbeats are comments.
    pub(crate) comments: Vec<String>,
    body: Incoming,
    pending: Vec<u8>,
    ready: VecDeque<Message>,
}

impl EventStream {
    pub(crate) fn new(response: Response<Incoming>) -> Self {
        let (head, body) = response.into_parts();
        let ready = VecDeque::new();
        Self { headers: head.headers, comments: Vec::new(), body, pending: Vec::new(), ready }
    }

    /// The next message; comments before it are collected. Fails at the end of the stream, or when none comes.
    pub(crate) async fn next(&mut self) -> Message {
        self.next_or_end().await.expect("a message before the end of the stream")
    }

    /// The next message, or `None` at the end of the stream.
    pub(crate) async fn next_or_end(&mut self) -> Option<Message> {
        tokio::time::timeout(MESSAGE_DEADLINE, self.read_message())
            .await
            .expect("a message or the end in time")
    }

    /// The next `store/event` about this task; other events are skipped.
    pub(crate) async fn next_about(&mut self, id: &str) -> Message {
        loop {
            let message = self.next().await;
            assert_eq!(message.method, "store/event", "{message:?}");
            if message.params["taskId"] == id {
                return message;
            }
        }
    }

    /// Reads until a comment has come after those that are known.
    pub(crate) async fn next_comment(&mut self, deadline: Duration) -> String {
        let known = self.comments.len();
        let comment = async {
            while self.comments.len() == known {
                assert!(self.read_more().await, "a comment before the end of the stream");
            }
        };
        tokio::time::timeout(deadline, comment).await.expect("a comment in time");
        self.comments[known].clone()
    }

    /// The first message of a stream: `store/synced`, and whether it says `reset`.
    pub(crate) async fn synced(&mut self) -> bool {
        let first = self.next().await;
        assert_eq!(first.method, "store/synced", "{first:?}");
        assert!(first.params.get("position").is_some(), "{first:?}");
        first.params["reset"].as_bool().unwrap_or_else(|| panic!("no reset: {first:?}"))
    }

    async fn read_message(&mut self) -> Option<Message> {
        loop {
            if let Some(message) = self.ready.pop_front() {
                return Some(message);
            }
            if !self.read_more().await {
                return None;
            }
        }
    }

    /// Reads one more piece of the body and takes it apart; false at the end.
    async fn read_more(&mut self) -> bool {
        let more = match self.body.frame().await {
            Some(Ok(frame)) => {
                if let Ok(data) = frame.into_data() {
                    self.pending.extend(data.iter().filter(|byte| **byte != b'\r'));
                }
                true
            }
            Some(Err(error)) => panic!("the stream broke off: {error}"),
            None => false,
        };
        while let Some(end) = self.pending.windows(2).position(|window| window == b"\n\n") {
            let block: Vec<u8> = self.pending.drain(..end + 2).collect();
            self.take(std::str::from_utf8(&block).unwrap());
        }
        more
    }

    /// Takes in one block: its comments, and its message if it has one.
    fn take(&mut self, block: &str) {
        if let Some(message) = self.parse(block) {
            self.ready.push_back(message);
        }
    }

    fn parse(&mut self, block: &str) -> Option<Message> {
        let (mut id, mut data) = (None, None::<String>);
        for line in block.lines() {
            if let Some(comment) = line.strip_prefix(':') {
                self.comments.push(comment.trim().to_owned());
                continue;
            }
            let (name, value) = line.split_once(':').unwrap_or((line, ""));
            let value = value.strip_prefix(' ').unwrap_or(value);
            match name {
                "id" => id = Some(value.to_owned()),
                "data" => {
                    data = Some(data.map_or_else(|| value.to_owned(), |before| format!("{before}\n{value}")));
                }
                _ => {}
            }
        }
        let data = data?;
        let notification: Value =
            serde_json::from_str(&data).unwrap_or_else(|error| panic!("{error}: {data}"));
        assert_eq!(notification["jsonrpc"], "2.0", "{data}");
        assert!(notification.get("id").is_none(), "a notification has no id: {data}");
        Some(Message {
            id: id.unwrap_or_else(|| panic!("a message without an id line: {data}")),
            method: notification["method"].as_str().unwrap_or_default().to_owned(),
            params: notification["params"].clone(),
        })
    }
}
