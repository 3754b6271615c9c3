//! What must be true of every stored task. A record that breaks one of these is damage, not a state.

use crate::limits::count;
use crate::{Limits, Phase, Task};

/// A rule that a task breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a stored task breaks the rule: {0}")]
pub struct Violation(pub &'static str);

/// Checks a task as a whole.
///
/// # Errors
/// The first rule it breaks.
pub fn check(task: &Task) -> Result<(), Violation> {
    let rule = |holds: bool, rule: &'static str| if holds { Ok(()) } else { Err(Violation(rule)) };
    rule(task.revision >= 1, "the revision counts from 1")?;
    rule(task.updated_at >= task.created_at, "a task is not updated before it was created")?;
    rule(task.history.len() <= Limits::MAX_HISTORY, "the history is bounded")?;
    rule(
        task.history.last().is_some_and(|last| last.revision == task.revision),
        "the newest entry of the history is the current revision",
    )?;
    rule(
        task.history.iter().zip(task.history.iter().skip(1)).all(|(a, b)| a.revision < b.revision),
        "the history is in order",
    )?;
    rule(task.phase != Phase::Cancelled || task.cancel_requested, "a cancelled task knows it was asked")?;
    rule(
        task.payloads().all(|payload| payload.revision <= task.revision && payload.revision >= 1),
        "no payload is newer than the task",
    )?;
    if let Some(replay) = &task.replay {
        rule(replay.outcomes.len() <= Limits::MAX_OUTCOMES, "idempotency outcomes are bounded")?;
        rule(
            replay.outcomes.iter().all(|entry| entry.outcome.revision <= task.revision),
            "no outcome is newer than the task",
        )?;
    }
    let open = task.inputs.as_ref().is_some_and(|inputs| !inputs.outstanding.is_empty());
    rule(open || task.phase != Phase::InputRequired, "input_required has an open question")?;
    rule(!(open && task.status().is_terminal()), "a task that ended has no open question")?;
    if let Some(inputs) = &task.inputs {
        rule(inputs.outstanding.len() <= Limits::MAX_OUTSTANDING, "open questions are bounded")?;
        rule(count(inputs.keys()) <= count(Limits::MAX_SPENT), "input keys are bounded")?;
        rule(
            inputs.outstanding.keys().all(|key| !inputs.spent.contains(key)),
            "a key is open or spent, not both",
        )?;
        rule(inputs.answers.keys().all(|key| inputs.spent.contains(key)), "an answered key is spent")?;
    }
    Ok(())
}
