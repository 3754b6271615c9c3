//! The short run of every test run, and the long one of scripts/history.sh.

use std::time::Duration;

use tokio::time::Instant;

use crate::judge::Findings;
use crate::load::Lives;
use crate::run::{Extent, run};

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|error| panic!("{name}={text}: {error}")))
}

/// The seed of a run, printed so that a failing one can be repeated: `HISTORY_SEED=n`. The choices of every client are
/// the same then; which calls meet still depends on the machine.
fn seed() -> u64 {
    let seed = number("HISTORY_SEED").unwrap_or_else(|| fastrand::u64(..1_000_000));
    eprintln!("HISTORY_SEED={seed}");
    seed
}

fn assert_linearizable(findings: &Findings) {
    for table in &findings.violations {
        eprintln!("{table}");
    }
    assert!(findings.violations.is_empty(), "not linearizable: {findings}");
    assert_eq!(findings.undecided, 0, "{findings}");
}

fn short_run(extent: Extent) -> Findings {
    let mut findings = Findings::default();
    findings.add(&run(seed(), extent));
    eprintln!("{findings}");
    assert_linearizable(&findings);
    findings
}

#[test]
fn calls_through_three_kills_are_linearizable_per_task() {
    let findings = short_run(Extent { clients: 12, kills: 3, calls: 1000, lives: Lives::Long });
    assert!(findings.calls >= 2500 && findings.kills >= 3, "{findings}");
}

#[test]
fn calls_on_tasks_that_expire_under_them_are_linearizable_per_task() {
    let findings = short_run(Extent { clients: 12, kills: 1, calls: 700, lives: Lives::Short });
    assert!(findings.calls >= 900, "{findings}");
}

/// See docs/history-checker.md.
#[test]
#[ignore = "takes minutes; scripts/history.sh runs it"]
fn calls_through_many_kills_are_linearizable_per_task() {
    let first = seed();
    let rounds = number("HISTORY_ROUNDS").unwrap_or(10);
    let least = Duration::from_secs(number("HISTORY_SECS").unwrap_or(0));
    let extent = |name, default| usize::try_from(number(name).unwrap_or(default)).unwrap();
    let extent = Extent {
        clients: extent("HISTORY_CLIENTS", 12),
        kills: extent("HISTORY_KILLS", 4),
        calls: extent("HISTORY_CALLS", 1500),
        lives: Lives::Long,
    };
    let begun = Instant::now();
    let mut all = Findings::default();
    let mut round = 0;
    while round < rounds || begun.elapsed() < least {
        // Every third round with tasks that expire while all work on them.
        let short = number("HISTORY_SHORT").is_some() || round % 3 == 2;
        let lives = if short { Lives::Short } else { Lives::Long };
        let before = all.violations.len();
        all.add(&run(first + round, Extent { lives, ..extent }));
        for table in &all.violations[before..] {
            eprintln!("violation in the round with the seed {}:\n{table}", first + round);
        }
        round += 1;
        eprintln!("{round} rounds, {} s: {all}", begun.elapsed().as_secs());
    }
    assert_linearizable(&all);
}
