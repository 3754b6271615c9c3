//! The store behind tower-mcp's router: how often it asks the broker, and what it shows.

use std::sync::Arc;

use serde_json::{Value, json};
use task_broker_client::RemoteTaskStore;
use tokio::sync::Notify;
use tower_mcp::async_task::TaskStore as _;
use tower_mcp::context::{NotificationReceiver, ServerNotification, notification_channel};
use tower_mcp::protocol::{JsonRpcRequest, JsonRpcResponse};
use tower_mcp::{CallToolResult, JsonRpcService, McpRouter, TaskSupportMode, ToolBuilder};

use crate::harness::{Auth, Broker};
use crate::relay::Relay;
use crate::scene::{LATE, ask, broker, listening, within};

/// One instance of an MCP server.
struct Instance {
    service: JsonRpcService<McpRouter>,
    router: McpRouter,
    store: RemoteTaskStore,
    relay: Relay,
    notifications: NotificationReceiver,
    /// Lets the tool go on.
    go: Arc<Notify>,
}

impl Instance {
    async fn new(broker: &Broker) -> Self {
        let relay = Relay::to(broker.address()).await;
        let store = RemoteTaskStore::builder(&relay.url()).connect().await.unwrap();
        let go = Arc::new(Notify::new());
        let tool = ToolBuilder::new("work").description("works").task_support(TaskSupportMode::Required);
        let tool = tool.no_params_handler({
            let go = Arc::clone(&go);
            move || {
                let go = Arc::clone(&go);
                async move {
                    go.notified().await;
                    Ok(CallToolResult::text("done"))
                }
            }
        });
        let (sender, notifications) = notification_channel(256);
        let router = McpRouter::new()
            .server_info("test", "1")
            .tool(tool.build())
            .task_store(store.clone().into())
            .with_tasks()
            .with_notification_sender(sender);
        listening(&store).await;
        Self { service: JsonRpcService::new(router.clone()), router, store, relay, notifications, go }
    }

    /// A request as a client of the 2026-07-28 protocol sends it.
    async fn request(&self, method: &str, mut params: Value) -> Value {
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {
                "extensions": {"io.modelcontextprotocol/tasks": {}}, "roots": {},
            },
        });
        let request = JsonRpcRequest::new(1, method).with_params(params);
        let mut service = self.service.clone();
        // As a transport does: each request in a task of its own.
        let answer = tokio::spawn(async move { service.call_single(request).await }).await.unwrap().unwrap();
        match answer {
            JsonRpcResponse::Result(answer) => answer.result,
            other => panic!("{method}: {other:?}"),
        }
    }

    /// What a request costs in calls of the broker.
    async fn cost(&self, method: &str, params: Value) -> (Value, usize) {
        let before = self.relay.calls();
        let answer = self.request(method, params).await;
        (answer, self.relay.calls() - before)
    }

    async fn start(&self) -> String {
        let task = self.request("tools/call", json!({"name": "work", "arguments": {}})).await;
        task["taskId"].as_str().unwrap_or_else(|| panic!("{task}")).to_owned()
    }

    async fn notified(&mut self) -> ServerNotification {
        within(LATE, "a notification comes", self.notifications.recv()).await.unwrap()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_requests_of_a_client_cost_few_calls() {
    let broker = broker(Auth::Off);
    let instance = Instance::new(&broker).await;
    let (created, cost) = instance.cost("tools/call", json!({"name": "work", "arguments": {}})).await;
    assert_eq!(cost, 1, "a creation and the read after it");
    let id = created["taskId"].as_str().unwrap();

    let (task, cost) = instance.cost("tasks/get", json!({"taskId": id})).await;
    assert_eq!((task["status"].as_str(), cost), (Some("working"), 1));
    assert!(instance.store.require_input(id, ask(&["a"]), None).await.unwrap());
    let (task, cost) = instance.cost("tasks/get", json!({"taskId": id})).await;
    assert_eq!((task["status"].as_str(), cost), (Some("input_required"), 1));
    assert!(task["inputRequests"]["a"].is_object());

    let params = json!({"taskId": id, "inputResponses": {"b": {"roots": []}}});
    let (_, cost) = instance.cost("tasks/update", params).await;
    assert_eq!(cost, 3, "who owns it, the answers, and the state for subscribers");

    // Of a task on which no handler runs: one that is stopped reads the state too.
    let (id, _token) = instance.store.create_task("work", json!({}), None, None).await.unwrap();
    let (_, cost) = instance.cost("tasks/cancel", json!({"taskId": id})).await;
    assert_eq!(cost, 2, "who owns it, and the cancel, which tells the state too");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_is_never_shown_in_a_state_that_it_never_had() {
    let broker = broker(Auth::Off);
    let instance = Arc::new(Instance::new(&broker).await);
    let id = instance.start().await;
    let reader = tokio::spawn({
        let (instance, id) = (Arc::clone(&instance), id.clone());
        async move {
            loop {
                // An answer without questions in `input_required` would be an error here.
                let task = instance.request("tasks/get", json!({"taskId": id})).await;
                if task["status"] == "cancelled" {
                    return;
                }
            }
        }
    });
    for round in 0..100 {
        let key = round.to_string();
        assert!(instance.store.require_input(&id, ask(&[&key]), None).await.unwrap());
        let answers = crate::scene::answers(&[&key]);
        instance.store.apply_input_responses(&id, answers).await.unwrap().unwrap();
    }
    instance.store.cancel_task(&id, None).await.unwrap().unwrap();
    within(LATE, "the reader sees the end", reader).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_subscriber_hears_of_what_another_instance_does() {
    let broker = broker(Auth::Off);
    let (there, mut here) = (Instance::new(&broker).await, Instance::new(&broker).await);
    let announcer = here.store.announce_to(here.router.clone());
    let id = there.start().await;
    there.go.notify_one();
    loop {
        let ServerNotification::FinalTaskStatusChanged(told) = here.notified().await else {
            panic!("another notification")
        };
        let told = serde_json::to_value(told).unwrap();
        if told["taskId"] == id.as_str() {
            assert_eq!(told["status"], "completed");
            break;
        }
    }
    drop(announcer);
    let id = there.start().await;
    there.go.notify_one();
    there.store.wait_for_completion(&id).await.unwrap().unwrap();
    listening(&here.store).await;
    assert!(here.notifications.try_recv().is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_at_another_instance_stops_the_handler() {
    let broker = broker(Auth::Off);
    let (here, there) = (Instance::new(&broker).await, Instance::new(&broker).await);
    let id = here.start().await;
    // The handler holds one of the two references for as long as it runs.
    there.request("tasks/cancel", json!({"taskId": id})).await;
    crate::harness::poll_until(LATE, "the handler is dropped", async || {
        (Arc::strong_count(&here.go) == there_is_no_handler(&there)).then_some(())
    })
    .await;
    let task = here.request("tasks/get", json!({"taskId": id})).await;
    assert_eq!(task["status"], "cancelled");
}

/// References to the gate of an instance on which nothing runs.
fn there_is_no_handler(instance: &Instance) -> usize {
    Arc::strong_count(&instance.go)
}
