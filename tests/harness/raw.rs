//! HTTP by hand, for requests that no well-behaved client would send. Blocking, with deadlines.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// How long the broker may stay silent.
const READ_DEADLINE: Duration = Duration::from_secs(10);

/// One connection.
pub(crate) struct Connection {
    stream: TcpStream,
    received: Vec<u8>,
}

/// One answer, taken apart just enough.
#[derive(Debug)]
pub(crate) struct RawAnswer {
    pub(crate) status: u16,
    /// Status line and headers, in lower case.
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Connection {
    pub(crate) fn open(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(READ_DEADLINE)).unwrap();
        stream.set_write_timeout(Some(READ_DEADLINE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream, received: Vec::new() }
    }

    /// Writes these bytes; the broker may have closed its side already, which the answer will tell.
    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        drop(self.stream.write_all(bytes.as_ref()));
    }

    /// Whether the broker has closed the connection, waiting for it at most this long.
    pub(crate) fn is_closed(&mut self, wait: Duration) -> bool {
        self.stream.set_read_timeout(Some(wait)).unwrap();
        let mut buffer = [0; 1024];
        match self.stream.read(&mut buffer) {
            Ok(0) => true,
            Ok(_) => false,
            Err(error) => !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
        }
    }

    /// The socket.
    pub(crate) fn into_stream(self) -> TcpStream {
        self.stream
    }

    /// Reads one answer; fails when the connection ends without one.
    pub(crate) fn answer(&mut self) -> RawAnswer {
        let answer = self.try_answer();
        answer.unwrap_or_else(|| panic!("the connection ended without an answer: {:?}", self.received_text()))
    }

    /// Reads one answer, or none if the connection ends without. The end of the stream ends a body of unknown length.
    pub(crate) fn try_answer(&mut self) -> Option<RawAnswer> {
        let end = loop {
            if let Some(at) = self.received.windows(4).position(|window| window == b"\r\n\r\n") {
                break at;
            }
            if !self.read_more() {
                return None;
            }
        };
        let head = String::from_utf8_lossy(&self.received[..end]).to_ascii_lowercase();
        self.received.drain(..end + 4);
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
        let status = status.unwrap_or_else(|| panic!("not HTTP: {head}"));
        let length = header(&head, "content-length").and_then(|length| length.parse::<usize>().ok());
        let length = if status == 204 || status == 202 { length.or(Some(0)) } else { length };
        while length.is_none_or(|length| self.received.len() < length) && self.read_more() {}
        let body =
            self.received.drain(..length.unwrap_or(self.received.len()).min(self.received.len())).collect();
        Some(RawAnswer { status, head, body: String::from_utf8(body).unwrap() })
    }

    fn read_more(&mut self) -> bool {
        let mut buffer = [0; 16 * 1024];
        match self.stream.read(&mut buffer) {
            Ok(0) | Err(_) => false,
            Ok(count) => {
                self.received.extend_from_slice(&buffer[..count]);
                true
            }
        }
    }

    fn received_text(&self) -> String {
        String::from_utf8_lossy(&self.received).into_owned()
    }
}

impl RawAnswer {
    /// The value of a header, in lower case.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        header(&self.head, name)
    }
}

/// Sends these bytes over a connection of their own, and reads one answer.
pub(crate) fn exchange(address: SocketAddr, bytes: impl AsRef<[u8]>) -> RawAnswer {
    let mut connection = Connection::open(address);
    connection.send(bytes);
    connection.answer()
}

/// Like [`exchange`], for bytes on which the broker may well close the connection without a word.
pub(crate) fn try_exchange(address: SocketAddr, bytes: impl AsRef<[u8]>) -> Option<RawAnswer> {
    let mut connection = Connection::open(address);
    connection.send(bytes);
    connection.try_answer()
}

/// A POST to `/rpc` with these extra header lines, each with its line end, and `Connection: close`.
pub(crate) fn post(address: SocketAddr, header_lines: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!(
        "POST /rpc HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Length: {length}\r\n\
         {header_lines}\r\n{body}"
    )
    .into_bytes()
}

fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}
