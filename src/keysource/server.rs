//! A key set on a server: asked at start, by a timer, and when a token asks for a key that is not known.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::fetch::{FetchError, Fetcher};
use super::{Complaints, pause_after, take};
use crate::auth::{JwksError, Keyring, Source};
use crate::clock::Clock;

/// A server with a key set.
#[derive(Debug)]
pub struct KeyServer {
    /// Asks it.
    pub fetcher: Fetcher,
    /// How often it is asked when there is no reason to.
    pub refresh: Duration,
    /// The least time between two questions, whatever tokens come.
    pub cooldown: Duration,
}

#[derive(Debug, thiserror::Error)]
enum Fault {
    #[error(transparent)]
    Fetch(#[from] FetchError),
    #[error(transparent)]
    Content(#[from] JwksError),
}

impl KeyServer {
    /// Keeps the keys up to date; never ends.
    pub(super) async fn run(&self, keyring: &Keyring, clock: &Clock) {
        let mut last = Vec::new();
        let mut complaints = Complaints::default();
        loop {
            let asked = Instant::now();
            let next = match self.ask(&mut last, keyring, clock).await {
                Ok(()) => {
                    complaints.worked("the key server answers again");
                    self.refresh
                }
                Err(fault) => {
                    let pause = pause_after(complaints.failures, self.cooldown);
                    let kept = keyring.age(Source::Server, clock.now()).is_some();
                    complaints.failed("the key server gave no keys", kept, &fault);
                    pause
                }
            };
            // After a failure the next question is near enough; otherwise a token may ask for it.
            let timer = sleep_until(asked + next);
            let wanted = async {
                sleep_until(asked + self.cooldown).await;
                keyring.unknown_key().await;
            };
            tokio::select! {
                () = timer => {}
                () = wanted => {}
            }
        }
    }

    async fn ask(&self, last: &mut Vec<u8>, keyring: &Keyring, clock: &Clock) -> Result<(), Fault> {
        let document = self.fetcher.fetch().await?;
        if document == *last {
            keyring.confirm(Source::Server, clock.now());
            return Ok(());
        }
        take(keyring, Source::Server, &document, clock)?;
        *last = document;
        Ok(())
    }
}
