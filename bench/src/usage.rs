//! What a process and a directory use, as the kernel tells.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

/// Ticks of `/proc/<pid>/stat` per second. It is 100 on every Linux that this runs on (`getconf CLK_TCK`).
const TICKS_PER_SECOND: u32 = 100;

/// `TMPFS_MAGIC` of the kernel.
const TMPFS: i64 = 0x0102_1994;

/// Resident memory of a process, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Memory {
    /// Now.
    pub(crate) resident: u64,
    /// The most since the process started.
    pub(crate) peak: u64,
}

impl Memory {
    /// Reads it from `/proc/<pid>/status`.
    pub(crate) fn of(pid: u32) -> Result<Self> {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).context("the process is gone")?;
        let kib = |name: &str| -> Result<u64> {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).context("no such line")?;
            let number = line.trim().strip_suffix(" kB").context("not in kB")?;
            Ok(number.parse::<u64>()? << 10)
        };
        Ok(Self { resident: kib("VmRSS:").context("VmRSS")?, peak: kib("VmHWM:").context("VmHWM")? })
    }
}

/// The processor time that a process has spent so far, user and system, all threads.
pub(crate) fn processor_time(pid: u32) -> Result<Duration> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).context("the process is gone")?;
    // The second field is the program's name in parentheses and may hold blanks; utime and stime are the 14th and
    // 15th field, which is the 12th and 13th after it.
    let (_, fields) = stat.rsplit_once(')').context("/proc/<pid>/stat without a name")?;
    let mut fields = fields.split_whitespace().skip(11);
    let mut ticks = || -> Result<u32> { Ok(fields.next().context("/proc/<pid>/stat is short")?.parse()?) };
    let ticks = ticks()? + ticks()?;
    Ok(Duration::from_secs(ticks.into()) / TICKS_PER_SECOND)
}

/// What a directory occupies on the disk, in bytes, with everything below it.
pub(crate) fn occupied(directory: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(directory).with_context(|| directory.display().to_string())? {
        let entry = entry?;
        let metadata = match entry.metadata() {
            Ok(metadata) => metadata,
            // A living store renames and removes files meanwhile.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error.into()),
        };
        bytes += if metadata.is_dir() { occupied(&entry.path())? } else { metadata.blocks() * 512 };
    }
    Ok(bytes)
}

/// Fails for a directory in memory, where a sync costs nothing and every comparison would be void.
pub(crate) fn must_be_on_disk(directory: &Path) -> Result<()> {
    let filesystem = rustix::fs::statfs(directory).with_context(|| directory.display().to_string())?;
    ensure!(
        filesystem.f_type != TMPFS,
        "{} is a tmpfs: a sync is free there; name a directory on a disk with --dir",
        directory.display()
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_process_has_memory_and_processor_time() {
        let memory = Memory::of(std::process::id()).unwrap();
        assert!(memory.resident > 0 && memory.resident <= memory.peak);
        processor_time(std::process::id()).unwrap();
    }

    #[test]
    fn a_directory_occupies_what_its_files_do() {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join("below")).unwrap();
        fs::write(directory.path().join("below/file"), vec![1; 10_000]).unwrap();
        assert!(occupied(directory.path()).unwrap() <= 1 << 20);
    }
}
