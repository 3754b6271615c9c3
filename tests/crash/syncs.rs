//! Syncs that fail. What a failed sync leaves on the disk is unknown, and a second one that succeeds proves nothing: the
//! broker must stop acknowledging, turn red, and end.

use std::path::Path;
use std::time::Duration;

use tokio::time::Instant;

use crate::disk::Disk;
use crate::files::{copy, scratch};
use crate::harness::attempt::{Outcome, Refused, Start};
use crate::harness::link::Link;
use crate::harness::raw;
use crate::kept::{Kept, Made};
use crate::shim::{Shim, Syncs};

const DEADLINE: Duration = Duration::from_secs(12);
const LINKS: usize = 8;
/// The load is over before this many commands of one link, if nothing ends it.
const COMMANDS: usize = 400;

/// A store with some tasks, stopped.
fn store(data: &Path, clean: bool) -> Kept {
    let mut kept = Kept::named("before");
    let broker = Start::on(data).serve();
    (0..50).for_each(|_| kept.must_make(&mut broker.link(), 5000));
    if clean {
        assert!(broker.stop(DEADLINE).status.success());
    } else {
        broker.kill9();
    }
    kept
}

/// Works on a broker with such syncs until it ends; gives how it ended, or nothing if no sync of the store's own threads has
/// failed: sled makes some by itself when it gives room back, after ours, and nothing depends on them. An error if it goes on
/// all the same.
fn work_until_it_ends(
    shim: &Shim,
    syncs: &Syncs,
    data: &Path,
    kept: &mut Kept,
) -> Result<Option<Refused>, String> {
    let mut broker = Start::on(data).under(shim.syncs(syncs)).serve();
    let address = broker.address;
    let parts: Vec<(Kept, bool)> = std::thread::scope(|scope| {
        let work = |part: usize| {
            scope.spawn(move || {
                let mut kept = Kept::named(format!("part-{part}"));
                let Ok(mut link) = Link::try_open(address, None) else { return (kept, true) };
                for _ in 0..COMMANDS {
                    match kept.make(&mut link, 5000) {
                        Made::Acknowledged => {}
                        Made::Refused(error) => {
                            kept.last_is_unknown();
                            assert!(matches!(error.kind.as_str(), "unavailable" | "internal"), "{error:?}");
                            return (kept, true);
                        }
                        Made::Gone => return (kept, true),
                    }
                }
                (kept, false)
            })
        };
        let workers: Vec<_> = (0..LINKS).map(work).collect();
        workers.into_iter().map(|worker| worker.join().unwrap()).collect()
    });
    // From the first refusal on it is red, until it is gone.
    let deadline = if parts.iter().any(|(_, refused)| *refused) { DEADLINE } else { Duration::from_secs(1) };
    let end = Instant::now() + deadline;
    let red = loop {
        let request = "GET /readyz HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n";
        let connected = std::net::TcpStream::connect(address).is_ok();
        match connected.then(|| std::panic::catch_unwind(|| raw::try_exchange(address, request))) {
            // Nothing tells when it turns red.
            Some(Ok(Some(answer))) if answer.status == 200 && Instant::now() < end => {
                std::thread::sleep(Duration::from_millis(5));
            }
            Some(Ok(Some(answer))) => break answer.status == 503,
            _gone => break true,
        }
    };
    for (part, _) in parts {
        kept.join(part);
    }
    let ended = match broker.ended(deadline) {
        Ok(ended) => ended,
        Err(said) if said.iter().any(|line| line.starts_with("shim: ") && line.contains(" in store-")) => {
            return Err(format!("it goes on: {said:#?}"));
        }
        Err(_goes_on) => return Ok(None),
    };
    if !red {
        return Err(format!("readiness was not red: {ended:?}"));
    }
    if ended.status.code().is_none_or(|code| code == 0) {
        return Err(format!("no failure: {ended:?}"));
    }
    ended.assert_no_panic_text();
    Ok(Some(ended))
}

/// A sync fails in the middle of the load, then the power: what was acknowledged is there.
fn survives(file: &'static str, numbers: &[u64], once: bool) {
    let Some(shim) = Shim::new() else { return };
    let mut hit = 0;
    for number in numbers {
        let Some(mut disk) = Disk::new(128) else { return };
        let data = disk.root().join("data");
        let mut kept = store(&data, true);
        let before = kept.len();
        let syncs = Syncs::Fail { file, from: *number, once };
        let Some(ended) = work_until_it_ends(&shim, &syncs, &data, &mut kept).unwrap() else { continue };
        hit += 1;
        let text = ended.text();
        assert!(text.contains("os error 5") || text.contains("Input/output error"), "{ended:?}");
        eprintln!("{syncs:?}: {} acknowledged before it", kept.len() - before);
        disk.cut(&data, 0.0, 1);
        disk.come_back();
        kept.check(&mut Start::on(&data).serve().link()).unwrap_or_else(|why| panic!("{syncs:?}: {why}"));
    }
    assert!(hit > 0, "no sync has failed");
}

#[test]
fn a_sync_of_the_journal_that_fails_ends_the_broker_and_loses_nothing() {
    survives("/journal-", &[1, 40], false);
}

#[test]
fn a_sync_of_the_journal_that_fails_once_is_not_tried_again() {
    survives("/journal-", &[1, 40], true);
}

#[test]
fn a_sync_of_sleds_file_that_fails_ends_the_broker_and_loses_nothing() {
    // The first ones belong to the start.
    survives("/db", &[6, 12], false);
}

#[test]
fn a_sync_of_sleds_file_that_fails_once_is_not_tried_again() {
    survives("/db", &[6, 12], true);
}

/// A start in which one sync fails is refused, says so, and costs nothing. Every sync of a start is tried.
fn every_sync_of_a_start(data: &Path, kept: &Kept, once: bool) {
    let Some(shim) = Shim::new() else { return };
    let (mut failed, mut refusals) = (0, 0);
    loop {
        assert!(failed < 100, "the syncs of a start do not end");
        let files = scratch();
        let copied = files.path().join("data");
        if data.exists() {
            copy(data, &copied);
        }
        let syncs = Syncs::Fail { file: "", from: failed + 1, once };
        match Start::on(&copied).under(shim.syncs(&syncs)).outcome(DEADLINE) {
            Outcome::Refused(refused) => {
                // Where the directory itself is made, its parent is what cannot be synced.
                refused.assert_clear(files.path());
                let text = refused.text();
                assert!(text.contains("os error 5") || text.contains("Input/output error"), "{refused:?}");
                assert!(!text.contains("damage"), "nothing is damaged: {refused:?}");
                refusals += 1;
            }
            // It may be one that sled makes by itself, or one behind the start.
            Outcome::Serving(broker) => {
                let stopped = broker.stop(DEADLINE);
                stopped.assert_no_panic_text();
                if !has_failed(&stopped) {
                    break;
                }
                eprintln!("{failed}: it served: {stopped:?}");
            }
            Outcome::Hung(said) => panic!("{said:#?}"),
        }
        failed += 1;
        let broker = Start::on(&copied).serve();
        kept.check(&mut broker.link()).unwrap_or_else(|why| panic!("sync {failed} failed: {why}"));
    }
    assert!(refusals >= 2, "only {refusals} syncs in a start");
    eprintln!("each of {failed} syncs of a start has failed, {refusals} starts were refused");
}

/// Whether a sync has failed.
fn has_failed(ended: &Refused) -> bool {
    ended.said.iter().any(|line| line.starts_with("shim: "))
}

#[test]
fn a_first_start_in_which_any_sync_fails_is_refused_and_the_next_one_works() {
    for once in [true, false] {
        every_sync_of_a_start(&scratch().path().join("none"), &Kept::default(), once);
    }
}

#[test]
fn a_start_after_a_kill_in_which_any_sync_fails_is_refused_and_the_next_one_has_it_all() {
    let files = scratch();
    let data = files.path().join("data");
    let kept = store(&data, false);
    for once in [true, false] {
        every_sync_of_a_start(&data, &kept, once);
    }
}

/// The test can fail: a broker that takes a failed sync for a good one does not pass.
#[test]
fn a_failed_sync_that_nobody_notices_does_not_pass() {
    let Some(shim) = Shim::new() else { return };
    let files = scratch();
    let data = files.path().join("data");
    let mut kept = store(&data, true);
    let mut broker = Start::on(&data).under(shim.syncs(&Syncs::Lie)).serve();
    (0..20).for_each(|_| kept.must_make(&mut broker.link(), 5000));
    assert!(broker.ended(Duration::from_millis(500)).is_err(), "it has noticed");
}
