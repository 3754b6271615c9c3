//! A second, much smaller implementation of WIRE.md, "What a command does", "Idempotency" and "Who may", on plain
//! texts. It shares no code with the core: where both agree over many random histories, both are probably right.

use std::collections::{BTreeMap, BTreeSet};

use task_broker_core::{OnSpentKey, Status};

use super::steps::{Person, Wish, meaning};

/// Why a call is refused, as far as the model tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    Foreign,
    Expired,
    Mismatch,
    Revision,
    Params,
    Transition,
    Quota,
}

/// What a call does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Carried out: a new revision.
    Changed,
    /// Carried out, nothing to change.
    Unchanged,
    /// The task had ended.
    TooLate,
    /// The task had ended, and a cancel left its sign.
    Noted,
    /// The task is gone.
    Removed,
    /// The first outcome again: the number of the call that had it.
    Replayed(usize),
    Refused(Refusal),
}

/// A call with all that decides about it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Situation {
    pub(crate) now: u64,
    pub(crate) person: Person,
    pub(crate) as_owner: bool,
    /// An idempotency key, and what the call says.
    pub(crate) key: Option<(&'static str, u64)>,
    pub(crate) expected_revision: Option<u64>,
    pub(crate) owner_bytes: u64,
}

/// What never changes, and the limits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame {
    pub(crate) creator: Person,
    pub(crate) owner: Person,
    pub(crate) created: u64,
    pub(crate) max_ttl: u64,
    pub(crate) bytes_per_owner: u64,
    /// What a task counts before it has anything but its arguments.
    pub(crate) base_bytes: u64,
}

/// One task, on texts.
#[derive(Clone, Debug)]
pub(crate) struct Model {
    pub(crate) frame: Frame,
    pub(crate) status: Status,
    pub(crate) message: String,
    pub(crate) revision: u64,
    pub(crate) updated: u64,
    pub(crate) ttl: u64,
    pub(crate) meta: Option<&'static str>,
    pub(crate) end: Option<&'static str>,
    pub(crate) cancel_requested: bool,
    pub(crate) open: BTreeMap<&'static str, &'static str>,
    pub(crate) answers: BTreeMap<&'static str, &'static str>,
    pub(crate) spent: BTreeSet<&'static str>,
    /// Idempotency keys, what their calls said, the number of the call, and the bytes of the input keys that its
    /// outcome names; oldest first.
    pub(crate) remembered: Vec<(&'static str, u64, usize, u64)>,
}

impl Model {
    pub(crate) fn new(frame: Frame, ttl: u64, meta: Option<&'static str>) -> Self {
        Self {
            frame,
            status: Status::Working,
            message: "Task started".to_owned(),
            revision: 1,
            updated: frame.created,
            ttl: ttl.min(frame.max_ttl),
            meta,
            end: None,
            cancel_requested: false,
            open: BTreeMap::new(),
            answers: BTreeMap::new(),
            spent: BTreeSet::new(),
            remembered: Vec::new(),
        }
    }

    pub(crate) fn ended(&self) -> bool {
        matches!(self.status, Status::Completed | Status::Failed | Status::Cancelled)
    }

    pub(crate) fn bytes(&self) -> u64 {
        let texts = self.open.values().chain(self.answers.values()).chain(&self.meta).chain(&self.end);
        let keys = self.open.keys().chain(&self.spent);
        let outcomes: u64 = self.remembered.iter().map(|(.., named)| named).sum();
        texts.chain(keys).map(|text| text.len() as u64).sum::<u64>() + self.frame.base_bytes + outcomes
    }

    /// Does call number `number`, and says what it did.
    pub(crate) fn call(&mut self, number: usize, wish: &Wish, situation: &Situation) -> Verdict {
        if let Some(refusal) = self.turned_away(situation) {
            return Verdict::Refused(refusal);
        }
        if let Some((key, says)) = situation.key
            && let Some((_, said, first, _)) = self.remembered.iter().find(|(known, ..)| *known == key)
        {
            let same = *said == says;
            return if same { Verdict::Replayed(*first) } else { Verdict::Refused(Refusal::Mismatch) };
        }
        if situation.expected_revision.is_some_and(|expected| expected != self.revision) {
            return Verdict::Refused(Refusal::Revision);
        }
        let mut next = self.clone();
        let verdict = next.carry_out(wish);
        if verdict == Verdict::Changed {
            let (before, after) = (self.bytes(), next.bytes());
            let granted = self.status != Status::Failed
                && next.status == Status::Failed
                && after.saturating_sub(before) <= 4096;
            let fits = situation.owner_bytes + after.saturating_sub(before) <= self.frame.bytes_per_owner;
            if after > before && self.frame.owner != Person::Nobody && !granted && !fits {
                return Verdict::Refused(Refusal::Quota);
            }
            next.revision += 1;
            next.updated = next.updated.max(situation.now);
        }
        if let (Some((key, says)), false) = (situation.key, matches!(verdict, Verdict::Refused(_))) {
            let named = match wish {
                Wish::Answer(answers) if !self.ended() => {
                    let accepted = answers.keys().filter(|key| self.open.contains_key(*key));
                    accepted.chain(next.open.keys()).map(|key| key.len() as u64).sum()
                }
                _ => 0,
            };
            next.remembered.push((key, says, number, named));
            if next.remembered.len() > 32 {
                next.remembered.remove(0);
            }
        }
        if !matches!(verdict, Verdict::Refused(_)) {
            *self = next;
        }
        verdict
    }

    fn turned_away(&self, situation: &Situation) -> Option<Refusal> {
        let Frame { creator, owner, created, .. } = self.frame;
        let person = situation.person;
        let allowed = if situation.as_owner {
            person == owner || (person == creator && person != Person::Nobody)
        } else {
            person == creator
        };
        let expired = situation.now >= created.saturating_add(self.ttl);
        match (allowed, expired) {
            (false, _) => Some(Refusal::Foreign),
            (true, true) => Some(Refusal::Expired),
            (true, false) => None,
        }
    }

    fn carry_out(&mut self, wish: &Wish) -> Verdict {
        match wish {
            Wish::Ask { questions, .. } if questions.is_empty() => Verdict::Refused(Refusal::Params),
            Wish::SetStatus(Status::Completed | Status::Failed | Status::Cancelled, _) => {
                Verdict::Refused(Refusal::Transition)
            }
            Wish::Discard => Verdict::Removed,
            Wish::SetTtl(ttl) => {
                let ttl = (*ttl).min(self.frame.max_ttl);
                changed(std::mem::replace(&mut self.ttl, ttl) != ttl)
            }
            Wish::SetMeta(meta) => changed(self.meta.replace(meta) != Some(meta)),
            Wish::Cancel(_) if self.ended() => {
                let noted = std::mem::replace(&mut self.cancel_requested, true);
                if noted { Verdict::TooLate } else { Verdict::Noted }
            }
            _ if self.ended() => Verdict::TooLate,
            Wish::Complete(result) => self.end(Status::Completed, Some(result), "Task completed".to_owned()),
            Wish::Fail(error, message) => {
                self.end(Status::Failed, Some(error), format!("Task failed: {message}"))
            }
            Wish::Cancel(reason) => {
                self.cancel_requested = true;
                let message = match reason {
                    Some(reason) => format!("Cancelled: {reason}"),
                    None => "Task cancelled".to_owned(),
                };
                self.end(Status::Cancelled, None, message)
            }
            Wish::SetStatus(Status::InputRequired, _) if self.open.is_empty() => {
                Verdict::Refused(Refusal::Transition)
            }
            Wish::SetStatus(status, message) => {
                let before = (self.status, self.message.clone());
                self.status = *status;
                self.message = message.map_or_else(|| self.message.clone(), str::to_owned);
                changed(before != (self.status, self.message.clone()))
            }
            Wish::Ask { questions, message, on_spent } => {
                let used = |(key, text): (&&'static str, &&'static str)| {
                    self.spent.contains(key)
                        || self.open.get(key).is_some_and(|open| meaning(open) != meaning(text))
                };
                if *on_spent == OnSpentKey::Reject && questions.iter().any(used) {
                    return Verdict::Refused(Refusal::Transition);
                }
                let message = message.unwrap_or("Awaiting client input");
                let before = (self.status, self.open.clone(), self.message.clone());
                for key in questions.keys() {
                    self.answers.remove(key);
                    self.spent.remove(key);
                }
                let left = std::mem::replace(&mut self.open, questions.clone());
                self.spent.extend(left.into_keys().filter(|key| !questions.contains_key(key)));
                (self.status, self.message) = (Status::InputRequired, message.to_owned());
                changed(before != (self.status, self.open.clone(), self.message.clone()))
            }
            Wish::Answer(answers) => {
                let fitting: Vec<_> =
                    answers.iter().filter(|(key, _)| self.open.contains_key(*key)).collect();
                let any = !fitting.is_empty();
                for (key, answer) in fitting {
                    self.open.remove(key);
                    self.spent.insert(key);
                    self.answers.insert(key, answer);
                }
                if any && self.open.is_empty() && self.status == Status::InputRequired {
                    (self.status, self.message) = (Status::Working, "Task resumed".to_owned());
                }
                changed(any)
            }
        }
    }

    fn end(&mut self, status: Status, end: Option<&'static str>, message: String) -> Verdict {
        (self.status, self.end, self.message) = (status, end, message);
        self.spent.extend(std::mem::take(&mut self.open).into_keys());
        Verdict::Changed
    }
}

const fn changed(changed: bool) -> Verdict {
    if changed { Verdict::Changed } else { Verdict::Unchanged }
}
