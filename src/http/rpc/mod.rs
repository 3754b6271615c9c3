//! `POST /rpc`: JSON-RPC 2.0, one call or a batch.

mod context;
mod dispatch;
mod failure;
mod reads;
mod shown;
mod stream;
mod views;
mod worker;

use std::pin::Pin;
use std::sync::Arc;

use axum::body::{Body, HttpBody as _};
use axum::extract::State;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, HeaderValue, Request, Response, StatusCode, Version};
use bytes::Bytes;
use futures_util::future::maybe_done;
use futures_util::poll;
use task_broker_protocol::methods::{Entry, MethodName};
use task_broker_protocol::{Call, ErrorObject, Id, Kind, Parsed, envelope, lookup};
use tokio::task::unconstrained;

use self::failure::Failure;
pub(super) use self::shown::ShownTasks;
use super::answer::{Answer, NoRoom, Room};
use super::body::{BodyError, Collected};
use super::metrics::{OK, UNKNOWN};
use super::places::{Need, Taken};
use super::{App, gate};
use crate::auth::Verified;
use crate::broker::Refusal;
use crate::clock::Stopwatch;
use crate::request::{self, Note};

/// The largest answer of a batch or a list, in bytes (WIRE.md, Limits).
const MAX_ANSWER_BYTES: usize = 16 << 20;

/// What a busy broker asks its clients to wait, in milliseconds.
const BUSY_RETRY_MS: u64 = 1000;

/// So many calls of a batch, done one after the other, take one place among those that are worked on. A batch keeps its
/// places for as long as all its calls take: if all places were taken by large batches, with one for each, none of them
/// would be done in time. Those that are done together take one each.
const BATCH_CALLS_PER_PLACE: usize = 8;

/// An answer to a task that is new has at most so many bytes: its `meta` above all, names of at most some hundred bytes.
const CREATED_BYTES: usize = 64 * 1024 + 8 * 1024;

/// An element of a batch that is so short is sent where there is no room for it: to be told so is hardly shorter.
const SHORT_BYTES: usize = 512;

/// No call has fewer bytes: `{"jsonrpc":"2.0","method":"store/info"},` has 39.
const SMALLEST_CALL_BYTES: u64 = 39;

/// Serves one request.
pub(super) fn handle(
    State(app): State<Arc<App>>,
    request: Request<Body>,
) -> impl Future<Output = Response<Body>> + Send {
    // Taken apart outside of the future, which holds then what is needed of it, and once.
    let (head, body) = request.into_parts();
    let headers = head.headers;
    let admitted = admit(&app, head.version, &headers);
    async move {
        let verified = match admitted {
            Ok(verified) => verified,
            Err(refused) => return Box::pin(turned_away(&app, body, *refused)).await,
        };
        let (collected, mut taken) = match let_in(&app, body).await {
            Ok(both) => both,
            Err(refused) => return *refused,
        };
        let body = collected.bytes;
        let served = match envelope::parse(&body) {
            Parsed::Single(Ok(call)) => match lookup(&call.method) {
                Some(entry) if entry.single_only => {
                    // What stays open has limits of its own, and must not take the room of calls that end.
                    drop((taken, collected.room));
                    return Box::pin(long_call(&app, &verified, &headers, entry, &call, &body)).await;
                }
                entry => {
                    taken.keep_few(1);
                    single(&app, &verified, entry, &call, &body).await
                }
            },
            Parsed::Single(Err(refusal)) => {
                answered(&app, None, refusal.error.kind());
                if refusal.notification {
                    return accepted();
                }
                return failed(refusal.id.as_ref(), refusal.error.into());
            }
            Parsed::Batch(calls) => {
                let count = calls.len();
                taken.keep(places_of(&calls));
                if let Err(refused) = may_call(&app, &verified, count.saturating_sub(1)) {
                    return *refused;
                }
                let at_once = taken.count().max(BATCH_CALLS_PER_PLACE);
                let served = Box::pin(batch(&app, &verified, calls, &body, at_once)).await;
                // Who does not take the answer to a batch must not keep others from being worked on.
                taken.keep_few(places_one_by_one(count));
                request::note(Note { method: Some("batch"), outcome: Some(OK) });
                served
            }
        };
        deliver(&app, served, taken).await
    }
}

/// Who sends a request, if it may be looked at at all.
pub(super) fn admit_caller(
    app: &App,
    version: Version,
    headers: &HeaderMap,
) -> Result<Verified, Box<Response<Body>>> {
    if app.is_draining() {
        return Err(Box::new(busy(None)));
    }
    if !gate::names_one_host(version, headers) {
        let error = ErrorObject::invalid_request("the header Host must be there, and once");
        return Err(Box::new(failed(None, error.into())));
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
fn admit(app: &App, version: Version, headers: &HeaderMap) -> Result<Verified, Box<Response<Body>>> {
    let verified = admit_caller(app, version, headers)?;
    if !gate::is_json(headers) {
        return Err(Box::new(failed(None, ErrorObject::unsupported_media_type().into())));
    }
    may_call(app, &verified, 1)?;
    Ok(verified)
}

/// Reads the body of a request and finds places for its calls: before it reads, so that whoever waits holds nothing but its
/// head, and nobody waits twice. What was read and understood is carried out. A body that is slow goes on without a place
/// and waits for one again, or some slow clients could keep all places.
async fn let_in(app: &App, body: Body) -> Result<(Collected, Taken), Box<Response<Body>>> {
    let Some(taken) = places(app, most_places(body.size_hint().exact())).await else {
        return Err(Box::new(Box::pin(turned_away(app, body, busy(None))).await));
    };
    let mut taken = Some(taken);
    let mut slow = None;
    let turns_slow = || {
        slow = Some(app.slow.token());
        taken = None;
    };
    let collected = app.bodies.collect(body, app.settings.max_body_bytes, turns_slow).await;
    let collected = collected.map_err(|error| Box::new(unread(app, &error)))?;
    if let Some(taken) = taken {
        return Ok((collected, taken));
    }
    let length = u64::try_from(collected.bytes.len()).ok();
    // It has begun, so it is finished even if the end has begun since.
    let taken = Box::pin(app.places.take(most_places(length))).await.ok_or_else(|| Box::new(busy(None)))?;
    drop(slow);
    Ok((collected, taken))
}

/// What the calls of a body of this many bytes can need, if it is a batch; nobody knows that before it is read. Large ones may
/// be of new tasks, with a place for each; in small ones such are done together by as many as they have places.
fn most_places(bytes: Option<u64>) -> Need {
    let calls = bytes.and_then(|bytes| usize::try_from(bytes / SMALLEST_CALL_BYTES).ok());
    match calls.unwrap_or(usize::MAX) {
        calls if calls < envelope::MAX_BATCH => Need::Few(calls.max(1).div_ceil(BATCH_CALLS_PER_PLACE)),
        _ => Need::Many(envelope::MAX_BATCH),
    }
}

/// How many places so many calls need that are done one after the other.
const fn places_one_by_one(calls: usize) -> usize {
    calls.div_ceil(BATCH_CALLS_PER_PLACE)
}

/// How many places a batch needs while it is worked on.
fn places_of(calls: &[Element<'_>]) -> usize {
    let mut most = places_one_by_one(calls.len());
    let mut rest = calls;
    while !rest.is_empty() {
        let together = together(rest, 0, usize::MAX);
        most = most.max(together);
        rest = rest.get(together..).unwrap_or_default();
    }
    most
}

/// Places for calls that are worked on, if there are as many soon.
async fn places(app: &App, need: Need) -> Option<Taken> {
    let taken = app.places.take(need).await?;
    // The end may have begun in the meantime.
    (!app.is_draining()).then_some(taken)
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
async fn turned_away(app: &App, body: Body, mut response: Response<Body>) -> Response<Body> {
    if !body.is_end_stream() && !app.bodies.discard(body).await {
        response.headers_mut().insert(axum::http::header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

fn unread(app: &App, error: &BodyError) -> Response<Body> {
    let maximum = u64::try_from(app.settings.max_body_bytes).unwrap_or(u64::MAX);
    let mut response = match error {
        BodyError::TooLarge => failed(None, ErrorObject::body_too_large(maximum).into()),
        BodyError::TooSlow => failed(None, ErrorObject::request_timeout().into()),
        BodyError::NoRoom { taken: true } => return busy(None),
        BodyError::NoRoom { taken: false } => busy(None),
        BodyError::Broken => failed(None, ErrorObject::invalid_request("the body is incomplete").into()),
    };
    // The rest of the body is not read, so the connection cannot be used again.
    response.headers_mut().insert(axum::http::header::CONNECTION, HeaderValue::from_static("close"));
    response
}

/// What a request is answered with: an answer with the room that it has so far, or a response that needs none.
enum Served {
    Answer(Answer, Room),
    Other(Box<Response<Body>>),
}

/// Sends an answer. What is `held`, its place among the calls that are worked on, is given back only when the answer
/// was handed over.
async fn deliver<H: Send + Unpin + 'static>(app: &App, served: Served, held: H) -> Response<Body> {
    let (answer, room) = match served {
        Served::Answer(answer, room) => (answer, room),
        Served::Other(response) => return *response,
    };
    match app.answers.body(answer, room, held).await {
        Ok(body) => json(StatusCode::OK, body),
        Err(NoRoom) => busy(None),
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
        (None, _) => Served::Other(Box::new(accepted())),
        (Some(_), Ok(answer)) => Served::Answer(answer, None),
        (Some(id), Err(failure)) => Served::Other(Box::new(failed(Some(id), failure))),
    }
}

async fn serve(
    app: &App,
    verified: &Verified,
    entry: Option<&Entry>,
    call: &Call<'_>,
    body: &Bytes,
) -> Result<Answer, Failure> {
    let Some(entry) = entry else {
        answered(app, None, Some(Kind::MethodNotFound));
        return Err(ErrorObject::method_not_found().into());
    };
    let time = Stopwatch::start();
    let served = match dispatch::serve(app, &verified.caller, entry, call, body) {
        Ok(served) => served.await,
        Err(refused) => Err(refused),
    };
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
        return deliver(app, served, ()).await;
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

/// Serves the calls of a batch in their order. Tasks that are created one after the other wait for the disk together, up to
/// `at_once` of them: none can see what the one before it does.
async fn batch(
    app: &App,
    verified: &Verified,
    calls: Vec<Element<'_>>,
    body: &Bytes,
    at_once: usize,
) -> Served {
    let mut answer = Answer { text: vec![b'['], changed: false };
    let mut room = None;
    let mut has_room = true;
    let mut rest = calls.as_slice();
    while !rest.is_empty() {
        let (together, after) = rest.split_at(together(rest, answer.text.len(), at_once));
        rest = after;
        let so_far = has_room.then_some(answer.text.len());
        // Each is polled once, until it waits for the disk, before any is waited for: so they come to the writer in their order
        // and are committed together. Were one put off by the runtime, a later one could be there before it.
        let mut served: Vec<_> = together
            .iter()
            .map(|element| {
                maybe_done(unconstrained(Box::pin(batch_element(app, verified, element, body, so_far))))
            })
            .collect();
        for one in &mut served {
            let _waits = poll!(&mut *one);
        }
        for (element, one) in together.iter().zip(&mut served) {
            (&mut *one).await;
            let Some(mut one) = Pin::new(one).take_output().flatten() else { continue };
            let full = app.answers.make_room(&mut room, answer.text.len() + one.text.len()).is_err();
            // What was done is told; but nothing more is done of which as much would have to be told.
            has_room &= !(full && one.changed);
            if full && !one.changed && one.text.len() > SHORT_BYTES {
                // Only this one is refused: the others may have changed something.
                let id = element.as_ref().ok().and_then(|call| call.id.as_ref());
                one.text = envelope::failure(id, &ErrorObject::unavailable(BUSY_RETRY_MS));
            }
            if answer.text.len() > 1 {
                answer.text.push(b',');
            }
            answer.text.extend_from_slice(&one.text);
            answer.changed |= one.changed;
        }
    }
    if answer.text.len() == 1 {
        return Served::Other(Box::new(accepted()));
    }
    answer.text.push(b']');
    Served::Answer(answer, room)
}

/// How many calls at the beginning of these are served together: one, or several, `at_once` at most, that create a task. With
/// an idempotency key a task may be there already, and what it holds is told; without one an answer is short, and several fit
/// in what is left of the maximum for the whole.
fn together(calls: &[Element<'_>], so_far: usize, at_once: usize) -> usize {
    let is_new = |element: &&Element<'_>| {
        let Ok(call) = element else { return false };
        let creates = lookup(&call.method).is_some_and(|entry| entry.method == MethodName::Create);
        creates && !call.params.iter().any(|(name, _)| name == "idempotencyKey")
    };
    let count = calls.iter().take(at_once).take_while(is_new).count().max(1);
    if so_far + count * CREATED_BYTES > MAX_ANSWER_BYTES { 1 } else { count }
}

/// Serves one call of a batch. `so_far` is how many bytes the calls before it are answered with, nothing if there is no room
/// for more of them.
async fn batch_element(
    app: &App,
    verified: &Verified,
    element: &Element<'_>,
    body: &Bytes,
    so_far: Option<usize>,
) -> Option<Answer> {
    let refused = |id: Option<&Id>, error: &ErrorObject| {
        Some(Answer { text: envelope::failure(id, error), changed: false })
    };
    let call = match element {
        Ok(call) => call,
        Err(refusal) if refusal.notification => {
            answered(app, None, refusal.error.kind());
            return None;
        }
        Err(refusal) => {
            answered(app, None, refusal.error.kind());
            return refused(refusal.id.as_ref(), &refusal.error);
        }
    };
    let entry = lookup(&call.method);
    let full = || {
        let maximum = u64::try_from(MAX_ANSWER_BYTES).unwrap_or(u64::MAX);
        Failure::from(ErrorObject::limit_exceeded("maxBatchAnswerBytes", maximum))
    };
    // Without room, and beyond the maximum, it is not carried out: its answer could not be sent.
    let served = if so_far.is_none() {
        answered(app, entry.map(|entry| entry.method), Some(Kind::Unavailable));
        Err(ErrorObject::unavailable(BUSY_RETRY_MS).into())
    } else if so_far > Some(MAX_ANSWER_BYTES) {
        answered(app, entry.map(|entry| entry.method), Some(Kind::LimitExceeded));
        Err(full())
    } else if let Some(entry) = entry.filter(|entry| entry.single_only) {
        answered(app, Some(entry.method), Some(Kind::InvalidRequest));
        Err(ErrorObject::invalid_request("this method must be called alone, not in a batch").into())
    } else {
        serve(app, verified, entry, call, body).await
    };
    let id = call.id.as_ref()?;
    let so_far = so_far.unwrap_or_default();
    match served {
        // A change that was made is told, whatever the room; a read can be asked for again.
        Ok(answer) if answer.changed || so_far.saturating_add(answer.text.len()) <= MAX_ANSWER_BYTES => {
            Some(answer)
        }
        Ok(_) => refused(Some(id), &full().error),
        Err(failure) => refused(Some(id), &failure.error),
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
