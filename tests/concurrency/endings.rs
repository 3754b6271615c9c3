//! Whoever ends a task first has ended it, and everybody sees the same end.

use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};

use crate::harness::link::Link;
use crate::together::{Scene, is_terminal, on};

const CONNECTIONS: usize = 20;
const EACH: usize = 5;

/// One of the three ways to end, each with something of its own to tell the winner by.
fn ending(id: &str, n: usize) -> (&'static str, Value) {
    match n % 3 {
        0 => ("store/complete", on(id, &json!({"result": {"winner": n}}))),
        1 => ("store/fail", on(id, &json!({"error": {"code": n, "message": format!("winner {n}")}}))),
        _ => ("store/cancel", on(id, &json!({"reason": format!("winner {n}")}))),
    }
}

/// What the task must look like if the `n`th ending has won.
fn end_of(n: usize) -> (&'static str, String, Value, Value) {
    match n % 3 {
        0 => ("completed", "Task completed".to_owned(), json!({"winner": n}), Value::Null),
        1 => {
            let message = format!("winner {n}");
            let error = json!({"code": n, "message": message});
            ("failed", format!("Task failed: {message}"), Value::Null, error)
        }
        _ => ("cancelled", format!("Cancelled: winner {n}"), Value::Null, Value::Null),
    }
}

/// What every way of reading shows: status and message, and result and error where they are part of it.
fn readings(link: &mut Link, id: &str) -> Vec<(&'static str, Value, Value)> {
    let get = link.ask("store/get", &on(id, &json!({}))).result();
    let wait = link.ask("store/wait", &on(id, &json!({"timeoutMs": 0}))).result();
    let flat = link.ask("tasks/get", &on(id, &json!({}))).result();
    let list = link.ask("store/list", &json!({"limit": 1000})).result();
    let row = list["tasks"].as_array().unwrap().iter().find(|row| row["task"]["taskId"] == id).unwrap();
    let statuses = link.ask("store/statuses", &json!({"taskIds": [id]})).result();
    vec![
        ("store/get", get["task"]["status"].clone(), get["revision"].clone()),
        ("store/wait", wait["task"]["status"].clone(), wait["revision"].clone()),
        ("tasks/get", flat["status"].clone(), Value::Null),
        ("store/list", row["task"]["status"].clone(), row["revision"].clone()),
        (
            "store/statuses",
            statuses["statuses"][id]["status"].clone(),
            statuses["statuses"][id]["revision"].clone(),
        ),
    ]
}

fn agree(scene: &Scene, id: &str, winner: usize) {
    let (status, message, result, error) = end_of(winner);
    for (by, seen, revision) in readings(&mut scene.link(), id) {
        assert_eq!(seen, status, "{by}");
        assert!(revision.is_null() || revision == 2, "{by} shows revision {revision}");
    }
    let snapshot = scene.get(id);
    assert_eq!(snapshot["task"]["statusMessage"], message);
    assert_eq!((&snapshot["result"], &snapshot["error"]), (&result, &error), "{snapshot}");
    let flat = scene.link().ask("tasks/get", &on(id, &json!({}))).result();
    assert_eq!((&flat["result"], &flat["error"]), (&result, &error), "{flat}");
    assert_eq!(snapshot["cancelRequested"], true, "some of the 100 were cancels: {snapshot}");
}

#[test]
fn of_a_hundred_endings_exactly_one_is_applied_and_all_readers_agree() {
    let mut scene = Scene::new();
    let mut ended = Vec::new();
    for round in 0..10 {
        let id = scene.task(&json!({}));
        let outcomes = scene.together(CONNECTIONS, |client, link| {
            let one = |n: usize| {
                // Another kind comes first in every round.
                let n = client * EACH + n + round * 100;
                let (method, params) = ending(&id, n);
                (n, link.ask(method, &params).result())
            };
            (0..EACH).map(one).collect::<Vec<_>>()
        });
        let outcomes: Vec<_> = outcomes.into_iter().flatten().collect();
        assert_eq!(outcomes.len(), 100);
        let winners: Vec<_> =
            outcomes.iter().filter(|(_, outcome)| outcome["applied"] == true).map(|(n, _)| *n).collect();
        assert_eq!(winners.len(), 1, "{winners:?}");
        let (status, ..) = end_of(winners[0]);
        for (n, outcome) in &outcomes {
            assert_eq!(
                (&outcome["status"], &outcome["revision"]),
                (&json!(status), &json!(2)),
                "{n}: {outcome}"
            );
        }
        agree(&scene, &id, winners[0]);
        ended.push((id, winners[0]));
    }
    scene.kill_and_restart();
    for (id, winner) in &ended {
        agree(&scene, id, *winner);
    }
    scene.broker.assert_no_error_logged();
}

#[test]
fn whoever_reads_while_a_task_ends_sees_it_live_or_at_its_one_end() {
    let scene = Scene::new();
    for _ in 0..8 {
        let id = scene.task(&json!({}));
        let over = AtomicBool::new(false);
        let seen = scene.together(12, |client, link| {
            if client < 6 {
                let (method, params) = ending(&id, client);
                let outcome = link.ask(method, &params).result();
                over.store(true, Ordering::SeqCst);
                return vec![(method, outcome["status"].clone())];
            }
            let mut seen = Vec::new();
            loop {
                let last = over.load(Ordering::SeqCst);
                seen.extend(readings(link, &id).into_iter().map(|(by, status, _)| (by, status)));
                if last {
                    return seen;
                }
            }
        });
        let end = scene.get(&id)["task"]["status"].clone();
        assert!(is_terminal(&end));
        for reader in seen {
            let mut ended = false;
            for (by, status) in reader {
                assert!(
                    status == end || (!ended && status == "working"),
                    "{by} shows {status}, the end is {end}"
                );
                ended |= status == end;
            }
        }
    }
}

#[test]
fn a_late_write_is_told_so_and_revives_nothing() {
    let scene = Scene::new();
    for _ in 0..5 {
        let id = scene.task(&json!({}));
        scene.require(&id, &["k1"]);
        let outcomes = scene.together(12, |client, link| {
            let (method, params) = match client % 4 {
                0 => ("store/cancel", on(&id, &json!({}))),
                1 => ("store/setStatus", on(&id, &json!({"status": "working", "message": "late"}))),
                2 => ("store/requireInput", on(&id, &json!({"inputRequests": {"late": {"method": "m"}}}))),
                _ => ("store/complete", on(&id, &json!({"result": {}}))),
            };
            let answers = (0..4).map(|_| link.ask(method, &params).result());
            answers.map(|outcome| outcome["status"].clone()).collect::<Vec<_>>()
        });
        let end = scene.get(&id);
        assert!(is_terminal(&end["task"]["status"]), "{end}");
        assert_eq!(end["inputRequests"], json!({}));
        for statuses in outcomes {
            let ended = statuses.iter().skip_while(|status| !is_terminal(status));
            ended.for_each(|status| assert_eq!(status, &end["task"]["status"], "{statuses:?}"));
        }
    }
    scene.broker.assert_no_error_logged();
}
