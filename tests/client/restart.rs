//! A broker that is killed and started again while a store is at work.

use std::time::Duration;

use task_broker_client::RemoteTaskStore;
use tower_mcp::CallToolResult;
use tower_mcp::async_task::{CancellationToken, TaskStore as _};
use tower_mcp::protocol::TaskStatus;

use crate::harness::{Auth, Broker};
use crate::relay::Relay;
use crate::scene::{LATE, answers, ask, broker, connected, listening, service_token, task, within};

async fn behind_a_relay() -> (Broker, Relay, RemoteTaskStore) {
    let broker = broker(Auth::Required);
    let relay = Relay::to(broker.address()).await;
    let store = RemoteTaskStore::builder(&relay.url()).token(service_token()).connect().await.unwrap();
    listening(&store).await;
    (broker, relay, store)
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_made_while_the_broker_is_away_are_carried_out_once_when_it_is_back() {
    let (mut broker, relay, store) = behind_a_relay().await;
    let (completed, _) = task(&store).await;
    let (parked, token) = task(&store).await;
    assert!(store.require_input(&parked, ask(&["a"]), None).await.unwrap());
    broker.kill9();
    let away = [
        tokio::spawn({
            let (store, id) = (store.clone(), completed.clone());
            async move { store.complete_task(&id, CallToolResult::text("done")).await }
        }),
        tokio::spawn({
            let (store, id) = (store.clone(), parked.clone());
            async move {
                let applied = store.apply_input_responses(&id, answers(&["a"])).await?.unwrap();
                Ok(!applied.accepted.is_empty() && applied.is_complete())
            }
        }),
    ];
    broker.restart();
    relay.aim(broker.address());
    for call in away {
        assert!(within(LATE, "the call goes through", call).await.unwrap().unwrap());
    }
    let (task, result, _) = store.get_task_result(&completed).await.unwrap().unwrap();
    assert_eq!((task.status, result.unwrap().all_text().as_str()), (TaskStatus::Completed, "done"));
    assert_eq!(store.get_task(&parked).await.unwrap().unwrap().status, TaskStatus::Working);
    assert!(!token.is_cancelled(), "a broker that is away raises no token");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_made_while_the_store_was_cut_off_raises_the_token_when_it_is_back() {
    let (mut broker, relay, store) = behind_a_relay().await;
    let (id, token) = task(&store).await;
    let (other, other_token) = task(&store).await;
    broker.kill9();
    broker.restart();
    // The relay still points at the old address: only the other store sees the broker.
    let direct = connected(&broker).await;
    direct.cancel_task(&id, None).await.unwrap().unwrap();
    assert!(!token.is_cancelled());
    relay.aim(broker.address());
    within(LATE, "the token is raised", token.cancelled()).await;
    assert!(!other_token.is_cancelled());
    assert!(store.complete_task(&other, CallToolResult::text("done")).await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_goes_on_over_a_restart() {
    let (mut broker, relay, store) = behind_a_relay().await;
    let (id, _token) = task(&store).await;
    let before = relay.calls();
    let waiter = tokio::spawn({
        let (store, id) = (store.clone(), id.clone());
        async move { store.wait_for_completion(&id).await }
    });
    // The waiter's own call is the only one, so it is with the broker when it has passed the relay.
    crate::harness::poll_until(LATE, "the wait is on its way", async || {
        (relay.calls() > before).then_some(())
    })
    .await;
    broker.sigterm();
    assert!(broker.wait_exit(LATE).success());
    broker.restart();
    relay.aim(broker.address());
    assert!(store.complete_task(&id, CallToolResult::text("done")).await.unwrap());
    let (task, _, _) = within(LATE, "the waiter wakes", waiter).await.unwrap().unwrap().unwrap();
    assert_eq!(task.status, TaskStatus::Completed);
}

/// A task that lives so long, in milliseconds.
async fn task_of(store: &RemoteTaskStore, ttl: u64) -> (String, CancellationToken) {
    store.create_task("tool", serde_json::json!({}), Some(ttl), Some("alice".to_owned())).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_time_that_was_prolonged_while_the_store_was_cut_off_counts() {
    let (mut broker, relay, store) = behind_a_relay().await;
    let (id, token) = task_of(&store, 4000).await;
    let (_short, short_token) = task_of(&store, 4500).await;
    broker.kill9();
    broker.restart();
    assert!(connected(&broker).await.set_ttl(&id, 600_000).await.unwrap());
    relay.aim(broker.address());
    within(
        LATE,
        "the one that was not prolonged ends, later than this one would have",
        short_token.cancelled(),
    )
    .await;
    assert!(!token.is_cancelled());
    assert!(store.complete_task(&id, CallToolResult::text("done")).await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_time_that_is_over_ends_the_work_although_the_broker_is_away() {
    let (mut broker, _relay, store) = behind_a_relay().await;
    let (_id, token) = task(&store).await;
    let (_short, short_token) = task_of(&store, 1000).await;
    broker.kill9();
    within(LATE, "the time is over", short_token.cancelled()).await;
    assert!(!token.is_cancelled());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_stays_away_is_an_error_and_never_a_false_answer() {
    let mut broker = broker(Auth::Required);
    let store = RemoteTaskStore::builder(&crate::scene::url(&broker))
        .token(service_token())
        .retry_budget(Duration::from_millis(200))
        .connect()
        .await
        .unwrap();
    let (id, token) = task(&store).await;
    broker.kill9();
    assert!(store.complete_task(&id, CallToolResult::text("done")).await.is_err());
    assert!(store.get_task_result(&id).await.is_err());
    assert!(store.wait_for_completion(&id).await.is_err());
    assert!(store.cancel_task(&id, None).await.is_err());
    assert!(store.list_tasks(None).await.is_err());
    assert!(!token.is_cancelled());
}
