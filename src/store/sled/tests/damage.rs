//! Damage is found, named with its place, and never taken for an absent task.

use super::checkpoint::Checkpoint;
use super::*;
use task_broker_core::PayloadRef;

/// A populated store that was closed, and what it showed.
async fn closed_store() -> (TempDir, Clock) {
    let clock = new_clock();
    let (store, directory) = open(&clock);
    populate(&store, &clock).await;
    store.close().await;
    (directory, clock)
}

fn checkpoint(db: &Db) -> Checkpoint {
    let value = db.get(keys::CHECKPOINT).unwrap().unwrap();
    Checkpoint::decode(seal::open(keys::CHECKPOINT, &value).unwrap()).unwrap()
}

/// The place of a task that `populate` creates at once.
fn early(number: u64) -> ListPlace {
    let later = if number >= 5 { 10 } else { 0 };
    ListPlace { created_at: suite::START.saturating_add(later), id: id(number) }
}

/// What an open says that must refuse.
fn refusal(root: &Path, clock: &Clock) -> OpenError {
    match try_open(root, clock) {
        Ok(_) => panic!("a damaged store was opened"),
        Err(error) => error,
    }
}

/// Changes a value past the driver.
fn change(root: &Path, key: &[u8], act: impl FnOnce(&mut Vec<u8>)) {
    raw(root, |db| {
        let mut value = db.get(key).unwrap().unwrap().to_vec();
        act(&mut value);
        db.insert(key, value).unwrap();
    });
}

#[tokio::test]
async fn a_changed_byte_in_a_head_refuses_the_open_and_names_the_task() {
    let (directory, clock) = closed_store().await;
    let key = keys::head(early(5));
    let intact = raw(directory.path(), |db| db.get(&key).unwrap().unwrap().to_vec());
    let length = intact.len();
    // Version, checksum, the kind of head, the middle, the end; and values that are too short.
    let flip = |at: usize| {
        let mut value = intact.clone();
        value[at] ^= 0x10;
        value
    };
    let mut changed: Vec<_> = [0, 1, 8, 9, length / 2, length - 1].into_iter().map(flip).collect();
    changed.extend([Vec::new(), intact[..8].to_vec(), intact[..length - 1].to_vec()]);
    for value in changed {
        raw(directory.path(), |db| db.insert(&key, value.clone()).unwrap());
        let error = refusal(directory.path(), &clock);
        let text = error.to_string();
        assert!(matches!(error, OpenError::Damaged { .. }), "{text}");
        assert!(text.contains(&id(5).to_string()), "{text}");
        assert!(text.contains(&*directory.path().to_string_lossy()), "{text}");
    }
    // Nothing was changed: with the head restored, all is as it was, the mark of the clean stop included.
    raw(directory.path(), |db| {
        db.insert(&*key, intact).unwrap();
        assert!(checkpoint(db).clean);
    });
    let store = open_at(directory.path(), &clock);
    assert_eq!(Picture::of(&store).await.tasks.len(), 9);
    store.close().await;
}

#[tokio::test]
async fn a_head_under_the_key_of_another_task_refuses_the_open() {
    let (directory, clock) = closed_store().await;
    raw(directory.path(), |db| {
        let value = db.get(keys::head(early(1))).unwrap().unwrap();
        db.insert(keys::head(early(77)), value).unwrap();
    });
    let text = refusal(directory.path(), &clock).to_string();
    assert!(text.contains(&id(77).to_string()), "{text}");
}

#[tokio::test]
async fn a_head_under_a_key_of_another_length_refuses_the_open() {
    let (directory, clock) = closed_store().await;
    raw(directory.path(), |db| db.insert(b"h123", seal::seal(b"h123", b"?")).unwrap());
    assert!(matches!(refusal(directory.path(), &clock), OpenError::Damaged { .. }));
}

#[tokio::test]
async fn a_head_whose_pieces_are_wrong_refuses_the_open_and_names_the_task() {
    let (directory, clock) = closed_store().await;
    let piece = raw(directory.path(), |db| keys_in(db, b"x").pop_first().unwrap());
    let intact = raw(directory.path(), |db| db.get(&piece).unwrap().unwrap());
    let named = |text: String| assert!(text.contains(&id(10).to_string()), "{text}");
    change(directory.path(), &piece, |value| value[100] ^= 1);
    named(refusal(directory.path(), &clock).to_string());
    // Another tool name, sealed again: only the digest of the whole head can tell.
    raw(directory.path(), |db| {
        let mut body = seal::open(&piece, &intact).unwrap().to_vec();
        let name = body.windows(7).position(|bytes| bytes == b"\x06report").unwrap();
        body[name + 1] ^= 1;
        db.insert(&piece, seal::seal(&piece, &body)).unwrap();
    });
    named(refusal(directory.path(), &clock).to_string());
    raw(directory.path(), |db| db.remove(&piece).unwrap());
    named(refusal(directory.path(), &clock).to_string());
    raw(directory.path(), |db| db.insert(&piece, intact).unwrap());
    open_at(directory.path(), &clock).close().await;
}

/// Reads the arguments of a task.
async fn arguments(store: &SledStore, number: u64) -> Result<Option<Reading>, StoreError> {
    let select =
        |task: &Task, _: Timestamp| -> Result<Vec<PayloadRef>, Rejection> { Ok(vec![task.arguments]) };
    Ok(store.read(id(number), &select).await?.map(|reading| reading.unwrap()))
}

#[tokio::test]
async fn a_missing_payload_is_damage_and_never_an_absent_task() {
    let clock = new_clock();
    let (store, _directory) = open(&clock);
    for (number, length, missing) in [(1, 2_049, 0), (3, 100_000, 0), (4, 100_000, 2), (5, 100_000, 3)] {
        let new = NewTask { arguments: payload_of(length, number), ..new_task(number) };
        let task = created(&store, new).await;
        follow(&store).await;
        assert!(arguments(&store, number).await.unwrap().is_some());
        let (key, _) = keys::chunks(ListPlace::of(&task), &task.arguments).nth(missing).unwrap();
        db(&store).remove(&key).unwrap().unwrap();
        match arguments(&store, number).await {
            Err(StoreError::Damaged { place }) => assert!(place.contains(&task.id.to_string()), "{place}"),
            other => panic!("a payload of {length} bytes is gone: {other:?}"),
        }
        // Only who asks for it learns of it.
        assert!(suite::head(&store, id(number)).await.is_some());
        carried_out(&store, id(number), set_meta("{}")).await;
    }
    assert_eq!(store.health(), Health::Ready);
    store.close().await;
}

#[tokio::test]
async fn a_changed_payload_is_damage() {
    let clock = new_clock();
    let (store, _directory) = open(&clock);
    for (number, length, piece) in [(1, 3_000, 0), (2, 100_000, 1)] {
        let new = NewTask { arguments: payload_of(length, number), ..new_task(number) };
        let task = created(&store, new).await;
        follow(&store).await;
        let (key, _) = keys::chunks(ListPlace::of(&task), &task.arguments).nth(piece).unwrap();
        let db = db(&store);
        let intact = db.get(&key).unwrap().unwrap().to_vec();
        let mut flipped = intact.clone();
        flipped[50] ^= 1;
        let mut resealed = seal::open(&key, &intact).unwrap().to_vec();
        resealed[50] ^= 1;
        let shorter = seal::seal(&key, &seal::open(&key, &intact).unwrap()[1..]);
        for value in [flipped, seal::seal(&key, &resealed), shorter, Vec::new(), intact[..9].to_vec()] {
            db.insert(&*key, value).unwrap();
            match arguments(&store, number).await {
                Err(StoreError::Damaged { place }) => {
                    assert!(place.contains(&task.id.to_string()), "{place}");
                }
                other => panic!("a payload of {length} bytes was changed: {other:?}"),
            }
        }
        db.insert(&key, intact).unwrap();
        assert!(arguments(&store, number).await.unwrap().is_some());
    }
    store.close().await;
}

#[tokio::test]
async fn a_small_payload_that_is_missing_or_changed_is_damage() {
    let clock = new_clock();
    let (store, directory) = open(&clock);
    let task = created(&store, NewTask { arguments: payload_of(100, 1), ..new_task(1) }).await;
    created(&store, new_task(2)).await;
    follow(&store).await;
    let key = keys::head(ListPlace::of(&task));
    let intact = db(&store).get(&key).unwrap().unwrap();
    let body = seal::open(&key, &intact).unwrap().to_vec();
    let bundle = bundle::Bundle::decode(&body[1..]).unwrap();
    let with = |payloads: &[(PayloadRef, &[u8])]| {
        let body = [&[stored::INLINE][..], &bundle::encode(bundle.head, payloads)].concat();
        seal::seal(&key, &body)
    };
    let other = [b'2'; 100];
    let mut flipped = intact.to_vec();
    flipped[60] ^= 1;
    let harmed = [flipped, with(&[]), with(&[(task.arguments, &other)]), Vec::new(), intact[..9].to_vec()];
    for value in &harmed {
        db(&store).insert(&*key, &**value).unwrap();
        match arguments(&store, 1).await {
            Err(StoreError::Damaged { place }) => assert!(place.contains(&task.id.to_string()), "{place}"),
            read => panic!("it was read: {read:?}"),
        }
        assert!(arguments(&store, 2).await.unwrap().is_some(), "the other one");
    }
    db(&store).insert(&*key, &intact).unwrap();
    assert!(arguments(&store, 1).await.unwrap().is_some());
    store.close().await;
    // A start reads all of it, and finds one payload too many as well.
    let more = payload_of(10, 2).reference(1, 7);
    let too_many = with(&[(task.arguments, bundle.get(&task.arguments).unwrap()), (more, &other[..10])]);
    for value in harmed.into_iter().chain([too_many]) {
        raw(directory.path(), |db| db.insert(&*key, value).unwrap());
        let text = refusal(directory.path(), &clock).to_string();
        assert!(text.contains(&task.id.to_string()), "{text}");
    }
    raw(directory.path(), |db| db.insert(&*key, &intact).unwrap());
    open_at(directory.path(), &clock).close().await;
}

#[tokio::test]
async fn a_large_payload_that_is_missing_or_changed_refuses_the_open_and_names_the_task() {
    let clock = new_clock();
    let (store, directory) = open(&clock);
    for number in 1..=3 {
        created(&store, NewTask { arguments: payload_of(100_000, number), ..new_task(number) }).await;
    }
    store.close().await;
    for key in raw(directory.path(), |db| keys_in(db, b"c")) {
        let intact = raw(directory.path(), |db| db.get(&key).unwrap().unwrap());
        let named = keys::place_of(&key).unwrap().id.to_string();
        let mut flipped = intact.to_vec();
        flipped[1_000] ^= 1;
        raw(directory.path(), |db| db.insert(&*key, flipped).unwrap());
        let text = refusal(directory.path(), &clock).to_string();
        assert!(text.contains(&format!("of task {named}: the record's checksum is wrong")), "{text}");
        raw(directory.path(), |db| db.remove(&*key).unwrap());
        let text = refusal(directory.path(), &clock).to_string();
        assert!(text.contains(&format!("of task {named} is missing")), "{text}");
        raw(directory.path(), |db| db.insert(&*key, intact).unwrap());
    }
    open_at(directory.path(), &clock).close().await;
}

#[tokio::test]
async fn a_change_of_a_task_whose_stored_payload_is_gone_stops_the_store_with_its_name() {
    let clock = new_clock();
    let (store, directory) = open(&clock);
    let task = created(&store, NewTask { arguments: payload_of(100, 1), ..new_task(1) }).await;
    follow(&store).await;
    db(&store).remove(keys::head(ListPlace::of(&task))).unwrap();
    db(&store).flush().unwrap();
    // What is acknowledged is in the journal; sled must not be given half a task.
    carried_out(&store, id(1), set_meta("{}")).await;
    let copy = copy(directory.path());
    let text = refusal(copy.path(), &clock).to_string();
    assert!(text.contains(&format!("task {}", task.id)), "{text}");
    store.close().await;
    assert!(matches!(store.health(), Health::Failed(_)), "{:?}", store.health());
}

#[tokio::test]
async fn a_store_of_another_format_says_which_and_is_left_alone() {
    let (directory, clock) = closed_store().await;
    for found in [0_u64, 4, 999] {
        raw(directory.path(), |db| {
            db.insert(keys::FORMAT, seal::seal(keys::FORMAT, &found.to_be_bytes())).unwrap()
        });
        let error = refusal(directory.path(), &clock);
        assert!(matches!(error, OpenError::Format { found: said, .. } if said == found), "{error}");
        let text = error.to_string();
        assert!(text.contains(&format!("format {found}")) && text.contains("format 3"), "{text}");
    }
    raw(directory.path(), |db| assert!(checkpoint(db).clean));
}

#[tokio::test]
async fn missing_or_senseless_facts_refuse_the_open() {
    let (directory, clock) = closed_store().await;
    for key in [keys::FORMAT, keys::STORE_ID, keys::CHECKPOINT] {
        let name = String::from_utf8_lossy(key).into_owned();
        let intact = raw(directory.path(), |db| db.get(key).unwrap().unwrap());
        let mut flipped = intact.to_vec();
        flipped[3] ^= 1;
        for value in [flipped, Vec::new(), seal::seal(key, b"\xff\xff")] {
            raw(directory.path(), |db| db.insert(key, value).unwrap());
            let error = refusal(directory.path(), &clock);
            assert!(matches!(error, OpenError::Damaged { .. }), "{name}: {error}");
        }
        raw(directory.path(), |db| db.remove(key).unwrap());
        let error = refusal(directory.path(), &clock);
        assert!(matches!(error, OpenError::Damaged { .. }), "{name}: {error}");
        raw(directory.path(), |db| db.insert(key, intact).unwrap());
    }
    open_at(directory.path(), &clock).close().await;
}

#[tokio::test]
async fn a_file_in_blobs_refuses_the_open() {
    let (directory, clock) = closed_store().await;
    let stray = generation(directory.path()).join("blobs").join("1234");
    fs::write(&stray, b"x").unwrap();
    let error = refusal(directory.path(), &clock);
    assert!(error.to_string().contains("blobs"), "{error}");
    assert!(stray.exists());
}

#[tokio::test]
async fn the_leftover_of_a_snapshot_does_not_block_the_open() {
    let (directory, clock) = closed_store().await;
    let leftover = generation(directory.path()).join("snap.0000000000001234.generating");
    fs::write(&leftover, b"half a snapshot").unwrap();
    let store = open_at(directory.path(), &clock);
    assert!(!leftover.exists());
    assert_eq!(Picture::of(&store).await.tasks.len(), 9);
    store.close().await;
}

#[tokio::test]
async fn data_that_is_gone_is_an_error_and_never_an_empty_store() {
    let (directory, clock) = closed_store().await;
    let file = generation(directory.path()).join("db");
    let intact = fs::read(&file).unwrap();
    let rubbish: Vec<_> = (0..intact.len()).map(|at| u8::try_from(at * 7 % 251).unwrap()).collect();
    for harmed in [Vec::new(), vec![0; intact.len()], rubbish] {
        remove_snapshots(directory.path());
        fs::write(&file, &harmed).unwrap();
        let error = refusal(directory.path(), &clock);
        let is_named = match &error {
            OpenError::Damaged { .. } => true,
            OpenError::Directory(DirectoryError::NoGeneration { missing, .. }) => missing.contains("db"),
            _ => false,
        };
        assert!(is_named, "{error}");
    }
}

fn remove_snapshots(root: &Path) {
    for entry in fs::read_dir(generation(root)).unwrap() {
        let path = entry.unwrap().path();
        if path.file_name().unwrap().to_string_lossy().starts_with("snap.") {
            fs::remove_file(path).unwrap();
        }
    }
}
