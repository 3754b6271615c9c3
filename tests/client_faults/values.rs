//! Random values for the store to keep: plain ones, and those that a careless encoding spoils.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tower_mcp::error::JsonRpcError;
use tower_mcp::protocol::{CallToolResult, InputRequests, InputResponses};

const TEXTS: [&str; 8] =
    ["", "plain", "naïve Ünicode 日本", "nul \0 and / and \\", "\"quoted\"\n", "null", " ", "🦀"];

pub(crate) fn text(rng: &mut fastrand::Rng) -> String {
    if rng.u8(..20) == 0 {
        // More than one packet, and two of them still within the 64 KiB of a `_meta`.
        return "long ".repeat(rng.usize(2_000..6_000));
    }
    format!("{}{}", TEXTS[rng.usize(..TEXTS.len())], rng.u16(..))
}

pub(crate) fn json(rng: &mut fastrand::Rng) -> Value {
    match rng.u8(..8) {
        0 => Value::Null,
        1 => json!(rng.u64(..)),
        2 => json!(rng.i64(..)),
        3 => json!([text(rng), rng.bool(), [], {}]),
        4 => json!({"": {"a/b": null, "c\0d": [1, 2, u64::MAX]}}),
        _ => json!({"text": text(rng), "number": rng.u32(..), "nested": {"list": [null, true, "x"]}}),
    }
}

pub(crate) fn owner(rng: &mut fastrand::Rng) -> Option<String> {
    match rng.u8(..4) {
        0 => None,
        1 => Some(String::new()),
        2 => Some("alice / \0 日本".to_owned()),
        _ => Some(format!("user-{}", rng.u8(..5))),
    }
}

pub(crate) fn meta(rng: &mut fastrand::Rng) -> Value {
    json!({"example.com/key": json(rng), "other": text(rng)})
}

pub(crate) fn result(rng: &mut fastrand::Rng) -> CallToolResult {
    let mut result = json!({"content": [{"type": "text", "text": text(rng)}], "isError": rng.bool()});
    if rng.bool() {
        result["structuredContent"] = json!({"value": json(rng)});
    }
    if rng.u8(..20) == 0 {
        let large = json!({"type": "text", "text": "large ".repeat(rng.usize(20_000..50_000))});
        result["content"].as_array_mut().unwrap().push(large);
    }
    serde_json::from_value(result).unwrap()
}

pub(crate) fn error(rng: &mut fastrand::Rng) -> JsonRpcError {
    let mut error = JsonRpcError::internal_error("");
    error.code = [-32_603, -32_602, 7, i32::MIN, i32::MAX][rng.usize(..5)];
    // Short enough to be whole in the status message.
    error.message = format!("{} {}", TEXTS[rng.usize(..TEXTS.len())], rng.u16(..));
    error.data = rng.bool().then(|| json!({"detail": json(rng)}));
    error
}

/// A question; the same text gives the same question.
pub(crate) fn question(text: &str) -> Value {
    json!({"method": "elicitation/create", "params": {
        "message": text, "requestedSchema": {"type": "object", "properties": {}}}})
}

pub(crate) fn answer(text: &str) -> Value {
    json!({"action": "accept", "content": {"answer": text}})
}

pub(crate) fn requests(questions: &BTreeMap<String, Value>) -> InputRequests {
    questions
        .iter()
        .map(|(key, value)| (key.clone(), serde_json::from_value(value.clone()).unwrap()))
        .collect()
}

pub(crate) fn responses(answers: &BTreeMap<String, Value>) -> InputResponses {
    answers.iter().map(|(key, value)| (key.clone(), serde_json::from_value(value.clone()).unwrap())).collect()
}

/// What was written and what was read are compared as JSON.
pub(crate) fn as_json(value: &impl serde::Serialize) -> Value {
    serde_json::to_value(value).unwrap()
}
