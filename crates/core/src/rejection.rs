//! Why a command was not carried out.

use std::borrow::Cow;

/// Why a command was refused. A refused command has changed nothing.
///
/// [`Rejection::Expired`] and [`Rejection::Foreign`] are kept apart here and become one and the same answer, the
/// one of an unknown task, in the broker.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Rejection {
    /// The TTL of the task has run out.
    #[error("the task has expired")]
    Expired,
    /// The task belongs to somebody else.
    #[error("the task belongs to another subject")]
    Foreign,
    /// A parameter has a value that is never allowed.
    #[error("{member}: {reason}")]
    InvalidParams {
        /// The member at fault, as the client wrote its path.
        member: Cow<'static, str>,
        /// What is wrong with it.
        reason: Cow<'static, str>,
    },
    /// The command does not fit the state of the task.
    #[error("{0}")]
    InvalidTransition(Cow<'static, str>),
    /// The caller expected another revision.
    #[error("the task is at revision {revision}")]
    RevisionConflict {
        /// The revision the task has.
        revision: u64,
    },
    /// The idempotency key was used for another call.
    #[error("the idempotency key was used before with another method or other parameters")]
    IdempotencyMismatch,
    /// Something is larger or more than is allowed.
    #[error("{limit} is limited to {maximum}")]
    LimitExceeded {
        /// The name of the limit, as in `store/info`.
        limit: &'static str,
        /// The limit.
        maximum: u64,
    },
    /// The caller lacks a scope.
    #[error("this needs the scope {scope}")]
    Forbidden {
        /// The scope that is missing.
        scope: &'static str,
    },
}

impl Rejection {
    /// A parameter that is never allowed.
    pub fn invalid(member: impl Into<Cow<'static, str>>, reason: impl Into<Cow<'static, str>>) -> Self {
        Self::InvalidParams { member: member.into(), reason: reason.into() }
    }
}
