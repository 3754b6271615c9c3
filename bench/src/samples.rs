//! Latencies and their percentiles, exact: every sample is kept.

use std::time::Duration;

/// Latencies as they come in. Eight bytes each; the number of requests of a round bounds them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Samples {
    nanos: Vec<u64>,
}

impl Samples {
    /// One more.
    pub(crate) fn record(&mut self, latency: Duration) {
        self.nanos.push(u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX));
    }

    /// Takes over all samples of `other`.
    pub(crate) fn absorb(&mut self, other: Self) {
        self.nanos.extend(other.nanos);
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.nanos.len()
    }

    /// Orders them, to read percentiles.
    pub(crate) fn sorted(mut self) -> Sorted {
        self.nanos.sort_unstable();
        Sorted { nanos: self.nanos }
    }
}

/// Latencies in ascending order.
#[derive(Debug)]
pub(crate) struct Sorted {
    nanos: Vec<u64>,
}

impl Sorted {
    /// The smallest sample that at least `percent` % of all samples do not exceed (nearest rank); 100 is the
    /// maximum. Zero if there is no sample.
    #[allow(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a rank among at most some million samples"
    )]
    pub(crate) fn at(&self, percent: f64) -> Duration {
        let rank = (percent / 100.0 * self.nanos.len() as f64).ceil() as usize;
        let sample = self.nanos.get(rank.saturating_sub(1)).or(self.nanos.last());
        Duration::from_nanos(sample.copied().unwrap_or_default())
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.nanos.len()
    }

    /// The samples, to be put with others.
    pub(crate) fn into_samples(self) -> Samples {
        Samples { nanos: self.nanos }
    }
}

/// The middle of some figures; of an even number the mean of the middle two. Zero if there is none.
pub(crate) fn median(figures: impl IntoIterator<Item = f64>) -> f64 {
    let mut figures: Vec<f64> = figures.into_iter().collect();
    figures.sort_by(f64::total_cmp);
    let upper = figures.get(figures.len() / 2).copied().unwrap_or_default();
    let lower = figures.get(figures.len().saturating_sub(1) / 2).copied().unwrap_or_default();
    f64::midpoint(lower, upper)
}

/// A latency in milliseconds, for printing.
pub(crate) fn millis(latency: Duration) -> f64 {
    latency.as_secs_f64() * 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(millis: impl IntoIterator<Item = u64>) -> Sorted {
        let mut samples = Samples::default();
        for sample in millis {
            samples.record(Duration::from_millis(sample));
        }
        samples.sorted()
    }

    #[test]
    fn percentiles_are_those_of_the_nearest_rank() {
        let hundred = samples((1..=100).rev());
        for (percent, expected) in [(0.0, 1), (1.0, 1), (50.0, 50), (99.0, 99), (99.9, 100), (100.0, 100)] {
            assert_eq!(hundred.at(percent), Duration::from_millis(expected), "p{percent}");
        }
        assert_eq!(samples([7]).at(50.0), Duration::from_millis(7));
        assert_eq!(samples([]).at(99.0), Duration::ZERO);
    }

    #[test]
    fn the_median_of_an_even_number_is_the_mean_of_the_middle_two() {
        assert!((median([3.0, 1.0, 2.0]) - 2.0).abs() < f64::EPSILON);
        assert!((median([4.0, 1.0, 3.0, 2.0]) - 2.5).abs() < f64::EPSILON);
        assert!(median([]).abs() < f64::EPSILON);
    }
}
