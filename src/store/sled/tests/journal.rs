//! What the journal means for the store: what it can and cannot do without, and what happens when it is full.

use super::*;

/// Options for a disk without any room.
fn full_disk(path: &Path) -> SledOptions {
    SledOptions { spare_bytes: u64::MAX, ..SledOptions::new(path) }
}

#[tokio::test]
async fn without_room_commands_are_refused_whole_and_everything_else_goes_on() {
    let clock = new_clock();
    let directory = TempDir::new().unwrap();
    open_at(directory.path(), &clock).close().await;
    let store = SledStore::open(&full_disk(directory.path()), clock.clone()).unwrap();
    let mut kept = 0;
    let refused = loop {
        let number = kept + 1;
        let new =
            NewTask { arguments: payload_of(100_000, number), ..keyed(number, &format!("key {number}")) };
        match store.insert(suite::insertion(&worker(), new, suite::limits())).await {
            Ok(Inserted::Created(_)) => kept += 1,
            other => break other,
        }
    };
    assert!(matches!(refused, Err(StoreError::Unavailable { .. })), "{refused:?}");
    assert!(kept > 5, "the journal has room for two megabytes, and took {kept} tasks");
    assert!(matches!(store.health(), Health::Unavailable(_)), "{:?}", store.health());

    // Nothing of what was refused has happened.
    let counted = usage(&store, &alice()).await;
    assert_eq!(counted.total_tasks, kept);
    assert_eq!(owner_of_key(&store, &worker(), &format!("key {}", kept + 1)).await, None);
    assert!(whole(&store, id(kept + 1)).await.is_none());
    let change = suite::update(id(1), complete(&payload_of(300_000, 7)), guarded("call"));
    assert!(matches!(store.update(change).await, Err(StoreError::Unavailable { .. })));
    assert_eq!(whole(&store, id(1)).await.unwrap().task.revision, 1);
    assert_eq!(usage(&store, &alice()).await, counted);
    // A rejection needs no room.
    assert!(matches!(
        store.update(suite::update(id(999), cancel(), guarded("call"))).await,
        Ok(Updated::Absent)
    ));
    // What has expired is not shown, removed or not.
    clock.advance(Duration::from_millis(suite::TTL_MS));
    assert!(all_pages(&store, &everything(Listed::CreatedBy(worker()))).await.is_empty());
    store.close().await;
    assert_eq!(store.health(), Health::Closed);

    // With room again all that was acknowledged is there.
    let store = open_at(directory.path(), &new_clock());
    for number in 1..=kept {
        let reading = whole(&store, id(number)).await.unwrap();
        suite::assert_holds(&reading, &reading.task.arguments, &payload_of(100_000, number));
    }
    assert_eq!(usage(&store, &alice()).await, counted);
    store.close().await;
}

#[tokio::test]
async fn generations_come_and_go_and_everything_stays() {
    let clock = new_clock();
    let (store, directory) = open(&clock);
    // Several times what the journal has at first, in commands of every size; the largest does not fit into a file of
    // it, which must be made larger for it.
    for number in 1..=40 {
        let length = [100, 40_000, 300_000, 3_000_000][usize::try_from(number % 4).unwrap()];
        created(&store, NewTask { arguments: payload_of(length, number), ..new_task(number) }).await;
        carried_out(&store, id(number), complete(&payload_of(length / 2, 100 + number))).await;
        if number % 3 == 0 {
            carried_out(&store, id(number), Command::Discard).await;
        }
    }
    let before = Picture::of(&store).await;
    let all = all_pages(&store, &everything(Listed::CreatedBy(worker()))).await;
    quiet(&store).await;
    let killed = copy(directory.path());
    store.close().await;
    for root in [directory.path(), killed.path()] {
        let store = open_at(root, &clock);
        assert_eq!(all_pages(&store, &everything(Listed::CreatedBy(worker()))).await, all);
        assert_eq!(Picture::of(&store).await, before);
        nothing_is_left(&store).await;
        store.close().await;
    }
}

/// A populated store that was killed, so that its journal holds what sled does not have.
async fn killed_store() -> (TempDir, Clock, Picture) {
    let clock = new_clock();
    let (store, directory) = open(&clock);
    populate(&store, &clock).await;
    let picture = Picture::of(&store).await;
    let killed = copy(directory.path());
    store.close().await;
    (killed, clock, picture)
}

fn refusal(root: &Path, clock: &Clock) -> String {
    let error = try_open(root, clock).map(|_| ()).unwrap_err();
    assert!(matches!(error, OpenError::Damaged { .. }), "{error}");
    error.to_string()
}

#[tokio::test]
async fn a_journal_that_is_missing_or_cut_refuses_the_open_and_names_the_file() {
    let (directory, clock, picture) = killed_store().await;
    for slot in [0, 1] {
        let path = generation(directory.path()).join(format!("journal-{slot}"));
        let intact = fs::read(&path).unwrap();
        fs::remove_file(&path).unwrap();
        let text = refusal(directory.path(), &clock);
        assert!(text.contains(&format!("journal-{slot} is missing")), "{text}");
        for kept in [0, 1, 511, 4096, intact.len() / 2, intact.len() - 1] {
            fs::write(&path, &intact[..kept]).unwrap();
            assert!(refusal(directory.path(), &clock).contains(&format!("journal-{slot} was cut")));
        }
        fs::write(&path, intact).unwrap();
    }
    let store = open_at(directory.path(), &clock);
    assert_eq!(Picture::of(&store).await, picture);
    store.close().await;
}

#[tokio::test]
async fn a_journal_of_another_store_refuses_the_open() {
    let (directory, clock, _) = killed_store().await;
    let (other, _, _) = killed_store().await;
    let name = "journal-1";
    fs::copy(generation(other.path()).join(name), generation(directory.path()).join(name)).unwrap();
    assert!(refusal(directory.path(), &clock).contains(name));
}

#[tokio::test]
async fn heads_that_sled_has_lost_or_taken_back_refuse_the_open() {
    let clock = new_clock();
    let (store, directory) = open(&clock);
    populate(&store, &clock).await;
    follow(&store).await;
    let older = db(&store).get(keys::head(ListPlace::of(&whole(&store, id(1)).await.unwrap().task))).unwrap();
    carried_out(&store, id(1), cancel()).await;
    let place = ListPlace::of(&whole(&store, id(1)).await.unwrap().task);
    store.close().await;
    let newer = raw(directory.path(), |db| db.insert(keys::head(place), older.unwrap()).unwrap().unwrap());
    assert!(refusal(directory.path(), &clock).contains("not all as they were"));
    raw(directory.path(), |db| db.remove(keys::head(place)).unwrap());
    let text = refusal(directory.path(), &clock);
    assert!(text.contains("9 tasks should be there, 8 are"), "{text}");
    raw(directory.path(), |db| db.insert(keys::head(place), newer).unwrap());
    open_at(directory.path(), &clock).close().await;
}

#[tokio::test]
async fn what_sled_forgot_of_the_newest_generations_the_journal_still_has() {
    let clock = new_clock();
    let (store, directory) = open(&clock);
    populate(&store, &clock).await;
    follow(&store).await;
    // sled as it was after the first generation, beside the journal as it is after the second: so much of its log may
    // sled drop after damage, without a word.
    let earlier = copy(directory.path());
    carried_out(&store, id(2), set_meta("{}")).await;
    carried_out(&store, id(5), cancel()).await;
    let picture = Picture::of(&store).await;
    store.close().await;
    let older = copy(earlier.path());
    for slot in ["journal-0", "journal-1"] {
        fs::copy(generation(directory.path()).join(slot), generation(earlier.path()).join(slot)).unwrap();
    }
    let store = open_at(earlier.path(), &clock);
    assert_eq!(Picture::of(&store).await, picture);
    // Beside a journal that has gone on since, or was made anew, it is too old.
    follow(&store).await;
    follow(&store).await;
    store.close().await;
    for slot in ["journal-0", "journal-1"] {
        fs::copy(generation(earlier.path()).join(slot), generation(older.path()).join(slot)).unwrap();
    }
    refusal(older.path(), &clock);
}
