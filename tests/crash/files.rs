//! Data directories as a test prepares and compares them.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

/// A directory of the test's own, removed when dropped.
pub(crate) fn scratch() -> TempDir {
    tempfile::Builder::new().prefix("task-broker-crash-").tempdir().unwrap()
}

/// Every file and directory below `root`: its length, and a hash of its content.
pub(crate) fn tree(root: &Path) -> BTreeMap<PathBuf, (u64, u64)> {
    let mut all = BTreeMap::new();
    let mut todo = vec![root.to_owned()];
    while let Some(directory) = todo.pop() {
        for entry in fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(root).unwrap().to_owned();
            if path.is_dir() {
                all.insert(name, (0, 0));
                todo.push(path);
            } else {
                let content = fs::read(&path).unwrap();
                let mut hasher = DefaultHasher::new();
                content.hash(&mut hasher);
                all.insert(name, (content.len() as u64, hasher.finish()));
            }
        }
    }
    all
}

/// What is different between two trees, by name.
pub(crate) fn changes(
    before: &BTreeMap<PathBuf, (u64, u64)>,
    after: &BTreeMap<PathBuf, (u64, u64)>,
) -> Vec<PathBuf> {
    let names = before.keys().chain(after.keys()).cloned().collect::<std::collections::BTreeSet<_>>();
    names.into_iter().filter(|name| before.get(name) != after.get(name)).collect()
}

/// Copies a directory with all that is in it.
pub(crate) fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let (path, target) = (entry.path(), to.join(entry.file_name()));
        if path.is_dir() {
            copy(&path, &target);
        } else {
            fs::copy(&path, &target).unwrap();
        }
    }
}

/// The directory of the current generation.
pub(crate) fn generation(data: &Path) -> PathBuf {
    data.join(fs::read_to_string(data.join("CURRENT")).unwrap().trim())
}

/// The newest generation of the journal of which anything was written: the marks of the sectors begin with it.
pub(crate) fn journal_generation(generation: &Path) -> u64 {
    let newest = |slot: usize| {
        let mut mark = [0; 8];
        let file = File::open(generation.join(format!("journal-{slot}"))).unwrap();
        file.read_exact_at(&mut mark, 0).unwrap();
        u64::from_le_bytes(mark)
    };
    newest(0).max(newest(1))
}
