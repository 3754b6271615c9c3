//! The task store of an MCP server that is built with tower-mcp.

use ::tower_mcp::async_task::{
    AppliedInputResponses, CancellationToken, Result, TaskOwner, TaskPresence, TaskResumeContext,
    TaskSnapshot, TaskStore, TaskStoreError,
};
use ::tower_mcp::error::JsonRpcError;
use ::tower_mcp::protocol::{CallToolResult, InputRequests, InputResponses, TaskObject, TaskStatus};
use async_trait::async_trait;

/// A task store whose tasks live in a task-broker.
#[derive(Debug, Clone)]
pub struct RemoteTaskStore {
    url: String,
}

/// What a store is made of.
#[derive(Debug, Clone)]
pub struct RemoteTaskStoreBuilder {
    url: String,
}

/// Why no connection could be made.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct ConnectError(String);

impl RemoteTaskStore {
    /// Begins a store on the broker at `url`.
    #[must_use]
    pub fn builder(url: &str) -> RemoteTaskStoreBuilder {
        RemoteTaskStoreBuilder { url: url.to_owned() }
    }
}

impl RemoteTaskStoreBuilder {
    /// The bearer token to send.
    #[must_use]
    pub fn token(self, _token: impl Into<String>) -> Self {
        self
    }

    /// Connects.
    ///
    /// # Errors
    /// Says what is wrong.
    #[allow(clippy::unused_async, reason = "skeleton")]
    pub async fn connect(self) -> std::result::Result<RemoteTaskStore, ConnectError> {
        if self.url.is_empty() {
            return Err(ConnectError("no url".to_owned()));
        }
        Ok(RemoteTaskStore { url: self.url })
    }
}

impl RemoteTaskStore {
    fn no<T>(&self) -> Result<T> {
        Err(TaskStoreError::Backend(format!("no connection to {} yet", self.url)))
    }
}

#[async_trait]
impl TaskStore for RemoteTaskStore {
    async fn create_task(
        &self,
        _: &str,
        _: serde_json::Value,
        _: Option<u64>,
        _: TaskOwner,
    ) -> Result<(String, CancellationToken)> {
        self.no()
    }
    async fn task_owner(&self, _: &str) -> Result<Option<TaskOwner>> {
        self.no()
    }
    async fn get_task(&self, _: &str) -> Result<Option<TaskObject>> {
        self.no()
    }
    async fn set_task_meta(&self, _: &str, _: serde_json::Value) -> Result<bool> {
        self.no()
    }
    async fn discard_task(&self, _: &str) -> Result<bool> {
        self.no()
    }
    async fn get_task_result(&self, _: &str) -> Result<Option<TaskSnapshot>> {
        self.no()
    }
    async fn wait_for_completion(&self, _: &str) -> Result<Option<TaskSnapshot>> {
        self.no()
    }
    async fn list_tasks(&self, _: Option<TaskStatus>) -> Result<Vec<TaskObject>> {
        self.no()
    }
    async fn require_input(&self, _: &str, _: InputRequests, _: Option<&str>) -> Result<bool> {
        self.no()
    }
    async fn outstanding_input_requests(&self, _: &str) -> Result<Option<InputRequests>> {
        self.no()
    }
    async fn apply_input_responses(
        &self,
        _: &str,
        _: InputResponses,
    ) -> Result<Option<AppliedInputResponses>> {
        self.no()
    }
    async fn task_presence(&self, _: &str) -> Result<TaskPresence> {
        self.no()
    }
    async fn input_responses(&self, _: &str) -> Result<Option<InputResponses>> {
        self.no()
    }
    async fn set_status(&self, _: &str, _: TaskStatus, _: Option<&str>) -> Result<bool> {
        self.no()
    }
    async fn resume_context(&self, _: &str) -> Result<Option<TaskResumeContext>> {
        self.no()
    }
    async fn set_ttl(&self, _: &str, _: u64) -> Result<bool> {
        self.no()
    }
    async fn complete_task(&self, _: &str, _: CallToolResult) -> Result<bool> {
        self.no()
    }
    async fn fail_task(&self, _: &str, _: JsonRpcError) -> Result<bool> {
        self.no()
    }
    async fn cancel_task(&self, _: &str, _: Option<&str>) -> Result<Option<TaskObject>> {
        self.no()
    }
}
