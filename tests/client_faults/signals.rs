//! Signals to stop, over a stream that breaks: they arrive late, but they arrive, and nothing else raises a token.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::json;
use tower_mcp::CallToolResult;

use crate::driver::raised;
use crate::harness::Broker;
use crate::scene::{self, Account};

const TASKS: usize = 20;

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_made_elsewhere_while_the_stream_is_down_arrives_when_it_is_back() {
    let broker = scene::broker();
    let account = Account::new(&broker, "signals");
    let (here, elsewhere) = (account.instance(&broker).await, account.instance(&broker).await);
    here.proxy.streams(1).await;
    let mut tokens = BTreeMap::new();
    for _ in 0..TASKS {
        let (id, token) = here.store.create_task("tool", json!({}), None, None).await.unwrap();
        tokens.insert(id, token);
    }
    let (cancelled, spared): (Vec<_>, Vec<_>) = tokens.iter().enumerate().partition(|(at, _)| at % 2 == 0);
    here.proxy.hold_streams();
    for (_, (id, _)) in &cancelled {
        elsewhere.store.cancel_task(id, None).await.unwrap().unwrap();
    }
    here.proxy.let_streams();
    for (_, (id, token)) in cancelled {
        raised(token, id).await;
    }
    for (_, (id, token)) in spared {
        assert!(!token.is_cancelled(), "{id} was not cancelled");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_arrives_however_often_the_stream_is_cut() {
    let broker = scene::broker();
    let account = Account::new(&broker, "cuts");
    let (here, elsewhere) = (account.instance(&broker).await, account.instance(&broker).await);
    for _ in 0..TASKS {
        let (id, token) = here.store.create_task("tool", json!({}), None, None).await.unwrap();
        here.proxy.cut_streams();
        elsewhere.store.cancel_task(&id, None).await.unwrap().unwrap();
        raised(&token, &id).await;
    }
}

/// Work must not stop because the broker is away; and what was cancelled before it went away stays so.
#[tokio::test(flavor = "multi_thread")]
async fn an_outage_raises_no_token_and_hides_no_cancel() {
    let mut broker = scene::broker();
    let account = Account::new(&broker, "outage");
    let (here, elsewhere) = (account.instance(&broker).await, account.instance(&broker).await);
    here.proxy.streams(1).await;
    let (working, untouched) = here.store.create_task("tool", json!({}), None, None).await.unwrap();
    let (doomed, signal) = here.store.create_task("tool", json!({}), None, None).await.unwrap();
    here.proxy.hold_streams();
    elsewhere.store.cancel_task(&doomed, None).await.unwrap().unwrap();
    let result = CallToolResult::text("done in the outage");
    let completing = {
        tokio::task::block_in_place(|| broker.kill9());
        let before = here.proxy.seen_count();
        let (store, working) = (here.store.clone(), working.clone());
        let completing = tokio::spawn(async move { store.complete_task(&working, result).await });
        // The end of the work has been reported, and nobody took it.
        here.proxy.passes("store/complete", before).await;
        completing
    };
    assert!(!untouched.is_cancelled() && !signal.is_cancelled(), "an outage raised a token");
    restart(&mut broker);
    for instance in [&here, &elsewhere] {
        instance.proxy.lead_to(broker.address());
    }
    here.proxy.let_streams();
    assert!(completing.await.unwrap().unwrap(), "the store did not make up for the outage");
    raised(&signal, &doomed).await;
    assert!(!untouched.is_cancelled());
    let (_, result, _) = elsewhere.store.get_task_result(&working).await.unwrap().unwrap();
    assert_eq!(result.unwrap().all_text(), "done in the outage");
}

/// The clock of a task runs on while nobody can ask the broker.
#[tokio::test(flavor = "multi_thread")]
async fn a_task_expires_on_time_while_the_broker_is_away() {
    let mut broker = scene::broker();
    let here = Account::new(&broker, "expiry").instance(&broker).await;
    let (id, token) = here.store.create_task("tool", json!({}), Some(600), None).await.unwrap();
    tokio::task::block_in_place(|| broker.kill9());
    assert!(!token.is_cancelled(), "it has not expired yet");
    raised(&token, &id).await;
}

/// A waiter is told of the end although its line is cut again and again.
#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_survives_restarts_of_the_broker() {
    let mut broker = scene::broker();
    let account = Account::new(&broker, "waiter");
    let (here, elsewhere) = (account.instance(&broker).await, account.instance(&broker).await);
    let (id, _token) = here.store.create_task("tool", json!({}), None, None).await.unwrap();
    let mut before = here.proxy.seen_count();
    let waiter = tokio::spawn({
        let (store, id) = (here.store.clone(), id.clone());
        async move { store.wait_for_completion(&id).await }
    });
    for _ in 0..3 {
        here.proxy.passes("store/wait", before).await;
        before = here.proxy.seen_count();
        tokio::task::block_in_place(|| broker.kill9());
        restart(&mut broker);
        for instance in [&here, &elsewhere] {
            instance.proxy.lead_to(broker.address());
        }
    }
    here.proxy.passes("store/wait", before).await;
    assert!(elsewhere.store.complete_task(&id, CallToolResult::text("at last")).await.unwrap());
    let heard =
        tokio::time::timeout(Duration::from_secs(10), waiter).await.expect("the waiter hears of the end");
    let (_, result, _) = heard.unwrap().unwrap().expect("the task is there");
    assert_eq!(result.unwrap().all_text(), "at last");
}

fn restart(broker: &mut Broker) {
    tokio::task::block_in_place(|| broker.restart());
}
