//! The table of `bench million`, and its verdict.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;

use crate::process::Server;
use crate::table;
use crate::usage::{self, Memory};

/// The limit from the start of the process to `/readyz` 200.
const READY_WITHIN: Duration = Duration::from_secs(10);

/// The limit of resident memory.
const MEMORY_BELOW: u64 = 1 << 30;

/// What was seen so far.
#[derive(Debug, Default)]
pub(super) struct Report {
    rows: Vec<Vec<String>>,
    slowest_start: Duration,
    /// The most that was resident at the end of a phase, or while the sweep ran.
    most_memory: u64,
    /// The most that ever was, as the kernel kept count.
    peak_memory: u64,
}

impl Report {
    /// A start of the broker, measured until it was ready.
    pub(super) fn started(
        &mut self,
        name: &str,
        ready: Duration,
        broker: &Server,
        data: &Path,
    ) -> Result<()> {
        self.slowest_start = self.slowest_start.max(ready);
        self.phase(name, ready, broker, data)
    }

    /// The end of a phase.
    pub(super) fn phase(&mut self, name: &str, took: Duration, broker: &Server, data: &Path) -> Result<()> {
        let memory = self.look(broker)?;
        let cells = [seconds(took), mib(memory.resident), mib(memory.peak), mib(usage::occupied(data)?)];
        self.row(name, &cells);
        Ok(())
    }

    /// A time without a process to look at.
    pub(super) fn note(&mut self, name: &str, took: Duration) {
        self.row(name, &[seconds(took)]);
    }

    /// Takes the broker's memory into account, within a phase.
    pub(super) fn look(&mut self, broker: &Server) -> Result<Memory> {
        let memory = Memory::of(broker.pid())?;
        self.most_memory = self.most_memory.max(memory.resident);
        self.peak_memory = self.peak_memory.max(memory.peak);
        Ok(memory)
    }

    /// Prints a line as soon as it is known, since a run takes minutes, and keeps it for the table.
    fn row(&mut self, name: &str, cells: &[String]) {
        println!("... {name}: {}", cells.join(" "));
        let mut row = vec![name.to_owned()];
        row.extend_from_slice(cells);
        self.rows.push(row);
    }

    /// Prints the table and the verdict; true if all limits hold.
    pub(super) fn print(self) -> bool {
        println!();
        table::print(&["phase", "seconds", "RSS MiB", "peak MiB", "directory MiB"], &self.rows);
        println!();
        let verdicts = [
            (
                self.slowest_start <= READY_WITHIN,
                format!("ready within {READY_WITHIN:?}: the slowest start took {:.2?}", self.slowest_start),
            ),
            (
                self.most_memory < MEMORY_BELOW,
                format!("resident memory below 1 GiB: at most {} MiB", mib(self.most_memory)),
            ),
            (
                self.peak_memory < MEMORY_BELOW,
                format!("its peak below 1 GiB too: {} MiB", mib(self.peak_memory)),
            ),
        ];
        for (holds, text) in &verdicts {
            println!("{} {text}", if *holds { "PASS" } else { "FAIL" });
        }
        println!("PASS every sampled task exact, every expired one absent, every walk complete");
        verdicts.iter().all(|(holds, _)| *holds)
    }
}

fn seconds(took: Duration) -> String {
    format!("{:.2}", took.as_secs_f64())
}

fn mib(bytes: u64) -> String {
    (bytes >> 20).to_string()
}
