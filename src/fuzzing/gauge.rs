//! How much a decoder allocates.

/// Runs something once and says how many bytes it had allocated at most at one moment. Given by the caller, because it
/// needs an allocator that counts, and the library has none.
pub type Gauge = fn(&mut dyn FnMut()) -> u64;

/// How far an input has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reached {
    /// The decoder refused it.
    Refused,
    /// The decoder took it.
    Taken,
}

impl Reached {
    /// `Taken` if so.
    pub(crate) const fn taken(taken: bool) -> Self {
        if taken { Self::Taken } else { Self::Refused }
    }
}

/// Does something that may have at most so many bytes allocated at any moment.
pub(crate) fn within<T>(gauge: Gauge, bytes: usize, act: impl FnOnce() -> T) -> T {
    let mut act = Some(act);
    let mut got = None;
    let most = gauge(&mut || got = act.take().map(|act| act()));
    assert!(usize::try_from(most).is_ok_and(|most| most <= bytes), "{most} bytes were allocated of {bytes}");
    #[allow(
        clippy::expect_used,
        reason = "a gauge that does not run what it shall measure is a fault of the test"
    )]
    got.expect("the gauge runs what it is given")
}
