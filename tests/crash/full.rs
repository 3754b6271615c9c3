//! Disks that are full or cannot be written to, while a broker runs and when it starts (D04).

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::json;
use tempfile::TempDir;
use tokio::time::Instant;

use crate::disk::{Disk, if_possible, run, unmount};
use crate::files::scratch;
use crate::harness::attempt::{Outcome, Refused, Serving, Start};
use crate::harness::raw;
use crate::kept::{Kept, Made};
use crate::long;

const DEADLINE: Duration = Duration::from_secs(12);
const MIB: usize = 1 << 20;
/// The size of most arguments.
const SIZE: usize = 50_000;

/// A small file system of the test's own.
enum Small {
    Memory(Memory),
    /// ext4 on a loop device.
    Ext4(Disk),
}

struct Memory(TempDir);

impl Drop for Memory {
    fn drop(&mut self) {
        unmount(self.0.path()).unwrap_or_else(|why| eprintln!("{why}"));
    }
}

impl Small {
    fn memory(options: &str) -> Option<Self> {
        if_possible("file systems to mount", &["mount", "umount", "mountpoint"], || {
            let files = scratch();
            run("mount", &[&"-t", &"tmpfs", &"-o", &options, &"tmpfs", &files.path()])?;
            Ok(Self::Memory(Memory(files)))
        })
    }

    fn ext4(mib: u64) -> Option<Self> {
        Disk::new(mib).map(Self::Ext4)
    }

    fn root(&self) -> PathBuf {
        match self {
            Self::Memory(Memory(files)) => files.path().to_owned(),
            Self::Ext4(disk) => disk.root(),
        }
    }

    fn data(&self) -> PathBuf {
        self.root().join("data")
    }

    /// Takes all the room that is left, to the last byte.
    fn fill(&self) {
        let mut filler =
            OpenOptions::new().append(true).create(true).open(self.root().join("filler")).unwrap();
        for step in [MIB, 64 << 10, 4096] {
            let bytes = vec![0; step];
            let ended = loop {
                if let Err(error) = filler.write_all(&bytes) {
                    break error;
                }
            };
            assert_eq!(ended.kind(), std::io::ErrorKind::StorageFull, "{ended}");
            filler.sync_data().unwrap();
        }
    }

    /// Takes all inodes that are left.
    fn fill_inodes(&self) {
        let directory = self.root().join("fillers");
        fs::create_dir(&directory).unwrap();
        let mut made = 0;
        while File::create(directory.join(made.to_string())).is_ok() {
            made += 1;
        }
        assert!(made > 0);
    }

    fn free(&self) {
        let removed = fs::remove_file(self.root().join("filler"));
        let removed = removed.or_else(|_none| fs::remove_dir_all(self.root().join("fillers")));
        removed.unwrap();
    }
}

fn probe(broker: &Serving, path: &str) -> u16 {
    let request = format!("GET {path} HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n");
    raw::exchange(broker.address, request).status
}

/// Asks until it is so.
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + DEADLINE;
    while !is_so() {
        assert!(Instant::now() < end, "not within {DEADLINE:?}: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A broker on this file system with some tasks.
fn store(small: &Small, kept: &mut Kept) -> Serving {
    let broker = Start::on(&small.data()).serve();
    let mut link = broker.link();
    (0..100).for_each(|_| kept.must_make(&mut link, SIZE));
    broker
}

/// Fills the disk while tasks are made, and makes more until one is refused, as it must be.
fn fill_up(small: &Small, broker: &Serving, kept: &mut Kept) {
    let mut link = broker.link();
    std::thread::scope(|scope| {
        // So that sled is in the middle of following the journal when the room ends.
        let filler = scope.spawn(|| small.fill());
        while !filler.is_finished() && matches!(kept.make(&mut link, SIZE), Made::Acknowledged) {}
    });
    small.fill();
    let mut written = 0;
    // Smaller ones may still find room when a large one does not.
    for size in [SIZE, SIZE / 10, 10] {
        let refused = loop {
            match kept.make(&mut link, size) {
                Made::Acknowledged => written += size,
                Made::Refused(error) => break error,
                Made::Gone => panic!("the broker went away after {written} bytes"),
            }
            assert!(written < 256 * MIB, "it takes more than there is room for");
        };
        assert_eq!(refused.kind, "unavailable", "{refused:?}");
    }
    eprintln!("refused after {written} bytes on a full disk");
}

/// While there is no room commands are refused, and nothing else.
fn refuses_commands_only(broker: &Serving, kept: &mut Kept, seconds: u64) {
    let mut link = broker.link();
    let soon = link.ask("store/statuses", &json!({"taskIds": [kept.any_id()]})).result();
    assert!(soon["statuses"][kept.any_id()].is_object(), "{soon}");
    until("readiness is red", || probe(broker, "/readyz") == 503);
    let request = "GET /readyz HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n";
    let said = raw::exchange(broker.address, request).body;
    assert_eq!(said, "the store is unavailable: there is no room on the disk\n");
    let end = Instant::now() + Duration::from_secs(seconds);
    loop {
        assert_eq!(probe(broker, "/livez"), 200);
        assert_eq!(probe(broker, "/readyz"), 503);
        match kept.make(&mut link, SIZE) {
            Made::Refused(error) => assert_eq!(error.kind, "unavailable", "{error:?}"),
            made => panic!("{made:?}"),
        }
        let id = kept.any_id();
        let change = link.ask("store/complete", &json!({"taskId": id, "result": {"n": "n".repeat(SIZE)}}));
        assert_eq!(change.error().kind, "unavailable", "{change}");
        let wait =
            link.ask("store/wait", &json!({"taskId": id, "timeoutMs": 100, "sinceRevision": 1})).result();
        assert_eq!(wait["revision"], 1, "{wait}");
        if Instant::now() > end {
            break;
        }
    }
    kept.check(&mut link).unwrap();
}

/// After there is room again it takes commands again, or it ends and the next start does.
fn comes_back(small: &Small, mut broker: Serving, kept: &mut Kept) -> Serving {
    small.free();
    let mut link = broker.link();
    let mut ended = false;
    until("commands are taken again", || match kept.make(&mut link, SIZE) {
        Made::Acknowledged => true,
        Made::Refused(error) => {
            if error.data["outcome"] == "unknown" || error.kind == "internal" {
                kept.last_is_unknown();
            }
            false
        }
        Made::Gone => {
            ended = true;
            true
        }
    });
    if ended {
        let said = broker.ended(DEADLINE).unwrap_or_else(|said| panic!("it goes on: {said:#?}"));
        assert!(said.status.code().is_some_and(|code| code != 0), "{said:?}");
        said.assert_no_panic_text();
        eprintln!("it came back by a restart: {said:?}");
        broker = Start::on(&small.data()).serve();
        link = broker.link();
        kept.check(&mut link).unwrap();
    }
    until("readiness is green", || probe(&broker, "/readyz") == 200);
    (0..50).for_each(|_| kept.must_make(&mut link, SIZE));
    kept.check(&mut link).unwrap();
    broker
}

fn runs_full_and_comes_back(small: &Small) {
    let mut kept = Kept::default();
    let mut broker = store(small, &mut kept);
    // In the long run more often, and once for a minute.
    let seconds: &[u64] = if long::is_long() { &[1, 1, 1, 1, 60, 1, 1, 1, 1, 1] } else { &[1, 1] };
    for seconds in seconds.iter().copied() {
        fill_up(small, &broker, &mut kept);
        refuses_commands_only(&broker, &mut kept, seconds);
        broker = comes_back(small, broker, &mut kept);
    }
    broker.kill9();
    let broker = Start::on(&small.data()).serve();
    kept.check(&mut broker.link()).unwrap();
    assert!(broker.stop(DEADLINE).status.success());
}

#[test]
fn a_full_disk_in_memory_refuses_commands_and_nothing_else_and_comes_back_by_itself() {
    let Some(small) = Small::memory("size=128m") else { return };
    runs_full_and_comes_back(&small);
}

#[test]
fn a_full_ext4_refuses_commands_and_nothing_else_and_comes_back_by_itself() {
    let Some(small) = Small::ext4(128) else { return };
    runs_full_and_comes_back(&small);
}

/// A start on a disk without room serves, or says what is missing; it must not speak of damage.
fn starts_or_says_why(data: &Path, why: &[&str], kept: &Kept) -> Option<Refused> {
    match Start::on(data).outcome(DEADLINE) {
        Outcome::Serving(broker) => {
            kept.check(&mut broker.link()).unwrap();
            broker.kill9();
            None
        }
        Outcome::Refused(refused) => {
            refused.assert_clear(data);
            let text = refused.text();
            assert!(why.iter().any(|why| text.contains(why)), "it does not say what is missing: {refused:?}");
            assert!(!text.contains("damage"), "nothing is damaged: {refused:?}");
            if text.contains("No space left on device") {
                assert!(text.contains("up to") && text.contains("were free"), "needed and free: {refused:?}");
            }
            Some(refused)
        }
        Outcome::Hung(said) => panic!("{said:#?}"),
    }
}

const NO_ROOM: [&str; 2] = ["No space left on device", "room"];

fn starts_on_a_full_disk(kill: bool) {
    let Some(small) = Small::memory("size=128m") else { return };
    let mut kept = Kept::default();
    let broker = store(&small, &mut kept);
    fill_up(&small, &broker, &mut kept);
    small.fill();
    if kill {
        broker.kill9();
    } else {
        let stopped = broker.stop(DEADLINE);
        stopped.assert_no_panic_text();
        assert!(stopped.status.code().is_some(), "{stopped:?}");
    }
    small.fill();
    for _ in 0..2 {
        if let Some(refused) = starts_or_says_why(&small.data(), &NO_ROOM, &kept) {
            eprintln!("{refused:?}");
        }
    }
    small.free();
    let broker = Start::on(&small.data()).serve();
    let mut link = broker.link();
    kept.check(&mut link).unwrap();
    kept.must_make(&mut link, SIZE);
    assert!(broker.stop(DEADLINE).status.success());
}

#[test]
fn a_restart_on_a_full_disk_after_a_kill_loses_nothing_and_says_what_is_missing() {
    starts_on_a_full_disk(true);
}

#[test]
fn a_restart_on_a_full_disk_after_a_stop_loses_nothing_and_says_what_is_missing() {
    starts_on_a_full_disk(false);
}

#[test]
fn a_first_start_on_a_full_disk_says_what_is_missing_and_works_later() {
    for room in [0, 4096, 200 << 10, MIB, 3 * MIB] {
        let Some(small) = Small::memory("size=32m") else { return };
        small.fill();
        let filler = OpenOptions::new().write(true).open(small.root().join("filler")).unwrap();
        filler.set_len(filler.metadata().unwrap().len().saturating_sub(room as u64)).unwrap();
        drop(filler);
        starts_or_says_why(&small.data(), &NO_ROOM, &Kept::default());
        small.free();
        let mut kept = Kept::default();
        let broker = Start::on(&small.data()).serve();
        kept.must_make(&mut broker.link(), 1000);
        broker.kill9();
        kept.check(&mut Start::on(&small.data()).serve().link()).unwrap();
    }
}

#[test]
fn a_first_start_has_enough_with_what_is_said_to_be_needed() {
    let Some(small) = Small::memory("size=2m") else { return };
    let refused = starts_or_says_why(&small.data(), &NO_ROOM, &Kept::default()).expect("too little");
    let text = refused.text();
    assert!(
        text.contains("a new store needs up to 8388608 bytes and 16 files; 2097152 bytes and "),
        "{text}"
    );
    // One for the root of the file system.
    let Some(enough) = Small::memory("size=8388608,nr_inodes=17") else { return };
    assert!(Start::on(&enough.data()).serve().stop(DEADLINE).status.success());
}

#[test]
fn a_disk_without_inodes_loses_nothing() {
    let Some(small) = Small::memory("size=256m,nr_inodes=64") else { return };
    let mut kept = Kept::default();
    let broker = store(&small, &mut kept);
    small.fill_inodes();
    let mut link = broker.link();
    let mut refused = 0;
    for _ in 0..400 {
        match kept.make(&mut link, SIZE) {
            Made::Acknowledged => {}
            Made::Refused(error) => {
                assert_eq!(error.kind, "unavailable", "{error:?}");
                refused += 1;
            }
            Made::Gone => panic!("the broker went away"),
        }
    }
    eprintln!("{refused} of 400 commands were refused");
    kept.check(&mut link).unwrap();
    broker.kill9();
    for _ in 0..2 {
        if let Some(refused) = starts_or_says_why(&small.data(), &["No space left on device", "inode"], &kept)
        {
            eprintln!("{refused:?}");
        }
    }
    small.free();
    let broker = Start::on(&small.data()).serve();
    kept.check(&mut broker.link()).unwrap();
    kept.must_make(&mut broker.link(), SIZE);
    assert!(broker.stop(DEADLINE).status.success());
}

#[test]
fn a_first_start_without_inodes_says_what_is_missing() {
    for inodes in 2..10 {
        let Some(small) = Small::memory(&format!("size=64m,nr_inodes={inodes}")) else { return };
        let broker =
            starts_or_says_why(&small.data(), &["No space left on device", "inode"], &Kept::default());
        eprintln!("{inodes}: {broker:?}");
    }
}

#[test]
fn a_start_on_a_read_only_file_system_says_so_and_changes_nothing() {
    let Some(small) = Small::memory("size=64m") else { return };
    let mut kept = Kept::default();
    let broker = store(&small, &mut kept);
    broker.kill9();
    let remount = |how: &str| run("mount", &[&"-o", &format!("remount,{how}"), &small.root()]).unwrap();
    remount("ro");
    starts_or_says_why(&small.data(), &["Read-only file system"], &kept).expect("it cannot write");
    let fresh = starts_or_says_why(&small.root().join("fresh"), &["Read-only file system"], &Kept::default());
    fresh.expect("it cannot write");
    remount("rw");
    kept.check(&mut Start::on(&small.data()).serve().link()).unwrap();
}

/// What ext4 does when its disk fails: it turns read-only at once.
#[test]
fn a_file_system_that_turns_read_only_ends_the_broker_and_loses_nothing() {
    let Some(mut disk) = Disk::new(128) else { return };
    let data = disk.root().join("data");
    let mut kept = Kept::default();
    let mut broker = Start::on(&data).serve();
    let mut link = broker.link();
    (0..100).for_each(|_| kept.must_make(&mut link, SIZE));
    disk.turn_read_only();
    let end = Instant::now() + DEADLINE;
    while let Made::Acknowledged = kept.make(&mut link, SIZE) {
        assert!(Instant::now() < end, "it takes commands on a read-only file system");
    }
    kept.last_is_unknown();
    let ended = broker.ended(DEADLINE).unwrap_or_else(|said| panic!("it goes on: {said:#?}"));
    assert!(ended.status.code().is_some_and(|code| code != 0), "{ended:?}");
    ended.assert_no_panic_text();
    disk.come_back();
    kept.check(&mut Start::on(&data).serve().link()).unwrap();
}

#[test]
fn a_directory_that_may_not_be_written_to_is_refused_with_its_name() {
    let nobody = || {
        let under = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "true"];
        run(under[0], &[&under[1], &under[2], &under[3], &under[4]]).map(drop)
    };
    let Some(()) = if_possible("other users", &["setpriv"], nobody) else { return };
    let files = scratch();
    fs::set_permissions(files.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let under = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];
    let data = files.path().join("data");
    let text = Start::on(&data).under(under).refuse(DEADLINE).text();
    assert!(text.contains("Permission denied") && text.contains("uid 65534"), "{text}");
    let mut kept = Kept::default();
    let broker = Start::on(&data).serve();
    kept.must_make(&mut broker.link(), SIZE);
    broker.kill9();
    let text = Start::on(&data).under(under).refuse(DEADLINE).text();
    assert!(text.contains("Permission denied") && !text.contains("damage"), "{text}");
    assert!(text.contains("uid 65534"), "{text}");
    kept.check(&mut Start::on(&data).serve().link()).unwrap();
}

/// The test can fail: a task that is gone, one that nobody acknowledged, and other bytes do not pass.
#[test]
fn what_is_missing_or_strange_does_not_pass_for_what_was_acknowledged() {
    let files = scratch();
    let broker = Start::on(&files.path().join("data")).serve();
    let mut link = broker.link();
    let mut kept = Kept::default();
    (0..3).for_each(|_| kept.must_make(&mut link, 100));
    kept.check(&mut link).unwrap();
    let mut less = kept.clone();
    kept.must_make(&mut link, 100);
    assert!(less.check(&mut link).unwrap_err().contains("there and not acknowledged"));
    less.last_is_unknown();
    link.ask("store/discard", &json!({"taskId": kept.any_id()})).result();
    assert!(kept.check(&mut link).unwrap_err().contains("was acknowledged"));
}
