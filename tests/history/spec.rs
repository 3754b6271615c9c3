//! What one call may answer in one state of one task: the core decides, and its decision is held against the answer.
//!
//! There are no rules of tasks in here. A command is given to `task_broker_core::execute`, a create call to `create`
//! or `replay_create`, a look to `may_see`. What is added is time: the broker's clock is not seen, so the time of a
//! decision is taken from the answers that tell it, and from bounds where none does.

use std::sync::Arc;

use task_broker_core::{
    Caller, Command, Detail, Effect, Limits, NewTask, Rejection, Request, Right, Task, TaskId, Timestamp,
    Transition, Usage, create, execute, may_see, replay_create,
};

use crate::compare;
use crate::op::{Op, Seen, State, Times, Told, What, name};

/// The specification of one task.
#[derive(Debug)]
pub(crate) struct Spec<'a> {
    pub(crate) id: TaskId,
    pub(crate) limits: &'a Limits,
    pub(crate) times: &'a Times,
}

/// The states that may be after a call, none if nothing changes; or why the call cannot have been here. There is more
/// than one where it is not known which time the broker has written down.
pub(crate) type Step = Result<Vec<State>, String>;

impl Spec<'_> {
    /// Whether `op` fits into `state`.
    pub(crate) fn step(&self, state: &State, op: &Op) -> Step {
        match (&op.what, state) {
            (What::Create(new, caller), _) => self.create(state, op, new, caller),
            (What::Command(request), State::Live(task)) => self.command(task, op, request),
            (What::Look(caller, right), State::Live(task)) => Self::look(task, op, caller, *right),
            (_, State::Unborn | State::Gone) => match op.seen {
                Seen::NotFound | Seen::Unlisted(_) => Ok(Vec::new()),
                _ => Err(format!("there is no task: {state:?}")),
            },
        }
    }

    fn create(&self, state: &State, op: &Op, new: &NewTask, caller: &Caller) -> Step {
        match (&op.seen, state) {
            (Seen::Created(created), State::Unborn) if created.created => {
                let born = compare::millis(&created.snapshot.task.created_at)?;
                let task = self.born(new, caller, born)?;
                within(op, born)?;
                compare::snapshot(&task, &created.snapshot, born)?;
                Ok(vec![State::Live(task)])
            }
            (Seen::Unknown, State::Unborn) => {
                let born = self.times.born.unwrap_or(op.window.from);
                within(op, born)?;
                Ok(vec![State::Live(self.born(new, caller, born)?)])
            }
            (Seen::Created(created), State::Live(task)) if !created.created => {
                replay_create(task, new, caller, self.limits).map_err(|rejection| rejection.to_string())?;
                let now = compare::now(task, created.snapshot.remaining_ms);
                within(op, now)?;
                compare::snapshot(task, &created.snapshot, now)?;
                Ok(Vec::new())
            }
            (Seen::Refused(kind, _), State::Live(task)) => {
                match replay_create(task, new, caller, self.limits) {
                    Err(rejection) if kind_of(&rejection) == kind => Ok(Vec::new()),
                    other => Err(format!("the core says {other:?}")),
                }
            }
            _ => Err(format!("no create call answers this here: {}", name(state))),
        }
    }

    fn born(&self, new: &NewTask, caller: &Caller, at: u64) -> Result<Arc<Task>, String> {
        let new = NewTask { id: self.id, ..new.clone() };
        let now = Timestamp::from_millis(at);
        match create(new, caller, self.limits, &Usage::default(), now) {
            Ok(Transition { effect: Effect::Write { task, .. }, .. }) => Ok(task.into()),
            other => Err(format!("the core says {other:?}")),
        }
    }

    /// The task is gone for this call: because it belongs to somebody else, or because it has expired by now.
    fn not_found(task: &Task, op: &Op, caller: &Caller, right: Right) -> Step {
        match may_see(task, caller, right, Timestamp::from_millis(op.window.to)) {
            Err(Rejection::Foreign) => Ok(Vec::new()),
            Err(_) => Ok(vec![State::Gone]),
            Ok(()) => Err(format!(
                "it lives until {}, and this was decided by {}",
                task.expires_at().as_millis(),
                op.window.to
            )),
        }
    }

    fn command(&self, task: &Arc<Task>, op: &Op, request: &Request) -> Step {
        if matches!(op.seen, Seen::NotFound) {
            return Self::not_found(task, op, &request.caller, request.right);
        }
        let mut states = Vec::new();
        let mut why = None;
        for now in self.times(task, op, request)? {
            match self.decide(task, op, request, now) {
                Ok(None) => return Ok(Vec::new()),
                Ok(Some(state)) => states.push(state),
                Err(reason) => why = why.or(Some(reason)),
            }
        }
        match why {
            Some(why) if states.is_empty() => Err(why),
            _ => Ok(states),
        }
    }

    /// What the core decides at this time, if that is what was told: the state after it unless it is the same.
    fn decide(
        &self,
        task: &Arc<Task>,
        op: &Op,
        request: &Request,
        now: u64,
    ) -> Result<Option<State>, String> {
        let decided = execute(task, request, self.limits, &Usage::default(), Timestamp::from_millis(now));
        let transition = match (decided, &op.seen) {
            (Err(rejection), Seen::Refused(kind, revision)) => {
                let named = match rejection {
                    Rejection::RevisionConflict { revision } => Some(revision),
                    _ => None,
                };
                let agree = kind_of(&rejection) == kind && named == *revision;
                return if agree { Ok(None) } else { Err(format!("the core says: {rejection}")) };
            }
            (Err(rejection), _) => return Err(format!("the core says: {rejection}")),
            (Ok(transition), Seen::Refused(..)) => {
                return Err(format!("the core takes it: {:?}", transition.outcome));
            }
            (Ok(transition), _) => transition,
        };
        let after = match &transition.effect {
            Effect::None => None,
            Effect::Remove { .. } => Some(State::Gone),
            Effect::Write { task, .. } => Some(State::Live(Arc::new(task.as_ref().clone()))),
        };
        if let Seen::Outcome(outcome, told) = &op.seen {
            compare::outcome(&transition, outcome)?;
            let shown = match &after {
                Some(State::Live(after)) => after,
                _ => task,
            };
            told_right(&transition, request, told, shown, op)?;
        }
        Ok(after.filter(|after| !matches!(after, State::Live(after) if after == task)))
    }

    /// When the command may have been decided: told by its own answer, by a later look at the revision that it made, by
    /// a replay of it; otherwise at any time that some look tells, or as early as possible, which leaves the most room.
    fn times(&self, task: &Task, op: &Op, request: &Request) -> Result<Vec<u64>, String> {
        let expires = task.expires_at().as_millis();
        alive(op.window.from, expires)?;
        let ttl = match (&op.seen, &request.command) {
            (Seen::Outcome(outcome, Told::Ttl(ttl, left)), _) if !outcome.replayed => Some((*ttl, *left)),
            (Seen::Unknown, Command::SetTtl { ttl_ms }) => {
                let key = request.guard.key.as_ref().map(|key| key.key().to_string());
                key.and_then(|key| self.times.remained.get(&key))
                    .map(|left| (self.limits.cut_ttl(*ttl_ms), *left))
            }
            _ => None,
        };
        let end_after = |ttl| task.created_at.saturating_add(ttl).as_millis();
        match ttl {
            // Nothing remains: decided at the new end or after it.
            Some((ttl, 0)) => return Ok(vec![alive(end_after(ttl).max(op.window.from), expires)?]),
            Some((ttl, left)) => {
                let now = end_after(ttl).saturating_sub(left);
                within(op, now)?;
                return Ok(vec![alive(now, expires)?]);
            }
            None => {}
        }
        let fits = |at: &u64| *at > task.updated_at.as_millis() && op.window.has(*at) && *at < expires;
        let mut times = match self.times.updated.get(&task.revision.saturating_add(1)) {
            Some(at) if fits(at) => return Ok(vec![*at]),
            // Somebody else's transition made that revision, or this one did in the millisecond of the one before.
            Some(_) => Vec::new(),
            None => self.times.loose.iter().copied().filter(fits).collect(),
        };
        times.push(op.window.from);
        Ok(times)
    }

    fn look(task: &Task, op: &Op, caller: &Caller, right: Right) -> Step {
        match &op.seen {
            Seen::NotFound => return Self::not_found(task, op, caller, right),
            Seen::Unlisted(statuses) => {
                if !statuses.is_empty() && !statuses.contains(&task.status()) {
                    return Ok(Vec::new());
                }
                return Self::not_found(task, op, caller, right);
            }
            _ => {}
        }
        let left = match &op.seen {
            Seen::Snapshot(snapshot) | Seen::Waited(snapshot, ..) => Some(snapshot.remaining_ms),
            Seen::Row(row) => Some(row.remaining_ms),
            Seen::State(state) => Some(state.remaining_ms),
            Seen::Resume(context) => Some(context.remaining_ms),
            _ => None,
        };
        let now = left.map_or(op.window.from, |left| compare::now(task, left));
        within(op, now)?;
        may_see(task, caller, right, Timestamp::from_millis(now))
            .map_err(|rejection| rejection.to_string())?;
        match &op.seen {
            Seen::Snapshot(snapshot) => compare::snapshot(task, snapshot, now)?,
            Seen::Waited(snapshot, since, timed_out) => {
                compare::snapshot(task, snapshot, now)?;
                let over = task.status().is_terminal() || since.is_some_and(|since| task.revision > since);
                compare::same("timedOut", timed_out, &!over)?;
            }
            Seen::Owner(detailed) => compare::owner(task, detailed)?,
            Seen::Resume(context) => compare::resume(task, context)?,
            Seen::State(state) => compare::state(task, state)?,
            Seen::Row(row) => compare::row(task, row, now)?,
            _ => return Err("no look answers this".to_owned()),
        }
        Ok(Vec::new())
    }
}

fn told_right(
    transition: &Transition,
    request: &Request,
    told: &Told,
    shown: &Task,
    op: &Op,
) -> Result<(), String> {
    match (told, &transition.outcome.detail) {
        (Told::Nothing, _) => Ok(()),
        (Told::Inputs(accepted, ignored, open), Detail::Inputs { accepted: took, outstanding }) => {
            let texts = |keys: &[Arc<str>]| keys.iter().map(ToString::to_string).collect::<Vec<_>>();
            compare::same("accepted", accepted, &texts(took))?;
            compare::same("stillOutstanding", open, &texts(outstanding))?;
            let Command::ApplyInput { responses } = &request.command else { return Ok(()) };
            let rest = responses.keys().filter(|key| !took.contains(key)).map(ToString::to_string);
            compare::same("ignored", ignored, &rest.collect())
        }
        (Told::Ttl(ttl, left), Detail::Ttl { ttl_ms, remaining_ms }) => {
            compare::same("ttlMs", ttl, ttl_ms)?;
            compare::same("remainingMs", left, remaining_ms)
        }
        (Told::View(snapshot), _) => {
            let now = compare::now(shown, snapshot.remaining_ms);
            within(op, now)?;
            compare::view(shown, snapshot, now)?;
            if transition.replayed {
                Ok(())
            } else {
                compare::same("revision", &snapshot.revision, &shown.revision)
            }
        }
        (told, detail) => Err(format!("{told:?} is told, and the core says {detail:?}")),
    }
}

fn alive(now: u64, expires: u64) -> Result<u64, String> {
    if now < expires {
        Ok(now)
    } else {
        Err(format!("it expired at {expires}, and this was decided at {now}"))
    }
}

fn within(op: &Op, now: u64) -> Result<(), String> {
    if op.window.has(now) {
        return Ok(());
    }
    Err(format!("decided at {now}, and the call was under way from {} to {}", op.window.from, op.window.to))
}

/// The kind of error that the wire shows for a rejection.
pub(crate) fn kind_of(rejection: &Rejection) -> &'static str {
    match rejection {
        Rejection::Expired | Rejection::Foreign => "task_not_found",
        Rejection::InvalidParams { .. } => "invalid_params",
        Rejection::InvalidTransition(_) => "invalid_transition",
        Rejection::RevisionConflict { .. } => "revision_conflict",
        Rejection::IdempotencyMismatch => "idempotency_mismatch",
        Rejection::LimitExceeded { .. } => "limit_exceeded",
        Rejection::Forbidden { .. } => "forbidden",
    }
}
