//! A proxy in front of the broker that counts the calls which pass it.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use bytes::{Buf as _, BytesMut};
use serde::Deserialize;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use crate::clock;

/// More than any call made here.
const MAX_MESSAGE: usize = 17 << 20;

/// Room for the headers of a message.
const MAX_HEADERS: usize = 32;

/// How long a store may take to open its stream.
const CONNECT_DEADLINE: Duration = Duration::from_secs(10);

/// How long a store is given to act on what its stream says first.
const SETTLE: Duration = Duration::from_millis(100);

/// What a store does once, when it connects, and no call of it asks for.
const AT_START: [&str; 2] = ["store/info", "store/watch"];

/// What passed: the JSON-RPC method of each call, in the order in which they arrived.
type Passed = Arc<Mutex<Vec<String>>>;

/// A proxy that listens until it is dropped.
#[derive(Debug)]
pub(crate) struct Counting {
    address: SocketAddr,
    passed: Passed,
    listening: JoinHandle<()>,
}

impl Counting {
    /// Starts a proxy for this broker.
    pub(crate) async fn to(broker: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let passed = Passed::default();
        let seen = Arc::clone(&passed);
        let listening = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let seen = Arc::clone(&seen);
                // A connection that fails here fails at its client too, which then says so.
                tokio::spawn(async move { pass(client, broker, &seen).await.ok() });
            }
        });
        Ok(Self { address, passed, listening })
    }

    /// The URL for a client.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Waits until a store that connects has opened its stream, and has done what follows from that.
    pub(crate) async fn connected(&self) -> Result<()> {
        let started = clock::now();
        while started.elapsed() < CONNECT_DEADLINE {
            tokio::time::sleep(SETTLE).await;
            if self.passed().iter().any(|method| method == "store/watch") {
                tokio::time::sleep(SETTLE).await;
                return Ok(());
            }
        }
        bail!("no store opened its stream within {CONNECT_DEADLINE:?}")
    }

    fn passed(&self) -> MutexGuard<'_, Vec<String>> {
        self.passed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The methods of the calls since the last time, but for those at the start of a store.
    pub(crate) fn take(&self) -> Vec<String> {
        let mut passed = std::mem::take(&mut *self.passed());
        passed.retain(|method| !AT_START.contains(&method.as_str()));
        passed
    }
}

impl Drop for Counting {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

/// One connection, with one to the broker behind it.
async fn pass(mut client: TcpStream, broker: SocketAddr, passed: &Passed) -> Result<()> {
    let mut broker = TcpStream::connect(broker).await?;
    client.set_nodelay(true)?;
    broker.set_nodelay(true)?;
    let (mut from_client, mut from_broker) = (BytesMut::new(), BytesMut::new());
    loop {
        let Some(request) = message(&mut client, &mut from_client, Kind::Request).await? else {
            return Ok(());
        };
        let body = request.bytes.get(request.body_at..).unwrap_or_default();
        let Call { method } = serde_json::from_slice(body).context("a call")?;
        passed.lock().unwrap_or_else(PoisonError::into_inner).push(method);
        broker.write_all(&request.bytes).await?;
        let answer = message(&mut broker, &mut from_broker, Kind::Response).await?;
        let answer = answer.context("the broker closed the connection")?;
        client.write_all(&answer.bytes).await?;
        if answer.endless {
            client.write_all(&from_broker).await?;
            tokio::io::copy_bidirectional(&mut client, &mut broker).await?;
            return Ok(());
        }
    }
}

/// The part of a call that is counted.
#[derive(Deserialize)]
struct Call {
    method: String,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Request,
    Response,
}

/// One HTTP message.
#[derive(Debug)]
struct Message {
    bytes: BytesMut,
    body_at: usize,
    /// The head of a stream; its body follows.
    endless: bool,
}

/// Reads one message; `None` at the end of the connection.
async fn message(from: &mut TcpStream, input: &mut BytesMut, kind: Kind) -> Result<Option<Message>> {
    loop {
        if let Some(Head { body_at, length }) = parse(input, kind)? {
            let end = body_at + length.unwrap_or_default();
            ensure!(end <= MAX_MESSAGE, "a message of {end} bytes");
            while input.len() < end {
                ensure!(from.read_buf(input).await? > 0, "a message that breaks off");
            }
            return Ok(Some(Message { bytes: input.split_to(end), body_at, endless: length.is_none() }));
        }
        ensure!(input.len() <= MAX_MESSAGE, "a head without an end");
        if from.read_buf(input).await? == 0 {
            ensure!(!input.has_remaining(), "a head that breaks off");
            return Ok(None);
        }
    }
}

struct Head {
    body_at: usize,
    /// `None` for a stream.
    length: Option<usize>,
}

fn parse(input: &[u8], kind: Kind) -> Result<Option<Head>> {
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let (status, headers) = match kind {
        Kind::Request => {
            let mut request = httparse::Request::new(&mut headers);
            (request.parse(input)?, request.headers)
        }
        Kind::Response => {
            let mut response = httparse::Response::new(&mut headers);
            (response.parse(input)?, response.headers)
        }
    };
    let httparse::Status::Complete(body_at) = status else { return Ok(None) };
    let value = |name: &str| {
        let header = headers.iter().find(|header| header.name.eq_ignore_ascii_case(name));
        header.map(|header| header.value)
    };
    let length = match (value("content-length"), value("transfer-encoding"), kind) {
        (Some(length), None, _) => Some(std::str::from_utf8(length)?.parse().context("content-length")?),
        (None, Some(_), Kind::Response) => None,
        _ => bail!("a message whose length is not told"),
    };
    Ok(Some(Head { body_at, length }))
}
