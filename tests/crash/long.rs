//! The short run is a test like any other. The long run is the same test with more rounds, and writes down what it
//! counted: `scripts/crash.sh`.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};

/// `CRASH_ROUNDS`, or what a short run makes.
pub(crate) fn rounds(short: usize) -> usize {
    std::env::var("CRASH_ROUNDS").map_or(short, |rounds| rounds.parse().unwrap())
}

/// Whether this is a long run.
pub(crate) fn is_long() -> bool {
    std::env::var_os("CRASH_ROUNDS").is_some()
}

/// Writes down what a run has counted so far, in place of what it counted before: a line with its name in the file that
/// `CRASH_COUNTS` names.
pub(crate) fn count(name: &str, counts: &str) {
    let Some(path) = std::env::var_os("CRASH_COUNTS") else {
        eprintln!("{name}: {counts}");
        return;
    };
    let mut lines: Vec<String> = File::open(&path).map_or(Vec::new(), |file| {
        BufReader::new(file).lines().map(Result::unwrap).filter(|line| !is_named(line, name)).collect()
    });
    lines.push(format!("{name}: {counts}"));
    fs::write(path, lines.join("\n") + "\n").unwrap();
}

fn is_named(line: &str, name: &str) -> bool {
    line.strip_prefix(name).is_some_and(|rest| rest.starts_with(": "))
}
