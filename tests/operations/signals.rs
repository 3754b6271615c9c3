//! Signals where they usually fail: as PID 1, and while the broker is still starting (case F02).

use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::process::{Pid, Signal, kill_process};

use super::{ended, free_address, get, program, wait_for};

/// The child of a process that has one.
fn child_of(parent: u32) -> Option<Pid> {
    let children = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).ok()?;
    Pid::from_raw(children.split_whitespace().next()?.parse().ok()?)
}

#[test]
fn as_process_number_one_it_ends_by_either_signal() {
    for signal in [Signal::TERM, Signal::INT] {
        let files = tempfile::tempdir().unwrap();
        let address = free_address();
        let mut namespace = Command::new("unshare")
            .args(["--user", "--map-root-user", "--pid", "--fork", "--mount-proc", "--kill-child"])
            .arg(program().get_program())
            .args(["serve", "--listen", &address.to_string(), "--store"])
            .arg(format!("sled:{}", files.path().join("data").display()))
            .stderr(Stdio::null())
            .spawn()
            .expect("unshare, of the package util-linux");
        wait_for("the broker serves", || {
            assert_eq!(namespace.try_wait().unwrap(), None, "no namespace of its own could be had");
            get(address, "/readyz").is_some_and(|answer| answer.contains(" 200 "))
        });
        let broker = child_of(namespace.id()).expect("the broker");
        let status = fs::read_to_string(format!("/proc/{}/status", broker.as_raw_nonzero())).unwrap();
        let ids = status.lines().find_map(|line| line.strip_prefix("NSpid:")).unwrap();
        assert_eq!(ids.split_whitespace().last(), Some("1"), "it is number one in there");
        let began = Instant::now();
        kill_process(broker, signal).unwrap();
        assert!(ended(&mut namespace).success(), "{signal:?}");
        assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    }
}

#[test]
fn while_it_opens_its_store_it_ends_by_either_signal() {
    for signal in [Signal::TERM, Signal::INT] {
        let files = tempfile::tempdir().unwrap();
        let (data, log) = (files.path().join("data"), files.path().join("log"));
        fs::create_dir(&data).unwrap();
        // Whoever starts while the directory is taken waits some seconds for it.
        let lock = fs::File::create(data.join("LOCK")).unwrap();
        flock(&lock, FlockOperation::NonBlockingLockExclusive).unwrap();
        let mut broker = program()
            .args(["serve", "--listen", "127.0.0.1:0", "--store"])
            .arg(format!("sled:{}", data.display()))
            .stderr(fs::File::create(&log).unwrap())
            .spawn()
            .unwrap();
        let open = format!("/proc/{}/fd", broker.id());
        wait_for("it waits for the directory", || {
            let files = fs::read_dir(&open).unwrap().flatten();
            files.filter_map(|file| fs::read_link(file.path()).ok()).any(|path| path.ends_with("data/LOCK"))
        });
        let began = Instant::now();
        kill_process(Pid::from_child(&broker), signal).unwrap();
        let status = ended(&mut broker);
        let said = fs::read_to_string(&log).unwrap();
        assert!(status.success(), "{signal:?}: {status}: {said}");
        assert!(said.contains("stopped while starting"), "{said}");
        assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
    }
}
