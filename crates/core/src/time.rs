//! Points in time.

/// A point in time in milliseconds since 1970-01-01T00:00:00Z.
///
/// The core never asks for the time; whoever calls it passes the store's time, so that all decisions about one
/// task are made by one clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The time `millis` milliseconds after the Unix epoch.
    #[must_use]
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis)
    }

    /// Milliseconds since the Unix epoch.
    #[must_use]
    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// This time plus `millis` milliseconds. It stops at the last representable time instead of wrapping: a TTL
    /// comes from a client and may be as large as 2^64 - 1 (case A09).
    #[must_use]
    pub const fn saturating_add(self, millis: u64) -> Self {
        Self(self.0.saturating_add(millis))
    }

    /// Milliseconds from `earlier` to this time, 0 if `earlier` is later.
    #[must_use]
    pub const fn saturating_since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}
