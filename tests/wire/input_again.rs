//! Keys that are used again: `askAgain` makes a fresh question of them, `reject` refuses what would confuse answers.

use serde_json::{Value, json};

use crate::harness::{Answer, Broker, Client, accept, question};

/// Asks under `k` with the question as it is written, and with a policy for spent keys.
async fn ask(client: &Client, id: &str, question: &str, policy: &str) -> Answer {
    let params = format!(r#"{{"taskId":"{id}","inputRequests":{{"k":{question}}},"onSpentKey":"{policy}"}}"#);
    client.call_text("store/requireInput", &params).await
}

async fn answers_of(client: &Client, id: &str) -> Value {
    client.call("store/resume", json!({"taskId": id})).await.result()["inputResponses"].clone()
}

/// Asserts that the call is refused as an invalid transition and leaves the task as it was.
async fn assert_refused(client: &Client, id: &str, question: &str) {
    let before = stable(client, id).await;
    let error = ask(client, id, question, "reject").await.error();
    assert_eq!(error.kind, "invalid_transition", "{question}");
    assert_eq!(stable(client, id).await, before, "{question}");
}

async fn stable(client: &Client, id: &str) -> Value {
    let snapshot = client.get(id).await;
    json!([snapshot["task"], snapshot["inputRequests"], snapshot["revision"], answers_of(client, id).await])
}

async fn a_key_that_is_asked_again_is_a_fresh_question_and_loses_its_answer(broker: &Broker) {
    let alice = broker.user("alice");
    for policy in [json!({}), json!({"onSpentKey": "askAgain"})] {
        let id = alice.asking_task(&["k", "other"]).await;
        alice.reply(&id, &["k", "other"]).await;
        let mut params = json!({"taskId": id, "inputRequests": {"k": question("another text")}});
        params.as_object_mut().unwrap().extend(policy.as_object().unwrap().clone());

        let outcome = alice.call("store/requireInput", params).await.result();

        assert_eq!((&outcome["applied"], &outcome["status"]), (&json!(true), &json!("input_required")));
        assert_eq!(answers_of(&alice, &id).await, json!({"other": accept("other")}), "{policy}");
        assert_eq!(alice.get(&id).await["inputRequests"], json!({"k": question("another text")}));

        let second = json!({"taskId": id, "inputResponses": {"k": accept("second")}});
        let outcome = alice.call("store/applyInput", second).await.result();
        assert_eq!((&outcome["accepted"], &outcome["status"]), (&json!(["k"]), &json!("working")));
        let answers = json!({"k": accept("second"), "other": accept("other")});
        assert_eq!(answers_of(&alice, &id).await, answers);
    }
}

async fn a_superseded_key_that_is_asked_again_can_be_answered(broker: &Broker) {
    let alice = broker.user("alice");
    let id = alice.asking_task(&["first"]).await;
    alice.ask(&id, &["second"]).await;
    alice.ask(&id, &["first"]).await;
    let outcome = alice.reply(&id, &["first", "second"]).await;
    assert_eq!((&outcome["accepted"], &outcome["ignored"]), (&json!(["first"]), &json!(["second"])));
}

async fn reject_refuses_a_spent_key(broker: &Broker) {
    let alice = broker.user("alice");
    let id = alice.new_task().await;
    let asked = r#"{"method":"roots/list"}"#;
    ask(&alice, &id, asked, "reject").await.result();
    alice.reply(&id, &["k"]).await;

    assert_refused(&alice, &id, asked).await;
    assert_refused(&alice, &id, r#"{"method":"sampling/createMessage"}"#).await;

    // A set with one spent key is refused as a whole.
    let before = stable(&alice, &id).await;
    let questions = json!({"fresh": question("fresh"), "k": question("k")});
    let params = json!({"taskId": id, "inputRequests": questions, "onSpentKey": "reject"});
    assert_eq!(alice.call("store/requireInput", params).await.error().kind, "invalid_transition");
    assert_eq!(stable(&alice, &id).await, before);
}

async fn reject_refuses_a_different_question_under_a_live_key(broker: &Broker) {
    let alice = broker.user("alice");
    let id = alice.new_task().await;
    let asked = r#"{"method":"m","params":{"a":1,"b":[1,2],"c":"x","d":null}}"#;
    ask(&alice, &id, asked, "reject").await.result();

    for different in [
        r#"{"method":"n","params":{"a":1,"b":[1,2],"c":"x","d":null}}"#,
        r#"{"method":"m","params":{"a":2,"b":[1,2],"c":"x","d":null}}"#,
        r#"{"method":"m","params":{"a":1,"b":[2,1],"c":"x","d":null}}"#,
        r#"{"method":"m","params":{"a":1,"b":[1,2],"c":"X","d":null}}"#,
        r#"{"method":"m","params":{"a":1,"b":[1,2],"c":"x"}}"#,
        r#"{"method":"m","params":{"a":1,"b":[1,2],"c":"x","d":null,"e":0}}"#,
        r#"{"method":"m","params":{"a":"1","b":[1,2],"c":"x","d":null}}"#,
    ] {
        assert_refused(&alice, &id, different).await;
    }
}

async fn reject_compares_numbers_by_their_text(broker: &Broker) {
    let alice = broker.user("alice");
    for (asked, different) in [
        ("1", "1.0"),
        ("100", "1e2"),
        ("1e2", "1E2"),
        ("0", "-0"),
        ("12345678901234567890", "12345678901234567891"),
    ] {
        let id = alice.new_task().await;
        let question = |number: &str| format!(r#"{{"method":"m","params":{{"n":{number}}}}}"#);
        ask(&alice, &id, &question(asked), "reject").await.result();
        assert_refused(&alice, &id, &question(different)).await;
        ask(&alice, &id, &question(asked), "reject").await.result();
    }
}

async fn reject_lets_the_same_question_be_carried_forward_however_it_is_written(broker: &Broker) {
    let alice = broker.user("alice");
    let id = alice.new_task().await;
    ask(&alice, &id, r#"{"method":"m","params":{"a":1,"b":{"x":"A/é","y":[1, 2]}}}"#, "reject")
        .await
        .result();

    for same in [
        r#"{"method":"m","params":{"a":1,"b":{"x":"A/é","y":[1, 2]}}}"#,
        r#"{"params":{"b":{"y":[1,2],"x":"A/é"},"a":1},"method":"m"}"#,
        "{ \"method\" :\t\"m\",\r\n\"params\": {\"a\": 1, \"b\": {\"x\": \"A/é\", \"y\": [1,2]}} }",
        r#"{"\u006dethod":"m","params":{"a":1,"b":{"x":"\u0041\/\u00e9","y":[1,2]}}}"#,
    ] {
        let outcome = ask(&alice, &id, same, "reject").await.result();
        assert_eq!(
            (&outcome["applied"], &outcome["status"]),
            (&json!(true), &json!("input_required")),
            "{same}"
        );
    }
    let outcome = alice.reply(&id, &["k"]).await;
    assert_eq!((&outcome["accepted"], &outcome["status"]), (&json!(["k"]), &json!("working")));
}

async fn reject_takes_fresh_keys_beside_a_live_one(broker: &Broker) {
    let alice = broker.user("alice");
    let id = alice.asking_task(&["live", "left-out"]).await;
    let questions = json!({"live": question("live"), "fresh": question("fresh")});
    let params = json!({"taskId": id, "inputRequests": questions, "onSpentKey": "reject"});

    alice.call("store/requireInput", params).await.result();

    assert_eq!(alice.get(&id).await["inputRequests"], questions);
    let outcome = alice.reply(&id, &["left-out", "live"]).await;
    assert_eq!((&outcome["accepted"], &outcome["ignored"]), (&json!(["live"]), &json!(["left-out"])));
    assert_eq!(outcome["stillOutstanding"], json!(["fresh"]));
}

async fn only_two_policies_for_spent_keys_exist(broker: &Broker) {
    let alice = broker.user("alice");
    let id = alice.new_task().await;
    for illegal in ["\"ask\"", "\"REJECT\"", "\"\"", "true", "[]"] {
        let params =
            format!(r#"{{"taskId":"{id}","inputRequests":{{"k":{{"method":"m"}}}},"onSpentKey":{illegal}}}"#);
        alice.call_text("store/requireInput", &params).await.error().assert_invalid("onSpentKey");
    }
    assert_eq!(alice.get(&id).await["revision"], 1);
}

on_both_stores!(
    a_key_that_is_asked_again_is_a_fresh_question_and_loses_its_answer,
    a_superseded_key_that_is_asked_again_can_be_answered,
    reject_refuses_a_spent_key,
    reject_refuses_a_different_question_under_a_live_key,
    reject_compares_numbers_by_their_text,
    reject_lets_the_same_question_be_carried_forward_however_it_is_written,
    reject_takes_fresh_keys_beside_a_live_one,
    only_two_policies_for_spent_keys_exist,
);
