//! One connection to a broker that may die at any moment: blocking, kept alive, and a call may end without an answer.
//!
//! [`super::Client`] takes a missing answer for a failure of the test. Here it is an outcome, and a thread per link
//! gives exactly one call in flight per connection.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use bytes::Bytes;
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use serde_json::Value;

use super::answer::Answer;

/// How long a broker that lives may stay silent. No wait that is sent over a link lasts longer.
const READ_DEADLINE: Duration = Duration::from_secs(12);

/// One connection.
pub(crate) struct Link {
    stream: BufReader<TcpStream>,
    /// Every header line that does not depend on the call.
    head: String,
}

impl Link {
    /// Connects to a broker that listens.
    pub(crate) fn open(address: SocketAddr, token: Option<&str>) -> Self {
        Self::try_open(address, token).expect("a connection to a broker that listens")
    }

    /// Connects to a broker that may be gone.
    pub(crate) fn try_open(address: SocketAddr, token: Option<&str>) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(READ_DEADLINE))?;
        stream.set_write_timeout(Some(READ_DEADLINE))?;
        let mut head = format!("POST /rpc HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\n");
        if let Some(token) = token {
            head.push_str("authorization: Bearer ");
            head.push_str(token);
            head.push_str("\r\n");
        }
        Ok(Self { stream: BufReader::new(stream), head })
    }

    /// One call with the id 1. `None` when the connection ended before the whole answer was there.
    pub(crate) fn call(&mut self, method: &str, params: &str) -> Option<Answer> {
        let sent = self.send(method, params)?;
        self.answer(sent)
    }

    /// One call to a broker that lives.
    pub(crate) fn ask(&mut self, method: &str, params: &Value) -> Answer {
        self.call(method, &params.to_string()).unwrap_or_else(|| panic!("no answer to {method} {params}"))
    }

    /// Sends a call and does not wait for the answer; gives the beginning of its body, for messages. `None` when the
    /// connection is gone.
    pub(crate) fn send(&mut self, method: &str, params: &str) -> Option<String> {
        let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{params}}}"#);
        let request = format!("{}content-length: {}\r\n\r\n{body}", self.head, body.len());
        self.stream.get_mut().write_all(request.as_bytes()).ok()?;
        Some(body.chars().take(400).collect())
    }

    /// Turns this connection into a `store/watch`, and gives the params of one notification after the other to `see`
    /// until the connection ends.
    pub(crate) fn watch(mut self, mut see: impl FnMut(Value)) {
        self.head.push_str("accept: text/event-stream\r\n");
        let started = self.send("store/watch", "{}").is_some();
        let mut in_head = started;
        while in_head {
            let Some(line) = self.line() else { return };
            in_head = !line.is_empty();
        }
        let mut text = Vec::new();
        while let Some(size) = self.line().filter(|_| started) {
            // A chunk of the body, and the line end behind it.
            let size = usize::from_str_radix(&size, 16).unwrap_or_else(|_| panic!("not a chunk: {size}"));
            let mut chunk = vec![0; size + 2];
            if or_gone(self.stream.read_exact(&mut chunk)).is_none() {
                return;
            }
            text.extend_from_slice(&chunk[..size]);
            while let Some(end) = text.windows(2).position(|two| two == b"\n\n") {
                let message: Vec<u8> = text.drain(..end + 2).collect();
                let message = String::from_utf8(message).unwrap();
                if let Some(data) = message.lines().find_map(|line| line.strip_prefix("data:")) {
                    let notification: Value = serde_json::from_str(data).unwrap();
                    see(notification["params"].clone());
                }
            }
        }
    }

    fn answer(&mut self, sent: String) -> Option<Answer> {
        let status_line = self.line()?;
        let status = status_line.split(' ').nth(1).and_then(|status| status.parse().ok());
        let status = status.unwrap_or_else(|| panic!("not HTTP: {status_line}"));
        let mut headers = HeaderMap::new();
        loop {
            let line = self.line()?;
            let Some((name, value)) = line.split_once(':') else { break };
            let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
            headers.append(name, HeaderValue::from_str(value.trim()).unwrap());
        }
        let length = headers.get("content-length").map_or("0", |length| length.to_str().unwrap());
        let mut body = vec![0; length.parse().unwrap()];
        let read = self.stream.read_exact(&mut body);
        or_gone(read)?;
        Some(Answer { sent, status, headers, body: Bytes::from(body) })
    }

    /// One line of the head without its end.
    fn line(&mut self) -> Option<String> {
        let mut line = Vec::new();
        let read = self.stream.read_until(b'\n', &mut line);
        or_gone(read)?;
        let line = line.strip_suffix(b"\r\n")?;
        Some(String::from_utf8_lossy(line).into_owned())
    }
}

/// Silence is a failure; a connection that has ended is not.
fn or_gone<T>(read: io::Result<T>) -> Option<T> {
    if let Err(error) = &read {
        let silent = matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut);
        assert!(!silent, "the broker neither answered nor ended within {READ_DEADLINE:?}");
    }
    read.ok()
}
