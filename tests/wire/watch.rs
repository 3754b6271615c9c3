//! `store/watch`: the stream of what happens to a creator's tasks. Resuming one is in `watch_resume`.

use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::{Broker, Client, EventStream, Message, Outgoing, id_of};

const WATCH: &str = r#"{"jsonrpc":"2.0","id":1,"method":"store/watch","params":{}}"#;

/// An open stream whose first message has been read.
async fn open(client: &Client) -> EventStream {
    let mut stream = client.watch(json!({})).await;
    assert!(stream.synced().await, "without since there is nothing to resume");
    stream
}

async fn command(client: &Client, id: &str, method: &str, more: Value) {
    let mut params = json!({"taskId": id});
    params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    client.call(method, params).await.result();
}

async fn a_watch_needs_an_accept_header_for_streams(broker: &Broker) {
    let alice = broker.user("alice");
    alice.post(WATCH).await.http_error(406);
    for accept in ["application/json", "text/html", "text/event-streams"] {
        alice.send(Outgoing::new(WATCH).header("accept", accept)).await.http_error(406);
    }
}

async fn a_stream_says_that_it_is_one_and_must_not_be_buffered(broker: &Broker) {
    let mut stream = broker.user("alice").watch(json!({})).await;
    let header = |name: &str| stream.headers.get(name).map(|value| value.to_str().unwrap().to_owned());
    assert!(header("content-type").unwrap().starts_with("text/event-stream"), "{:?}", stream.headers);
    assert!(header("cache-control").unwrap().contains("no-"), "{:?}", stream.headers);
    assert_eq!(header("x-accel-buffering").as_deref(), Some("no"));
    assert!(header("content-length").is_none());
    assert!(stream.synced().await);
}

async fn the_first_message_says_where_the_stream_stands(broker: &Broker) {
    let mut stream = broker.user("alice").watch(json!({})).await;
    let first = stream.next().await;
    assert_eq!(first.method, "store/synced");
    assert_eq!(first.params["reset"], true);
    assert_eq!(first.params["position"], Value::String(first.id.clone()), "the id line is the position");
}

async fn every_command_is_an_event_of_its_own_kind_in_order(broker: &Broker) {
    let alice = broker.user("alice");
    let mut stream = open(&alice).await;
    let id = alice.new_task().await;
    let ask = json!({"inputRequests": {"a": {"method": "m"}, "b": {"method": "m"}}});
    let commands = [
        ("requireInput", "store/requireInput", ask),
        ("setStatus", "store/setStatus", json!({"status": "working"})),
        ("setTtl", "store/setTtl", json!({"ttlMs": 600_000})),
        ("setMeta", "store/setMeta", json!({"meta": {"n": 1}})),
        ("applyInput", "store/applyInput", json!({"inputResponses": {"a": {}}})),
        ("applyInput", "tasks/update", json!({"inputResponses": {"b": {}}})),
        ("complete", "store/complete", json!({"result": {}})),
    ];
    for (_, method, more) in &commands {
        command(&alice, &id, method, more.clone()).await;
    }
    let snapshot = alice.get(&id).await;

    let mut kinds = Vec::new();
    let mut last = None;
    for revision in 1..=8 {
        let event = stream.next_about(&id).await;
        assert_eq!(event.params["revision"], revision, "in revision order: {event:?}");
        assert_eq!(event.position(), &Value::String(event.id.clone()), "the id line is the position");
        assert_eq!(event.params["cancelRequested"], false, "{event:?}");
        assert!(event.params["remainingMs"].as_u64().unwrap() <= 600_000, "{event:?}");
        kinds.push(event.kind().to_owned());
        last = Some(event);
    }
    let expected: Vec<_> =
        std::iter::once("create").chain(commands.iter().map(|(kind, _, _)| *kind)).collect();
    assert_eq!(kinds, expected);
    let last = last.unwrap();
    assert_eq!(last.params["status"], "completed");
    assert_eq!(last.params["revision"], snapshot["revision"]);
}

async fn the_other_endings_are_events_too(broker: &Broker) {
    let alice = broker.user("alice");
    let mut stream = open(&alice).await;
    for (kind, status, method, more) in [
        ("fail", "failed", "store/fail", json!({"error": {"code": 1, "message": "m"}})),
        ("cancel", "cancelled", "store/cancel", json!({})),
        ("cancel", "cancelled", "tasks/cancel", json!({})),
    ] {
        let id = alice.new_task().await;
        command(&alice, &id, method, more).await;
        assert_eq!(stream.next_about(&id).await.kind(), "create");
        let event = stream.next_about(&id).await;
        assert_eq!((event.kind(), &event.params["status"]), (kind, &json!(status)), "{method}");
        assert_eq!(event.params["cancelRequested"], kind == "cancel", "{method}");
    }
}

async fn a_cancel_of_a_terminal_task_sends_its_signal(broker: &Broker) {
    let alice = broker.user("alice");
    let id = alice.new_task().await;
    command(&alice, &id, "store/complete", json!({"result": {}})).await;
    let mut stream = open(&alice).await;

    command(&alice, &id, "tasks/cancel", json!({})).await;

    let event = stream.next_about(&id).await;
    assert_eq!((event.kind(), &event.params["status"]), ("cancel", &json!("completed")));
    assert_eq!((&event.params["cancelRequested"], &event.params["revision"]), (&json!(true), &json!(2)));
}

async fn a_discard_is_an_event(broker: &Broker) {
    let alice = broker.user("alice");
    let id = alice.new_task().await;
    let mut stream = open(&alice).await;
    command(&alice, &id, "store/discard", json!({})).await;
    assert_eq!(stream.next_about(&id).await.kind(), "discard");
}

async fn an_expiry_is_an_event(broker: &Broker) {
    let alice = broker.user("alice");
    let mut stream = open(&alice).await;
    let natural = id_of(&alice.create(json!({"ttlMs": 300})).await);
    assert_eq!(stream.next_about(&natural).await.kind(), "create");
    assert_eq!(stream.next_about(&natural).await.kind(), "expired");
    assert_eq!(alice.call("store/get", json!({"taskId": natural})).await.error().kind, "task_not_found");
}

async fn a_ttl_of_zero_is_followed_by_an_expiry(broker: &Broker) {
    let alice = broker.user("alice");
    let mut stream = open(&alice).await;
    let id = alice.expired_task().await;
    let mut kinds = Vec::new();
    while kinds.last().is_none_or(|kind| kind != "expired") {
        kinds.push(stream.next_about(&id).await.kind().to_owned());
    }
    assert_eq!(kinds, ["create", "requireInput", "setTtl", "expired"]);
}

async fn what_changes_nothing_makes_no_event(broker: &Broker) {
    let alice = broker.user("alice");
    let id = alice.new_task().await;
    let mut stream = open(&alice).await;
    command(&alice, &id, "store/setTtl", json!({"ttlMs": 300_000})).await;
    command(&alice, &id, "store/setStatus", json!({"status": "working"})).await;
    alice.reply(&id, &["unknown"]).await;
    alice.get(&id).await;
    let refused = alice.call("store/setStatus", json!({"taskId": id, "status": "input_required"})).await;
    assert!(refused.is_error());
    command(&alice, &id, "store/complete", json!({"result": {}})).await;
    let late = alice.call("store/complete", json!({"taskId": id, "result": {}})).await.result();
    assert_eq!(late["applied"], false);
    command(&alice, &id, "store/setMeta", json!({"meta": {}})).await;

    let kinds = [stream.next_about(&id).await, stream.next_about(&id).await];
    assert_eq!(kinds.each_ref().map(Message::kind), ["complete", "setMeta"]);
}

async fn a_stream_shows_the_tasks_of_its_own_creator_only(broker: &Broker) {
    let (service, alice, bob) = (broker.service("service"), broker.user("alice"), broker.user("bob"));
    let (mut services, mut alices, mut bobs) = (open(&service).await, open(&alice).await, open(&bob).await);

    let for_alice = id_of(&service.create(json!({"owner": alice.subject()})).await);
    broker.anonymous().new_task().await;
    let (by_alice, by_bob) = (alice.new_task().await, bob.new_task().await);

    for (stream, own) in [(&mut services, &for_alice), (&mut alices, &by_alice), (&mut bobs, &by_bob)] {
        let event = stream.next().await;
        assert_eq!(event.params["taskId"], *own, "{event:?}");
    }
    // What comes next on each stream is its own again: nothing foreign is on the way.
    for (stream, client) in [(&mut services, &service), (&mut alices, &alice), (&mut bobs, &bob)] {
        let id = client.new_task().await;
        assert_eq!(stream.next().await.params["taskId"], id);
    }
}

async fn the_anonymous_stream_shows_tasks_without_a_creator(broker: &Broker) {
    let anonymous = broker.anonymous();
    let mut stream = open(&anonymous).await;
    let alices = broker.user("alice").new_task().await;
    let id = anonymous.new_task().await;
    loop {
        let event = stream.next().await;
        assert_ne!(event.params["taskId"], alices, "{event:?}");
        if event.params["taskId"] == id {
            break;
        }
    }
}

async fn an_owners_command_is_an_event_for_the_creator(broker: &Broker) {
    let (service, alice) = (broker.service("service"), broker.user("alice"));
    let id = id_of(&service.create(json!({"owner": alice.subject()})).await);
    let mut stream = open(&service).await;
    command(&alice, &id, "tasks/cancel", json!({})).await;
    let event = stream.next_about(&id).await;
    assert_eq!((event.kind(), &event.params["cancelRequested"]), ("cancel", &json!(true)));
}

async fn several_streams_of_one_caller_all_hear_everything(broker: &Broker) {
    let alice = broker.user("alice");
    let mut streams = [open(&alice).await, open(&alice).await, open(&alice).await];
    let id = alice.new_task().await;
    for stream in &mut streams {
        assert_eq!(stream.next().await.params["taskId"], id);
    }
}

async fn an_event_is_shown_only_once_it_can_be_read(broker: &Broker) {
    let alice = broker.user("alice");
    let mut stream = open(&alice).await;
    let writing = tokio::spawn({
        let alice = alice.clone();
        async move {
            for _ in 0..50 {
                let id = alice.new_task().await;
                alice.call("store/complete", json!({"taskId": id, "result": {}})).await.result();
            }
        }
    });
    for _ in 0..100 {
        let event = stream.next().await;
        let snapshot = alice.get(event.params["taskId"].as_str().unwrap()).await;
        assert!(
            snapshot["revision"].as_u64() >= event.params["revision"].as_u64(),
            "{event:?} and then {snapshot}"
        );
    }
    writing.await.unwrap();
}

async fn a_client_that_goes_away_harms_nobody(broker: &Broker) {
    let alice = broker.user("alice");
    for _ in 0..20 {
        drop(open(&alice).await);
    }
    let mut stream = open(&alice).await;
    let id = alice.new_task().await;
    assert_eq!(stream.next().await.params["taskId"], id);
}

/// Far more events than any buffer on the way holds, while nobody reads.
async fn a_slow_reader_hears_everything_or_is_told_to_read_again(broker: &Broker) {
    const BATCHES: usize = 150;
    let alice = broker.user("alice");
    let id = alice.new_task().await;
    let mut stream = open(&alice.clone().with_small_buffers()).await;
    for batch in 0..BATCHES {
        let changes: Vec<_> = (0..100)
            .map(|n| {
                let params = json!({"taskId": id, "meta": {"n": batch * 100 + n}});
                json!({"jsonrpc": "2.0", "method": "store/setMeta", "params": params})
            })
            .collect();
        alice.post(Value::Array(changes).to_string()).await.assert_accepted();
    }
    let last = json!(alice.get(&id).await["revision"]);
    assert_eq!(last, BATCHES * 100 + 1);

    let mut revision = 1;
    loop {
        let message = stream.next().await;
        if message.method == "store/synced" {
            assert_eq!(message.params["reset"], true, "what was dropped is admitted: {message:?}");
            let statuses = alice.call("store/statuses", json!({"taskIds": [id]})).await.result();
            assert_eq!(statuses["statuses"][&id]["revision"], last);
            break;
        }
        let heard = message.params["revision"].as_u64().unwrap();
        assert!(heard == revision + 1 || heard <= revision, "{revision} and then {message:?}: a gap");
        revision = revision.max(heard);
        if message.params["revision"] == last {
            break;
        }
    }
    // Either way the stream is live again.
    alice.call("store/complete", json!({"taskId": id, "result": {}})).await.result();
    loop {
        let message = stream.next().await;
        if message.method == "store/event" && message.kind() == "complete" {
            break;
        }
    }
}

/// Longer than the other tests: the contract's bound is fifteen seconds.
#[tokio::test]
async fn a_quiet_stream_has_a_comment_at_least_every_fifteen_seconds() {
    let mut stream = open(&crate::shared::memory().user("alice")).await;
    stream.next_comment(Duration::from_secs(16)).await;
    stream.next_comment(Duration::from_secs(16)).await;
}

on_memory!(a_slow_reader_hears_everything_or_is_told_to_read_again);

on_both_stores!(
    a_watch_needs_an_accept_header_for_streams,
    a_stream_says_that_it_is_one_and_must_not_be_buffered,
    the_first_message_says_where_the_stream_stands,
    every_command_is_an_event_of_its_own_kind_in_order,
    the_other_endings_are_events_too,
    a_cancel_of_a_terminal_task_sends_its_signal,
    a_discard_is_an_event,
    an_expiry_is_an_event,
    a_ttl_of_zero_is_followed_by_an_expiry,
    what_changes_nothing_makes_no_event,
    a_stream_shows_the_tasks_of_its_own_creator_only,
    the_anonymous_stream_shows_tasks_without_a_creator,
    an_owners_command_is_an_event_for_the_creator,
    several_streams_of_one_caller_all_hear_everything,
    an_event_is_shown_only_once_it_can_be_read,
    a_client_that_goes_away_harms_nobody,
);
