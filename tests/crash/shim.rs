//! A library that is loaded into the broker in front of the C library: syncs that do nothing or fail, and a wall clock that
//! steps. Written in C and compiled when it is needed.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;

use tempfile::TempDir;

use crate::disk::if_possible;
use crate::files::scratch;

/// What syncs do.
#[derive(Clone, Debug)]
pub(crate) enum Syncs {
    /// Nothing, and they say that all is well.
    Lie,
    /// Those of files with this in their path fail with EIO from the one with this number on, or only that one.
    Fail { file: &'static str, from: u64, once: bool },
}

/// See the module.
pub(crate) struct Shim {
    files: TempDir,
}

impl Shim {
    /// Compiles it; nothing where there is no C compiler.
    pub(crate) fn new() -> Option<Self> {
        if_possible("C compiler", &["cc"], || {
            let shim = Self { files: scratch() };
            let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/crash/shim.c");
            let mut cc = Command::new("cc");
            cc.args(["-shared", "-fPIC", "-O1", "-Wall", "-o"]).arg(shim.library()).arg(source).arg("-ldl");
            let made = cc.output().unwrap();
            assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
            std::fs::write(shim.clock(), "0").unwrap();
            Ok(shim)
        })
    }

    fn library(&self) -> PathBuf {
        self.files.path().join("shim.so")
    }

    fn clock(&self) -> PathBuf {
        self.files.path().join("clock")
    }

    fn with(&self, settings: &[(&str, String)]) -> Vec<OsString> {
        let preload = format!("LD_PRELOAD={}", self.library().display());
        let settings = settings.iter().map(|(name, value)| format!("{name}={value}"));
        ["env".to_owned(), preload].into_iter().chain(settings).map(OsString::from).collect()
    }

    /// An environment in which syncs begin a little later.
    pub(crate) fn delays(&self) -> [(&'static str, String); 2] {
        [("LD_PRELOAD", self.library().display().to_string()), ("SHIM_SYNC", "delay".to_owned())]
    }

    /// The start of a command line: such syncs.
    pub(crate) fn syncs(&self, syncs: &Syncs) -> Vec<OsString> {
        match syncs {
            Syncs::Lie => self.with(&[("SHIM_SYNC", "lie".to_owned())]),
            Syncs::Fail { file, from, once } => self.with(&[
                ("SHIM_SYNC", if *once { "once" } else { "fail" }.to_owned()),
                ("SHIM_FILE", (*file).to_owned()),
                ("SHIM_FROM", from.to_string()),
            ]),
        }
    }

    /// The start of a command line: a wall clock that is off by what [`Shim::step`] says.
    pub(crate) fn clocked(&self) -> Vec<OsString> {
        self.with(&[("SHIM_CLOCK", self.clock().display().to_string())])
    }

    /// Steps the wall clock of all processes under this shim: from now on it is off by so many seconds.
    pub(crate) fn step(&self, seconds: i64) {
        // Beside and renamed: the clock is read all the time.
        let beside = self.clock().with_extension("new");
        std::fs::write(&beside, seconds.to_string()).unwrap();
        std::fs::rename(beside, self.clock()).unwrap();
    }
}
