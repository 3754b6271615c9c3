use task_broker_protocol::shapes::{Row, Status, Task};

use super::*;

/// Ids are shared by all tests of the process, so each takes its own.
fn read(id: &str, revision: u64, remaining_ms: u64) -> Read {
    let task = Task {
        task_id: id.to_owned(),
        status: Status::Working,
        status_message: None,
        created_at: String::new(),
        last_updated_at: String::new(),
        ttl_ms: remaining_ms,
        poll_interval_ms: 1,
        meta: None,
    };
    let row =
        Row { task, owner: None, tool_name: String::new(), revision, remaining_ms, cancel_requested: false };
    Read { snapshot: Arc::new(Snapshot::of(row)), knowledge: Knowledge::now(id), asked: Instant::now() }
}

const BOTH: [Part; 2] = [Part::Result, Part::Questions];

#[tokio::test(start_paused = true)]
async fn each_part_is_taken_once() {
    let handoff = Handoff::default();
    handoff.leave("once", read("once", 1, 1000), &BOTH);
    assert!(handoff.take("once", Part::Task).is_none());
    assert!(handoff.take("once", Part::Result).is_some());
    assert!(handoff.take("once", Part::Result).is_none());
    assert!(handoff.take("once", Part::Questions).is_some());
    let state = handoff.lock();
    assert_eq!((state.kept.len(), state.count, state.bytes), (0, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn another_task_of_the_runtime_gets_nothing() {
    let handoff = Arc::new(Handoff::default());
    handoff.leave("mine", read("mine", 1, 1000), &BOTH);
    let there = Arc::clone(&handoff);
    assert!(tokio::spawn(async move { there.take("mine", Part::Result).is_none() }).await.unwrap());
    assert!(handoff.take("mine", Part::Result).is_some());
}

#[tokio::test(start_paused = true)]
async fn whatever_is_learnt_about_the_task_makes_it_void() {
    let handoff = Handoff::default();
    handoff.leave("void", read("void", 1, 1000), &BOTH);
    drop(Knowledge::learnt_at_the_end("void"));
    assert!(handoff.take("void", Part::Result).is_none());

    let before = read("void", 1, 1000);
    Knowledge::learnt("void");
    handoff.leave("void", before, &BOTH);
    assert!(handoff.take("void", Part::Result).is_none(), "it was asked for before");

    handoff.leave("void", read("void", 1, 1000), &BOTH);
    handoff.observe("void", 2);
    assert!(handoff.take("void", Part::Result).is_none());

    handoff.leave("void", read("void", 1, 1000), &BOTH);
    handoff.forget("void");
    assert!(handoff.take("void", Part::Result).is_none());
}

#[tokio::test(start_paused = true)]
async fn it_is_kept_for_a_moment_and_never_beyond_the_end_of_the_task() {
    let handoff = Handoff::default();
    handoff.leave("late", read("late", 1, 1000), &BOTH);
    tokio::time::advance(FOR_A_READ).await;
    assert!(handoff.take("late", Part::Result).is_none());

    handoff.leave_created("late", read("late", 1, 20));
    tokio::time::advance(Duration::from_millis(19)).await;
    assert!(handoff.take("late", Part::Task).is_some());
    handoff.leave_created("late", read("late", 1, 20));
    tokio::time::advance(Duration::from_millis(20)).await;
    assert!(handoff.take("late", Part::Task).is_none());
}

#[tokio::test(start_paused = true)]
async fn a_read_that_was_overtaken_does_not_replace_a_newer_one() {
    let handoff = Handoff::default();
    handoff.leave("two", read("two", 5, 1000), &BOTH);
    handoff.leave("two", read("two", 4, 1000), &BOTH);
    assert_eq!(handoff.take("two", Part::Result).unwrap().revision, 5);
}

#[tokio::test(start_paused = true)]
async fn what_nobody_takes_is_bounded() {
    let handoff = Handoff::default();
    for number in 0..3 * MAX_KEPT {
        let id = format!("bounded-{number}");
        handoff.leave(&id, read(&id, 1, 1000), &BOTH);
        if number % 3 == 0 {
            handoff.forget(&id);
        }
    }
    let state = handoff.lock();
    assert!(state.count <= MAX_KEPT && state.kept.len() <= MAX_KEPT, "{}", state.count);
    assert!(state.order.len() <= 2 * MAX_KEPT);
    assert!(state.bytes <= MAX_KEPT_BYTES);
}

#[tokio::test(start_paused = true)]
async fn a_pinned_state_answers_the_next_call_whatever_is_learnt_and_no_other() {
    let (handoff, other) = (Handoff::default(), Handoff::default());
    let pin = || handoff.pin("pinned", read("pinned", 1, 1000).snapshot);
    pin();
    Knowledge::learnt("pinned");
    assert!(handoff.pinned("pinned").is_some());
    assert!(handoff.pinned("pinned").is_none());
    pin();
    begin_call();
    assert!(handoff.pinned("pinned").is_none(), "there was another call in between");
    pin();
    assert!(handoff.pinned("another").is_none());
    pin();
    assert!(other.pinned("pinned").is_none());
    pin();
    tokio::time::advance(FOR_A_PAIR).await;
    assert!(handoff.pinned("pinned").is_none());
}
