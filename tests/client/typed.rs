//! Every method of the broker through the typed client.

use std::collections::BTreeMap;

use task_broker_client::methods::{
    apply_input, cancel, complete, create, discard, fail, list, require_input, set_meta, set_status, set_ttl,
    tasks_cancel, wait, watch,
};
use task_broker_client::shapes::{Guard, Status, TaskError};
use task_broker_client::{Client, Ended, Json, RpcError};

use crate::harness::{Auth, token};
use crate::scene::{LATE, broker, url, within};

fn json(text: &str) -> Json {
    Json::parse(&bytes::Bytes::copy_from_slice(text.as_bytes())).unwrap()
}

fn one(key: &str, text: &str) -> BTreeMap<String, Json> {
    BTreeMap::from([(key.to_owned(), json(text))])
}

async fn task(client: &Client) -> String {
    client.create(create::Params::new("tool")).await.unwrap().snapshot.task.task_id
}

fn guard() -> Guard {
    Guard::default()
}

#[tokio::test]
async fn a_task_goes_through_its_life() {
    let broker = broker(Auth::Required);
    let client = Client::builder(&url(&broker)).token(token::good("worker")).build().unwrap();
    let info = client.info().await.unwrap();
    assert_eq!((info.name.as_str(), info.api), ("task-broker", 1));

    let mut params = create::Params::new("tool");
    params.arguments = Some(json(r#"{"odd":"\ud800","large":12345678901234567890123}"#));
    params.ttl = create::Ttl::Maximum;
    let created = client.create(params).await.unwrap();
    assert!(created.created);
    assert_eq!(created.snapshot.owner.as_deref(), Some("worker"));
    let task_id = created.snapshot.task.task_id;

    let meta = set_meta::Params { task_id: task_id.clone(), meta: json(r#"{"a":1}"#), guard: guard() };
    assert!(client.set_meta(meta).await.unwrap().applied);
    let status = set_status::Params {
        task_id: task_id.clone(),
        status: Status::Working,
        message: Some("half".to_owned()),
        guard: guard(),
    };
    assert!(client.set_status(status).await.unwrap().applied);
    let ask = require_input::Params {
        task_id: task_id.clone(),
        input_requests: one("q", r#"{"method":"roots/list"}"#),
        message: None,
        on_spent_key: require_input::OnSpentKey::Reject,
        guard: guard(),
    };
    assert_eq!(client.require_input(ask).await.unwrap().status, Status::InputRequired);
    assert_eq!(client.tasks_get(&task_id).await.unwrap().input_requests.len(), 1);
    let answer = || apply_input::Params {
        task_id: task_id.clone(),
        input_responses: one("q", "1e400"),
        guard: guard(),
    };
    client.tasks_update(answer()).await.unwrap();
    let late = client.apply_input(answer()).await.unwrap();
    assert_eq!((late.accepted.len(), late.ignored), (0, vec!["q".to_owned()]));

    let context = client.resume(&task_id).await.unwrap();
    assert_eq!(context.arguments, json(r#"{"odd":"\ud800","large":12345678901234567890123}"#));
    assert_eq!(context.input_responses["q"], json("1e400"));

    let params = set_ttl::Params { task_id: task_id.clone(), ttl_ms: 60_000, guard: guard() };
    let answered = client.set_ttl(params).await.unwrap().answered().unwrap();
    assert_eq!(answered.ttl_ms, 60_000);

    let waiting = tokio::spawn({
        let (client, task_id) = (client.clone(), task_id.clone());
        async move { client.wait(wait::Params { task_id, timeout_ms: None, since_revision: None }).await }
    });
    let result = json(r#"{"content":[], "x":"\ud800"}"#);
    let params = complete::Params { task_id: task_id.clone(), result: result.clone(), guard: guard() };
    assert!(client.complete(params).await.unwrap().applied);
    let waited = within(LATE, "the wait ends", waiting).await.unwrap().unwrap();
    assert_eq!((waited.timed_out, waited.snapshot.result), (false, Some(result)));

    let statuses = client.statuses([task_id.as_str(), "unknown"]).await.unwrap();
    assert_eq!(statuses["unknown"], None);
    assert_eq!(statuses[&task_id].unwrap().status, Status::Completed);
    let listed = client.list(list::Params::default()).await.unwrap();
    assert_eq!(listed.tasks.len(), 1);

    let params = || discard::Params { task_id: task_id.clone(), guard: guard() };
    assert!(matches!(client.discard(params()).await.unwrap(), Ended::Answered(_)));
    let error = client.discard(params()).await.unwrap_err();
    assert_eq!(error.rpc(), Some(&RpcError::TaskNotFound));
}

#[tokio::test]
async fn a_task_can_fail_and_be_cancelled() {
    let broker = broker(Auth::Off);
    let client = Client::builder(&url(&broker)).build().unwrap();
    let task_id = task(&client).await;
    let error = TaskError { code: -1, message: "no".to_owned(), data: Some(json("null")) };
    let params = fail::Params { task_id: task_id.clone(), error, guard: guard() };
    assert_eq!(client.fail(params).await.unwrap().status, Status::Failed);
    let snapshot = client.get(&task_id).await.unwrap();
    assert_eq!(snapshot.error, Some(json(r#"{"code":-1,"message":"no","data":null}"#)));

    let task_id = task(&client).await;
    let params = cancel::Params { task_id, reason: Some("enough".to_owned()), guard: guard() };
    let cancelled = client.cancel(params).await.unwrap();
    assert_eq!(cancelled.snapshot.task.status_message.as_deref(), Some("Cancelled: enough"));

    let task_id = task(&client).await;
    client.tasks_cancel(tasks_cancel::Params { task_id: task_id.clone(), guard: guard() }).await.unwrap();
    assert!(client.get(&task_id).await.unwrap().cancel_requested);
}

#[tokio::test]
async fn an_expected_revision_that_is_not_the_task_s_is_told() {
    let broker = broker(Auth::Off);
    let client = Client::builder(&url(&broker)).build().unwrap();
    let task_id = task(&client).await;
    let guard = Guard { expected_revision: Some(7), ..Guard::default() };
    let error = client.cancel(cancel::Params { task_id, reason: None, guard }).await.unwrap_err();
    assert_eq!(error.rpc(), Some(&RpcError::RevisionConflict { revision: Some(1) }));
}

#[tokio::test]
async fn a_stream_shows_what_happens_and_goes_on_after_a_break() {
    let broker = broker(Auth::Off);
    let client = Client::builder(&url(&broker)).build().unwrap();
    let mut stream = client.watch(None).await.unwrap();
    let first = within(LATE, "the stream begins", stream.next()).await.unwrap().unwrap();
    assert!(matches!(first, watch::Message::Synced(watch::Synced { reset: true, .. })), "{first:?}");
    let task_id = task(&client).await;
    let event = within(LATE, "the creation is told", stream.next()).await.unwrap().unwrap();
    assert!(matches!(&event, watch::Message::Event(event) if event.task_id == task_id), "{event:?}");
    let position = stream.position().unwrap().to_owned();
    drop(stream);

    client.cancel(cancel::Params { task_id, reason: None, guard: guard() }).await.unwrap();
    let mut stream = client.watch(Some(position)).await.unwrap();
    let first = within(LATE, "the stream goes on", stream.next()).await.unwrap().unwrap();
    assert!(matches!(first, watch::Message::Synced(watch::Synced { reset: false, .. })), "{first:?}");
    let event = within(LATE, "what was missed is told", stream.next()).await.unwrap().unwrap();
    let watch::Message::Event(event) = event else { panic!("{event:?}") };
    assert_eq!((event.kind, event.cancel_requested), (watch::EventKind::Cancel, true));
}
