//! Data directories as a test prepares and compares them.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
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

/// The number of the current generation.
pub(crate) fn generation_number(data: &Path) -> u64 {
    let name = generation(data);
    name.to_str().and_then(|name| name.rsplit_once("generation-")?.1.parse().ok()).unwrap()
}

/// How many generations there are.
pub(crate) fn generations(data: &Path) -> usize {
    let names = fs::read_dir(data).unwrap().map(|entry| entry.unwrap().file_name());
    names.filter(|name| name.to_string_lossy().starts_with("generation-")).count()
}

/// The files of a data directory: of the generation in use, of one that is being made, and CURRENT; each once however many
/// names it has.
pub(crate) fn store_files(data: &Path) -> Vec<PathBuf> {
    // What goes meanwhile was not needed.
    let entries = |path: &Path| fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut files: Vec<_> = entries(data)
        .flat_map(|path| entries(&path).chain([path.clone()]).collect::<Vec<_>>())
        .filter_map(|path| {
            fs::metadata(&path).ok().filter(fs::Metadata::is_file).map(|file| (file.ino(), path))
        })
        .collect();
    files.sort();
    files.dedup_by_key(|(inode, _)| *inode);
    files.into_iter().map(|(_, path)| path).collect()
}

/// The newest generation of the journal of which anything was written: the marks of the sectors begin with it.
pub(crate) fn journal_generation(data: &Path) -> u64 {
    loop {
        let generation = generation(data);
        let newest = |slot: usize| {
            let mut mark = [0; 8];
            let file = File::open(generation.join(format!("journal-{slot}")))?;
            file.read_exact_at(&mut mark, 0).map(|()| u64::from_le_bytes(mark))
        };
        match newest(0).and_then(|first| newest(1).map(|second| first.max(second))) {
            Ok(newest) => return newest,
            // It was compacted meanwhile.
            Err(_gone) if !generation.exists() => {}
            Err(error) => panic!("{}: {error}", generation.display()),
        }
    }
}
