//! What means nothing any more goes, and nothing else does.

use super::*;
use task_broker_core::Payload;

#[tokio::test]
async fn what_replaced_payloads_leave_behind_is_deleted() {
    let clock = new_clock();
    let (store, _directory) = open(&clock);
    for (number, length) in [(1, 100), (2, 2_048), (3, 2_049), (4, 65_000)] {
        created(&store, NewTask { arguments: payload_of(length, number), ..new_task(number) }).await;
        for seed in 10..14 {
            carried_out(&store, id(number), Command::SetMeta { meta: payload_of(length, seed) }).await;
        }
    }
    nothing_is_left(&store).await;
    // Per task: arguments and the last meta. Small ones are in its own value.
    assert_eq!(keys_in(&db(&store), b"c").len(), 2 + 4);
    for number in 1..=4 {
        carried_out(&store, id(number), complete(&Payload::new(Bytes::from_static(b"{}")))).await;
    }
    for number in 1..=2 {
        carried_out(&store, id(number), Command::Discard).await;
    }
    clock.advance(Duration::from_millis(suite::TTL_MS));
    assert_eq!(store.sweep(10).await.unwrap().removed, 2);
    nothing_is_left(&store).await;
    assert!(keys_in(&db(&store), &keys::NAMED_BY_HEADS).is_empty());
    // In memory neither.
    for whose in [Listed::CreatedBy(worker()), Listed::OwnedBy(alice())] {
        assert!(store.shared.index.places(&whose, None, 10).is_empty());
    }
    assert_eq!(store.shared.index.len(), 0);
    store.close().await;
}

#[tokio::test]
async fn leftovers_of_the_last_change_are_deleted_by_a_close() {
    let clock = new_clock();
    let (store, directory) = open(&clock);
    created(&store, NewTask { arguments: payload_of(40_000, 1), ..new_task(1) }).await;
    carried_out(&store, id(1), Command::Discard).await;
    store.close().await;
    raw(directory.path(), |db| assert!(keys_in(db, &keys::NAMED_BY_HEADS).is_empty()));
}

#[tokio::test]
async fn a_head_that_outgrows_one_value_and_shrinks_again_leaves_nothing() {
    let clock = new_clock();
    let (store, _directory) = open(&clock);
    large_head(&store, 1).await;
    nothing_is_left(&store).await;
    let pieces = keys_in(&db(&store), b"x");
    assert!(pieces.len() > 1, "{}", pieces.len());
    // A change that leaves the head as it was, byte for byte, must not delete its pieces as those of the old one.
    let before = whole(&store, id(1)).await.unwrap().task;
    for _ in 0..2 {
        write_as_it_is(&store).await;
        nothing_is_left(&store).await;
    }
    assert_eq!(keys_in(&db(&store), b"x"), pieces);
    assert_eq!(whole(&store, id(1)).await.unwrap().task, before);
    // The large outcomes are forgotten for small ones.
    for n in 0..task_broker_core::Limits::MAX_OUTCOMES {
        carried_out_guarded(&store, id(1), set_ttl(suite::TTL_MS), guarded(&format!("small {n}"))).await;
    }
    nothing_is_left(&store).await;
    assert!(keys_in(&db(&store), b"x").is_empty());
    store.close().await;
}

/// Writes the head of task 1 once more.
async fn write_as_it_is(store: &SledStore) {
    let mut update = suite::update(id(1), cancel(), task_broker_core::Guard::default());
    update.decide = Box::new(|task, _| {
        Ok(task_broker_core::Transition {
            outcome: task_broker_core::Outcome {
                applied: true,
                status: task.status(),
                revision: task.revision,
                detail: task_broker_core::Detail::None,
            },
            replayed: false,
            effect: task_broker_core::Effect::Write {
                task: Box::new(task.clone()),
                payloads: Vec::new(),
                dropped: Vec::new(),
                event: None,
            },
        })
    });
    assert!(matches!(store.update(update).await, Ok(Updated::Applied(_))));
}

/// Adds, past the driver, so many values that no head names: of tasks that are not there, and of tasks that are.
fn add_orphans(db: &Db, each: u64) {
    let value = |key: &[u8]| seal::seal(key, b"left behind");
    for n in 0..each {
        for key in [
            // Chunks and pieces of unknown tasks.
            [
                &b"c"[..],
                &[0; 8][..],
                &id(1_000 + n).as_bytes()[..],
                &[0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0],
            ]
            .concat(),
            [&b"x"[..], &[0; 8][..], &id(1_000 + n).as_bytes()[..], &[7; 20]].concat(),
        ] {
            db.insert(&key, value(&key)).unwrap();
        }
    }
    for number in [1, 2, 10] {
        let of_task = id(number);
        let later = if number >= 5 { 10 } else { 0 };
        let created_at = suite::START.saturating_add(later).as_millis().to_be_bytes();
        for key in [
            // Of a transition that never became durable, and of one of long ago.
            [&b"c"[..], &created_at, &of_task.as_bytes()[..], &[0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]]
                .concat(),
            [&b"c"[..], &created_at, &of_task.as_bytes()[..], &[0, 0, 0, 0, 0, 0, 0, 1, 0, 9, 0, 0, 0, 0]]
                .concat(),
            [&b"x"[..], &created_at, &of_task.as_bytes()[..], &[9; 20]].concat(),
        ] {
            db.insert(&key, value(&key)).unwrap();
        }
    }
    for key in [&b"c"[..], b"x", b"c1234", b"c\xff\xff\xff\xff\xff\xff\xff\xff"] {
        db.insert(key, value(key)).unwrap();
    }
}

#[tokio::test]
async fn orphans_of_a_killed_process_are_deleted_and_nothing_else() {
    let clock = new_clock();
    let (store, directory) = open(&clock);
    populate(&store, &clock).await;
    let before = Picture::of(&store).await;
    let copy = copy(directory.path());
    follow(&store).await;
    let kept = named_keys(&db(&store));
    store.close().await;
    raw(copy.path(), |db| {
        add_orphans(db, 600);
        assert!(keys_in(db, &keys::NAMED_BY_HEADS).len() > 1_200);
    });
    let store = open_at(copy.path(), &clock);
    nothing_is_left(&store).await;
    assert_eq!(keys_in(&db(&store), &keys::NAMED_BY_HEADS), kept);
    assert_eq!(Picture::of(&store).await, before);
    store.close().await;
}

#[tokio::test]
async fn commands_are_served_while_orphans_are_looked_for() {
    let clock = new_clock();
    let (store, directory) = open(&clock);
    created(&store, new_task(1)).await;
    let copy = copy(directory.path());
    store.close().await;
    raw(copy.path(), |db| add_orphans(db, 1_000));
    let store = open_at(copy.path(), &clock);
    for number in 2..30 {
        created(&store, NewTask { arguments: payload_of(40_000, number), ..new_task(number) }).await;
        carried_out(&store, id(number), complete(&payload_of(100, number))).await;
    }
    nothing_is_left(&store).await;
    for number in 1..30 {
        assert!(whole(&store, id(number)).await.is_some(), "{number}");
    }
    store.close().await;
}

#[tokio::test]
async fn orphans_that_are_left_at_a_stop_are_found_by_the_next_start() {
    let clock = new_clock();
    let (store, directory) = open(&clock);
    created(&store, new_task(1)).await;
    let copy = copy(directory.path());
    store.close().await;
    raw(copy.path(), |db| add_orphans(db, 3_000));
    // Closed at once, long before all can be removed.
    let store = open_at(copy.path(), &clock);
    store.close().await;
    let store = open_at(copy.path(), &clock);
    nothing_is_left(&store).await;
    store.close().await;
}

#[tokio::test]
async fn blobs_stays_empty_however_large_the_payloads() {
    let clock = new_clock();
    let (store, directory) = open(&clock);
    let blobs = generation(directory.path()).join("blobs");
    let empty = || fs::read_dir(&blobs).unwrap().next().is_none();
    for number in 0..4 {
        created(&store, NewTask { arguments: payload_of(4 << 20, number), ..new_task(number) }).await;
        carried_out(&store, id(number), complete(&payload_of(4 << 20, 100 + number))).await;
    }
    // Small values in one leaf, each as large as a small value can be; and heads at the border of one value.
    for number in 10..60 {
        created(&store, NewTask { arguments: payload_of(2_048, number), ..new_task(number) }).await;
    }
    large_head(&store, 60).await;
    assert!(empty());
    store.close().await;
    let store = open_at(directory.path(), &clock);
    for number in 0..4 {
        assert!(whole(&store, id(number)).await.is_some());
        carried_out(&store, id(number), Command::Discard).await;
    }
    nothing_is_left(&store).await;
    assert!(empty());
    store.close().await;
}
