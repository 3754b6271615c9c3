//! A broker in this process that follows the core's rules, or breaks them in one way: what the checker must notice.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use task_broker_core::{
    Caller, Detail, Effect, Limits, NewTask, Outcome, PayloadRef, Phase, Quota, Replay, Request, Right, Task,
    TaskId, Timestamp, Transition, Usage, create, execute, may_see, replay_create,
};
use task_broker_protocol::methods::{
    apply_input, cancel, create::Created, list, resume, set_ttl, statuses, wait,
};
use task_broker_protocol::{Json, shapes};
use tokio::time::Instant;

use crate::call::{Act, Call, Reply, View};
use crate::run::micros;
use crate::spec::kind_of;
use crate::wire::Port;

/// How a fake broker is wrong, now and then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    /// A look shows the state before the newest one.
    StaleRead,
    /// A command is acknowledged and not kept.
    LostUpdate,
    /// A command is decided on the state before the newest one.
    StaleDecision,
    /// A key of a call is forgotten.
    ForgottenKey,
    /// An expired task is shown once more.
    Undead,
    /// A start finds the states before the newest ones.
    TakenBack,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Fake {
    pub(crate) limits: Limits,
    pub(crate) origin: Instant,
    fault: Fault,
    world: Mutex<World>,
}

#[derive(Debug)]
struct World {
    rng: fastrand::Rng,
    tasks: HashMap<TaskId, Kept>,
    /// How often the fault was made.
    faults: usize,
}

#[derive(Debug)]
struct Kept {
    now: Arc<Task>,
    before: Arc<Task>,
    payloads: HashMap<PayloadRef, Bytes>,
}

/// The limits of the fake.
pub(crate) fn limits() -> Limits {
    Limits {
        default_ttl_ms: 60_000,
        max_ttl_ms: 700_000,
        default_poll_interval_ms: 2000,
        max_payload_bytes: 1 << 20,
        quota: Quota { tasks_per_owner: 1 << 20, bytes_per_owner: 1 << 40, max_tasks: 1 << 20 },
    }
}

impl Fake {
    pub(crate) fn new(seed: u64, fault: Fault) -> Self {
        let world = World { rng: fastrand::Rng::with_seed(seed), tasks: HashMap::new(), faults: 0 };
        Self { limits: limits(), origin: Instant::now(), fault, world: Mutex::new(world) }
    }

    /// A kill and a start.
    pub(crate) fn restart(&self) {
        let mut world = self.world.lock().unwrap();
        if self.fault != Fault::TakenBack {
            return;
        }
        for kept in world.tasks.values_mut() {
            kept.now = Arc::clone(&kept.before);
        }
        world.faults += 1;
    }

    pub(crate) fn faults(&self) -> usize {
        self.world.lock().unwrap().faults
    }

    fn now(&self) -> Timestamp {
        Timestamp::from_millis(1_800_000_000_000 + micros(self.origin) / 1000)
    }
}

impl World {
    /// Whether the fault is made this time.
    fn fails(&mut self, fault: Fault, is: Fault) -> bool {
        let fails = fault == is && self.rng.u32(..20) == 0;
        self.faults += usize::from(fails);
        fails
    }

    fn create(&mut self, fake: &Fake, new: &NewTask, caller: &Caller, now: Timestamp) -> Reply {
        let key = |task: &Task| task.replay.as_ref()?.create.as_ref().map(|key| Arc::clone(key.key()));
        let wanted = new.key.as_ref().map(|key| Arc::clone(key.key()));
        let existing = self
            .tasks
            .values()
            .map(|kept| &kept.now)
            .find(|task| wanted.is_some() && key(task) == wanted && !task.is_expired(now));
        if let Some(task) = existing.cloned() {
            replay_create(&task, new, caller, &fake.limits).unwrap();
            return Reply::Created(Box::new(Created { snapshot: self.snapshot(&task, now), created: false }));
        }
        let new = NewTask { id: TaskId::from_bytes(self.rng.u128(..).to_be_bytes()), ..new.clone() };
        let made = create(new, caller, &fake.limits, &Usage::default(), now).unwrap();
        let Effect::Write { task, payloads, .. } = made.effect else { unreachable!("a new task is written") };
        let task = Arc::<Task>::from(task);
        let kept = Kept {
            now: Arc::clone(&task),
            before: Arc::clone(&task),
            payloads: HashMap::from_iter(payloads),
        };
        self.tasks.insert(task.id, kept);
        Reply::Created(Box::new(Created { snapshot: self.snapshot(&task, now), created: true }))
    }

    fn command(&mut self, fake: &Fake, call: &Call, id: TaskId, request: &Request, now: Timestamp) -> Reply {
        let Some(kept) = self.tasks.get(&id) else { return Reply::NotFound };
        let (newest, before) = (Arc::clone(&kept.now), Arc::clone(&kept.before));
        let mut task =
            if self.fails(fake.fault, Fault::StaleDecision) { before } else { Arc::clone(&newest) };
        if self.fails(fake.fault, Fault::ForgottenKey) {
            let task = Arc::make_mut(&mut task);
            let create = task.replay.as_ref().and_then(|replay| replay.create.clone());
            task.replay = Some(Arc::new(Replay { create, outcomes: Vec::new() }));
        }
        let transition = match execute(&task, request, &fake.limits, &Usage::default(), now) {
            Ok(transition) => transition,
            Err(rejection) => return refused(&rejection),
        };
        let Transition { outcome, replayed, effect } = transition;
        let mut after = Arc::clone(&task);
        let lost = self.fails(fake.fault, Fault::LostUpdate);
        let kept = self.tasks.get_mut(&id).unwrap();
        match effect {
            Effect::None => {}
            Effect::Remove { .. } => drop(self.tasks.remove(&id)),
            Effect::Write { task, payloads, .. } => {
                after = task.into();
                kept.payloads.extend(payloads);
                if !lost {
                    kept.before = newest;
                    kept.now = Arc::clone(&after);
                }
            }
        }
        self.told(call, request, &outcome, replayed, (&after, now))
    }

    fn told(
        &self,
        call: &Call,
        request: &Request,
        outcome: &Outcome,
        replayed: bool,
        (after, now): (&Task, Timestamp),
    ) -> Reply {
        let status = status(outcome.status);
        let told = shapes::Outcome { applied: outcome.applied, status, revision: outcome.revision, replayed };
        if request.right == Right::Owner {
            return Reply::Acknowledged;
        }
        match (&outcome.detail, &request.command) {
            (
                Detail::Inputs { accepted, outstanding },
                task_broker_core::Command::ApplyInput { responses },
            ) => {
                let texts = |keys: &[Arc<str>]| keys.iter().map(ToString::to_string).collect();
                let ignored = responses.keys().filter(|key| !accepted.contains(key)).map(ToString::to_string);
                Reply::Inputs(apply_input::Applied {
                    outcome: told,
                    accepted: texts(accepted),
                    ignored: ignored.collect(),
                    still_outstanding: texts(outstanding),
                })
            }
            (Detail::Ttl { ttl_ms, remaining_ms }, _) => Reply::Ttl(set_ttl::TtlOutcome {
                outcome: told,
                ttl_ms: *ttl_ms,
                remaining_ms: *remaining_ms,
            }),
            _ if call.method == "store/cancel" => {
                let mut snapshot = self.snapshot(after, now);
                snapshot.revision = told.revision;
                Reply::Cancelled(Box::new(cancel::Cancelled { outcome: told, snapshot }))
            }
            _ => Reply::Outcome(told),
        }
    }

    fn look(
        &mut self,
        fake: &Fake,
        id: TaskId,
        (caller, right): (&Caller, Right),
        now: Timestamp,
    ) -> Option<Arc<Task>> {
        let stale = self.fails(fake.fault, Fault::StaleRead);
        let kept = self.tasks.get(&id)?;
        let task = Arc::clone(if stale { &kept.before } else { &kept.now });
        let gone = may_see(&task, caller, right, now).is_err();
        (!gone || task.is_expired(now) && self.fails(fake.fault, Fault::Undead)).then_some(task)
    }

    fn bytes(&self, task: &Task, at: &PayloadRef) -> Json {
        Json::from_trusted(self.tasks.get(&task.id).map_or(Bytes::new(), |kept| kept.payloads[at].clone()))
    }

    fn row(&self, task: &Task, now: Timestamp) -> shapes::Row {
        shapes::Row {
            task: shapes::Task {
                task_id: task.id.to_string(),
                status: status(task.status()),
                status_message: Some(task.message.to_string()),
                created_at: time(task.created_at),
                last_updated_at: time(task.updated_at),
                ttl_ms: task.ttl_ms,
                poll_interval_ms: task.poll_interval_ms.into(),
                meta: task.meta.as_ref().map(|meta| self.bytes(task, meta)),
            },
            owner: task.owner.as_deref().map(str::to_owned),
            tool_name: task.tool_name.to_string(),
            revision: task.revision,
            remaining_ms: task.remaining_ms(now),
            cancel_requested: task.cancel_requested,
        }
    }

    fn snapshot(&self, task: &Task, now: Timestamp) -> shapes::Snapshot {
        let mut snapshot = shapes::Snapshot::of(self.row(task, now));
        match &task.phase {
            Phase::Completed(at) => snapshot.result = Some(self.bytes(task, at)),
            Phase::Failed(at) => snapshot.error = Some(self.bytes(task, at)),
            Phase::Working | Phase::InputRequired | Phase::Cancelled => {}
        }
        snapshot.input_requests =
            task.shown_questions().map(|(key, at)| (key.to_string(), self.bytes(task, at))).collect();
        snapshot
    }
}

impl Port for &Fake {
    fn perform(&mut self, call: &Call) -> Option<Reply> {
        // Calls overlap, although each is done at one instant.
        std::thread::yield_now();
        let mut world = self.world.lock().unwrap();
        let (caller, now) = (call.who.caller(), self.now());
        let creator = (&caller, Right::Creator);
        let reply = match &call.act {
            Act::Create(new) => world.create(self, new, &caller, now),
            Act::Command(id, request) => world.command(self, call, *id, request, now),
            Act::Look(id, view) => {
                let right = if *view == View::Owner { Right::Owner } else { Right::Creator };
                match world.look(self, *id, (&caller, right), now) {
                    None => Reply::NotFound,
                    Some(task) => shown(&world, &task, *view, now),
                }
            }
            Act::Statuses(ids) => {
                let state = |id: &TaskId| {
                    let task = world.look(self, *id, creator, now)?;
                    Some(statuses::State {
                        status: status(task.status()),
                        revision: task.revision,
                        remaining_ms: task.remaining_ms(now),
                        cancel_requested: task.cancel_requested,
                    })
                };
                let mut state = state;
                Reply::States(ids.iter().map(|id| (id.to_string(), state(id))).collect())
            }
            Act::List(statuses) => {
                let ids: Vec<_> = world.tasks.keys().copied().collect();
                let seen = ids.iter().filter_map(|id| world.look(self, *id, creator, now));
                let seen = seen.collect::<Vec<_>>();
                let wanted =
                    seen.iter().filter(|task| statuses.is_empty() || statuses.contains(&task.status()));
                Reply::Page(list::Page {
                    tasks: wanted.map(|task| world.row(task, now)).collect(),
                    next_cursor: None,
                })
            }
        };
        drop(world);
        std::thread::yield_now();
        Some(reply)
    }
}

fn shown(world: &World, task: &Task, view: View, now: Timestamp) -> Reply {
    let snapshot = world.snapshot(task, now);
    match view {
        View::Get => Reply::Snapshot(Box::new(snapshot)),
        View::Owner => Reply::Owner(Box::new(snapshot.into())),
        View::Wait(since) => {
            let over = task.status().is_terminal() || since.is_some_and(|since| task.revision > since);
            Reply::Waited(Box::new(wait::Waited { snapshot, timed_out: !over }))
        }
        View::Resume => Reply::Resume(Box::new(resume::Context {
            tool_name: task.tool_name.to_string(),
            arguments: world.bytes(task, &task.arguments),
            input_responses: task
                .answers()
                .map(|(key, at)| (key.to_string(), world.bytes(task, at)))
                .collect(),
            revision: task.revision,
            remaining_ms: task.remaining_ms(now),
            cancel_requested: task.cancel_requested,
        })),
    }
}

fn refused(rejection: &task_broker_core::Rejection) -> Reply {
    let revision = match rejection {
        task_broker_core::Rejection::RevisionConflict { revision } => Some(*revision),
        _ => None,
    };
    match kind_of(rejection) {
        "task_not_found" => Reply::NotFound,
        kind => Reply::Refused(kind.to_owned(), revision),
    }
}

pub(crate) fn status(status: task_broker_core::Status) -> shapes::Status {
    shapes::Status::from_word(crate::call::word(status)).unwrap()
}

pub(crate) fn time(at: Timestamp) -> String {
    let at = jiff::Timestamp::from_millisecond(i64::try_from(at.as_millis()).unwrap()).unwrap();
    format!("{at:.3}")
}
