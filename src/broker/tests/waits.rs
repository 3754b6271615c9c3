//! Long polls: what ends them, when, and what they cost while nothing happens.

use std::sync::atomic::Ordering;

use super::*;

const LONG: Duration = Duration::from_secs(50);

fn wait_for(number: u8) -> Wait {
    Wait { id: id(number), timeout: LONG, since_revision: None }
}

/// A wait of the worker in the background.
async fn waiting(scene: &Scene, wait: Wait) -> JoinHandle<Result<Waited, Refusal>> {
    waiting_as(scene, worker(), Right::Creator, wait).await
}

async fn waiting_as(
    scene: &Scene,
    caller: Caller,
    right: Right,
    wait: Wait,
) -> JoinHandle<Result<Waited, Refusal>> {
    let broker = Arc::clone(&scene.broker);
    in_background(async move { broker.wait(&caller, right, wait).await }).await
}

/// What a wait said that must have ended by now, without any time to pass.
async fn at_once<T>(call: JoinHandle<T>) -> T {
    settle().await;
    assert!(call.is_finished(), "it still waits");
    call.await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_task_wakes_its_waits_at_once() {
    let scene = Scene::new().await;
    for (number, (ending, status)) in
        (1..).zip([(complete(), Status::Completed), (fail(), Status::Failed), (cancel(), Status::Cancelled)])
    {
        scene.created(new_task(number)).await;
        let by_creator = waiting(&scene, wait_for(number)).await;
        let by_owner = waiting_as(&scene, alice(), Right::Owner, wait_for(number)).await;
        scene.carried_out(number, ask("a")).await;
        scene.carried_out(number, answer("a")).await;
        settle().await;
        assert!(!by_creator.is_finished(), "only the end is waited for");
        scene.carried_out(number, ending).await;
        for wait in [by_creator, by_owner] {
            let Waited { snapshot, timed_out } = at_once(wait).await.unwrap();
            assert_eq!((snapshot.task.status(), timed_out), (status, false));
            for wanted in View::Snapshot.payloads(&snapshot.task) {
                assert!(snapshot.payloads.get(&wanted).is_some(), "the result comes with it");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_task_that_has_ended_already_is_not_waited_for() {
    let scene = Scene::new().await;
    scene.created(new_task(1)).await;
    scene.carried_out(1, complete()).await;
    let Waited { snapshot, timed_out } = at_once(waiting(&scene, wait_for(1)).await).await.unwrap();
    assert_eq!((snapshot.task.status(), timed_out), (Status::Completed, false));
}

#[tokio::test(start_paused = true)]
async fn a_newer_revision_wakes_whoever_waits_for_one() {
    let scene = Scene::new().await;
    scene.created(new_task(1)).await;
    let since = |revision| Wait { since_revision: Some(revision), ..wait_for(1) };
    let waits = [waiting(&scene, since(1)).await, waiting(&scene, since(1)).await];
    scene.carried_out(1, set_meta(r#"{"half":"way"}"#)).await;
    for wait in waits {
        let Waited { snapshot, timed_out } = at_once(wait).await.unwrap();
        assert_eq!((snapshot.task.revision, timed_out), (2, false));
        assert!(snapshot.payloads.get(&snapshot.task.meta.unwrap()).is_some());
    }
    let missed = at_once(waiting(&scene, since(1)).await).await.unwrap();
    assert!(!missed.timed_out, "a revision that came before the wait counts");
    let ahead = waiting(&scene, since(2)).await;
    settle().await;
    assert!(!ahead.is_finished());
    scene.carried_out(1, set_meta("{}")).await;
    assert_eq!(at_once(ahead).await.unwrap().snapshot.task.revision, 3);
}

#[tokio::test(start_paused = true)]
async fn a_wait_whose_time_runs_out_shows_the_task_as_it_is() {
    let scene = Scene::new().await;
    scene.created(NewTask { meta: Some(payload("{}")), ..new_task(1) }).await;
    for timeout in [Duration::ZERO, Duration::from_millis(30), RECHECK, Duration::from_secs(21)] {
        let wait = waiting(&scene, Wait { timeout, ..wait_for(1) }).await;
        let (waited, took) = scene.until_it_ends(wait).await;
        let Waited { snapshot, timed_out } = waited.unwrap();
        assert!(timed_out);
        assert!(snapshot.payloads.get(&snapshot.task.meta.unwrap()).is_some());
        assert!((timeout..=timeout + STEP).contains(&took), "{took:?} instead of {timeout:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_wait_for_too_long_a_time_does_not_overflow() {
    let scene = Scene::new().await;
    scene.created(new_task(1)).await;
    let wait = waiting(&scene, Wait { timeout: Duration::MAX, ..wait_for(1) }).await;
    assert!(!wait.is_finished());
    scene.carried_out(1, complete()).await;
    assert!(!at_once(wait).await.unwrap().timed_out);
}

#[tokio::test(start_paused = true)]
async fn a_task_that_expires_ends_its_waits_at_that_moment() {
    // Without a sweeper, so that nothing rings: the wait itself knows when.
    let scene = Scene::at_rest(limits(), Bent::new);
    let ttl_ms = 12_345;
    scene.created(NewTask { ttl: TtlWish::Millis(ttl_ms), ..new_task(1) }).await;
    let wait = waiting(&scene, wait_for(1)).await;
    let (waited, took) = scene.until_it_ends(wait).await;
    assert_eq!(waited.unwrap_err(), Refusal::NotFound);
    let ttl = Duration::from_millis(ttl_ms);
    assert!((ttl..=ttl + STEP).contains(&took), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_ttl_that_is_shortened_ends_a_wait_earlier() {
    let scene = Scene::new().await;
    scene.created(new_task(1)).await;
    let wait = waiting(&scene, wait_for(1)).await;
    scene.pass(Duration::from_secs(1)).await;
    scene.carried_out(1, set_ttl(3_000)).await;
    settle().await;
    assert!(!wait.is_finished());
    let (waited, took) = scene.until_it_ends(wait).await;
    assert_eq!(waited.unwrap_err(), Refusal::NotFound);
    let left = Duration::from_secs(2);
    assert!((left..=left + STEP).contains(&took), "{took:?}");

    scene.created(new_task(2)).await;
    let wait = waiting(&scene, wait_for(2)).await;
    scene.carried_out(2, set_ttl(0)).await;
    assert_eq!(at_once(wait).await.unwrap_err(), Refusal::NotFound, "0 ends it at once");
}

#[tokio::test(start_paused = true)]
async fn a_ttl_that_is_extended_lets_a_wait_go_on() {
    let scene = Scene::new().await;
    scene.created(NewTask { ttl: TtlWish::Millis(2_000), ..new_task(1) }).await;
    let wait = waiting(&scene, wait_for(1)).await;
    scene.carried_out(1, set_ttl(600_000)).await;
    let (waited, took) = scene.until_it_ends(wait).await;
    assert!(waited.unwrap().timed_out);
    assert!(took >= LONG);
}

#[tokio::test(start_paused = true)]
async fn a_discarded_task_ends_its_waits() {
    let scene = Scene::new().await;
    scene.created(new_task(1)).await;
    let wait = waiting(&scene, wait_for(1)).await;
    scene.carried_out(1, Command::Discard).await;
    assert_eq!(at_once(wait).await.unwrap_err(), Refusal::NotFound);
}

#[tokio::test(start_paused = true)]
async fn a_drain_lets_waits_answer_what_there_is() {
    let scene = Scene::new().await;
    scene.created(new_task(1)).await;
    scene.created(new_task(2)).await;
    let (first, second) = (waiting(&scene, wait_for(1)).await, waiting(&scene, wait_for(2)).await);
    scene.broker.drain();
    for (wait, number) in [(first, 1), (second, 2)] {
        let Waited { snapshot, timed_out } = at_once(wait).await.unwrap();
        assert_eq!((snapshot.task.id, timed_out), (id(number), true));
    }
    scene.broker.no_long_calls().await;
    let late = at_once(waiting(&scene, wait_for(1)).await).await.unwrap();
    assert!(late.timed_out, "a wait that begins during a drain does not wait");
    scene.carried_out(1, complete()).await;
    assert!(!at_once(waiting(&scene, wait_for(1)).await).await.unwrap().timed_out);
}

#[tokio::test(start_paused = true)]
async fn a_wait_ends_soon_even_if_every_hint_is_lost() {
    let scene = Scene::with(limits(), Bent::deaf).await;
    scene.created(new_task(1)).await;
    let wait = waiting(&scene, wait_for(1)).await;
    scene.pass(Duration::from_millis(1_230)).await;
    scene.carried_out(1, complete()).await;
    settle().await;
    assert!(!wait.is_finished(), "nothing has rung");
    let (waited, took) = scene.until_it_ends(wait).await;
    assert_eq!(waited.unwrap().snapshot.task.status(), Status::Completed);
    assert!(took <= RECHECK, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_change_between_the_read_and_the_wait_is_not_missed() {
    let scene = Scene::new().await;
    scene.created(new_task(1)).await;
    scene.store.after_next_read(1, by_worker(complete()));
    let wait = waiting(&scene, wait_for(1)).await;
    assert_eq!(at_once(wait).await.unwrap().snapshot.task.status(), Status::Completed);
}

#[tokio::test(start_paused = true)]
async fn a_wait_reads_seldom_while_nothing_happens() {
    let scene = Scene::new().await;
    scene.created(new_task(1)).await;
    scene.created(new_task(2)).await;
    let wait = waiting(&scene, wait_for(1)).await;
    let before = scene.store.reads.load(Ordering::Acquire);
    for n in 0..50 {
        scene.carried_out(2, set_meta(&n.to_string())).await;
        settle().await;
    }
    assert_eq!(scene.store.reads.load(Ordering::Acquire), before, "other tasks do not wake it");
    let (waited, _) = scene.until_it_ends(wait).await;
    assert!(waited.unwrap().timed_out);
    let reads = scene.store.reads.load(Ordering::Acquire) - before;
    let expected = usize::try_from(LONG.as_secs() / RECHECK.as_secs()).unwrap();
    assert!(reads <= expected + 1, "{reads} reads");
}

#[tokio::test(start_paused = true)]
async fn waits_have_so_many_seats_in_all_and_so_many_for_one_subject() {
    let scene = Scene::new().await;
    scene.created(new_task(1)).await;
    let worker_waits = [waiting(&scene, wait_for(1)).await, waiting(&scene, wait_for(1)).await];
    let third = at_once(waiting(&scene, wait_for(1)).await).await;
    assert_eq!(third.unwrap_err(), Refusal::TooMany);
    let by_alice = waiting_as(&scene, alice(), Right::Owner, wait_for(1)).await;
    let full = at_once(waiting_as(&scene, bob(), Right::Owner, wait_for(1)).await).await;
    assert!(matches!(full.unwrap_err(), Refusal::Busy { .. }), "before anything is said about the task");
    // Streams have seats of their own.
    assert!(scene.broker.watch(subject("worker"), None).is_ok());

    // A seat is given back when the wait ends, and also when its caller goes away.
    let [first, second] = worker_waits;
    first.abort();
    settle().await;
    let again = waiting(&scene, wait_for(1)).await;
    assert!(!again.is_finished());
    scene.carried_out(1, complete()).await;
    for wait in [second, again, by_alice] {
        assert!(at_once(wait).await.is_ok());
    }
    scene.broker.no_long_calls().await;
    assert!(at_once(waiting_as(&scene, alice(), Right::Owner, wait_for(1)).await).await.is_ok());
}
