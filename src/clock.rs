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
    /// Tests move it by hand, and the operating system's with it or alone.
    Manual { now: AtomicU64, wall: AtomicU64 },
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
        let at = || AtomicU64::new(start.as_millis());
        Self(Arc::new(Inner::Manual { now: at(), wall: at() }))
    }

    /// The time now. Never less than an earlier answer of the same clock.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        match &*self.0 {
            Inner::System { origin, base } => {
                Timestamp::from_millis(base.load(Ordering::Acquire)).saturating_add(millis_since(*origin))
            }
            Inner::Manual { now, .. } => Timestamp::from_millis(now.load(Ordering::Acquire)),
        }
    }

    /// How far this clock is ahead of the operating system's, in milliseconds; negative when it is behind. It was
    /// anchored once, and the other one may have been set since.
    #[must_use]
    pub fn ahead_ms(&self) -> i64 {
        let wall = match &*self.0 {
            Inner::System { .. } => Self::system().now(),
            Inner::Manual { wall, .. } => Timestamp::from_millis(wall.load(Ordering::Acquire)),
        };
        let signed = |time: Timestamp| i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
        signed(self.now()).saturating_sub(signed(wall))
    }

    /// Makes sure that the clock shows at least `floor` from now on.
    pub fn not_before(&self, floor: Timestamp) {
        match &*self.0 {
            Inner::System { origin, base } => {
                let needed = floor.as_millis().saturating_sub(millis_since(*origin));
                base.fetch_max(needed, Ordering::AcqRel);
            }
            Inner::Manual { now, .. } => {
                now.fetch_max(floor.as_millis(), Ordering::AcqRel);
            }
        }
    }

    /// Moves a manual clock forward, and the operating system's with it; a system clock moves by itself.
    pub fn advance(&self, by: Duration) {
        if let Inner::Manual { now, wall } = &*self.0 {
            let by = u64::try_from(by.as_millis()).unwrap_or(u64::MAX);
            now.fetch_add(by, Ordering::AcqRel);
            wall.fetch_add(by, Ordering::AcqRel);
        }
    }

    /// Sets what a manual clock takes for the operating system's, as an administrator does; the clock stays as it is.
    pub fn set_wall(&self, time: Timestamp) {
        if let Inner::Manual { wall, .. } = &*self.0 {
            wall.store(time.as_millis(), Ordering::Release);
        }
    }
}

/// How far the two clocks may be apart before it is told, in milliseconds. And how much more or less is told anew.
const APART_MS: u64 = 1000;

/// How near they must come to count as together: less, so that what stands at the limit is not told again and again.
const TOGETHER_MS: u64 = 500;

/// What is new about how far a [`Clock`] is ahead of the operating system's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DriftNews {
    /// They are apart by so many milliseconds, and were not, or by another time.
    Apart(i64),
    /// They were apart and are not any more.
    Together(i64),
}

/// What has been told about how far a [`Clock`] is ahead.
#[derive(Clone, Copy, Debug, Default)]
pub struct Drift {
    /// The last that was told, while they are apart.
    told: Option<i64>,
}

impl Drift {
    /// Says what is new, each thing once. To be called regularly.
    pub fn look(&mut self, clock: &Clock) -> Option<DriftNews> {
        let ahead = clock.ahead_ms();
        let limit = if self.told.is_some() { TOGETHER_MS } else { APART_MS };
        if ahead.unsigned_abs() <= limit {
            return self.told.take().map(|_apart| DriftNews::Together(ahead));
        }
        let is_new = self.told.is_none_or(|told| ahead.abs_diff(told) > APART_MS);
        is_new.then(|| {
            self.told = Some(ahead);
            DriftNews::Apart(ahead)
        })
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

    /// A manual clock beside an operating system's that shows noon.
    fn at_noon() -> (Clock, Timestamp) {
        let noon = Timestamp::from_millis(12 * 3_600_000);
        (Clock::manual(noon), noon)
    }

    #[test]
    fn each_step_of_the_wall_clock_is_told_once_and_so_is_its_end() {
        let (clock, noon) = at_noon();
        let mut drift = Drift::default();
        assert_eq!(drift.look(&clock), None);
        for (wall, news) in [
            (noon.saturating_add(5000), DriftNews::Apart(-5000)),
            (noon.saturating_add(9000), DriftNews::Apart(-9000)),
            (Timestamp::from_millis(noon.as_millis() - 5000), DriftNews::Apart(5000)),
            (noon, DriftNews::Together(0)),
            (noon.saturating_add(1001), DriftNews::Apart(-1001)),
            (noon.saturating_add(500), DriftNews::Together(-500)),
        ] {
            clock.set_wall(wall);
            assert_eq!(drift.look(&clock), Some(news));
            assert_eq!(drift.look(&clock), None, "{news:?} is told again");
        }
    }

    #[test]
    fn a_start_before_the_time_that_was_kept_is_told() {
        let (clock, noon) = at_noon();
        clock.not_before(noon.saturating_add(90_000));
        let mut drift = Drift::default();
        assert_eq!(drift.look(&clock), Some(DriftNews::Apart(90_000)));
        assert_eq!(drift.look(&clock), None);
    }

    #[test]
    fn what_stands_at_the_limit_is_told_once() {
        let (clock, noon) = at_noon();
        let mut drift = Drift::default();
        let told: Vec<_> = (0..100_u64)
            .filter_map(|n| {
                clock.set_wall(noon.saturating_add(990 + 20 * (n % 2)));
                drift.look(&clock)
            })
            .collect();
        assert_eq!(told, [DriftNews::Apart(-1010)]);
    }
}
