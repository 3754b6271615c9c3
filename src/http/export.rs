//! `POST /export`: all tasks as lines, for an administrator.
//!
//! A POST although it changes nothing: browsers name the origin of a page with every POST and not with every GET, so a page
//! cannot have it from a broker on its visitor's machine.

use std::io;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderValue, Request, Response, StatusCode};
use bytes::Bytes;
use futures_util::stream;
use task_broker_core::{Rejection, Subject, Timestamp};

use super::App;
use super::rpc::{admit_caller, may_call, refused};
use crate::archive::Writer;
use crate::auth::Verified;
use crate::broker::{Export, Refusal};
use crate::clock::Clock;

/// How large a piece is handed to the connection at once, in bytes; a task is cut into as many as it needs.
const PIECE: usize = 64 * 1024;

/// Serves an export.
pub(super) async fn handle(State(app): State<Arc<App>>, request: Request<Body>) -> Response<Body> {
    // An export counts as one call of its subject, like any other, whether or not it is allowed.
    let admitted = admit_caller(&app, request.version(), request.headers())
        .and_then(|verified| may_call(&app, &verified, 1).map(|()| verified));
    let Verified { caller, valid_until } = match admitted {
        Ok(verified) => verified,
        Err(response) => return *response,
    };
    let export = match app.broker.export(&caller) {
        Ok(export) => export,
        Err(refusal) => {
            tracing::warn!(subject = name(&caller.subject), %refusal, "an export was refused");
            let forbidden = matches!(refusal, Refusal::Rejected(Rejection::Forbidden { .. }));
            let mut response = refused(refusal);
            if forbidden {
                *response.status_mut() = StatusCode::FORBIDDEN;
            }
            return response;
        }
    };
    tracing::info!(subject = name(&caller.subject), "an export has begun");
    let audit = Audit { subject: caller.subject, tasks: 0, bytes: 0, end: "the client has gone" };
    let mut writer = Writer::new();
    let rest = Bytes::from(writer.header(app.broker.store_id(), app.broker.owner_from(), app.clock.now()));
    let open = Open { export, writer, rest, clock: app.clock.clone(), valid_until, audit, ended: false };
    let stream = stream::try_unfold(open, |mut open| async move {
        match open.next().await {
            Ok(None) => Ok(None),
            Ok(Some(piece)) => Ok(Some((piece, open))),
            // Nothing but a broken connection can tell a client that this was not all.
            Err(why) => Err(io::Error::other(why)),
        }
    });
    let mut response = Response::new(Body::from_stream(stream));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-ndjson"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

fn name(subject: &Subject) -> &str {
    subject.as_deref().unwrap_or("anonymous")
}

/// Says who has had what, however the export ends.
struct Audit {
    subject: Subject,
    tasks: u64,
    bytes: u64,
    end: &'static str,
}

impl Drop for Audit {
    fn drop(&mut self) {
        let Self { subject, tasks, bytes, end } = self;
        tracing::info!(subject = name(subject), tasks, bytes, end, "an export has ended");
    }
}

struct Open {
    export: Export,
    writer: Writer,
    /// What is written and not handed over.
    rest: Bytes,
    clock: Clock,
    /// The export ends with the token that opened it.
    valid_until: Option<Timestamp>,
    audit: Audit,
    ended: bool,
}

impl Open {
    async fn next(&mut self) -> Result<Option<Bytes>, &'static str> {
        if self.rest.is_empty() {
            if self.ended {
                self.audit.end = "complete";
                return Ok(None);
            }
            let expired = self.valid_until.is_some_and(|end| self.clock.now() >= end);
            let line = if expired { Err("the token has expired") } else { self.line().await };
            match line {
                Ok(line) => self.rest = line,
                Err(why) => {
                    self.audit.end = why;
                    tracing::warn!(subject = name(&self.audit.subject), why, "an export is cut off");
                    return Err(why);
                }
            }
        }
        let piece = self.rest.split_to(self.rest.len().min(PIECE));
        self.audit.bytes += piece.len() as u64;
        Ok(Some(piece))
    }

    async fn line(&mut self) -> Result<Bytes, &'static str> {
        let line = match self.export.next().await {
            Ok(Some(snapshot)) => {
                let line = self.writer.task(&snapshot.task, |payload| snapshot.payloads.get(payload));
                line.ok_or("a payload was not read")?
            }
            Ok(None) => {
                self.ended = true;
                self.writer.end(self.clock.now()).0
            }
            Err(Refusal::Internal) => return Err("stored data is damaged"),
            Err(_) => return Err("the store is unavailable"),
        };
        self.audit.tasks = self.writer.tasks();
        Ok(Bytes::from(line))
    }
}
