//! Payloads: every byte of what a task names, and nothing of what it does not name any more.

use futures_util::future::join_all;
use task_broker_core::{NewTask, PayloadRef, Phase, Task, Timestamp};

use super::{
    answer, ask, assert_holds, cancel, carried_out, complete, created, id, new_task, payload, payload_of,
    set_meta, whole,
};
use crate::clock::Clock;
use crate::store::{Store, StoreError};

/// Around every border that a driver is known to have: of small values, of chunks, of the largest payload.
const LENGTHS: [usize; 15] = [
    1,
    2,
    4_095,
    4_096,
    4_097,
    32_703,
    32_704,
    32_705,
    32_768,
    65_407,
    65_408,
    65_409,
    1 << 20,
    (4 << 20) - 1,
    4 << 20,
];

pub(in crate::store) async fn payloads_of_every_length_read_back_byte_for_byte(
    store: &dyn Store,
    _clock: &Clock,
) {
    let tasks: Vec<_> = (0_u64..).zip(LENGTHS).map(|(n, length)| (n, payload_of(length, n))).collect();
    join_all(tasks.iter().map(|(number, arguments)| {
        created(store, NewTask { arguments: arguments.clone(), ..new_task(*number) })
    }))
    .await;
    // As results too: there the order is the other way round, so that each task has two lengths.
    let results: Vec<_> = (100_u64..).zip(LENGTHS.into_iter().rev()).collect();
    let results: Vec<_> = results.into_iter().map(|(seed, length)| payload_of(length, seed)).collect();
    join_all(
        tasks
            .iter()
            .zip(&results)
            .map(|((number, _), result)| carried_out(store, id(*number), complete(result))),
    )
    .await;
    for ((number, arguments), result) in tasks.iter().zip(&results) {
        let reading = whole(store, id(*number)).await.unwrap();
        assert_holds(&reading, &reading.task.arguments, arguments);
        let Phase::Completed(reference) = reading.task.phase else { panic!("it was completed") };
        assert_holds(&reading, &reference, result);
    }
}

/// Reads a payload that the task need not name.
async fn read_one(store: &dyn Store, task: &Task, reference: PayloadRef) -> Result<(), StoreError> {
    let select = |_: &Task, _: Timestamp| Ok(vec![reference]);
    store.read(task.id, &select).await.map(|_found| ())
}

pub(in crate::store) async fn a_payload_that_was_replaced_goes(store: &dyn Store, _clock: &Clock) {
    for (number, length) in [(1, 10), (2, 60_000)] {
        let meta = payload_of(length, number);
        let before = created(store, NewTask { meta: Some(meta), ..new_task(number) }).await;
        let after = carried_out(store, id(number), set_meta("{}")).await.task;
        // A driver may delete it late, with the change that comes next at the latest.
        carried_out(store, id(number), cancel()).await;
        assert_eq!(read_one(store, &after, after.meta.unwrap()).await, Ok(()));
        let gone = read_one(store, &before, before.meta.unwrap()).await;
        assert!(matches!(gone, Err(StoreError::Damaged { .. })), "of {length} bytes: {gone:?}");
    }
}

pub(in crate::store) async fn payloads_that_are_kept_stay_through_every_change(
    store: &dyn Store,
    _clock: &Clock,
) {
    let (question, yes) = (r#"{"method":"q","params":{}}"#, r#"{"action":"accept"}"#);
    created(store, NewTask { meta: Some(payload(r#"{"n":0}"#)), ..new_task(1) }).await;
    carried_out(store, id(1), ask([("a", question), ("b", question), ("c", question)])).await;
    carried_out(store, id(1), answer([("a", yes)])).await;
    // b is asked again unchanged and keeps its payload, c is superseded, d is new.
    let other = r#"{"method":"q","params":{"other":1}}"#;
    carried_out(store, id(1), ask([("b", question), ("d", other)])).await;
    for n in 1..=3 {
        carried_out(store, id(1), set_meta(&format!(r#"{{"n":{n}}}"#))).await;
    }
    let reading = whole(store, id(1)).await.unwrap();
    let inputs = reading.task.inputs.clone().unwrap();
    assert_holds(&reading, &reading.task.arguments, &new_task(1).arguments);
    assert_holds(&reading, &reading.task.meta.unwrap(), &payload(r#"{"n":3}"#));
    assert_holds(&reading, &inputs.answers["a"], &payload(yes));
    assert_holds(&reading, &inputs.outstanding["b"].payload, &payload(question));
    assert_holds(&reading, &inputs.outstanding["d"].payload, &payload(other));

    carried_out(store, id(1), complete(&payload(r#"{"content":[]}"#))).await;
    let reading = whole(store, id(1)).await.unwrap();
    assert_holds(&reading, &reading.task.arguments, &new_task(1).arguments);
    assert_holds(&reading, &inputs.answers["a"], &payload(yes));
    assert_eq!(reading.task.payloads().count(), 4, "arguments, meta, result and the answer");
}

pub(in crate::store) async fn a_payload_that_comes_and_goes_at_once_leaves_the_others_alone(
    store: &dyn Store,
    _clock: &Clock,
) {
    created(store, new_task(1)).await;
    // Handed over together, so that a driver that commits in groups decides them in one.
    let metas: Vec<_> = (0..20).map(|n| payload_of(5_000, n)).collect();
    let commands = metas.iter().map(|meta| task_broker_core::Command::SetMeta { meta: meta.clone() });
    let applied = join_all(commands.map(|command| carried_out(store, id(1), command))).await;
    let newest = applied.iter().max_by_key(|applied| applied.task.revision).unwrap();
    let reading = whole(store, id(1)).await.unwrap();
    assert_eq!(reading.task, newest.task);
    let place = applied.iter().position(|applied| applied.task.revision == newest.task.revision).unwrap();
    assert_holds(&reading, &reading.task.meta.unwrap(), &metas[place]);
    assert_holds(&reading, &reading.task.arguments, &new_task(1).arguments);
}
