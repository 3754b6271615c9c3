//! Room on the disk that belongs to sled's file before sled needs it.
//!
//! sled writes by itself, some time after it was given something, and an error that it meets then stays until a
//! restart. So the room for what it may write next is taken beforehand, behind the end of its file: nobody else can have
//! it, and a disk that fills up at any moment is met here, where it can be waited for.

use std::fs::File;
use std::io;

use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;

/// How much is held, in bytes: four of sled's segments. It is behind by one at most.
const AHEAD_BYTES: u64 = 16 << 20;

/// After how many bytes the room is looked at again.
pub(super) const LOOK_EVERY_BYTES: u64 = 1 << 20;

/// Takes room behind the end of the file. Its length stays as it is. Says whether there is enough.
pub(super) fn hold(file: &File) -> io::Result<bool> {
    let end = file.metadata()?.len();
    match fallocate(file, FallocateFlags::KEEP_SIZE, end, AHEAD_BYTES) {
        Err(Errno::NOSPC | Errno::DQUOT) => Ok(false),
        // A file system may know no such thing: then only what is free can be looked at.
        Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(true),
        Err(error) => Err(error.into()),
    }
}
