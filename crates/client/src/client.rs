//! One logical call: its attempts, its idempotency key, and what it ends with.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use hyper::body::Incoming;
use task_broker_protocol::envelope::{self, Id};
use task_broker_protocol::methods::info::Limits;
use task_broker_protocol::shapes::Guard;
use task_broker_protocol::{Method, envelope::Response as RpcResponse};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::builder::{ClientBuilder, Settings};
use crate::error::{Error, ProtocolError, RpcError};
use crate::retry::Attempts;
use crate::token::Tokens;
use crate::transport::{Form, Transport};

/// What a broker takes when nothing else is known: its default for `--max-body-bytes`.
const DEFAULT_MAX_BODY_BYTES: u64 = 8 * 1024 * 1024;

/// A typed client of one broker. Clones share connections and bounds, and are cheap.
///
/// Every method of the broker is a method here, with the same name and the params and results of
/// [`task_broker_protocol::methods`]. See the [crate's page](crate) for retries, idempotency and cancellation safety.
#[derive(Debug, Clone)]
pub struct Client {
    inner: Arc<Inner>,
    retry_budget: Duration,
}

#[derive(Debug)]
struct Inner {
    transport: Transport,
    tokens: Tokens,
    settings: Settings,
    calls: Semaphore,
    waits: Semaphore,
    next_id: AtomicU64,
    /// What the broker said last about the size of a body; 0 while it has not been asked.
    max_body_bytes: AtomicU64,
}

/// How a call ended, and whether an attempt before the last one may have been carried out.
pub(crate) struct Ending<R> {
    pub(crate) result: Result<R, Error>,
    /// An earlier attempt may have been carried out, and its answer was lost.
    pub(crate) in_doubt: bool,
}

impl Client {
    /// Begins a client of the broker at `url`: `http://127.0.0.1:8420`, or with a path when the broker stands behind
    /// a proxy.
    pub fn builder(url: &str) -> ClientBuilder {
        ClientBuilder::new(url)
    }

    pub(crate) fn new(transport: Transport, tokens: Tokens, settings: Settings) -> Self {
        let retry_budget = settings.retry_budget;
        let inner = Inner {
            transport,
            tokens,
            calls: Semaphore::new(settings.max_in_flight.min(Semaphore::MAX_PERMITS)),
            waits: Semaphore::new(settings.max_waits.min(Semaphore::MAX_PERMITS)),
            settings,
            next_id: AtomicU64::new(1),
            max_body_bytes: AtomicU64::new(0),
        };
        Self { inner: Arc::new(inner), retry_budget }
    }

    /// Where calls are sent.
    #[must_use]
    pub fn endpoint(&self) -> String {
        self.inner.transport.uri().to_string()
    }

    /// The same client, connections and bounds included, with another retry budget.
    #[must_use]
    pub fn with_retry_budget(&self, budget: Duration) -> Self {
        Self { inner: Arc::clone(&self.inner), retry_budget: budget }
    }

    #[cfg(feature = "tower-mcp")]
    pub(crate) fn retry_budget(&self) -> Duration {
        self.retry_budget
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.inner.settings
    }

    /// Whether the broker has been asked for its limits.
    #[cfg(feature = "tower-mcp")]
    pub(crate) fn knows_limits(&self) -> bool {
        self.inner.max_body_bytes.load(Ordering::Relaxed) != 0
    }

    /// Remembers the limits, so that a request that is too large is not even sent: a server that refuses a body
    /// often closes the connection before the answer is read.
    pub(crate) fn learn_limits(&self, limits: &Limits) {
        let told = if limits.max_body_bytes > 0 { limits.max_body_bytes } else { DEFAULT_MAX_BODY_BYTES };
        self.inner.max_body_bytes.store(told, Ordering::Relaxed);
    }

    /// A call that is repeated while that can help.
    pub(crate) async fn call<M: Method>(&self, params: &M::Params) -> Result<M::Result, Error> {
        self.call_to_the_end::<M>(params, Duration::ZERO, &self.inner.calls).await.result
    }

    /// The same, with what is known about attempts whose answers were lost.
    pub(crate) async fn call_in_doubt<M: Method>(&self, params: &M::Params) -> Ending<M::Result> {
        self.call_to_the_end::<M>(params, Duration::ZERO, &self.inner.calls).await
    }

    /// A call that the broker may answer late, up to `patience`.
    pub(crate) async fn call_patiently<M: Method>(
        &self,
        params: &M::Params,
        patience: Duration,
    ) -> Result<M::Result, Error> {
        self.call_to_the_end::<M>(params, patience, &self.inner.waits).await.result
    }

    async fn call_to_the_end<M: Method>(
        &self,
        params: &M::Params,
        patience: Duration,
        seats: &Semaphore,
    ) -> Ending<M::Result> {
        let id = Id::from(self.inner.next_id.fetch_add(1, Ordering::Relaxed));
        let body = match self.write::<M>(&id, params) {
            Ok(body) => body,
            Err(error) => return Ending { result: Err(error), in_doubt: false },
        };
        let limit = self.inner.settings.request_timeout.saturating_add(patience);
        let mut attempts = Attempts::new(self.retry_budget);
        let (mut in_doubt, mut refused) = (false, false);
        loop {
            attempts.begin();
            let attempt = self.attempt::<M>(&id, body.clone(), refused, seats, limit).await;
            let Err(error) = attempt else { return Ending { result: attempt, in_doubt } };
            // A wait may have been with the broker for long; how long that was says nothing about the broker's absence.
            if patience > Duration::ZERO && attempts.made() == 1 {
                attempts.count_from_now();
            }
            // A token may have ended between two looks at its source. One other is tried, at once.
            if error.is_unauthorized() && !refused && self.inner.tokens.can_change() {
                refused = true;
                continue;
            }
            refused = false;
            let pause = if error.is_transient() { attempts.pause(error.retry_after()) } else { None };
            let Some(pause) = pause else {
                let result = Err(give_up(error, &attempts, in_doubt));
                return Ending { result, in_doubt };
            };
            in_doubt |= error.outcome_unknown();
            tracing::debug!(method = M::NAME, attempt = attempts.made(), %error, "a call is repeated");
            tokio::time::sleep(pause).await;
        }
    }

    fn write<M: Method>(&self, id: &Id, params: &M::Params) -> Result<Bytes, Error> {
        let body = envelope::request(id, M::NAME, params).map_err(Error::Params)?;
        let told = self.inner.max_body_bytes.load(Ordering::Relaxed);
        let maximum = if told == 0 { DEFAULT_MAX_BODY_BYTES } else { told };
        let bytes = u64::try_from(body.len()).unwrap_or(u64::MAX);
        if bytes > maximum {
            return Err(Error::RequestTooLarge { bytes, maximum });
        }
        Ok(Bytes::from(body))
    }

    async fn attempt<M: Method>(
        &self,
        id: &Id,
        body: Bytes,
        refused: bool,
        seats: &Semaphore,
        limit: Duration,
    ) -> Result<M::Result, Error> {
        // The semaphores are never closed; should one be, the call goes out without a seat.
        let _seat = seats.acquire().await.ok();
        let exchange = async {
            let token = self.inner.tokens.header(refused).await?;
            let answer = self.inner.transport.post(body, Form::Json, token).await?;
            let text = self.inner.transport.read(answer).await?;
            read_answer::<M>(id, &text)
        };
        timeout(limit, exchange).await.unwrap_or(Err(Error::Timeout { after: limit }))
    }

    /// One attempt to open a stream.
    pub(crate) async fn open<M: Method>(&self, params: &M::Params) -> Result<Response<Incoming>, Error> {
        let id = Id::from(self.inner.next_id.fetch_add(1, Ordering::Relaxed));
        let body = self.write::<M>(&id, params)?;
        let limit = self.inner.settings.request_timeout;
        let mut refused = false;
        loop {
            let exchange = async {
                let token = self.inner.tokens.header(refused).await?;
                self.inner.transport.post(body.clone(), Form::Stream, token).await
            };
            match timeout(limit, exchange).await.unwrap_or(Err(Error::Timeout { after: limit })) {
                Err(error) if error.is_unauthorized() && !refused && self.inner.tokens.can_change() => {
                    refused = true;
                }
                Ok(answer) if !is_stream(&answer) => {
                    let text = self.inner.transport.read(answer).await?;
                    return Err(match read_answer::<M>(&id, &text) {
                        Ok(_) => Error::Protocol(ProtocolError::NotAStream),
                        Err(error) => error,
                    });
                }
                other => return other,
            }
        }
    }
}

fn is_stream(answer: &Response<Incoming>) -> bool {
    let kind = answer.headers().get(http::header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    kind.is_some_and(|kind| kind.trim_start().to_ascii_lowercase().starts_with("text/event-stream"))
}

fn read_answer<M: Method>(id: &Id, text: &[u8]) -> Result<M::Result, Error> {
    let answer = RpcResponse::<M::Result>::parse(text).map_err(|error| Error::Protocol(error.into()))?;
    match answer.outcome {
        Err(error) if answer.id.is_none() || answer.id.as_ref() == Some(id) => {
            Err(Error::Rpc(RpcError::from(error)))
        }
        Ok(result) if answer.id.as_ref() == Some(id) => Ok(result),
        _ => Err(Error::Protocol(ProtocolError::WrongId)),
    }
}

fn give_up(error: Error, attempts: &Attempts, in_doubt: bool) -> Error {
    // A clear answer to a repeated call is as good as one to the first.
    if attempts.made() < 2 || matches!(error, Error::Rpc(_)) && !error.is_transient() {
        return error;
    }
    Error::GaveUp {
        attempts: attempts.made(),
        elapsed: attempts.elapsed(),
        outcome_unknown: in_doubt || error.outcome_unknown(),
        last: Box::new(error),
    }
}

/// Gives a call an idempotency key if it has none, so that all its attempts are one call to the broker.
pub(crate) fn ensure_key(guard: &mut Guard) -> Result<(), Error> {
    if guard.idempotency_key.is_none() {
        guard.idempotency_key = Some(idempotency_key()?);
    }
    Ok(())
}

/// A fresh idempotency key: 128 random bits as 32 hex digits.
///
/// # Errors
/// When the operating system has no randomness.
pub fn idempotency_key() -> Result<String, Error> {
    let mut bytes = [0_u8; 16];
    getrandom::fill(&mut bytes).map_err(Error::Randomness)?;
    Ok(format!("{:032x}", u128::from_be_bytes(bytes)))
}
