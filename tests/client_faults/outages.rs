//! A broker that stays away for longer than the store is patient: an error, and never an answer.

use std::time::Duration;

use serde_json::json;
use tower_mcp::CallToolResult;
use tower_mcp::async_task::{Result, TaskPresence, TaskStore, TaskStoreError};
use tower_mcp::error::JsonRpcError;
use tower_mcp::protocol::TaskStatus;

use crate::driver::Method;
use crate::scene::{self, Account};
use crate::values;

/// How long the store of this test goes on trying.
const BUDGET: Duration = Duration::from_millis(200);
/// How long a call may take until it gives up: the budget, and the attempt that is under way then.
const GIVES_UP: Duration = Duration::from_secs(3);

/// Makes one call on a live task. Whether it found the task; a list finds it by its size.
async fn call(store: &dyn TaskStore, method: Method, id: &str) -> Result<bool> {
    let questions = values::requests(&[("key".to_owned(), values::question("key"))].into());
    match method {
        Method::CreateTask => store.create_task("tool", json!({}), None, None).await.map(|_| true),
        Method::TaskOwner => store.task_owner(id).await.map(|found| found.is_some()),
        Method::GetTask => store.get_task(id).await.map(|found| found.is_some()),
        Method::SetTaskMeta => store.set_task_meta(id, json!({"example.com/key": 1})).await,
        Method::DiscardTask => store.discard_task(id).await,
        Method::GetTaskResult => store.get_task_result(id).await.map(|found| found.is_some()),
        Method::WaitForCompletion => store.wait_for_completion(id).await.map(|found| found.is_some()),
        Method::ListTasks => store.list_tasks(None).await.map(|found| !found.is_empty()),
        Method::RequireInput => store.require_input(id, questions, None).await,
        Method::OutstandingInputRequests => {
            store.outstanding_input_requests(id).await.map(|found| found.is_some())
        }
        Method::ApplyInputResponses => {
            store.apply_input_responses(id, values::responses(&[].into())).await.map(|found| found.is_some())
        }
        Method::TaskPresence => store.task_presence(id).await.map(|found| found != TaskPresence::Missing),
        Method::InputResponses => store.input_responses(id).await.map(|found| found.is_some()),
        Method::SetStatus => store.set_status(id, TaskStatus::Working, Some("half")).await,
        Method::ResumeContext => store.resume_context(id).await.map(|found| found.is_some()),
        Method::SetTtl => store.set_ttl(id, 500_000).await,
        Method::CompleteTask => store.complete_task(id, CallToolResult::text("done")).await,
        Method::FailTask => store.fail_task(id, JsonRpcError::internal_error("broken")).await,
        Method::CancelTask => store.cancel_task(id, None).await.map(|found| found.is_some()),
    }
}

/// "Not found" would make the router drop work that is there, `false` would make it forget a result.
#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_stays_away_is_an_error_of_every_method_until_it_is_back() {
    let mut broker = scene::broker();
    let account = Account::new(&broker, "outage");
    let elsewhere = account.instance(&broker).await;
    let here = account.instance_with(&broker, |builder| builder.retry_budget(BUDGET)).await;
    // The store has never seen these tasks, so it has nothing at hand to answer from.
    let mut tasks = Vec::new();
    for method in Method::ALL {
        let (id, _token) = elsewhere.store.create_task("tool", json!({}), None, None).await.unwrap();
        if method == Method::WaitForCompletion {
            assert!(elsewhere.store.complete_task(&id, CallToolResult::text("done")).await.unwrap());
        }
        tasks.push((method, id));
    }
    tokio::task::block_in_place(|| broker.kill9());
    for (method, id) in &tasks {
        let said = tokio::time::timeout(GIVES_UP, call(&*here.store, *method, id)).await;
        let said = said.unwrap_or_else(|_| panic!("{method:?} did not give up within {GIVES_UP:?}"));
        assert!(matches!(said, Err(TaskStoreError::Backend(_))), "{method:?} said {said:?}");
    }
    tokio::task::block_in_place(|| broker.restart());
    here.proxy.lead_to(broker.address());
    for (method, id) in &tasks {
        let said = call(&*here.store, *method, id).await;
        assert!(matches!(said, Ok(true)), "{method:?} said {said:?} when the broker was back");
    }
}
