//! Tasks as lines of text: what an export writes and an import reads. docs/export-format.md has the format.
//!
//! The room knows the core's types and nothing else: no store, no socket, no file.

mod line;
mod read;
mod task;
#[cfg(test)]
mod tests;
mod write;

pub use self::read::{ArchiveError, Ending, Header, MAX_LINE_BYTES, Part, Reader};
pub use self::write::Writer;

/// The version of the format that is written, and the only one that is read.
pub const FORMAT: u32 = 1;
