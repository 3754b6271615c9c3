//! One keep-alive HTTP/1.1 connection, as lean as it can be.
//!
//! The generator shares two cores with the server that it measures. What it spends itself is spent in every arm
//! of a comparison and pulls each ratio towards 1, so it sends ready-made bytes and reads no more of an answer's
//! head than it needs.

use std::net::SocketAddr;

use anyhow::{Context as _, Result, bail, ensure};
use bytes::BytesMut;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// More than any answer asked for here: a page of 1,000 rows, or a batch's answer at the broker's own limit.
const MAX_ANSWER: usize = 17 << 20;

/// Room for the headers of an answer.
const MAX_HEADERS: usize = 32;

/// A ready-made `POST` with a JSON body.
pub(crate) fn post(path: &str, body: &str) -> Vec<u8> {
    post_as(None, path, body)
}

/// The same by whoever has this token.
pub(crate) fn post_as(token: Option<&str>, path: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    let authorization = token.map(|token| format!("authorization: Bearer {token}\r\n")).unwrap_or_default();
    format!(
        "POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\n{authorization}content-type: application/json\r\n\
         content-length: {length}\r\n\r\n{body}"
    )
    .into_bytes()
}

/// A ready-made `GET`.
pub(crate) fn get(path: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n").into_bytes()
}

/// A connection to a server on the loopback interface, with one request at a time.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: TcpStream,
    input: BytesMut,
    closes: bool,
}

impl Connection {
    /// Connects.
    pub(crate) async fn open(address: SocketAddr) -> Result<Self> {
        ensure!(address.ip().is_loopback(), "{address} is not on the loopback interface");
        let stream = TcpStream::connect(address).await.with_context(|| format!("connecting to {address}"))?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, input: BytesMut::with_capacity(16 << 10), closes: false })
    }

    /// Whether the last answer said that it is the last one of this connection.
    pub(crate) const fn closes(&self) -> bool {
        self.closes
    }

    /// Sends a ready-made request and gives the body of its answer, which must be a 200.
    pub(crate) async fn exchange(&mut self, request: &[u8]) -> Result<&[u8]> {
        let (status, body) = self.exchange_any(request).await?;
        ensure!(status == 200, "HTTP {status}: {}", excerpt(body));
        Ok(body)
    }

    /// Like [`Connection::exchange`], whatever the status.
    pub(crate) async fn exchange_any(&mut self, request: &[u8]) -> Result<(u16, &[u8])> {
        self.input.clear();
        self.stream.write_all(request).await.context("sending a request")?;
        let mut head = None;
        loop {
            let read = self.stream.read_buf(&mut self.input).await.context("reading an answer")?;
            ensure!(read > 0, "the connection was closed in place of an answer");
            if head.is_none() {
                head = parse_head(&self.input)?;
            }
            let Some(Head { status, body_at, end, closes }) = head else { continue };
            self.closes = closes;
            ensure!(self.input.len() <= end, "more bytes than the answer's content-length");
            if self.input.len() == end {
                let body = self.input.get(body_at..end).unwrap_or_default();
                return Ok((status, body));
            }
        }
    }
}

/// What there is to know of an answer's head.
#[derive(Clone, Copy, Debug)]
struct Head {
    status: u16,
    /// Where the body begins.
    body_at: usize,
    /// Where it ends.
    end: usize,
    /// Whether the server closes the connection after it.
    closes: bool,
}

fn parse_head(input: &[u8]) -> Result<Option<Head>> {
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut response = httparse::Response::new(&mut headers);
    let httparse::Status::Complete(body_at) = response.parse(input).context("an answer that is not HTTP")?
    else {
        return Ok(None);
    };
    let status = response.code.context("an answer without a status")?;
    let named = |name: &str| {
        let mut headers = response.headers.iter();
        headers.find(|header| header.name.eq_ignore_ascii_case(name)).map(|header| header.value)
    };
    let closes = named("connection").is_some_and(|value| value.eq_ignore_ascii_case(b"close"));
    let Some(length) = named("content-length") else { bail!("HTTP {status} without content-length") };
    let length: usize = std::str::from_utf8(length)?.parse().context("content-length")?;
    ensure!(length <= MAX_ANSWER, "an answer of {length} bytes");
    Ok(Some(Head { status, body_at, end: body_at + length, closes }))
}

/// The beginning of an answer, for messages.
pub(crate) fn excerpt(body: &[u8]) -> String {
    String::from_utf8_lossy(body.get(..body.len().min(300)).unwrap_or_default()).into_owned()
}
