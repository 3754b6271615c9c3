//! Why the broker did not do what was asked.

use task_broker_core::Rejection;

use crate::store::StoreError;

/// Why a request was refused. The only place where "unknown", "expired" and "not yours" become one answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// There is no such task for this caller now.
    #[error("there is no such task for this caller")]
    NotFound,
    /// The rules say no; never [`Rejection::Expired`] or [`Rejection::Foreign`].
    #[error(transparent)]
    Rejected(Rejection),
    /// Not now; nothing was changed.
    #[error("not now")]
    Unavailable {
        /// When to try again, in milliseconds.
        retry_after_ms: u64,
    },
    /// Too many calls of this sort are open; nothing was begun.
    #[error("too many at once")]
    Busy {
        /// When to try again, in milliseconds.
        retry_after_ms: u64,
    },
    /// Too many of these at once for one subject.
    #[error("too many at once for one subject")]
    TooMany,
    /// The broker is at fault. It has told its log, and tells the client nothing.
    #[error("internal")]
    Internal,
}

impl From<Rejection> for Refusal {
    fn from(rejection: Rejection) -> Self {
        match rejection {
            Rejection::Expired | Rejection::Foreign => Self::NotFound,
            other => Self::Rejected(other),
        }
    }
}

impl From<StoreError> for Refusal {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Unavailable { retry_after_ms } => Self::Unavailable { retry_after_ms },
            // The same key again finds out what became of it.
            StoreError::OutcomeUnknown | StoreError::Broken => Self::Unavailable { retry_after_ms: 1000 },
            StoreError::Full => Self::Unavailable { retry_after_ms: 5000 },
            StoreError::Damaged { place } => {
                tracing::error!(place, "stored data is damaged");
                Self::Internal
            }
        }
    }
}
