//! How often the operations of tower-mcp's router ask the broker.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use serde::Deserialize;
use serde_json::json;
use tokio::sync::Semaphore;
use tower_mcp::async_task::TaskStore;
use tower_mcp::client::{ChannelTransport, McpClient, TaskAwareCallToolOutcome};
use tower_mcp::protocol::{InputRequests, InputRequiredResult, InputResponses, RequestOutcome};
use tower_mcp::schemars::{self, JsonSchema};
use tower_mcp::tasks::DetailedTask;
use tower_mcp::{
    CallToolResult, McpRouter, ProtocolSupport, RequestContext, TaskSupportMode, Tool, ToolBuilder,
};

use crate::counting::Counting;
use crate::{clock, table};

/// How long the work behind a task may take; it does next to nothing.
const WORK_DEADLINE: Duration = Duration::from_secs(10);
/// Longer than a read is kept for the calls that belong to it.
const APART: Duration = Duration::from_millis(60);

#[derive(Debug, Deserialize, JsonSchema)]
struct Nothing {}

/// Does its work as soon as it is let.
fn working(go: Arc<Semaphore>) -> Tool {
    ToolBuilder::new("working")
        .description("Works")
        .task_support(TaskSupportMode::Required)
        .handler(move |_: Nothing| {
            let go = Arc::clone(&go);
            async move {
                // The semaphore is never closed.
                go.acquire().await.map_err(|closed| tower_mcp::Error::internal(closed.to_string()))?.forget();
                Ok(CallToolResult::text("done"))
            }
        })
        .build()
}

/// Asks one question, and is done when it is answered.
fn asking(question: InputRequests) -> Tool {
    ToolBuilder::new("asking")
        .description("Asks")
        .task_support(TaskSupportMode::Required)
        .mrtr_handler(move |context: RequestContext, _: Nothing| {
            let question = question.clone();
            async move {
                Ok(if context.input_responses().is_some_and(|answers| !answers.is_empty()) {
                    RequestOutcome::Complete(CallToolResult::text("done"))
                } else {
                    RequestOutcome::input_required(InputRequiredResult::with_requests(question))
                })
            }
        })
        .build()
}

/// Runs each operation once and prints what it asked.
pub(crate) async fn run(store: &Arc<dyn TaskStore>, counting: &Counting) -> Result<()> {
    let question = json!({"method": "elicitation/create", "params": {
        "message": "Go on?", "requestedSchema": {"type": "object", "properties": {}}}});
    let questions: InputRequests = serde_json::from_value(json!({"go-on": question}))?;
    let answers: InputResponses =
        serde_json::from_value(json!({"go-on": {"action": "accept", "content": {}}}))?;
    let go = Arc::new(Semaphore::new(0));
    let router = McpRouter::new()
        .server_info("bench", "1.0.0")
        .tools([working(Arc::clone(&go)), asking(questions)])
        .task_store(Arc::clone(store))
        .with_tasks();
    let client = McpClient::builder()
        .protocol_support(ProtocolSupport::try_new(["2026-07-28"])?)
        .with_tasks()
        .connect_simple(ChannelTransport::new(router))
        .await?;
    client.discover("bench", "1.0.0").await?;

    let mut sheet = Sheet { client: &client, store, counting, counts: Vec::new(), requests: Vec::new() };
    counting.take();
    let task = sheet.call("working").await?;
    sheet.replied("tools/call");
    sheet.get(&task, "tasks/get, working", |task| matches!(task, DetailedTask::Working { .. })).await?;
    go.add_permits(1);
    sheet.until_ended(&task).await?;
    sheet.afterwards("  the end of its work");
    sheet.get(&task, "tasks/get, completed", |task| matches!(task, DetailedTask::Completed { .. })).await?;

    let task = sheet.call("working").await?;
    sheet.forget().await;
    client.task_cancel(&task, None).await?;
    sheet.replied("tasks/cancel");

    let task = sheet.call("asking").await?;
    sheet.until_asking(&task).await?;
    sheet.forget().await;
    sheet
        .get(&task, "tasks/get, input_required", |task| matches!(task, DetailedTask::InputRequired { .. }))
        .await?;
    client.task_update(&task, answers).await?;
    sheet.replied("tasks/update, the last answer");
    sheet.until_ended(&task).await?;
    sheet.afterwards("  running the tool again, and its end");

    println!("\nrequests to the broker for each operation of the router");
    table::print(&["operation", "requests"], &sheet.counts);
    println!();
    for (operation, requests) in sheet.requests {
        println!("{operation}: {}", requests.join(", "));
    }
    Ok(())
}

struct Sheet<'a> {
    client: &'a McpClient,
    store: &'a Arc<dyn TaskStore>,
    counting: &'a Counting,
    counts: Vec<Vec<String>>,
    requests: Vec<(String, Vec<String>)>,
}

impl Sheet<'_> {
    /// Calls a tool as a task.
    async fn call(&self, tool: &str) -> Result<String> {
        match self.client.call_tool_once_task_aware(tool, json!({}), None, None).await? {
            TaskAwareCallToolOutcome::Task(created) => Ok(created.task.metadata.task_id.clone()),
            _ => bail!("{tool} did not become a task"),
        }
    }

    async fn get(&mut self, task: &str, name: &str, is: impl FnOnce(&DetailedTask) -> bool) -> Result<()> {
        self.forget().await;
        let got = self.client.task_get_detailed(task).await?;
        ensure!(is(&got.task), "{name}: {got:?}");
        self.replied(name);
        Ok(())
    }

    /// What has been asked so far does not count, and nothing that was read is still at hand.
    async fn forget(&self) {
        tokio::time::sleep(APART).await;
        self.counting.take();
    }

    /// The operation has been answered.
    fn replied(&mut self, operation: &str) {
        let requests = self.counting.take();
        self.note(operation, requests);
    }

    /// What the router did after it had answered.
    fn afterwards(&mut self, what: &str) {
        let mut requests = self.counting.take();
        // The wait of this program.
        requests.retain(|method| method != "store/wait");
        self.note(what, requests);
    }

    fn note(&mut self, operation: &str, requests: Vec<String>) {
        self.counts.push(vec![operation.to_owned(), requests.len().to_string()]);
        self.requests.push((operation.trim_start().to_owned(), requests));
    }

    async fn until_ended(&self, task: &str) -> Result<()> {
        let ended = tokio::time::timeout(WORK_DEADLINE, self.store.wait_for_completion(task)).await;
        ended.context("the work did not end")??.context("the task is gone")?;
        // What the router still reads for subscribers.
        tokio::time::sleep(APART).await;
        Ok(())
    }

    async fn until_asking(&self, task: &str) -> Result<()> {
        let started: Instant = clock::now();
        while started.elapsed() < WORK_DEADLINE {
            if self.store.outstanding_input_requests(task).await?.is_some_and(|asked| !asked.is_empty()) {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        bail!("the tool did not ask")
    }
}
