//! So many calls a second for each subject: one that calls too often waits, and the others do not notice.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use governor::clock::Clock as GovernorClock;
use governor::middleware::NoOpMiddleware;
use governor::nanos::Nanos;
use governor::state::{InMemoryState, NotKeyed, StateStore};
use governor::{Quota, RateLimiter};
use quick_cache::sync::Cache;
use task_broker_core::Subject;
use task_broker_protocol::envelope::MAX_BATCH;

use crate::clock::Clock;

/// How many subjects are remembered. Whoever was not seen for the longest time is forgotten first, and begins anew.
const MAX_SUBJECTS: usize = 64 * 1024;

/// The limit, and what each subject has used of it.
#[derive(Debug)]
pub(super) struct RateLimits {
    limiter: RateLimiter<Subject, Subjects, BrokerClock, NoOpMiddleware<Nanos>>,
    clock: BrokerClock,
}

/// A subject has called too often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TooOften {
    /// When it may call again, in milliseconds; at least 1.
    pub(super) retry_after_ms: u64,
}

impl RateLimits {
    /// So many calls a second for each subject. As many may come at once, and always a whole batch.
    pub(super) fn new(per_second: NonZeroU32, clock: &Clock) -> Self {
        let clock = BrokerClock(clock.clone());
        let batch = u32::try_from(MAX_BATCH).ok().and_then(NonZeroU32::new).unwrap_or(NonZeroU32::MIN);
        let quota = Quota::per_second(per_second).allow_burst(per_second.max(batch));
        let subjects = Subjects(Cache::new(MAX_SUBJECTS));
        Self { limiter: RateLimiter::new(quota, subjects, clock.clone()), clock }
    }

    /// Takes so many calls from what the subject may do; all of them or none.
    pub(super) fn take(&self, subject: &Subject, calls: usize) -> Result<(), TooOften> {
        let Some(calls) = u32::try_from(calls).ok().and_then(NonZeroU32::new) else { return Ok(()) };
        match self.limiter.check_key_n(subject, calls) {
            Ok(Ok(())) => Ok(()),
            Ok(Err(until)) => {
                let wait = until.wait_time_from(self.clock.now()).as_micros().div_ceil(1000);
                Err(TooOften { retry_after_ms: u64::try_from(wait).unwrap_or(u64::MAX).max(1) })
            }
            // More than ever comes together; a batch has fewer.
            Err(_more_than_the_burst) => Err(TooOften { retry_after_ms: 1000 }),
        }
    }
}

/// The broker's clock, as the library wants it.
#[derive(Clone, Debug)]
struct BrokerClock(Clock);

impl GovernorClock for BrokerClock {
    type Instant = Nanos;

    fn now(&self) -> Nanos {
        Duration::from_millis(self.0.now().as_millis()).into()
    }
}

/// What each subject has used; so many subjects at most.
#[derive(Debug)]
struct Subjects(Cache<Subject, Arc<InMemoryState>>);

impl StateStore for Subjects {
    type Key = Subject;

    fn measure_and_replace<T, F, E>(&self, subject: &Subject, decide: F) -> Result<T, E>
    where
        F: Fn(Option<Nanos>) -> Result<(T, Nanos), E>,
    {
        let state = self.0.get(subject).unwrap_or_else(|| {
            let new = || Ok::<_, std::convert::Infallible>(Arc::default());
            // Two first calls at once share one state.
            self.0.get_or_insert_with(subject, new).unwrap_or_default()
        });
        state.measure_and_replace(&NotKeyed::NonKey, decide)
    }
}

#[cfg(test)]
mod tests {
    use task_broker_core::Timestamp;

    use super::*;

    fn limits(per_second: u32) -> (RateLimits, Clock) {
        let clock = Clock::manual(Timestamp::from_millis(1_800_000_000_000));
        (RateLimits::new(per_second.try_into().unwrap(), &clock), clock)
    }

    fn take(limits: &RateLimits, name: &str, calls: usize) -> Result<(), TooOften> {
        limits.take(&Some(Arc::from(name)), calls)
    }

    #[test]
    fn a_subject_that_calls_too_often_waits_and_the_others_do_not() {
        let (limits, clock) = limits(200);
        for _ in 0..200 {
            assert_eq!(take(&limits, "alice", 1), Ok(()));
        }
        assert_eq!(take(&limits, "alice", 1), Err(TooOften { retry_after_ms: 5 }));
        assert_eq!(take(&limits, "bob", 1), Ok(()));
        assert_eq!(limits.take(&None, 1), Ok(()), "anonymous callers are one subject of their own");
        clock.advance(Duration::from_millis(5));
        assert_eq!(take(&limits, "alice", 1), Ok(()));
        assert!(take(&limits, "alice", 1).is_err());
        clock.advance(Duration::from_hours(1));
        for _ in 0..200 {
            assert_eq!(take(&limits, "alice", 1), Ok(()));
        }
        assert!(take(&limits, "alice", 1).is_err(), "what was not used is not saved up");
    }

    #[test]
    fn a_batch_counts_as_its_calls_and_is_taken_whole_or_not_at_all() {
        let (limits, clock) = limits(1);
        assert_eq!(take(&limits, "alice", 100), Ok(()), "a whole batch is always possible");
        let refused = take(&limits, "alice", 100).unwrap_err();
        assert_eq!(refused.retry_after_ms, 100_000);
        clock.advance(Duration::from_secs(1));
        assert_eq!(take(&limits, "alice", 2).unwrap_err().retry_after_ms, 1000);
        assert_eq!(take(&limits, "alice", 1), Ok(()), "a refused one has used nothing");
    }

    #[test]
    fn the_subjects_that_are_remembered_have_a_bound() {
        let (limits, _clock) = limits(1);
        for number in 0..3 * MAX_SUBJECTS {
            take(&limits, &number.to_string(), 1).unwrap();
        }
        assert!(limits.limiter.into_state_store().0.len() <= MAX_SUBJECTS);
    }
}
