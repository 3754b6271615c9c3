use bytes::Bytes;

use super::*;

fn json(text: &str) -> Json {
    Json::from_trusted(Bytes::copy_from_slice(text.as_bytes()))
}

fn task(meta: Option<&str>) -> Task {
    Task {
        task_id: "some-task".to_owned(),
        status: Status::Completed,
        status_message: None,
        created_at: "2026-01-01T00:00:00.000Z".to_owned(),
        last_updated_at: "2026-01-01T00:00:00.000Z".to_owned(),
        ttl_ms: (1 << 53) - 1,
        poll_interval_ms: 1,
        meta: meta.map(json),
    }
}

fn snapshot(result: Option<&str>, error: Option<&str>) -> Snapshot {
    Snapshot {
        task: task(None),
        owner: None,
        tool_name: String::new(),
        revision: 1,
        remaining_ms: 1,
        cancel_requested: false,
        result: result.map(json),
        error: error.map(json),
        input_requests: BTreeMap::new(),
    }
}

#[test]
fn what_a_value_cannot_hold_is_a_decode_error_that_names_the_task() {
    for result in [
        r#"{"content":[],"structuredContent":"\ud800"}"#,
        r#"{"content":[],"structuredContent":1e400}"#,
        "{}",
    ] {
        let error = task_snapshot(&snapshot(Some(result), None)).unwrap_err();
        assert!(matches!(&error, TaskStoreError::Decode(text) if text.contains("some-task")), "{error:?}");
    }
}

#[test]
fn a_list_shows_a_task_whose_meta_cannot_be_read() {
    let broken = task(Some(r#"{"a":"\ud800"}"#));
    assert!(matches!(task_object(&broken), Err(TaskStoreError::Decode(_))));
    let listed = listed(&broken);
    assert_eq!((listed.task_id.as_str(), listed.meta), ("some-task", None));
    assert_eq!(listed.ttl, Some((1 << 53) - 1));
}

#[test]
fn null_is_not_absent() {
    for (text, expected) in [
        (r#"{"code":1,"message":"m","data":null}"#, Some(serde_json::Value::Null)),
        (r#"{"code":1,"message":"m"}"#, None),
    ] {
        let (_, _, error) = task_snapshot(&snapshot(None, Some(text))).unwrap();
        let error = error.unwrap();
        assert_eq!(error.data, expected);
        let back = encode("error", &task_error(&error).unwrap()).unwrap();
        assert_eq!(back, json(text));
    }
    let text = r#"{"content":[],"structuredContent":null}"#;
    let (_, result, _) = task_snapshot(&snapshot(Some(text), None)).unwrap();
    assert_eq!(encode("result", &result.unwrap()).unwrap(), json(text));
}

#[test]
fn large_numbers_survive() {
    let text = r#"{"content":[],"structuredContent":18446744073709551615}"#;
    let (_, result, _) = task_snapshot(&snapshot(Some(text), None)).unwrap();
    assert_eq!(result.unwrap().structured_content, Some(u64::MAX.into()));
}
