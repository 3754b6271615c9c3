//! From the format of an older program to this one's, into a new generation: each older format has a module that reads it, and
//! the draft writes the present one. The rules are in migrations/README.md, the reason of each step in a directory beside
//! it.

pub(super) mod format_1;
pub(super) mod format_2;
pub(super) mod older;

use std::path::PathBuf;

use ::sled::Db;

use super::compaction::room_for;
use super::database::bounded;
use super::directory::{Directory, discard, free_bytes};
use super::loading::{FORMAT, read_format};
use super::open::{OpenError, open_files, root_of};

/// The places at which a step can be cut, for whoever watches it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// There is a new, empty generation.
    Begun,
    /// So many tasks are in it.
    Copied(u64),
    /// It is complete, durable and proved.
    Proved,
    /// CURRENT names it.
    Turned,
}

/// Brings the store to the format of this program, if it is older.
pub(super) fn bring_up(directory: &mut Directory, db: Db, cache_bytes: u64) -> Result<Db, OpenError> {
    bring_up_in_steps(directory, db, cache_bytes, &mut |_| {})
}

pub(super) fn bring_up_in_steps(
    directory: &mut Directory,
    db: Db,
    cache_bytes: u64,
    step: &mut dyn FnMut(Step),
) -> Result<Db, OpenError> {
    let path: PathBuf = directory.generation.clone();
    let found = bounded(&path, || read_format(&db, &path))?;
    let copy = match found {
        format_1::FORMAT => format_1::copy,
        format_2::FORMAT => format_2::copy,
        // Another one is the business of whoever reads it.
        _ => return Ok(db),
    };
    tracing::info!(from = found, to = FORMAT, path = %path.display(), "migrating the store");
    let root = root_of(&path);
    let free = free_bytes(root).map_err(|error| OpenError::Io { path: root.to_owned(), error })?;
    // How much of the old files is garbage is not known before all of them were read.
    let needed = room_for(0, 0);
    if free < needed {
        return Err(OpenError::NoRoom { path: root.to_owned(), needed, free });
    }
    let new = directory.draft()?;
    step(Step::Begun);
    let copied = copy(&db, &path, &new, cache_bytes, &mut |tasks| step(Step::Copied(tasks)));
    let tasks = match copied {
        Ok(tasks) => tasks,
        Err(error) => {
            if let Err(left) = discard(&new) {
                tracing::warn!(%left, "an unfinished generation could not be removed; the next start does it");
            }
            return Err(error);
        }
    };
    step(Step::Proved);
    drop(db);
    directory.turn_to(new)?;
    step(Step::Turned);
    tracing::info!(tasks, generation = %directory.generation.display(), "migrated the store");
    open_files(&directory.generation, cache_bytes)
}
