//! Stored records as a fuzz target; see the crate's module `fuzzing`.

use std::sync::Arc;

use task_broker_core::{TaskId, check};

use super::checkpoint::Checkpoint;
use super::intern::Interner;
pub(crate) use super::journal::fuzzing::journal;
use super::{bundle, keys, record, seal};
use crate::fuzzing::{Gauge, Reached, within};

const ID: TaskId = TaskId::from_bytes([0x11; 16]);

/// What decoding may have allocated at one moment: an entry of a list is at most 50 times as large as its shortest form,
/// and serde reserves up to 1 MiB for a list before it has seen that it is not there.
const fn room(length: usize) -> usize {
    128 * length + (1 << 20) + 64 * 1024
}

/// A value of the tree. The first byte says of which kind.
pub(crate) fn record(data: &[u8], gauge: Gauge) -> Reached {
    let Some((kind, data)) = data.split_first() else { return Reached::Refused };
    match kind {
        b'h' => head(data, gauge),
        b'c' => checkpoint(data),
        b'b' => bundle(data),
        _ => sealed(data),
    }
}

/// The bytes of a head.
fn head(data: &[u8], gauge: Gauge) -> Reached {
    let decode = |bytes: &[u8]| record::decode(ID, bytes, &mut Interner::default());
    let Ok(task) = within(gauge, room(data.len()), || decode(data)) else { return Reached::Refused };
    assert_eq!(check(&task), Ok(()), "a task that the core would not know");
    assert_eq!(task.id, ID);
    let again = record::encode(&task);
    let again = again.unwrap_or_default();
    assert!(again.len() <= data.len(), "what is written is the shortest form");
    assert_eq!(decode(&again).as_ref(), Ok(&task), "it is not what it was when it is written again");
    // The names are shared, and shared names are the same names.
    let mut names = Interner::default();
    let twice = [record::decode(ID, data, &mut names), record::decode(ID, data, &mut names)];
    let [Ok(first), Ok(second)] = twice else { return assert_same(false) };
    assert!(Arc::ptr_eq(&first.tool_name, &second.tool_name) && first == task);
    // In its envelope it comes back, and with one byte changed, or under another key, it does not.
    enveloped(b"h", &again);
    Reached::Taken
}

fn assert_same(same: bool) -> Reached {
    assert!(same, "the same bytes were refused the second time");
    Reached::Refused
}

/// A task with its small payloads.
fn bundle(data: &[u8]) -> Reached {
    let Ok(bundle) = bundle::Bundle::decode(data) else { return Reached::Refused };
    let payloads: Vec<_> = bundle.payloads().collect();
    assert_eq!(bundle::encode(bundle.head, &payloads), data, "two forms of one bundle");
    for (reference, _) in &payloads {
        assert!(bundle.get(reference).is_some_and(|bytes| bytes.len() as u64 == u64::from(reference.len)));
    }
    Reached::Taken
}

fn checkpoint(data: &[u8]) -> Reached {
    let Ok(checkpoint) = Checkpoint::decode(data) else { return Reached::Refused };
    let value = checkpoint.seal().unwrap_or_default();
    let body = seal::open(keys::CHECKPOINT, &value);
    assert_eq!(body.and_then(Checkpoint::decode), Ok(checkpoint));
    Reached::Taken
}

/// A key and a value: the length of the key, the key, the value.
fn sealed(data: &[u8]) -> Reached {
    let Some((length, rest)) = data.split_first() else { return Reached::Refused };
    let (key, value) = rest.split_at(usize::from(*length).min(rest.len()));
    enveloped(key, value);
    let Ok(body) = seal::open(key, value) else { return Reached::Refused };
    assert_eq!(seal::seal(key, body), value, "two values are one");
    assert_eq!(seal::peek(value), body);
    Reached::Taken
}

/// Puts a body into its envelope.
fn enveloped(key: &[u8], body: &[u8]) {
    let value = seal::seal(key, body);
    assert_eq!(seal::open(key, &value), Ok(body), "a body does not come back");
    let other = [key, b"\0"].concat();
    assert!(seal::open(&other, &value).is_err(), "under another key");
    // A step that meets all places of short values, and some of long ones.
    for at in (0..value.len()).step_by(1 + value.len() / 16) {
        let mut changed = value.clone();
        if let Some(byte) = changed.get_mut(at) {
            *byte ^= 1 << (at % 8);
        }
        assert!(seal::open(key, &changed).is_err(), "byte {at} was changed");
        assert!(seal::open(key, value.get(..at).unwrap_or_default()).is_err(), "cut at {at}");
    }
}
