//! A task and its payloads as JSON, and back. The types are of their own: a change of the core's types must not change a
//! format in somebody's backup without anybody noticing.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use task_broker_core::digest::Digest;
use task_broker_core::{
    Actor, Detail, EventKind, HistoryEntry, IdempotencyKey, Inputs, Outcome, Payload, PayloadRef, Phase,
    Question, Remembered, Replay, Status, Task, TaskId, Timestamp, check, standard_message,
};

use super::read::{hex, unhex};

type Text<'a> = Cow<'a, str>;

/// A task. Times are milliseconds since 1970, digests 32 hexadecimal digits.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Stored<'a> {
    task_id: String,
    tool_name: Text<'a>,
    creator: Option<Text<'a>>,
    owner: Option<Text<'a>>,
    status: StatusWord,
    message: Text<'a>,
    created_at: u64,
    updated_at: u64,
    ttl_ms: u64,
    poll_interval_ms: u32,
    revision: u64,
    cancel_requested: bool,
    arguments: StoredPayload<'a>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    meta: Option<StoredPayload<'a>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    result: Option<StoredPayload<'a>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    error: Option<StoredPayload<'a>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    inputs: Option<StoredInputs<'a>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    replay: Option<StoredReplay<'a>>,
    history: Vec<StoredHistory>,
}

/// The bytes as they came: as text, or in base64 where they are none.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct StoredPayload<'a> {
    /// The revision that wrote it.
    revision: u64,
    /// Its place among the payloads of that revision.
    place: u16,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    text: Option<Text<'a>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    base64: Option<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct StoredInputs<'a> {
    outstanding: Vec<StoredQuestion<'a>>,
    answers: Vec<StoredAnswer<'a>>,
    spent: Vec<Text<'a>>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct StoredQuestion<'a> {
    key: Text<'a>,
    digest: String,
    payload: StoredPayload<'a>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct StoredAnswer<'a> {
    key: Text<'a>,
    payload: StoredPayload<'a>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct StoredReplay<'a> {
    create: Option<StoredKey<'a>>,
    outcomes: Vec<StoredOutcome<'a>>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct StoredKey<'a> {
    key: Text<'a>,
    call: String,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct StoredOutcome<'a> {
    key: Text<'a>,
    call: String,
    applied: bool,
    status: StatusWord,
    revision: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    inputs: Option<OutcomeInputs<'a>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ttl: Option<OutcomeTtl>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct OutcomeInputs<'a> {
    accepted: Vec<Text<'a>>,
    outstanding: Vec<Text<'a>>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct OutcomeTtl {
    ttl_ms: u64,
    remaining_ms: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct StoredHistory {
    revision: u64,
    at: u64,
    kind: KindWord,
    by: ActorWord,
}

/// Types that stand for one of the core's, word for word.
macro_rules! words {
    ($(#[$attribute:meta])* $name:ident is $core:ident { $($word:ident),+ $(,)? }) => {
        #[derive(Clone, Copy, Serialize, Deserialize)]
        $(#[$attribute])*
        enum $name { $($word),+ }

        impl From<$core> for $name {
            fn from(value: $core) -> Self {
                match value { $($core::$word => Self::$word),+ }
            }
        }

        impl From<$name> for $core {
            fn from(word: $name) -> Self {
                match word { $($name::$word => Self::$word),+ }
            }
        }
    };
}

words! {
    #[serde(rename_all = "snake_case")]
    StatusWord is Status { Working, InputRequired, Completed, Failed, Cancelled }
}
words! {
    #[serde(rename_all = "camelCase")]
    KindWord is EventKind {
        Create, RequireInput, ApplyInput, SetStatus, SetTtl, SetMeta, Complete, Fail, Cancel, Discard, Expired,
    }
}
words! {
    #[serde(rename_all = "camelCase")]
    ActorWord is Actor { Creator, Owner }
}

impl<'a> Stored<'a> {
    /// The form of a task; nothing if a payload is missing.
    pub(super) fn of<'b: 'a>(
        task: &'a Task,
        payload: impl Fn(&PayloadRef) -> Option<&'b Bytes>,
    ) -> Option<Self> {
        let stored = |reference: &PayloadRef| Some(StoredPayload::of(reference, payload(reference)?));
        let (mut result, mut error) = (None, None);
        match &task.phase {
            Phase::Completed(reference) => result = Some(stored(reference)?),
            Phase::Failed(reference) => error = Some(stored(reference)?),
            Phase::Working | Phase::InputRequired | Phase::Cancelled => {}
        }
        let inputs = match task.inputs.as_deref() {
            None => None,
            Some(inputs) => Some(StoredInputs {
                outstanding: inputs
                    .outstanding
                    .iter()
                    .map(|(key, question)| {
                        let payload = stored(&question.payload)?;
                        Some(StoredQuestion { key: text(key), digest: hex(question.digest.0), payload })
                    })
                    .collect::<Option<_>>()?,
                answers: inputs
                    .answers
                    .iter()
                    .map(|(key, answer)| Some(StoredAnswer { key: text(key), payload: stored(answer)? }))
                    .collect::<Option<_>>()?,
                spent: inputs.spent.iter().map(text).collect(),
            }),
        };
        let meta = match &task.meta {
            None => None,
            Some(meta) => Some(stored(meta)?),
        };
        Some(Self {
            task_id: task.id.to_string(),
            tool_name: text(&task.tool_name),
            creator: task.creator.as_ref().map(text),
            owner: task.owner.as_ref().map(text),
            status: task.status().into(),
            message: Cow::Borrowed(&task.message),
            created_at: task.created_at.as_millis(),
            updated_at: task.updated_at.as_millis(),
            ttl_ms: task.ttl_ms,
            poll_interval_ms: task.poll_interval_ms,
            revision: task.revision,
            cancel_requested: task.cancel_requested,
            arguments: stored(&task.arguments)?,
            meta,
            result,
            error,
            inputs,
            replay: task.replay.as_deref().map(StoredReplay::of),
            history: task.history.iter().map(StoredHistory::of).collect(),
        })
    }

    /// The task, if it is one that the rules allow.
    pub(super) fn into_task(self) -> Result<(Task, Vec<(PayloadRef, Bytes)>), String> {
        let mut payloads = Vec::new();
        let mut take = |payload: StoredPayload<'_>| {
            let (reference, bytes) = payload.into_payload()?;
            payloads.push((reference, bytes));
            Ok::<_, String>(reference)
        };
        let id = TaskId::parse(&self.task_id).ok_or("its taskId is none")?;
        let arguments = take(self.arguments)?;
        let meta = self.meta.map(&mut take).transpose()?;
        let phase = match (Status::from(self.status), self.result, self.error) {
            (Status::Working, None, None) => Phase::Working,
            (Status::InputRequired, None, None) => Phase::InputRequired,
            (Status::Cancelled, None, None) => Phase::Cancelled,
            (Status::Completed, Some(result), None) => Phase::Completed(take(result)?),
            (Status::Failed, None, Some(error)) => Phase::Failed(take(error)?),
            _ => return Err("its status and its result or error contradict each other".into()),
        };
        let inputs = self.inputs.map(|inputs| inputs.into_inputs(&mut take)).transpose()?;
        let message =
            standard_message(&self.message).map_or_else(|| Cow::Owned(self.message.into()), Cow::Borrowed);
        let task = Task {
            id,
            tool_name: shared(self.tool_name),
            creator: self.creator.map(shared),
            owner: self.owner.map(shared),
            phase,
            message,
            created_at: Timestamp::from_millis(self.created_at),
            updated_at: Timestamp::from_millis(self.updated_at),
            ttl_ms: self.ttl_ms,
            poll_interval_ms: self.poll_interval_ms,
            revision: self.revision,
            cancel_requested: self.cancel_requested,
            arguments,
            meta,
            inputs: inputs.map(Arc::new),
            replay: self.replay.map(StoredReplay::into_replay).transpose()?.map(Arc::new),
            history: self.history.into_iter().map(StoredHistory::into_entry).collect(),
        };
        check(&task).map_err(|violation| violation.to_string())?;
        let mut places = HashSet::new();
        if !payloads.iter().all(|(reference, _)| places.insert((reference.revision, reference.place()))) {
            return Err("two of its payloads have one place".into());
        }
        Ok((task, payloads))
    }
}

fn text(text: &Arc<str>) -> Text<'_> {
    Cow::Borrowed(text)
}

fn shared(text: Text<'_>) -> Arc<str> {
    Arc::from(text)
}

impl<'a> StoredPayload<'a> {
    fn of(reference: &PayloadRef, bytes: &'a Bytes) -> Self {
        let (text, base64) = match std::str::from_utf8(bytes) {
            Ok(text) => (Some(Cow::Borrowed(text)), None),
            Err(_bytes) => (None, Some(STANDARD.encode(bytes))),
        };
        Self { revision: reference.revision, place: reference.place(), text, base64 }
    }

    fn into_payload(self) -> Result<(PayloadRef, Bytes), String> {
        let bytes = match (self.text, self.base64) {
            (Some(text), None) => Bytes::from(text.into_owned().into_bytes()),
            (None, Some(text)) => {
                STANDARD.decode(text).map_err(|_what| "a payload is no base64".to_owned())?.into()
            }
            _ => return Err("a payload has text or base64, one of them".into()),
        };
        if u32::try_from(bytes.len()).is_err() {
            return Err("a payload is too long".into());
        }
        let payload = Payload::new(bytes);
        Ok((payload.reference(self.revision, self.place), payload.bytes().clone()))
    }
}

impl StoredInputs<'_> {
    fn into_inputs(
        self,
        take: &mut impl FnMut(StoredPayload<'_>) -> Result<PayloadRef, String>,
    ) -> Result<Inputs, String> {
        let sizes = (self.outstanding.len(), self.answers.len(), self.spent.len());
        let mut inputs = Inputs::default();
        for StoredQuestion { key, digest, payload } in self.outstanding {
            let digest = Digest(unhex(&digest).ok_or("the digest of a question is none")?);
            inputs.outstanding.insert(shared(key), Question { payload: take(payload)?, digest });
        }
        for StoredAnswer { key, payload } in self.answers {
            inputs.answers.insert(shared(key), take(payload)?);
        }
        inputs.spent = self.spent.into_iter().map(shared).collect::<BTreeSet<_>>();
        let count = |map: &BTreeMap<Arc<str>, _>| map.len();
        if sizes != (inputs.outstanding.len(), count(&inputs.answers), inputs.spent.len()) {
            return Err("an input key is there twice".into());
        }
        Ok(inputs)
    }
}

impl<'a> StoredReplay<'a> {
    fn of(replay: &'a Replay) -> Self {
        let create =
            |create: &'a IdempotencyKey| StoredKey { key: text(create.key()), call: hex(create.call.0) };
        Self {
            create: replay.create.as_ref().map(create),
            outcomes: replay.outcomes.iter().map(StoredOutcome::of).collect(),
        }
    }

    fn into_replay(self) -> Result<Replay, String> {
        let create = self.create.map(|StoredKey { key, call }| idempotency_key(&key, &call)).transpose()?;
        let outcomes =
            self.outcomes.into_iter().map(StoredOutcome::into_remembered).collect::<Result<_, _>>()?;
        Ok(Replay { create, outcomes })
    }
}

fn idempotency_key(key: &str, call: &str) -> Result<IdempotencyKey, String> {
    let call = Digest(unhex(call).ok_or("the digest of a call is none")?);
    IdempotencyKey::new(key, call).map_err(|_rejection| "an idempotency key has a wrong length".into())
}

impl<'a> StoredOutcome<'a> {
    fn of(remembered: &'a Remembered) -> Self {
        let Outcome { applied, status, revision, detail } = &remembered.outcome;
        let (mut inputs, mut ttl) = (None, None);
        match detail {
            Detail::None => {}
            Detail::Inputs { accepted, outstanding } => {
                let texts = |keys: &'a [Arc<str>]| keys.iter().map(text).collect();
                inputs = Some(OutcomeInputs { accepted: texts(accepted), outstanding: texts(outstanding) });
            }
            Detail::Ttl { ttl_ms, remaining_ms } => {
                ttl = Some(OutcomeTtl { ttl_ms: *ttl_ms, remaining_ms: *remaining_ms });
            }
        }
        Self {
            key: text(remembered.key.key()),
            call: hex(remembered.key.call.0),
            applied: *applied,
            status: (*status).into(),
            revision: *revision,
            inputs,
            ttl,
        }
    }

    fn into_remembered(self) -> Result<Remembered, String> {
        let texts = |keys: Vec<Text<'_>>| keys.into_iter().map(shared).collect();
        let detail = match (self.inputs, self.ttl) {
            (None, None) => Detail::None,
            (Some(OutcomeInputs { accepted, outstanding }), None) => {
                Detail::Inputs { accepted: texts(accepted), outstanding: texts(outstanding) }
            }
            (None, Some(OutcomeTtl { ttl_ms, remaining_ms })) => Detail::Ttl { ttl_ms, remaining_ms },
            (Some(_), Some(_)) => return Err("an outcome has inputs or ttl, not both".into()),
        };
        let (applied, status, revision) = (self.applied, self.status.into(), self.revision);
        Ok(Remembered {
            key: idempotency_key(&self.key, &self.call)?,
            outcome: Outcome { applied, status, revision, detail },
        })
    }
}

impl StoredHistory {
    fn of(entry: &HistoryEntry) -> Self {
        let HistoryEntry { revision, at, kind, by } = *entry;
        Self { revision, at: at.as_millis(), kind: kind.into(), by: by.into() }
    }

    fn into_entry(self) -> HistoryEntry {
        let Self { revision, at, kind, by } = self;
        HistoryEntry { revision, at: Timestamp::from_millis(at), kind: kind.into(), by: by.into() }
    }
}
