//! However many create under one key at once, there is one task.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::together::{Scene, on};

fn keyed(n: usize) -> Value {
    json!({"toolName": "tool", "arguments": {"n": 1}, "idempotencyKey": format!("once-{n}")})
}

#[test]
fn of_fifty_creates_under_one_key_one_creates_and_all_get_its_task() {
    let mut scene = Scene::new();
    let mut made = BTreeSet::new();
    for n in 0..6 {
        let answers = scene.together(50, |_, link| link.ask("store/create", &keyed(n)).result());
        let ids: BTreeSet<_> =
            answers.iter().map(|answer| answer["task"]["taskId"].as_str().unwrap().to_owned()).collect();
        assert_eq!(ids.len(), 1, "{ids:?}");
        assert_eq!(answers.iter().filter(|answer| answer["created"] == true).count(), 1);
        assert!(answers.iter().all(|answer| answer["revision"] == 1), "{answers:#?}");
        made.extend(ids);
    }
    assert_eq!(made.len(), 6);
    scene.kill_and_restart();
    for n in 0..6 {
        let again = scene.link().ask("store/create", &keyed(n)).result();
        assert_eq!(again["created"], false);
        assert!(made.contains(again["task"]["taskId"].as_str().unwrap()));
    }
    let listed = scene.link().ask("store/list", &json!({"limit": 1000})).result();
    assert_eq!(listed["tasks"].as_array().unwrap().len(), 6);
}

#[test]
fn creates_under_a_key_whose_task_is_being_discarded_make_at_most_one_living_task() {
    let scene = Scene::new();
    for n in 0..8 {
        let first = scene.link().ask("store/create", &keyed(n)).result();
        let first = first["task"]["taskId"].as_str().unwrap().to_owned();
        let ids = scene.together(16, |client, link| {
            if client == 0 {
                link.ask("store/discard", &on(&first, &json!({}))).result();
                return (first.clone(), false);
            }
            let answer = link.ask("store/create", &keyed(n)).result();
            (answer["task"]["taskId"].as_str().unwrap().to_owned(), answer["created"] == true)
        });
        let created: Vec<_> = ids.iter().filter(|(_, created)| *created).collect();
        assert!(created.len() <= 1, "{ids:?}");
        let known: BTreeSet<_> = created.iter().map(|(id, _)| id).chain([&first]).collect();
        assert!(ids.iter().all(|(id, _)| known.contains(id)), "a task that nobody created: {ids:?}");
        let gone = scene.link().ask("store/get", &on(&first, &json!({})));
        assert_eq!(gone.error().kind, "task_not_found", "a discarded task came back: {gone}");
    }
}

#[test]
fn ids_are_never_given_twice() {
    let scene = Scene::new();
    let ids = scene.together(20, |_, link| {
        let create = |_| {
            let created = link.ask("store/create", &json!({"toolName": "tool"})).result();
            created["task"]["taskId"].as_str().unwrap().to_owned()
        };
        (0..10).map(create).collect::<Vec<_>>()
    });
    assert_eq!(ids.into_iter().flatten().collect::<BTreeSet<_>>().len(), 200);
}
