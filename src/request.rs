//! The request that is being worked on: its id, and what became of it so far. Known to everything that runs for it,
//! so that a line in the log can say which request it is about.

use std::cell::Cell;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use tokio::task::futures::TaskLocalFuture;

tokio::task_local! {
    static CURRENT: Current;
}

/// The longest id that is taken over from a client, in bytes: a UUID has 36, most others less.
const MAX_ID_BYTES: usize = 64;

/// The id of a request: of letters, digits and a few signs, so that it can stand in a header and in a log as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestId(Bytes);

impl RequestId {
    /// The id that a client has given, if it is a sane one, or a new one.
    #[must_use]
    pub fn given_or_new(given: Option<&[u8]>) -> Self {
        let sane = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.:".contains(byte);
        match given {
            Some(id) if (1..=MAX_ID_BYTES).contains(&id.len()) && id.iter().all(sane) => {
                Self(Bytes::copy_from_slice(id))
            }
            _ => Self::new(),
        }
    }

    /// One that no other request has. It does not tell how many there were.
    fn new() -> Self {
        static KEY: LazyLock<RandomState> = LazyLock::new(RandomState::new);
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let mixed = KEY.hash_one(NEXT.fetch_add(1, Ordering::Relaxed));
        let digit = |half: u8| if half < 10 { b'0' + half } else { b'a' + (half - 10) };
        let text: [[u8; 2]; 8] = mixed.to_be_bytes().map(|byte| [digit(byte >> 4), digit(byte & 0xf)]);
        Self(Bytes::copy_from_slice(text.as_flattened()))
    }

    /// Its bytes, all of them visible ASCII.
    #[must_use]
    pub const fn as_bytes(&self) -> &Bytes {
        &self.0
    }

    /// The id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

/// What a request was, in words of a closed list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Note {
    /// The method; nothing where no call was read.
    pub method: Option<&'static str>,
    /// `ok`, or the kind of the error.
    pub outcome: Option<&'static str>,
}

/// A request that is being worked on.
#[derive(Debug)]
pub struct Current {
    /// Its id.
    pub id: RequestId,
    note: Cell<Note>,
}

impl Current {
    /// One that has just begun.
    #[must_use]
    pub fn new(id: RequestId) -> Self {
        Self { id, note: Cell::default() }
    }

    /// What was noted last.
    #[must_use]
    pub fn note(&self) -> Note {
        self.note.get()
    }
}

/// Works on a request: what the future does is done for it.
pub fn work_on<F: Future>(current: Current, work: F) -> TaskLocalFuture<Current, F> {
    CURRENT.scope(current, work)
}

/// Does something more for a request whose work is done.
pub fn finish<T>(current: Current, work: impl FnOnce() -> T) -> T {
    CURRENT.sync_scope(current, work)
}

/// Notes what became of the request that is being worked on, if there is one.
pub fn note(note: Note) {
    // Outside of any request there is nobody to tell.
    CURRENT.try_with(|current| current.note.set(note)).unwrap_or_default();
}

/// Gives the id of the request that is being worked on.
#[must_use]
pub fn id() -> Option<RequestId> {
    CURRENT.try_with(|current| current.id.clone()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sane_id_is_taken_over_and_any_other_replaced() {
        let longest = "x".repeat(MAX_ID_BYTES);
        for sane in ["a", "0af7651916cd43dd8448eb211c80319c", "req-1.2:3_4", &longest] {
            assert_eq!(RequestId::given_or_new(Some(sane.as_bytes())).as_str(), sane);
        }
        let long = "x".repeat(MAX_ID_BYTES + 1);
        for odd in
            ["", " ", "a b", "x\n2030 INFO forged", "\u{1b}[2J", "\u{85}", "\u{2028}", "\"", "a,b", &long]
        {
            let id = RequestId::given_or_new(Some(odd.as_bytes()));
            assert_eq!(id.as_str().len(), 16, "{odd:?}");
        }
    }

    #[test]
    fn new_ids_differ() {
        let ids: std::collections::HashSet<_> =
            (0..1000).map(|_| RequestId::given_or_new(None).as_str().to_owned()).collect();
        assert_eq!(ids.len(), 1000);
    }
}
