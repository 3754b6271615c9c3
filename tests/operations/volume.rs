//! Data directories as containers have them: of another user, read-only, private (case F12).

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use super::{get, post, start};

/// The user of the image, who owns nothing on this machine.
const USER: u32 = 10_001;

/// How long a start that cannot be may take.
const AT_ONCE: Duration = Duration::from_secs(5);

/// A start as the user of the image. Root could write anywhere; who is not root stays who he is.
fn refused(files: &Path, data: &Path) -> (Output, u32) {
    let am_root = rustix::process::getuid().is_root();
    let user = if am_root { USER } else { rustix::process::getuid().as_raw() };
    // A place that the other user can reach.
    let binary = files.join("task-broker");
    if !binary.exists() {
        fs::copy(env!("CARGO_BIN_EXE_task-broker"), &binary).unwrap();
    }
    fs::set_permissions(files, Permissions::from_mode(0o755)).unwrap();
    let mut command = Command::new(binary);
    command.args(["serve", "--listen", "127.0.0.1:0", "--store"]).arg(format!("sled:{}", data.display()));
    if am_root {
        command.uid(USER).gid(USER);
    }
    let began = Instant::now();
    let output = command.output().unwrap();
    assert!(began.elapsed() < AT_ONCE, "{:?}", began.elapsed());
    (output, user)
}

#[track_caller]
fn assert_told((output, user): (Output, u32), place: &Path, reason: &str) {
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    let last = said.lines().last().unwrap();
    for part in [&place.display().to_string(), &format!("uid {user}"), reason] {
        assert!(last.contains(part), "no {part} in: {last}");
    }
}

fn directory(files: &Path, name: &str, mode: u32) -> PathBuf {
    let path = files.join(name);
    fs::create_dir(&path).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
    path
}

#[test]
fn a_directory_that_cannot_be_written_is_told_with_path_user_and_reason() {
    let files = tempfile::tempdir().unwrap();
    let foreign = directory(files.path(), "foreign", 0o555);
    assert_told(refused(files.path(), &foreign), &foreign, "Permission denied");
    assert_eq!(fs::read_dir(&foreign).unwrap().count(), 0, "and nothing is left behind");
    let below = foreign.join("data");
    assert_told(refused(files.path(), &below), &below, "Permission denied");
    let closed = directory(files.path(), "closed", 0o000);
    assert_told(refused(files.path(), &closed), &closed, "Permission denied");
    fs::set_permissions(&closed, Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn a_store_that_another_user_has_written_is_told_and_left_alone() {
    if !rustix::process::getuid().is_root() {
        assert!(std::env::var_os("CI").is_none(), "this needs two users, so it needs root");
        return;
    }
    let files = tempfile::tempdir().unwrap();
    let data = files.path().join("data");
    let mut broker = start(&data, std::process::Stdio::null());
    assert!(broker.stop().success());
    assert_told(refused(files.path(), &data), &data, "Permission denied");
    // As a volume of which only the top was given to the user.
    chown(&data, Some(USER), Some(USER)).unwrap();
    assert_told(refused(files.path(), &data), &data, "Permission denied");
    assert!(start(&data, std::process::Stdio::null()).stop().success(), "its owner goes on with it");
}

#[test]
fn whatever_may_not_be_opened_or_written_in_a_store_is_told_with_its_name() {
    if !rustix::process::getuid().is_root() {
        assert!(std::env::var_os("CI").is_none(), "this needs two users, so it needs root");
        return;
    }
    let files = tempfile::tempdir().unwrap();
    let data = files.path().join("data");
    assert!(start(&data, std::process::Stdio::null()).stop().success());
    for entry in [".", "LOCK", "CURRENT", "generation-1"] {
        chown(data.join(entry), Some(USER), Some(USER)).unwrap();
    }
    let generation = data.join("generation-1");
    for entry in fs::read_dir(&generation).unwrap() {
        chown(entry.unwrap().path(), Some(USER), Some(USER)).unwrap();
    }
    let closed = [
        ("generation-1/db", 0o400),
        ("generation-1/conf", 0),
        ("generation-1/journal-0", 0),
        ("generation-1/journal-1", 0o400),
        ("generation-1/blobs", 0),
        ("generation-1", 0o500),
        ("", 0o500),
    ];
    for (name, mode) in closed {
        let place = if name.is_empty() { data.clone() } else { data.join(name) };
        let before = fs::metadata(&place).unwrap().permissions();
        fs::set_permissions(&place, Permissions::from_mode(mode)).unwrap();
        let refused = refused(files.path(), &data);
        assert!(String::from_utf8_lossy(&refused.0.stderr).contains(name), "{name}: {refused:?}");
        assert_told(refused, &data, "Permission denied");
        fs::set_permissions(&place, before).unwrap();
    }
    assert!(start(&data, std::process::Stdio::null()).stop().success(), "nothing was harmed");
}

#[test]
fn a_read_only_file_system_is_told() {
    let files = tempfile::tempdir().unwrap();
    let data = directory(files.path(), "data", 0o755);
    let script = r#"mount --bind "$1" "$1" && mount -o remount,bind,ro "$1" && exec "$0" serve --listen 127.0.0.1:0 --store "sled:$1""#;
    let output = Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "sh", "-c", script])
        .arg(env!("CARGO_BIN_EXE_task-broker"))
        .arg(&data)
        .output()
        .expect("unshare, of the package util-linux");
    assert_told((output, 0), &data, "Read-only file system");
}

#[test]
fn all_files_are_private_whatever_the_umask_is() {
    let files = tempfile::tempdir().unwrap();
    let data = files.path().join("data");
    let broker = start(&data, std::process::Stdio::null());
    let create = r#"{"jsonrpc":"2.0","id":1,"method":"store/create","params":{"toolName":"x"}}"#;
    assert!(post(broker.address, b"", create).contains("\"created\":true"));
    let mut seen = 0;
    let mut left = vec![data];
    while let Some(path) = left.pop() {
        let found = fs::metadata(&path).unwrap();
        let private = if found.is_dir() { 0o700 } else { 0o600 };
        assert_eq!(found.mode() & 0o777, private, "{}", path.display());
        seen += 1;
        if found.is_dir() {
            left.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
    }
    assert!(seen > 4, "{seen}");
    assert!(get(broker.address, "/readyz").unwrap().contains(" 200 "));
}
