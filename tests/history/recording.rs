//! What a run has recorded, and the history of each task out of it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use task_broker_core::{Limits, Right, TaskId};
use task_broker_protocol::shapes::{Snapshot, Task};

use crate::call::{Act, Call, Reply, View, Who};
use crate::compare::millis;
use crate::op::{Op, Seen, Times, Told, What, Window};

/// How much earlier than the beginning of a command its decision may be dated, in milliseconds. Not at all; but times on
/// the wire are cut to milliseconds, at both ends.
const CUT_MS: u64 = 2;

/// One call and what came of it.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub(crate) client: usize,
    pub(crate) life: usize,
    /// Microseconds of the recording.
    pub(crate) from: u64,
    pub(crate) to: u64,
    pub(crate) call: Call,
    pub(crate) reply: Reply,
}

/// All that happened in one run.
#[derive(Debug)]
pub(crate) struct Recording {
    /// By their beginning.
    pub(crate) records: Vec<Record>,
    /// When each process of the broker was gone.
    pub(crate) ends: Vec<u64>,
    pub(crate) limits: Limits,
}

/// All calls on one task.
#[derive(Debug, Default)]
pub(crate) struct History {
    pub(crate) ops: Vec<Op>,
    pub(crate) times: Times,
}

/// The histories of a recording, and what is wrong beside them.
#[derive(Debug, Default)]
pub(crate) struct Histories {
    pub(crate) tasks: BTreeMap<TaskId, History>,
    pub(crate) strange: Vec<String>,
    /// How much earlier than its call a task was dated, at most, in milliseconds.
    pub(crate) earliest: u64,
}

/// Where the broker's clock stands, as far as answers tell: its microseconds minus those of the recording.
#[derive(Clone, Copy, Debug)]
struct Offset {
    from: i128,
    to: i128,
}

impl Recording {
    /// Takes the recording apart by tasks.
    pub(crate) fn histories(&self) -> Histories {
        let mut all = Histories::default();
        let offsets: Vec<_> = (0..self.ends.len()).map(|life| self.offset(life, &mut all.strange)).collect();
        let known = Known::of(&self.records);
        for (number, record) in self.records.iter().enumerate() {
            let offset = offsets[record.life];
            let to = record.to.min(self.ends[record.life]);
            let millis =
                |at: u64, by: i128| u64::try_from((i128::from(at) + by).div_euclid(1000)).unwrap_or(0);
            let window = offset.map_or(Window { from: 0, to: u64::MAX }, |offset| Window {
                from: millis(record.from, offset.from),
                to: millis(to, offset.to),
            });
            let mut label = record.call.params.to_string();
            if let Act::Look(id, _) | Act::Command(id, _) = &record.call.act {
                label = label.replace(&format!(r#""taskId":"{id}""#), "");
            }
            // What fills payloads up tells nothing.
            while let Some(at) = label.find("xxxx") {
                label.replace_range(at..at + 3, "");
            }
            label.truncate(label.floor_char_boundary(200));
            let label = format!("{} {label}", record.call.method);
            let op = Op {
                number,
                client: record.client,
                life: record.life,
                from: record.from,
                to,
                window,
                label: label.into(),
                what: What::Look(record.call.who.caller(), Right::Creator),
                seen: Seen::Unknown,
            };
            all.split(record, op, &known);
        }
        for history in all.tasks.values_mut() {
            history.ops.sort_by_key(|op| op.from);
        }
        for (tool, ids) in known.by_tool.iter().filter(|(_, ids)| ids.len() > 1) {
            all.never_two_alive(tool, ids, &known.born);
        }
        all
    }

    /// Every answer that tells the broker's time was given between two times of the recording; all of one process
    /// together leave about a millisecond.
    fn offset(&self, life: usize, strange: &mut Vec<String>) -> Option<Offset> {
        let mut offset: Option<Offset> = None;
        for record in self.records.iter().filter(|record| record.life == life) {
            for now in record.reply.clocks() {
                let now = i128::from(now) * 1000;
                let (from, to) = (now - i128::from(record.to), now + 999 - i128::from(record.from));
                offset = Some(match offset {
                    None => Offset { from, to },
                    Some(known) => Offset { from: known.from.max(from), to: known.to.min(to) },
                });
            }
        }
        let offset = offset?;
        if offset.from > offset.to {
            strange.push(format!("the clock of process {life} is not one clock: {offset:?}"));
            return None;
        }
        Some(offset)
    }
}

impl Reply {
    fn snapshots(&self) -> Option<&Snapshot> {
        match self {
            Self::Created(created) => Some(&created.snapshot),
            Self::Snapshot(snapshot) => Some(snapshot),
            Self::Waited(waited) => Some(&waited.snapshot),
            Self::Cancelled(cancelled) => Some(&cancelled.snapshot),
            _ => None,
        }
    }

    /// The broker's times that looks tell: a clock that is read after the call came in.
    fn clocks(&self) -> Vec<u64> {
        let at = |task: &Task, left: u64| {
            let end = millis(&task.created_at).ok()?.saturating_add(task.ttl_ms);
            (left > 0).then(|| end.saturating_sub(left))
        };
        match self {
            Self::Snapshot(shown) => at(&shown.task, shown.remaining_ms).into_iter().collect(),
            Self::Waited(waited) => {
                at(&waited.snapshot.task, waited.snapshot.remaining_ms).into_iter().collect()
            }
            Self::Page(page) => page.tasks.iter().filter_map(|row| at(&row.task, row.remaining_ms)).collect(),
            _ => Vec::new(),
        }
    }
}

/// What must be known of all tasks before the calls can be told apart by them.
#[derive(Debug, Default)]
struct Known {
    /// Every tool is named in one create call and its repetitions only.
    by_tool: HashMap<Arc<str>, BTreeSet<TaskId>>,
    born: BTreeMap<TaskId, u64>,
    /// From when on the worker was told that it is gone.
    gone: HashMap<TaskId, u64>,
}

impl Known {
    fn of(records: &[Record]) -> Self {
        let mut known = Self::default();
        for record in records {
            if let Some(shown) = record.reply.snapshots() {
                known.see(&shown.task, &shown.tool_name);
            }
            if let Reply::Page(page) = &record.reply {
                page.tasks.iter().for_each(|row| known.see(&row.task, &row.tool_name));
            }
            if let (Act::Look(id, _) | Act::Command(id, _), Reply::NotFound, Who::Worker) =
                (&record.call.act, &record.reply, record.call.who)
            {
                let gone = known.gone.entry(*id).or_insert(u64::MAX);
                *gone = record.to.min(*gone);
            }
        }
        known
    }

    fn see(&mut self, task: &Task, tool: &str) {
        let (Some(id), Ok(born)) = (TaskId::parse(&task.task_id), millis(&task.created_at)) else { return };
        self.by_tool.entry(tool.into()).or_default().insert(id);
        self.born.insert(id, born);
    }
}

/// When a task was seen: the order of the members is the one in which tasks of one key follow one another. Two can be born
/// in one millisecond, and then the earlier one is the one that was seen earlier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Life {
    /// In milliseconds of the broker's clock.
    born: u64,
    /// When it was known to be there for the first time, in microseconds of the recording.
    first: u64,
    /// When the last call began that saw it.
    last: u64,
    id: TaskId,
}

/// Those that were seen after their successor was there.
fn overlapping(mut lives: Vec<Life>) -> Vec<(TaskId, TaskId)> {
    lives.sort_unstable();
    let pairs = lives.windows(2).filter(|pair| pair[0].last > pair[1].first);
    pairs.map(|pair| (pair[0].id, pair[1].id)).collect()
}

impl Histories {
    fn push(&mut self, id: TaskId, op: Op) {
        self.tasks.entry(id).or_default().push(op);
    }

    /// Two tasks of one create call with a key: the second can only be there when the first has gone.
    fn never_two_alive(&mut self, tool: &str, ids: &BTreeSet<TaskId>, born: &BTreeMap<TaskId, u64>) {
        let life = |id: &TaskId| {
            let seen = || self.tasks[id].ops.iter().filter(|op| op.revision().is_some());
            let (first, last) = (seen().map(|op| op.to).min()?, seen().map(|op| op.from).max()?);
            Some(Life { born: born[id], first, last, id: *id })
        };
        let both = overlapping(ids.iter().filter_map(life).collect());
        self.strange.extend(
            both.into_iter()
                .map(|(one, other)| format!("{tool}: {one} and {other} lived under one key at once")),
        );
    }

    fn split(&mut self, record: &Record, op: Op, known: &Known) {
        let early = Window { from: op.window.from.saturating_sub(CUT_MS), ..op.window };
        match &record.call.act {
            Act::Create(new) => {
                let op =
                    Op { what: What::Create(Arc::clone(new), record.call.who.caller()), window: early, ..op };
                let of_tool = known.by_tool.get(&new.tool_name);
                match &record.reply {
                    Reply::Created(created) => {
                        let Some(id) = TaskId::parse(&created.snapshot.task.task_id) else { return };
                        if created.created
                            && let Some(born) = known.born.get(&id)
                        {
                            let begun = early.from.saturating_add(CUT_MS);
                            self.earliest = self.earliest.max(begun.saturating_sub(*born));
                        }
                        self.push(id, Op { seen: Seen::Created(created.clone()), ..op });
                    }
                    Reply::Open => {
                        for id in of_tool.into_iter().flatten() {
                            self.push(*id, op.clone());
                        }
                    }
                    other => self.strange.push(format!("{}: {other:?}", op.label)),
                }
            }
            Act::Command(id, request) => {
                let op = Op { what: What::Command(Arc::clone(request)), window: early, ..op };
                match seen(&record.reply) {
                    Some(seen) => self.push(*id, Op { seen, ..op }),
                    None => self.strange.push(format!("{}: {:?}", op.label, record.reply)),
                }
            }
            Act::Look(id, view) => {
                let right = if *view == View::Owner { Right::Owner } else { Right::Creator };
                let op = Op { what: What::Look(record.call.who.caller(), right), ..op };
                let seen = match (&record.reply, view) {
                    (Reply::Open, _) => return,
                    (Reply::Waited(waited), View::Wait(since)) => {
                        Some(Seen::Waited(Box::new(waited.snapshot.clone()), *since, waited.timed_out))
                    }
                    (reply, _) => seen(reply),
                };
                match seen {
                    Some(seen) => self.push(*id, Op { seen, ..op }),
                    None => self.strange.push(format!("{}: {:?}", op.label, record.reply)),
                }
            }
            Act::Statuses(_) => {
                let Reply::States(states) = &record.reply else { return };
                for (id, state) in states {
                    let Some(id) = TaskId::parse(id) else { continue };
                    let seen = state.map_or(Seen::NotFound, Seen::State);
                    self.push(id, Op { seen, ..op.clone() });
                }
            }
            Act::List(statuses) => {
                let Reply::Page(page) = &record.reply else { return };
                let shown: BTreeMap<_, _> = page
                    .tasks
                    .iter()
                    .filter_map(|row| Some((TaskId::parse(&row.task.task_id)?, row)))
                    .collect();
                if shown.len() != page.tasks.len() {
                    self.strange.push(format!("{}: a task is listed twice", op.label));
                }
                let place = |id: &TaskId| (known.born.get(id).copied().unwrap_or(0), *id);
                let last =
                    page.tasks.last().and_then(|row| TaskId::parse(&row.task.task_id)).map(|id| place(&id));
                let reach = if page.next_cursor.is_some() { last } else { None };
                for id in known.born.keys() {
                    let covered = reach.is_none_or(|last| place(id) > last);
                    let was_gone = known.gone.get(id).is_some_and(|gone| *gone < op.from);
                    let seen = match shown.get(id) {
                        Some(row) => Seen::Row(Box::new((*row).clone())),
                        None if covered && !was_gone && known.born[id] <= op.window.to => {
                            Seen::Unlisted(statuses.clone())
                        }
                        None => continue,
                    };
                    self.push(*id, Op { seen, ..op.clone() });
                }
            }
        }
    }
}

impl History {
    /// Takes in a call, and what it tells of the task's times.
    pub(crate) fn push(&mut self, op: Op) {
        let shown = match &op.seen {
            Seen::Created(created) => Some((&created.snapshot.task, Some(created.snapshot.revision))),
            Seen::Snapshot(shown) | Seen::Waited(shown, ..) => Some((&shown.task, Some(shown.revision))),
            Seen::Row(row) => Some((&row.task, Some(row.revision))),
            Seen::Owner(shown) => Some((&shown.task, None)),
            // May be a later one than the revision that it comes with.
            Seen::Outcome(_, Told::View(shown)) => Some((&shown.task, None)),
            _ => None,
        };
        if let Some((task, revision)) = shown {
            self.times.born = self.times.born.or(millis(&task.created_at).ok());
            match (revision, millis(&task.last_updated_at)) {
                (Some(revision), Ok(at)) => {
                    self.times.updated.entry(revision).or_insert(at);
                }
                (None, Ok(at)) => {
                    self.times.loose.insert(at);
                }
                (_, Err(_)) => {}
            }
        }
        if let (What::Command(request), Seen::Outcome(_, Told::Ttl(_, left))) = (&op.what, &op.seen)
            && let Some(key) = &request.guard.key
        {
            self.times.remained.insert(key.key().to_string(), *left);
        }
        self.ops.push(op);
    }
}

/// What is told about the one task of a call; `None` for an answer that no such call has.
fn seen(reply: &Reply) -> Option<Seen> {
    Some(match reply {
        Reply::Open => Seen::Unknown,
        Reply::NotFound => Seen::NotFound,
        Reply::Refused(kind, revision) => Seen::Refused(kind.clone(), *revision),
        Reply::Acknowledged => Seen::Acknowledged,
        Reply::Outcome(outcome) => Seen::Outcome(*outcome, Told::Nothing),
        Reply::Inputs(applied) => {
            let (accepted, ignored, open) =
                (applied.accepted.clone(), applied.ignored.clone(), applied.still_outstanding.clone());
            Seen::Outcome(applied.outcome, Told::Inputs(accepted, ignored, open))
        }
        Reply::Ttl(applied) => {
            Seen::Outcome(applied.outcome, Told::Ttl(applied.ttl_ms, applied.remaining_ms))
        }
        Reply::Cancelled(cancelled) => {
            Seen::Outcome(cancelled.outcome, Told::View(Box::new(cancelled.snapshot.clone())))
        }
        Reply::Snapshot(snapshot) => Seen::Snapshot(snapshot.clone()),
        Reply::Owner(detailed) => Seen::Owner(detailed.clone()),
        Reply::Resume(context) => Seen::Resume(context.clone()),
        Reply::Created(_) | Reply::Waited(_) | Reply::States(_) | Reply::Page(_) => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn life(id: u8, born: u64, first: u64, last: u64) -> Life {
        Life { born, first, last, id: TaskId::from_bytes([id; 16]) }
    }

    #[test]
    fn tasks_of_one_key_that_follow_one_another_in_one_millisecond_are_no_two_at_once() {
        for (one, other) in [(1, 2), (2, 1)] {
            assert_eq!(overlapping(vec![life(one, 5, 10, 20), life(other, 5, 30, 40)]), []);
            let both = overlapping(vec![life(other, 5, 30, 40), life(one, 5, 10, 35)]);
            assert_eq!(both, [(TaskId::from_bytes([one; 16]), TaskId::from_bytes([other; 16]))]);
        }
    }

    #[test]
    fn a_task_that_is_seen_after_its_successor_is_one_too_many() {
        assert_eq!(overlapping(vec![life(1, 5, 10, 20), life(2, 6, 20, 30)]), []);
        assert_eq!(overlapping(vec![life(1, 5, 10, 21), life(2, 6, 20, 30)]).len(), 1);
        assert_eq!(overlapping(vec![life(2, 5, 40, 50), life(1, 6, 20, 30)]).len(), 1);
    }
}
