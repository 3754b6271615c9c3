//! Reading what sled has about a task.

use std::fmt::Display;

use ::sled::{Db, IVec};
use bytes::{Bytes, BytesMut};
use task_broker_core::PayloadRef;
use xxhash_rust::xxh3::xxh3_128;

use super::bundle::Bundle;
use super::database::sled_says;
use super::keys;
use super::seal::{self, Broken};
use crate::panics;
use crate::store::{ListPlace, StoreError};

/// The first byte of what stands under a task's key: all of its bundle follows.
pub(super) const INLINE: u8 = 0;
/// The first byte of what stands under a task's key: digest and length follow, the bundle is in pieces.
const POINTER: u8 = 1;

/// The largest bundle that is believed. A head at all of its limits has about 700 KiB, and there are at most 1,024 answers,
/// 64 questions, and three more payloads of 2 KiB beside it.
const MAX_BUNDLE_BYTES: u64 = 8 << 20;

/// What stands under the key of a task whose bundle is in pieces.
pub(super) fn pointer(digest: u128, length: usize) -> Vec<u8> {
    let mut body = vec![POINTER];
    body.extend_from_slice(&digest.to_be_bytes());
    body.extend_from_slice(&u64::try_from(length).unwrap_or(u64::MAX).to_be_bytes());
    body
}

/// A task as it is stored.
#[derive(Debug)]
pub(super) struct Stored {
    bytes: IVec,
    /// The keys of its pieces, if it did not fit into one value.
    pub(super) pieces: Vec<Vec<u8>>,
}

impl Stored {
    /// Reads the task that `value` under `key` is, or points to.
    pub(super) fn read(db: &Db, place: ListPlace, key: &[u8], value: &IVec) -> Result<Self, Broken> {
        let body = seal::open(key, value)?;
        match body.split_first() {
            Some((&INLINE, bundle)) => {
                let bytes = value.subslice(value.len() - bundle.len(), bundle.len());
                Ok(Self { bytes, pieces: Vec::new() })
            }
            Some((&POINTER, pointer)) => {
                let (digest, length) = pointer.split_at_checked(16).ok_or(Broken::Content)?;
                let digest = u128::from_be_bytes(digest.try_into().map_err(|_length| Broken::Content)?);
                let length = u64::from_be_bytes(length.try_into().map_err(|_length| Broken::Content)?);
                if length > MAX_BUNDLE_BYTES {
                    return Err(Broken::Content);
                }
                let mut bundle = Vec::new();
                let mut pieces = Vec::new();
                for (key, _) in keys::overflow(place, digest, usize::try_from(length).unwrap_or(usize::MAX)) {
                    let piece = db.get(&key).ok().flatten().ok_or(Broken::Short)?;
                    bundle.extend_from_slice(seal::open(&key, &piece)?);
                    pieces.push(key);
                }
                if xxh3_128(&bundle) != digest {
                    return Err(Broken::Checksum);
                }
                Ok(Self { bytes: bundle.into(), pieces })
            }
            Some(_) | None => Err(Broken::Content),
        }
    }

    /// What is in it.
    pub(super) fn bundle(&self) -> Result<Bundle<'_>, Broken> {
        Bundle::decode(&self.bytes)
    }
}

/// Reads a payload. `Ok(None)` when it, or a piece of it, is not there, which is damage only if its task still names it.
pub(super) fn read_payload(
    db: &Db,
    place: ListPlace,
    reference: &PayloadRef,
) -> Result<Option<Bytes>, StoreError> {
    let damaged = |why: &dyn Display| StoreError::Damaged {
        place: format!("payload {}/{} of task {}: {why}", reference.revision, reference.place(), place.id),
    };
    // A read of damaged data can panic inside sled; the request must get an answer all the same.
    let get = |key: &[u8]| {
        panics::catch(|| db.get(key))
            .map_err(|_panic| damaged(&"sled panicked"))?
            .map_err(|error| damaged(&sled_says(&error)))
    };
    if keys::is_small(reference) {
        return read_small(db, place, reference, &get, &damaged);
    }
    let length = usize::try_from(reference.len).unwrap_or(usize::MAX);
    let mut bytes = BytesMut::with_capacity(length);
    let mut values = Vec::new();
    for (key, _) in keys::chunks(place, reference) {
        let Some(value) = get(&key)? else { return Ok(None) };
        bytes.extend_from_slice(seal::peek(&value));
        values.push((key, value));
    }
    // The head's checksum of the whole proves all pieces at once; theirs only tell which one is wrong.
    if reference.matches(&bytes) {
        return Ok(Some(bytes.freeze()));
    }
    let wrong = values.iter().find_map(|(key, value)| seal::open(key, value).err());
    Err(wrong.map_or_else(|| damaged(&"other bytes"), |broken| damaged(&broken)))
}

/// A payload that is kept with its head.
fn read_small(
    db: &Db,
    place: ListPlace,
    reference: &PayloadRef,
    get: &impl Fn(&[u8]) -> Result<Option<IVec>, StoreError>,
    damaged: &impl Fn(&dyn Display) -> StoreError,
) -> Result<Option<Bytes>, StoreError> {
    let key = keys::head(place);
    let Some(mut value) = get(&key)? else { return Ok(None) };
    loop {
        let stored = panics::catch(|| Stored::read(db, place, &key, &value));
        let broken = match stored.map_err(|_panic| damaged(&"sled panicked"))? {
            Ok(stored) => {
                let bundle = stored.bundle().map_err(|broken| damaged(&broken))?;
                let Some(bytes) = bundle.get(reference) else { return Ok(None) };
                if !reference.matches(bytes) {
                    return Err(damaged(&"other bytes"));
                }
                return Ok(Some(Bytes::copy_from_slice(bytes)));
            }
            Err(broken) => broken,
        };
        // A task in pieces may have been written anew while they were read, and then the old ones go.
        let Some(now) = get(&key)? else { return Ok(None) };
        if now == value {
            return Err(damaged(&broken));
        }
        value = now;
    }
}
