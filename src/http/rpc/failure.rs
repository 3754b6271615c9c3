//! From a refusal to the error on the wire.

use axum::http::StatusCode;
use task_broker_core::Rejection;
use task_broker_protocol::{ErrorObject, Kind, ParamError};

use crate::broker::Refusal;

/// How long a client is asked to wait when it has too much open, in milliseconds.
const TOO_MANY_RETRY_MS: u64 = 1000;

/// An error answer.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) error: ErrorObject,
    /// The status when the call stands alone; inside a batch there is only one for all.
    pub(super) status: StatusCode,
}

impl From<ErrorObject> for Failure {
    fn from(error: ErrorObject) -> Self {
        let status = error.kind().map_or(200, Kind::http_status);
        Self { error, status: StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR) }
    }
}

impl From<ParamError> for Failure {
    fn from(error: ParamError) -> Self {
        ErrorObject::from(error).into()
    }
}

impl From<Rejection> for Failure {
    fn from(rejection: Rejection) -> Self {
        Refusal::from(rejection).into()
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::NotFound => ErrorObject::task_not_found().into(),
            Refusal::Rejected(rejection) => rejected(rejection).into(),
            Refusal::Unavailable { retry_after_ms } => ErrorObject::unavailable(retry_after_ms).into(),
            Refusal::Busy { retry_after_ms } => Self {
                error: ErrorObject::unavailable(retry_after_ms),
                status: StatusCode::SERVICE_UNAVAILABLE,
            },
            Refusal::TooMany => ErrorObject::too_many_requests(TOO_MANY_RETRY_MS).into(),
            Refusal::Internal => ErrorObject::internal().into(),
        }
    }
}

fn rejected(rejection: Rejection) -> ErrorObject {
    match rejection {
        Rejection::Expired | Rejection::Foreign => ErrorObject::task_not_found(),
        Rejection::InvalidParams { member, reason } => ErrorObject::invalid_params(&member, &reason),
        Rejection::InvalidTransition(why) => ErrorObject::invalid_transition(why),
        Rejection::RevisionConflict { revision } => ErrorObject::revision_conflict(revision),
        Rejection::IdempotencyMismatch => ErrorObject::idempotency_mismatch(),
        Rejection::LimitExceeded { limit, maximum } => ErrorObject::limit_exceeded(limit, maximum),
        Rejection::Forbidden { scope } => ErrorObject::forbidden(scope),
    }
}
