//! `task-broker check`

use std::io::Write;

use super::ToolError;
use crate::store::sled::{CheckOptions, Checked, check as look};

/// What a check has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// All is there and as it was written.
    Sound,
    /// Something is missing or wrong.
    Damaged,
}

/// Checks a store that nobody uses, and says what it found: one line for each fault, then a summary.
///
/// # Errors
/// [`ToolError`] when it could not look.
pub fn check(options: &CheckOptions, out: &mut dyn Write) -> Result<Verdict, ToolError> {
    let mut written = Ok(());
    let found = look(options, &mut |fault| {
        if written.is_ok() {
            written = writeln!(out, "FAULT {fault}");
        }
    })?;
    let said = written.and_then(|()| summary(options, &found, out));
    said.map_err(ToolError::io("writing the result"))?;
    Ok(if found.faults == 0 { Verdict::Sound } else { Verdict::Damaged })
}

fn summary(options: &CheckOptions, found: &Checked, out: &mut dyn Write) -> std::io::Result<()> {
    let known = |text: &str| if text.is_empty() { "unknown".to_owned() } else { text.to_owned() };
    writeln!(out, "store      {} in {}", known(&found.store_id), options.path.display())?;
    match found.format {
        0 => writeln!(out, "format     unknown, {}", known(&found.generation))?,
        format => writeln!(out, "format     {format}, {}", known(&found.generation))?,
    }
    writeln!(out, "last stop  {}", if found.clean { "clean" } else { "not clean" })?;
    writeln!(out, "journal    {} groups that sled does not have yet", found.frames)?;
    if let Some(torn) = &found.torn {
        writeln!(
            out,
            "torn       {torn}: the newest group, of which nobody was told; the next start cuts it off"
        )?;
    }
    writeln!(out, "tasks      {}, digest {:032x}", found.tasks, found.digest)?;
    writeln!(out, "payloads   {}, {} bytes, all read", found.payloads, found.payload_bytes)?;
    writeln!(
        out,
        "orphans    {}, {} bytes (left by a crash, no damage; a start removes them)",
        found.orphans, found.orphan_bytes
    )?;
    match found.faults {
        0 => writeln!(out, "result     sound"),
        faults => writeln!(out, "result     DAMAGED, {faults} faults; see docs/when-something-is-wrong.md"),
    }
}
