//! A stream that is opened again with the last position it saw.

use serde_json::{Value, json};

use crate::harness::{Broker, BrokerOptions, Client, EventStream, Message, Outgoing, Store};

/// Makes these events on the task: one change of meta for each number.
async fn change(client: &Client, id: &str, numbers: impl Iterator<Item = u64>) {
    for n in numbers {
        client.call("store/setMeta", json!({"taskId": id, "meta": {"n": n}})).await.result();
    }
}

/// The next `count` events.
async fn events(stream: &mut EventStream, count: usize) -> Vec<Message> {
    let mut events = Vec::new();
    for _ in 0..count {
        let event = stream.next().await;
        assert_eq!(event.method, "store/event", "{event:?}");
        events.push(event);
    }
    events
}

fn revisions(events: &[Message]) -> Vec<u64> {
    events.iter().map(|event| event.params["revision"].as_u64().unwrap()).collect()
}

async fn a_stream_goes_on_after_the_position_it_is_given(broker: &Broker) {
    let alice = broker.user("alice");
    let mut stream = alice.watch(json!({})).await;
    stream.synced().await;
    let id = alice.new_task().await;
    change(&alice, &id, 1..=3).await;
    let seen = events(&mut stream, 4).await;
    drop(stream);
    change(&alice, &id, 4..=6).await;

    for (at, event) in seen.iter().enumerate() {
        let mut resumed = alice.watch(json!({"since": event.position()})).await;
        assert!(!resumed.synced().await, "the position is known");
        // At least once: what was seen may come again, what was not must come, in order.
        let mut heard = Vec::new();
        while heard.last() != Some(&7) {
            heard.extend(revisions(&events(&mut resumed, 1).await));
        }
        let first_missed = u64::try_from(at).unwrap() + 2;
        let from = heard.iter().position(|revision| *revision == first_missed).unwrap();
        assert_eq!(heard[from..], (first_missed..=7).collect::<Vec<_>>(), "after revision {}", at + 1);
    }
}

async fn a_resumed_stream_goes_on_live(broker: &Broker) {
    let alice = broker.user("alice");
    let id = alice.new_task().await;
    let mut stream = alice.watch(json!({})).await;
    stream.synced().await;
    change(&alice, &id, 1..=1).await;
    let position = events(&mut stream, 1).await[0].position().clone();
    drop(stream);

    let mut resumed = alice.watch(json!({"since": position})).await;
    assert!(!resumed.synced().await);
    change(&alice, &id, 2..=2).await;

    let event = resumed.next_about(&id).await;
    assert!([2, 3].contains(&event.params["revision"].as_u64().unwrap()), "{event:?}");
}

async fn the_position_of_a_quiet_stream_can_be_resumed_too(broker: &Broker) {
    let alice = broker.user("alice");
    let mut stream = alice.watch(json!({})).await;
    let position = stream.next().await.position().clone();
    drop(stream);
    let id = alice.new_task().await;

    let mut resumed = alice.watch(json!({"since": position})).await;

    assert!(!resumed.synced().await, "the position is known");
    let event = resumed.next_about(&id).await;
    assert_eq!(event.kind(), "create");
}

async fn an_unknown_position_means_read_again(broker: &Broker) {
    let alice = broker.user("alice");
    let id = alice.new_task().await;
    for unknown in ["", "nonsense", "0", "-1", "99999999999999999999999", "é", "AAAA"] {
        let mut stream = alice.watch(json!({"since": unknown})).await;
        assert!(stream.synced().await, "{unknown:?}");
        alice.call("store/setMeta", json!({"taskId": id, "meta": {"for": unknown}})).await.result();
        assert_eq!(stream.next_about(&id).await.kind(), "setMeta", "the stream is live");
    }
}

async fn a_position_is_a_string(broker: &Broker) {
    let alice = broker.user("alice");
    for illegal in [json!([]), json!({}), json!(true)] {
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": "store/watch", "params": {"since": illegal}});
        let request = Outgoing::new(body.to_string()).header("accept", "text/event-stream");
        alice.send(request).await.error().assert_invalid("since");
    }
}

async fn a_foreign_position_shows_nothing_foreign(broker: &Broker) {
    let (alice, bob) = (broker.user("alice"), broker.user("bob"));
    let mut stream = alice.watch(json!({})).await;
    let position = stream.next().await.position().clone();
    let alices = alice.new_task().await;

    let mut bobs = bob.watch(json!({"since": position})).await;
    bobs.synced().await;
    let own = bob.new_task().await;

    let event = bobs.next().await;
    assert_ne!(event.params["taskId"], alices);
    assert_eq!(event.params["taskId"], own);
}

async fn positions_are_all_different(broker: &Broker) {
    let alice = broker.user("alice");
    let mut stream = alice.watch(json!({})).await;
    stream.synced().await;
    let id = alice.new_task().await;
    change(&alice, &id, 1..=20).await;
    let events = events(&mut stream, 21).await;
    let distinct: std::collections::BTreeSet<_> = events.iter().map(|event| event.id.clone()).collect();
    assert_eq!(distinct.len(), 21);
}

/// After a restart a client either goes on where it was or is told to read again; it is never left in the dark.
#[tokio::test]
async fn a_position_from_before_a_kill_is_resumed_or_reset_but_nothing_is_lost() {
    let mut broker = BrokerOptions::new(Store::Sled).start();
    let alice = broker.user("alice");
    let mut stream = alice.watch(json!({})).await;
    stream.synced().await;
    let id = alice.new_task().await;
    change(&alice, &id, 1..=2).await;
    let position = events(&mut stream, 2).await[1].position().clone();
    drop(stream);
    let subject = alice.subject().to_owned();

    broker.kill9();
    broker.restart();

    let alice = broker.subject(&subject);
    let mut resumed = alice.watch(json!({"since": position})).await;
    let reset = resumed.synced().await;
    if reset {
        let statuses = alice.call("store/statuses", json!({"taskIds": [id]})).await.result();
        assert_eq!(statuses["statuses"][&id]["revision"], 3);
    } else {
        let mut heard: Vec<Value> = Vec::new();
        while heard.last() != Some(&json!(3)) {
            heard.push(resumed.next_about(&id).await.params["revision"].clone());
        }
    }
    change(&alice, &id, 3..=3).await;
    loop {
        if resumed.next_about(&id).await.params["revision"] == 4 {
            break;
        }
    }
}

on_both_stores!(
    a_stream_goes_on_after_the_position_it_is_given,
    a_resumed_stream_goes_on_live,
    the_position_of_a_quiet_stream_can_be_resumed_too,
    an_unknown_position_means_read_again,
    a_position_is_a_string,
    a_foreign_position_shows_nothing_foreign,
    positions_are_all_different,
);
