//! The keys in force. Some never change; others come from a file or a server and are replaced while the broker runs.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use task_broker_core::Timestamp;
use tokio::sync::Notify;

use super::Keys;
use super::cache::{Known, TokenCache, TokenName};

/// Where keys come from that may change while the broker runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// A file with a key set.
    File,
    /// A server with a key set.
    Server,
}

/// Keys from one place.
#[derive(Debug, Default)]
struct Part {
    /// Whether keys are to be expected from there.
    expected: bool,
    /// The last good set.
    keys: Option<Keys>,
    /// When it was last known to be the newest.
    confirmed: Option<Timestamp>,
}

/// The keys at one moment, with the tokens that were verified by them.
#[derive(Debug)]
pub(super) struct Snapshot {
    pub(super) keys: Keys,
    /// Whether every place has given its keys at least once.
    pub(super) complete: bool,
    pub(super) verified: TokenCache,
}

/// The keys in force, shared by those who read them and those who replace them.
#[derive(Debug)]
pub struct Keyring {
    fixed: Keys,
    /// Of the file and of the server, in this order.
    parts: Mutex<[Part; 2]>,
    current: RwLock<Arc<Snapshot>>,
    /// Somebody has sent a token with a key that is not known.
    unknown: Notify,
}

impl Keyring {
    /// Keys that never change, and where others will come from.
    #[must_use]
    pub fn new(fixed: Keys, sources: &[Source]) -> Self {
        let part = |source| Part { expected: sources.contains(&source), ..Part::default() };
        let parts = [part(Source::File), part(Source::Server)];
        let current = RwLock::new(Arc::new(snapshot(&fixed, &parts)));
        Self { fixed, parts: Mutex::new(parts), current, unknown: Notify::new() }
    }

    /// Whether there is, or will be, any key at all.
    #[must_use]
    pub fn is_configured(&self) -> bool {
        !self.fixed.is_empty() || self.parts.lock().iter().any(|part| part.expected)
    }

    /// Takes what a place has now instead of what it had before. Tokens that were verified by keys that are gone are
    /// checked anew.
    pub fn replace(&self, source: Source, keys: Keys, now: Timestamp) {
        let mut parts = self.parts.lock();
        let part = part_of(&mut parts, source);
        part.keys = Some(keys);
        part.confirmed = Some(now);
        *self.current.write() = Arc::new(snapshot(&self.fixed, &parts));
    }

    /// Notes that a place still has what it had.
    pub fn confirm(&self, source: Source, now: Timestamp) {
        part_of(&mut self.parts.lock(), source).confirmed = Some(now);
    }

    /// How long ago the keys of a place were last known to be the newest; `None` before the first time.
    #[must_use]
    pub fn age(&self, source: Source, now: Timestamp) -> Option<Duration> {
        let confirmed = part_of(&mut self.parts.lock(), source).confirmed?;
        Some(Duration::from_millis(now.saturating_since(confirmed)))
    }

    /// Whether every place has given its keys at least once.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.current.read().complete
    }

    /// Waits until a token asks for a key by a name that is not known. However many did so in the meantime, that is one
    /// answer.
    pub async fn unknown_key(&self) {
        self.unknown.notified().await;
    }

    /// Tells that a token asks for a key by a name that is not known.
    pub(super) fn tell_unknown_key(&self) {
        self.unknown.notify_one();
    }

    /// What is known about the token of this name by the keys in force.
    pub(super) fn known(&self, name: &TokenName) -> Option<Known> {
        self.current.read().verified.get(name)
    }

    pub(super) fn current(&self) -> Arc<Snapshot> {
        Arc::clone(&self.current.read())
    }
}

impl From<Keys> for Arc<Keyring> {
    fn from(fixed: Keys) -> Self {
        Self::new(Keyring::new(fixed, &[]))
    }
}

const fn part_of(parts: &mut [Part; 2], source: Source) -> &mut Part {
    let [file, server] = parts;
    match source {
        Source::File => file,
        Source::Server => server,
    }
}

fn snapshot(fixed: &Keys, parts: &[Part; 2]) -> Snapshot {
    let mut keys = fixed.clone();
    for part in parts.iter().filter_map(|part| part.keys.as_ref()) {
        keys.extend(part.iter().cloned());
    }
    let complete = parts.iter().all(|part| !part.expected || part.keys.is_some());
    Snapshot { keys, complete, verified: TokenCache::new() }
}
