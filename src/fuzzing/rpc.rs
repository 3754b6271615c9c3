//! The decoder of JSON-RPC: envelope, batches, and the params of every method.

use bytes::Bytes;
use serde_json::Value;
use task_broker_protocol::members::Members;
use task_broker_protocol::methods::{
    Method, TABLE, apply_input, cancel, complete, create, discard, fail, get, info, list, require_input,
    resume, set_meta, set_status, set_ttl, statuses, tasks_cancel, tasks_get, tasks_update, wait, watch,
};
use task_broker_protocol::{
    Call, Decode as _, Id, Json, MAX_NESTING, MethodName, Parsed, Refusal, Response, envelope, parse,
};

use super::gauge::{Gauge, Reached, within};

/// What reading may have allocated at one moment: some 40 bytes for each member, of which the shortest has 5, twice
/// while a list of them grows.
const fn room(length: usize) -> usize {
    64 * length + 64 * 1024
}

/// The body of a request.
pub(super) fn rpc(data: &[u8], gauge: Gauge) -> Reached {
    let body = Bytes::copy_from_slice(data);
    let value: Option<Value> = serde_json::from_slice(data).ok();
    let elements = match within(gauge, room(data.len()), || parse(&body)) {
        Parsed::Single(element) => {
            let batch = value.as_ref().is_some_and(Value::is_array);
            assert!(!batch || element.is_err(), "a batch is never one call");
            vec![(element, value)]
        }
        Parsed::Batch(elements) => {
            assert!((1..=envelope::MAX_BATCH).contains(&elements.len()));
            let values = match value {
                Some(Value::Array(values)) => values.into_iter().map(Some).collect(),
                Some(_) => Vec::new(),
                None => elements.iter().map(|_| None).collect(),
            };
            assert_eq!(values.len(), elements.len(), "another parser sees other elements");
            elements.into_iter().zip(values).collect()
        }
    };
    let mut taken = false;
    for (element, value) in elements {
        match element {
            Ok(call) => {
                envelope_is_kept(&call, value.as_ref());
                taken |= params_are_kept(&call, &body, gauge);
            }
            Err(refusal) => refusal_is_told(&refusal, value.as_ref(), data),
        }
    }
    Reached::taken(taken)
}

/// A refusal is one that a client can read, and never of what another parser would take for the wrong reason.
fn refusal_is_told(refusal: &Refusal, value: Option<&Value>, data: &[u8]) {
    let answer = envelope::failure(refusal.id.as_ref(), &refusal.error);
    let read = Response::<()>::parse(&answer);
    assert!(
        read.is_ok_and(|read| read.id == refusal.id && read.outcome == Err(refusal.error.clone())),
        "a refusal that cannot be read: {}",
        String::from_utf8_lossy(&answer)
    );
    if refusal.error.code == envelope_code_of_no_json() {
        assert!(value.is_none(), "another parser can read this: {}", String::from_utf8_lossy(data));
    }
}

/// `parse_error` (JSON-RPC 2.0, 5.1).
const fn envelope_code_of_no_json() -> i32 {
    -32700
}

/// The members as the text of an object again.
fn text_of(members: &Members<'_>) -> String {
    let name = |name: &str| Value::from(name).to_string();
    let members: Vec<_> = members.iter().map(|(key, raw)| format!("{}:{}", name(key), raw.get())).collect();
    format!("{{{}}}", members.join(","))
}

/// What the envelope says, another parser says too; and written again, it is the same call.
fn envelope_is_kept(call: &Call<'_>, value: Option<&Value>) {
    let params = text_of(&call.params);
    if let Some(value) = value {
        assert_eq!(value.get("jsonrpc"), Some(&Value::from("2.0")));
        assert_eq!(value.get("method"), Some(&Value::from(&*call.method)));
        let id = call.id.as_ref().and_then(|id| serde_json::from_str::<Value>(id.as_json()).ok());
        assert_eq!(value.get("id"), id.as_ref());
        let empty = Value::Object(serde_json::Map::new());
        let mine: Option<Value> = serde_json::from_str(&params).ok();
        assert_eq!(Some(value.get("params").unwrap_or(&empty)), mine.as_ref());
    }
    let id = call.id.as_ref().map_or_else(String::new, |id| format!(r#""id":{},"#, id.as_json()));
    let method = Value::from(&*call.method);
    let again = Bytes::from(format!(r#"{{"jsonrpc":"2.0",{id}"method":{method},"params":{params}}}"#));
    let Parsed::Single(Ok(read)) = parse(&again) else { return assert_eq!(again, "", "no call any more") };
    assert_eq!((&read.id, &read.method), (&call.id, &call.method));
    assert_eq!(text_of(&read.params), params);
}

/// Reads the params as those of every method, whatever the call's own is; says whether they are right for that one.
fn params_are_kept(call: &Call<'_>, body: &Bytes, gauge: Gauge) -> bool {
    let mut taken = false;
    for entry in TABLE {
        let read = match entry.method {
            MethodName::Info => kept::<info::Info>(call, body, gauge, |_| Vec::new()),
            MethodName::Create => kept::<create::Create>(call, body, gauge, |params| {
                params.arguments.iter().chain(&params.meta).collect()
            }),
            MethodName::Get => kept::<get::Get>(call, body, gauge, |_| Vec::new()),
            MethodName::Wait => kept::<wait::Wait>(call, body, gauge, |_| Vec::new()),
            MethodName::List => kept::<list::List>(call, body, gauge, |_| Vec::new()),
            MethodName::Statuses => kept::<statuses::Statuses>(call, body, gauge, |_| Vec::new()),
            MethodName::Resume => kept::<resume::Resume>(call, body, gauge, |_| Vec::new()),
            MethodName::RequireInput => kept::<require_input::RequireInput>(call, body, gauge, |params| {
                params.input_requests.values().collect()
            }),
            MethodName::ApplyInput => kept::<apply_input::ApplyInput>(call, body, gauge, |params| {
                params.input_responses.values().collect()
            }),
            MethodName::SetStatus => kept::<set_status::SetStatus>(call, body, gauge, |_| Vec::new()),
            MethodName::SetTtl => kept::<set_ttl::SetTtl>(call, body, gauge, |_| Vec::new()),
            MethodName::SetMeta => kept::<set_meta::SetMeta>(call, body, gauge, |params| vec![&params.meta]),
            MethodName::Discard => kept::<discard::Discard>(call, body, gauge, |_| Vec::new()),
            MethodName::Complete => {
                kept::<complete::Complete>(call, body, gauge, |params| vec![&params.result])
            }
            MethodName::Fail => {
                kept::<fail::Fail>(call, body, gauge, |params| params.error.data.iter().collect())
            }
            MethodName::Cancel => kept::<cancel::Cancel>(call, body, gauge, |_| Vec::new()),
            MethodName::Watch => kept::<watch::Watch>(call, body, gauge, |_| Vec::new()),
            MethodName::TasksGet => kept::<tasks_get::TasksGet>(call, body, gauge, |_| Vec::new()),
            MethodName::TasksUpdate => kept::<tasks_update::TasksUpdate>(call, body, gauge, |params| {
                params.input_responses.values().collect()
            }),
            MethodName::TasksCancel => kept::<tasks_cancel::TasksCancel>(call, body, gauge, |_| Vec::new()),
        };
        taken |= read && entry.name == call.method;
    }
    taken
}

/// Params that can be read are the same when a client writes them, and their payloads are parts of the body.
fn kept<M: Method>(
    call: &Call<'_>,
    body: &Bytes,
    gauge: Gauge,
    payloads: fn(&M::Params) -> Vec<&Json>,
) -> bool
where
    M::Params: PartialEq + std::fmt::Debug,
{
    let decode = || M::Params::decode(&call.params, body);
    let params = match within(gauge, room(body.len()), decode) {
        Ok(params) => params,
        Err(error) => {
            assert!(error.member.len() <= 256 && !error.reason.is_empty());
            return false;
        }
    };
    let inside = body.as_ptr_range();
    for payload in payloads(&params) {
        let part = payload.as_bytes().as_ptr_range();
        assert!(inside.start <= part.start && part.end <= inside.end, "a payload was rewritten");
        if let Ok(value) = payload.read::<Value>() {
            assert!(depth(&value) <= MAX_NESTING, "a payload nests {} levels", depth(&value));
        }
    }
    let again = envelope::request(&Id::from(1), M::NAME, &params);
    let again = Bytes::from(again.unwrap_or_default());
    let Parsed::Single(Ok(read)) = parse(&again) else {
        assert_eq!(again, "", "{} cannot be read again", M::NAME);
        return false;
    };
    assert_eq!(read.method, M::NAME);
    assert_eq!(M::Params::decode(&read.params, &again).as_ref(), Ok(&params), "{}", M::NAME);
    true
}

/// How many levels of arrays and objects a value has.
fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Value::Object(members) => 1 + members.values().map(depth).max().unwrap_or(0),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}
