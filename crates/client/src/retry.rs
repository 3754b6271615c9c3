//! When a call is repeated, and when no more.

use std::time::Duration;

use tokio::time::Instant;

/// The first pause. The ones after it double.
const FIRST: Duration = Duration::from_millis(50);

/// The longest pause of its own choosing.
const LONGEST: Duration = Duration::from_secs(2);

/// The longest pause that the other side can ask for; a wrong `Retry-After` must not put a call to sleep for hours.
const LONGEST_ASKED: Duration = Duration::from_secs(30);

/// Attempts of one call, whatever the budget says.
const MAX_ATTEMPTS: u32 = 1000;

/// The attempts of one logical call.
#[derive(Debug)]
pub(crate) struct Attempts {
    started: Instant,
    budget: Duration,
    made: u32,
}

impl Attempts {
    /// Begins a call whose pauses and attempts may begin within `budget`.
    pub(crate) fn new(budget: Duration) -> Self {
        Self { started: Instant::now(), budget, made: 0 }
    }

    /// The budget begins now.
    pub(crate) fn count_from_now(&mut self) {
        self.started = Instant::now();
    }

    pub(crate) fn begin(&mut self) {
        self.made = self.made.saturating_add(1);
    }

    pub(crate) fn made(&self) -> u32 {
        self.made
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// How long to pause before the next attempt; `None` when there shall be none. `asked` is what the other side
    /// asked for.
    pub(crate) fn pause(&self, asked: Option<Duration>) -> Option<Duration> {
        let pause = backoff(self.made, random()).max(asked.unwrap_or_default().min(LONGEST_ASKED));
        let fits = self.elapsed().saturating_add(pause) <= self.budget;
        (fits && self.made < MAX_ATTEMPTS).then_some(pause)
    }
}

/// The pause after so many attempts: exponential, and between its half and its whole by `random`, so that callers
/// that were interrupted together do not come back together.
pub(crate) fn backoff(made: u32, random: u16) -> Duration {
    let doubled = FIRST.saturating_mul(1_u32.checked_shl(made.saturating_sub(1)).unwrap_or(u32::MAX));
    let whole = doubled.min(LONGEST);
    let half = whole / 2;
    half.saturating_add(half.saturating_mul(u32::from(random)) / u32::from(u16::MAX))
}

/// A random number; without any randomness the middle, because a pause is no secret.
pub(crate) fn random() -> u16 {
    let mut bytes = [0; 2];
    match getrandom::fill(&mut bytes) {
        Ok(()) => u16::from_ne_bytes(bytes),
        Err(_no_randomness) => u16::MAX / 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_bound_and_are_spread_over_their_upper_half() {
        for (made, whole) in [(1, 50), (2, 100), (3, 200), (6, 1600), (7, 2000), (40, 2000), (u32::MAX, 2000)]
        {
            assert_eq!(backoff(made, u16::MAX), Duration::from_millis(whole));
            assert_eq!(backoff(made, 0), Duration::from_millis(whole / 2));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_pause_that_does_not_fit_into_the_budget_is_none() {
        let mut attempts = Attempts::new(Duration::from_secs(1));
        attempts.begin();
        assert!(attempts.pause(None).unwrap() <= FIRST);
        assert_eq!(attempts.pause(Some(Duration::from_millis(900))), Some(Duration::from_millis(900)));
        assert_eq!(attempts.pause(Some(Duration::from_millis(1001))), None);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(attempts.pause(None), None);
    }

    #[test]
    fn an_absurd_wish_of_the_other_side_is_cut() {
        let attempts = Attempts::new(Duration::MAX);
        assert_eq!(attempts.pause(Some(Duration::from_hours(24))), Some(LONGEST_ASKED));
    }
}
