//! A store made of somebody else's records: all of them, or none.

use std::path::PathBuf;

use bytes::Bytes;
use task_broker_core::{OwnerFrom, PayloadRef, Task, Timestamp};

use super::directory::{Directory, abandon};
use super::draft::Draft;
use super::open::{OpenError, SledOptions, open};
use super::record;
use super::refusal::{Before, explained};
use crate::store::{ListPlace, random_name};

/// An import under way. Until it is finished nothing of it is in the store; dropped before that, it leaves nothing.
#[derive(Debug)]
pub struct Import {
    directory: Directory,
    /// Taken away when it is finished.
    draft: Option<Draft>,
    path: PathBuf,
    store_id: String,
    owner_from: OwnerFrom,
    clock: Timestamp,
}

impl Import {
    /// Begins, in a directory without a store or with one that has no tasks. Its subjects are then of the kind that the
    /// options name: a store without tasks has none yet.
    ///
    /// # Errors
    /// [`OpenError::NotEmpty`] when there are tasks, and whatever keeps a store from being opened.
    pub fn begin(options: &SledOptions) -> Result<Self, OpenError> {
        let before = Before::of(&options.path);
        Self::begin_in(options).map_err(|error| explained(error, &options.path, before))
    }

    fn begin_in(options: &SledOptions) -> Result<Self, OpenError> {
        let directory = Directory::hold(&options.path, false)?;
        let (directory, path, store_id, clock) = if directory.fresh {
            let path = directory.generation.clone();
            let id = random_name().map_err(|error| OpenError::Io { path: path.clone(), error })?;
            (directory, path, id, Timestamp::default())
        } else {
            drop(directory);
            let opened = open(&SledOptions { existing_only: true, ..options.clone() })?;
            let (id, clock) = (opened.store_id.clone(), opened.floor);
            let tasks = opened.checkpoint.census.count;
            let directory = opened.leave()?;
            if tasks > 0 {
                return Err(OpenError::NotEmpty { path: options.path.clone(), tasks });
            }
            let path = directory.draft()?;
            (directory, path, id, clock)
        };
        let draft = Some(Draft::new(&path, options.cache_bytes)?);
        Ok(Self { directory, draft, path, store_id, owner_from: options.owner_from, clock })
    }

    /// Takes a task and all its payloads.
    ///
    /// # Errors
    /// [`OpenError`]; the import cannot go on then.
    pub fn put(&mut self, task: &Task, payloads: Vec<(PayloadRef, Bytes)>) -> Result<(), OpenError> {
        let path = &self.path;
        let broken = |what: String| OpenError::Damaged { path: path.clone(), what };
        let head = record::encode(task).map_err(|what| broken(format!("task {}: {what}", task.id)))?;
        let draft = self.draft.as_mut().ok_or_else(|| broken("the import has ended".into()))?;
        draft.put(ListPlace::of(task), head.into(), payloads)
    }

    /// Proves what was taken and makes it the store. It will not open at an earlier time than `clock`. Gives the number of
    /// tasks.
    ///
    /// # Errors
    /// [`OpenError`]; nothing is imported then.
    pub fn finish(mut self, clock: Timestamp) -> Result<u64, OpenError> {
        let path = self.path.clone();
        let draft = self.draft.take();
        let draft = draft
            .ok_or_else(|| OpenError::Damaged { path: path.clone(), what: "the import has ended".into() })?;
        let done = draft.finish(&self.store_id, self.owner_from, clock.max(self.clock)).and_then(|census| {
            self.directory.turn_to(path.clone())?;
            self.directory.tidy()?;
            Ok(census.count)
        });
        if done.is_err() && self.directory.generation != path {
            abandon(&self.path);
        }
        done
    }
}

impl Drop for Import {
    fn drop(&mut self) {
        if self.draft.take().is_some() {
            abandon(&self.path);
        }
    }
}
