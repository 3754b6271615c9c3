//! The kinds of error (WIRE.md, Errors), their codes and their HTTP statuses.

use std::fmt;

/// What went wrong, as `error.data.kind` says it.
///
/// The first twelve answer a call. The others are for HTTP errors where no call was served; their codes are 1000
/// plus the HTTP status, because JSON-RPC keeps -32768..-32000 for itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The task is unknown, expired or somebody else's; which of them is never told.
    TaskNotFound,
    /// A parameter is missing or wrong; `data.member` names it.
    InvalidParams,
    /// The life cycle does not allow the command.
    InvalidTransition,
    /// `expectedRevision` is not the task's; `data.revision` is.
    RevisionConflict,
    /// The idempotency key was used with other params.
    IdempotencyMismatch,
    /// Something is too large or too many; `data.limit` names it, `data.maximum` is the bound.
    LimitExceeded,
    /// The caller lacks the scope in `data.scope`.
    Forbidden,
    /// Not now; try again after `data.retryAfterMs`.
    Unavailable,
    /// The broker's own fault. Says nothing about it.
    Internal,
    /// There is no such method.
    MethodNotFound,
    /// The envelope is not a JSON-RPC call.
    InvalidRequest,
    /// The body is not JSON.
    ParseError,
    /// HTTP 401: no token where one is needed, or a bad one.
    Unauthorized,
    /// HTTP 403: the `Origin` is not on the allow list.
    OriginForbidden,
    /// HTTP 405: the path takes another HTTP method.
    MethodNotAllowed,
    /// HTTP 406: the call is answered in a form that `Accept` does not allow.
    NotAcceptable,
    /// HTTP 408: the body did not arrive in time.
    RequestTimeout,
    /// HTTP 413: the body is too large; `data.maximum` is the bound in bytes.
    BodyTooLarge,
    /// HTTP 415: the body is not `application/json`, or its encoding is unknown.
    UnsupportedMediaType,
    /// HTTP 429: too many at once; try again after `data.retryAfterMs`.
    TooManyRequests,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 20] = [
        Self::TaskNotFound,
        Self::InvalidParams,
        Self::InvalidTransition,
        Self::RevisionConflict,
        Self::IdempotencyMismatch,
        Self::LimitExceeded,
        Self::Forbidden,
        Self::Unavailable,
        Self::Internal,
        Self::MethodNotFound,
        Self::InvalidRequest,
        Self::ParseError,
        Self::Unauthorized,
        Self::OriginForbidden,
        Self::MethodNotAllowed,
        Self::NotAcceptable,
        Self::RequestTimeout,
        Self::BodyTooLarge,
        Self::UnsupportedMediaType,
        Self::TooManyRequests,
    ];

    /// The JSON-RPC error code.
    #[must_use]
    pub const fn code(self) -> i32 {
        match self {
            Self::TaskNotFound | Self::InvalidParams => -32602,
            Self::InvalidTransition => 1001,
            Self::RevisionConflict => 1002,
            Self::IdempotencyMismatch => 1003,
            Self::LimitExceeded => 1004,
            Self::Forbidden => 1005,
            Self::Unavailable => 1006,
            Self::Internal => -32603,
            Self::MethodNotFound => -32601,
            Self::InvalidRequest => -32600,
            Self::ParseError => -32700,
            Self::Unauthorized => 1401,
            Self::OriginForbidden => 1403,
            Self::MethodNotAllowed => 1405,
            Self::NotAcceptable => 1406,
            Self::RequestTimeout => 1408,
            Self::BodyTooLarge => 1413,
            Self::UnsupportedMediaType => 1415,
            Self::TooManyRequests => 1429,
        }
    }

    /// The word in `error.data.kind`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::TaskNotFound => "task_not_found",
            Self::InvalidParams => "invalid_params",
            Self::InvalidTransition => "invalid_transition",
            Self::RevisionConflict => "revision_conflict",
            Self::IdempotencyMismatch => "idempotency_mismatch",
            Self::LimitExceeded => "limit_exceeded",
            Self::Forbidden => "forbidden",
            Self::Unavailable => "unavailable",
            Self::Internal => "internal",
            Self::MethodNotFound => "method_not_found",
            Self::InvalidRequest => "invalid_request",
            Self::ParseError => "parse_error",
            Self::Unauthorized => "unauthorized",
            Self::OriginForbidden => "origin_forbidden",
            Self::MethodNotAllowed => "method_not_allowed",
            Self::NotAcceptable => "not_acceptable",
            Self::RequestTimeout => "request_timeout",
            Self::BodyTooLarge => "body_too_large",
            Self::UnsupportedMediaType => "unsupported_media_type",
            Self::TooManyRequests => "too_many_requests",
        }
    }

    /// The kind that a word stands for; `None` for one that a newer server may have.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == word)
    }

    /// The HTTP status of a single answer on `/rpc` with this error; inside a batch it is always 200.
    ///
    /// [`Kind::Unavailable`] answers a call and is 200. Where no call was served (draining) the server sends 503
    /// with the same error.
    #[must_use]
    pub const fn http_status(self) -> u16 {
        match self {
            Self::TaskNotFound
            | Self::InvalidParams
            | Self::InvalidTransition
            | Self::RevisionConflict
            | Self::IdempotencyMismatch
            | Self::LimitExceeded
            | Self::Forbidden
            | Self::Unavailable
            | Self::Internal
            | Self::MethodNotFound => 200,
            Self::InvalidRequest | Self::ParseError => 400,
            Self::Unauthorized => 401,
            Self::OriginForbidden => 403,
            Self::MethodNotAllowed => 405,
            Self::NotAcceptable => 406,
            Self::RequestTimeout => 408,
            Self::BodyTooLarge => 413,
            Self::UnsupportedMediaType => 415,
            Self::TooManyRequests => 429,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
