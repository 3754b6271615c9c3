//! The one clock.
//!
//! It is anchored once per process and monotonic from there: a wall clock that steps can neither expire a task
//! early nor bring an expired one back. At start it is moved up to the highest time that the store has kept, so
//! that a machine that comes back with an earlier clock does not undo an expiry either.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use task_broker_core::Timestamp;

/// A handle on the process's clock; clones share it.
#[derive(Clone, Debug)]
pub struct Clock(Arc<Inner>);

#[derive(Debug)]
enum Inner {
    /// The time is `base` plus what has passed since `origin`, in milliseconds.
    System { origin: Instant, base: AtomicU64 },
    /// Tests move it by hand.
    Manual(AtomicU64),
}

impl Clock {
    /// The operating system's clock, read once now.
    #[must_use]
    #[allow(clippy::disallowed_methods, reason = "this is the one place that asks the operating system")]
    pub fn system() -> Self {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let base = AtomicU64::new(u64::try_from(wall.as_millis()).unwrap_or(u64::MAX));
        Self(Arc::new(Inner::System { origin: Instant::now(), base }))
    }

    /// A clock that stands still until it is moved.
    #[must_use]
    pub fn manual(start: Timestamp) -> Self {
        Self(Arc::new(Inner::Manual(AtomicU64::new(start.as_millis()))))
    }

    /// The time now. Never less than an earlier answer of the same clock.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        match &*self.0 {
            Inner::System { origin, base } => {
                Timestamp::from_millis(base.load(Ordering::Acquire)).saturating_add(millis_since(*origin))
            }
            Inner::Manual(now) => Timestamp::from_millis(now.load(Ordering::Acquire)),
        }
    }

    /// How far this clock is ahead of the operating system's, in milliseconds; negative when it is behind. It was
    /// anchored once, and the other one may have been set since.
    #[must_use]
    pub fn ahead_ms(&self) -> i64 {
        let signed = |time: Timestamp| i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
        match &*self.0 {
            Inner::System { .. } => signed(self.now()).saturating_sub(signed(Self::system().now())),
            Inner::Manual(_) => 0,
        }
    }

    /// Makes sure that the clock shows at least `floor` from now on.
    pub fn not_before(&self, floor: Timestamp) {
        match &*self.0 {
            Inner::System { origin, base } => {
                let needed = floor.as_millis().saturating_sub(millis_since(*origin));
                base.fetch_max(needed, Ordering::AcqRel);
            }
            Inner::Manual(now) => {
                now.fetch_max(floor.as_millis(), Ordering::AcqRel);
            }
        }
    }

    /// Moves a manual clock forward; a system clock moves by itself.
    pub fn advance(&self, by: Duration) {
        if let Inner::Manual(now) = &*self.0 {
            now.fetch_add(u64::try_from(by.as_millis()).unwrap_or(u64::MAX), Ordering::AcqRel);
        }
    }
}

/// How long something takes. Nothing that is kept may depend on it.
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch(Instant);

impl Stopwatch {
    /// Starts now.
    #[must_use]
    #[allow(clippy::disallowed_methods, reason = "this is the one place that asks the operating system")]
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// What has passed since.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }
}

fn millis_since(origin: Instant) -> u64 {
    u64::try_from(origin.elapsed().as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_never_shows_less_than_the_floor() {
        let clock = Clock::system();
        let floor = clock.now().saturating_add(3_600_000);
        clock.not_before(floor);
        assert!(clock.now() >= floor);
        clock.not_before(Timestamp::from_millis(5));
        assert!(clock.now() >= floor, "a lower floor does not move it back");
    }

    #[test]
    fn a_manual_clock_moves_only_by_hand() {
        let clock = Clock::manual(Timestamp::from_millis(1_000));
        clock.advance(Duration::from_millis(5));
        assert_eq!(clock.now(), Timestamp::from_millis(1_005));
    }
}
