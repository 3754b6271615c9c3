//! Everything has an end.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use task_broker_client::methods::create;
use task_broker_client::{Error, Json, ProtocolError};
use tokio::sync::Notify;

use crate::script::{Script, Step, snapshot};

#[tokio::test]
async fn an_answer_that_is_too_large_is_not_read_to_its_end() {
    let mut large = snapshot();
    large["result"] = json!({"text": "x".repeat(5000)});
    let script = Script::new([Step::Result(large)]).await;
    let client = script.builder().max_response_bytes(4096).build().unwrap();
    let error = client.get("8c1f").await.unwrap_err();
    assert!(matches!(error, Error::Protocol(ProtocolError::TooLarge { maximum: 4096 })), "{error:?}");
}

#[tokio::test]
async fn a_request_that_is_too_large_is_not_sent() {
    let info = json!({
        "name": "task-broker", "version": "0", "api": 1, "storeId": "s", "limits": {"maxBodyBytes": 1000},
    });
    let script = Script::new([Step::Result(info)]).await;
    let client = script.client();
    client.info().await.unwrap();
    let mut params = create::Params::new("tool");
    params.arguments = Some(Json::of(&"x".repeat(1000)).unwrap());
    let error = client.create(params).await.unwrap_err();
    assert!(matches!(error, Error::RequestTooLarge { maximum: 1000, .. }), "{error:?}");
    assert!(!error.outcome_unknown());
    assert_eq!(script.seen().len(), 1);
}

#[tokio::test]
async fn only_so_many_calls_are_in_flight() {
    let gates: [Arc<Notify>; 3] = Default::default();
    let steps = gates.iter().map(|gate| Step::After(Arc::clone(gate), Box::new(Step::Result(snapshot()))));
    let script = Script::new(steps).await;
    let client = script.builder().max_in_flight(2).build().unwrap();
    let calls = [(); 3].map(|()| {
        let client = client.clone();
        tokio::spawn(async move { client.get("8c1f").await })
    });
    script.arrived(2).await;
    tokio::time::timeout(Duration::from_millis(50), script.arrived(3)).await.unwrap_err();
    gates[0].notify_one();
    script.arrived(3).await;
    gates[1].notify_one();
    gates[2].notify_one();
    for call in calls {
        call.await.unwrap().unwrap();
    }
    assert_eq!(script.seen().len(), 3);
}

#[tokio::test]
async fn statuses_of_many_tasks_are_asked_for_in_pieces() {
    let empty = || Step::Result(json!({"statuses": {}}));
    let script = Script::new([empty(), empty(), empty()]).await;
    let ids = (0..2001).map(|number| number.to_string());
    script.client().statuses(ids).await.unwrap();
    let sizes: Vec<_> =
        script.seen().iter().map(|seen| seen.body["params"]["taskIds"].as_array().unwrap().len()).collect();
    assert_eq!(sizes, [1000, 1000, 1]);
}
