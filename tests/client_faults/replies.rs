//! Replies that are lost, cut or late, and requests that never arrive: every method of the trait, many times.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::json;
use tower_mcp::async_task::MemoryTaskStore;

use crate::driver::{Counts, Driver, Method};
use crate::faults::Kind;
use crate::scene::{self, Account};
use crate::seed;

/// Instances that work at the same time, each with an account of its own.
const DRIVERS: u64 = 10;
/// The least calls of each method by each driver. Seven of eight meet faults, so that every method meets many.
const ROUNDS: usize = 2;
/// How often each method must have met a fault.
const AT_LEAST: usize = 10;

/// Whoever says how a store has to answer must agree with the store that tower-mcp brings along.
#[tokio::test]
async fn the_model_agrees_with_the_store_in_memory() {
    let seed = seed();
    let store = Arc::new(MemoryTaskStore::new());
    let mut driver = Driver::new(store.clone(), store, seed);
    // In memory a task that has expired can still be discarded, once; the model takes it for gone.
    driver.shaky = true;
    for _ in 0..60 {
        driver.round().await;
    }
    let answered = driver.tasks.iter().filter(|task| !task.answers.is_empty()).count();
    let ended = driver.tasks.iter().filter(|task| !task.is_live() && !task.gone).count();
    assert!(answered > 20 && ended > 50, "{answered} tasks were answered, {ended} have ended");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_method_returns_what_it_must_whatever_happens_to_its_replies() {
    let seed = seed();
    let broker = scene::broker();
    let mut drivers = Vec::new();
    for number in 0..DRIVERS {
        let account = Account::new(&broker, "replies");
        let (here, other) = (account.instance(&broker).await, account.instance(&broker).await);
        let mut driver = Driver::new(here.store, other.store, seed.wrapping_mul(1_000_003) + number);
        driver.proxy = Some(here.proxy);
        driver.look = Some(account.client(&broker));
        drivers.push(tokio::spawn(async move {
            // The line of the other instance stays open for as long as the driver works.
            let _line = other.proxy;
            for _ in 0..ROUNDS {
                driver.round().await;
            }
            driver
        }));
    }
    let mut counts = Counts::new();
    for driver in drivers {
        let driver = scene::finished(driver).await;
        for (key, count) in &driver.counts {
            *counts.entry(*key).or_default() += count;
        }
        nothing_is_lost_or_doubled(&driver).await;
    }
    every_method_met_faults(&counts);
    broker.assert_no_error_logged();
}

/// The broker has exactly the tasks of the driver, in their last state.
pub(crate) async fn nothing_is_lost_or_doubled(driver: &Driver) {
    let look = driver.look.as_ref().expect("a look at the broker");
    let mut kept = BTreeMap::new();
    let mut cursor = None;
    loop {
        let mut params = json!({"limit": 1000});
        if let Some(cursor) = cursor {
            params["cursor"] = cursor;
        }
        let page = look.call("store/list", params).await.result();
        for row in page["tasks"].as_array().unwrap() {
            let task = &row["task"];
            kept.insert(task["taskId"].as_str().unwrap().to_owned(), task["status"].clone());
        }
        let Some(next) = page.get("nextCursor") else { break };
        cursor = Some(next.clone());
    }
    assert_eq!(kept, driver.kept());
}

fn every_method_met_faults(counts: &Counts) {
    let count = |method, kind| counts.get(&(method, kind)).copied().unwrap_or_default();
    eprintln!("{:?}", Kind::ALL);
    for method in Method::ALL {
        let row = Kind::ALL.map(|kind| count(method, kind));
        eprintln!("{row:?} {method:?}");
    }
    for method in Method::ALL {
        let met: usize = Kind::ALL.iter().map(|kind| count(method, *kind)).sum();
        assert!(met >= AT_LEAST, "{method:?} met {met} faults");
        // Before the commit, and after it.
        let after = count(method, Kind::Lost) + count(method, Kind::Cut) + count(method, Kind::Replaced);
        assert!(count(method, Kind::Dropped) > 0 && after > 0, "{method:?} met {after} after the commit");
    }
}
