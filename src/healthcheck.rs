//! `task-broker healthcheck`: asks a running broker whether it can take and keep a command, within a time limit.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};

use crate::clock::Stopwatch;
use crate::config::Healthcheck;
use crate::trust::{Trust, TrustError, without_secrets};

/// How much of an answer is read, in bytes.
const ANSWER_BYTES: usize = 4096;

/// How much of what a broker says is repeated, in bytes.
const SAID_BYTES: usize = 200;

/// The broker is not healthy, as far as can be seen.
#[derive(Debug, thiserror::Error)]
pub enum Unhealthy {
    /// The address is none.
    #[error("--url {0}: expected http://HOST:PORT or https://HOST:PORT")]
    Url(String),
    /// There is nothing to check its certificate against.
    #[error("--{flag}: {error}")]
    Trust {
        /// The setting.
        flag: &'static str,
        /// What is wrong.
        error: TrustError,
    },
    /// It cannot be asked.
    #[error("{url}: {error}")]
    Unreachable {
        /// Where.
        url: String,
        /// What the system says.
        error: io::Error,
    },
    /// It says no.
    #[error("{url}: {said}")]
    Says {
        /// Where.
        url: String,
        /// What it says.
        said: String,
    },
}

/// Asks.
///
/// # Errors
/// [`Unhealthy`] says why it is not.
pub fn ask(check: &Healthcheck) -> Result<(), Unhealthy> {
    let base = check.url.clone().unwrap_or_else(|| own(check));
    let url = format!("{}{}", base.trim_end_matches('/'), if check.live { "/livez" } else { "/readyz" });
    let no_url = || Unhealthy::Url(without_secrets(&base));
    let (scheme, rest) = url.split_once("://").ok_or_else(no_url)?;
    let encrypted = match scheme.to_ascii_lowercase().as_str() {
        "http" => false,
        "https" => true,
        _ => return Err(no_url()),
    };
    let (host, path) = rest.split_once('/').ok_or_else(no_url)?;
    let odd = |byte: u8| byte.is_ascii_whitespace() || byte.is_ascii_control();
    if host.is_empty() || host.contains('@') || url.bytes().any(odd) {
        return Err(no_url());
    }
    let tls = if encrypted { Some(Tls::new(check, host).ok_or_else(no_url)??) } else { None };
    let answer = get(host, path, tls, Duration::from_secs(check.timeout_secs.max(1)));
    let answer = answer.map_err(|error| Unhealthy::Unreachable { url: url.clone(), error })?;
    let (head, said) = answer.split_once("\r\n\r\n").unwrap_or((answer.as_str(), ""));
    let status = head.strip_prefix("HTTP/1.1 ").and_then(|status| status.get(..3)).unwrap_or("no HTTP");
    if status == "200" {
        return Ok(());
    }
    let said = said.get(..said.floor_char_boundary(SAID_BYTES)).unwrap_or_default();
    let said = said.trim().replace(char::is_control, " ");
    Err(Unhealthy::Says { url, said: format!("{status} {said}") })
}

/// Where a broker with the same settings is, from its own machine.
fn own(check: &Healthcheck) -> String {
    let scheme = if check.tls_cert.is_some() { "https" } else { "http" };
    let ip = match check.listen.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    format!("{scheme}://{}", SocketAddr::new(ip, check.listen.port()))
}

/// Whom to believe, and under which name.
struct Tls {
    config: Arc<rustls::ClientConfig>,
    name: ServerName<'static>,
}

impl Tls {
    /// `None` if the host is no name that a certificate could have.
    fn new(check: &Healthcheck, host: &str) -> Option<Result<Self, Unhealthy>> {
        let bare = if has_port(host) { host.rsplit_once(':')?.0 } else { host };
        let bare = bare.trim_start_matches('[').trim_end_matches(']').to_owned();
        let name = ServerName::try_from(bare).ok()?;
        let (flag, trust) = match (&check.ca, &check.tls_cert) {
            (Some(roots), _) => ("ca", Trust::Roots(roots)),
            (None, Some(certificate)) => ("tls-cert", Trust::Exactly(certificate)),
            (None, None) => ("url", Trust::System),
        };
        let config = trust.client().map_err(|error| Unhealthy::Trust { flag, error });
        Some(config.map(|config| Self { config: Arc::new(config), name }))
    }
}

fn has_port(host: &str) -> bool {
    host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok())
}

fn get(host: &str, path: &str, tls: Option<Tls>, limit: Duration) -> io::Result<String> {
    let began = Stopwatch::start();
    let port = if tls.is_some() { 443 } else { 80 };
    let authority = if has_port(host) { host.to_owned() } else { format!("{host}:{port}") };
    let mut stream = Err(io::Error::from(io::ErrorKind::AddrNotAvailable));
    for address in authority.to_socket_addrs()? {
        stream = TcpStream::connect_timeout(&address, left(began, limit)?);
        if stream.is_ok() {
            break;
        }
    }
    let stream = InTime { stream: stream?, began, limit };
    match tls {
        None => exchange(stream, host, path),
        Some(Tls { config, name }) => {
            let connection = ClientConnection::new(config, name).map_err(io::Error::other)?;
            exchange(StreamOwned::new(connection, stream), host, path)
        }
    }
}

fn exchange(mut stream: impl Read + Write, host: &str, path: &str) -> io::Result<String> {
    let asked = format!("GET /{path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
    stream.write_all(asked.as_bytes())?;
    let mut answer = Vec::new();
    let mut buffer = [0; 1024];
    while answer.len() < ANSWER_BYTES {
        match stream.read(&mut buffer) {
            Ok(0) => break,
            Ok(read) => answer.extend_from_slice(buffer.get(..read).unwrap_or_default()),
            // TLS that was not ended in order: what there is must do.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => break,
            Err(error) => return Err(error),
        }
    }
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

/// What is left of the time for all of it.
fn left(began: Stopwatch, limit: Duration) -> io::Result<Duration> {
    let left = limit.saturating_sub(began.elapsed());
    if left.is_zero() { Err(io::Error::from(io::ErrorKind::TimedOut)) } else { Ok(left) }
}

/// A socket whose every step has what is left of the time.
struct InTime {
    stream: TcpStream,
    began: Stopwatch,
    limit: Duration,
}

/// What a time limit of a socket is called.
fn timed_out(error: io::Error) -> io::Error {
    if error.kind() == io::ErrorKind::WouldBlock { io::ErrorKind::TimedOut.into() } else { error }
}

impl Read for InTime {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(Some(left(self.began, self.limit)?))?;
        self.stream.read(buffer).map_err(timed_out)
    }
}

impl Write for InTime {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(Some(left(self.began, self.limit)?))?;
        self.stream.write(bytes).map_err(timed_out)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}
