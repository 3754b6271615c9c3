//! The tools, one file for each way a tool can run.
//!
//! | file | tools | how they run |
//! |---|---|---|
//! | `plain` | `greet` | answered at once, never a task |
//! | `long` | `slow_compute`, `failing_job`, `protocol_error_job` | an ordinary handler; as a task for clients that can |
//! | `asking` | `confirm_delete`, `multi_input`, `test_tool_with_task` | ask the user, and run again with the answers |
//! | `cancellable` | `count_down` | owns its own end: reports progress, and cleans up when it is cancelled |
//!
//! All but `count_down` have the names and arguments that the official conformance scenarios call for.

mod asking;
mod cancellable;
mod long;
mod plain;

use tower_mcp::Tool;

/// Every tool of this server.
pub(crate) fn all() -> Vec<Tool> {
    vec![
        plain::greet(),
        long::slow_compute(),
        long::failing_job(),
        long::protocol_error_job(),
        asking::confirm_delete(),
        asking::multi_input(),
        asking::test_tool_with_task(),
        cancellable::count_down(),
    ]
}
