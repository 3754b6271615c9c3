//! `task-broker compact`

use std::io::Write;

use super::ToolError;
use crate::store::sled::{SledOptions, compact as rewrite};

/// Writes a store that nobody uses anew, and says what that takes and gives.
///
/// # Errors
/// [`ToolError`]; the store is as it was then.
pub fn compact(options: &SledOptions, out: &mut dyn Write) -> Result<(), ToolError> {
    let mut written = Ok(());
    let done = rewrite(options, |plan| {
        written = writeln!(
            out,
            "{} tasks, {} bytes of live data in {} bytes of files; needs up to {} bytes of free room, {} are free",
            plan.tasks, plan.live_bytes, plan.before, plan.needed, plan.free
        );
    })?;
    let said =
        written.and_then(|()| writeln!(out, "compacted: {} bytes before, {} after", done.before, done.after));
    said.map_err(ToolError::io("writing the result"))
}
