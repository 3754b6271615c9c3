//! `kill -9` under load: 30 times with at least 1,000 acknowledged commands each, and more than 32 in flight (D01).
//!
//! The rounds are spread over tests so that none takes long; the tests differ in what they send.

use crate::files::{copy, scratch};
use crate::harness::{BrokerOptions, Store};
use crate::load::{Ending, IN_FLIGHT, Least, Rounds};
use crate::long;
use crate::seed;
use crate::worker::{Habits, Turnover};

/// How many acknowledged commands each round has at least.
const LEAST: usize = 1000;

/// How many counted kills a test makes. All tests together make 30.
const KILLS: usize = 3;

fn kill_again_and_again(habits: Habits) {
    let seed = seed();
    let mut all = Rounds::new(BrokerOptions::new(Store::Sled).start(), seed, habits);
    // A kill that hits while answers are just being taken in finds fewer commands in flight. It is checked like any
    // other, and does not count.
    let mut counted = 0;
    for _ in 0..KILLS + 3 {
        counted += usize::from(all.round(Least { acks: LEAST, checkpoints: 0 }, Ending::Kill9) >= IN_FLIGHT);
        if counted == KILLS {
            break;
        }
    }
    all.check_everything();
    assert_eq!(counted, KILLS, "too few kills with {IN_FLIGHT} commands in flight");
}

macro_rules! loads {
    ($($name:ident: $habits:expr;)+) => {
        $(#[test]
        fn $name() {
            kill_again_and_again($habits);
        })+

        #[test]
        fn thirty_kills_are_made_in_all() {
            assert!([$(stringify!($name)),+].len() * KILLS >= 30);
        }
    };
}

// `largest` is in bytes, `keyed` in percent.
loads! {
    the_smallest_commands_survive_three_kills: Habits { largest: 100, keyed: 0, turnover: None };
    small_commands_some_with_keys_survive_three_kills: Habits { largest: 300, keyed: 20, turnover: None };
    small_commands_all_with_keys_survive_three_kills_and_are_retried: Habits { largest: 300, keyed: 100, turnover: None };
    payloads_around_4096_bytes_survive_three_kills: Habits { largest: 5000, keyed: 20, turnover: None };
    payloads_around_4096_bytes_all_with_keys_survive_three_kills: Habits { largest: 5000, keyed: 100, turnover: None };
    payloads_of_up_to_20_kib_survive_three_kills: Habits { largest: 20 * 1024, keyed: 10, turnover: None };
    payloads_around_a_chunk_survive_three_kills: Habits { largest: 40 * 1024, keyed: 50, turnover: None };
    payloads_of_up_to_100_kib_survive_three_kills: Habits { largest: 100 * 1024, keyed: 20, turnover: None };
    payloads_of_up_to_100_kib_all_with_keys_survive_three_kills: Habits { largest: 100 * 1024, keyed: 100, turnover: None };
    payloads_of_many_chunks_survive_three_kills: Habits { largest: 300 * 1024, keyed: 10, turnover: None };
}

#[test]
fn commands_survive_a_sigterm_under_load_and_the_kill_after_it() {
    let seed = seed();
    let habits = Habits { largest: 20_000, keyed: 30, turnover: None };
    let mut all = Rounds::new(BrokerOptions::new(Store::Sled).start(), seed, habits);
    for _ in 0..2 {
        all.round(Least { acks: LEAST, checkpoints: 0 }, Ending::Sigterm);
        all.round(Least { acks: LEAST / 4, checkpoints: 0 }, Ending::Kill9);
    }
    all.check_everything();
}

/// 64 connections; payloads of 1 KiB, 100 KiB and 2 MiB; every round replaces all that lives three times and crosses two
/// checkpoints of the journal, at least.
pub(crate) const TURNING: Habits =
    Habits { largest: 4096, keyed: 20, turnover: Some(Turnover { live: 3, times: 3 }) };
pub(crate) const TURNED: Least = Least { acks: LEAST, checkpoints: 2 };

/// A broker that writes sled's file anew whenever that pays at all.
pub(crate) fn compacting() -> BrokerOptions {
    BrokerOptions::new(Store::Sled).flag("--compact-above-bytes", 0)
}

/// The long run: `scripts/crash.sh kill`.
#[test]
fn payloads_of_up_to_2_mib_survive_kills_while_all_that_lives_is_replaced_and_sled_follows() {
    let seed = seed();
    let rounds = long::rounds(2);
    let mut all = Rounds::new(compacting().start(), seed, TURNING);
    let (mut counted, mut tried) = (0, 0);
    while counted < rounds {
        tried += 1;
        assert!(
            tried <= rounds * 2 + 3,
            "too few kills with {IN_FLIGHT} commands in flight: {counted} of {tried}"
        );
        counted += usize::from(all.round(TURNED, Ending::Kill9) >= IN_FLIGHT);
        long::count("kill", &format!("seed {seed}, with {IN_FLIGHT} in flight {counted}, {}", all.sum));
    }
    all.check_everything();
}

/// The test can fail: a store that has lost the newest round does not pass.
#[test]
fn an_earlier_state_of_a_store_does_not_pass_for_the_newest() {
    let files = scratch();
    let (kept, again) = (files.path().join("kept"), files.path().join("kept"));
    let habits = Habits { largest: 100, keyed: 0, turnover: None };
    let mut all = Rounds::new(BrokerOptions::new(Store::Sled).start(), seed(), habits);
    let least = Least { acks: LEAST / 4, checkpoints: 0 };
    all.meddle = Some(Box::new(move |data| copy(data, &kept)));
    all.round(least, Ending::Kill9);
    all.meddle = Some(Box::new(move |data| {
        std::fs::remove_dir_all(data).unwrap();
        copy(&again, data);
    }));
    let judged = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| all.round(least, Ending::Kill9)));
    assert!(judged.is_err(), "a lost round was not noticed");
}
