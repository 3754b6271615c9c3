//! `POST /rpc`: JSON-RPC 2.0, one call or a batch.

mod context;
mod dispatch;
mod failure;
mod reads;
mod shown;
mod stream;
mod views;
mod worker;

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, HttpBody as _};
use axum::extract::State;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use bytes::Bytes;
use task_broker_protocol::methods::{Entry, MethodName};
use task_broker_protocol::{Call, ErrorObject, Id, Kind, Parsed, envelope, lookup};
use tokio::sync::OwnedSemaphorePermit;

use self::failure::Failure;
pub(super) use self::shown::ShownTasks;
use super::answer::NoRoom;
use super::body::BodyError;
use super::metrics::{OK, UNKNOWN};
use super::{App, gate};
use crate::auth::Verified;
use crate::broker::Refusal;
use crate::clock::Stopwatch;
use crate::request::{self, Note};

/// The largest answer of a batch or a list, in bytes (WIRE.md, Limits).
const MAX_ANSWER_BYTES: usize = 16 << 20;

/// What a busy broker asks its clients to wait, in milliseconds.
const BUSY_RETRY_MS: u64 = 1000;

/// How long a call waits for a place among those that are worked on.
const PLACE_PATIENCE: Duration = Duration::from_millis(500);

/// How many calls of a batch take one place among those that are worked on. They are carried out one after the other, so
/// a batch keeps its place as many times longer, and if all places were taken by large batches none of them would be done
/// in time. It has one command at the writer at a time, though, and with too few of them a commit is shared by few.
const BATCH_CALLS_PER_PLACE: usize = 8;

/// Serves one request.
pub(super) async fn handle(State(app): State<Arc<App>>, request: Request<Body>) -> Response<Body> {
    let (head, body) = request.into_parts();
    let verified = match admit(&app, &head.headers) {
        Ok(verified) => verified,
        Err(refused) => return turned_away(&app, body, *refused),
    };
    let Some(permit) = places(&app, 1).await else { return turned_away(&app, body, busy(None)) };
    let collected = match app.bodies.collect(body, app.settings.max_body_bytes).await {
        Ok(collected) => collected,
        Err(error) => return unread(&app, &error),
    };
    let body = collected.bytes;
    match envelope::parse(&body) {
        Parsed::Single(Ok(call)) => match lookup(&call.method) {
            Some(entry) if entry.single_only => {
                // What stays open has limits of its own, and must not take the room of calls that end.
                drop((permit, collected.room));
                Box::pin(long_call(&app, &verified, &head.headers, entry, &call, &body)).await
            }
            entry => {
                let served = single(&app, &verified, entry, &call, &body).await;
                deliver(&app, served, entry.is_some_and(|entry| entry.changes), permit).await
            }
        },
        Parsed::Single(Err(refusal)) => {
            answered(&app, None, refusal.error.kind());
            if refusal.notification { accepted() } else { failed(refusal.id.as_ref(), refusal.error.into()) }
        }
        Parsed::Batch(calls) => {
            if let Err(refused) = may_call(&app, &verified, calls.len().saturating_sub(1)) {
                return *refused;
            }
            let permit = match calls.len().div_ceil(BATCH_CALLS_PER_PLACE) {
                ..=1 => permit,
                count => {
                    // It goes back meanwhile: who holds one and waits for more would block others who do the same.
                    drop(permit);
                    let Some(permit) = places(&app, count).await else { return busy(None) };
                    permit
                }
            };
            let changes =
                calls.iter().flatten().any(|call| lookup(&call.method).is_some_and(|it| it.changes));
            let served = Box::pin(batch(&app, &verified, calls, &body)).await;
            request::note(Note { method: Some("batch"), outcome: Some(OK) });
            deliver(&app, served, changes, permit).await
        }
    }
}

/// Who sends a request, if it may be looked at at all.
pub(super) fn admit_caller(app: &App, headers: &HeaderMap) -> Result<Verified, Box<Response<Body>>> {
    if app.is_draining() {
        return Err(Box::new(busy(None)));
    }
    if !gate::origin_allowed(headers, &app.settings.allow_origin) {
        return Err(Box::new(failed(None, ErrorObject::origin_forbidden().into())));
    }
    match app.auth.verify(gate::authorization(headers), app.clock.now()) {
        Ok(verified) => Ok(verified),
        Err(unauthorized) if unauthorized.is_for_lack_of_keys() => Err(Box::new(busy(None))),
        Err(unauthorized) => {
            let mut response = failed(None, ErrorObject::unauthorized().into());
            if let Ok(challenge) = HeaderValue::from_str(&unauthorized.challenge()) {
                response.headers_mut().insert(WWW_AUTHENTICATE, challenge);
            }
            Err(Box::new(response))
        }
    }
}

/// Looks at everything that can be told without the body.
fn admit(app: &App, headers: &HeaderMap) -> Result<Verified, Box<Response<Body>>> {
    let verified = admit_caller(app, headers)?;
    if !gate::is_json(headers) {
        return Err(Box::new(failed(None, ErrorObject::unsupported_media_type().into())));
    }
    may_call(app, &verified, 1)?;
    Ok(verified)
}

/// Places among the calls that are worked on, if there are as many soon; of all that there are at most. Whoever waits for
/// the first one holds nothing but its head: its body is still on the way. A refusal at once would cost as much as the
/// call, and clients that come again at once would leave the broker no time for those that it can serve.
async fn places(app: &App, count: usize) -> Option<OwnedSemaphorePermit> {
    let count = u32::try_from(count.min(app.settings.max_requests)).unwrap_or(u32::MAX);
    let places = Arc::clone(&app.requests);
    let permit = match Arc::clone(&places).try_acquire_many_owned(count) {
        Ok(permit) => permit,
        Err(_full) => {
            tokio::time::timeout(PLACE_PATIENCE, places.acquire_many_owned(count)).await.ok()?.ok()?
        }
    };
    // The end may have begun in the meantime.
    (!app.is_draining()).then_some(permit)
}

/// Counts calls against what their subject may do. The first call of a request is counted before its body is read.
pub(super) fn may_call(app: &App, verified: &Verified, calls: usize) -> Result<(), Box<Response<Body>>> {
    let Some(rates) = &app.rates else { return Ok(()) };
    let taken = rates.take(&verified.caller.subject, calls);
    taken.map_err(|too_often| {
        let error = ErrorObject::too_many_requests(too_often.retry_after_ms);
        Box::new(failed(None, error.into()))
    })
}

/// The answer to a request whose body is not wanted. What is still on its way of a small one is taken and thrown away:
/// the system resets a connection that is closed over bytes which nobody has read, and the client would see that in
/// place of the answer. A large one is not worth it.
fn turned_away(app: &App, body: Body, mut response: Response<Body>) -> Response<Body> {
    if !body.is_end_stream() && !app.bodies.discard(body) {
        response.headers_mut().insert(axum::http::header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

fn unread(app: &App, error: &BodyError) -> Response<Body> {
    let maximum = u64::try_from(app.settings.max_body_bytes).unwrap_or(u64::MAX);
    let mut response = match error {
        BodyError::TooLarge => failed(None, ErrorObject::body_too_large(maximum).into()),
        BodyError::TooSlow => failed(None, ErrorObject::request_timeout().into()),
        BodyError::NoRoom => busy(None),
        BodyError::Broken => failed(None, ErrorObject::invalid_request("the body is incomplete").into()),
    };
    // The rest of the body is not read, so the connection cannot be used again.
    response.headers_mut().insert(axum::http::header::CONNECTION, HeaderValue::from_static("close"));
    response
}

/// What a request is answered with: the text of an answer, or a response that needs no room.
enum Served {
    Answer(Vec<u8>),
    Other(Response<Body>),
}

/// Sends an answer. What is `held`, its place among the calls that are worked on, is given back only when the answer
/// was handed over.
async fn deliver<H: Send + Unpin + 'static>(
    app: &App,
    served: Served,
    changes: bool,
    held: H,
) -> Response<Body> {
    match served {
        Served::Other(response) => response,
        Served::Answer(answer) => match app.answers.body(answer, changes, held).await {
            Ok(body) => json(StatusCode::OK, body),
            Err(NoRoom) => busy(None),
        },
    }
}

async fn single(
    app: &App,
    verified: &Verified,
    entry: Option<&Entry>,
    call: &Call<'_>,
    body: &Bytes,
) -> Served {
    let served = serve(app, verified, entry, call, body).await;
    match (&call.id, served) {
        (None, _) => Served::Other(accepted()),
        (Some(_), Ok(answer)) => Served::Answer(answer),
        (Some(id), Err(failure)) => Served::Other(failed(Some(id), failure)),
    }
}

async fn serve(
    app: &App,
    verified: &Verified,
    entry: Option<&Entry>,
    call: &Call<'_>,
    body: &Bytes,
) -> Result<Vec<u8>, Failure> {
    let Some(entry) = entry else {
        answered(app, None, Some(Kind::MethodNotFound));
        return Err(ErrorObject::method_not_found().into());
    };
    let time = Stopwatch::start();
    let served = dispatch::serve(app, &verified.caller, entry, call, body).await;
    app.metrics.took(entry.method, time.elapsed());
    answered(app, Some(entry.method), served.as_ref().err().and_then(|failure| failure.error.kind()));
    served
}

/// Counts a call that has its answer, and notes it for the line in the log.
fn answered(app: &App, method: Option<MethodName>, error: Option<Kind>) {
    app.metrics.call(method, error);
    let method = method.map_or(UNKNOWN, MethodName::as_str);
    request::note(Note { method: Some(method), outcome: Some(error.map_or(OK, Kind::as_str)) });
}

/// A wait or a stream.
async fn long_call(
    app: &Arc<App>,
    verified: &Verified,
    headers: &HeaderMap,
    entry: &Entry,
    call: &Call<'_>,
    body: &Bytes,
) -> Response<Body> {
    // As a notification there is nobody to tell, so there is nothing to wait for.
    let Some(id) = &call.id else {
        answered(app, Some(entry.method), None);
        return accepted();
    };
    if entry.method != MethodName::Watch {
        let served = single(app, verified, Some(entry), call, body).await;
        return deliver(app, served, false, ()).await;
    }
    let opened = if gate::accepts_event_stream(headers) {
        stream::open(app, verified, call, body)
    } else {
        Err(ErrorObject::not_acceptable("text/event-stream").into())
    };
    answered(app, Some(entry.method), opened.as_ref().err().and_then(|failure| failure.error.kind()));
    opened.unwrap_or_else(|failure| failed(Some(id), failure))
}

type Element<'a> = Result<Call<'a>, task_broker_protocol::Refusal>;

/// Serves the calls of a batch one after the other, in their order.
async fn batch(app: &App, verified: &Verified, calls: Vec<Element<'_>>, body: &Bytes) -> Served {
    let mut answer = vec![b'['];
    for element in calls {
        let Some(one) = batch_element(app, verified, &element, body, answer.len()).await else { continue };
        if answer.len() > 1 {
            answer.push(b',');
        }
        answer.extend_from_slice(&one);
    }
    if answer.len() == 1 {
        return Served::Other(accepted());
    }
    answer.push(b']');
    Served::Answer(answer)
}

async fn batch_element(
    app: &App,
    verified: &Verified,
    element: &Element<'_>,
    body: &Bytes,
    so_far: usize,
) -> Option<Vec<u8>> {
    let call = match element {
        Ok(call) => call,
        Err(refusal) if refusal.notification => {
            answered(app, None, refusal.error.kind());
            return None;
        }
        Err(refusal) => {
            answered(app, None, refusal.error.kind());
            return Some(envelope::failure(refusal.id.as_ref(), &refusal.error));
        }
    };
    let entry = lookup(&call.method);
    let full = || {
        let maximum = u64::try_from(MAX_ANSWER_BYTES).unwrap_or(u64::MAX);
        Failure::from(ErrorObject::limit_exceeded("maxBatchAnswerBytes", maximum))
    };
    let served = if so_far > MAX_ANSWER_BYTES {
        // Not carried out: its answer could not be sent.
        answered(app, entry.map(|entry| entry.method), Some(Kind::LimitExceeded));
        Err(full())
    } else if let Some(entry) = entry.filter(|entry| entry.single_only) {
        answered(app, Some(entry.method), Some(Kind::InvalidRequest));
        Err(ErrorObject::invalid_request("this method must be called alone, not in a batch").into())
    } else {
        serve(app, verified, entry, call, body).await
    };
    let id = call.id.as_ref()?;
    let changes = entry.is_some_and(|entry| entry.changes);
    match served {
        // A change that was made is told, whatever the room; a read can be asked for again.
        Ok(answer) if changes || so_far.saturating_add(answer.len()) <= MAX_ANSWER_BYTES => Some(answer),
        Ok(_) => Some(envelope::failure(Some(id), &full().error)),
        Err(failure) => Some(envelope::failure(Some(id), &failure.error)),
    }
}

/// The word that the wire has for a status of a task.
pub(super) fn status_word(status: task_broker_core::Status) -> &'static str {
    views::status(status).as_str()
}

fn json(status: StatusCode, body: impl Into<Body>) -> Response<Body> {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// The answer to a notification.
fn accepted() -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::ACCEPTED;
    response
}

/// The answer to a request that was no call, and was refused.
pub(super) fn refused(refusal: Refusal) -> Response<Body> {
    failed(None, refusal.into())
}

fn failed(id: Option<&Id>, failure: Failure) -> Response<Body> {
    let Failure { error, status } = failure;
    let mut response = json(status, envelope::failure(id, &error));
    if status == StatusCode::SERVICE_UNAVAILABLE || error.kind() == Some(Kind::TooManyRequests) {
        let seconds = error.data.retry_after_ms.unwrap_or(BUSY_RETRY_MS).div_ceil(1000).max(1);
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

/// No call was served: too much at once, or about to end.
fn busy(id: Option<&Id>) -> Response<Body> {
    let error = ErrorObject::unavailable(BUSY_RETRY_MS);
    failed(id, Failure { error, status: StatusCode::SERVICE_UNAVAILABLE })
}

/// What a request to this path with another HTTP method gets.
pub(super) async fn wrong_method() -> Response<Body> {
    let mut response = failed(None, ErrorObject::method_not_allowed().into());
    response.headers_mut().insert(axum::http::header::ALLOW, HeaderValue::from_static("POST"));
    response
}

/// What a request to a path that does not exist gets.
pub(super) async fn no_such_path() -> Response<Body> {
    let error = ErrorObject::invalid_request("there is nothing at this path");
    failed(None, Failure { error, status: StatusCode::NOT_FOUND })
}
