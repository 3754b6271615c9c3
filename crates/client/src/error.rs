//! What can go wrong with a call, layer by layer.

use std::time::Duration;

use task_broker_protocol::{ErrorObject, Kind};

/// How much of a text from outside an error repeats, in bytes.
const MAX_TEXT_BYTES: usize = 1024;

/// Why a call has no result.
///
/// Each layer has its own case, so that a caller can tell "the broker said no" ([`Error::Rpc`]) from "nobody
/// answered" ([`Error::Transport`], [`Error::Timeout`]). What a repetition can mend has been repeated already when a
/// caller sees the error; then it is wrapped in [`Error::GaveUp`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no token to send: the file cannot be read or the provider failed.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// The connection could not be made, or it broke off.
    #[error(transparent)]
    Transport(TransportError),
    /// Nothing was answered in time. Whether the call was carried out is unknown.
    #[error("no answer within {} ms", after.as_millis())]
    Timeout {
        /// How long was waited for.
        after: Duration,
    },
    /// An HTTP status that says that no call was served.
    #[error(transparent)]
    Http(HttpError),
    /// The broker understood the call and answered with an error.
    #[error(transparent)]
    Rpc(RpcError),
    /// The answer is not one that a broker gives.
    #[error(transparent)]
    Protocol(ProtocolError),
    /// The request is larger than the broker takes. It was not sent.
    #[error("the request has {bytes} bytes, and the broker takes at most {maximum}")]
    RequestTooLarge {
        /// How large it is.
        bytes: u64,
        /// How large it may be.
        maximum: u64,
    },
    /// The params could not be written as JSON. Nothing was sent.
    #[error("the params cannot be written as JSON: {0}")]
    Params(#[source] serde_json::Error),
    /// The operating system has no randomness for an idempotency key. Nothing was sent.
    #[error("no randomness for an idempotency key: {0}")]
    Randomness(#[source] getrandom::Error),
    /// Every attempt failed, and the retry budget is spent.
    #[error("gave up after {attempts} attempts in {} ms: {last}", elapsed.as_millis())]
    GaveUp {
        /// How many times the call was sent, or tried to be.
        attempts: u32,
        /// From the first attempt to the last.
        elapsed: Duration,
        /// One of the attempts may have been carried out; see [`Error::outcome_unknown`].
        outcome_unknown: bool,
        /// What the last attempt ended with.
        #[source]
        last: Box<Error>,
    },
}

impl Error {
    /// What the broker answered, when it was the broker that said no.
    #[must_use]
    pub fn rpc(&self) -> Option<&RpcError> {
        match self.last() {
            Self::Rpc(error) => Some(error),
            _ => None,
        }
    }

    /// The error itself, or the last one before the retries were given up.
    #[must_use]
    pub fn last(&self) -> &Self {
        match self {
            Self::GaveUp { last, .. } => last.last(),
            other => other,
        }
    }

    /// There is no such task for this caller: unknown, expired and somebody else's are one answer.
    #[must_use]
    pub fn is_task_not_found(&self) -> bool {
        matches!(self.rpc(), Some(RpcError::TaskNotFound))
    }

    /// The token was refused, or there was none where one is needed.
    #[must_use]
    pub fn is_unauthorized(&self) -> bool {
        matches!(self.last(), Self::Http(HttpError { status: 401, .. }))
    }

    /// The call may have been carried out although there is no answer. The same idempotency key again finds out.
    #[must_use]
    pub fn outcome_unknown(&self) -> bool {
        match self {
            Self::GaveUp { outcome_unknown, .. } => *outcome_unknown,
            Self::Timeout { .. } | Self::Protocol(_) => true,
            Self::Transport(error) => error.sent,
            // Something between here and the broker answered for it.
            Self::Http(error) => matches!(error.status, 500 | 502 | 504),
            Self::Rpc(error) => matches!(error, RpcError::Unavailable { .. } | RpcError::Internal),
            Self::Token(_) | Self::RequestTooLarge { .. } | Self::Params(_) | Self::Randomness(_) => false,
        }
    }

    /// Another attempt may end differently.
    pub(crate) fn is_transient(&self) -> bool {
        match self {
            Self::Transport(_) | Self::Timeout { .. } => true,
            Self::Token(error) => error.is_transient(),
            Self::Http(error) => matches!(error.status, 408 | 429 | 500 | 502 | 503 | 504),
            Self::Rpc(error) => matches!(error, RpcError::Unavailable { .. }),
            Self::Protocol(error) => error.is_cut_off(),
            Self::RequestTooLarge { .. } | Self::Params(_) | Self::Randomness(_) | Self::GaveUp { .. } => {
                false
            }
        }
    }

    /// When the other side asked to come again.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Http(error) => error.retry_after,
            Self::Rpc(RpcError::Unavailable { retry_after }) => *retry_after,
            _ => None,
        }
    }
}

/// There is no token to send.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenError {
    /// The file with the token cannot be read.
    #[error("the token file {path} cannot be read: {source}")]
    File {
        /// Which file.
        path: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The file is larger than any token.
    #[error("the token file {path} has more than {maximum} bytes")]
    TooLarge {
        /// Which file.
        path: String,
        /// How large it may be.
        maximum: u64,
    },
    /// The token is empty or has characters that no header can carry. Which ones is not told.
    #[error("the token is empty or cannot be sent in a header")]
    Unsendable,
    /// The provider failed.
    #[error("the token provider failed: {0}")]
    Provider(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl TokenError {
    fn is_transient(&self) -> bool {
        matches!(self, Self::File { .. } | Self::Provider(_))
    }
}

/// The connection could not be made, or it broke off.
#[derive(Debug, thiserror::Error)]
#[error("{what}: {detail}", what = if *sent { "the connection broke off" } else { "no connection" })]
pub struct TransportError {
    /// Part of the request may have left. `false`: certainly nothing was carried out.
    pub sent: bool,
    /// What the layers below say, from the outside in.
    pub detail: String,
}

impl TransportError {
    /// Puts an error and its causes into one line: the outermost one alone seldom says anything.
    pub(crate) fn new(sent: bool, error: &(dyn std::error::Error + 'static)) -> Self {
        let mut detail = error.to_string();
        let mut cause = error.source();
        while let Some(error) = cause {
            let text = error.to_string();
            if !detail.ends_with(&text) {
                detail.push_str(": ");
                detail.push_str(&text);
            }
            cause = error.source();
        }
        Self { sent, detail: cut(detail) }
    }
}

/// An HTTP status other than 200.
#[derive(Debug, thiserror::Error)]
#[error("HTTP {status}: {message}")]
pub struct HttpError {
    /// The status.
    pub status: u16,
    /// The kind that a broker gives with it; `None` when something else answered, a proxy for instance.
    pub kind: Option<Kind>,
    /// What is said about it, at most 1 KiB.
    pub message: String,
    /// The bound that was hit, for `413`: bytes of a body.
    pub maximum: Option<u64>,
    /// When to try again.
    pub retry_after: Option<Duration>,
}

impl HttpError {
    pub(crate) fn new(status: u16, retry_after: Option<Duration>, error: Option<ErrorObject>) -> Self {
        let Some(error) = error else {
            return Self {
                status,
                kind: None,
                message: "no reason given".to_owned(),
                maximum: None,
                retry_after,
            };
        };
        let after = error.data.retry_after_ms.map(Duration::from_millis).or(retry_after);
        let (kind, maximum) = (error.kind(), error.data.maximum);
        Self { status, kind, message: cut(error.message), maximum, retry_after: after }
    }
}

/// An error of the broker about a call, by its kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RpcError {
    /// Unknown, expired, or somebody else's; which of them is never told.
    #[error("there is no such task")]
    TaskNotFound,
    /// A parameter is missing or wrong.
    #[error("{message}")]
    InvalidParams {
        /// Which one, with its path: `error.code`.
        member: Option<String>,
        /// What is wrong with it.
        message: String,
    },
    /// The life cycle of the task does not allow it. The same call fails again.
    #[error("{message}")]
    InvalidTransition {
        /// Why not.
        message: String,
    },
    /// The task has another revision than was expected.
    #[error("the task has another revision")]
    RevisionConflict {
        /// The one it has.
        revision: Option<u64>,
    },
    /// The idempotency key was used with other params.
    #[error("the idempotency key was used with other params")]
    IdempotencyMismatch,
    /// Something is too large or too many.
    #[error("limit exceeded: {limit}")]
    LimitExceeded {
        /// The name of the limit, as `store/info` has it.
        limit: String,
        /// Its value, in its own unit.
        maximum: Option<u64>,
    },
    /// The token lacks a scope.
    #[error("the token lacks the scope {scope}")]
    Forbidden {
        /// Which one.
        scope: String,
    },
    /// Not now.
    #[error("temporarily unavailable")]
    Unavailable {
        /// When to try again.
        retry_after: Option<Duration>,
    },
    /// The broker's own fault; it says nothing about it, and its log does.
    #[error("internal error of the broker")]
    Internal,
    /// The broker does not know the method: it is older than this client.
    #[error("the broker does not know this method")]
    MethodNotFound,
    /// An error that this version does not know, or one of something that is no broker.
    #[error("{message} ({code})")]
    Other {
        /// The JSON-RPC code.
        code: i32,
        /// The kind's word, possibly empty.
        kind: String,
        /// What is said about it, at most 1 KiB.
        message: String,
    },
}

impl From<ErrorObject> for RpcError {
    fn from(error: ErrorObject) -> Self {
        let kind = error.kind();
        let ErrorObject { code, message, data } = error;
        let message = cut(message);
        match kind {
            Some(Kind::TaskNotFound) => Self::TaskNotFound,
            Some(Kind::InvalidParams) => Self::InvalidParams { member: data.member, message },
            Some(Kind::InvalidTransition) => Self::InvalidTransition { message },
            Some(Kind::RevisionConflict) => Self::RevisionConflict { revision: data.revision },
            Some(Kind::IdempotencyMismatch) => Self::IdempotencyMismatch,
            Some(Kind::LimitExceeded) => {
                Self::LimitExceeded { limit: data.limit.unwrap_or_default(), maximum: data.maximum }
            }
            Some(Kind::Forbidden) => Self::Forbidden { scope: data.scope.unwrap_or_default() },
            Some(Kind::Unavailable | Kind::TooManyRequests) => {
                Self::Unavailable { retry_after: data.retry_after_ms.map(Duration::from_millis) }
            }
            Some(Kind::Internal) => Self::Internal,
            Some(Kind::MethodNotFound) => Self::MethodNotFound,
            _ => Self::Other { code, kind: cut(data.kind.into_owned()), message },
        }
    }
}

/// An answer that is not one that a broker gives.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProtocolError {
    /// It is not JSON, or not in the shape that the method promises.
    #[error(transparent)]
    Unreadable(#[from] task_broker_protocol::envelope::ResponseError),
    /// A message of a stream cannot be read.
    #[error("a message of the stream cannot be read: {0}")]
    Message(#[source] serde_json::Error),
    /// It belongs to another call.
    #[error("the answer belongs to another call")]
    WrongId,
    /// It is larger than this client takes; see [`crate::ClientBuilder::max_response_bytes`].
    #[error("the answer is larger than {maximum} bytes")]
    TooLarge {
        /// How large it may be.
        maximum: usize,
    },
    /// A stream was asked for and something else was answered.
    #[error("the answer is no stream of events")]
    NotAStream,
}

impl ProtocolError {
    /// It ends in the middle, as when something between here and the broker closed the connection.
    fn is_cut_off(&self) -> bool {
        match self {
            Self::Unreadable(task_broker_protocol::envelope::ResponseError::Malformed(error)) => {
                error.is_eof()
            }
            _ => false,
        }
    }
}

/// Shortens a text from outside.
pub(crate) fn cut(mut text: String) -> String {
    let end = text.floor_char_boundary(MAX_TEXT_BYTES);
    text.truncate(end);
    text
}
