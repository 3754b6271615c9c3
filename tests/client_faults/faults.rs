//! What can go wrong with one request, and what did.

use std::time::Duration;

/// What happens to one request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Fault {
    /// The connection ends before the broker sees anything.
    Drop,
    /// The broker carries the call out, and its reply is lost.
    Lose,
    /// The broker carries the call out, and its reply breaks off after this share of it, in 1/256.
    Cut(u8),
    /// The broker carries the call out, and something on the way answers in its place that it cannot be reached.
    Replace,
    /// The reply comes late.
    Delay(Duration),
    /// The broker carries the call out, and the line is silent until the caller hangs up.
    Stall,
}

/// The kinds of a fault, for counting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Dropped,
    Lost,
    Cut,
    Replaced,
    Delayed,
    Stalled,
}

impl Kind {
    pub(crate) const ALL: [Self; 6] =
        [Self::Dropped, Self::Lost, Self::Cut, Self::Replaced, Self::Delayed, Self::Stalled];
}

impl Fault {
    pub(crate) fn random(rng: &mut fastrand::Rng) -> Self {
        match rng.u8(..40) {
            0..=11 => Self::Drop,
            12..=20 => Self::Lose,
            21..=29 => Self::Cut(rng.u8(..)),
            30..=33 => Self::Replace,
            // Costs the caller a whole timeout.
            34 => Self::Stall,
            _ => Self::Delay(Duration::from_millis(rng.u64(5..60))),
        }
    }

    /// One to three in a row: a call may be unlucky more than once.
    pub(crate) fn some(rng: &mut fastrand::Rng) -> Vec<Self> {
        let count = [1, 1, 1, 1, 1, 2, 2, 3][rng.usize(..8)];
        (0..count).map(|_| Self::random(rng)).collect()
    }

    pub(crate) const fn kind(self) -> Kind {
        match self {
            Self::Drop => Kind::Dropped,
            Self::Lose => Kind::Lost,
            Self::Cut(_) => Kind::Cut,
            Self::Replace => Kind::Replaced,
            Self::Delay(_) => Kind::Delayed,
            Self::Stall => Kind::Stalled,
        }
    }

    /// The caller has to ask again.
    pub(crate) const fn breaks(self) -> bool {
        !matches!(self, Self::Delay(_))
    }
}
