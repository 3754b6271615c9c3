//! JSON-RPC 2.0: reading calls and writing answers on the server's side, the reverse on the client's.
//!
//! Stricter than the standard where WIRE.md says so: an id is a string or a number, `params` is an object, and no
//! member may be there twice.

use std::borrow::Cow;
use std::fmt;

use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize, Serializer, ser};
use serde_json::value::RawValue;

use crate::error::ErrorObject;
use crate::json::{JsonKind, kind_of};
use crate::members::{MAX_MEMBERS, Members, SplitError};
use crate::split::{elements, split_call, text};

/// How many calls a batch may have.
pub const MAX_BATCH: usize = 100;

/// The longest id, in bytes of JSON text, quotes and escapes included. It is echoed, so it needs a bound.
pub const MAX_ID_BYTES: usize = 512;

/// The id of a call: the JSON text of a string or a number, echoed as written.
///
/// Two ids are equal when their texts are: `2` is not `"2"`, and `2.0` is not `2`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Id(Box<str>);

impl Id {
    /// Takes the id as a call has it.
    ///
    /// # Errors
    /// When it is no string or number, or longer than [`MAX_ID_BYTES`]; the text says which.
    fn from_raw(raw: &RawValue) -> Result<Self, &'static str> {
        match kind_of(raw.get().as_bytes()) {
            Some(JsonKind::String | JsonKind::Number) if raw.get().len() > MAX_ID_BYTES => {
                Err("id is too long")
            }
            Some(JsonKind::String | JsonKind::Number) => Ok(Self(raw.get().into())),
            _ => Err("id must be a string or a number"),
        }
    }

    /// The JSON text.
    #[must_use]
    pub fn as_json(&self) -> &str {
        &self.0
    }
}

impl From<u64> for Id {
    fn from(number: u64) -> Self {
        Self(number.to_string().into())
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Serialize for Id {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let raw: &RawValue = serde_json::from_str(&self.0).map_err(ser::Error::custom)?;
        raw.serialize(serializer)
    }
}

/// One call whose envelope is in order.
#[derive(Debug)]
pub struct Call<'a> {
    /// `None` for a notification: it is carried out and never answered.
    pub id: Option<Id>,
    /// The method's name, known or not.
    pub method: Cow<'a, str>,
    /// The members of `params`; none when it is absent.
    pub params: Members<'a>,
}

/// Something that is no call in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The id, when it could be read.
    pub id: Option<Id>,
    /// It is a notification, apart from its params: nobody waits for an answer, and none may be sent. Never true
    /// for something that is not recognisable as a notification.
    pub notification: bool,
    /// Why it is refused.
    pub error: ErrorObject,
}

impl Refusal {
    fn new(id: Option<Id>, error: ErrorObject) -> Self {
        Self { id, notification: false, error }
    }

    fn invalid(id: Option<Id>, reason: &str) -> Self {
        Self::new(id, ErrorObject::invalid_request(reason))
    }
}

/// What a body holds.
#[derive(Debug)]
pub enum Parsed<'a> {
    /// One call, or one reason why there is none: not JSON (`parse_error`), not an envelope, an empty batch, a
    /// batch of more than [`MAX_BATCH`]. Answered with one object, or with nothing for a notification.
    Single(Result<Call<'a>, Refusal>),
    /// A batch of 1 to [`MAX_BATCH`] elements, each on its own. Answered with an array in the same order, or with
    /// nothing when all are notifications.
    Batch(Vec<Result<Call<'a>, Refusal>>),
}

/// Reads the body of a request. Takes any bytes, never recurses, and decodes nothing of a batch that is too long.
#[must_use]
pub fn parse(body: &Bytes) -> Parsed<'_> {
    // Nearly every body is one of these two, and is read in as few walks over it as can be: the payloads are in it. What is no
    // UTF-8 is flawed as an empty body is.
    let text = str::from_utf8(body).unwrap_or_default();
    if kind_of(body) == Some(JsonKind::Array) {
        if let Some(calls) = elements(text, MAX_BATCH).filter(|calls| !calls.is_empty()) {
            return Parsed::Batch(calls.into_iter().map(read_element).collect());
        }
    } else if let Some(call) = read_flawless(text) {
        return Parsed::Single(call);
    }
    Parsed::Single(read_flawed(body))
}

fn read_element(raw: &RawValue) -> Result<Call<'_>, Refusal> {
    read_flawless(raw.get()).unwrap_or_else(|| read_call(raw))
}

/// What is wrong with a body that is neither a flawless call nor a batch.
fn read_flawed(body: &[u8]) -> Result<Call<'_>, Refusal> {
    // One validating pass over everything first, so that whatever goes wrong afterwards is a matter of shape.
    let Ok(raw) = serde_json::from_slice::<&RawValue>(body) else {
        return Err(Refusal::new(None, ErrorObject::parse_error()));
    };
    if kind_of(raw.get().as_bytes()) != Some(JsonKind::Array) {
        return read_call(raw);
    }
    match elements(raw.get(), MAX_BATCH) {
        None => Err(Refusal::invalid(None, &format!("the batch has more than {MAX_BATCH} calls"))),
        Some(_) => Err(Refusal::invalid(None, "the batch is empty")),
    }
}

/// Reads a call in one walk; nothing if the text, its members or those of its params have any flaw.
fn read_flawless(json: &str) -> Option<Result<Call<'_>, Refusal>> {
    let (envelope, params) = split_call(json, MAX_MEMBERS)?;
    let params = params.map(Members::of).unwrap_or_default();
    Some(check_call(&Members::of(envelope), None, |_envelope| Ok(params)))
}

/// Reads a call step by step, so that the first flaw can be told.
fn read_call(raw: &RawValue) -> Result<Call<'_>, Refusal> {
    let (envelope, flaw) = Members::split_leniently(raw, MAX_MEMBERS)
        .map_err(|error| Refusal::invalid(None, &format!("the call {error}")))?;
    check_call(&envelope, flaw, |envelope| read_params(envelope.get("params")))
}

fn check_call<'a>(
    envelope: &Members<'a>,
    flaw: Option<SplitError>,
    params: impl FnOnce(&Members<'a>) -> Result<Members<'a>, ErrorObject>,
) -> Result<Call<'a>, Refusal> {
    let id = read_id(envelope).map_err(|reason| Refusal::invalid(None, reason))?;
    if let Some(flaw) = flaw {
        return Err(Refusal::invalid(id, &format!("the call {flaw}")));
    }
    if envelope.get("jsonrpc").and_then(text).as_deref() != Some("2.0") {
        return Err(Refusal::invalid(id, "jsonrpc must be \"2.0\""));
    }
    let Some(method) = envelope.get("method").and_then(text) else {
        return Err(Refusal::invalid(id, "method must be a string"));
    };
    match params(envelope) {
        Ok(params) => Ok(Call { id, method, params }),
        Err(error) => Err(Refusal { notification: id.is_none(), id, error }),
    }
}

/// The id, `None` when it is absent. Of an id that is there twice neither can be told to be the right one, so none
/// is read; the duplicate is refused by the caller.
fn read_id(envelope: &Members<'_>) -> Result<Option<Id>, &'static str> {
    let mut ids = envelope.iter().filter(|(name, _)| *name == "id");
    match (ids.next(), ids.next()) {
        (Some((_, raw)), None) => Id::from_raw(raw).map(Some),
        _ => Ok(None),
    }
}

fn read_params(raw: Option<&RawValue>) -> Result<Members<'_>, ErrorObject> {
    let Some(raw) = raw else { return Ok(Members::default()) };
    Members::split(raw, MAX_MEMBERS).map_err(|error| match &error {
        SplitError::Duplicate(member) => ErrorObject::from(crate::ParamError::new(member, "is there twice")),
        _ => ErrorObject::invalid_params("params", &error.to_string()),
    })
}

/// Writes the answer to a call that succeeded.
///
/// # Errors
/// When the result cannot be written, as with a stored payload that is no JSON.
pub fn success<R: Serialize + ?Sized>(id: &Id, result: &R) -> Result<Vec<u8>, serde_json::Error> {
    #[derive(Serialize)]
    struct Success<'a, R: ?Sized> {
        jsonrpc: &'static str,
        id: &'a Id,
        result: &'a R,
    }
    // Most answers fit, so the text is not moved while it grows.
    let mut answer = Vec::with_capacity(2048);
    serde_json::to_writer(&mut answer, &Success { jsonrpc: "2.0", id, result })?;
    Ok(answer)
}

/// Writes the answer to a call whose result is written already, as JSON.
#[must_use]
pub fn success_text(id: &Id, result: &[u8]) -> Vec<u8> {
    [br#"{"jsonrpc":"2.0","id":"#, id.as_json().as_bytes(), br#","result":"#, result, b"}"].concat()
}

/// Writes the answer to a call that failed; the id is `null` when none could be read.
#[must_use]
pub fn failure(id: Option<&Id>, error: &ErrorObject) -> Vec<u8> {
    let mut answer = Vec::with_capacity(192);
    answer.extend_from_slice(br#"{"jsonrpc":"2.0","id":"#);
    answer.extend_from_slice(id.map_or("null", Id::as_json).as_bytes());
    answer.extend_from_slice(br#","error":"#);
    match serde_json::to_vec(error) {
        Ok(text) => answer.extend_from_slice(&text),
        // Numbers and strings can always be written; the text only keeps this function free of an error that
        // nobody could answer.
        Err(_unreachable) => answer
            .extend_from_slice(br#"{"code":-32603,"message":"Internal error","data":{"kind":"internal"}}"#),
    }
    answer.push(b'}');
    answer
}

/// Writes a notification, as a stream sends it. On one line unless a payload in it has line breaks.
///
/// # Errors
/// When `params` cannot be written.
pub fn notification<P: Serialize + ?Sized>(method: &str, params: &P) -> Result<Vec<u8>, serde_json::Error> {
    #[derive(Serialize)]
    struct Notification<'a, P: ?Sized> {
        jsonrpc: &'static str,
        method: &'a str,
        params: &'a P,
    }
    serde_json::to_vec(&Notification { jsonrpc: "2.0", method, params })
}

/// Writes a call.
///
/// # Errors
/// When `params` cannot be written.
pub fn request<P: Serialize + ?Sized>(
    id: &Id,
    method: &str,
    params: &P,
) -> Result<Vec<u8>, serde_json::Error> {
    #[derive(Serialize)]
    struct Request<'a, P: ?Sized> {
        jsonrpc: &'static str,
        id: &'a Id,
        method: &'a str,
        params: &'a P,
    }
    serde_json::to_vec(&Request { jsonrpc: "2.0", id, method, params })
}

/// The answer to one call, as the client reads it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response<R> {
    /// The id of the call; `None` when the server could not read it.
    pub id: Option<Id>,
    /// The result, or the error.
    pub outcome: Result<R, ErrorObject>,
}

/// Why the answer to a call could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ResponseError {
    /// It is not JSON, or the result does not have the shape that the method promises.
    #[error("the answer cannot be read: {0}")]
    Malformed(#[from] serde_json::Error),
    /// It has neither a result nor an error, or both.
    #[error("the answer has neither a result nor an error, or both")]
    Neither,
    /// Its id is no string or number.
    #[error("the answer's {0}")]
    BadId(&'static str),
}

impl<R: DeserializeOwned> Response<R> {
    /// Reads an answer. Whether its id is that of the call is for the caller to compare.
    ///
    /// # Errors
    /// When it is no JSON-RPC answer, or its result does not have the shape of `R`.
    pub fn parse(body: &[u8]) -> Result<Self, ResponseError> {
        #[derive(Deserialize)]
        struct Answer<'a> {
            #[serde(borrow)]
            id: Option<&'a RawValue>,
            #[serde(borrow)]
            result: Option<&'a RawValue>,
            error: Option<ErrorObject>,
        }
        let answer: Answer<'_> = serde_json::from_slice(body)?;
        let id = answer.id.map(Id::from_raw).transpose().map_err(ResponseError::BadId)?;
        let outcome = match (answer.result, answer.error) {
            (Some(result), None) => Ok(serde_json::from_str(result.get())?),
            (None, Some(error)) => Err(error),
            _ => return Err(ResponseError::Neither),
        };
        Ok(Self { id, outcome })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Pieces of calls: what is usual, and what is not.
    fn member() -> impl Strategy<Value = String> {
        let name = prop::sample::select(vec![
            r#""jsonrpc""#,
            r#""id""#,
            r#""method""#,
            r#""params""#,
            r#""p\u0061rams""#,
            r#""x""#,
            r#""\ud800""#,
            "7",
        ]);
        let value = prop::sample::select(vec![
            r#""2.0""#,
            r#""tasks\/get""#,
            "1",
            "01",
            "1e400",
            "null",
            r#"{"taskId":"a","x":[{"taskId":1}]}"#,
            r#"{"taskId":"a","taskId":"b"}"#,
            r#"{"\ud800":1}"#,
            "{}",
            "[]",
            r#""\ud800""#,
        ]);
        (name, value).prop_map(|(name, value)| format!("{name} : {value}"))
    }

    fn usual() -> Vec<String> {
        [r#""jsonrpc":"2.0""#, r#""id":1"#, r#""method":"m""#, r#""params":{"a":1}"#]
            .map(str::to_owned)
            .to_vec()
    }

    /// Calls that are whole, with something more or something else in them.
    fn call() -> impl Strategy<Value = String> {
        let some = prop::sample::subsequence(usual(), 2..=4);
        let more = prop::collection::vec(member(), 0..3);
        let behind = prop::sample::select(vec!["", "", "", " ", "x", "{}"]);
        (some, more, behind).prop_flat_map(|(some, more, behind)| {
            let members: Vec<_> = some.into_iter().chain(more).collect();
            Just(members).prop_shuffle().prop_map(move |members| format!("{{{}}}{behind}", members.join(",")))
        })
    }

    fn parts(call: &Call<'_>) -> (Option<Id>, String, Vec<(String, String)>) {
        let params = call.params.iter().map(|(name, raw)| (name.to_owned(), raw.get().to_owned()));
        (call.id.clone(), call.method.to_string(), params.collect())
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, cases: 2000, ..ProptestConfig::default() })]

        #[test]
        fn one_walk_reads_what_the_steps_read_and_nothing_else(text in call()) {
            let steps = read_flawed(text.as_bytes());
            match (read_flawless(&text), steps) {
                (Some(Ok(walk)), Ok(steps)) => prop_assert_eq!(parts(&walk), parts(&steps)),
                (Some(Err(walk)), Err(steps)) => prop_assert_eq!(walk, steps),
                (None, Err(_)) => {}
                (walk, steps) => prop_assert!(false, "{walk:?} and {steps:?} of {text}"),
            }
        }
    }

    #[test]
    fn both_have_one_bound_for_members() {
        let with = |members: usize, params: usize| {
            let named = |count| (0..count).map(|number| format!(r#""x{number}":0"#)).collect::<Vec<_>>();
            let params = format!(r#""params":{{{}}}"#, named(params).join(","));
            let members = [usual()[..3].to_vec(), vec![params], named(members - 4)].concat();
            format!("{{{}}}", members.join(","))
        };
        for (members, params, whole) in [
            (MAX_MEMBERS, MAX_MEMBERS, true),
            (MAX_MEMBERS + 1, MAX_MEMBERS, false),
            (MAX_MEMBERS, MAX_MEMBERS + 1, false),
        ] {
            let text = with(members, params);
            assert_eq!(read_flawless(&text).is_some(), whole, "{members} {params}");
            assert_eq!(read_flawed(text.as_bytes()).is_ok(), whole, "{members} {params}");
        }
    }
}
