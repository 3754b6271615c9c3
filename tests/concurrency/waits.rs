//! Nobody waits longer than necessary: a wait is woken by an end, an expiry and a shorter TTL, whenever they come
//! (A11, A33).

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Barrier, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::together::{Scene, is_terminal, on};

/// Well below the five seconds after which a wait looks again by itself, so that a lost wake-up is seen.
const SOON: Duration = Duration::from_secs(3);
/// Longer than any wait here should take.
const TIMEOUT_MS: u64 = 10_000;

fn waiting(id: &str) -> Value {
    on(id, &json!({"timeoutMs": TIMEOUT_MS}))
}

fn seed() -> u64 {
    let seed = std::env::var("CRASH_SEED").ok().map(|seed| seed.parse().unwrap());
    let seed = seed.unwrap_or_else(|| fastrand::u64(..1_000_000));
    eprintln!("CRASH_SEED={seed}");
    seed
}

#[test]
fn in_five_hundred_rounds_no_wait_that_races_with_the_end_misses_it() {
    const WAITERS: usize = 12;
    const ROUNDS: usize = 500;
    let scene = Scene::new();
    let seed = seed();
    let next = Barrier::new(WAITERS + 1);
    let id = Mutex::new(String::new());
    // How long an end takes until it is durable, in microseconds: what the waits aim at.
    let aim = AtomicU64::new(1000);
    let waits = scene.together(WAITERS + 1, |client, link| {
        let mut rng = fastrand::Rng::with_seed(seed.wrapping_mul(31).wrapping_add(client as u64));
        let mut waits = Vec::new();
        for round in 0..ROUNDS {
            if client == 0 {
                let created = link.ask("store/create", &json!({"toolName": "tool"})).result();
                created["task"]["taskId"].as_str().unwrap().clone_into(&mut id.lock().unwrap());
            }
            next.wait();
            let id = id.lock().unwrap().clone();
            let began = Instant::now();
            if client == 0 {
                link.ask("store/complete", &on(&id, &json!({"result": {"round": round}}))).result();
                let took = u64::try_from(began.elapsed().as_micros()).unwrap();
                aim.store((aim.load(Ordering::Relaxed) * 3 + took) / 4, Ordering::Relaxed);
            } else {
                // Before, while and after the end becomes visible.
                let jitter = Duration::from_micros(aim.load(Ordering::Relaxed)).mul_f64(rng.f64() * 1.2);
                std::thread::sleep(jitter);
                let answer = link.call("store/wait", &waiting(&id).to_string());
                waits.push((answer.map(|answer| answer.result()), began.elapsed()));
            }
            next.wait();
        }
        waits
    });
    // Judged only now: a client that stops in the middle would leave the others waiting for it.
    for (round, (answer, took)) in waits.iter().flat_map(|waits| waits.iter().enumerate()) {
        let answer = answer.as_ref().expect("an answer");
        let shown = (&answer["task"]["status"], &answer["timedOut"], &answer["result"]);
        assert_eq!(shown, (&json!("completed"), &json!(false), &json!({"round": round})));
        assert!(*took < SOON, "round {round}: woken only after {took:?}");
    }
    assert_eq!(waits.iter().flatten().count(), WAITERS * ROUNDS);
    eprintln!("the slowest wait took {:?}", waits.iter().flatten().map(|(_, took)| took).max());
}

#[test]
fn every_wait_on_a_task_is_woken_by_its_expiry() {
    let scene = Scene::new();
    let ttl = Duration::from_millis(700);
    let id = scene.task(&json!({"ttlMs": 700}));
    let born = Instant::now();
    let gone = scene.together(20, |_, link| {
        let answer = link.ask("store/wait", &waiting(&id));
        (answer.error().kind, born.elapsed())
    });
    for (kind, after) in gone {
        assert_eq!(kind, "task_not_found");
        // Its life began a little before its creator knew.
        assert!(after + Duration::from_millis(300) > ttl && after < ttl + SOON, "{after:?}");
    }
}

/// Starts waits, does something that wakes them, and gives what each answered and how long after that.
fn woken_by(scene: &Scene, id: &str, wake: impl Fn() + Sync) -> Vec<(crate::harness::Answer, Duration)> {
    let begun = Mutex::new(None);
    let mut woken = scene.together(9, |client, link| {
        if client == 0 {
            // What the others send first is answered after their waits have been taken in by the same order of
            // arrival or not; both must do. This gives most of them the time.
            link.ask("store/wait", &on(id, &json!({"timeoutMs": 150}))).result();
            *begun.lock().unwrap() = Some(Instant::now());
            wake();
            return None;
        }
        let answer = link.ask("store/wait", &waiting(id));
        Some((answer, Instant::now()))
    });
    let begun = begun.lock().unwrap().unwrap();
    woken.drain(..).flatten().map(|(answer, at)| (answer, at.saturating_duration_since(begun))).collect()
}

#[test]
fn every_wait_is_woken_when_the_ttl_is_cut() {
    let scene = Scene::new();
    for (ttl_ms, after_birth) in [(0, Duration::ZERO), (600, Duration::from_millis(600))] {
        let id = scene.task(&json!({"ttlMs": 600_000}));
        let woken = woken_by(&scene, &id, || {
            scene.link().ask("store/setTtl", &on(&id, &json!({"ttlMs": ttl_ms}))).result();
        });
        assert_eq!(woken.len(), 8);
        for (answer, late) in woken {
            assert_eq!(answer.error().kind, "task_not_found", "{answer}");
            assert!(late < after_birth + SOON, "cut to {ttl_ms} ms, woken after {late:?}");
        }
    }
}

#[test]
fn a_wait_on_a_task_that_is_given_more_time_outlives_the_old_end() {
    let scene = Scene::new();
    let id = scene.task(&json!({"ttlMs": 900}));
    let woken = woken_by(&scene, &id, || {
        scene.link().ask("store/setTtl", &on(&id, &json!({"ttlMs": 600_000}))).result();
        // Until the old end has passed; only the clock can tell.
        std::thread::sleep(Duration::from_secs(1));
        scene.link().ask("store/complete", &on(&id, &json!({"result": {}}))).result();
    });
    for (answer, late) in woken {
        assert_eq!(answer.result()["task"]["status"], "completed", "{answer}");
        assert!(late < Duration::from_secs(1) + SOON, "{late:?}");
    }
}

#[test]
fn waits_for_a_revision_follow_a_task_through_all_its_changes() {
    let scene = Scene::new();
    let id = scene.task(&json!({}));
    let changes = 60;
    let seen = scene.together(11, |client, link| {
        if client == 0 {
            for n in 0..changes {
                link.ask("store/setMeta", &on(&id, &json!({"meta": {"n": n}}))).result();
            }
            link.ask("store/complete", &on(&id, &json!({"result": {}}))).result();
            return Vec::new();
        }
        let mut revisions = vec![1];
        loop {
            let since = *revisions.last().unwrap();
            let params = on(&id, &json!({"timeoutMs": TIMEOUT_MS, "sinceRevision": since}));
            let began = Instant::now();
            let answer = link.ask("store/wait", &params).result();
            assert_eq!(answer["timedOut"], false, "{answer}");
            assert!(began.elapsed() < SOON, "woken after {:?}: {answer}", began.elapsed());
            let revision = answer["revision"].as_u64().unwrap();
            assert!(revision > since, "{answer}");
            if revision > 1 && revision <= changes + 1 {
                assert_eq!(answer["task"]["_meta"]["n"], revision - 2, "revision and content fit: {answer}");
            }
            revisions.push(revision);
            if is_terminal(&answer["task"]["status"]) {
                return revisions;
            }
        }
    });
    for revisions in seen.into_iter().filter(|revisions| !revisions.is_empty()) {
        assert_eq!(*revisions.last().unwrap(), changes + 2, "the end is the last thing that is seen");
    }
}
