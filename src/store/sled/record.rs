//! A task's head as bytes, and back.
//!
//! The stored form has types of its own: a change of the core's types must not change a format on somebody's disk
//! without anybody noticing. The encoding is postcard, whose wire format is stable and documented.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use task_broker_core::digest::Digest;
use task_broker_core::{
    Actor, Detail, EventKind, HistoryEntry, IdempotencyKey, Inputs, Outcome, PayloadRef, Phase, Question,
    Remembered, Replay, Status, Task, TaskId, Timestamp, check, standard_message,
};

use super::intern::Interner;
use super::seal::Broken;

#[derive(Serialize, Deserialize)]
struct Head<'a> {
    tool_name: &'a str,
    creator: Option<&'a str>,
    owner: Option<&'a str>,
    phase: StoredPhase,
    message: &'a str,
    created_at: u64,
    updated_at: u64,
    ttl_ms: u64,
    poll_interval_ms: u32,
    revision: u64,
    cancel_requested: bool,
    arguments: StoredRef,
    meta: Option<StoredRef>,
    #[serde(borrow)]
    inputs: Option<StoredInputs<'a>>,
    #[serde(borrow)]
    replay: Option<StoredReplay<'a>>,
    history: Vec<StoredHistory>,
}

/// revision, checksum, length, place
#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(try_from = "(u64, u64, u32, u16)")]
struct StoredRef(u64, u64, u32, u16);

impl TryFrom<(u64, u64, u32, u16)> for StoredRef {
    type Error = &'static str;

    /// The last place cannot be told from the one before it (see [`PayloadRef`]), so it was never written.
    fn try_from((revision, checksum, len, place): (u64, u64, u32, u16)) -> Result<Self, Self::Error> {
        if place == u16::MAX {
            Err("a place that no payload has")
        } else {
            Ok(Self(revision, checksum, len, place))
        }
    }
}

#[derive(Serialize, Deserialize)]
enum StoredPhase {
    Working,
    InputRequired,
    Completed(StoredRef),
    Failed(StoredRef),
    Cancelled,
}

#[derive(Serialize, Deserialize)]
struct StoredInputs<'a> {
    /// key, request object, digest of the question
    #[serde(borrow)]
    outstanding: Vec<(&'a str, StoredRef, u128)>,
    #[serde(borrow)]
    answers: Vec<(&'a str, StoredRef)>,
    #[serde(borrow)]
    spent: Vec<&'a str>,
}

#[derive(Serialize, Deserialize)]
struct StoredReplay<'a> {
    /// key, digest of the call
    #[serde(borrow)]
    create: Option<(&'a str, u128)>,
    #[serde(borrow)]
    outcomes: Vec<StoredOutcome<'a>>,
}

#[derive(Serialize, Deserialize)]
struct StoredOutcome<'a> {
    key: &'a str,
    call: u128,
    applied: bool,
    status: u8,
    revision: u64,
    #[serde(borrow)]
    detail: StoredDetail<'a>,
}

#[derive(Serialize, Deserialize)]
enum StoredDetail<'a> {
    None,
    Inputs {
        #[serde(borrow)]
        accepted: Vec<&'a str>,
        #[serde(borrow)]
        outstanding: Vec<&'a str>,
    },
    Ttl(u64, u64),
}

/// revision, time, kind, by the owner
#[derive(Serialize, Deserialize)]
struct StoredHistory(u64, u64, u8, bool);

/// The bytes of a head.
pub(super) fn encode(task: &Task) -> Result<Vec<u8>, Broken> {
    postcard::to_stdvec(&Head::from(task)).map_err(|_what| Broken::Content)
}

/// The head that these bytes are, if it is one that this program could have written.
pub(super) fn decode(id: TaskId, bytes: &[u8], names: &mut Interner) -> Result<Task, Broken> {
    let (head, rest) = postcard::take_from_bytes::<Head<'_>>(bytes).map_err(|_what| Broken::Content)?;
    if !rest.is_empty() {
        return Err(Broken::Content);
    }
    let task = head.into_task(id, names)?;
    check(&task).map_err(|_violation| Broken::Content)?;
    Ok(task)
}

impl<'a> From<&'a Task> for Head<'a> {
    fn from(task: &'a Task) -> Self {
        Self {
            tool_name: &task.tool_name,
            creator: task.creator.as_deref(),
            owner: task.owner.as_deref(),
            phase: match &task.phase {
                Phase::Working => StoredPhase::Working,
                Phase::InputRequired => StoredPhase::InputRequired,
                Phase::Completed(result) => StoredPhase::Completed(result.into()),
                Phase::Failed(error) => StoredPhase::Failed(error.into()),
                Phase::Cancelled => StoredPhase::Cancelled,
            },
            message: &task.message,
            created_at: task.created_at.as_millis(),
            updated_at: task.updated_at.as_millis(),
            ttl_ms: task.ttl_ms,
            poll_interval_ms: task.poll_interval_ms,
            revision: task.revision,
            cancel_requested: task.cancel_requested,
            arguments: (&task.arguments).into(),
            meta: task.meta.as_ref().map(StoredRef::from),
            inputs: task.inputs.as_deref().map(StoredInputs::from),
            replay: task.replay.as_deref().map(StoredReplay::from),
            history: task.history.iter().map(StoredHistory::from).collect(),
        }
    }
}

impl Head<'_> {
    fn into_task(self, id: TaskId, names: &mut Interner) -> Result<Task, Broken> {
        let message =
            standard_message(self.message).map_or_else(|| Cow::Owned(self.message.to_owned()), Cow::Borrowed);
        Ok(Task {
            id,
            tool_name: names.get(self.tool_name),
            creator: self.creator.map(|subject| names.get(subject)),
            owner: self.owner.map(|subject| names.get(subject)),
            phase: match self.phase {
                StoredPhase::Working => Phase::Working,
                StoredPhase::InputRequired => Phase::InputRequired,
                StoredPhase::Completed(result) => Phase::Completed(result.into()),
                StoredPhase::Failed(error) => Phase::Failed(error.into()),
                StoredPhase::Cancelled => Phase::Cancelled,
            },
            message,
            created_at: Timestamp::from_millis(self.created_at),
            updated_at: Timestamp::from_millis(self.updated_at),
            ttl_ms: self.ttl_ms,
            poll_interval_ms: self.poll_interval_ms,
            revision: self.revision,
            cancel_requested: self.cancel_requested,
            arguments: self.arguments.into(),
            meta: self.meta.map(PayloadRef::from),
            inputs: self.inputs.map(|inputs| Arc::new(inputs.into())),
            replay: self.replay.map(StoredReplay::into_replay).transpose()?.map(Arc::new),
            history: self.history.into_iter().map(StoredHistory::into_entry).collect::<Result<_, _>>()?,
        })
    }
}

impl From<&PayloadRef> for StoredRef {
    fn from(reference: &PayloadRef) -> Self {
        Self(reference.revision, reference.checksum, reference.len, reference.place())
    }
}

impl From<StoredRef> for PayloadRef {
    fn from(StoredRef(revision, checksum, len, place): StoredRef) -> Self {
        Self::new(revision, place, len, checksum)
    }
}

impl<'a> From<&'a Inputs> for StoredInputs<'a> {
    fn from(inputs: &'a Inputs) -> Self {
        let question = |(key, question): (&'a Arc<str>, &Question)| {
            (&**key, StoredRef::from(&question.payload), question.digest.0)
        };
        Self {
            outstanding: inputs.outstanding.iter().map(question).collect(),
            answers: inputs.answers.iter().map(|(key, answer)| (&**key, answer.into())).collect(),
            spent: inputs.spent.iter().map(|key| &**key).collect(),
        }
    }
}

impl From<StoredInputs<'_>> for Inputs {
    fn from(stored: StoredInputs<'_>) -> Self {
        let question = |(key, payload, digest): (&str, StoredRef, u128)| {
            (Arc::from(key), Question { payload: payload.into(), digest: Digest(digest) })
        };
        Self {
            outstanding: stored.outstanding.into_iter().map(question).collect::<BTreeMap<_, _>>(),
            answers: stored.answers.into_iter().map(|(key, answer)| (key.into(), answer.into())).collect(),
            spent: stored.spent.into_iter().map(Arc::from).collect::<BTreeSet<_>>(),
        }
    }
}

impl<'a> From<&'a Replay> for StoredReplay<'a> {
    fn from(replay: &'a Replay) -> Self {
        Self {
            create: replay.create.as_ref().map(|create| (&**create.key(), create.call.0)),
            outcomes: replay.outcomes.iter().map(StoredOutcome::from).collect(),
        }
    }
}

impl StoredReplay<'_> {
    fn into_replay(self) -> Result<Replay, Broken> {
        let create = self.create.map(|(key, call)| stored_key(key, call)).transpose()?;
        let outcomes =
            self.outcomes.into_iter().map(StoredOutcome::into_remembered).collect::<Result<_, _>>()?;
        Ok(Replay { create, outcomes })
    }
}

fn stored_key(key: &str, call: u128) -> Result<IdempotencyKey, Broken> {
    IdempotencyKey::new(key, Digest(call)).map_err(|_rejection| Broken::Content)
}

impl<'a> From<&'a Remembered> for StoredOutcome<'a> {
    fn from(remembered: &'a Remembered) -> Self {
        let outcome = &remembered.outcome;
        Self {
            key: remembered.key.key(),
            call: remembered.key.call.0,
            applied: outcome.applied,
            status: status_code(outcome.status),
            revision: outcome.revision,
            detail: match &outcome.detail {
                Detail::None => StoredDetail::None,
                Detail::Inputs { accepted, outstanding } => StoredDetail::Inputs {
                    accepted: accepted.iter().map(|key| &**key).collect(),
                    outstanding: outstanding.iter().map(|key| &**key).collect(),
                },
                Detail::Ttl { ttl_ms, remaining_ms } => StoredDetail::Ttl(*ttl_ms, *remaining_ms),
            },
        }
    }
}

impl StoredOutcome<'_> {
    fn into_remembered(self) -> Result<Remembered, Broken> {
        let keys = |keys: Vec<&str>| keys.into_iter().map(Arc::from).collect();
        let detail = match self.detail {
            StoredDetail::None => Detail::None,
            StoredDetail::Inputs { accepted, outstanding } => {
                Detail::Inputs { accepted: keys(accepted), outstanding: keys(outstanding) }
            }
            StoredDetail::Ttl(ttl_ms, remaining_ms) => Detail::Ttl { ttl_ms, remaining_ms },
        };
        let status = Status::ALL
            .into_iter()
            .find(|status| status_code(*status) == self.status)
            .ok_or(Broken::Content)?;
        Ok(Remembered {
            key: stored_key(self.key, self.call)?,
            outcome: Outcome { applied: self.applied, status, revision: self.revision, detail },
        })
    }
}

/// Codes on disk; a code is never given another meaning.
fn status_code(status: Status) -> u8 {
    match status {
        Status::Working => 0,
        Status::InputRequired => 1,
        Status::Completed => 2,
        Status::Failed => 3,
        Status::Cancelled => 4,
    }
}

/// The kinds by their code on disk: the place in this list, to which new kinds are appended.
const KINDS: [EventKind; 11] = [
    EventKind::Create,
    EventKind::RequireInput,
    EventKind::ApplyInput,
    EventKind::SetStatus,
    EventKind::SetTtl,
    EventKind::SetMeta,
    EventKind::Complete,
    EventKind::Fail,
    EventKind::Cancel,
    EventKind::Discard,
    EventKind::Expired,
];

impl From<&HistoryEntry> for StoredHistory {
    fn from(entry: &HistoryEntry) -> Self {
        let code = KINDS.iter().position(|kind| *kind == entry.kind).and_then(|at| u8::try_from(at).ok());
        Self(entry.revision, entry.at.as_millis(), code.unwrap_or(u8::MAX), entry.by == Actor::Owner)
    }
}

impl StoredHistory {
    fn into_entry(self) -> Result<HistoryEntry, Broken> {
        let Self(revision, at, code, by_owner) = self;
        Ok(HistoryEntry {
            revision,
            at: Timestamp::from_millis(at),
            kind: *KINDS.get(usize::from(code)).ok_or(Broken::Content)?,
            by: if by_owner { Actor::Owner } else { Actor::Creator },
        })
    }
}

#[cfg(test)]
#[path = "record_tests.rs"]
mod tests;
