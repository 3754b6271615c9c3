//! What is true after a crash: a real process, killed at any moment, restarted, damaged, traced.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stderr,
    reason = "a test that panics has failed, as it should, and what it prints is shown then; clippy.toml covers only \
              functions marked as tests"
)]
#![allow(
    clippy::needless_pass_by_value,
    reason = "params are written as json!(..) right where they are passed"
)]

#[path = "../harness/mod.rs"]
mod harness;

mod clocks;
mod compactions;
mod damage;
mod directories;
mod disk;
mod fidelity;
mod files;
mod full;
mod kept;
mod kills;
mod limit;
mod load;
mod long;
mod model;
mod older;
mod power;
mod restarts;
mod retries;
mod shim;
mod syncs;
mod syscalls;
mod worker;

/// The seed of a test with random choices, printed so that a failing run can be repeated: `CRASH_SEED=n`. Which
/// commands are in flight together still depends on the machine.
fn seed() -> u64 {
    let seed = std::env::var("CRASH_SEED").ok().map(|seed| seed.parse().unwrap());
    let seed = seed.unwrap_or_else(|| fastrand::u64(..1_000_000));
    eprintln!("CRASH_SEED={seed}");
    seed
}
