//! Where the bytes of payloads are: in the overlay until sled has them.

use std::sync::Arc;

use bytes::Bytes;
use task_broker_core::{PayloadRef, Task};

use super::files::Files;
use super::overlay::Overlay;
use super::stored::read_payload;
use crate::store::{ListPlace, StoreError};

/// Reads payloads. sled holds its files while one of these lives.
#[derive(Clone, Debug)]
pub(super) struct PayloadReader {
    pub(super) overlay: Arc<Overlay>,
    pub(super) files: Arc<Files>,
}

impl PayloadReader {
    /// The bytes of one payload. `Ok(None)` when it is not there, which is damage only if the newest state of its task
    /// names it.
    pub(super) fn read(&self, task: &Task, reference: &PayloadRef) -> Result<Option<Bytes>, StoreError> {
        let place = ListPlace::of(task);
        match self.overlay.payload(place, reference) {
            Some(bytes) => Ok(Some(bytes)),
            None => self.files.read(|db| read_payload(db, place, reference)),
        }
    }
}
