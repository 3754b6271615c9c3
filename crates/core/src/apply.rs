//! The life cycle: what each command does to a task in each status. See docs/state-machine.md for the picture.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;

use crate::limits::{at_most, count};
use crate::text::{self, cut};
use crate::{
    Actor, Ask, Command, Detail, Effect, Event, EventKind, Inputs, Limits, OnSpentKey, Outcome, Payload,
    PayloadRef, Phase, Question, Rejection, Status, Task, Timestamp, Transition,
};

/// Decides what `command` does to `task` at `now`. The task must be live and the caller allowed: see
/// [`crate::execute`], which checks both first.
///
/// # Errors
/// [`Rejection::InvalidTransition`] and [`Rejection::LimitExceeded`]; the task stays as it is.
pub fn apply(
    task: &Task,
    command: &Command,
    by: Actor,
    limits: &Limits,
    now: Timestamp,
) -> Result<Transition, Rejection> {
    limits.check_command(command)?;
    if let Command::SetStatus { status, .. } = command
        && status.is_terminal()
    {
        return Err(Rejection::InvalidTransition(Cow::Borrowed(
            "only working and input_required can be set; use complete, fail or cancel to end a task",
        )));
    }
    let mut draft = Draft::new(task, by, now);
    match (command, task.status().is_terminal()) {
        (Command::SetTtl { ttl_ms }, _) => Ok(draft.set_ttl(limits.cut_ttl(*ttl_ms))),
        (Command::SetMeta { meta }, _) => Ok(draft.set_meta(meta)),
        (Command::Discard, _) => Ok(draft.discard()),
        (Command::Cancel { .. }, true) => Ok(draft.note_late_cancel()),
        (command, true) => Ok(draft.too_late(command)),
        (Command::RequireInput { requests, message, on_spent }, false) => {
            draft.require_input(requests, message.as_deref(), *on_spent)
        }
        (Command::ApplyInput { responses }, false) => Ok(draft.apply_input(responses)),
        (Command::SetStatus { status, message }, false) => draft.set_status(*status, message.as_deref()),
        (Command::Complete { result }, false) => {
            let reference = draft.keep(result);
            Ok(draft.end(EventKind::Complete, Phase::Completed(reference), text::COMPLETED.into()))
        }
        (Command::Fail { error, message }, false) => {
            let reference = draft.keep(error);
            let message = format!("Task failed: {}", cut(message)).into();
            Ok(draft.end(EventKind::Fail, Phase::Failed(reference), message))
        }
        (Command::Cancel { reason }, false) => {
            let message = reason
                .as_deref()
                .map_or(text::CANCELLED.into(), |reason| Cow::Owned(format!("Cancelled: {}", cut(reason))));
            draft.task.cancel_requested = true;
            Ok(draft.end(EventKind::Cancel, Phase::Cancelled, message))
        }
    }
}

/// A transition in the making: the next state and what must be written with it.
struct Draft<'a> {
    before: &'a Task,
    task: Task,
    payloads: Vec<(PayloadRef, Bytes)>,
    dropped: Vec<PayloadRef>,
    by: Actor,
    now: Timestamp,
}

impl<'a> Draft<'a> {
    fn new(before: &'a Task, by: Actor, now: Timestamp) -> Self {
        Self { before, task: before.clone(), payloads: Vec::new(), dropped: Vec::new(), by, now }
    }

    /// Keeps a payload under the revision that this transition makes.
    fn keep(&mut self, payload: &Payload) -> PayloadRef {
        let place = u16::try_from(self.payloads.len()).unwrap_or(u16::MAX);
        let reference = payload.reference(self.before.revision.saturating_add(1), place);
        self.payloads.push((reference, payload.bytes().clone()));
        reference
    }

    fn outcome(task: &Task, applied: bool, detail: Detail) -> Outcome {
        Outcome { applied, status: task.status(), revision: task.revision, detail }
    }

    /// The command was carried out and the task is another one now.
    fn changed(mut self, kind: EventKind, detail: impl FnOnce(&Task) -> Detail) -> Transition {
        self.task.advance(kind, self.by, self.now);
        let detail = detail(&self.task);
        Transition {
            outcome: Self::outcome(&self.task, true, detail),
            replayed: false,
            effect: Effect::Write {
                event: Some(Event::of(kind, &self.task)),
                task: Box::new(self.task),
                payloads: self.payloads,
                dropped: self.dropped,
            },
        }
    }

    /// The command was carried out and there was nothing to change.
    fn unchanged(self, detail: Detail) -> Transition {
        let outcome = Self::outcome(self.before, true, detail);
        Transition { outcome, replayed: false, effect: Effect::None }
    }

    /// The task has ended; the command is not carried out.
    fn too_late(self, command: &Command) -> Transition {
        let detail = match command {
            Command::ApplyInput { .. } => Detail::Inputs { accepted: Vec::new(), outstanding: Vec::new() },
            Command::RequireInput { .. }
            | Command::SetStatus { .. }
            | Command::SetTtl { .. }
            | Command::SetMeta { .. }
            | Command::Complete { .. }
            | Command::Fail { .. }
            | Command::Cancel { .. }
            | Command::Discard => Detail::None,
        };
        let outcome = Self::outcome(self.before, false, detail);
        Transition { outcome, replayed: false, effect: Effect::None }
    }

    /// A cancel after the end changes neither status nor revision, but a worker that was away must still learn
    /// that somebody wanted it to stop.
    fn note_late_cancel(mut self) -> Transition {
        let outcome = Self::outcome(self.before, false, Detail::None);
        if self.before.cancel_requested {
            return Transition { outcome, replayed: false, effect: Effect::None };
        }
        self.task.cancel_requested = true;
        let event = Some(Event::of(EventKind::Cancel, &self.task));
        let effect =
            Effect::Write { task: Box::new(self.task), payloads: Vec::new(), dropped: Vec::new(), event };
        Transition { outcome, replayed: false, effect }
    }

    fn end(mut self, kind: EventKind, phase: Phase, message: Cow<'static, str>) -> Transition {
        if let Some(inputs) = self.task.inputs.as_mut()
            && !inputs.outstanding.is_empty()
        {
            self.dropped = Arc::make_mut(inputs).close();
        }
        self.task.phase = phase;
        self.task.message = message;
        self.changed(kind, |_| Detail::None)
    }

    fn set_ttl(mut self, ttl_ms: u64) -> Transition {
        let now = self.now;
        let detail = move |task: &Task| Detail::Ttl { ttl_ms, remaining_ms: task.remaining_ms(now) };
        if self.before.ttl_ms == ttl_ms {
            let detail = detail(self.before);
            return self.unchanged(detail);
        }
        self.task.ttl_ms = ttl_ms;
        self.changed(EventKind::SetTtl, detail)
    }

    fn set_meta(mut self, meta: &Payload) -> Transition {
        let same = |old: &PayloadRef| old.same_bytes(&meta.reference(0, 0));
        if self.before.meta.as_ref().is_some_and(same) {
            return self.unchanged(Detail::None);
        }
        self.dropped.extend(self.before.meta);
        self.task.meta = Some(self.keep(meta));
        self.changed(EventKind::SetMeta, |_| Detail::None)
    }

    fn discard(mut self) -> Transition {
        self.task.advance(EventKind::Discard, self.by, self.now);
        Transition {
            outcome: Self::outcome(&self.task, true, Detail::None),
            replayed: false,
            effect: Effect::Remove { event: Event::of(EventKind::Discard, &self.task) },
        }
    }

    fn set_status(mut self, status: Status, message: Option<&str>) -> Result<Transition, Rejection> {
        let open = self.before.inputs.as_ref().is_some_and(|inputs| !inputs.outstanding.is_empty());
        self.task.phase = match (status, open) {
            (Status::Working, _) => Phase::Working,
            (Status::InputRequired, true) => Phase::InputRequired,
            (Status::InputRequired, false) => {
                return Err(Rejection::InvalidTransition(Cow::Borrowed(
                    "a task without open questions cannot be input_required; use requireInput",
                )));
            }
            (Status::Completed | Status::Failed | Status::Cancelled, _) => {
                return Err(Rejection::InvalidTransition(Cow::Borrowed("this status cannot be set")));
            }
        };
        if let Some(message) = message {
            self.task.message = Cow::Owned(cut(message).to_owned());
        }
        if self.task.phase == self.before.phase && self.task.message == self.before.message {
            return Ok(self.unchanged(Detail::None));
        }
        Ok(self.changed(EventKind::SetStatus, |_| Detail::None))
    }

    fn require_input(
        mut self,
        requests: &BTreeMap<Arc<str>, Ask>,
        message: Option<&str>,
        on_spent: OnSpentKey,
    ) -> Result<Transition, Rejection> {
        let message = message
            .map_or(Cow::Borrowed(text::AWAITING_INPUT), |message| Cow::Owned(cut(message).to_owned()));
        let mut inputs = self.before.inputs.as_deref().cloned().unwrap_or_default();
        if on_spent == OnSpentKey::Reject {
            refuse_used_keys(&inputs, requests)?;
        }
        if self.before.phase == Phase::InputRequired
            && self.before.message == message
            && asks_the_same(&inputs, requests)
        {
            return Ok(self.unchanged(Detail::None));
        }
        let mut open = std::mem::take(&mut inputs.outstanding);
        for (key, ask) in requests {
            let carried = open.remove(key);
            let same = |old: &Question| old.payload.same_bytes(&ask.payload.reference(0, 0));
            let payload = match carried.filter(same) {
                Some(old) => old.payload,
                None => self.keep(&ask.payload),
            };
            self.dropped.extend(carried.filter(|old| old.payload != payload).map(|old| old.payload));
            self.dropped.extend(inputs.answers.remove(key));
            inputs.spent.remove(key);
            inputs.outstanding.insert(Arc::clone(key), Question { payload, digest: ask.digest });
        }
        // What is left was not asked again: superseded.
        self.dropped.extend(open.values().map(|old| old.payload));
        inputs.spent.extend(open.into_keys());
        at_most("maxSpentInputs", count(inputs.keys()), count(Limits::MAX_SPENT))?;
        self.task.inputs = Some(Arc::new(inputs));
        self.task.phase = Phase::InputRequired;
        self.task.message = message;
        Ok(self.changed(EventKind::RequireInput, |_| Detail::None))
    }

    fn apply_input(mut self, responses: &BTreeMap<Arc<str>, Payload>) -> Transition {
        let mut inputs = self.before.inputs.clone().unwrap_or_default();
        let mut accepted = Vec::new();
        for (key, answer) in responses {
            if !inputs.outstanding.contains_key(key) {
                // Never issued, answered before, or superseded: a stale update must not harm the task.
                continue;
            }
            let reference = self.keep(answer);
            let inputs = Arc::make_mut(&mut inputs);
            self.dropped.extend(inputs.outstanding.remove(key).map(|question| question.payload));
            self.dropped.extend(inputs.answers.insert(Arc::clone(key), reference));
            inputs.spent.insert(Arc::clone(key));
            accepted.push(Arc::clone(key));
        }
        let outstanding = inputs.outstanding.keys().cloned().collect::<Vec<_>>();
        let (nothing_accepted, nothing_left) = (accepted.is_empty(), outstanding.is_empty());
        let detail = Detail::Inputs { accepted, outstanding };
        if nothing_accepted {
            return self.unchanged(detail);
        }
        if nothing_left && self.task.phase == Phase::InputRequired {
            self.task.phase = Phase::Working;
            self.task.message = Cow::Borrowed(text::RESUMED);
        }
        self.task.inputs = Some(inputs);
        self.changed(EventKind::ApplyInput, |_| detail)
    }
}

fn refuse_used_keys(inputs: &Inputs, requests: &BTreeMap<Arc<str>, Ask>) -> Result<(), Rejection> {
    for (key, ask) in requests {
        if inputs.spent.contains(key) {
            return Err(Rejection::InvalidTransition(Cow::Borrowed(
                "an input key that was answered or superseded cannot be asked again",
            )));
        }
        if inputs.outstanding.get(key).is_some_and(|open| open.digest != ask.digest) {
            return Err(Rejection::InvalidTransition(Cow::Borrowed(
                "an open input key cannot be given another question",
            )));
        }
    }
    Ok(())
}

/// Whether the open questions are exactly these, byte for byte.
fn asks_the_same(inputs: &Inputs, requests: &BTreeMap<Arc<str>, Ask>) -> bool {
    inputs.outstanding.len() == requests.len()
        && inputs.outstanding.iter().zip(requests).all(|((key, open), (asked, ask))| {
            key == asked && open.payload.same_bytes(&ask.payload.reference(0, 0))
        })
}
