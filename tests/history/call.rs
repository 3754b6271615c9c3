//! Calls, once for the wire and once for the core, from one and the same choice; and answers, taken apart.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use serde_json::value::RawValue;
use task_broker_core::digest;
use task_broker_core::{
    Ask, Caller, Command, Guard, IdempotencyKey, NewTask, OnSpentKey, Payload, Request, Right, Status,
    TaskId, TtlWish,
};
use task_broker_protocol::methods::{
    apply_input, cancel, create, list, resume, set_ttl, statuses, tasks_get, wait,
};
use task_broker_protocol::shapes;

/// Who calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Who {
    /// The MCP server: it creates every task, and may do so for the user.
    Worker,
    /// The owner of about half of the tasks.
    User,
}

impl Who {
    pub(crate) const fn subject(self) -> &'static str {
        match self {
            Self::Worker => "history-worker",
            Self::User => "history-user",
        }
    }

    pub(crate) fn caller(self) -> Caller {
        match self {
            Self::Worker => Caller::named(self.subject()).with_delegation(),
            Self::User => Caller::named(self.subject()),
        }
    }
}

/// How a task is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum View {
    Get,
    /// `tasks/get`.
    Owner,
    /// `store/wait` that does not wait, with its `sinceRevision`.
    Wait(Option<u64>),
    Resume,
}

/// What a call asks for, in the words of the core.
#[derive(Clone, Debug)]
pub(crate) enum Act {
    /// The id is not known before the answer.
    Create(Arc<NewTask>),
    Command(TaskId, Arc<Request>),
    Look(TaskId, View),
    Statuses(Vec<TaskId>),
    /// One page, with these statuses only if there are any.
    List(Vec<Status>),
}

/// A call.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) who: Who,
    pub(crate) method: &'static str,
    /// What is sent.
    pub(crate) params: Arc<str>,
    pub(crate) act: Act,
}

/// What came back.
#[derive(Clone, Debug)]
pub(crate) enum Reply {
    /// No answer, or one that leaves open what happened.
    Open,
    /// `task_not_found`.
    NotFound,
    /// Any other error: its kind, and the revision that it names.
    Refused(String, Option<u64>),
    Acknowledged,
    Outcome(shapes::Outcome),
    Inputs(apply_input::Applied),
    Ttl(set_ttl::TtlOutcome),
    Cancelled(Box<cancel::Cancelled>),
    Created(Box<create::Created>),
    Snapshot(Box<shapes::Snapshot>),
    Waited(Box<wait::Waited>),
    Owner(Box<tasks_get::DetailedTask>),
    Resume(Box<resume::Context>),
    States(BTreeMap<String, Option<statuses::State>>),
    Page(list::Page),
}

/// Idempotency key and expected revision, as a client chooses them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wish {
    pub(crate) key: Option<String>,
    pub(crate) expected: Option<u64>,
}

pub(crate) fn payload(text: impl Into<String>) -> Payload {
    Payload::new(text.into().into_bytes().into())
}

/// A question with its digest.
pub(crate) fn ask(text: impl Into<String>) -> Ask {
    let payload = payload(text);
    Ask { digest: digest::canonical(payload.bytes()).unwrap(), payload }
}

/// A call that creates a task; `new` without its key.
pub(crate) fn create(new: NewTask, key: Option<&str>) -> Call {
    let mut params = format!(r#"{{"toolName":"{}","arguments":{}"#, new.tool_name, text(&new.arguments));
    match new.ttl {
        TtlWish::Default => {}
        TtlWish::Maximum => params.push_str(r#","ttlMs":null"#),
        TtlWish::Millis(millis) => write!(params, r#","ttlMs":{millis}"#).unwrap(),
    }
    match &new.owner {
        Some(owner) if **owner == *Who::Worker.subject() => {}
        Some(owner) => write!(params, r#","owner":"{owner}""#).unwrap(),
        None => params.push_str(r#","owner":null"#),
    }
    if let Some(poll) = new.poll_interval_ms {
        write!(params, r#","pollIntervalMs":{poll}"#).unwrap();
    }
    if let Some(meta) = &new.meta {
        write!(params, r#","meta":{}"#, text(meta)).unwrap();
    }
    let guard = Wish { key: key.map(str::to_owned), expected: None };
    let (params, key) = close(params, "store/create", &guard);
    Call {
        who: Who::Worker,
        method: "store/create",
        params,
        act: Act::Create(Arc::new(NewTask { key, ..new })),
    }
}

/// A call that changes a task. By `tasks/update` or `tasks/cancel` for the role of the owner.
pub(crate) fn command(who: Who, right: Right, id: TaskId, command: Command, wish: &Wish) -> Call {
    let (method, members) = written(&command, right);
    let params = format!(r#"{{"taskId":"{id}"{members}"#);
    let (params, key) = close(params, method, wish);
    let guard = Guard { key, expected_revision: wish.expected };
    let request = Request { caller: who.caller(), right, guard, command };
    Call { who, method, params, act: Act::Command(id, Arc::new(request)) }
}

/// A call that looks at one task.
pub(crate) fn look(who: Who, id: TaskId, view: View) -> Call {
    let (method, more) = match view {
        View::Get => ("store/get", String::new()),
        View::Owner => ("tasks/get", String::new()),
        View::Resume => ("store/resume", String::new()),
        View::Wait(None) => ("store/wait", r#","timeoutMs":0"#.to_owned()),
        View::Wait(Some(since)) => ("store/wait", format!(r#","timeoutMs":0,"sinceRevision":{since}"#)),
    };
    Call { who, method, params: format!(r#"{{"taskId":"{id}"{more}}}"#).into(), act: Act::Look(id, view) }
}

pub(crate) fn states(ids: Vec<TaskId>) -> Call {
    let names: Vec<_> = ids.iter().map(|id| format!("\"{id}\"")).collect();
    let params = format!(r#"{{"taskIds":[{}]}}"#, names.join(","));
    Call { who: Who::Worker, method: "store/statuses", params: params.into(), act: Act::Statuses(ids) }
}

pub(crate) fn page(limit: usize, statuses: Vec<Status>) -> Call {
    let mut params = format!(r#"{{"limit":{limit}"#);
    if !statuses.is_empty() {
        let words: Vec<_> = statuses.iter().map(|status| format!("\"{}\"", word(*status))).collect();
        write!(params, r#","status":[{}]"#, words.join(",")).unwrap();
    }
    params.push('}');
    Call { who: Who::Worker, method: "store/list", params: params.into(), act: Act::List(statuses) }
}

/// The status as the wire names it.
pub(crate) const fn word(status: Status) -> &'static str {
    match status {
        Status::Working => "working",
        Status::InputRequired => "input_required",
        Status::Completed => "completed",
        Status::Failed => "failed",
        Status::Cancelled => "cancelled",
    }
}

fn text(payload: &Payload) -> &str {
    std::str::from_utf8(payload.bytes()).unwrap()
}

/// Ends the params, and gives the idempotency key with the digest of all that they say.
fn close(mut params: String, method: &str, wish: &Wish) -> (Arc<str>, Option<IdempotencyKey>) {
    if let Some(key) = &wish.key {
        write!(params, r#","idempotencyKey":"{key}""#).unwrap();
    }
    if let Some(expected) = wish.expected {
        write!(params, r#","expectedRevision":{expected}"#).unwrap();
    }
    params.push('}');
    let key = wish.key.as_ref().map(|key| {
        let members: BTreeMap<String, &RawValue> = serde_json::from_str(&params).unwrap();
        let says = members.iter().map(|(name, value)| (name.as_str(), value.get().as_bytes()));
        IdempotencyKey::new(key, digest::call(method, says).unwrap()).unwrap()
    });
    (params.into(), key)
}

/// Method and members of a command.
fn written(command: &Command, right: Right) -> (&'static str, String) {
    let message = |name: &str, message: &Option<String>| {
        message.as_ref().map_or(String::new(), |message| format!(r#","{name}":"{message}""#))
    };
    let object = |members: &mut dyn Iterator<Item = (&Arc<str>, &Payload)>| {
        let members: Vec<_> = members.map(|(key, payload)| format!(r#""{key}":{}"#, text(payload))).collect();
        format!("{{{}}}", members.join(","))
    };
    match (command, right) {
        (Command::RequireInput { requests, message: said, on_spent }, _) => {
            let asked = object(&mut requests.iter().map(|(key, ask)| (key, &ask.payload)));
            let reject = if *on_spent == OnSpentKey::Reject { r#","onSpentKey":"reject""# } else { "" };
            let said = message("message", said);
            ("store/requireInput", format!(r#","inputRequests":{asked}{reject}{said}"#))
        }
        (Command::ApplyInput { responses }, right) => {
            let method = if right == Right::Owner { "tasks/update" } else { "store/applyInput" };
            (method, format!(r#","inputResponses":{}"#, object(&mut responses.iter())))
        }
        (Command::SetStatus { status, message: said }, _) => {
            let said = message("message", said);
            ("store/setStatus", format!(r#","status":"{}"{said}"#, word(*status)))
        }
        (Command::SetTtl { ttl_ms }, _) => ("store/setTtl", format!(r#","ttlMs":{ttl_ms}"#)),
        (Command::SetMeta { meta }, _) => ("store/setMeta", format!(r#","meta":{}"#, text(meta))),
        (Command::Complete { result }, _) => ("store/complete", format!(r#","result":{}"#, text(result))),
        (Command::Fail { error, .. }, _) => ("store/fail", format!(r#","error":{}"#, text(error))),
        (Command::Cancel { .. }, Right::Owner) => ("tasks/cancel", String::new()),
        (Command::Cancel { reason }, Right::Creator) => ("store/cancel", message("reason", reason)),
        (Command::Discard, _) => ("store/discard", String::new()),
    }
}
