//! Tools that take their time, and the two ways in which one can go wrong.

use std::time::Duration;

use serde::Deserialize;
use tower_mcp::schemars::{self, JsonSchema};
use tower_mcp::{
    CallToolResult, Error, JsonRpcError, TaskContext, TaskOutcome, TaskSupportMode, Tool, ToolBuilder,
    ToolError,
};

/// The longest computation, so that no call can keep a connection or a task busy for ever.
const MAX_SECONDS: u32 = 3600;

#[derive(Debug, Deserialize, JsonSchema)]
struct SlowCompute {
    /// How long to compute.
    seconds: u32,
    /// Comes back in the result.
    #[serde(default)]
    label: String,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct Nothing {}

/// `slow_compute`: a long-running tool. As a task for a client that can poll one, in place for any other.
///
/// When the task is cancelled, on this instance or another, tower-mcp drops the handler at its next `await`. A tool
/// that has to clean up is written like `count_down`.
pub(super) fn slow_compute() -> Tool {
    ToolBuilder::new("slow_compute")
        .description("Computes for some seconds")
        .read_only_safe()
        .task_support(TaskSupportMode::Optional)
        .handler(|SlowCompute { seconds, label }: SlowCompute| async move {
            if seconds > MAX_SECONDS {
                return Ok(CallToolResult::error(format!("at most {MAX_SECONDS} seconds")));
            }
            tokio::time::sleep(Duration::from_secs(seconds.into())).await;
            Ok(CallToolResult::text(format!("computed {label:?} for {seconds} s")))
        })
        .build()
}

/// `failing_job`: the tool ran and has bad news. That is an answer: the task is `completed`, its result an error.
pub(super) fn failing_job() -> Tool {
    ToolBuilder::new("failing_job")
        .description("Works for a second and then reports that it failed")
        .task_support(TaskSupportMode::Required)
        .handler(|_: Nothing| async move {
            tokio::time::sleep(Duration::from_secs(1)).await;
            Err(Error::Tool(ToolError::new("the disk of the imaginary printer is full")))
        })
        .build()
}

/// `protocol_error_job`: the call itself broke. There is no result at all: the task is `failed` with a JSON-RPC
/// error.
pub(super) fn protocol_error_job() -> Tool {
    ToolBuilder::new("protocol_error_job")
        .description("Breaks, as a server does that loses what it needs to go on")
        .live_task_handler(|_: TaskContext, _: Nothing| async move {
            tokio::time::sleep(Duration::from_millis(200)).await;
            Ok(TaskOutcome::Failed(JsonRpcError::internal_error("the worker is gone")))
        })
        .build()
}
