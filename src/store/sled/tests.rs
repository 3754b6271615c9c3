//! What the embedded driver promises beyond the contract: what is on disk, and what a start makes of it.

use tempfile::TempDir;

use super::*;
use crate::store::suite;

fn open(clock: &Clock) -> (SledStore, TempDir) {
    let directory = TempDir::new().unwrap();
    (SledStore::open(&SledOptions::new(directory.path()), clock.clone()).unwrap(), directory)
}

suite::contract!(crate::store::sled::tests::open);
