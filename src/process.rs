//! What the operating system tells about this process.

use std::fs;
use std::path::Path;

/// Numbers about the process. What cannot be had is left out.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProcessStats {
    /// Memory that is in use, in bytes.
    pub resident_bytes: Option<u64>,
    /// Open files and sockets.
    pub open_files: Option<u64>,
    /// How many there may be.
    pub max_files: Option<u64>,
    /// Time that it has run on a processor, in milliseconds.
    pub cpu_ms: Option<u64>,
}

impl ProcessStats {
    /// The numbers now.
    #[must_use]
    pub fn read() -> Self {
        let proc = Path::new("/proc/self");
        let page = u64::try_from(rustix::param::page_size()).unwrap_or(4096);
        let memory = fs::read_to_string(proc.join("statm")).ok();
        let memory = memory.and_then(|text| text.split_whitespace().nth(1)?.parse::<u64>().ok());
        let files = fs::read_dir(proc.join("fd")).map(Iterator::count).ok();
        Self {
            resident_bytes: memory.map(|pages| pages.saturating_mul(page)),
            // One of them is the directory that is read.
            open_files: files.and_then(|files| u64::try_from(files.saturating_sub(1)).ok()),
            max_files: rustix::process::getrlimit(rustix::process::Resource::Nofile).current,
            cpu_ms: fs::read_to_string(proc.join("stat")).ok().and_then(|text| cpu_ms(&text)),
        }
    }
}

/// User and system time, the 14th and 15th field: counted behind the name, which may hold anything.
fn cpu_ms(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(") ")?;
    let mut times = fields.split(' ').skip(11).map_while(|field| field.parse::<u64>().ok());
    let ticks = times.next()?.saturating_add(times.next()?);
    let per_second = rustix::param::clock_ticks_per_second();
    ticks.saturating_mul(1000).checked_div(per_second)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_knows_itself() {
        let stats = ProcessStats::read();
        assert!(stats.resident_bytes.is_some_and(|bytes| bytes > 1 << 20), "{stats:?}");
        assert!(stats.open_files.is_some_and(|files| files >= 3), "{stats:?}");
        assert!(stats.cpu_ms.is_some(), "{stats:?}");
    }

    #[test]
    fn times_are_found_behind_any_name() {
        let stat = "1 (a b) c) S 1 1 1 0 -1 0 0 0 0 0 100 50 0 0 20 0";
        assert_eq!(cpu_ms(stat), Some(150 * 1000 / rustix::param::clock_ticks_per_second()));
    }
}
