//! A tool that is answered at once.

use serde::Deserialize;
use tower_mcp::schemars::{self, JsonSchema};
use tower_mcp::{CallToolResult, Tool, ToolBuilder};

#[derive(Debug, Deserialize, JsonSchema)]
struct Greet {
    /// Who is greeted.
    name: String,
}

/// `greet`: the simplest tool. It says nothing about tasks, so it never becomes one.
pub(super) fn greet() -> Tool {
    ToolBuilder::new("greet")
        .description("Greets somebody by name")
        .read_only_safe()
        .handler(|Greet { name }: Greet| async move { Ok(CallToolResult::text(format!("Hello, {name}!"))) })
        .build()
}
