//! A violation made small enough to be read: the shortest beginning of a history that has no order, without the looks
//! that it does not need.

use std::fmt::Write as _;

use crate::op::{Op, Seen, Told, What, name};
use crate::search::{Dead, Verdict, search};
use crate::spec::Spec;

/// How many calls before the end a table shows at most.
const ROWS: usize = 40;

/// How many steps one search for a smaller part may take, and how many searches there may be: it is only for the reader.
const STEPS: usize = 100_000;
const TRIES: usize = 400;

/// The smallest part of the history that is still a violation, and where its search ended.
pub(crate) fn reduce(spec: &Spec<'_>, ops: &[Op]) -> Option<(Vec<Op>, Dead)> {
    let mut ends: Vec<u64> = ops.iter().filter(|op| !op.is_optional()).map(|op| op.to).collect();
    ends.sort_unstable();
    ends.dedup();
    let mut tries = 0;
    let mut fails = |ops: &[Op]| {
        tries += 1;
        tries < TRIES && matches!(search(spec, ops, STEPS), Verdict::Violated(_))
    };
    // A beginning of a history that has an order has one too.
    let shortest = ends.partition_point(|end| !fails(&beginning(ops, *end)));
    let mut small = beginning(ops, *ends.get(shortest)?);
    let mut size = small.len().div_ceil(2);
    while size > 0 {
        let mut at = small.len();
        while at > 0 {
            let from = at.saturating_sub(size);
            let mut index = 0;
            let without: Vec<Op> = small
                .iter()
                .filter(|op| {
                    index += 1;
                    !((from..at).contains(&(index - 1)) && op.is_pure())
                })
                .cloned()
                .collect();
            if without.len() < small.len() && fails(&without) {
                small = without;
            }
            at = from.min(small.len());
        }
        size /= 2;
    }
    match search(spec, &small, STEPS) {
        Verdict::Violated(dead) => Some((small, *dead)),
        Verdict::Linearizable | Verdict::Undecided => None,
    }
}

/// What was known at a moment: calls that were not answered yet may or may not have happened.
fn beginning(ops: &[Op], end: u64) -> Vec<Op> {
    let begun = ops.iter().filter(|op| op.from <= end);
    let mut known: Vec<Op> = begun.cloned().collect();
    known.retain(|op| op.to <= end || !matches!(op.what, What::Look(..)));
    for op in &mut known {
        if op.to > end {
            op.seen = Seen::Unknown;
        }
    }
    known
}

/// The table of a violation.
pub(crate) fn table(spec: &Spec<'_>, ops: &[Op], dead: &Dead) -> String {
    let mut text = format!("task {}: no order of these calls is what the core does\n", spec.id);
    if ops.len() > ROWS {
        writeln!(text, "  .. {} calls before", ops.len() - ROWS).unwrap();
    }
    writeln!(text, "  {:>6} {:>3} {:>12} {:>12}  call -> answer", "call", "by", "from ms", "to ms").unwrap();
    let mut life = None;
    for op in &ops[ops.len().saturating_sub(ROWS)..] {
        if life.is_some_and(|life| life != op.life) {
            writeln!(text, "  ------ killed and started again").unwrap();
        }
        life = Some(op.life);
        let millis = |micros: u64| format!("{}.{:03}", micros / 1000, micros % 1000);
        writeln!(
            text,
            "  {:>6} {:>3} {:>12} {:>12}  {} -> {}",
            op.number,
            op.client,
            millis(op.from),
            millis(op.to),
            op.label,
            answer(&op.seen)
        )
        .unwrap();
    }
    let numbers: Vec<_> = dead.order.iter().map(|at| ops[*at].number.to_string()).collect();
    let shown = &numbers[numbers.len().saturating_sub(ROWS)..];
    writeln!(text, "  the longest order that fits ends with: {}", shown.join(" ")).unwrap();
    writeln!(text, "  the task is then: {}", name(&dead.state)).unwrap();
    for (at, why) in &dead.why {
        writeln!(text, "  {} does not fit there: {why}", ops[*at].number).unwrap();
    }
    text
}

/// An answer in a few words.
fn answer(seen: &Seen) -> String {
    match seen {
        Seen::Unknown => "?".to_owned(),
        Seen::NotFound => "not found".to_owned(),
        Seen::Refused(kind, revision) => revision.map_or(kind.clone(), |at| format!("{kind} (at {at})")),
        Seen::Acknowledged => "acknowledged".to_owned(),
        Seen::Created(created) => {
            let new = if created.created { "created" } else { "created before" };
            format!("{new}, revision {} at {}", created.snapshot.revision, created.snapshot.task.created_at)
        }
        Seen::Outcome(outcome, told) => {
            let mut text =
                format!("applied {} {} revision {}", outcome.applied, outcome.status, outcome.revision);
            if outcome.replayed {
                text.push_str(" replayed");
            }
            match told {
                Told::Nothing | Told::View(_) => {}
                Told::Inputs(accepted, ignored, open) => {
                    write!(text, " accepted {accepted:?} ignored {ignored:?} open {open:?}").unwrap();
                }
                Told::Ttl(ttl, left) => write!(text, " ttl {ttl}, {left} left").unwrap(),
            }
            text
        }
        Seen::Snapshot(shown) | Seen::Waited(shown, ..) => {
            let (task, left) = (&shown.task, shown.remaining_ms);
            format!(
                "revision {} {} updated {} {left} left",
                shown.revision, task.status, task.last_updated_at
            )
        }
        Seen::Owner(shown) => format!("{} updated {}", shown.task.status, shown.task.last_updated_at),
        Seen::Resume(shown) => {
            format!(
                "revision {} answers {:?}",
                shown.revision,
                shown.input_responses.keys().collect::<Vec<_>>()
            )
        }
        Seen::State(shown) => {
            format!("revision {} {} {} left", shown.revision, shown.status, shown.remaining_ms)
        }
        Seen::Row(row) => format!("in the list: revision {} {}", row.revision, row.task.status),
        Seen::Unlisted(_) => "not in the list".to_owned(),
    }
}
