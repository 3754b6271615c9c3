//! The targets as tests: over all seeds, over mutations of them, and over each other's.

use std::fs;
use std::path::Path;

use proptest::prelude::*;
use proptest::sample::Index;

use super::*;

fn gauge(act: &mut dyn FnMut()) -> u64 {
    allocation_counter::measure(act).bytes_max
}

/// The seeds of a target, by name.
fn seeds(target: &str) -> Vec<(String, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds").join(target);
    let files = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut seeds: Vec<_> = files
        .map(|file| file.unwrap())
        .map(|file| (file.file_name().into_string().unwrap(), fs::read(file.path()).unwrap()))
        .collect();
    seeds.sort();
    assert!(!seeds.is_empty(), "{target} has no seeds");
    seeds
}

#[test]
fn every_seed_holds_and_reaches_what_its_name_says() {
    for (name, target) in TARGETS {
        let mut counts = [0, 0];
        for (seed, data) in seeds(name) {
            let reached = target(&data, gauge);
            let expected = if seed.starts_with("refused-") { Reached::Refused } else { Reached::Taken };
            assert_eq!(reached, expected, "{name}/{seed}");
            counts[usize::from(expected == Reached::Taken)] += 1;
        }
        assert!(counts.iter().all(|count| *count >= 2), "{name} has too few seeds: {counts:?}");
    }
}

#[test]
fn there_is_a_program_for_every_target() {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/Cargo.toml");
    let manifest = fs::read_to_string(manifest).unwrap();
    let programs: Vec<_> =
        manifest.lines().filter_map(|line| line.strip_prefix("name = \"")).skip(1).collect();
    let expected: Vec<_> = TARGETS.iter().map(|(name, _)| format!("{name}\"")).collect();
    assert_eq!(programs, expected);
}

/// The memory that a target may take is measured, not believed.
#[test]
fn the_gauge_sees_what_is_allocated() {
    let most = gauge(&mut || drop(std::hint::black_box(vec![0_u8; 100_000])));
    assert!((100_000..110_000).contains(&most), "{most}");
    let told =
        std::panic::catch_unwind(|| within(gauge, 99_999, || std::hint::black_box(vec![0_u8; 100_000])));
    assert!(told.is_err());
}

/// One change of an input, as a fuzzer makes them.
#[derive(Clone, Debug)]
enum Change {
    Byte(Index, u8),
    Cut(Index),
    Insert(Index, Vec<u8>),
    Remove(Index, Index),
    /// A part of another seed.
    Splice(Index, Index, Index),
}

fn change() -> impl Strategy<Value = Change> {
    let word = prop::sample::select(vec![
        "null",
        "-0",
        "1e400",
        "18446744073709551616",
        "\\ud800",
        "\"id\":1,",
        "[",
        "{",
        "}",
        "\u{0}",
        "\u{ff}",
    ]);
    let inserted = prop_oneof![
        word.prop_map(|word| word.as_bytes().to_vec()),
        prop::collection::vec(any::<u8>(), 1..9),
    ];
    prop_oneof![
        4 => (any::<Index>(), any::<u8>()).prop_map(|(at, with)| Change::Byte(at, with)),
        1 => any::<Index>().prop_map(Change::Cut),
        3 => (any::<Index>(), inserted).prop_map(|(at, bytes)| Change::Insert(at, bytes)),
        1 => (any::<Index>(), any::<Index>()).prop_map(|(from, to)| Change::Remove(from, to)),
        1 => (any::<Index>(), any::<Index>(), any::<Index>()).prop_map(|(at, seed, from)| Change::Splice(at, seed, from)),
    ]
}

fn changed(mut data: Vec<u8>, change: &Change, all: &[(String, Vec<u8>)]) -> Vec<u8> {
    let place = |at: &Index, data: &[u8]| at.index(data.len() + 1);
    match change {
        Change::Byte(at, with) if !data.is_empty() => {
            let at = at.index(data.len());
            data[at] = *with;
        }
        Change::Byte(..) => {}
        Change::Cut(at) => data.truncate(place(at, &data)),
        Change::Insert(at, bytes) => {
            let at = place(at, &data);
            drop(data.splice(at..at, bytes.iter().copied()));
        }
        Change::Remove(from, to) => {
            let mut ends = [place(from, &data), place(to, &data)];
            ends.sort_unstable();
            drop(data.drain(ends[0]..ends[1]));
        }
        Change::Splice(at, seed, from) => {
            let other = &all[seed.index(all.len())].1;
            data.truncate(place(at, &data));
            data.extend_from_slice(&other[place(from, other)..]);
        }
    }
    data
}

fn holds_under_mutation(name: &str, target: Target) {
    let all = seeds(name);
    let config = ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() };
    let cases = (any::<Index>(), prop::collection::vec(change(), 1..6));
    let mut runner = proptest::test_runner::TestRunner::new(config);
    let ended = runner.run(&cases, |(seed, changes)| {
        let mut data = all[seed.index(all.len())].1.clone();
        for change in &changes {
            data = changed(data, change, &all);
        }
        target(&data, gauge);
        Ok(())
    });
    assert!(ended.is_ok(), "{name}: {}", ended.unwrap_err());
}

#[test]
fn calls_hold_under_mutation() {
    holds_under_mutation("rpc", rpc);
}

#[test]
fn tokens_hold_under_mutation() {
    holds_under_mutation("token", token);
}

#[test]
fn records_hold_under_mutation() {
    holds_under_mutation("record", record);
}

#[test]
fn journals_hold_under_mutation() {
    holds_under_mutation("journal", journal);
}
