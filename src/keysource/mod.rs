//! Where keys come from that change while the broker runs: a file that is read again, a server that is asked again.
//!
//! Nothing here is on the way of a request. A request sees the keys of the moment; one that asks for a key that is not
//! known leaves a note, and however many do so, the server is asked once in a while (case C06). Of the last good set
//! nothing is given up before there is a new one.

mod fetch;
mod server;
mod watch;

use std::sync::Arc;
use std::time::Duration;

use crate::auth::{JwksError, KeySet, Keyring, Source};
use crate::clock::Clock;

pub use self::fetch::{Fetcher, UrlError};
pub use self::server::KeyServer;
pub use self::watch::{FILE_EVERY, FileError, KeyFile};

/// The keys that may change, where they come from, and how often that is looked at.
#[derive(Debug)]
pub struct KeySources {
    /// Where the keys go.
    pub keyring: Arc<Keyring>,
    /// A file with a key set.
    pub file: Option<KeyFile>,
    /// A server with a key set.
    pub server: Option<KeyServer>,
}

impl KeySources {
    /// Keeps the keys up to date; never ends.
    pub async fn run(self, clock: Clock) {
        let Self { keyring, file, server } = self;
        let files = async {
            match file {
                Some(file) => file.run(&keyring, &clock).await,
                None => std::future::pending().await,
            }
        };
        let servers = async {
            match &server {
                Some(server) => server.run(&keyring, &clock).await,
                None => std::future::pending().await,
            }
        };
        tokio::join!(files, servers);
    }
}

/// Takes a document as the keys of a source.
fn take(keyring: &Keyring, source: Source, document: &[u8], clock: &Clock) -> Result<(), JwksError> {
    let KeySet { keys, skipped } = KeySet::parse(document)?;
    for (place, reason) in &skipped {
        // The place and not the name: that is a text of somebody else.
        tracing::warn!(?source, place, %reason, "a key of the key set is left out");
    }
    tracing::info!(?source, keys = keys.len(), "took a key set");
    keyring.replace(source, keys, clock.now());
    Ok(())
}

/// Whether something that went wrong is worth a line: the first time, and then once in a while.
#[derive(Debug, Default)]
struct Complaints {
    failures: u32,
}

impl Complaints {
    /// One line for the first failure and for every so many after it.
    const EVERY: u32 = 30;

    /// Tells that nothing was taken; `kept` says whether there are keys from before.
    fn failed(&mut self, what: &'static str, kept: bool, error: &dyn std::fmt::Display) {
        if self.failures.is_multiple_of(Self::EVERY) {
            let so = if kept { "the last good keys stay in force" } else { "there have been none yet" };
            tracing::warn!(%error, failures = self.failures + 1, "{what}; {so}");
        }
        self.failures = self.failures.saturating_add(1);
    }

    fn worked(&mut self, what: &'static str) {
        if self.failures > 0 {
            tracing::info!(failures = self.failures, "{what}");
        }
        self.failures = 0;
    }
}

/// The time between a failure and the next try: doubled from a second on, so that a start is quick and an outage quiet.
fn pause_after(failures: u32, longest: Duration) -> Duration {
    Duration::from_secs(1).saturating_mul(1 << failures.min(10)).min(longest)
}
