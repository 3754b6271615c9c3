//! What came back, down to the bytes, and held against the contract's table of errors.

use std::collections::BTreeMap;
use std::fmt;

use bytes::Bytes;
use hyper::header::HeaderMap;
use serde_json::Value;
use serde_json::value::RawValue;

/// The errors of the contract: kind, code, and the HTTP status of a single call.
const ERRORS: [(&str, i64, u16); 12] = [
    ("task_not_found", -32602, 200),
    ("invalid_params", -32602, 200),
    ("invalid_transition", 1001, 200),
    ("revision_conflict", 1002, 200),
    ("idempotency_mismatch", 1003, 200),
    ("limit_exceeded", 1004, 200),
    ("forbidden", 1005, 200),
    ("unavailable", 1006, 200),
    ("internal", -32603, 200),
    ("method_not_found", -32601, 200),
    ("invalid_request", -32600, 400),
    ("parse_error", -32700, 400),
];

/// One HTTP answer.
pub(crate) struct Answer {
    /// The beginning of what was sent, for messages.
    pub(crate) sent: String,
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// A JSON-RPC error that has been checked against the table.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RpcError {
    pub(crate) id: Value,
    pub(crate) code: i64,
    pub(crate) message: String,
    pub(crate) kind: String,
    pub(crate) data: Value,
}

impl Answer {
    /// The body as text.
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap_or_else(|error| panic!("{error}: {self}"))
    }

    /// The body as JSON. Not for answers whose numbers or escapes JSON values cannot hold; see [`Answer::raw`].
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self}"))
    }

    /// A header as text; fails when it is there twice.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut values = self.headers.get_all(name).iter();
        let first = values.next().map(|value| value.to_str().unwrap());
        assert!(values.next().is_none(), "two headers {name}: {self}");
        first
    }

    /// Whether this is a JSON-RPC error to a call that was served.
    pub(crate) fn is_error(&self) -> bool {
        self.members().contains_key("error")
    }

    /// The result of a call that succeeded.
    pub(crate) fn result(&self) -> Value {
        assert_eq!(self.status, 200, "{self}");
        let body = self.json();
        assert!(body.get("error").is_none(), "{self}");
        assert_eq!(body["jsonrpc"], "2.0", "{self}");
        body.get("result").unwrap_or_else(|| panic!("neither result nor error: {self}")).clone()
    }

    /// The error of a call that was refused; kind, code and HTTP status agree with the contract.
    pub(crate) fn error(&self) -> RpcError {
        self.assert_json();
        let error = RpcError::read(&self.json(), &self.to_string());
        let (_, _, status) = row(&error.kind).unwrap_or_else(|| panic!("unknown kind of error: {self}"));
        assert_eq!(self.status, status, "HTTP status of {}: {self}", error.kind);
        error
    }

    /// The error of a request that was refused on the level of HTTP, before a call was served.
    pub(crate) fn http_error(&self, status: u16) -> RpcError {
        assert_eq!(self.status, status, "{self}");
        self.assert_json();
        RpcError::read(&self.json(), &self.to_string())
    }

    /// The answers to a batch, in order.
    pub(crate) fn elements(&self) -> Vec<Value> {
        assert_eq!(self.status, 200, "{self}");
        match self.json() {
            Value::Array(elements) => elements,
            _ => panic!("not an array: {self}"),
        }
    }

    /// The bytes of the value at `path`, as the broker wrote them.
    pub(crate) fn raw(&self, path: &[&str]) -> String {
        let mut text = self.text().to_owned();
        for name in path {
            let members = members(&text).unwrap_or_else(|| panic!("no object around {name}: {self}"));
            let member = members.get(*name).unwrap_or_else(|| panic!("no member {name}: {self}"));
            text = String::from(member.get());
        }
        text
    }

    /// Checks for a notification's answer: accepted, and not a single byte of body.
    pub(crate) fn assert_accepted(&self) {
        assert_eq!(self.status, 202, "{self}");
        assert!(self.body.is_empty(), "{self}");
    }

    /// Everything a caller could tell two answers apart by: status, headers but for the time and the id of the request,
    /// body.
    pub(crate) fn fingerprint(&self) -> (u16, Vec<(String, String)>, Bytes) {
        let headers = self.headers.iter().filter(|(name, _)| *name != "date" && *name != "x-request-id");
        let mut headers: Vec<_> =
            headers.map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned())).collect();
        headers.sort();
        (self.status, headers, self.body.clone())
    }

    fn members(&self) -> BTreeMap<String, Box<RawValue>> {
        members(self.text()).unwrap_or_else(|| panic!("not an object: {self}"))
    }

    fn assert_json(&self) {
        let media_type = self.header("content-type").unwrap_or_default();
        assert!(media_type.starts_with("application/json"), "content type {media_type:?}: {self}");
    }
}

impl RpcError {
    /// Reads one answer, alone or out of a batch; code and kind agree with the contract.
    pub(crate) fn read(answer: &Value, context: &str) -> Self {
        assert_eq!(answer["jsonrpc"], "2.0", "{context}");
        assert!(answer.get("result").is_none(), "an error is expected: {context}");
        let error = &answer["error"];
        let kind = error["data"]["kind"].as_str().unwrap_or_else(|| panic!("no error.data.kind: {context}"));
        let code = error["code"].as_i64().unwrap_or_else(|| panic!("no error.code: {context}"));
        let message = error["message"].as_str().unwrap_or_else(|| panic!("no error.message: {context}"));
        if let Some((_, expected, _)) = row(kind) {
            assert_eq!(code, expected, "code of {kind}: {context}");
        }
        if kind == "task_not_found" {
            assert_eq!(message, "Task not found", "{context}");
        }
        Self {
            id: answer.get("id").unwrap_or_else(|| panic!("no id: {context}")).clone(),
            code,
            message: message.to_owned(),
            kind: kind.to_owned(),
            data: error["data"].clone(),
        }
    }

    /// Checks that the params were refused because of this member.
    pub(crate) fn assert_invalid(&self, member: &str) {
        assert_eq!(self.kind, "invalid_params", "{self:?}");
        assert_eq!(self.data["member"], member, "{self:?}");
    }

    /// Checks that a limit was hit, and that the answer names it.
    pub(crate) fn assert_limit(&self) {
        assert_eq!(self.kind, "limit_exceeded", "{self:?}");
        assert!(self.data["limit"].is_string(), "{self:?}");
        assert!(self.data["maximum"].is_u64(), "{self:?}");
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let body = String::from_utf8_lossy(&self.body[..self.body.len().min(2000)]);
        write!(f, "\n  sent: {}\n  answer: HTTP {} {body}", self.sent, self.status)
    }
}

fn row(kind: &str) -> Option<(&'static str, i64, u16)> {
    ERRORS.into_iter().find(|(name, _, _)| *name == kind)
}

fn members(text: &str) -> Option<BTreeMap<String, Box<RawValue>>> {
    serde_json::from_str(text).ok()
}
