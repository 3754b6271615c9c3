//! Kills and power cuts in the middle of a compaction, which the broker makes while it serves: wherever it is cut, one
//! generation is the store, and everything acknowledged is in it.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use crate::disk::Disk;
use crate::files::{generation, generation_number, generations, scratch};
use crate::harness::attempt::{Serving, Start};
use crate::kept::{Kept, Made};
use crate::long;
use crate::seed;

const DEADLINE: Duration = Duration::from_secs(10);

/// How long after the beginning of a compaction a round ends at most: one of so few tasks takes about as long.
const LONGEST: Duration = Duration::from_millis(250);

/// How many tasks a round makes before, and how many at most meanwhile, of about a kilobyte each: in a hundred rounds less
/// than would leave nothing to compact.
const TASKS: usize = 20;

/// After so many rounds they go on with an empty store. Each leaves some 32 tasks of 1 KiB more that live, and a compaction pays only
/// as long as sled's file, some of its segments of 4 MiB, is more than three times as large: some 70 rounds.
const ROUNDS_OF_A_STORE: usize = 40;

/// What the rounds came to.
#[derive(Debug, Default)]
struct Sum {
    rounds: usize,
    acknowledged: usize,
    /// Rounds that ended while there were two generations.
    in_the_middle: usize,
    /// Rounds that ended after CURRENT had been replaced.
    turned: usize,
}

fn serve(data: &Path) -> Serving {
    Start::on(data).arg("--compact-above-bytes").arg("0").serve()
}

/// Works until a compaction runs, and some way into it, then lets `end` end the broker. Work goes on meanwhile.
fn round(data: &Path, kept: &mut Kept, rng: &mut fastrand::Rng, sum: &mut Sum, end: impl FnOnce(Serving)) {
    let known = kept.len();
    // Before the start: on a busy machine a compaction may be over by the time that everything has been looked at.
    let before = if data.exists() { generation_number(data) } else { 1 };
    let broker = serve(data);
    let mut link = broker.link();
    kept.check(&mut link).unwrap_or_else(|why| panic!("after {sum:?}: {why}"));
    (0..TASKS).for_each(|_| kept.must_make(&mut link, 500));
    let deadline = Instant::now() + DEADLINE;
    while generations(data) == 1 && generation_number(data) == before {
        let length = || generation(data).join("db").metadata().map(|file| file.len());
        assert!(
            Instant::now() < deadline,
            "it does not compact: sled's file has {:?} bytes, {} tasks were made: {sum:?}",
            length(),
            kept.len()
        );
        // Nothing tells when it begins.
        std::thread::sleep(Duration::from_micros(200));
    }
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (over, kept) = (&over, &mut *kept);
        scope.spawn(move || {
            for _ in 0..TASKS {
                match kept.make(&mut link, 500) {
                    Made::Acknowledged => {}
                    Made::Refused(error) => {
                        assert!(over.load(Ordering::SeqCst), "{error:?}");
                        return kept.last_is_unknown();
                    }
                    Made::Gone => return assert!(over.load(Ordering::SeqCst), "the broker was gone"),
                }
            }
        });
        // So that the end falls anywhere into it: the first one at its beginning, and many others early.
        let share = if sum.rounds == 0 { 0.0 } else { rng.f64().powi(3) };
        std::thread::sleep(LONGEST.mul_f64(share));
        over.store(true, Ordering::SeqCst);
        end(broker);
    });
    sum.rounds += 1;
    sum.acknowledged += kept.len().saturating_sub(known);
    sum.in_the_middle += usize::from(generations(data) > 1);
    sum.turned += usize::from(generation_number(data) > before);
}

/// The rounds, as many as this run has, one store after the other below `root`.
fn rounds(
    name: &'static str,
    short: usize,
    root: &Path,
    mut one: impl FnMut(&Path, &mut Kept, &mut fastrand::Rng, &mut Sum),
) -> Sum {
    let (mut rng, mut sum) = (fastrand::Rng::with_seed(seed()), Sum::default());
    let all = long::rounds(short);
    while sum.rounds < all {
        let data = root.join(format!("data-{}", sum.rounds));
        let mut kept = Kept::named(name);
        let end = all.min(sum.rounds + ROUNDS_OF_A_STORE);
        while sum.rounds < end {
            one(&data, &mut kept, &mut rng, &mut sum);
        }
        kept.check(&mut serve(&data).link()).unwrap_or_else(|why| panic!("{sum:?}: {why}"));
    }
    sum
}

fn verdict(name: &str, sum: &Sum) {
    long::count(name, &format!("{sum:?}"));
    eprintln!("{sum:?}");
    assert!(sum.in_the_middle > 0, "no round ended in the middle: {sum:?}");
}

#[test]
fn a_kill_in_the_middle_of_a_compaction_loses_nothing() {
    let files = scratch();
    let sum = rounds("kill", 6, files.path(), |data, kept, rng, sum| {
        round(data, kept, rng, sum, Serving::kill9);
    });
    verdict("compaction-kill", &sum);
}

#[test]
fn a_power_cut_in_the_middle_of_a_compaction_loses_nothing() {
    let Some(mut disk) = Disk::new(256) else { return };
    let root = disk.root().clone();
    let sum = rounds("power", 4, &root, |data, kept, rng, sum| {
        let (survives, disk_seed) = (*rng.choice(&[0.0, 0.3, 0.7, 0.95]).unwrap(), rng.u32(..));
        let cut = |broker: Serving| {
            // While the cut is made, which takes longer than a compaction.
            broker.freeze();
            disk.cut(data, survives, disk_seed);
            broker.kill9();
            disk.come_back();
        };
        round(data, kept, rng, sum, cut);
    });
    verdict("compaction-power", &sum);
}
