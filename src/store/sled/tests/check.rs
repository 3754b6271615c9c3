//! What only the inside of a store can be made to show; tests/tools/ has the rest.

use super::*;

#[test]
fn a_check_finds_what_is_missing_and_counts_what_nobody_names() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (clock, scratch) = (new_clock(), TempDir::new().unwrap());
    let (store, directory) = open(&clock);
    runtime.block_on(async {
        populate(&store, &clock).await;
        store.close().await;
    });
    let orphan = keys::chunks(
        ListPlace { created_at: suite::START, id: id(77) },
        &payload_of(3_000, 1).reference(1, 0),
    )
    .next()
    .unwrap()
    .0;
    let (gone, lost) = raw(directory.path(), |db| {
        db.insert(orphan.as_slice(), seal::seal(&orphan, b"{}")).unwrap();
        let gone = keys_in(db, b"c").into_iter().find(|key| *key != orphan).unwrap();
        db.remove(&gone).unwrap();
        let lost = keys_in(db, b"h").pop_first().unwrap();
        db.remove(&lost).unwrap();
        db.insert(b"z", b"?").unwrap();
        (keys::place_of(&gone).unwrap().id, keys::place_of(&lost).unwrap().id)
    });
    let options = CheckOptions {
        path: directory.path().to_owned(),
        scratch: scratch.path().to_owned(),
        cache_bytes: 64 << 20,
    };
    let mut faults = Vec::new();
    let checked = check(&options, &mut |fault| faults.push(fault.to_owned())).unwrap();
    assert_eq!(checked.tasks, 8);
    assert!(checked.orphans >= 1, "{checked:?}");
    let told = |text: &str| faults.iter().any(|fault| fault.contains(text));
    assert!(told("9 tasks should be there, 8 are"), "{faults:?}");
    assert!(told("unknown kind: z"), "{faults:?}");
    assert!(gone == lost || told(&format!("of task {gone} is missing")), "{faults:?}");
}
