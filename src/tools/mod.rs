//! The commands for a good night's sleep and for a bad day: check, compact, export, import.
//!
//! They say what they do on the given output, never what is in a payload.

mod check;
mod compact;
mod export;
mod import;
mod output;
mod remote;

pub use self::check::{Verdict, check};
pub use self::compact::compact;
pub use self::export::export_store;
pub use self::import::import;
pub use self::output::{Input, Output};
pub use self::remote::{Remote, export_broker};

/// Why a command did not do what it was asked to.
#[derive(Debug, thiserror::Error)]
pub enum ToolError {
    /// The store.
    #[error(transparent)]
    Open(#[from] crate::store::sled::OpenError),
    /// The store could not be looked at.
    #[error(transparent)]
    Check(#[from] crate::store::sled::CheckError),
    /// The store, while it was read.
    #[error("reading the store: {0}")]
    Store(#[from] crate::store::StoreError),
    /// The export that was read.
    #[error("the export is refused, nothing was imported: {0}")]
    Archive(crate::archive::ArchiveError),
    /// The export that was read is of a store whose subjects are made in a way that this program does not know.
    #[error("the export is refused, nothing was imported: its ownerFrom is none that this program knows")]
    OwnerFrom,
    /// The broker did not give a complete export.
    #[error("{url}: {what}; the export is not complete")]
    Remote {
        /// The broker.
        url: String,
        /// What went wrong.
        what: String,
    },
    /// The operating system says no.
    #[error("{what}: {error}")]
    Io {
        /// What was tried.
        what: String,
        /// What the system said.
        error: std::io::Error,
    },
    /// The export would become a file of the store.
    #[error("--out: this is inside of the store's own directory")]
    OutInside,
    /// This kind of store has no files.
    #[error("--store: this command needs sled:DIRECTORY")]
    NoFiles,
}

impl ToolError {
    fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let what = what.into();
        move |error| Self::Io { what, error }
    }
}
