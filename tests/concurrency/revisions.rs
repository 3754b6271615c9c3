//! `expectedRevision` is a compare-and-swap: nobody's change is lost, and nobody's is made twice.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::harness::link::Link;
use crate::together::{Scene, on};

/// Adds 1 to the counter in `meta`; gives the revision that this has made.
fn increment(link: &mut Link, id: &str) -> u64 {
    loop {
        let now = link.ask("store/get", &on(id, &json!({}))).result();
        let (n, revision) = (now["task"]["_meta"]["n"].as_u64().unwrap(), now["revision"].as_u64().unwrap());
        let set = on(id, &json!({"meta": {"n": n + 1}, "expectedRevision": revision}));
        let answer = link.ask("store/setMeta", &set);
        if !answer.is_error() {
            let outcome = answer.result();
            assert_eq!(outcome["revision"], revision + 1, "{outcome}");
            return revision + 1;
        }
        let error = answer.error();
        assert_eq!(error.kind, "revision_conflict", "{answer}");
        assert!(error.data["revision"].as_u64().unwrap() > revision, "{answer}");
    }
}

#[test]
fn a_counter_in_meta_counts_every_increment_of_twenty_clients() {
    let mut scene = Scene::new();
    let id = scene.task(&json!({"meta": {"n": 0}}));
    let made = scene.together(20, |_, link| (0..25).map(|_| increment(link, &id)).collect::<Vec<_>>());
    let made: Vec<_> = made.into_iter().flatten().collect();
    assert_eq!(made.iter().collect::<BTreeSet<_>>().len(), 500, "two commands made the same revision");
    let check = |snapshot: &Value| {
        assert_eq!(snapshot["task"]["_meta"], json!({"n": 500}));
        assert_eq!(snapshot["revision"], 501);
    };
    check(&scene.get(&id));
    scene.kill_and_restart();
    check(&scene.get(&id));
}

#[test]
fn of_many_commands_that_expect_the_same_revision_one_is_carried_out() {
    let scene = Scene::new();
    let id = scene.task(&json!({}));
    for revision in 1..=10 {
        let answers = scene.together(30, |client, link| {
            let (method, more) = match client % 3 {
                0 => ("store/setMeta", json!({"meta": {"by": [revision, client]}})),
                1 => ("store/setTtl", json!({"ttlMs": 1_000_000 + revision * 100 + client})),
                _ => (
                    "store/setStatus",
                    json!({"status": "working", "message": format!("{revision}.{client}")}),
                ),
            };
            let mut params = on(&id, &more);
            params["expectedRevision"] = json!(revision);
            link.ask(method, &params)
        });
        let carried_out = answers.iter().filter(|answer| !answer.is_error()).count();
        assert_eq!(carried_out, 1);
        for answer in answers.iter().filter(|answer| answer.is_error()) {
            let error = answer.error();
            assert_eq!(
                (error.kind.as_str(), &error.data["revision"]),
                ("revision_conflict", &json!(revision + 1))
            );
        }
        assert_eq!(scene.get(&id)["revision"], revision + 1);
    }
}

#[test]
fn without_an_expected_revision_every_change_makes_a_revision_of_its_own() {
    let scene = Scene::new();
    let id = scene.task(&json!({}));
    let made = scene.together(25, |client, link| {
        let set = |n| {
            let params = on(&id, &json!({"meta": {"by": [client, n]}}));
            (
                link.ask("store/setMeta", &params).result()["revision"].as_u64().unwrap(),
                json!({"by": [client, n]}),
            )
        };
        (0..8).map(set).collect::<Vec<_>>()
    });
    let mut made: Vec<_> = made.into_iter().flatten().collect();
    made.sort_by_key(|(revision, _)| *revision);
    assert_eq!(made.iter().map(|(revision, _)| *revision).collect::<Vec<_>>(), (2..=201).collect::<Vec<_>>());
    assert_eq!(
        scene.get(&id)["task"]["_meta"],
        made.last().unwrap().1,
        "the newest revision is what is shown"
    );
}
