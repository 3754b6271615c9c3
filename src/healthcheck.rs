//! `task-broker healthcheck`: asks a running broker whether it can take and keep a command, within a time limit.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use crate::clock::Stopwatch;
use crate::config::Healthcheck;

/// How much of an answer is read, in bytes.
const ANSWER_BYTES: usize = 4096;

/// How much of what a broker says is repeated, in bytes.
const SAID_BYTES: usize = 200;

/// The broker is not healthy, as far as can be seen.
#[derive(Debug, thiserror::Error)]
pub enum Unhealthy {
    /// The address is none.
    #[error("--url {0}: expected http://HOST:PORT")]
    Url(String),
    /// It would have to speak TLS.
    #[error(
        "--url {0}: a health check speaks http only. Ask a broker with --tls-cert by something that knows its certificate, \
         such as curl --cacert"
    )]
    Tls(String),
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
    let base = check.url.trim_end_matches('/');
    let url = format!("{base}{}", if check.live { "/livez" } else { "/readyz" });
    if scheme_is(&url, "https") {
        return Err(Unhealthy::Tls(check.url.clone()));
    }
    let rest = url.strip_prefix("http://").and_then(|rest| rest.split_once('/'));
    let (host, path) = rest.ok_or_else(|| Unhealthy::Url(check.url.clone()))?;
    let odd = |byte: u8| byte.is_ascii_whitespace() || byte.is_ascii_control();
    if host.is_empty() || url.bytes().any(odd) {
        return Err(Unhealthy::Url(check.url.clone()));
    }
    let answer = get(host, path, Duration::from_secs(check.timeout_secs.max(1)));
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

fn scheme_is(url: &str, scheme: &str) -> bool {
    url.split_once("://").is_some_and(|(named, _)| named.eq_ignore_ascii_case(scheme))
}

fn get(host: &str, path: &str, limit: Duration) -> io::Result<String> {
    let began = Stopwatch::start();
    let left = || {
        let left = limit.saturating_sub(began.elapsed());
        if left.is_zero() { Err(io::Error::from(io::ErrorKind::TimedOut)) } else { Ok(left) }
    };
    let has_port = host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    let authority = if has_port { host.to_owned() } else { format!("{host}:80") };
    let mut stream = Err(io::Error::from(io::ErrorKind::AddrNotAvailable));
    for address in authority.to_socket_addrs()? {
        stream = TcpStream::connect_timeout(&address, left()?);
        if stream.is_ok() {
            break;
        }
    }
    let mut stream = stream?;
    stream.set_write_timeout(Some(left()?))?;
    let asked = format!("GET /{path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
    stream.write_all(asked.as_bytes())?;
    let mut answer = Vec::new();
    let mut buffer = [0; 1024];
    while answer.len() < ANSWER_BYTES {
        stream.set_read_timeout(Some(left()?))?;
        let read = stream.read(&mut buffer).map_err(|error| match error.kind() {
            // What a time limit of a socket is called.
            io::ErrorKind::WouldBlock => io::ErrorKind::TimedOut.into(),
            _ => error,
        })?;
        if read == 0 {
            break;
        }
        answer.extend_from_slice(buffer.get(..read).unwrap_or_default());
    }
    Ok(String::from_utf8_lossy(&answer).into_owned())
}
