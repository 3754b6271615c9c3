//! `task-broker export --url`: from a running broker.

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::body::Incoming;
use hyper::header::{AUTHORIZATION, WWW_AUTHENTICATE};
use hyper::http::response::Parts;
use hyper::{Method, Request, Response, StatusCode, Uri};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;

use super::ToolError;
use super::export::report;
use super::output::{Output, Sink};
use crate::archive::{Ending, MAX_LINE_BYTES, Part, Reader};
use crate::trust::{Trust, without_secrets};

/// How long a broker may take for each piece of its answer.
const PATIENCE: Duration = Duration::from_mins(1);
/// How much of a refusal is read, in bytes.
const REFUSAL_BYTES: usize = 64 * 1024;

/// Where a running broker is, and how to come in.
#[derive(Clone, Copy, Debug)]
pub struct Remote<'a> {
    /// http://HOST:PORT or https://HOST:PORT
    pub url: &'a str,
    /// Whom to believe if it speaks TLS: the roots in this file, the system's without it.
    pub roots: Option<&'a Path>,
    /// An administrator's token.
    pub token: Option<&'a str>,
}

/// Exports from a running broker, and checks each line as it comes.
///
/// # Errors
/// [`ToolError`]; there is no export then.
pub async fn export_broker(
    remote: Remote<'_>,
    output: &Output,
    told: &mut dyn Write,
) -> Result<(), ToolError> {
    let failed = |what: String| ToolError::Remote { url: without_secrets(remote.url), what };
    let response = ask(remote).await.map_err(failed)?;
    let (head, body) = response.into_parts();
    if head.status != StatusCode::OK {
        return Err(failed(refusal(&head, body).await));
    }
    let mut sink = Sink::open(output)?;
    let ending = receive(body, &mut sink).await.map_err(|broken| match broken {
        Broken::Here(error) => error,
        Broken::There(what) => failed(what),
    })?;
    sink.finish()?;
    report(&ending, told)
}

async fn ask(Remote { url, roots, token }: Remote<'_>) -> Result<Response<Incoming>, String> {
    let base: Option<Uri> = url.trim_end_matches('/').parse().ok();
    let base = base.filter(|base| {
        base.authority().is_some_and(|host| !host.as_str().contains('@'))
            && base.path() == "/"
            && base.query().is_none()
    });
    let base = base.ok_or("--url must be http://HOST:PORT or https://HOST:PORT")?;
    let trust = match (base.scheme_str(), roots) {
        (Some("https"), None) => Trust::System,
        (Some("https"), Some(roots)) => Trust::Roots(roots),
        (Some("http"), None) => Trust::Nobody,
        (Some("http"), Some(_)) => return Err("--ca has no effect on http://".to_owned()),
        _ => return Err("--url must be http://HOST:PORT or https://HOST:PORT".to_owned()),
    };
    let connector = trust.connector().map_err(|error| match roots {
        Some(_) => format!("--ca: {error}"),
        None => error.to_string(),
    })?;
    let client = Client::builder(TokioExecutor::new()).pool_max_idle_per_host(0).build(connector);
    let mut request =
        Request::builder().method(Method::POST).uri(format!("{}/export", url.trim_end_matches('/')));
    if let Some(token) = token {
        request = request.header(AUTHORIZATION, format!("Bearer {token}"));
    }
    let request = request.body(Empty::<Bytes>::new()).map_err(|_what| "the token has odd characters")?;
    let response = tokio::time::timeout(PATIENCE, client.request(request)).await;
    let response = response.map_err(|_elapsed| format!("no answer within {} s", PATIENCE.as_secs()))?;
    response.map_err(|error| format!("cannot connect: {}", innermost(&error)))
}

/// What is at the bottom of an error: "connection refused", and not "client error".
fn innermost(error: &dyn std::error::Error) -> String {
    let mut error = error;
    while let Some(cause) = error.source() {
        error = cause;
    }
    error.to_string()
}

/// Why the broker does not want to.
async fn refusal(head: &Parts, body: Incoming) -> String {
    let text = Limited::new(body, REFUSAL_BYTES).collect().await.map(http_body_util::Collected::to_bytes);
    let error: Option<serde_json::Value> = text.ok().and_then(|text| serde_json::from_slice(&text).ok());
    let message = error.as_ref().and_then(|error| error.pointer("/error/message")?.as_str());
    // What is wrong with a token is told in the challenge alone (RFC 6750, 3).
    let challenge = head.headers.get(WWW_AUTHENTICATE).and_then(|challenge| challenge.to_str().ok());
    let told =
        challenge.and_then(|challenge| challenge.split_once("error_description=\"")?.1.split('"').next());
    format!("refused with {}: {}", head.status, told.or(message).unwrap_or("no reason given"))
}

/// What ends a transfer early.
enum Broken {
    /// Here.
    Here(ToolError),
    /// There.
    There(String),
}

async fn receive(mut body: Incoming, sink: &mut Sink) -> Result<Ending, Broken> {
    let mut reader = Reader::new();
    let mut line = Vec::new();
    let mut ending = None;
    loop {
        let frame = tokio::time::timeout(PATIENCE, body.frame()).await;
        let frame = frame
            .map_err(|_elapsed| Broken::There(format!("nothing more came for {} s", PATIENCE.as_secs())))?;
        let Some(frame) = frame else { break };
        let frame = frame.map_err(|_error| Broken::There("the broker broke off; its log says why".into()))?;
        let Ok(mut data) = frame.into_data() else { continue };
        while let Some(end) = data.iter().position(|byte| *byte == b'\n') {
            line.extend_from_slice(&data.split_to(end + 1));
            if let Part::End(end) = reader.line(&line).map_err(|error| Broken::There(error.to_string()))? {
                ending = Some(end);
            }
            sink.write(&line).map_err(Broken::Here)?;
            line.clear();
        }
        line.extend_from_slice(&data);
        if line.len() as u64 > MAX_LINE_BYTES {
            return Err(Broken::There("a line is too long".into()));
        }
    }
    reader.finish().map_err(|error| Broken::There(error.to_string()))?;
    ending.ok_or_else(|| Broken::There("it has no last line".into()))
}
