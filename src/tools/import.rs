//! `task-broker import`

use std::io::Write;

use super::ToolError;
use super::output::Input;
use crate::archive::{Part, Reader};
use crate::clock::Clock;
use crate::store::sled::{Import, SledOptions};

/// Imports an export into a store without tasks: all of it, or nothing.
///
/// # Errors
/// [`ToolError`]; nothing is imported then.
pub fn import(
    options: &SledOptions,
    input: &Input,
    clock: &Clock,
    told: &mut dyn Write,
) -> Result<(), ToolError> {
    let mut lines = input.open()?;
    let mut reader = Reader::new();
    // What is no export at all is refused before anything is made.
    let first = lines.next()?.unwrap_or_default();
    let owner_from = match reader.line(&first).map_err(ToolError::Archive)? {
        Part::Header(header) => header.owner_from().ok_or(ToolError::OwnerFrom)?,
        Part::Task(..) | Part::End(_) => options.owner_from,
    };
    let mut import = Import::begin(&SledOptions { owner_from, ..options.clone() })?;
    let (mut expired, mut ending) = (0u64, None);
    while let Some(line) = lines.next()? {
        match reader.line(&line).map_err(ToolError::Archive)? {
            Part::Header(_) => {}
            Part::Task(task, payloads) => {
                expired += u64::from(task.is_expired(clock.now()));
                import.put(&task, payloads)?;
            }
            Part::End(end) => ending = Some(end),
        }
    }
    reader.finish().map_err(ToolError::Archive)?;
    let Some(ending) = ending else { return Ok(()) };
    let tasks = import.finish(ending.clock())?;
    let said =
        writeln!(told, "imported {tasks} tasks, digest {}", ending.digest).and_then(|()| match expired {
            0 => Ok(()),
            _ => writeln!(told, "{expired} of them have expired since: the first start removes them"),
        });
    said.map_err(ToolError::io("writing the result"))
}
