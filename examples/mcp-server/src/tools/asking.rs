//! Tools that ask the user something while they run.
//!
//! Each is an ordinary function of its arguments and of the answers so far. It returns its questions and is over;
//! when all are answered the server calls it again from the top, with the answers. So nothing is lost when the
//! process ends in between, and with a shared broker another instance may be the one that goes on.

use serde::Deserialize;
use tower_mcp::schemars::{self, JsonSchema};
use tower_mcp::{
    CallToolResult, ElicitAction, ElicitFieldValue, ElicitFormParams, ElicitFormSchema, ElicitRequestParams,
    InputRequest, InputRequests, InputRequiredResult, InputResponse, RequestContext, RequestOutcome,
    TaskSupportMode, Tool, ToolBuilder,
};

/// What an asking tool says in the end, or what it has to ask.
type Outcome = RequestOutcome<CallToolResult>;

#[derive(Debug, Deserialize, JsonSchema)]
struct ConfirmDelete {
    /// The file that would be deleted.
    filename: String,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct Nothing {}

/// `confirm_delete`: one question, yes or no.
pub(super) fn confirm_delete() -> Tool {
    const CONFIRM: &str = "confirm-delete";
    ToolBuilder::new("confirm_delete")
        .description("Asks before it deletes a file (and then deletes nothing: this is an example)")
        .task_support(TaskSupportMode::Required)
        .mrtr_handler(|context: RequestContext, ConfirmDelete { filename }: ConfirmDelete| async move {
            let Some(answer) = answer(&context, CONFIRM) else {
                let form = ElicitFormSchema::new().boolean_field("confirm", Some("Really delete it?"), true);
                return Ok(ask([(CONFIRM, question(format!("Delete {filename}?"), form))]));
            };
            let confirmed = matches!(field(answer, "confirm"), Some(ElicitFieldValue::Boolean(true)));
            let text = if confirmed { "deleted" } else { "kept" };
            Ok(said(format!("{filename} is {text}")))
        })
        .build()
}

/// `multi_input`: two questions at once, which may be answered one by one.
pub(super) fn multi_input() -> Tool {
    const KEYS: [&str; 2] = ["first-name", "second-name"];
    ToolBuilder::new("multi_input")
        .description("Asks for two names at once")
        .task_support(TaskSupportMode::Required)
        .mrtr_handler(|context: RequestContext, _: Nothing| async move {
            // The handler runs again only when everything that it asked is answered; until then the store keeps the
            // answers that are there.
            let names: Option<Vec<_>> = KEYS.iter().map(|key| answer(&context, key).map(name)).collect();
            Ok(match names {
                Some(names) => said(format!("The names are {}", names.join(" and "))),
                None => ask(KEYS.map(|key| (key, name_question(key)))),
            })
        })
        .build()
}

/// `test_tool_with_task`: asks for a name, then works with it.
pub(super) fn test_tool_with_task() -> Tool {
    const NAME: &str = "user_name";
    ToolBuilder::new("test_tool_with_task")
        .description("Asks for a name and then greets it")
        .task_support(TaskSupportMode::Required)
        .mrtr_handler(|context: RequestContext, _: Nothing| async move {
            Ok(match answer(&context, NAME).map(name) {
                Some(name) => said(format!("Hello, {name}!")),
                None => ask([(NAME, name_question("user name"))]),
            })
        })
        .build()
}

/// Ends this run of the handler with these questions. A key names one question for as long as the task lives.
fn ask<'a>(questions: impl IntoIterator<Item = (&'a str, InputRequest)>) -> Outcome {
    let requests: InputRequests =
        questions.into_iter().map(|(key, question)| (key.to_owned(), question)).collect();
    RequestOutcome::input_required(InputRequiredResult::with_requests(requests))
}

fn said(text: String) -> Outcome {
    RequestOutcome::Complete(CallToolResult::text(text))
}

fn question(message: impl Into<String>, requested_schema: ElicitFormSchema) -> InputRequest {
    let message = message.into();
    InputRequest::Elicit(ElicitRequestParams::Form(ElicitFormParams {
        mode: None,
        message,
        requested_schema,
        meta: None,
    }))
}

fn name_question(whose: &str) -> InputRequest {
    question(format!("What is the {whose}?"), ElicitFormSchema::new().string_field("name", None, true))
}

/// What the user answered to the question `key`, if it is answered.
fn answer<'a>(context: &'a RequestContext, key: &str) -> Option<&'a InputResponse> {
    context.input_responses()?.get(key)
}

/// A field of the form, if the user filled it in and sent it off.
fn field<'a>(answer: &'a InputResponse, name: &str) -> Option<&'a ElicitFieldValue> {
    match answer {
        InputResponse::Elicit(form) if form.action == ElicitAction::Accept => {
            form.content.as_ref()?.get(name)
        }
        _ => None,
    }
}

/// The name in an answer; a client may decline to give one.
fn name(answer: &InputResponse) -> String {
    match field(answer, "name") {
        Some(ElicitFieldValue::String(name)) => name.clone(),
        _ => "somebody".to_owned(),
    }
}
