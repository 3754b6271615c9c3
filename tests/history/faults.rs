//! The checker finds nothing in a broker that does as it should, and something in each that does not.

use crate::fake::{Fake, Fault};
use crate::judge::Findings;
use crate::load::{Board, Lives, Player};
use crate::recording::Recording;
use crate::run::{micros, play};

/// A recording of many clients on a fake broker, with a kill in the middle.
fn recording(fake: &Fake, seed: u64) -> Recording {
    let (origin, board) = (fake.origin, Board::default());
    let mut players: Vec<_> = (0..6).map(|name| Player::new(name, seed, Lives::Long)).collect();
    let (mut records, mut ends) = (Vec::new(), Vec::new());
    for life in 0..2 {
        std::thread::scope(|scope| {
            let clients: Vec<_> = players
                .iter_mut()
                .enumerate()
                .map(|(client, player)| {
                    let board = &board;
                    scope.spawn(move || {
                        let mut calls = 0..200;
                        play(&mut { fake }, player, board, (origin, client, life), || calls.next().is_some())
                    })
                })
                .collect();
            for client in clients {
                records.extend(client.join().unwrap());
            }
        });
        ends.push(if life == 0 { micros(origin) } else { u64::MAX });
        fake.restart();
    }
    records.sort_by_key(|record| record.from);
    Recording { records, ends, limits: fake.limits.clone() }
}

fn findings(fault: Fault, seed: u64) -> (Findings, usize) {
    let fake = Fake::new(seed, fault);
    let mut findings = Findings::default();
    findings.add(&recording(&fake, seed));
    (findings, fake.faults())
}

#[test]
fn a_broker_that_does_as_it_should_is_linearizable() {
    for seed in 0..3 {
        let (findings, _) = findings(Fault::None, seed);
        assert!(findings.violations.is_empty(), "seed {seed}: {findings}\n{}", findings.violations[0]);
        assert_eq!(findings.undecided, 0, "seed {seed}: {findings}");
    }
}

fn assert_noticed(fault: Fault) {
    for seed in 0..2 {
        let (findings, faults) = findings(fault, seed);
        assert!(faults > 0, "no fault was made");
        // In histories of tasks, not only where two tasks are compared.
        let tables = findings.violations.iter().filter(|found| found.contains("does not fit there"));
        let example = tables.min_by_key(|table| table.len());
        let example = example.unwrap_or_else(|| panic!("seed {seed}, {fault:?} {faults} times: {findings}"));
        eprintln!("{fault:?} {faults} times: {findings}\n{example}");
    }
}

macro_rules! faults {
    ($($name:ident: $fault:ident;)+) => {
        $(#[test]
        fn $name() {
            assert_noticed(Fault::$fault);
        })+
    };
}

faults! {
    stale_reads_are_noticed: StaleRead;
    lost_updates_are_noticed: LostUpdate;
    decisions_on_an_old_state_are_noticed: StaleDecision;
    forgotten_idempotency_keys_are_noticed: ForgottenKey;
    expired_tasks_that_are_shown_again_are_noticed: Undead;
    states_that_a_kill_takes_back_are_noticed: TakenBack;
}
