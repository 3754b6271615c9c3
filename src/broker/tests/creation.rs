//! Creation: repeated calls, quotas that expired tasks still fill, and tasks that expire at once.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_created_task_is_shown_with_its_meta() {
    let scene = Scene::new().await;
    let new = NewTask { meta: Some(payload(r#"{"trace":"1"}"#)), ..new_task(1) };
    let created = scene.broker.create(&worker(), new).await.unwrap();
    assert!(created.created);
    let Snapshot { task, payloads, now } = created.snapshot;
    assert_eq!((task.id, task.revision, now), (id(1), 1, START));
    assert_eq!(&payloads.get(&task.meta.unwrap()).unwrap()[..], br#"{"trace":"1"}"#);
}

#[tokio::test(start_paused = true)]
async fn a_task_that_expires_at_once_is_shown_to_its_creator_and_to_nobody_after() {
    let scene = Scene::new().await;
    for (number, meta) in [(1, None), (2, Some(payload("{}")))] {
        let new = NewTask { ttl: TtlWish::Millis(0), meta, ..new_task(number) };
        let created = scene.broker.create(&worker(), new).await.unwrap();
        assert_eq!(created.snapshot.task.id, id(number));
        assert_eq!(created.snapshot.payloads.get(&created.snapshot.task.arguments), None);
        let gone = scene.broker.get(&worker(), Right::Creator, id(number), View::Snapshot).await;
        assert_eq!(gone.unwrap_err(), Refusal::NotFound);
    }
}

#[tokio::test(start_paused = true)]
async fn the_same_call_again_finds_the_task_as_it_is_now() {
    let scene = Scene::new().await;
    scene.created(keyed(1, "key", 7)).await;
    scene.carried_out(1, complete()).await;
    let again = scene.broker.create(&worker(), keyed(2, "key", 7)).await.unwrap();
    assert!(!again.created);
    let Snapshot { task, payloads, .. } = again.snapshot;
    assert_eq!((task.id, task.status()), (id(1), Status::Completed));
    let Phase::Completed(result) = task.phase else { unreachable!() };
    assert!(payloads.get(&result).is_some());
    assert_eq!(scene.store.heads(&[id(2)]).await.unwrap().0, [None]);
}

#[tokio::test(start_paused = true)]
async fn another_call_under_the_same_key_is_a_mismatch() {
    let scene = Scene::new().await;
    scene.created(keyed(1, "key", 7)).await;
    let other = scene.broker.create(&worker(), keyed(2, "key", 8)).await;
    assert_eq!(other.unwrap_err(), Refusal::Rejected(Rejection::IdempotencyMismatch));
    // What the call would have been refused for comes first, whether or not the key is known.
    let too_large = NewTask { meta: Some(payload(&"x".repeat(100_000))), ..keyed(2, "key", 8) };
    let refused = scene.broker.create(&worker(), too_large).await.unwrap_err();
    assert!(matches!(refused, Refusal::Rejected(Rejection::LimitExceeded { limit: "maxMetaBytes", .. })));
    let plain = Caller::named("worker");
    let refused = scene.broker.create(&plain, keyed(2, "key", 7)).await.unwrap_err();
    assert!(matches!(refused, Refusal::Rejected(Rejection::Forbidden { .. })), "{refused:?}");
}

#[tokio::test(start_paused = true)]
async fn a_key_belongs_to_its_creator() {
    let scene = Scene::new().await;
    scene.created(keyed(1, "key", 7)).await;
    for (number, caller) in [(2, bob()), (3, Caller::anonymous().with_delegation())] {
        let created = scene.broker.create(&caller, keyed(number, "key", 9)).await.unwrap();
        assert!(created.created, "nothing tells {caller:?} that the key is used by somebody else");
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_comes_free_when_its_task_expires() {
    let scene = Scene::at_rest(limits(), Bent::new);
    scene.created(keyed(1, "key", 7)).await;
    scene.clock.advance(Duration::from_millis(TTL_MS));
    let created = scene.broker.create(&worker(), keyed(2, "key", 8)).await.unwrap();
    assert!(created.created);
}

#[tokio::test(start_paused = true)]
async fn a_key_under_which_tasks_keep_vanishing_is_given_up_after_a_few_tries() {
    let scene = Scene::at_rest(limits(), Bent::haunted);
    let refused = scene.broker.create(&worker(), keyed(1, "key", 7)).await.unwrap_err();
    assert!(matches!(refused, Refusal::Unavailable { .. }), "{refused:?}");
}

#[tokio::test(start_paused = true)]
async fn another_owner_may_be_named_only_with_the_scope() {
    let scene = Scene::new().await;
    let plain = Caller::named("worker");
    let refused = scene.broker.create(&plain, new_task(1)).await.unwrap_err();
    assert!(matches!(refused, Refusal::Rejected(Rejection::Forbidden { .. })), "{refused:?}");
    let own = NewTask { owner: subject("worker"), ..new_task(1) };
    assert!(scene.broker.create(&plain, own).await.unwrap().created);
}

fn tight(tasks_per_owner: u64, max_tasks: u64) -> Limits {
    Limits { quota: Quota { tasks_per_owner, max_tasks, ..limits().quota }, ..limits() }
}

#[tokio::test(start_paused = true)]
async fn a_full_quota_refuses_and_changes_nothing() {
    let scene = Scene::at_rest(tight(2, 100), Bent::new);
    scene.created(new_task(1)).await;
    scene.created(new_task(2)).await;
    let refused = scene.broker.create(&worker(), new_task(3)).await.unwrap_err();
    let full = Rejection::LimitExceeded { limit: "quotaTasksPerOwner", maximum: 2 };
    assert_eq!(refused, Refusal::Rejected(full));
    // Another owner has room.
    scene.created(NewTask { owner: subject("bob"), ..new_task(3) }).await;
    scene.carried_out(1, Command::Discard).await;
    scene.created(new_task(4)).await;
}

#[tokio::test(start_paused = true)]
async fn a_quota_that_is_full_of_expired_tasks_makes_room() {
    for limits in [tight(2, 100), tight(100, 2)] {
        let scene = Scene::at_rest(limits, Bent::new);
        scene.created(new_task(1)).await;
        scene.created(NewTask { ttl: TtlWish::Millis(2 * TTL_MS), ..new_task(2) }).await;
        scene.clock.advance(Duration::from_millis(TTL_MS - 1));
        assert!(scene.broker.create(&worker(), new_task(3)).await.is_err(), "nothing has expired");
        scene.clock.advance(Duration::from_millis(1));
        scene.created(new_task(3)).await;
        let heads = scene.store.heads(&[id(1), id(2)]).await.unwrap().0;
        assert!(heads[0].is_none(), "the expired one went");
        assert!(heads[1].is_some(), "the live one stayed");
        assert!(scene.broker.create(&worker(), new_task(4)).await.is_err(), "and full is full");
    }
}

#[tokio::test(start_paused = true)]
async fn room_is_made_however_many_have_expired() {
    let many = u16::try_from(SWEEP_FOR_ROOM * 2 + 1).unwrap();
    let scene = Scene::at_rest(tight(u64::from(many), 100_000), Bent::new);
    for number in 0..many {
        let mut bytes = [1; 16];
        bytes[..2].copy_from_slice(&number.to_be_bytes());
        scene.created(NewTask { id: TaskId::from_bytes(bytes), ..new_task(0) }).await;
    }
    scene.clock.advance(Duration::from_millis(TTL_MS));
    scene.created(new_task(1)).await;
    let swept = scene.store.sweep(1).await.unwrap();
    assert_eq!((swept.removed, swept.more), (0, false), "all of them went");
}

#[tokio::test(start_paused = true)]
async fn expired_tasks_are_removed_without_anybody_asking() {
    let scene = Scene::new().await;
    for number in 1..=3 {
        scene.created(NewTask { ttl: TtlWish::Millis(1_000), ..new_task(number) }).await;
    }
    scene.pass(Duration::from_secs(1)).await;
    scene.pass(Duration::from_millis(200)).await;
    assert_eq!(scene.store.heads(&[id(1), id(2), id(3)]).await.unwrap().0, [None, None, None]);
    // Also after the store has refused for a while.
    scene.created(NewTask { ttl: TtlWish::Millis(1_000), ..new_task(4) }).await;
    scene.store.fail(2);
    for _ in 0..30 {
        scene.pass(Duration::from_millis(200)).await;
    }
    assert_eq!(scene.store.heads(&[id(4)]).await.unwrap().0, [None]);
}
