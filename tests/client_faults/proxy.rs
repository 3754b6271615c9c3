//! A proxy between a client and a broker that spoils chosen requests. It understands just enough HTTP/1.1 for that.
//!
//! Blocking, a thread for each connection. Its address stays the same when the broker comes back on another port.

use std::collections::VecDeque;
use std::io::{self, BufRead as _, BufReader, Read, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;
use tokio::sync::watch;

use crate::faults::Fault;

/// How long a test waits for a request or a stream to come by.
const PASS_DEADLINE: Duration = Duration::from_secs(10);
/// What a client does of its own accord: no fault that was meant for a call of the test is wasted on it.
const BACKGROUND: [&str; 3] = ["store/watch", "store/statuses", "store/info"];

/// What a proxy says that believes the broker to be gone.
const BAD_GATEWAY: &[u8] =
    b"HTTP/1.1 502 Bad Gateway\r\ncontent-type: text/html\r\ncontent-length: 12\r\n\r\n<h1>502</h1>";

/// A proxy that listens. Ends, with all its connections, when dropped.
pub(crate) struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    broker: Mutex<SocketAddr>,
    /// What the next requests meet, first to last.
    armed: Mutex<VecDeque<Fault>>,
    struck: Mutex<Vec<Fault>>,
    /// The methods of all requests that arrived, spoiled or not.
    seen: watch::Sender<Vec<String>>,
    /// How many streams have begun.
    streams: watch::Sender<usize>,
    /// Both ends of all open streams, so that they can be cut.
    open: Mutex<Vec<TcpStream>>,
    /// No stream is let through.
    held: AtomicBool,
    over: AtomicBool,
}

impl Proxy {
    pub(crate) fn to(broker: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            broker: Mutex::new(broker),
            armed: Mutex::default(),
            struck: Mutex::default(),
            seen: watch::Sender::default(),
            streams: watch::Sender::default(),
            open: Mutex::default(),
            held: AtomicBool::default(),
            over: AtomicBool::default(),
        });
        let serving = Arc::clone(&shared);
        std::thread::spawn(move || {
            for client in listener.incoming() {
                if serving.over.load(Ordering::SeqCst) {
                    return;
                }
                let (Ok(client), shared) = (client, Arc::clone(&serving)) else { continue };
                // However a connection ends: its client sees the end, and that is what counts.
                std::thread::spawn(move || drop(shared.serve(&client)));
            }
        });
        Self { address, shared }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The URL for a client.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The broker is there from now on.
    pub(crate) fn lead_to(&self, broker: SocketAddr) {
        *self.shared.broker.lock().unwrap() = broker;
    }

    /// The next requests meet these faults, one each.
    pub(crate) fn arm(&self, faults: Vec<Fault>) {
        *self.shared.armed.lock().unwrap() = faults.into();
    }

    /// Takes back what has not struck, and tells what has since the last time.
    pub(crate) fn disarm(&self) -> Vec<Fault> {
        self.shared.armed.lock().unwrap().clear();
        std::mem::take(&mut *self.shared.struck.lock().unwrap())
    }

    /// How many requests have arrived so far.
    pub(crate) fn seen_count(&self) -> usize {
        self.shared.seen.borrow().len()
    }

    /// Waits for a request of this method beyond the first `before` requests.
    pub(crate) async fn passes(&self, method: &str, before: usize) {
        let mut seen = self.shared.seen.subscribe();
        let passed = seen.wait_for(|seen| seen[before..].iter().any(|passed| passed == method));
        if tokio::time::timeout(PASS_DEADLINE, passed).await.is_err() {
            let instead = self.shared.seen.borrow()[before..].join(", ");
            panic!("no {method} within {PASS_DEADLINE:?}, but {instead}");
        }
    }

    /// Waits until so many streams have begun.
    pub(crate) async fn streams(&self, count: usize) {
        let mut streams = self.shared.streams.subscribe();
        let begun = tokio::time::timeout(PASS_DEADLINE, streams.wait_for(|begun| *begun >= count)).await;
        assert!(begun.is_ok(), "not {count} streams within {PASS_DEADLINE:?}");
    }

    /// Breaks off all streams.
    pub(crate) fn cut_streams(&self) {
        self.shared.cut_streams();
    }

    /// Breaks off all streams, and lets none begin until [`Proxy::let_streams`].
    pub(crate) fn hold_streams(&self) {
        self.shared.held.store(true, Ordering::SeqCst);
        self.shared.cut_streams();
    }

    pub(crate) fn let_streams(&self) {
        self.shared.held.store(false, Ordering::SeqCst);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::SeqCst);
        self.shared.cut_streams();
        // Wakes the thread that listens.
        drop(TcpStream::connect(self.address));
    }
}

impl Shared {
    /// One connection of a client, until either side ends it.
    fn serve(&self, client: &TcpStream) -> io::Result<()> {
        client.set_nodelay(true)?;
        let mut requests = BufReader::new(client);
        while let Some(request) = Message::read(&mut requests)? {
            let call: Value = serde_json::from_slice(&request.body).unwrap_or_default();
            let method = call["method"].as_str().unwrap_or("?").to_owned();
            let watches = method == "store/watch";
            let fault = self.fault_for(&method);
            self.seen.send_modify(|seen| seen.push(method));
            if fault == Some(Fault::Drop) || watches && self.held.load(Ordering::SeqCst) {
                return client.shutdown(Shutdown::Both);
            }
            // A connection of its own to the broker for each request, so that one never spoils another.
            let broker = *self.broker.lock().unwrap();
            let mut broker = TcpStream::connect(broker)?;
            broker.set_nodelay(true)?;
            broker.write_all(&request.bytes())?;
            let mut replies = BufReader::new(&broker);
            let Some(reply) = Message::read(&mut replies)? else { return client.shutdown(Shutdown::Both) };
            if reply.header("content-type").is_some_and(|media| media.starts_with("text/event-stream")) {
                return self.pump(&reply.head, &mut replies, client, &broker);
            }
            Self::deliver(&reply.bytes(), fault, client)?;
        }
        Ok(())
    }

    fn fault_for(&self, method: &str) -> Option<Fault> {
        if BACKGROUND.contains(&method) {
            return None;
        }
        let fault = self.armed.lock().unwrap().pop_front()?;
        self.struck.lock().unwrap().push(fault);
        Some(fault)
    }

    fn deliver(reply: &[u8], fault: Option<Fault>, mut client: &TcpStream) -> io::Result<()> {
        match fault {
            Some(Fault::Drop | Fault::Lose) => return client.shutdown(Shutdown::Both),
            Some(Fault::Cut(share)) => {
                // At least one byte, and never all of them.
                let end = 1 + (reply.len() - 2) * usize::from(share) / 256;
                client.write_all(&reply[..end])?;
                return client.shutdown(Shutdown::Both);
            }
            Some(Fault::Replace) => return client.write_all(BAD_GATEWAY),
            Some(Fault::Delay(delay)) => std::thread::sleep(delay),
            Some(Fault::Stall) => return io::copy(&mut client, &mut io::sink()).map(drop),
            None => {}
        }
        client.write_all(reply)
    }

    /// Passes a stream on until either side ends it or it is cut.
    fn pump(
        &self,
        head: &[u8],
        replies: &mut impl Read,
        mut client: &TcpStream,
        broker: &TcpStream,
    ) -> io::Result<()> {
        {
            let mut open = self.open.lock().unwrap();
            open.extend([client.try_clone()?, broker.try_clone()?]);
            if self.held.load(Ordering::SeqCst) || self.over.load(Ordering::SeqCst) {
                drop(open);
                self.cut_streams();
                return Ok(());
            }
        }
        client.write_all(head)?;
        self.streams.send_modify(|begun| *begun += 1);
        // A client that hangs up must be noticed while the broker is silent: its subscription is to end too.
        let (mut end, hung_up) = (client.try_clone()?, broker.try_clone()?);
        std::thread::spawn(move || {
            drop(io::copy(&mut end, &mut io::sink()));
            drop(hung_up.shutdown(Shutdown::Both));
        });
        let passed = io::copy(replies, &mut client);
        client.shutdown(Shutdown::Both)?;
        passed.map(drop)
    }

    fn cut_streams(&self) {
        for end in self.open.lock().unwrap().drain(..) {
            // It may have ended by itself.
            drop(end.shutdown(Shutdown::Both));
        }
    }
}

/// A request or a reply.
struct Message {
    /// With the empty line at its end.
    head: Vec<u8>,
    body: Vec<u8>,
}

impl Message {
    /// Reads one; the body of a stream is left where it is. `None` at the end of the connection.
    fn read(from: &mut BufReader<&TcpStream>) -> io::Result<Option<Self>> {
        let mut head = Vec::new();
        loop {
            if from.read_until(b'\n', &mut head)? == 0 {
                return Ok(None);
            }
            if head.ends_with(b"\r\n\r\n") {
                break;
            }
        }
        let mut message = Self { head, body: Vec::new() };
        let length = message.header("content-length").map_or(0, |length| length.parse().unwrap());
        message.body.resize(length, 0);
        from.read_exact(&mut message.body)?;
        Ok(Some(message))
    }

    fn header(&self, name: &str) -> Option<&str> {
        let head = std::str::from_utf8(&self.head).ok()?;
        let lines = head.lines().filter_map(|line| line.split_once(':'));
        lines.into_iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
    }

    fn bytes(&self) -> Vec<u8> {
        [self.head.as_slice(), &self.body].concat()
    }
}
