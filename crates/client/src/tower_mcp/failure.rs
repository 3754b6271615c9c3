//! The client's errors as those of tower-mcp's trait, kept apart.

use ::tower_mcp::async_task::{TaskRetentionLimitKind, TaskStoreError};

use crate::error::{Error, HttpError, RpcError};

/// The error of a call.
pub(crate) fn from_client(error: &Error) -> TaskStoreError {
    match error.last() {
        Error::Rpc(rpc) => from_rpc(rpc),
        Error::RequestTooLarge { maximum, .. }
        | Error::Http(HttpError { status: 413, maximum: Some(maximum), .. }) => payload_bytes(*maximum),
        Error::Params(source) => TaskStoreError::Encode(source.to_string()),
        Error::Protocol(_) => TaskStoreError::Decode(error.to_string()),
        _ => TaskStoreError::Backend(error.to_string()),
    }
}

fn from_rpc(error: &RpcError) -> TaskStoreError {
    match error {
        RpcError::InvalidTransition { message } => TaskStoreError::InvalidTransition(message.clone()),
        // What was to be stored cannot be written in the broker's terms: nested too deeply, an owner too long.
        RpcError::InvalidParams { message, .. } => TaskStoreError::Encode(message.clone()),
        RpcError::LimitExceeded { limit, maximum } => from_limit(limit, *maximum),
        RpcError::Forbidden { scope } => TaskStoreError::Backend(format!(
            "the broker refused it: the token of this server lacks the scope {scope}, which naming another owner \
             than the token's own subject needs"
        )),
        other => TaskStoreError::Backend(other.to_string()),
    }
}

fn from_limit(limit: &str, maximum: Option<u64>) -> TaskStoreError {
    let kind = match limit {
        "maxTasks" | "quotaTasksPerOwner" => TaskRetentionLimitKind::TaskCount,
        "quotaBytesPerOwner" => TaskRetentionLimitKind::AggregateBytes,
        // Not bytes, and not a matter of retention: the same questions will be too many again.
        "maxOutstandingInputs" | "maxSpentInputs" => {
            let maximum = maximum.unwrap_or_default();
            return TaskStoreError::InvalidTransition(format!("limit exceeded: {limit} (at most {maximum})"));
        }
        _ => TaskRetentionLimitKind::PayloadBytes,
    };
    TaskStoreError::RetentionLimitExceeded { kind, limit: as_usize(maximum.unwrap_or_default()) }
}

fn payload_bytes(maximum: u64) -> TaskStoreError {
    TaskStoreError::RetentionLimitExceeded {
        kind: TaskRetentionLimitKind::PayloadBytes,
        limit: as_usize(maximum),
    }
}

/// The process holds more tasks than it may.
pub(crate) fn too_many_held(maximum: usize) -> TaskStoreError {
    TaskStoreError::RetentionLimitExceeded { kind: TaskRetentionLimitKind::TaskCount, limit: maximum }
}

fn as_usize(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind_of(error: RpcError) -> TaskStoreError {
        from_client(&Error::GaveUp {
            attempts: 2,
            elapsed: std::time::Duration::ZERO,
            outcome_unknown: false,
            last: Box::new(Error::Rpc(error)),
        })
    }

    #[test]
    fn limits_keep_their_kind_and_their_number() {
        for (limit, expected) in [
            ("maxTasks", TaskRetentionLimitKind::TaskCount),
            ("quotaTasksPerOwner", TaskRetentionLimitKind::TaskCount),
            ("quotaBytesPerOwner", TaskRetentionLimitKind::AggregateBytes),
            ("maxPayloadBytes", TaskRetentionLimitKind::PayloadBytes),
            ("maxMetaBytes", TaskRetentionLimitKind::PayloadBytes),
        ] {
            let error = kind_of(RpcError::LimitExceeded { limit: limit.to_owned(), maximum: Some(7) });
            assert!(
                matches!(error, TaskStoreError::RetentionLimitExceeded { kind, limit: 7 } if kind == expected),
                "{error:?}"
            );
        }
    }

    #[test]
    fn the_other_errors_stay_apart() {
        let message = "no".to_owned();
        let error = kind_of(RpcError::InvalidTransition { message: message.clone() });
        assert!(matches!(error, TaskStoreError::InvalidTransition(text) if text == "no"));
        let error = kind_of(RpcError::InvalidParams { member: None, message });
        assert!(matches!(error, TaskStoreError::Encode(_)));
        let error = kind_of(RpcError::Forbidden { scope: "tasks:delegate".to_owned() });
        assert!(matches!(error, TaskStoreError::Backend(text) if text.contains("tasks:delegate")));
        let error = from_client(&Error::Protocol(crate::ProtocolError::WrongId));
        assert!(matches!(error, TaskStoreError::Decode(_)));
        let error = from_client(&Error::RequestTooLarge { bytes: 9, maximum: 8 });
        assert!(matches!(error, TaskStoreError::RetentionLimitExceeded { limit: 8, .. }));
    }
}
