//! Size: many at once, and a task that is as large as a task can be.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures_util::future::join_all;
use task_broker_core::{Command, Limits, NewTask, Task};

use super::{
    all_pages, answer, ask, assert_holds, carried_out, carried_out_guarded, complete, created, everything,
    guarded, head, id, new_task, payload, set_meta, set_ttl, usage, whole,
};
use crate::clock::Clock;
use crate::store::{Listed, Store};

pub(in crate::store) async fn many_tasks_at_once_are_all_there(store: &dyn Store, _clock: &Clock) {
    const TASKS: u64 = 3_000;
    let meta = |number| Some(payload(&format!("{number}")));
    let new = |number| NewTask { owner: None, meta: meta(number), ..new_task(number) };
    join_all((0..TASKS).map(|number| created(store, new(number)))).await;
    assert_eq!(usage(store, &None).await.total_tasks, TASKS);
    let ids: BTreeSet<_> = (0..TASKS).map(id).collect();
    let listed = all_pages(store, &everything(Listed::OwnedBy(None))).await;
    assert_eq!(listed.into_iter().collect::<BTreeSet<_>>(), ids);
    for number in (0..TASKS).step_by(97) {
        let reading = whole(store, id(number)).await.unwrap();
        assert_holds(&reading, &reading.task.arguments, &new(number).arguments);
        assert_holds(&reading, &reading.task.meta.unwrap(), &new(number).meta.unwrap());
    }
}

pub(in crate::store) async fn many_commands_on_one_task_at_once_are_carried_out_in_turn(
    store: &dyn Store,
    _clock: &Clock,
) {
    created(store, new_task(1)).await;
    created(store, new_task(2)).await;
    let meta = |n: u64| set_meta(&format!(r#"{{"n":{n}}}"#));
    let applied = join_all((0..300).map(|n| carried_out(store, id(1 + n % 2), meta(n)))).await;
    for number in [1, 2] {
        let of_task = applied.iter().filter(|applied| applied.task.id == id(number));
        let revisions: BTreeSet<_> = of_task.map(|applied| applied.outcome.revision).collect();
        assert_eq!(revisions, (2..=151).collect());
        let reading = whole(store, id(number)).await.unwrap();
        assert_eq!(reading.task.revision, 151);
        let newest = applied.iter().position(|applied| applied.task == reading.task).unwrap();
        let Command::SetMeta { meta } = meta(newest as u64) else { unreachable!() };
        assert_holds(&reading, &reading.task.meta.unwrap(), &meta);
    }
}

/// An input key of the greatest length.
fn long_key(number: usize) -> String {
    format!("{number:0>width$}", width = Limits::MAX_INPUT_KEY_BYTES)
}

/// Every limit of a task's record is reached: 1024 input keys of 128 bytes, 32 remembered outcomes that name 64 of
/// them each, the longest names.
pub(in crate::store) async fn a_task_at_all_of_its_limits_is_kept_whole(store: &dyn Store, _clock: &Clock) {
    let long = |length: usize| Arc::<str>::from("n".repeat(length).as_str());
    let new = NewTask {
        tool_name: long(Limits::MAX_TOOL_NAME_BYTES),
        owner: Some(long(Limits::MAX_SUBJECT_BYTES)),
        meta: Some(payload("{}")),
        ..new_task(1)
    };
    created(store, new).await;
    let keys: Vec<_> = (0..Limits::MAX_SPENT).map(long_key).collect();
    let rounds = keys.chunks(Limits::MAX_OUTSTANDING);
    for (round, keys) in rounds.clone().enumerate() {
        carried_out(store, id(1), ask(keys.iter().map(|key| (&**key, r#"{"method":"q"}"#)))).await;
        // The first half of the keys alone, then the rest: two outcomes that name 64 keys between them each.
        let (first, rest) = keys.split_at(keys.len() / 2);
        for (half, keys) in [first, rest].into_iter().enumerate() {
            let key = guarded(&format!("{round:0>126}/{half}"));
            let answers = answer(keys.iter().map(|key| (&**key, r#"{"action":"accept"}"#)));
            carried_out_guarded(store, id(1), answers, key).await;
        }
    }
    let is_full = |task: &Task| {
        let inputs = task.inputs.as_ref().unwrap();
        assert_eq!((inputs.spent.len(), inputs.answers.len()), (Limits::MAX_SPENT, Limits::MAX_SPENT));
        assert_eq!(task.replay.as_ref().unwrap().outcomes.len(), Limits::MAX_OUTCOMES);
        assert_eq!(task.history.len(), Limits::MAX_HISTORY);
    };
    let before = head(store, id(1)).await.unwrap();
    is_full(&before);
    let replay = carried_out_guarded(store, id(1), set_ttl(1), guarded(&format!("{:0>126}/{}", 15, 1))).await;
    assert!(replay.replayed);

    // It still changes like any other.
    let after = carried_out(store, id(1), complete(&payload(r#"{"content":[]}"#))).await.task;
    is_full(&after);
    assert_eq!(after.revision, before.revision + 1);
    let reading = whole(store, id(1)).await.unwrap();
    assert_eq!(reading.task, after);
    for key in keys.iter().step_by(111) {
        assert_holds(
            &reading,
            &after.inputs.as_ref().unwrap().answers[&**key],
            &payload(r#"{"action":"accept"}"#),
        );
    }
    assert_eq!(usage(store, &after.owner).await.owner_bytes, after.footprint());
    carried_out(store, id(1), Command::Discard).await;
    assert!(whole(store, id(1)).await.is_none());
    assert_eq!(usage(store, &after.owner).await.total_tasks, 0);
}
