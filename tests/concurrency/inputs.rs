//! However many answer at once, one of them completes the round, and every question is answered by one.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::harness::accept;
use crate::together::{Scene, on};

const CLIENTS: usize = 50;

fn strings(value: &Value) -> Vec<String> {
    value.as_array().unwrap().iter().map(|text| text.as_str().unwrap().to_owned()).collect()
}

/// One round of questions, and fifty answers: each client answers the keys that `answered_by` gives it.
fn round(scene: &Scene, id: &str, keys: &[&str], answered_by: impl Fn(usize) -> Vec<String> + Sync) {
    scene.require(id, keys);
    let outcomes = scene.together(CLIENTS, |client, link| {
        let responses: serde_json::Map<_, _> = answered_by(client)
            .into_iter()
            .map(|key| {
                let answer = accept(&format!("{key} by {client}"));
                (key, answer)
            })
            .collect();
        link.ask("store/applyInput", &on(id, &json!({"inputResponses": responses}))).result()
    });

    let mut accepted = BTreeSet::new();
    let mut answers = serde_json::Map::new();
    let mut completing = 0;
    for (client, outcome) in outcomes.iter().enumerate() {
        assert_eq!(outcome["applied"], true, "{outcome}");
        let mine = strings(&outcome["accepted"]);
        let told: BTreeSet<_> = mine.iter().cloned().chain(strings(&outcome["ignored"])).collect();
        assert_eq!(
            told,
            answered_by(client).into_iter().collect(),
            "each key is accepted or ignored: {outcome}"
        );
        completing += usize::from(!mine.is_empty() && outcome["stillOutstanding"] == json!([]));
        for key in mine {
            answers.insert(key.clone(), accept(&format!("{key} by {client}")));
            assert!(accepted.insert(key), "accepted twice: {outcome}");
        }
    }
    assert_eq!(completing, 1, "{outcomes:#?}");
    assert_eq!(accepted, keys.iter().map(|key| (*key).to_owned()).collect());
    let snapshot = scene.get(id);
    assert_eq!((&snapshot["task"]["status"], &snapshot["inputRequests"]), (&json!("working"), &json!({})));
    let resume = scene.link().ask("store/resume", &on(id, &json!({}))).result();
    for (key, answer) in answers {
        assert_eq!(
            resume["inputResponses"][&key], answer,
            "the answer that was accepted is the one that is kept"
        );
    }
}

#[test]
fn exactly_one_of_fifty_answers_to_one_question_completes_each_round() {
    let scene = Scene::new();
    let id = scene.task(&json!({}));
    for n in 0..8 {
        let key = format!("round-{n}");
        round(&scene, &id, &[&key], |_| vec![key.clone()]);
    }
}

#[test]
fn exactly_one_of_fifty_answers_to_five_questions_completes_each_round() {
    let scene = Scene::new();
    let id = scene.task(&json!({}));
    for n in 0..8 {
        let keys: Vec<_> = (0..5).map(|key| format!("round-{n}-{key}")).collect();
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        // Each answers two neighbours, and one that was never asked.
        round(&scene, &id, &keys, |client| {
            let one = keys[client % 5].to_owned();
            vec![one, keys[(client + 1) % 5].to_owned(), "never-asked".to_owned()]
        });
    }
}

#[test]
fn the_same_questions_asked_again_are_completed_once_again() {
    let mut scene = Scene::new();
    let id = scene.task(&json!({}));
    for _ in 0..4 {
        round(&scene, &id, &["k1", "k2"], |client| vec![format!("k{}", client % 2 + 1)]);
        scene.kill_and_restart();
    }
}

#[test]
fn an_owner_who_cancels_among_the_answers_ends_the_round_for_good() {
    let scene = Scene::new();
    for _ in 0..5 {
        let id = scene.task(&json!({}));
        scene.require(&id, &["k1", "k2"]);
        let outcomes = scene.together(21, |client, link| {
            if client == 20 {
                link.ask("tasks/cancel", &on(&id, &json!({}))).result();
                return json!({"accepted": [], "stillOutstanding": []});
            }
            let responses = json!({"inputResponses": {format!("k{}", client % 2 + 1): accept("yes")}});
            link.ask("store/applyInput", &on(&id, &responses)).result()
        });
        let snapshot = scene.get(&id);
        assert_eq!(
            (&snapshot["task"]["status"], &snapshot["inputRequests"]),
            (&json!("cancelled"), &json!({}))
        );
        let resume = scene.link().ask("store/resume", &on(&id, &json!({}))).result();
        let kept: BTreeSet<_> = resume["inputResponses"].as_object().unwrap().keys().cloned().collect();
        let accepted: Vec<_> = outcomes.iter().flat_map(|outcome| strings(&outcome["accepted"])).collect();
        assert_eq!(accepted.len(), kept.len(), "{outcomes:#?}");
        assert_eq!(
            accepted.into_iter().collect::<BTreeSet<_>>(),
            kept,
            "accepted is kept, and nothing else is"
        );
    }
}
