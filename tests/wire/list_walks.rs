//! Walks over the pages of `store/list`.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::harness::{Broker, Client, id_of};

/// Creates tasks as fast as possible, in batches, so that many have the same time.
async fn create_many(client: &Client, count: usize) -> BTreeSet<String> {
    let mut ids = BTreeSet::new();
    while ids.len() < count {
        let size = (count - ids.len()).min(100);
        let create =
            json!({"jsonrpc": "2.0", "id": 1, "method": "store/create", "params": {"toolName": "tool"}});
        let elements = client.post(Value::Array(vec![create; size]).to_string()).await.elements();
        ids.extend(elements.iter().map(|element| id_of(&element["result"])));
    }
    ids
}

/// One page, and the cursor of the next.
async fn page(client: &Client, params: &Value) -> (Vec<Value>, Option<Value>) {
    let page = client.call("store/list", params.clone()).await.result();
    (page["tasks"].as_array().unwrap().clone(), page.get("nextCursor").cloned())
}

/// All rows of a walk; every page but the last is full.
async fn walk(client: &Client, mut params: Value, size: usize) -> Vec<Value> {
    let mut rows = Vec::new();
    loop {
        let (tasks, next) = page(client, &params).await;
        rows.extend(tasks.iter().cloned());
        let Some(cursor) = next else {
            assert!(tasks.len() <= size, "{} rows on a page of {size}", tasks.len());
            return rows;
        };
        assert!(cursor.is_string(), "{cursor}");
        assert_eq!(tasks.len(), size, "a page with more behind it is full");
        params["cursor"] = cursor;
    }
}

fn unique(rows: &[Value]) -> BTreeSet<String> {
    let ids: BTreeSet<_> = rows.iter().map(id_of).collect();
    assert_eq!(ids.len(), rows.len(), "a task was shown twice");
    ids
}

async fn every_walk_shows_each_task_once_whatever_the_page_size(broker: &Broker) {
    let alice = broker.user("alice");
    let ids = create_many(&alice, 130).await;
    for size in [1, 7, 50, 129, 130, 131] {
        for role in ["creator", "owner"] {
            let rows = walk(&alice, json!({"limit": size, "role": role}), size).await;
            assert_eq!(unique(&rows), ids, "pages of {size} by {role}");
        }
    }
    assert_eq!(unique(&walk(&alice, json!({}), 100).await), ids, "pages of the default size");
}

async fn the_newest_come_first_and_equal_times_are_ordered_by_id(broker: &Broker) {
    let alice = broker.user("alice");
    create_many(&alice, 130).await;
    let rows = walk(&alice, json!({"limit": 7}), 7).await;
    let keys: Vec<_> =
        rows.iter().map(|row| (row["task"]["createdAt"].as_str().unwrap().to_owned(), id_of(row))).collect();
    assert!(keys.is_sorted_by(|newer, older| newer > older), "{keys:?}");
}

async fn a_full_last_page_has_no_cursor(broker: &Broker) {
    let alice = broker.user("alice");
    create_many(&alice, 10).await;
    let (first, cursor) = page(&alice, &json!({"limit": 5})).await;
    let (second, end) = page(&alice, &json!({"limit": 5, "cursor": cursor.unwrap()})).await;
    assert_eq!((first.len(), second.len(), end), (5, 5, None));
    assert_eq!(page(&alice, &json!({"limit": 10})).await.1, None);
}

async fn tasks_that_change_while_a_client_pages_are_shown_once(broker: &Broker) {
    let alice = broker.user("alice");
    let ids = create_many(&alice, 60).await;
    let mut stayed_working = ids.clone();
    let complete = async |id: &str| {
        alice.call("store/complete", json!({"taskId": id, "result": {}})).await.result();
    };
    let (mut all, mut working) = (Vec::new(), Vec::new());
    let mut walks = [json!({"limit": 10}), json!({"limit": 10, "status": ["working"]})];
    let mut open = [true, true];

    while open.iter().any(|open| *open) {
        for (at, rows) in [&mut all, &mut working].into_iter().enumerate() {
            if !open[at] {
                continue;
            }
            let (tasks, next) = page(&alice, &walks[at]).await;
            rows.extend(tasks);
            match next {
                Some(cursor) => walks[at]["cursor"] = cursor,
                None => open[at] = false,
            }
        }
        let seen: BTreeSet<_> =
            all.iter().map(id_of).filter(|id| stayed_working.contains(id)).take(5).collect();
        let shown = unique(&all);
        let unseen: BTreeSet<_> = stayed_working.difference(&shown).take(5).cloned().collect();
        for id in seen.union(&unseen) {
            complete(id).await;
            stayed_working.remove(id);
        }
        create_many(&alice, 5).await;
        // Meta and input rounds move a task in time, and must not move it in the list.
        if let Some(id) = stayed_working.first() {
            alice.call("store/setMeta", json!({"taskId": id, "meta": {"n": all.len()}})).await.result();
        }
    }

    let shown = unique(&all);
    assert!(shown.is_superset(&ids), "missed: {:?}", ids.difference(&shown));
    let shown = unique(&working);
    let missed: Vec<_> = stayed_working.difference(&shown).collect();
    assert!(missed.is_empty(), "stayed working, and were missed: {missed:?}");
}

async fn a_task_that_goes_while_a_client_pages_takes_no_other_along(broker: &Broker) {
    let alice = broker.user("alice");
    let ids = create_many(&alice, 30).await;
    let mut params = json!({"limit": 10});
    let (first, cursor) = page(&alice, &params).await;
    params["cursor"] = cursor.unwrap();
    // The row that the cursor stands on, its neighbours before it, and one that is yet to come.
    let mut gone: BTreeSet<_> = first.iter().rev().take(3).map(id_of).collect();
    let shown = unique(&first);
    gone.insert(ids.difference(&shown).next().unwrap().clone());
    for id in &gone {
        alice.call("store/discard", json!({"taskId": id})).await.result();
    }

    let mut rows = first;
    rows.extend(walk(&alice, params, 10).await);

    let shown = unique(&rows);
    let missed: Vec<_> = ids.difference(&shown).filter(|id| !gone.contains(*id)).collect();
    assert!(missed.is_empty(), "{missed:?}");
}

async fn expired_tasks_are_on_no_page(broker: &Broker) {
    let alice = broker.user("alice");
    let mut ids = create_many(&alice, 12).await;
    let expired: Vec<_> = ids.iter().step_by(2).cloned().collect();
    for id in &expired {
        alice.call("store/setTtl", json!({"taskId": id, "ttlMs": 0})).await.result();
        ids.remove(id);
    }
    assert_eq!(unique(&walk(&alice, json!({"limit": 2}), 2).await), ids);
}

async fn a_limit_above_a_thousand_is_cut(broker: &Broker) {
    let alice = broker.user("alice");
    let ids = create_many(&alice, 1001).await;
    for limit in ["1001", "5000", "18446744073709551615"] {
        let first = alice.call_text("store/list", &format!(r#"{{"limit":{limit}}}"#)).await.result();
        assert_eq!(first["tasks"].as_array().unwrap().len(), 1000, "{limit}");
        let (rest, end) = page(&alice, &json!({"limit": 1000, "cursor": first["nextCursor"]})).await;
        assert_eq!((rest.len(), end), (1, None), "{limit}");
    }
    assert_eq!(unique(&walk(&alice, json!({"limit": 1000}), 1000).await), ids);
}

on_memory!(a_limit_above_a_thousand_is_cut);

on_both_stores!(
    every_walk_shows_each_task_once_whatever_the_page_size,
    the_newest_come_first_and_equal_times_are_ordered_by_id,
    a_full_last_page_has_no_cursor,
    tasks_that_change_while_a_client_pages_are_shown_once,
    a_task_that_goes_while_a_client_pages_takes_no_other_along,
    expired_tasks_are_on_no_page,
);
