//! The statuses of a task.

use crate::PayloadRef;

/// The status of a task (SEP-2663). `Completed`, `Failed` and `Cancelled` are terminal: there is no way out of
/// them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Status {
    /// The work goes on.
    Working,
    /// The work waits for answers of the client.
    InputRequired,
    /// The tool ran; its result is kept, also one that says `isError`.
    Completed,
    /// The call failed with a JSON-RPC error, which is kept.
    Failed,
    /// Somebody cancelled the task while it was live.
    Cancelled,
}

impl Status {
    /// Every status, in the order of the life cycle.
    pub const ALL: [Self; 5] =
        [Self::Working, Self::InputRequired, Self::Completed, Self::Failed, Self::Cancelled];

    /// Whether the status is final.
    #[must_use]
    pub const fn is_terminal(self) -> bool {
        match self {
            Self::Working | Self::InputRequired => false,
            Self::Completed | Self::Failed | Self::Cancelled => true,
        }
    }
}

/// A status with the data that only this status has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The work goes on.
    Working,
    /// The work waits for answers; the questions are in the task's [`Inputs`](crate::Inputs).
    InputRequired,
    /// Done, with the result.
    Completed(PayloadRef),
    /// Failed, with the JSON-RPC error object.
    Failed(PayloadRef),
    /// Cancelled.
    Cancelled,
}

impl Phase {
    /// The status without its data.
    #[must_use]
    pub const fn status(&self) -> Status {
        match self {
            Self::Working => Status::Working,
            Self::InputRequired => Status::InputRequired,
            Self::Completed(_) => Status::Completed,
            Self::Failed(_) => Status::Failed,
            Self::Cancelled => Status::Cancelled,
        }
    }
}
