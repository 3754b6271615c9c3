//! Errors on the wire (WIRE.md, Errors): the error object, and one constructor for each kind.

use std::borrow::Cow;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

pub use crate::kind::Kind;
use crate::members::ParamError;

/// `error.data`: the kind and what belongs to it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ErrorData {
    /// The kind's word; one that this version does not know is kept as text. Empty when the answer had none, which
    /// means that it came from something else than a broker.
    #[serde(default)]
    pub kind: Cow<'static, str>,
    /// The parameter that is wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub member: Option<String>,
    /// The limit that was hit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<String>,
    /// The value of that limit, in its own unit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub maximum: Option<u64>,
    /// The revision that the task has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<u64>,
    /// The scope that is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
    /// When to try again, in milliseconds from now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    /// More about it, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// A JSON-RPC error.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message} ({code})")]
pub struct ErrorObject {
    /// The code; several kinds share one, so look at the kind.
    pub code: i32,
    /// The error in words.
    pub message: String,
    /// The kind and what belongs to it. Boxed, because errors are passed up by value everywhere.
    #[serde(default, deserialize_with = "lenient_data")]
    pub data: Box<ErrorData>,
}

impl ErrorObject {
    /// An error of a kind with nothing but a message.
    #[must_use]
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        let data = ErrorData { kind: Cow::Borrowed(kind.as_str()), ..ErrorData::default() };
        Self { code: kind.code(), message: message.into(), data: Box::new(data) }
    }

    /// The kind; `None` for one that this version does not know.
    #[must_use]
    pub fn kind(&self) -> Option<Kind> {
        Kind::from_word(&self.data.kind)
    }

    /// The same error with more about it in `data.reason`.
    #[must_use]
    pub fn with_reason(mut self, reason: impl Into<String>) -> Self {
        self.data.reason = Some(reason.into());
        self
    }

    /// Unknown, expired or foreign: one answer, byte for byte.
    #[must_use]
    pub fn task_not_found() -> Self {
        Self::new(Kind::TaskNotFound, "Task not found")
    }

    /// A parameter is missing or wrong. `reason` is read behind the member's name.
    #[must_use]
    pub fn invalid_params(member: &str, reason: &str) -> Self {
        let mut error = Self::new(Kind::InvalidParams, format!("Invalid params: {member} {reason}"));
        error.data.member = Some(member.to_owned());
        error
    }

    /// The life cycle does not allow the command; `message` says why.
    #[must_use]
    pub fn invalid_transition(message: impl Into<String>) -> Self {
        Self::new(Kind::InvalidTransition, message)
    }

    /// `expectedRevision` is not the `current` one.
    #[must_use]
    pub fn revision_conflict(current: u64) -> Self {
        let mut error = Self::new(Kind::RevisionConflict, "The task has another revision");
        error.data.revision = Some(current);
        error
    }

    /// The idempotency key was used with other params.
    #[must_use]
    pub fn idempotency_mismatch() -> Self {
        Self::new(Kind::IdempotencyMismatch, "The idempotency key was used with other params")
    }

    /// The limit named `limit` is `maximum`, in its own unit.
    #[must_use]
    pub fn limit_exceeded(limit: &str, maximum: u64) -> Self {
        let mut error =
            Self::new(Kind::LimitExceeded, format!("Limit exceeded: {limit} (at most {maximum})"));
        error.data.limit = Some(limit.to_owned());
        error.data.maximum = Some(maximum);
        error
    }

    /// The caller lacks `scope`.
    #[must_use]
    pub fn forbidden(scope: &str) -> Self {
        let mut error = Self::new(Kind::Forbidden, format!("Forbidden: the scope {scope} is needed"));
        error.data.scope = Some(scope.to_owned());
        error
    }

    /// Not now; try again after so many milliseconds.
    #[must_use]
    pub fn unavailable(retry_after_ms: u64) -> Self {
        let mut error = Self::new(Kind::Unavailable, "Temporarily unavailable");
        error.data.retry_after_ms = Some(retry_after_ms);
        error
    }

    /// The broker's own fault. Takes no text, so that none can leave the process.
    #[must_use]
    pub fn internal() -> Self {
        Self::new(Kind::Internal, "Internal error")
    }

    /// There is no such method.
    #[must_use]
    pub fn method_not_found() -> Self {
        Self::new(Kind::MethodNotFound, "Method not found")
    }

    /// The envelope is not a JSON-RPC call; `reason` says why.
    #[must_use]
    pub fn invalid_request(reason: &str) -> Self {
        Self::new(Kind::InvalidRequest, format!("Invalid request: {reason}"))
    }

    /// The body is not one JSON text in UTF-8.
    #[must_use]
    pub fn parse_error() -> Self {
        Self::new(Kind::ParseError, "Parse error")
    }

    /// No token where one is needed, or a bad one. Which of them is not told.
    #[must_use]
    pub fn unauthorized() -> Self {
        Self::new(Kind::Unauthorized, "Unauthorized")
    }

    /// The `Origin` is not on the allow list.
    #[must_use]
    pub fn origin_forbidden() -> Self {
        Self::new(Kind::OriginForbidden, "This origin is not allowed")
    }

    /// The path takes another HTTP method.
    #[must_use]
    pub fn method_not_allowed() -> Self {
        Self::new(Kind::MethodNotAllowed, "This HTTP method is not allowed here")
    }

    /// `Accept` does not allow the form of the answer; `needed` is the media type that it must name.
    #[must_use]
    pub fn not_acceptable(needed: &str) -> Self {
        Self::new(Kind::NotAcceptable, format!("The Accept header must allow {needed}"))
    }

    /// The body did not arrive in time.
    #[must_use]
    pub fn request_timeout() -> Self {
        Self::new(Kind::RequestTimeout, "The request did not arrive in time")
    }

    /// The body, decompressed, is larger than `maximum` bytes.
    #[must_use]
    pub fn body_too_large(maximum: u64) -> Self {
        let mut error = Self::new(Kind::BodyTooLarge, format!("The body is larger than {maximum} bytes"));
        error.data.limit = Some("maxBodyBytes".to_owned());
        error.data.maximum = Some(maximum);
        error
    }

    /// The body is not JSON by its headers.
    #[must_use]
    pub fn unsupported_media_type() -> Self {
        Self::new(Kind::UnsupportedMediaType, "The body must be application/json in UTF-8")
    }

    /// Too many at once; try again after so many milliseconds.
    #[must_use]
    pub fn too_many_requests(retry_after_ms: u64) -> Self {
        let mut error = Self::new(Kind::TooManyRequests, "Too many requests");
        error.data.retry_after_ms = Some(retry_after_ms);
        error
    }
}

impl From<ParamError> for ErrorObject {
    fn from(error: ParamError) -> Self {
        Self::invalid_params(&error.member, &error.reason)
    }
}

/// Reads `data` of any shape: a gateway between client and broker may answer with something of its own, and its
/// code and message must still be readable.
fn lenient_data<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Box<ErrorData>, D::Error> {
    let raw = Option::<Box<RawValue>>::deserialize(deserializer)?;
    Ok(raw.and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default())
}
