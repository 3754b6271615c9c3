//! What a task must look like after each command, written from the contract and not from the broker's code, and how
//! to read the same from the broker's answers.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::harness::Answer;

/// A payload as the bytes that were sent.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Text(Arc<str>);

impl Text {
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<String> for Text {
    fn from(text: String) -> Self {
        Self(text.into())
    }
}

impl From<&RawValue> for Text {
    fn from(raw: &RawValue) -> Self {
        Self(raw.get().into())
    }
}

/// Payloads are long; their beginning and length tell them apart.
impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let beginning: String = self.0.chars().take(48).collect();
        write!(f, "{beginning}..({} bytes)", self.0.len())
    }
}

/// Payloads by key.
pub(crate) type Texts = BTreeMap<String, Text>;

/// Everything that the broker shows of one task at one revision, but for times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct View {
    pub(crate) tool: String,
    pub(crate) revision: u64,
    pub(crate) status: String,
    pub(crate) message: String,
    pub(crate) ttl_ms: u64,
    pub(crate) cancel_requested: bool,
    pub(crate) meta: Option<Text>,
    pub(crate) arguments: Text,
    pub(crate) answers: Texts,
    /// The open questions; shown only in `input_required`.
    pub(crate) questions: Texts,
    pub(crate) result: Option<Text>,
    /// Code, message and data.
    pub(crate) error: Option<(i64, String, Text)>,
}

/// One task as the driver knows it.
#[derive(Clone, Debug)]
pub(crate) struct Task {
    pub(crate) id: String,
    pub(crate) view: View,
    /// The open questions, shown or not.
    pub(crate) open: Texts,
}

/// A create call.
#[derive(Clone, Debug)]
pub(crate) struct Creation {
    pub(crate) tool: String,
    pub(crate) arguments: Text,
    pub(crate) meta: Option<Text>,
    pub(crate) ttl_ms: u64,
    pub(crate) key: Option<String>,
}

impl Creation {
    pub(crate) fn params(&self) -> String {
        let Self { tool, arguments, meta, ttl_ms, key } = self;
        let meta = meta.as_ref().map_or(String::new(), |meta| format!(r#","meta":{}"#, meta.as_str()));
        let key = key.as_ref().map_or(String::new(), |key| format!(r#","idempotencyKey":"{key}""#));
        let arguments = arguments.as_str();
        format!(r#"{{"toolName":"{tool}","arguments":{arguments},"ttlMs":{ttl_ms}{meta}{key}}}"#)
    }

    pub(crate) fn made(&self, id: String) -> Task {
        let view = View {
            tool: self.tool.clone(),
            revision: 1,
            status: "working".to_owned(),
            message: "Task started".to_owned(),
            ttl_ms: self.ttl_ms,
            cancel_requested: false,
            meta: self.meta.clone(),
            arguments: self.arguments.clone(),
            answers: Texts::new(),
            questions: Texts::new(),
            result: None,
            error: None,
        };
        Task { id, view, open: Texts::new() }
    }
}

/// What a command wishes.
#[derive(Clone, Debug)]
pub(crate) enum Wish {
    RequireInput(Texts),
    /// By the owner's `tasks/update` if set.
    ApplyInput(Texts, bool),
    SetStatus(&'static str, String),
    SetTtl(u64),
    SetMeta(Text),
    Complete(Text),
    Fail(i64, String, Text),
    /// By the owner's `tasks/cancel` if set.
    Cancel(bool),
    Discard,
}

/// A command on a task.
#[derive(Clone, Debug)]
pub(crate) struct Command {
    pub(crate) wish: Wish,
    pub(crate) key: Option<String>,
}

fn object(texts: &Texts) -> String {
    let members: Vec<_> = texts.iter().map(|(key, text)| format!(r#""{key}":{}"#, text.as_str())).collect();
    format!("{{{}}}", members.join(","))
}

impl Command {
    pub(crate) fn method(&self) -> &'static str {
        match &self.wish {
            Wish::RequireInput(_) => "store/requireInput",
            Wish::ApplyInput(_, false) => "store/applyInput",
            Wish::ApplyInput(_, true) => "tasks/update",
            Wish::SetStatus(..) => "store/setStatus",
            Wish::SetTtl(_) => "store/setTtl",
            Wish::SetMeta(_) => "store/setMeta",
            Wish::Complete(_) => "store/complete",
            Wish::Fail(..) => "store/fail",
            Wish::Cancel(false) => "store/cancel",
            Wish::Cancel(true) => "tasks/cancel",
            Wish::Discard => "store/discard",
        }
    }

    /// Whether the answer is SEP-2663's acknowledgement, which tells nothing but that.
    pub(crate) fn is_the_owners(&self) -> bool {
        matches!(&self.wish, Wish::ApplyInput(_, true) | Wish::Cancel(true))
    }

    pub(crate) fn params(&self, id: &str) -> String {
        let more = match &self.wish {
            Wish::RequireInput(questions) => format!(r#","inputRequests":{}"#, object(questions)),
            Wish::ApplyInput(answers, _) => format!(r#","inputResponses":{}"#, object(answers)),
            Wish::SetStatus(status, message) => format!(r#","status":"{status}","message":"{message}""#),
            Wish::SetTtl(ttl_ms) => format!(r#","ttlMs":{ttl_ms}"#),
            Wish::SetMeta(meta) => format!(r#","meta":{}"#, meta.as_str()),
            Wish::Complete(result) => format!(r#","result":{}"#, result.as_str()),
            Wish::Fail(code, message, data) => {
                format!(r#","error":{{"code":{code},"message":"{message}","data":{}}}"#, data.as_str())
            }
            Wish::Cancel(_) | Wish::Discard => String::new(),
        };
        let key = self.key.as_ref().map_or(String::new(), |key| format!(r#","idempotencyKey":"{key}""#));
        format!(r#"{{"taskId":"{id}"{more}{key}}}"#)
    }

    /// The task after this command; the same one if it comes too late. `None` when it is discarded. The second part
    /// is what the outcome must say.
    pub(crate) fn on(&self, before: &Task) -> (Option<Task>, Value) {
        let mut task = before.clone();
        let terminal = matches!(task.view.status.as_str(), "completed" | "failed" | "cancelled");
        let view = &mut task.view;
        let mut applied = true;
        let mut gone = false;
        let mut more = json!({});
        view.revision += 1;
        match &self.wish {
            Wish::SetTtl(ttl_ms) => {
                view.ttl_ms = *ttl_ms;
                more = json!({"ttlMs": ttl_ms});
            }
            Wish::SetMeta(meta) => view.meta = Some(meta.clone()),
            Wish::Discard => gone = true,
            wish if terminal => {
                applied = false;
                view.revision -= 1;
                view.cancel_requested |= matches!(wish, Wish::Cancel(_));
                if let Wish::ApplyInput(answers, _) = wish {
                    more = json!({"accepted": [], "ignored": answers.keys().collect::<Vec<_>>(), "stillOutstanding": []});
                }
            }
            Wish::RequireInput(questions) => {
                view.answers.retain(|key, _| !questions.contains_key(key));
                task.open.clone_from(questions);
                "input_required".clone_into(&mut view.status);
                "Awaiting client input".clone_into(&mut view.message);
            }
            Wish::ApplyInput(answers, _) => {
                let (accepted, ignored): (Vec<_>, Vec<_>) =
                    answers.iter().partition(|(key, _)| task.open.contains_key(*key));
                for (key, answer) in &accepted {
                    task.open.remove(*key);
                    view.answers.insert((*key).clone(), (*answer).clone());
                }
                if accepted.is_empty() {
                    view.revision -= 1;
                } else if task.open.is_empty() && view.status == "input_required" {
                    "working".clone_into(&mut view.status);
                    "Task resumed".clone_into(&mut view.message);
                }
                let names = |pairs: Vec<(&String, &Text)>| {
                    json!(pairs.iter().map(|(key, _)| key).collect::<Vec<_>>())
                };
                more = json!({
                    "accepted": names(accepted),
                    "ignored": names(ignored),
                    "stillOutstanding": task.open.keys().collect::<Vec<_>>(),
                });
            }
            Wish::SetStatus(status, message) => {
                (*status).clone_into(&mut view.status);
                view.message.clone_from(message);
            }
            Wish::Complete(result) => {
                view.result = Some(result.clone());
                end(&mut task, "completed", "Task completed".to_owned());
            }
            Wish::Fail(code, message, data) => {
                view.error = Some((*code, message.clone(), data.clone()));
                end(&mut task, "failed", format!("Task failed: {message}"));
            }
            Wish::Cancel(_) => {
                view.cancel_requested = true;
                end(&mut task, "cancelled", "Task cancelled".to_owned());
            }
        }
        let view = &mut task.view;
        view.questions = if view.status == "input_required" { task.open.clone() } else { Texts::new() };
        let mut outcome = json!({"applied": applied, "status": view.status, "revision": view.revision});
        outcome.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        (if gone { None } else { Some(task) }, outcome)
    }
}

fn end(task: &mut Task, status: &str, message: String) {
    status.clone_into(&mut task.view.status);
    task.view.message = message;
    task.open.clear();
}

/// Checks that an outcome says what it must, whatever else it says.
pub(crate) fn assert_says(answer: &Answer, expected: &Value) {
    let outcome = answer.result();
    for (name, value) in expected.as_object().unwrap() {
        assert_eq!(&outcome[name], value, "{name}, expected {expected}: {answer}");
    }
}

#[derive(Deserialize)]
struct Reply<T> {
    result: Option<T>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireTask<'a> {
    task_id: String,
    status: String,
    status_message: String,
    created_at: String,
    last_updated_at: String,
    ttl_ms: u64,
    #[serde(borrow, rename = "_meta")]
    meta: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireRow<'a> {
    #[serde(borrow)]
    task: WireTask<'a>,
    tool_name: String,
    revision: u64,
    cancel_requested: bool,
    #[serde(borrow)]
    result: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
    #[serde(borrow, default)]
    input_requests: BTreeMap<String, &'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireResume<'a> {
    revision: u64,
    #[serde(borrow)]
    arguments: &'a RawValue,
    #[serde(borrow)]
    input_responses: BTreeMap<String, &'a RawValue>,
}

#[derive(Deserialize)]
struct WireError<'a> {
    code: i64,
    message: String,
    #[serde(borrow)]
    data: &'a RawValue,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WirePage<'a> {
    #[serde(borrow)]
    tasks: Vec<WireRow<'a>>,
    next_cursor: Option<String>,
}

/// A row or snapshot, as far as it is the same in both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) id: String,
    pub(crate) tool: String,
    pub(crate) revision: u64,
    pub(crate) status: String,
    pub(crate) message: String,
    pub(crate) ttl_ms: u64,
    pub(crate) created: String,
    pub(crate) updated: String,
    pub(crate) cancel_requested: bool,
    pub(crate) meta: Option<Text>,
}

impl From<&WireRow<'_>> for Row {
    fn from(row: &WireRow<'_>) -> Self {
        Self {
            id: row.task.task_id.clone(),
            tool: row.tool_name.clone(),
            revision: row.revision,
            status: row.task.status.clone(),
            message: row.task.status_message.clone(),
            ttl_ms: row.task.ttl_ms,
            created: row.task.created_at.clone(),
            updated: row.task.last_updated_at.clone(),
            cancel_requested: row.cancel_requested,
            meta: row.task.meta.map(Text::from),
        }
    }
}

fn result<'a, T: Deserialize<'a>>(answer: &'a Answer) -> T {
    let reply: Reply<T> =
        serde_json::from_str(answer.text()).unwrap_or_else(|error| panic!("{error}: {answer}"));
    reply.result.unwrap_or_else(|| panic!("no result: {answer}"))
}

fn texts(raw: &BTreeMap<String, &RawValue>) -> Texts {
    raw.iter().map(|(key, raw)| (key.clone(), Text::from(*raw))).collect()
}

/// Reads a snapshot's row.
pub(crate) fn row_of(answer: &Answer) -> Row {
    Row::from(&result::<WireRow<'_>>(answer))
}

/// Reads a page of `store/list` and where the next one begins.
pub(crate) fn page_of(answer: &Answer) -> (Vec<Row>, Option<String>) {
    let page: WirePage<'_> = result(answer);
    (page.tasks.iter().map(Row::from).collect(), page.next_cursor)
}

/// Puts together what `store/get` and `store/resume` show of a task that rests; both must show the same revision.
pub(crate) fn view_of(get: &Answer, resume: &Answer) -> View {
    let snapshot: WireRow<'_> = result(get);
    let rest: WireResume<'_> = result(resume);
    assert_eq!(snapshot.revision, rest.revision, "store/get and store/resume differ: {get}{resume}");
    let error = snapshot.error.map(|raw| {
        let error: WireError<'_> = serde_json::from_str(raw.get()).unwrap();
        (error.code, error.message, Text::from(error.data))
    });
    let row = Row::from(&snapshot);
    View {
        tool: row.tool,
        revision: row.revision,
        status: row.status,
        message: row.message,
        ttl_ms: row.ttl_ms,
        cancel_requested: row.cancel_requested,
        meta: row.meta,
        arguments: Text::from(rest.arguments),
        answers: texts(&rest.input_responses),
        questions: texts(&snapshot.input_requests),
        result: snapshot.result.map(Text::from),
        error,
    }
}
