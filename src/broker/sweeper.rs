//! Removes expired tasks, a few at a time.
//!
//! Nobody depends on it to see that a task is gone: every read asks the clock. It gives room back and makes the
//! `expired` events.

use std::time::Duration;

use crate::store::{Store, StoreError};

/// How many tasks one step removes. A step is one commit; a larger one would hold up the commands behind it longer, and keep a
/// processor from the reads beside it.
const STEP: usize = 32;

/// How long it rests when nothing was due: also how late an `expired` event may be.
const IDLE: Duration = Duration::from_millis(200);

/// How long it rests between two steps while more is due, so that commands and reads get their turn: some 3,000 tasks a
/// second. Where tasks come faster than that, new ones take out as many.
const BUSY: Duration = Duration::from_millis(8);

/// How long it rests when the store refuses.
const REFUSED: Duration = Duration::from_secs(1);

/// Sweeps until it is dropped, or the store is broken.
pub(super) async fn run(store: &dyn Store) {
    loop {
        let rest = match store.sweep(STEP).await {
            Ok(swept) if swept.more => BUSY,
            Ok(_) => IDLE,
            Err(StoreError::Broken) => return,
            Err(error) => {
                tracing::warn!(%error, "expired tasks could not be removed; trying again");
                REFUSED
            }
        };
        tokio::time::sleep(rest).await;
    }
}
