//! Builders for the tests of the core: a task, the commands, and what must hold after each of them.
//!
//! The people: `worker` is an MCP server's service account, `alice` is the user whose tasks it makes.
#![allow(
    dead_code,
    unused_macros,
    unused_imports,
    reason = "each test binary uses its own part of the support"
)]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that panics has failed, as it should; clippy.toml covers only functions marked as tests"
)]

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use task_broker_core::digest::canonical;
use task_broker_core::{
    Actor, Ask, Caller, Command, Effect, Event, EventKind, Guard, Limits, NewTask, OnSpentKey, Payload,
    PayloadRef, Quota, Rejection, Request, Right, Status, Task, TaskId, Timestamp, Transition, TtlWish,
    Usage, apply, check, create, execute,
};

/// When the tasks of the tests are created.
pub(crate) const START: Timestamp = Timestamp::from_millis(1_000_000);
/// The TTL they are created with.
pub(crate) const TTL_MS: u64 = 60_000;
/// The largest TTL in force.
pub(crate) const MAX_TTL_MS: u64 = 600_000;
/// Nothing is kept but the task in question.
pub(crate) const NO_USAGE: Usage = Usage { owner_tasks: 0, owner_bytes: 0, total_tasks: 0 };
/// The ways in which a requireInput can treat used keys.
pub(crate) use OnSpentKey::{AskAgain, Reject};

/// Lists the variants of an enum and names them, in one macro: a new variant fails to compile here, and once it is
/// listed, the tests that loop over the list fail until they say what they expect of it.
macro_rules! variants {
    ($list:ident, $name:ident: $type:ident { $($variant:ident),+ $(,)? }) => {
        pub(crate) const $list: &[&str] = &[$(stringify!($variant)),+];
        pub(crate) fn $name(value: &$type) -> &'static str {
            match value { $($type::$variant { .. } => stringify!($variant)),+ }
        }
    };
}

variants!(COMMANDS, command_name: Command {
    RequireInput, ApplyInput, SetStatus, SetTtl, SetMeta, Complete, Fail, Cancel, Discard,
});
variants!(STATUSES, status_name: Status { Working, InputRequired, Completed, Failed, Cancelled });

/// Limits that no test meets by accident.
pub(crate) fn limits() -> Limits {
    Limits {
        default_ttl_ms: TTL_MS,
        max_ttl_ms: MAX_TTL_MS,
        default_poll_interval_ms: 2_000,
        max_payload_bytes: 4 * 1024 * 1024,
        quota: Quota { tasks_per_owner: 100, bytes_per_owner: 1 << 30, max_tasks: 1_000 },
    }
}

/// `START` and so many milliseconds more.
pub(crate) fn at(ms: u64) -> Timestamp {
    START.saturating_add(ms)
}

pub(crate) fn payload(text: &str) -> Payload {
    Payload::new(Bytes::copy_from_slice(text.as_bytes()))
}

/// A JSON string of exactly so many bytes.
pub(crate) fn payload_of(bytes: u64) -> Payload {
    let filling = usize::try_from(bytes.checked_sub(2).expect("two quotes at least")).unwrap();
    payload(&format!("\"{}\"", "x".repeat(filling)))
}

/// What the wire makes of a question.
pub(crate) fn ask(text: &str) -> Ask {
    Ask { payload: payload(text), digest: canonical(text.as_bytes()).unwrap() }
}

/// A question like any other.
pub(crate) const QUESTION: &str = r#"{"method":"elicitation/create","params":{"message":"go on?"}}"#;
/// An answer like any other.
pub(crate) const ANSWER: &str = r#"{"action":"accept","content":{"ok":true}}"#;

/// The service account, which may name owners.
pub(crate) fn worker() -> Caller {
    Caller::named("worker").with_delegation()
}

/// A task of alice's, made by the worker.
pub(crate) fn new_task() -> NewTask {
    NewTask {
        id: TaskId::from_bytes([7; 16]),
        tool_name: Arc::from("report"),
        arguments: payload(r#"{"q":1}"#),
        ttl: TtlWish::Default,
        owner: Some(Arc::from("alice")),
        poll_interval_ms: None,
        meta: None,
        key: None,
    }
}

/// The stored state of `new`, created by `caller` at `START`.
pub(crate) fn create_as(new: NewTask, caller: &Caller) -> Task {
    written(create(new, caller, &limits(), &NO_USAGE, START).unwrap())
}

/// A task as [`new_task`] makes it, stored.
pub(crate) fn task() -> Task {
    create_as(new_task(), &worker())
}

/// The state that a transition writes.
pub(crate) fn written(transition: Transition) -> Task {
    match transition.effect {
        Effect::Write { task, .. } => *task,
        Effect::None | Effect::Remove { .. } => panic!("nothing was written: {transition:?}"),
    }
}

/// The event that a transition makes, whatever else it does.
pub(crate) fn event_of(transition: &Transition) -> Option<Event> {
    match &transition.effect {
        Effect::None => None,
        Effect::Write { event, .. } => *event,
        Effect::Remove { event } => Some(*event),
    }
}

/// What `apply` decides with the usual limits, one second after the start.
pub(crate) fn decide(task: &Task, command: &Command) -> Result<Transition, Rejection> {
    apply(task, command, Actor::Creator, &limits(), at(1_000))
}

/// The state after a command that must be carried out. A command that changes nothing leaves the task as it is.
pub(crate) fn after(task: &Task, command: &Command) -> Task {
    let transition = decide(task, command).unwrap();
    let next = match transition.effect {
        Effect::None => task.clone(),
        Effect::Write { task, .. } => *task,
        Effect::Remove { .. } => panic!("the task is gone"),
    };
    check(&next).unwrap();
    next
}

/// The state after several commands.
pub(crate) fn after_all<'a>(task: &Task, commands: impl IntoIterator<Item = &'a Command>) -> Task {
    commands.into_iter().fold(task.clone(), |task, command| after(&task, command))
}

/// The worker's request for a command, without guards.
pub(crate) fn by_worker(command: Command) -> Request {
    Request { caller: worker(), right: Right::Creator, guard: Guard::default(), command }
}

/// What `execute` decides with the usual limits and nothing else kept, one second after the start.
pub(crate) fn run(task: &Task, request: &Request) -> Result<Transition, Rejection> {
    execute(task, request, &limits(), &NO_USAGE, at(1_000))
}

pub(crate) fn require_input(questions: &[(&str, &str)], on_spent: OnSpentKey) -> Command {
    let requests = questions.iter().map(|(key, text)| (Arc::from(*key), ask(text))).collect();
    Command::RequireInput { requests, message: None, on_spent }
}

pub(crate) fn require_input_saying(questions: &[(&str, &str)], message: &str) -> Command {
    let requests = questions.iter().map(|(key, text)| (Arc::from(*key), ask(text))).collect();
    Command::RequireInput { requests, message: Some(message.to_owned()), on_spent: AskAgain }
}

/// Questions under these keys, all alike.
pub(crate) fn require_keys<K: AsRef<str>>(keys: impl IntoIterator<Item = K>) -> Command {
    let requests = keys.into_iter().map(|key| (Arc::from(key.as_ref()), ask(QUESTION))).collect();
    Command::RequireInput { requests, message: None, on_spent: AskAgain }
}

pub(crate) fn apply_input(answers: &[(&str, &str)]) -> Command {
    let responses = answers.iter().map(|(key, text)| (Arc::from(*key), payload(text))).collect();
    Command::ApplyInput { responses }
}

/// Answers under these keys, all alike.
pub(crate) fn answer_keys<K: AsRef<str>>(keys: impl IntoIterator<Item = K>) -> Command {
    let responses: BTreeMap<_, _> =
        keys.into_iter().map(|key| (Arc::from(key.as_ref()), payload(ANSWER))).collect();
    Command::ApplyInput { responses }
}

pub(crate) fn set_status(status: Status, message: Option<&str>) -> Command {
    Command::SetStatus { status, message: message.map(str::to_owned) }
}

pub(crate) fn set_ttl(ttl_ms: u64) -> Command {
    Command::SetTtl { ttl_ms }
}

pub(crate) fn set_meta(text: &str) -> Command {
    Command::SetMeta { meta: payload(text) }
}

pub(crate) fn complete() -> Command {
    Command::Complete { result: payload(r#"{"content":[]}"#) }
}

pub(crate) fn fail(message: &str) -> Command {
    Command::Fail { error: payload(r#"{"code":-32603,"message":"as told"}"#), message: message.to_owned() }
}

pub(crate) fn cancel(reason: Option<&str>) -> Command {
    Command::Cancel { reason: reason.map(str::to_owned) }
}

/// The three commands that end a task.
pub(crate) fn endings() -> [Command; 3] {
    [complete(), fail("broken"), cancel(None)]
}

/// The limit that was hit.
pub(crate) fn exceeded(limit: &'static str, maximum: u64) -> Rejection {
    Rejection::LimitExceeded { limit, maximum }
}

/// The member that a rejection finds fault with.
pub(crate) fn member_at_fault(rejection: &Rejection) -> Option<&str> {
    if let Rejection::InvalidParams { member, .. } = rejection { Some(member) } else { None }
}

pub(crate) fn is_invalid_transition<T>(decided: &Result<T, Rejection>) -> bool {
    matches!(decided, Err(Rejection::InvalidTransition(_)))
}

/// The keys of a map as text.
pub(crate) fn keys<'a, V: 'a>(entries: impl IntoIterator<Item = (&'a Arc<str>, V)>) -> Vec<&'a str> {
    entries.into_iter().map(|(key, _)| &**key).collect()
}

/// The keys of the questions that can be answered.
pub(crate) fn open_keys(task: &Task) -> Vec<&str> {
    task.inputs.iter().flat_map(|inputs| inputs.outstanding.keys()).map(|key| &**key).collect()
}

/// The keys that are used up.
pub(crate) fn spent_keys(task: &Task) -> Vec<&str> {
    task.inputs.iter().flat_map(|inputs| &inputs.spent).map(|key| &**key).collect()
}

/// The reference under which an open question is kept.
pub(crate) fn question_of(task: &Task, key: &str) -> PayloadRef {
    task.inputs.as_ref().and_then(|inputs| inputs.outstanding.get(key)).expect("an open question").payload
}

/// The reference under which an answer is kept.
pub(crate) fn answer_of(task: &Task, key: &str) -> Option<PayloadRef> {
    task.inputs.as_ref().and_then(|inputs| inputs.answers.get(key)).copied()
}

/// What a transition writes and drops.
pub(crate) fn payload_changes(transition: &Transition) -> (Vec<PayloadRef>, Vec<PayloadRef>) {
    match &transition.effect {
        Effect::Write { payloads, dropped, .. } => {
            (payloads.iter().map(|(reference, _)| *reference).collect(), dropped.clone())
        }
        Effect::None | Effect::Remove { .. } => (Vec::new(), Vec::new()),
    }
}

/// The name of a status on the wire.
pub(crate) const fn status_word(status: Status) -> &'static str {
    match status {
        Status::Working => "working",
        Status::InputRequired => "input_required",
        Status::Completed => "completed",
        Status::Failed => "failed",
        Status::Cancelled => "cancelled",
    }
}

/// The name of an event on the wire.
pub(crate) const fn kind_word(kind: EventKind) -> &'static str {
    match kind {
        EventKind::Create => "create",
        EventKind::RequireInput => "requireInput",
        EventKind::ApplyInput => "applyInput",
        EventKind::SetStatus => "setStatus",
        EventKind::SetTtl => "setTtl",
        EventKind::SetMeta => "setMeta",
        EventKind::Complete => "complete",
        EventKind::Fail => "fail",
        EventKind::Cancel => "cancel",
        EventKind::Discard => "discard",
        EventKind::Expired => "expired",
    }
}
