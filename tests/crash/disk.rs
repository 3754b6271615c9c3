//! A disk that loses what was not synced, as real ones do when the power fails.
//!
//! ```text
//! outer.img    the platter: an ext4 image, in memory where that is possible
//! outer/       mounted
//!   disk.img   the disk as a host sees it: a write is in outer's page cache until somebody syncs disk.img
//! inner/       disk.img, mounted: an fdatasync in here becomes a flush of the loop device, and that a sync of disk.img
//! ```
//!
//! So the page cache of `outer` is the disk's volatile cache: what was written but not flushed is only there, also what
//! `sync_file_range` has written. A cut syncs any share of its pages, each by itself, in no order, as a disk may have
//! written them already; then it shuts `outer` down with `EXT4_IOC_SHUTDOWN` and `EXT4_GOING_FLAGS_NOLOGFLUSH`, which
//! throws away all that is not on the platter. Both file systems are mounted again, and each replays its journal.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use tempfile::TempDir;
use tokio::time::Instant;

use crate::files::store_files;

/// How long file systems may stay busy after a broker on them is gone.
const BUSY_DEADLINE: Duration = Duration::from_secs(10);
const MIB: u64 = 1 << 20;

/// Writes pages of files at random, as the kernel and then the disk may do it at any time: first the broker's files, to
/// the disk's cache; then `disk.img`, to the platter. Then it shuts down the file system of that. Rust has neither call
/// without unsafe code. Arguments: share of pages, seed, number of the system call `sync_file_range`, `outer`, files.
const CUT: &str = r#"
    my ($share, $seed, $call, $mount, @files) = @ARGV;
    open(my $root, "<", $mount) or die "$mount: $!";
    srand($seed);
    for my $path ($share > 0 ? @files : ()) {
        # One that has gone meanwhile was not needed.
        open(my $file, "+<", $path) or $!{ENOENT} ? next : die "$path: $!";
        for (my $at = 0; $at < -s $file; $at += 4096) {
            next if rand() >= $share;
            syscall($call + 0, fileno($file), $at, 4096, 7) == 0 or die "sync_file_range: $!";
        }
    }
    my $flags = pack("L", 2);
    ioctl($root, 0x8004587d, $flags) or die "EXT4_IOC_SHUTDOWN: $!";
"#;

const SYNC_FILE_RANGE: &str = if cfg!(target_arch = "x86_64") { "277" } else { "84" };

/// See the module.
pub(crate) struct Disk {
    files: TempDir,
    mounted: bool,
}

/// Runs a program; an error is what it said.
pub(crate) fn run(program: &str, args: &[&dyn AsRef<std::ffi::OsStr>]) -> Result<Output, String> {
    let mut command = Command::new(program);
    command.args(args.iter().map(AsRef::as_ref)).stdin(Stdio::null());
    let output = command.output().map_err(|error| format!("{program}: {error}"))?;
    if output.status.success() {
        return Ok(output);
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(format!("{program}: {}: {said}", output.status))
}

/// Whether a program is there.
pub(crate) fn is_here(program: &str) -> bool {
    let found = Command::new("sh").args(["-c", "command -v \"$0\"", program]).stdout(Stdio::null()).status();
    found.is_ok_and(|status| status.success())
}

/// Makes what needs root and loop devices, or says loudly why nothing is checked. In CI no program may be missing.
pub(crate) fn if_possible<T>(
    what: &str,
    programs: &[&str],
    build: impl FnOnce() -> Result<T, String>,
) -> Option<T> {
    let missing: Vec<_> = programs.iter().filter(|program| !is_here(program)).collect();
    assert!(missing.is_empty() || std::env::var_os("CI").is_none(), "missing: {missing:?}");
    let made = if missing.is_empty() { build() } else { Err(format!("missing: {missing:?}")) };
    made.map_err(|why| eprintln!("NOT CHECKED, because this environment has no {what}: {why}")).ok()
}

/// In memory where there is such a directory: the syncs of these tests are many.
pub(crate) fn scratch_in_memory() -> TempDir {
    let memory = Path::new("/dev/shm");
    let mut builder = tempfile::Builder::new();
    builder.prefix("task-broker-disk-");
    if memory.is_dir() { builder.tempdir_in(memory).unwrap() } else { builder.tempdir().unwrap() }
}

impl Disk {
    /// A new one of so many MiB, mounted; nothing where that is not possible.
    pub(crate) fn new(mib: u64) -> Option<Self> {
        let programs = ["mkfs.ext4", "mount", "umount", "losetup", "perl"];
        if_possible("loop devices to mount", &programs, || Self::make(mib))
    }

    fn make(mib: u64) -> Result<Self, String> {
        let mut disk = Self { files: scratch_in_memory(), mounted: false };
        for name in ["outer", "inner"] {
            std::fs::create_dir(disk.path(name)).unwrap();
        }
        let make_file = |path: &Path, bytes: u64| {
            std::fs::File::create(path)
                .and_then(|file| file.set_len(bytes))
                .map_err(|error| error.to_string())
        };
        // With this feature ext4 has no folios that are larger than a page; those would be written whole.
        let (quick, small) = ("lazy_itable_init=0,lazy_journal_init=0,nodiscard", "verity");
        let (outer, inner) = (disk.path("outer.img"), disk.path("outer/disk.img"));
        make_file(&outer, (mib + mib / 8 + 64) * MIB)?;
        run("mkfs.ext4", &[&"-q", &"-F", &"-m", &"0", &"-O", &small, &"-E", &quick, &outer])?;
        run("mount", &[&"-o", &"loop", &outer, &disk.path("outer")])?;
        disk.mounted = true;
        make_file(&inner, mib * MIB)?;
        // Written once, so that no write in here changes anything in outer but data.
        run(
            "dd",
            &[
                &"if=/dev/zero",
                &format!("of={}", inner.display()),
                &"bs=1M",
                &format!("count={mib}"),
                &"conv=notrunc,fsync",
            ],
        )?;
        run("mkfs.ext4", &[&"-q", &"-F", &"-m", &"0", &"-O", &small, &"-E", &quick, &inner])?;
        run("sync", &[&inner])?;
        run("mount", &[&"-o", &"loop", &inner, &disk.root()])?;
        Ok(disk)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.files.path().join(name)
    }

    /// Where it is mounted.
    pub(crate) fn root(&self) -> PathBuf {
        self.path("inner")
    }

    /// The power fails. This share of the pages that were written and not flushed is on the platter all the same.
    pub(crate) fn cut(&self, data: &Path, survives: f64, seed: u32) {
        let (survives, seed) = (survives.to_string(), seed.to_string());
        let (file, mount) = (self.path("outer/disk.img"), self.path("outer"));
        let mut files = store_files(data);
        files.push(file);
        let mut args: Vec<&dyn AsRef<std::ffi::OsStr>> =
            vec![&"-e", &CUT, &survives, &seed, &SYNC_FILE_RANGE, &mount];
        args.extend(files.iter().map(|path| -> &dyn AsRef<std::ffi::OsStr> { path }));
        run("perl", &args).unwrap();
    }

    /// The power is back. Nothing may use the disk.
    pub(crate) fn come_back(&mut self) {
        self.unmount().unwrap();
        run("mount", &[&"-o", &"loop", &self.path("outer.img"), &self.path("outer")]).unwrap();
        self.mounted = true;
        run("mount", &[&"-o", &"loop", &self.path("outer/disk.img"), &self.root()]).unwrap();
    }

    /// The file system turns read-only, as it does after an error of its own.
    pub(crate) fn turn_read_only(&self) {
        run("mount", &[&"-o", &"remount,abort", &self.root()]).unwrap();
    }

    fn unmount(&mut self) -> Result<(), String> {
        self.mounted = false;
        unmount(&self.root())?;
        unmount(&self.path("outer"))
    }
}

/// Unmounts what is mounted there, waiting for those who are just ending.
pub(crate) fn unmount(path: &Path) -> Result<(), String> {
    let end = Instant::now() + BUSY_DEADLINE;
    while run("mountpoint", &[&"-q", &path]).is_ok() {
        match run("umount", &[&path]) {
            Err(why) if Instant::now() > end => return Err(why),
            // The last process that used it is being taken apart; nothing tells when that is done.
            Err(_busy) => std::thread::sleep(Duration::from_millis(20)),
            Ok(_) => {}
        }
    }
    Ok(())
}

impl Drop for Disk {
    fn drop(&mut self) {
        if self.mounted {
            // A test that has failed may still have a broker here; then the directory is left behind.
            self.unmount().unwrap_or_else(|why| eprintln!("{why}"));
        }
    }
}
