//! Reading small files.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// The bytes of a file, or `None` if it has more than `maximum`.
///
/// # Errors
/// What the system says.
pub fn read_bounded(path: &Path, maximum: u64) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    // The path may be a pipe or /dev/fd/N, whose size is unknown: what is read is bounded, not what is told.
    File::open(path)?.take(maximum.saturating_add(1)).read_to_end(&mut bytes)?;
    let fits = u64::try_from(bytes.len()).is_ok_and(|length| length <= maximum);
    Ok(fits.then_some(bytes))
}
