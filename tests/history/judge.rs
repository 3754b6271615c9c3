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
    /// Histories that have an order only if the view in the answer of `store/cancel` may be a later one.
    pub(crate) late_views: Vec<String>,
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
            match judge(*id, &recording.limits, history, self.tables_left()) {
                Judgement::Linearizable => {}
                Judgement::LateView(table) => self.late_views.push(table),
                Judgement::Violated(table) => self.violations.push(table),
                Judgement::Undecided => self.undecided += 1,
            }
        }
    }
}

impl Findings {
    fn tables_left(&self) -> Tables {
        Tables { late_view: self.late_views.len() < TABLES, violation: self.violations.len() < TABLES }
    }
}

/// Which findings are to be explained.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tables {
    pub(crate) late_view: bool,
    pub(crate) violation: bool,
}

/// The verdict on one task.
#[derive(Debug)]
pub(crate) enum Judgement {
    Linearizable,
    /// Linearizable with [`History::with_late_views`] only. The table shows why not without.
    LateView(String),
    Violated(String),
    Undecided,
}

/// Judges the history of one task.
pub(crate) fn judge(id: TaskId, limits: &Limits, history: &History, tables: Tables) -> Judgement {
    let spec = Spec { id, limits, times: &history.times };
    match search(&spec, &history.ops, STEPS) {
        Verdict::Linearizable => return Judgement::Linearizable,
        Verdict::Undecided => return Judgement::Undecided,
        Verdict::Violated(_) => {}
    }
    let late = history.with_late_views();
    match search(&spec, &late.ops, STEPS) {
        Verdict::Linearizable => Judgement::LateView(explain(&spec, history, tables.late_view)),
        Verdict::Undecided => Judgement::Undecided,
        Verdict::Violated(_) => Judgement::Violated(explain(&spec, &late, tables.violation)),
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
             undecided, {} with a late view; a task was dated at most {} ms before its call",
            self.calls,
            self.open,
            self.kills,
            self.histories,
            self.longest,
            self.violations.len(),
            self.undecided,
            self.late_views.len(),
            self.earliest
        )
    }
}
