//! Whether the calls on one task can be put into one order: the search of Wing and Gong with Lowe's memory.
//!
//! A call may come next if no call that is still to come was answered before it began. A call that fits, changes
//! nothing and could change nothing later is taken at once: it fits nowhere better. What changes the task is tried in
//! turn. A call without an answer may be left out. Which calls are taken and what the task is then is all that decides
//! about the rest, so no such pair is looked at twice.

use std::collections::HashMap;

use crate::op::{Op, Seen, State};
use crate::spec::Spec;

/// How many steps of the core the search for an order may take before it gives up.
pub(crate) const STEPS: usize = 2_000_000;

/// What came of a search.
#[derive(Debug)]
pub(crate) enum Verdict {
    Linearizable,
    Violated(Box<Dead>),
    /// Too many orders to look at.
    Undecided,
}

/// The longest order that was found before nothing fitted any more.
#[derive(Clone, Debug)]
pub(crate) struct Dead {
    /// Places in the history, in order.
    pub(crate) order: Vec<usize>,
    pub(crate) state: State,
    /// Each call that could have come next, and why it does not fit.
    pub(crate) why: Vec<(usize, String)>,
}

/// A set of places in the history.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Taken(Vec<u64>);

impl Taken {
    fn has(&self, place: usize) -> bool {
        self.0[place / 64] & (1 << (place % 64)) != 0
    }

    fn add(&mut self, place: usize) {
        self.0[place / 64] |= 1 << (place % 64);
    }
}

/// One point of the search.
#[derive(Clone)]
struct Point {
    taken: Taken,
    /// The first place that is not taken.
    first: usize,
    state: State,
    order: Vec<usize>,
}

struct Search<'a> {
    spec: &'a Spec<'a>,
    ops: &'a [Op],
    /// The lowest revision that was seen by a call that began after this one was over.
    cap: Vec<u64>,
    steps: usize,
    budget: usize,
    best: Option<Dead>,
}

/// Whether a call that changes nothing here would change nothing in any later state either. Most answers say it: they
/// name a revision, and no later change can have made that one. An acknowledgement does not, while the task is live.
fn is_settled(state: &State, op: &Op) -> bool {
    match (&op.seen, state) {
        (Seen::Unknown, _) => false,
        (Seen::Acknowledged, State::Live(task)) => task.status().is_terminal(),
        _ => true,
    }
}

/// Looks for an order of `ops`, which are sorted by their beginning, in at most `budget` steps.
pub(crate) fn search(spec: &Spec<'_>, ops: &[Op], budget: usize) -> Verdict {
    debug_assert!(ops.is_sorted_by_key(|op| op.from));
    let mut search = Search { spec, ops, cap: caps(ops), steps: 0, budget, best: None };
    search.run()
}

fn caps(ops: &[Op]) -> Vec<u64> {
    let mut lowest = vec![u64::MAX; ops.len() + 1];
    for (at, op) in ops.iter().enumerate().rev() {
        lowest[at] = lowest[at + 1].min(op.revision().unwrap_or(u64::MAX));
    }
    ops.iter().map(|op| lowest[ops.partition_point(|later| later.from <= op.to)]).collect()
}

impl Search<'_> {
    fn run(&mut self) -> Verdict {
        let taken = Taken(vec![0; self.ops.len() / 64 + 1]);
        let mut open = vec![Point { taken, first: 0, state: State::Unborn, order: Vec::new() }];
        let mut seen: HashMap<Taken, Vec<State>> = HashMap::new();
        while let Some(mut point) = open.pop() {
            let next = self.settle(&mut point);
            if point.first == self.ops.len() {
                return Verdict::Linearizable;
            }
            let states = seen.entry(point.taken.clone()).or_default();
            if states.contains(&point.state) {
                continue;
            }
            states.push(point.state.clone());
            if self.steps > self.budget {
                return Verdict::Undecided;
            }
            let moves = self.moves(&point, next);
            // The last one is looked at first.
            open.extend(moves.into_iter().rev());
        }
        Verdict::Violated(Box::new(self.best.take().expect("a search that ends has been somewhere")))
    }

    /// Places that may come next, and the one among the rest that is over first.
    fn window(&self, point: &Point) -> (Vec<usize>, usize) {
        let (mut may, mut over) = (Vec::new(), point.first);
        let mut end = u64::MAX;
        for at in point.first..self.ops.len() {
            if point.taken.has(at) {
                continue;
            }
            let op = &self.ops[at];
            if op.from > end {
                break;
            }
            if op.to < end {
                (end, over) = (op.to, at);
            }
            may.push(at);
        }
        may.retain(|at| self.ops[*at].from <= end);
        (may, over)
    }

    /// Takes all that fits and changes nothing. Gives the rest with what each would do.
    fn settle(&mut self, point: &mut Point) -> Vec<(usize, Result<Vec<State>, String>)> {
        loop {
            let (may, _) = self.window(point);
            let mut changing = Vec::new();
            let mut any = false;
            for at in may {
                let op = &self.ops[at];
                self.steps += 1;
                match self.spec.step(&point.state, op) {
                    Ok(after) if after.is_empty() && is_settled(&point.state, op) => {
                        self.take(point, at);
                        point.order.push(at);
                        any = true;
                    }
                    // Happened or not, it is the same.
                    Ok(after) if after.is_empty() && op.is_optional() => {}
                    Ok(after) if after.is_empty() => changing.push((at, Ok(vec![point.state.clone()]))),
                    Ok(after) if after.iter().any(|after| self.is_too_new(after, at)) => {
                        changing.push((at, Err(format!("revision {} was seen later", self.cap[at]))));
                    }
                    Ok(after) => changing.push((at, Ok(after))),
                    Err(why) => changing.push((at, Err(why))),
                }
            }
            if !any || point.first == self.ops.len() {
                return changing;
            }
        }
    }

    /// Whether a lower revision was seen after this call was over.
    fn is_too_new(&self, state: &State, at: usize) -> bool {
        matches!(state, State::Live(task) if task.revision > self.cap[at])
    }

    fn take(&self, point: &mut Point, at: usize) {
        point.taken.add(at);
        while point.first < self.ops.len() && point.taken.has(point.first) {
            point.first += 1;
        }
    }

    fn moves(&mut self, point: &Point, next: Vec<(usize, Result<Vec<State>, String>)>) -> Vec<Point> {
        let mut moves = Vec::new();
        let mut why = Vec::new();
        // First those of which it is known that they happened.
        let (unknown, known): (Vec<_>, Vec<_>) =
            next.into_iter().partition(|(at, _)| self.ops[*at].is_optional());
        for (at, step) in known.into_iter().chain(unknown) {
            match step {
                Ok(states) => {
                    for state in states {
                        let mut after = Point { state, ..point.clone() };
                        self.take(&mut after, at);
                        after.order.push(at);
                        moves.push(after);
                    }
                }
                Err(reason) => why.push((at, reason)),
            }
        }
        let (_, over) = self.window(point);
        if self.ops[over].is_optional() {
            let mut without = point.clone();
            self.take(&mut without, over);
            moves.push(without);
        }
        let answered = |order: &[usize]| order.iter().filter(|at| !self.ops[**at].is_optional()).count();
        if moves.is_empty()
            && self.best.as_ref().is_none_or(|best| answered(&best.order) < answered(&point.order))
        {
            self.best = Some(Dead { order: point.order.clone(), state: point.state.clone(), why });
        }
        moves
    }
}
