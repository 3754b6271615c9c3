//! What was exported and imported is the same store.

use super::super::open::open as open_as_it_is;
use super::*;
use crate::archive::{Ending, Part, Reader, Writer};

/// The lines of an export of a store.
async fn export(store: &dyn Store, clock: &Clock) -> (Vec<Vec<u8>>, Ending) {
    let mut writer = Writer::new();
    let mut lines = vec![writer.header(store.store_id(), store.owner_from(), clock.now())];
    let mut number = 0;
    while let Some(ids) = store.part(number).await.unwrap() {
        number += 1;
        for id in ids {
            let Some(reading) = whole(store, id).await else { continue };
            lines.push(writer.task(&reading.task, |payload| reading.payloads.get(payload)).unwrap());
        }
    }
    let (line, ending) = writer.end(clock.now());
    lines.push(line);
    (lines, ending)
}

fn import(path: &Path, lines: &[Vec<u8>]) -> u64 {
    let mut import = Import::begin(&SledOptions::new(path)).unwrap();
    let mut reader = Reader::new();
    let mut end = None;
    for line in lines {
        match reader.line(line).unwrap() {
            Part::Task(task, payloads) => import.put(&task, payloads).unwrap(),
            Part::Header(_) => {}
            Part::End(ending) => end = Some(ending),
        }
    }
    import.finish(end.unwrap().clock()).unwrap()
}

fn census(path: &Path) -> census::Census {
    let opened = open_as_it_is(&SledOptions::new(path)).unwrap();
    let census = opened.checkpoint.census;
    opened.leave().unwrap();
    census
}

#[tokio::test]
async fn an_export_that_is_imported_is_the_same_store_and_exports_the_same() {
    let clock = new_clock();
    let (store, directory) = open(&clock);
    populate(&store, &clock).await;
    let before = Picture::of(&store).await;
    let (lines, ending) = export(&store, &clock).await;
    store.close().await;
    let (new, held) = open(&new_clock());
    new.close().await;
    for empty in [TempDir::new().unwrap(), held] {
        assert_eq!(import(empty.path(), &lines), 9);
        assert_eq!(census(empty.path()), census(directory.path()));
        let imported = open_at(empty.path(), &clock);
        assert_eq!(Picture::of(&imported).await, before);
        let (_, again) = export(&imported, &clock).await;
        assert_eq!((again.tasks, again.digest), (ending.tasks, ending.digest.clone()));
        // It goes on as any other.
        created(&imported, new_task(90)).await;
        imported.close().await;
        assert!(whole(&open_at(empty.path(), &clock), id(90)).await.is_some());
    }
}

#[tokio::test]
async fn what_had_expired_stays_so_however_early_the_clock_is() {
    let clock = new_clock();
    let (store, _directory) = open(&clock);
    created(&store, new_task(1)).await;
    let (lines, _) = export(&store, &clock).await;
    clock.advance(Duration::from_millis(suite::TTL_MS));
    let mut writer = Writer::new();
    drop(writer.header("x", OwnerFrom::Sub, clock.now()));
    store.close().await;
    let empty = TempDir::new().unwrap();
    let mut reader = Reader::new();
    let mut import = Import::begin(&SledOptions::new(empty.path())).unwrap();
    for line in &lines {
        if let Part::Task(task, payloads) = reader.line(line).unwrap() {
            import.put(&task, payloads).unwrap();
        }
    }
    import.finish(clock.now()).unwrap();
    let earlier = new_clock();
    let imported = open_at(empty.path(), &earlier);
    let task = whole(&imported, id(1)).await.unwrap();
    assert!(task.task.is_expired(task.now), "the clock is not before the end of the export");
    imported.close().await;
}

#[tokio::test]
async fn an_import_that_is_given_up_leaves_nothing() {
    let clock = new_clock();
    let (store, _directory) = open(&clock);
    populate(&store, &clock).await;
    let (lines, _) = export(&store, &clock).await;
    store.close().await;
    let empty = TempDir::new().unwrap();
    let begun = |path: &Path| {
        let mut import = Import::begin(&SledOptions::new(path)).unwrap();
        let mut reader = Reader::new();
        for line in &lines[..5] {
            if let Part::Task(task, payloads) = reader.line(line).unwrap() {
                import.put(&task, payloads).unwrap();
            }
        }
        import
    };
    drop(begun(empty.path()));
    let names: Vec<_> = fs::read_dir(empty.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["LOCK"]);
    // A kill leaves more; the next start makes a new store of it.
    let killed = begun(empty.path());
    let frozen = compaction::freeze(empty.path());
    drop(killed);
    let fresh = open_at(frozen.path(), &clock);
    assert_eq!(all_pages(&fresh, &everything(Listed::CreatedBy(worker()))).await, []);
    fresh.close().await;
}

#[tokio::test]
async fn nothing_is_imported_over_tasks_and_no_task_comes_twice() {
    let clock = new_clock();
    let (store, directory) = open(&clock);
    created(&store, new_task(1)).await;
    let reading = whole(&store, id(1)).await.unwrap();
    let payloads: Vec<_> = reading
        .task
        .payloads()
        .map(|payload| (*payload, reading.payloads.get(payload).unwrap().clone()))
        .collect();
    store.close().await;
    let error = Import::begin(&SledOptions::new(directory.path())).unwrap_err();
    assert!(matches!(error, OpenError::NotEmpty { tasks: 1, .. }), "{error}");
    let empty = TempDir::new().unwrap();
    let mut import = Import::begin(&SledOptions::new(empty.path())).unwrap();
    import.put(&reading.task, payloads.clone()).unwrap();
    let error = import.put(&reading.task, payloads).unwrap_err();
    assert!(error.to_string().contains("twice"), "{error}");
}
