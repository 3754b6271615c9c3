//! The data directory: who holds it, which generation it names, and what is not a store at all.

use std::os::unix::fs::PermissionsExt as _;

use super::*;

fn refusal(options: &SledOptions) -> (DirectoryError, String) {
    match SledStore::open(options, new_clock()) {
        Ok(_) => panic!("{} was opened", options.path.display()),
        Err(OpenError::Directory(error)) => {
            let text = error.to_string();
            assert!(text.contains(&*options.path.to_string_lossy()), "the message names the place: {text}");
            (error, text)
        }
        Err(other) => panic!("another error: {other}"),
    }
}

fn existing_only(path: &Path) -> SledOptions {
    SledOptions { existing_only: true, ..SledOptions::new(path) }
}

/// The names in a directory.
fn names(path: &Path) -> BTreeSet<String> {
    fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// A store with task 1 that was closed.
async fn closed_store() -> TempDir {
    let clock = new_clock();
    let (store, directory) = open(&clock);
    created(&store, new_task(1)).await;
    store.close().await;
    directory
}

async fn assert_serves(path: &Path) {
    let store = open_at(path, &new_clock());
    assert!(whole(&store, id(1)).await.is_some());
    store.close().await;
}

#[tokio::test]
async fn a_directory_in_use_is_refused_and_the_message_names_the_process() {
    let (store, directory) = open(&new_clock());
    let (error, text) = refusal(&SledOptions::new(directory.path()));
    assert!(matches!(error, DirectoryError::InUse { .. }), "{text}");
    assert!(text.contains(&format!("process {}", std::process::id())), "{text}");
    created(&store, new_task(1)).await;
    store.close().await;
    assert_serves(directory.path()).await;
}

#[tokio::test]
async fn a_lock_file_that_nobody_holds_does_not_block() {
    let directory = closed_store().await;
    fs::write(directory.path().join("LOCK"), "4000000").unwrap();
    assert_serves(directory.path()).await;
    let holder = fs::read_to_string(directory.path().join("LOCK")).unwrap();
    assert_eq!(holder, std::process::id().to_string());
}

#[tokio::test]
async fn a_store_whose_current_is_missing_is_refused_and_left_alone() {
    let directory = closed_store().await;
    let before = names(&generation(directory.path()));
    let current = fs::read(directory.path().join("CURRENT")).unwrap();
    fs::remove_file(directory.path().join("CURRENT")).unwrap();
    for options in [SledOptions::new(directory.path()), existing_only(directory.path())] {
        let (error, text) = refusal(&options);
        assert!(matches!(error, DirectoryError::NotAStore(_)), "{text}");
        assert!(text.contains("CURRENT"), "{text}");
    }
    assert_eq!(names(&generation(directory.path())), before);
    fs::write(directory.path().join("CURRENT"), current).unwrap();
    assert_serves(directory.path()).await;
}

#[tokio::test]
async fn a_current_that_names_no_generation_is_refused_and_left_alone() {
    let directory = closed_store().await;
    let current = directory.path().join("CURRENT");
    let elsewhere = format!("{}/generation-1", directory.path().display());
    for rubbish in [
        &b""[..],
        b"\n",
        b"rubbish\n",
        b"generation-\n",
        b"generation-1 \n",
        b"generation-01\n",
        b"generation-+1\n",
        b"generation-x\n",
        b"generation-1/../generation-1\n",
        b"../generation-1\n",
        b"\xff\xfe\n",
        b"generation-1\0\n",
        elsewhere.as_bytes(),
    ] {
        fs::write(&current, rubbish).unwrap();
        let (error, text) = refusal(&SledOptions::new(directory.path()));
        assert!(matches!(error, DirectoryError::NotAStore(_)), "{rubbish:?}: {text}");
        assert_eq!(fs::read(&current).unwrap(), rubbish);
    }
    for fine in ["generation-1", "generation-1\n"] {
        fs::write(&current, fine).unwrap();
        assert_serves(directory.path()).await;
    }
}

#[tokio::test]
async fn a_first_start_that_was_interrupted_is_made_again() {
    let stages: [fn(&Path); 5] = [
        |_| {},
        |root| fs::create_dir(generation(root)).unwrap(),
        |root| {
            fs::create_dir(generation(root)).unwrap();
            fs::write(generation(root).join("INCOMPLETE"), "").unwrap();
        },
        |root| {
            fs::create_dir(generation(root)).unwrap();
            fs::write(generation(root).join("INCOMPLETE"), "").unwrap();
            fs::write(generation(root).join("db"), "half a file").unwrap();
            fs::create_dir(generation(root).join("blobs")).unwrap();
        },
        |root| {
            fs::create_dir(generation(root)).unwrap();
            fs::write(generation(root).join("INCOMPLETE"), "").unwrap();
            fs::write(generation(root).join("conf"), "half a file").unwrap();
            fs::write(root.join("CURRENT.new"), "gener").unwrap();
        },
    ];
    for (stage, prepare) in stages.into_iter().enumerate() {
        let directory = TempDir::new().unwrap();
        fs::write(directory.path().join("LOCK"), "1").unwrap();
        prepare(directory.path());
        let store = open_at(directory.path(), &new_clock());
        created(&store, new_task(1)).await;
        store.close().await;
        assert!(!generation(directory.path()).join("INCOMPLETE").exists(), "stage {stage}");
        assert_serves(directory.path()).await;
    }
}

#[tokio::test]
async fn data_that_was_acknowledged_is_never_taken_for_an_interrupted_first_start() {
    let directory = closed_store().await;
    // The process stopped between naming the generation and removing its mark; the next one served.
    fs::write(generation(directory.path()).join("INCOMPLETE"), "").unwrap();
    assert_serves(directory.path()).await;
    // Later CURRENT is lost.
    let current = fs::read(directory.path().join("CURRENT")).unwrap();
    fs::remove_file(directory.path().join("CURRENT")).unwrap();
    let (error, text) = refusal(&SledOptions::new(directory.path()));
    assert!(matches!(error, DirectoryError::NotAStore(_)), "{text}");
    fs::write(directory.path().join("CURRENT"), current).unwrap();
    assert_serves(directory.path()).await;
}

#[tokio::test]
async fn a_directory_with_foreign_files_is_refused_and_left_alone() {
    for foreign in ["notes.txt", "db", "generation-2", "conf"] {
        let directory = TempDir::new().unwrap();
        fs::write(directory.path().join(foreign), "mine").unwrap();
        let (error, text) = refusal(&SledOptions::new(directory.path()));
        assert!(matches!(error, DirectoryError::NotAStore(_)), "{foreign}: {text}");
        assert_eq!(fs::read_to_string(directory.path().join(foreign)).unwrap(), "mine");
        assert_eq!(names(directory.path()), [foreign.to_owned()].into(), "not even a lock file appears");
    }
}

#[tokio::test]
async fn the_root_of_a_file_system_of_its_own_is_fine() {
    let directory = TempDir::new().unwrap();
    fs::create_dir(directory.path().join("lost+found")).unwrap();
    let store = open_at(directory.path(), &new_clock());
    store.close().await;
}

#[tokio::test]
async fn existing_only_makes_nothing() {
    let parent = TempDir::new().unwrap();
    let missing = parent.path().join("data");
    let (error, text) = refusal(&existing_only(&missing));
    assert!(matches!(error, DirectoryError::Missing(_)) && text.contains("holds no store"), "{text}");
    assert!(!text.contains("--"), "a flag that may not have been given: {text}");
    assert!(!missing.exists());
    fs::create_dir(&missing).unwrap();
    let (error, text) = refusal(&existing_only(&missing));
    assert!(matches!(error, DirectoryError::Missing(_)), "{text}");
    assert!(names(&missing).is_empty());

    let directory = closed_store().await;
    let store = SledStore::open(&existing_only(directory.path()), new_clock()).unwrap();
    assert!(whole(&store, id(1)).await.is_some());
    store.close().await;
}

#[tokio::test]
async fn a_new_directory_is_made_with_its_parents_and_is_private() {
    let parent = TempDir::new().unwrap();
    let path = parent.path().join("a/b/data");
    let store = open_at(&path, &new_clock());
    store.close().await;
    for private in [path.clone(), generation(&path)] {
        assert_eq!(
            fs::metadata(&private).unwrap().permissions().mode() & 0o777,
            0o700,
            "{}",
            private.display()
        );
    }
    assert_eq!(fs::read_to_string(path.join("CURRENT")).unwrap(), "generation-1\n");
    assert_eq!(names(&path), ["CURRENT", "LOCK", "generation-1"].map(str::to_owned).into());
}

#[tokio::test]
async fn a_path_that_is_a_file_is_an_error_that_names_it() {
    let parent = TempDir::new().unwrap();
    let file = parent.path().join("data");
    fs::write(&file, "mine").unwrap();
    let text = match SledStore::open(&SledOptions::new(&file), new_clock()) {
        Ok(_) => panic!("a file was opened as a directory"),
        Err(error) => error.to_string(),
    };
    assert!(text.contains(&*file.to_string_lossy()), "{text}");
    assert_eq!(fs::read_to_string(&file).unwrap(), "mine");
}

#[tokio::test]
async fn what_current_names_and_is_not_there_is_named() {
    let directory = closed_store().await;
    let (root, db) = (directory.path(), generation(directory.path()).join("db"));
    let assert_names = |missing: &str, generation: &str| {
        let (error, text) = refusal(&SledOptions::new(root));
        assert!(matches!(error, DirectoryError::NoGeneration { .. }), "{text}");
        assert!(text.contains(missing) && text.contains(generation), "{text}");
    };
    let data = fs::read(&db).unwrap();
    fs::write(&db, "").unwrap();
    assert_names("db in it is empty", "generation-1");
    fs::remove_file(&db).unwrap();
    assert_names("db in it is missing", "generation-1");
    fs::create_dir(&db).unwrap();
    assert_names("db in it is no file", "generation-1");
    fs::remove_dir(&db).unwrap();
    fs::write(&db, data).unwrap();
    fs::write(root.join("CURRENT"), "generation-2\n").unwrap();
    assert_names("no such directory", "generation-2");
    fs::write(root.join("CURRENT"), "generation-1\n").unwrap();
    assert_serves(root).await;
}

#[tokio::test]
async fn generations_that_nobody_needs_go_at_the_next_start_and_others_stay() {
    let directory = closed_store().await;
    let root = directory.path();
    fs::rename(generation(root), root.join("generation-3")).unwrap();
    fs::write(root.join("CURRENT"), "generation-3\n").unwrap();
    let make = |name: &str, files: &[&str]| {
        fs::create_dir(root.join(name)).unwrap();
        for file in files {
            fs::write(root.join(name).join(file), "x").unwrap();
        }
    };
    make("generation-1", &["db"]);
    make("generation-2", &["INCOMPLETE"]);
    make("generation-4", &["INCOMPLETE", "db"]);
    make("generation-5", &[]);
    make("generation-6", &["db"]);
    assert_serves(root).await;
    assert_eq!(names(root), ["CURRENT", "LOCK", "generation-3", "generation-6"].map(str::to_owned).into());
}

#[tokio::test]
async fn whoever_only_looks_holds_the_directory_and_changes_nothing() {
    let directory = closed_store().await;
    let root = directory.path();
    let lock = fs::read(root.join("LOCK")).unwrap();
    let watched = super::super::directory::watch(root).unwrap();
    let (error, text) = refusal(&SledOptions::new(root));
    assert!(matches!(error, DirectoryError::InUse { .. }), "{text}");
    assert_eq!(fs::read(root.join("LOCK")).unwrap(), lock);
    drop(watched);
    fs::remove_file(root.join("LOCK")).unwrap();
    drop(super::super::directory::watch(root).unwrap());
    assert!(!root.join("LOCK").exists());
    assert_serves(root).await;
}
