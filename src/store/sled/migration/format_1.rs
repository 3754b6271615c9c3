//! Format 1: everything in sled, which was synced for each group, and no journal.
//!
//! What is here is how that format was, as far as the step needs it: where things are, and what a head refers to. It
//! uses nothing of the modules that read the present format but what carries over unchanged by its nature (bytes and
//! their checksums), so that those may change.

use std::path::Path;

use ::sled::Db;
use bytes::{Bytes, BytesMut};
use serde::Deserialize;
use task_broker_core::{OwnerFrom, PayloadRef, TaskId, Timestamp};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed, xxh3_128};

use super::super::compaction::room_for;
use super::super::database::{bounded, sled_says};
use super::super::directory::free_bytes;
use super::super::draft::Draft;
use super::super::open::{OpenError, root_of};
use crate::store::ListPlace;

/// Its number.
pub(in super::super) const FORMAT: u64 = 1;

const STORE_ID: &[u8] = b"mid";
const CLOCK: &[u8] = b"mclock";
const SMALL_BYTES: usize = 4096;
const CHUNK_BYTES: usize = 32 * 1024 - 64;
const MAX_HEAD_BYTES: u64 = 4 << 20;

/// Copies all tasks into a new generation, and says how many.
pub(super) fn copy(
    db: &Db,
    path: &Path,
    new: &Path,
    cache_bytes: u64,
    step: &mut dyn FnMut(u64),
) -> Result<u64, OpenError> {
    let root = root_of(path);
    let free = free_bytes(root).map_err(|error| OpenError::Io { path: root.to_owned(), error })?;
    // How much of the old files is garbage is not known before all of them were read.
    let needed = room_for(0, 0);
    if free < needed {
        return Err(OpenError::NoRoom { path: root.to_owned(), needed, free });
    }
    let mut draft = Draft::new(new, cache_bytes)?;
    let (store_id, clock) = bounded(path, || {
        let store_id = fact(db, path, STORE_ID)?.and_then(|id| String::from_utf8(id).ok());
        let store_id = store_id.ok_or_else(|| damaged(path, "the store's id is missing".into()))?;
        let clock = fact(db, path, CLOCK)?.map(|clock| clock.try_into().map(u64::from_be_bytes)).transpose();
        let clock = clock.map_err(|_length| damaged(path, "the clock's mark: wrong length".into()))?;
        Ok((store_id, clock.unwrap_or_default()))
    })?;
    let mut clock = Timestamp::from_millis(clock);
    let mut tasks = 0;
    bounded(path, || {
        for_each(db, &mut |what| Err(damaged(path, what)), &mut |record| {
            clock = clock.max(record.updated_at);
            draft.put(record.place, record.head, record.payloads)?;
            tasks += 1;
            step(tasks);
            Ok(())
        })
    })?;
    // There was no choice then.
    draft.finish(&store_id, OwnerFrom::Sub, clock)?;
    Ok(tasks)
}

/// A task as it was stored.
pub(in super::super) struct Record {
    pub(in super::super) place: ListPlace,
    pub(in super::super) head: Bytes,
    pub(in super::super) updated_at: Timestamp,
    pub(in super::super) payloads: Vec<(PayloadRef, Bytes)>,
}

/// Reads all tasks. What is wrong is told to `fault`, which says whether to go on.
pub(in super::super) fn for_each(
    db: &Db,
    fault: &mut dyn FnMut(String) -> Result<(), OpenError>,
    take: &mut dyn FnMut(Record) -> Result<(), OpenError>,
) -> Result<(), OpenError> {
    for entry in db.scan_prefix(b"h") {
        let (key, value) = match entry {
            Ok(entry) => entry,
            Err(error) => return fault(format!("reading heads: {}", sled_says(&error))),
        };
        let id = <[u8; 16]>::try_from(key.get(1..).unwrap_or_default()).map(TaskId::from_bytes);
        let Ok(id) = id else {
            fault("a head has a wrong key".into())?;
            continue;
        };
        match read(db, id, &key, &value) {
            Ok(record) => take(record)?,
            Err(what) => fault(format!("task {id}: {what}"))?,
        }
    }
    Ok(())
}

fn damaged(path: &Path, what: String) -> OpenError {
    OpenError::Damaged { path: path.to_owned(), what }
}

fn fact(db: &Db, path: &Path, key: &'static [u8]) -> Result<Option<Vec<u8>>, OpenError> {
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

fn read(db: &Db, id: TaskId, key: &[u8], value: &[u8]) -> Result<Record, String> {
    let body = unseal(key, value)?;
    let head = match body.split_first() {
        Some((0, head)) => Bytes::copy_from_slice(head),
        Some((1, pointer)) => {
            let (digest, length) = pointer.split_at_checked(16).ok_or("a head's pointer is cut")?;
            let length =
                length.try_into().map(u64::from_be_bytes).map_err(|_length| "a head's pointer is cut")?;
            if length > MAX_HEAD_BYTES {
                return Err("a head is too long".into());
            }
            let length = usize::try_from(length).map_err(|_long| "a head is too long")?;
            let head = pieces(db, &[b"x", &id.as_bytes()[..], digest].concat(), length)?;
            if xxh3_128(&head).to_be_bytes() != digest {
                return Err("the digest of a head is wrong".into());
            }
            head.freeze()
        }
        Some(_) | None => return Err("a head of an unknown kind".into()),
    };
    let Ok((decoded, [])) = postcard::take_from_bytes::<Head<'_>>(&head) else {
        return Err("a head cannot be decoded".into());
    };
    let updated_at = Timestamp::from_millis(decoded.updated_at);
    let place = ListPlace { created_at: Timestamp::from_millis(decoded.created_at), id };
    let payload = |reference: Ref| {
        let bytes = read_payload(db, id, reference)?;
        let Ref(revision, checksum, len, place) = reference;
        Ok::<_, String>((PayloadRef::new(revision, place, len, checksum), bytes))
    };
    let payloads = decoded.payloads().into_iter().map(payload).collect::<Result<_, _>>()?;
    Ok(Record { place, head, updated_at, payloads })
}

fn read_payload(db: &Db, id: TaskId, reference: Ref) -> Result<Bytes, String> {
    let Ref(revision, checksum, len, place) = reference;
    let length = usize::try_from(len).map_err(|_long| "a payload is too long")?;
    let prefix = if length <= SMALL_BYTES { b"p" } else { b"c" };
    let stem = [prefix, &id.as_bytes()[..], &revision.to_be_bytes(), &place.to_be_bytes()].concat();
    let bytes = if length <= SMALL_BYTES { get(db, &stem)? } else { pieces(db, &stem, length)?.freeze() };
    if bytes.len() == length && xxh3_64(&bytes) == checksum {
        return Ok(bytes);
    }
    Err(format!("payload {revision}/{place}: other bytes"))
}

/// revision, checksum, length, place
#[derive(Clone, Copy, Deserialize)]
struct Ref(u64, u64, u32, u16);

/// A head of format 1. Members that the step does not look at are here because postcard has no names.
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
