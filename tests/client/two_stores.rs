//! Two stores, connected on their own, as two instances of one MCP server have them.

use std::time::Duration;

use task_broker_client::RemoteTaskStore;
use tower_mcp::CallToolResult;
use tower_mcp::async_task::{TaskPresence, TaskStore as _};
use tower_mcp::protocol::TaskStatus;

use crate::harness::{Auth, Broker, poll_until};
use crate::scene::{LATE, SOON, answers, ask, broker, connected, listening, task, within};

async fn two() -> (Broker, RemoteTaskStore, RemoteTaskStore) {
    let broker = broker(Auth::Required);
    let (here, there) = (connected(&broker).await, connected(&broker).await);
    listening(&here).await;
    listening(&there).await;
    (broker, here, there)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_created_here_can_be_read_there_at_once() {
    let (_broker, here, there) = two().await;
    for _ in 0..20 {
        let (id, _token) = task(&here).await;
        let task = there.get_task(&id).await.unwrap().unwrap();
        assert_eq!((task.task_id, task.status), (id.clone(), TaskStatus::Working));
        let owner = Some("alice".to_owned());
        assert_eq!(there.task_presence(&id).await.unwrap(), TaskPresence::Present { owner });
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_there_raises_the_token_here_and_no_other() {
    let (_broker, here, there) = two().await;
    let (other, other_token) = task(&here).await;
    for end in [false, true] {
        let (id, token) = task(&here).await;
        if end {
            assert!(here.complete_task(&id, CallToolResult::text("done")).await.unwrap());
        }
        there.cancel_task(&id, Some("enough")).await.unwrap().unwrap();
        within(SOON, "the token is raised", token.cancelled()).await;
    }
    assert!(!other_token.is_cancelled());
    assert_eq!(here.get_task(&other).await.unwrap().unwrap().status, TaskStatus::Working);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_taken_up_there_hangs_on_the_same_cancel() {
    let (_broker, here, there) = two().await;
    let (id, token) = task(&here).await;
    let there_token = there.resume_context(&id).await.unwrap().unwrap().cancellation_token.unwrap();
    let again = there.resume_context(&id).await.unwrap().unwrap().cancellation_token.unwrap();
    let same = here.resume_context(&id).await.unwrap().unwrap().cancellation_token.unwrap();
    here.cancel_task(&id, None).await.unwrap().unwrap();
    assert!(token.is_cancelled() && same.is_cancelled(), "one store has one signal for a task");
    within(SOON, "the token is raised", there_token.cancelled()).await;
    within(SOON, "so is its twin", again.cancelled()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shorter_time_set_there_ends_the_task_here() {
    let (_broker, here, there) = two().await;
    let before = here.held_tasks();
    let (id, token) = task(&here).await;
    assert!(there.set_ttl(&id, 0).await.unwrap());
    within(SOON, "the token is raised", token.cancelled()).await;
    assert!(here.get_task(&id).await.unwrap().is_none());

    let (id, token) = task(&here).await;
    assert!(there.set_ttl(&id, 400).await.unwrap());
    within(LATE, "the token is raised", token.cancelled()).await;
    assert!(here.get_task(&id).await.unwrap().is_none(), "not raised before the time was over");
    poll_until(LATE, "it is not held any more", async || (here.held_tasks() == before).then_some(())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_longer_time_set_there_is_kept_here() {
    let (_broker, here, there) = two().await;
    let (id, token) =
        here.create_task("tool", serde_json::json!({}), Some(1000), Some("alice".to_owned())).await.unwrap();
    let (short, short_token) =
        here.create_task("tool", serde_json::json!({}), Some(1500), Some("alice".to_owned())).await.unwrap();
    assert!(there.set_ttl(&id, 600_000).await.unwrap());
    // The one that ends later shows that the end of the other has been passed over.
    within(LATE, "the short one ends", short_token.cancelled()).await;
    assert!(here.get_task(&short).await.unwrap().is_none());
    assert!(!token.is_cancelled());
    assert_eq!(here.get_task(&id).await.unwrap().unwrap().ttl, Some(600_000));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_here_wakes_for_an_end_there() {
    let (_broker, here, there) = two().await;
    let (id, _token) = task(&here).await;
    let waiter = tokio::spawn({
        let (here, id) = (here.clone(), id.clone());
        async move { here.wait_for_completion(&id).await }
    });
    // The wait may begin before or after the end; it has to see it either way.
    assert!(there.complete_task(&id, CallToolResult::text("done")).await.unwrap());
    let (task, result, error) = within(LATE, "the waiter wakes", waiter).await.unwrap().unwrap().unwrap();
    assert_eq!(task.status, TaskStatus::Completed);
    assert_eq!(result.unwrap().all_text(), "done");
    assert!(error.is_none());

    let (id, _token) = task_of(&here, 600).await;
    assert!(within(LATE, "an expiry wakes too", here.wait_for_completion(&id)).await.unwrap().is_none());
}

async fn task_of(store: &RemoteTaskStore, ttl: u64) -> (String, tower_mcp::async_task::CancellationToken) {
    store.create_task("tool", serde_json::json!({}), Some(ttl), Some("alice".to_owned())).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_answers_from_both_resume_exactly_once() {
    let (_broker, here, there) = two().await;
    for round in 0..30 {
        let (id, _token) = task(&here).await;
        assert!(here.require_input(&id, ask(&["a", "b"]), None).await.unwrap());
        let both = ["a", "b"].map(|key| {
            [&here, &there].map(|store| {
                let (store, id) = (store.clone(), id.clone());
                tokio::spawn(async move { store.apply_input_responses(&id, answers(&[key])).await })
            })
        });
        let (mut resumed, mut accepted) = (0, 0);
        for answer in both.into_iter().flatten() {
            let applied = answer.await.unwrap().unwrap().unwrap();
            accepted += applied.accepted.len();
            resumed += usize::from(!applied.accepted.is_empty() && applied.is_complete());
        }
        assert_eq!((resumed, accepted), (1, 2), "in round {round}");
        assert_eq!(there.get_task(&id).await.unwrap().unwrap().status, TaskStatus::Working);
        let heard = there.input_responses(&id).await.unwrap().unwrap();
        assert_eq!(heard.into_keys().collect::<Vec<_>>(), ["a", "b"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn only_one_of_two_ends_counts() {
    let (_broker, here, there) = two().await;
    for _ in 0..30 {
        let (id, _token) = task(&here).await;
        let error = tower_mcp::error::JsonRpcError::internal_error("no");
        let (completed, failed) =
            tokio::join!(here.complete_task(&id, CallToolResult::text("done")), there.fail_task(&id, error));
        let (completed, failed) = (completed.unwrap(), failed.unwrap());
        assert_ne!(completed, failed);
        let status = here.get_task(&id).await.unwrap().unwrap().status;
        assert_eq!(status, if completed { TaskStatus::Completed } else { TaskStatus::Failed });
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_after_a_write_of_another_store_of_this_process_is_never_older() {
    let (_broker, here, there) = two().await;
    for _ in 0..30 {
        let (id, _token) = task(&here).await;
        let (here, there) = (here.clone(), there.clone());
        tokio::spawn(async move {
            assert!(matches!(here.task_presence(&id).await.unwrap(), TaskPresence::Present { .. }));
            assert!(there.complete_task(&id, CallToolResult::text("done")).await.unwrap());
            let (task, _, _) = here.get_task_result(&id).await.unwrap().unwrap();
            assert_eq!(task.status, TaskStatus::Completed);
        })
        .await
        .unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_store_closes_its_stream_and_lets_its_tasks_go() {
    let (_broker, here, there) = two().await;
    let (id, token) = task(&here).await;
    drop(here);
    there.cancel_task(&id, None).await.unwrap().unwrap();
    listening(&there).await;
    tokio::time::timeout(Duration::from_millis(50), token.cancelled()).await.unwrap_err();
}
