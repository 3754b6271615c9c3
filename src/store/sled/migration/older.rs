//! Heads and payloads as formats 1 and 2 had them: under keys of their own, sealed, in pieces where they were large. The two
//! differ in what stands between the first byte of a key and the rest: the id in format 1, the place in format 2.
//!
//! It uses nothing of the modules that read the present format but what carries over unchanged by its nature (bytes and
//! their checksums), so that those may change.

use std::path::Path;

use ::sled::Db;
use bytes::{Bytes, BytesMut};
use serde::Deserialize;
use task_broker_core::{PayloadRef, TaskId, Timestamp};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed, xxh3_128};

use super::super::database::{bounded, sled_says};
use super::super::draft::Draft;
use super::super::open::OpenError;
use crate::store::ListPlace;

const SMALL_BYTES: usize = 4096;
const CHUNK_BYTES: usize = 32 * 1024 - 64;
const MAX_HEAD_BYTES: u64 = 4 << 20;

/// Is told of what is wrong, and says whether to go on.
pub(in super::super) type Fault<'a> = dyn FnMut(String) -> Result<(), OpenError> + 'a;
/// Takes a task.
pub(in super::super) type Take<'a> = dyn FnMut(Record) -> Result<(), OpenError> + 'a;

/// Puts all tasks into a draft; the first fault ends it. Says how many there are, and the latest time of them and `clock`.
pub(super) fn fill(
    draft: &mut Draft,
    path: &Path,
    mut clock: Timestamp,
    step: &mut dyn FnMut(u64),
    for_each: impl FnOnce(&mut Fault<'_>, &mut Take<'_>) -> Result<(), OpenError>,
) -> Result<(u64, Timestamp), OpenError> {
    let mut tasks = 0;
    bounded(path, || {
        for_each(&mut |what| Err(damaged(path, what)), &mut |record| {
            clock = clock.max(record.updated_at);
            draft.put(record.place, record.head, record.payloads)?;
            tasks += 1;
            step(tasks);
            Ok(())
        })
    })?;
    Ok((tasks, clock))
}

/// A task as it was stored.
pub(in super::super) struct Record {
    pub(in super::super) place: ListPlace,
    pub(in super::super) head: Bytes,
    pub(in super::super) updated_at: Timestamp,
    pub(in super::super) payloads: Vec<(PayloadRef, Bytes)>,
}

impl Record {
    /// The task that a value under `h` is the head of. `at` is what stands in its keys behind the first byte.
    pub(super) fn read(db: &Db, id: TaskId, at: &[u8], value: &[u8]) -> Result<Self, String> {
        let head = read_head(db, at, value)?;
        Self::of(id, head, |reference| read_payload(db, at, reference))
    }

    /// The task of a head, with payloads from wherever they are.
    pub(super) fn of(
        id: TaskId,
        head: Bytes,
        read: impl Fn(&PayloadRef) -> Result<Bytes, String>,
    ) -> Result<Self, String> {
        let Ok((decoded, [])) = postcard::take_from_bytes::<Head<'_>>(&head) else {
            return Err("a head cannot be decoded".into());
        };
        let updated_at = Timestamp::from_millis(decoded.updated_at);
        let place = ListPlace { created_at: Timestamp::from_millis(decoded.created_at), id };
        let payload = |Ref(revision, checksum, len, place)| {
            let reference = PayloadRef::new(revision, place, len, checksum);
            read(&reference).map(|bytes| (reference, bytes))
        };
        let payloads = decoded.payloads().into_iter().map(payload).collect::<Result<_, _>>()?;
        Ok(Self { place, head, updated_at, payloads })
    }
}

pub(super) fn damaged(path: &Path, what: String) -> OpenError {
    OpenError::Damaged { path: path.to_owned(), what }
}

pub(super) fn fact(db: &Db, path: &Path, key: &'static [u8]) -> Result<Option<Vec<u8>>, OpenError> {
    let value = db.get(key).map_err(|error| damaged(path, sled_says(&error)))?;
    let body = value.map(|value| unseal(key, &value).map(<[u8]>::to_vec)).transpose();
    body.map_err(|what| damaged(path, what.to_owned()))
}

/// A version byte, eight bytes of checksum over key and body, the body.
fn unseal<'a>(key: &[u8], value: &'a [u8]) -> Result<&'a [u8], &'static str> {
    let Some((&[1], rest)) =
        value.split_at_checked(1).and_then(|(v, rest)| Some((v.first_chunk::<1>()?, rest)))
    else {
        return Err("a record has another version");
    };
    let (sum, body) = rest.split_at_checked(8).ok_or("a record is cut")?;
    let right = xxh3_64_with_seed(body, xxh3_64(key)).to_le_bytes();
    if sum == right { Ok(body) } else { Err("the checksum of a record is wrong") }
}

fn get(db: &Db, key: &[u8]) -> Result<Bytes, String> {
    let value = db.get(key).map_err(|error| sled_says(&error))?.ok_or("a record is missing")?;
    unseal(key, &value).map(Bytes::copy_from_slice).map_err(str::to_owned)
}

/// What is under the numbered keys behind `stem`.
fn pieces(db: &Db, stem: &[u8], length: usize) -> Result<BytesMut, String> {
    let mut whole = BytesMut::with_capacity(length);
    for index in 0..length.div_ceil(CHUNK_BYTES) {
        let index = u32::try_from(index).map_err(|_many| "too many pieces")?;
        whole.extend_from_slice(&get(db, &[stem, &index.to_be_bytes()].concat())?);
    }
    Ok(whole)
}

fn read_head(db: &Db, at: &[u8], value: &[u8]) -> Result<Bytes, String> {
    let body = unseal(&[b"h", at].concat(), value)?;
    match body.split_first() {
        Some((0, head)) => Ok(Bytes::copy_from_slice(head)),
        Some((1, pointer)) => {
            let (digest, length) = pointer.split_at_checked(16).ok_or("a head's pointer is cut")?;
            let length =
                length.try_into().map(u64::from_be_bytes).map_err(|_length| "a head's pointer is cut")?;
            if length > MAX_HEAD_BYTES {
                return Err("a head is too long".into());
            }
            let length = usize::try_from(length).map_err(|_long| "a head is too long")?;
            let head = pieces(db, &[b"x", at, digest].concat(), length)?;
            if xxh3_128(&head).to_be_bytes() != digest {
                return Err("the digest of a head is wrong".into());
            }
            Ok(head.freeze())
        }
        Some(_) | None => Err("a head of an unknown kind".into()),
    }
}

/// A payload that is in sled.
pub(super) fn read_payload(db: &Db, at: &[u8], reference: &PayloadRef) -> Result<Bytes, String> {
    let length = usize::try_from(reference.len).map_err(|_long| "a payload is too long")?;
    let prefix = if length <= SMALL_BYTES { b"p" } else { b"c" };
    let (revision, place) = (reference.revision, reference.place());
    let stem = [prefix, at, &revision.to_be_bytes(), &place.to_be_bytes()].concat();
    let bytes = if length <= SMALL_BYTES { get(db, &stem)? } else { pieces(db, &stem, length)?.freeze() };
    if bytes.len() == length && xxh3_64(&bytes) == reference.checksum {
        return Ok(bytes);
    }
    Err(format!("payload {revision}/{place}: other bytes"))
}

/// revision, checksum, length, place
#[derive(Clone, Copy, Deserialize)]
struct Ref(u64, u64, u32, u16);

/// A head. Members that the step does not look at are here because postcard has no names.
#[derive(Deserialize)]
#[allow(dead_code, reason = "the encoding needs every member, in its place")]
struct Head<'a> {
    tool_name: &'a str,
    creator: Option<&'a str>,
    owner: Option<&'a str>,
    phase: Phase,
    message: &'a str,
    created_at: u64,
    updated_at: u64,
    ttl_ms: u64,
    poll_interval_ms: u32,
    revision: u64,
    cancel_requested: bool,
    arguments: Ref,
    meta: Option<Ref>,
    #[serde(borrow)]
    inputs: Option<Inputs<'a>>,
    #[serde(borrow)]
    replay: Option<Replay<'a>>,
    history: Vec<(u64, u64, u8, bool)>,
}

impl Head<'_> {
    fn payloads(&self) -> Vec<Ref> {
        let end = match self.phase {
            Phase::Completed(payload) | Phase::Failed(payload) => Some(payload),
            Phase::Working | Phase::InputRequired | Phase::Cancelled => None,
        };
        let inputs = self.inputs.iter();
        let questions =
            inputs.clone().flat_map(|inputs| inputs.outstanding.iter().map(|(_, payload, _)| *payload));
        let answers = inputs.flat_map(|inputs| inputs.answers.iter().map(|(_, payload)| *payload));
        std::iter::once(self.arguments).chain(self.meta).chain(end).chain(questions).chain(answers).collect()
    }
}

#[derive(Deserialize)]
enum Phase {
    Working,
    InputRequired,
    Completed(Ref),
    Failed(Ref),
    Cancelled,
}

#[derive(Deserialize)]
#[allow(dead_code, reason = "the encoding needs every member, in its place")]
struct Inputs<'a> {
    #[serde(borrow)]
    outstanding: Vec<(&'a str, Ref, u128)>,
    #[serde(borrow)]
    answers: Vec<(&'a str, Ref)>,
    #[serde(borrow)]
    spent: Vec<&'a str>,
}

#[derive(Deserialize)]
#[allow(dead_code, reason = "the encoding needs every member, in its place")]
struct Replay<'a> {
    #[serde(borrow)]
    create: Option<(&'a str, u128)>,
    #[serde(borrow)]
    outcomes: Vec<Outcome<'a>>,
}

#[derive(Deserialize)]
#[allow(dead_code, reason = "the encoding needs every member, in its place")]
struct Outcome<'a> {
    key: &'a str,
    call: u128,
    applied: bool,
    status: u8,
    revision: u64,
    #[serde(borrow)]
    detail: Detail<'a>,
}

#[derive(Deserialize)]
#[allow(dead_code, reason = "the encoding needs every member, in its place")]
enum Detail<'a> {
    None,
    Inputs {
        #[serde(borrow)]
        accepted: Vec<&'a str>,
        #[serde(borrow)]
        outstanding: Vec<&'a str>,
    },
    Ttl(u64, u64),
}
