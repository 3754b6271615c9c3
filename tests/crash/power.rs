//! Power cuts: what was acknowledged was on the platter.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::Duration;

use crate::disk::Disk;
use crate::harness::attempt::{Outcome, Start};
use crate::kills::{TURNED, TURNING, compacting};
use crate::load::{Ending, Rounds};
use crate::long;
use crate::restarts::{create, tools};
use crate::seed;
use crate::shim::{Shim, Syncs};

const DEADLINE: Duration = Duration::from_secs(10);
const DISK_MIB: u64 = 512;
const PAGE: u64 = 4096;

/// The long run: `scripts/crash.sh power`.
#[test]
fn payloads_of_up_to_2_mib_survive_power_cuts_while_all_that_lives_is_replaced_and_sled_follows() {
    let seed = seed();
    let Some(disk) = Disk::new(DISK_MIB) else { return };
    let rounds = long::rounds(2);
    let mut options = compacting().data(disk.root().join("data"));
    // Syncs take longer, so that more cuts find a group that is written and not synced.
    let shim = Shim::new();
    for (name, value) in shim.iter().flat_map(Shim::delays) {
        options = options.env(name, &value);
    }
    let mut all = Rounds::new(options.start(), seed, TURNING).on(disk);
    for round in 0..rounds {
        // One in three while the broker runs: then it also meets a disk that fails.
        all.round(TURNED, if round % 3 == 1 { Ending::PowerCut } else { Ending::FrozenPowerCut });
        long::count("power", &format!("seed {seed}, {}", all.sum));
    }
    all.check_everything();
}

/// What the pages of a file begin with.
fn pages(path: &Path) -> String {
    fs::read(path).unwrap().chunks(4096).map(|page| char::from(page[0])).collect()
}

/// Pages of ones that were synced, then pages of twos that were not.
fn write_half_synced(path: &Path, half: u64) -> File {
    let file = OpenOptions::new().write(true).create_new(true).open(path).unwrap();
    let write = |from: u64, byte: u8| {
        for page in from..from + half {
            file.write_all_at(&[byte; 4096], page * PAGE).unwrap();
        }
    };
    write(0, b'0');
    write(half, b'0');
    file.sync_all().unwrap();
    File::open(path.parent().unwrap()).unwrap().sync_all().unwrap();
    write(0, b'1');
    file.sync_data().unwrap();
    write(half, b'2');
    file
}

#[test]
fn a_cut_loses_what_was_not_synced_and_nothing_else() {
    let Some(mut disk) = Disk::new(64) else { return };
    let path = disk.root().join("control");
    drop(write_half_synced(&path, 32));
    disk.cut(&disk.root(), 0.0, 1);
    disk.come_back();
    assert_eq!(pages(&path), format!("{}{}", "1".repeat(32), "0".repeat(32)));
}

#[test]
fn a_cut_can_leave_some_pages_of_a_write_new_and_others_old() {
    let Some(mut disk) = Disk::new(64) else { return };
    let path = disk.root().join("control");
    let file = write_half_synced(&path, 64);
    drop(file);
    disk.cut(&disk.root(), 0.8, 7);
    disk.come_back();
    let pages = pages(&path);
    let (synced, torn) = pages.split_at(64);
    assert_eq!(synced, "1".repeat(64));
    let new = torn.matches('2').count();
    assert!((16..=56).contains(&new) && torn.matches('0').count() == 64 - new, "{torn}");
    assert!(torn.contains("20") && torn.contains("02"), "in one piece: {torn}");
}

/// The test can fail: a broker whose syncs do nothing does not pass.
#[test]
fn a_broker_whose_syncs_do_nothing_loses_what_it_acknowledged() {
    let Some(shim) = Shim::new() else { return };
    let Some(mut disk) = Disk::new(128) else { return };
    let data = disk.root().join("data");
    assert!(Start::on(&data).serve().stop(DEADLINE).status.success());
    let made = |broker: crate::harness::attempt::Serving, disk: &mut Disk| {
        let mut link = broker.link();
        for n in 0..50 {
            create(&mut link, &format!("tool-{n:02}"));
        }
        let known = tools(&mut link);
        disk.cut(&disk.root(), 0.0, 1);
        broker.kill9();
        disk.come_back();
        known
    };

    let honest = Start::on(&data).serve();
    let known = made(honest, &mut disk);
    let broker = Start::on(&data).serve();
    assert_eq!(tools(&mut broker.link()), known);
    assert!(broker.stop(DEADLINE).status.success());

    let known = made(Start::on(&data).under(shim.syncs(&Syncs::Lie)).serve(), &mut disk);
    match Start::on(&data).outcome(DEADLINE) {
        Outcome::Serving(broker) => {
            assert!(tools(&mut broker.link()).len() < known.len(), "nothing was lost");
        }
        Outcome::Refused(refused) => refused.assert_clear(&data),
        Outcome::Hung(said) => panic!("{said:#?}"),
    }
}
