//! A task that somebody was told is gone never comes back, whatever else is under way.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::harness::Answer;
use crate::together::{Scene, on};

/// Whether the answer says that there is no such task; any other error is a failure.
fn is_gone(answer: &Answer) -> bool {
    if !answer.is_error() {
        return false;
    }
    assert_eq!(answer.error().kind, "task_not_found", "{answer}");
    true
}

/// Lets all clients work on one task until each of them was told that it is gone. A call that begins after anybody
/// was told so must be told so too.
fn until_gone(scene: &Scene, id: &str, call: impl Fn(usize, u64) -> (&'static str, Value) + Sync) {
    let gone = AtomicBool::new(false);
    let calls = AtomicU64::new(0);
    let end = Instant::now() + Duration::from_secs(10);
    scene.together(10, |client, link| {
        loop {
            let before = gone.load(Ordering::SeqCst);
            let (method, params) = call(client, calls.fetch_add(1, Ordering::Relaxed));
            let answer = link.ask(method, &params);
            if is_gone(&answer) {
                gone.store(true, Ordering::SeqCst);
                return;
            }
            assert!(!before, "it was gone, and now it is back: {answer}");
            assert!(Instant::now() < end, "it never went: {answer}");
        }
    });
    let listed = scene.link().ask("store/list", &json!({"limit": 1000})).result();
    let back = listed["tasks"].as_array().unwrap().iter().find(|row| row["task"]["taskId"] == id);
    assert_eq!(back, None, "gone, and in the list");
    let statuses = scene.link().ask("store/statuses", &json!({"taskIds": [id]})).result();
    assert_eq!(statuses["statuses"][id], Value::Null, "gone, and with a status");
}

/// Every command, none of which makes a task live longer.
fn command(id: &str, n: u64) -> (&'static str, Value) {
    match n % 9 {
        0 => ("store/get", on(id, &json!({}))),
        1 => ("store/cancel", on(id, &json!({}))),
        2 => ("store/setMeta", on(id, &json!({"meta": {"n": n}}))),
        3 => ("store/complete", on(id, &json!({"result": {}}))),
        4 => ("store/wait", on(id, &json!({"timeoutMs": 20, "sinceRevision": 1_000_000}))),
        5 => ("tasks/get", on(id, &json!({}))),
        6 => ("store/resume", on(id, &json!({}))),
        7 => ("tasks/cancel", on(id, &json!({}))),
        _ => ("store/requireInput", on(id, &json!({"inputRequests": {"k": {"method": "m", "n": n}}}))),
    }
}

#[test]
fn a_task_that_expires_among_commands_stays_gone() {
    let mut scene = Scene::new();
    let mut ids = Vec::new();
    for round in 0..6 {
        let id = scene.task(&json!({"ttlMs": 100 + round * 20}));
        until_gone(&scene, &id, |_, n| command(&id, n));
        ids.push(id);
    }
    scene.kill_and_restart();
    for id in &ids {
        assert!(is_gone(&scene.link().ask("store/get", &on(id, &json!({})))));
        assert!(is_gone(&scene.link().ask("store/setTtl", &on(id, &json!({"ttlMs": 600_000})))));
    }
    scene.broker.assert_no_error_logged();
}

#[test]
fn a_task_whose_ttl_is_cut_and_stretched_at_once_never_comes_back() {
    let scene = Scene::new();
    for _ in 0..12 {
        let id = scene.task(&json!({}));
        until_gone(&scene, &id, |client, n| match client {
            // One ends it, after some calls of the others.
            0 if n > 60 => ("store/setTtl", on(&id, &json!({"ttlMs": 0}))),
            1..=4 => ("store/setTtl", on(&id, &json!({"ttlMs": 600_000 + n}))),
            _ => command(&id, n),
        });
    }
    scene.broker.assert_no_error_logged();
}

#[test]
fn a_task_that_is_stretched_around_its_end_lives_for_all_or_is_gone_for_all() {
    let scene = Scene::new();
    let mut in_time = 0;
    for round in 0..20 {
        let id = scene.task(&json!({"ttlMs": 60}));
        let born = Instant::now();
        let stretched = scene.together(6, |client, link| {
            // The first call that arrives decides: in time, and all others are; too late, and all others are.
            let at = Duration::from_micros(54_000 + 200 * client as u64 + 500 * (round % 12));
            std::thread::sleep(at.saturating_sub(born.elapsed()));
            let answer = link.ask("store/setTtl", &on(&id, &json!({"ttlMs": 600_000 + client})));
            !is_gone(&answer)
        });
        let lives = !is_gone(&scene.link().ask("store/get", &on(&id, &json!({}))));
        assert!(
            stretched.iter().all(|stretched| *stretched == lives),
            "{stretched:?}, and it lives: {lives}"
        );
        in_time += u32::from(lives);
    }
    eprintln!("{in_time} of 20 were stretched in time");
}

#[test]
fn a_discarded_task_stays_gone_among_commands_and_after_a_kill() {
    let mut scene = Scene::new();
    let mut ids = Vec::new();
    for _ in 0..10 {
        let id = scene.task(&json!({"idempotencyKey": "again"}));
        until_gone(&scene, &id, |client, n| match client {
            0 if n > 40 => ("store/discard", on(&id, &json!({}))),
            1..=4 => ("store/setTtl", on(&id, &json!({"ttlMs": 600_000 + n}))),
            _ => command(&id, n),
        });
        ids.push(id);
    }
    scene.kill_and_restart();
    let statuses = scene.link().ask("store/statuses", &json!({"taskIds": ids})).result();
    assert!(ids.iter().all(|id| statuses["statuses"][id].is_null()), "{statuses}");
}

#[test]
fn a_command_on_an_unknown_or_expired_id_makes_no_phantom() {
    let mut scene = Scene::new();
    let never = "0123456789abcdef0123456789abcdef".to_owned();
    let expired = scene.task(&json!({"ttlMs": 0}));
    for _ in 0..2 {
        for id in [&never, &expired] {
            scene.together(9, |client, link| {
                let (method, params) = command(id, client as u64);
                assert!(is_gone(&link.ask(method, &params)), "{method}");
                assert!(is_gone(&link.ask("store/setTtl", &on(id, &json!({"ttlMs": 600_000})))));
                assert!(is_gone(
                    &link.ask("store/fail", &on(id, &json!({"error": {"code": 1, "message": "m"}})))
                ));
            });
        }
        let listed = scene.link().ask("store/list", &json!({})).result();
        assert_eq!(listed["tasks"], json!([]));
        scene.kill_and_restart();
    }
}
