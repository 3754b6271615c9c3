//! The task store over a bad line: a proxy between `RemoteTaskStore` and a real broker drops, delays and cuts replies,
//! before the commit and after it, and the broker is killed and started again in the middle. A model without faults
//! says what every call must return.
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

mod driver;
mod faults;
mod line;
mod model;
mod outages;
mod proxy;
mod races;
mod replies;
mod restarts;
mod scene;
mod signals;
mod values;
mod writes;

/// The seed of a test with random choices, printed so that a failing run can be repeated: `FAULT_SEED=n`. What is
/// done and what goes wrong follows from it; how the threads interleave still depends on the machine.
fn seed() -> u64 {
    let seed = std::env::var("FAULT_SEED").ok().map(|seed| seed.parse().unwrap());
    let seed = seed.unwrap_or_else(|| fastrand::u64(..1_000_000));
    eprintln!("FAULT_SEED={seed}");
    seed
}
