//! What is counted while requests are served. Each label has a closed list of values, so that no client can make new
//! ones; counting costs a few atomic additions.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::http::StatusCode;
use task_broker_protocol::Kind;
use task_broker_protocol::methods::{MethodName, TABLE};

use crate::histogram::{Histogram, HistogramSnapshot, MICROSECONDS};

/// The method of a call that names none that there is.
pub(super) const UNKNOWN: &str = "unknown";

/// The outcome of a call that was carried out.
pub(super) const OK: &str = "ok";

/// The statuses that are counted one by one.
const STATUSES: [u16; 13] = [400, 401, 403, 404, 405, 406, 408, 413, 414, 415, 429, 431, 503];

/// The label of all others.
const OTHER: &str = "other";

/// The names of [`STATUSES`], and [`OTHER`] behind them.
const STATUS_NAMES: [&str; STATUSES.len() + 1] =
    ["400", "401", "403", "404", "405", "406", "408", "413", "414", "415", "429", "431", "503", OTHER];

/// Calls by outcome: carried out, or an error of this kind.
type Outcomes = [AtomicU64; Kind::ALL.len() + 1];

/// See the module.
#[derive(Debug)]
pub(super) struct Metrics {
    /// By method, in the order of the table; unknown ones last.
    calls: Vec<Outcomes>,
    /// By method, in the order of the table.
    latency: Vec<Histogram>,
    /// By status.
    refusals: [AtomicU64; STATUSES.len() + 1],
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            calls: (0..=TABLE.len()).map(|_| Outcomes::default()).collect(),
            latency: TABLE.iter().map(|_| Histogram::new(MICROSECONDS)).collect(),
            refusals: Default::default(),
        }
    }
}

impl Metrics {
    /// Counts a call that was answered, with an error of this kind if there was one.
    pub(super) fn call(&self, method: Option<MethodName>, error: Option<Kind>) {
        // Both are declared in the order of their lists.
        let method = method.map_or(TABLE.len(), |method| method as usize);
        let outcome = error.map_or(0, |kind| kind as usize + 1);
        if let Some(count) = self.calls.get(method).and_then(|outcomes| outcomes.get(outcome)) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts how long a call took.
    pub(super) fn took(&self, method: MethodName, time: Duration) {
        if let Some(latency) = self.latency.get(method as usize) {
            latency.observe_time(time);
        }
    }

    /// Counts an answer whose HTTP status says that no call was served.
    pub(super) fn refused(&self, status: StatusCode) {
        let place = STATUSES.iter().position(|known| *known == status.as_u16()).unwrap_or(STATUSES.len());
        if let Some(count) = self.refusals.get(place) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Calls by method and outcome: carried out ones for each method, errors as far as there were any.
    pub(super) fn calls(&self) -> impl Iterator<Item = (&'static str, &'static str, u64)> {
        let methods = TABLE.iter().map(|entry| entry.name).chain([UNKNOWN]);
        self.calls.iter().zip(methods).flat_map(|(outcomes, method)| {
            let names = [OK].into_iter().chain(Kind::ALL.into_iter().map(Kind::as_str));
            let counts = outcomes.iter().map(|count| count.load(Ordering::Relaxed)).zip(names);
            counts
                .filter(move |(count, outcome)| *count > 0 || (*outcome == OK && method != UNKNOWN))
                .map(move |(count, outcome)| (method, outcome, count))
        })
    }

    /// How long calls took, by method.
    pub(super) fn latencies(&self) -> impl Iterator<Item = (&'static str, HistogramSnapshot)> {
        let names = TABLE.iter().map(|entry| entry.name);
        self.latency.iter().map(Histogram::snapshot).zip(names).map(|(seen, method)| (method, seen))
    }

    /// Refusals by status.
    pub(super) fn refusals(&self) -> impl Iterator<Item = (&'static str, u64)> {
        STATUS_NAMES.into_iter().zip(self.refusals.iter().map(|count| count.load(Ordering::Relaxed)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_in_the_order_of_their_lists() {
        for (place, entry) in TABLE.iter().enumerate() {
            assert_eq!(entry.method as usize, place, "{}", entry.name);
        }
        for (place, kind) in Kind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, place, "{kind}");
        }
        for (name, status) in STATUS_NAMES.iter().zip(STATUSES) {
            assert_eq!(*name, status.to_string());
        }
    }

    #[test]
    fn calls_are_counted_by_method_and_outcome() {
        let metrics = Metrics::default();
        metrics.call(Some(MethodName::TasksGet), None);
        metrics.call(Some(MethodName::TasksGet), Some(Kind::TaskNotFound));
        metrics.call(None, Some(Kind::MethodNotFound));
        metrics.refused(StatusCode::NOT_FOUND);
        metrics.refused(StatusCode::IM_A_TEAPOT);
        let calls: Vec<_> = metrics.calls().filter(|(_, _, count)| *count > 0).collect();
        let expected =
            [("tasks/get", OK, 1), ("tasks/get", "task_not_found", 1), (UNKNOWN, "method_not_found", 1)];
        assert_eq!(calls, expected);
        let refusals: Vec<_> = metrics.refusals().filter(|(_, count)| *count > 0).collect();
        assert_eq!(refusals, [("404", 1), (OTHER, 1)]);
    }
}
