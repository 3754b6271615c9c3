//! The verdict on a recording.

use std::fmt;

use task_broker_core::{Limits, TaskId};

use crate::recording::{History, Recording};
use crate::report::{reduce, table};
use crate::search::{STEPS, Verdict, search};
use crate::spec::Spec;

/// How many tables are made of each kind: making one small takes longer than finding it.
const TABLES: usize = 6;

/// What was found in one recording or several.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    pub(crate) calls: usize,
    /// Calls without an answer.
    pub(crate) open: usize,
    pub(crate) kills: usize,
    pub(crate) histories: usize,
    /// Calls in the longest history.
    pub(crate) longest: usize,
    pub(crate) undecided: usize,
    /// What has no explanation.
    pub(crate) violations: Vec<String>,
    /// See [`crate::recording::Histories::earliest`].
    pub(crate) earliest: u64,
}

impl Findings {
    /// Judges a recording.
    pub(crate) fn add(&mut self, recording: &Recording) {
        let found = recording.histories();
        self.calls += recording.records.len();
        self.open += recording.records.iter().filter(|record| record.to == u64::MAX).count();
        self.kills += recording.ends.len() - 1;
        self.earliest = self.earliest.max(found.earliest);
        self.violations.extend(found.strange);
        for (id, history) in &found.tasks {
            self.histories += 1;
            self.longest = self.longest.max(history.ops.len());
            match judge(*id, &recording.limits, history, self.violations.len() < TABLES) {
                Judgement::Linearizable => {}
                Judgement::Violated(table) => self.violations.push(table),
                Judgement::Undecided => self.undecided += 1,
            }
        }
    }
}

/// The verdict on one task.
#[derive(Debug)]
pub(crate) enum Judgement {
    Linearizable,
    Violated(String),
    Undecided,
}

/// Judges the history of one task. `explained` says whether a violation gets a table.
pub(crate) fn judge(id: TaskId, limits: &Limits, history: &History, explained: bool) -> Judgement {
    let spec = Spec { id, limits, times: &history.times };
    match search(&spec, &history.ops, STEPS) {
        Verdict::Linearizable => Judgement::Linearizable,
        Verdict::Undecided => Judgement::Undecided,
        Verdict::Violated(_) => Judgement::Violated(explain(&spec, history, explained)),
    }
}

fn explain(spec: &Spec<'_>, history: &History, wanted: bool) -> String {
    if !wanted {
        return format!("task {}: not linearizable; only the first of a run are explained", spec.id);
    }
    match reduce(spec, &history.ops) {
        Some((small, dead)) => table(spec, &small, &dead),
        None => format!("task {}: not linearizable, and too large to be reduced", spec.id),
    }
}

impl fmt::Display for Findings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} calls ({} without an answer), {} kills, {} histories (the longest with {} calls): {} violations, {} \
             undecided; a task was dated at most {} ms before its call",
            self.calls,
            self.open,
            self.kills,
            self.histories,
            self.longest,
            self.violations.len(),
            self.undecided,
            self.earliest
        )
    }
}
