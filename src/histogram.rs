//! Counts of values in ranges, for metrics: an observation costs two atomic additions.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The upper ends of ranges of time, in microseconds: from one sync of a fast disk to the longest wait.
pub const MICROSECONDS: &[u64] = &[
    100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000,
    2_500_000, 10_000_000, 60_000_000,
];

/// The upper ends of ranges of numbers: the powers of two up to a thousand.
pub const POWERS_OF_TWO: &[u64] = &[1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024];

/// See the module. Any thread may observe; a snapshot may see half of an observation.
#[derive(Debug)]
pub struct Histogram {
    bounds: &'static [u64],
    /// One more than there are bounds, for what is above the last.
    counts: Box<[AtomicU64]>,
    sum: AtomicU64,
}

/// What a histogram has counted so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistogramSnapshot {
    /// The upper ends of the ranges, which belong to them.
    pub bounds: &'static [u64],
    /// How many values were in each range; the last one has no upper end.
    pub counts: Vec<u64>,
    /// All values together.
    pub sum: u64,
}

impl Histogram {
    /// An empty one with these upper ends, in rising order.
    #[must_use]
    pub fn new(bounds: &'static [u64]) -> Self {
        let counts = (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Self { bounds, counts, sum: AtomicU64::new(0) }
    }

    /// Counts a value.
    pub fn observe(&self, value: u64) {
        let range = self.bounds.partition_point(|bound| *bound < value);
        if let Some(count) = self.counts.get(range) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        self.sum.fetch_add(value, Ordering::Relaxed);
    }

    /// Counts a time, in microseconds.
    pub fn observe_time(&self, time: Duration) {
        self.observe(u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
    }

    /// What has been counted.
    #[must_use]
    pub fn snapshot(&self) -> HistogramSnapshot {
        HistogramSnapshot {
            bounds: self.bounds,
            counts: self.counts.iter().map(|count| count.load(Ordering::Relaxed)).collect(),
            sum: self.sum.load(Ordering::Relaxed),
        }
    }
}

impl HistogramSnapshot {
    /// How many values there were.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_counted_in_the_range_that_it_ends() {
        let histogram = Histogram::new(&[1, 10]);
        for value in [0, 1, 2, 10, 11, u64::from(u32::MAX)] {
            histogram.observe(value);
        }
        let seen = histogram.snapshot();
        assert_eq!(seen.counts, [2, 2, 2]);
        assert_eq!((seen.count(), seen.sum), (6, 24 + u64::from(u32::MAX)));
    }

    #[test]
    fn the_ends_of_ranges_rise() {
        for bounds in [MICROSECONDS, POWERS_OF_TWO] {
            assert!(bounds.is_sorted() && !bounds.is_empty());
        }
    }
}
