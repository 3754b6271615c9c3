//! From tasks to what the wire shows of them.

use std::collections::BTreeMap;

use task_broker_core as core;
use task_broker_core::{PayloadRef, Phase, Timestamp};
use task_broker_protocol::Json;
use task_broker_protocol::methods::watch::EventKind;
use task_broker_protocol::shapes::{Row, Snapshot, Status, Task};

use crate::broker::{Refusal, Snapshot as Read};
use crate::store::{ListPlace, Payloads};

/// RFC 3339, UTC, three decimals.
pub(super) fn time(at: Timestamp) -> String {
    // A time that no calendar has (only a damaged clock makes one) is shown as the last one that it has.
    let millis = i64::try_from(at.as_millis()).unwrap_or(i64::MAX);
    let at = jiff::Timestamp::from_millisecond(millis).unwrap_or(jiff::Timestamp::MAX);
    format!("{at:.3}")
}

pub(super) fn status(status: core::Status) -> Status {
    match status {
        core::Status::Working => Status::Working,
        core::Status::InputRequired => Status::InputRequired,
        core::Status::Completed => Status::Completed,
        core::Status::Failed => Status::Failed,
        core::Status::Cancelled => Status::Cancelled,
    }
}

pub(super) fn core_status(status: Status) -> core::Status {
    match status {
        Status::Working => core::Status::Working,
        Status::InputRequired => core::Status::InputRequired,
        Status::Completed => core::Status::Completed,
        Status::Failed => core::Status::Failed,
        Status::Cancelled => core::Status::Cancelled,
    }
}

pub(super) fn event_kind(kind: core::EventKind) -> EventKind {
    match kind {
        core::EventKind::Create => EventKind::Create,
        core::EventKind::RequireInput => EventKind::RequireInput,
        core::EventKind::ApplyInput => EventKind::ApplyInput,
        core::EventKind::SetStatus => EventKind::SetStatus,
        core::EventKind::SetTtl => EventKind::SetTtl,
        core::EventKind::SetMeta => EventKind::SetMeta,
        core::EventKind::Complete => EventKind::Complete,
        core::EventKind::Fail => EventKind::Fail,
        core::EventKind::Cancel => EventKind::Cancel,
        core::EventKind::Discard => EventKind::Discard,
        core::EventKind::Expired => EventKind::Expired,
    }
}

/// A payload that the view was read with.
pub(super) fn payload(payloads: &Payloads, reference: &PayloadRef) -> Result<Json, Refusal> {
    let missing = || {
        tracing::error!("a view was read without one of its payloads");
        Refusal::Internal
    };
    payloads.get(reference).cloned().map(Json::from_trusted).ok_or_else(missing)
}

/// A row of a list.
pub(super) fn row(read: &Read) -> Result<Row, Refusal> {
    let task = &read.task;
    let meta = task.meta.as_ref().map(|meta| payload(&read.payloads, meta)).transpose()?;
    Ok(Row {
        task: Task {
            task_id: task.id.to_string(),
            status: status(task.status()),
            status_message: Some(task.message.clone().into_owned()),
            created_at: time(task.created_at),
            last_updated_at: time(task.updated_at),
            ttl_ms: task.ttl_ms,
            poll_interval_ms: u64::from(task.poll_interval_ms),
            meta,
        },
        owner: task.owner.as_deref().map(str::to_owned),
        tool_name: task.tool_name.to_string(),
        revision: task.revision,
        remaining_ms: task.remaining_ms(read.now),
        cancel_requested: task.cancel_requested,
    })
}

/// Everything that one read shows.
pub(super) fn snapshot(read: &Read) -> Result<Snapshot, Refusal> {
    let mut snapshot = Snapshot::of(row(read)?);
    match &read.task.phase {
        Phase::Completed(result) => snapshot.result = Some(payload(&read.payloads, result)?),
        Phase::Failed(error) => snapshot.error = Some(payload(&read.payloads, error)?),
        Phase::Working | Phase::InputRequired | Phase::Cancelled => {}
    }
    let question = |(key, reference): (&std::sync::Arc<str>, &PayloadRef)| {
        Ok((key.to_string(), payload(&read.payloads, reference)?))
    };
    snapshot.input_requests =
        read.task.shown_questions().map(question).collect::<Result<BTreeMap<_, _>, Refusal>>()?;
    Ok(snapshot)
}

/// A place in a list as an opaque text.
pub(super) fn cursor(place: ListPlace) -> String {
    format!("{:016x}{}", place.created_at.as_millis(), place.id)
}

/// The place that a cursor stands for, if this service could have made it.
pub(super) fn place(cursor: &str) -> Option<ListPlace> {
    let (time, id) = cursor.split_at_checked(16)?;
    let digits = time.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'));
    let millis = u64::from_str_radix(time, 16).ok().filter(|_| digits)?;
    Some(ListPlace { created_at: Timestamp::from_millis(millis), id: core::TaskId::parse(id)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_rfc_3339_in_utc_with_three_decimals() {
        assert_eq!(time(Timestamp::from_millis(0)), "1970-01-01T00:00:00.000Z");
        assert_eq!(time(Timestamp::from_millis(1_796_000_000_120)), "2026-11-30T00:53:20.120Z");
        assert!(time(Timestamp::from_millis(u64::MAX)).starts_with("9999-12-"), "no panic, no wrap");
    }

    #[test]
    fn a_cursor_reads_back_and_anything_else_is_no_cursor() {
        let place_of = |millis| ListPlace {
            created_at: Timestamp::from_millis(millis),
            id: core::TaskId::from_bytes([0xab; 16]),
        };
        for millis in [0, 1, u64::MAX] {
            assert_eq!(place(&cursor(place_of(millis))), Some(place_of(millis)));
        }
        for text in ["", "x", &"0".repeat(47), &"+".repeat(48), &cursor(place_of(1)).to_uppercase(), "ééé"]
        {
            assert_eq!(place(text), None, "{text}");
        }
    }
}
