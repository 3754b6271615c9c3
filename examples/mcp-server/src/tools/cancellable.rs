//! A tool that owns its own end.

use std::time::Duration;

use serde::Deserialize;
use tower_mcp::schemars::{self, JsonSchema};
use tower_mcp::{CallToolResult, Error, Result, TaskContext, TaskOutcome, Tool, ToolBuilder};

/// How long one step takes.
const STEP: Duration = Duration::from_millis(500);
/// The longest count.
const MAX_STEPS: u32 = 1000;

#[derive(Debug, Deserialize, JsonSchema)]
struct CountDown {
    /// The first number.
    from: u32,
}

/// `count_down`: tells how far it is, and stops in an orderly way when it is cancelled.
///
/// The signal comes for a cancel made through any instance and when the task's time is over. It does not come because
/// the broker cannot be reached: work goes on through an outage.
///
/// A live handler belongs to its process. When this instance ends, nobody goes on counting, and the task is there to
/// be read until its TTL ends.
pub(super) fn count_down() -> Tool {
    ToolBuilder::new("count_down")
        .description("Counts down to zero and can be cancelled in between")
        .live_task_handler(|task: TaskContext, CountDown { from }: CountDown| async move {
            if from > MAX_STEPS {
                return Ok(TaskOutcome::Completed(CallToolResult::error(format!("at most {MAX_STEPS}"))));
            }
            match count(&task, from).await {
                Ok(()) => Ok(TaskOutcome::Completed(CallToolResult::text("lift-off"))),
                Err(Error::TaskCancelled) => {
                    // Here a real tool would end what it started: a subprocess, an upload, a lock.
                    let reason = task.cancellation_reason();
                    tracing::info!(task = task.task_id(), ?reason, "stopped counting");
                    Ok(TaskOutcome::Cancelled { message: reason })
                }
                Err(error) => Err(error),
            }
        })
        .build()
}

async fn count(task: &TaskContext, from: u32) -> Result<()> {
    for number in (1..=from).rev() {
        task.working(format!("{number} to go")).await?;
        tokio::select! {
            () = tokio::time::sleep(STEP) => {}
            () = task.cancelled() => return Err(Error::TaskCancelled),
        }
    }
    Ok(())
}
