//! The clock of the load generator.
//!
//! The product takes its time from one injected clock, and the lints ban the standard library's everywhere else.
//! A measurement is the exception: it must read the real clock, and this is the one place where it does.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result};

/// Now, for durations.
#[allow(
    clippy::disallowed_methods,
    reason = "a measurement reads the real clock; nothing here is product code"
)]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Now, as milliseconds since 1970, to compare with the times that the broker writes into its answers.
#[allow(
    clippy::disallowed_methods,
    reason = "a measurement reads the real clock; nothing here is product code"
)]
pub(crate) fn unix() -> Result<Duration> {
    SystemTime::now().duration_since(UNIX_EPOCH).context("the wall clock stands before 1970")
}
