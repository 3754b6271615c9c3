//! Refusals: unknown, expired and foreign are one answer, and no other answer tells them apart.

use super::*;
use crate::store::Listed;

/// Tasks that `bob` may know nothing about, whatever he asks: of others, live and ended, expired, discarded, and one
/// that never was.
async fn hidden_from_bob() -> Scene {
    let scene = Scene::at_rest(limits(), Bent::new);
    scene.created(keyed(1, "key", 7)).await;
    scene.created(new_task(2)).await;
    scene.carried_out(2, complete()).await;
    scene.created(new_task(3)).await;
    scene.carried_out(3, ask("a")).await;
    let guard = Guard { key: Some(CreateKey::new("call", Digest(1)).unwrap()), expected_revision: None };
    let remembered = Request { guard, ..by_worker(set_meta("{}")) };
    scene.broker.execute(id(3), remembered).await.unwrap();
    // Bob's own, but expired, and unowned ones of the anonymous caller.
    let own = NewTask { owner: subject("bob"), ttl: TtlWish::Millis(1_000), ..new_task(4) };
    scene.broker.create(&bob(), own).await.unwrap();
    let anonymous = Caller::anonymous();
    scene.broker.create(&anonymous, NewTask { owner: None, ..new_task(5) }).await.unwrap();
    scene.created(new_task(6)).await;
    scene.carried_out(6, Command::Discard).await;
    scene.clock.advance(Duration::from_secs(1));
    scene
}

const HIDDEN: std::ops::RangeInclusive<u8> = 1..=7;

fn commands() -> Vec<Command> {
    vec![
        ask("a"),
        answer("a"),
        Command::SetStatus { status: Status::Working, message: None },
        // Never allowed, for whatever task.
        Command::SetStatus { status: Status::Completed, message: None },
        set_ttl(1),
        set_meta("{}"),
        complete(),
        fail(),
        cancel(),
        Command::Discard,
    ]
}

#[tokio::test(start_paused = true)]
async fn what_a_caller_may_not_see_it_cannot_tell_from_what_is_not_there() {
    let scene = hidden_from_bob().await;
    for (number, right) in HIDDEN.flat_map(|number| [(number, Right::Creator), (number, Right::Owner)]) {
        for view in [View::Snapshot, View::Resume] {
            let read = scene.broker.get(&bob(), right, id(number), view).await;
            assert_eq!(read.unwrap_err(), Refusal::NotFound, "task {number} as {right:?}");
        }
        for since_revision in [None, Some(0), Some(1)] {
            let wait = Wait { id: id(number), timeout: Duration::ZERO, since_revision };
            let waited = scene.broker.wait(&bob(), right, wait).await;
            assert_eq!(waited.unwrap_err(), Refusal::NotFound, "task {number} as {right:?}");
        }
        for command in commands() {
            let kind = command.kind();
            for key in [None, Some("call"), Some("another")] {
                for expected_revision in [None, Some(1), Some(99)] {
                    let key = key.map(|key| CreateKey::new(key, Digest(2)).unwrap());
                    let guard = Guard { key, expected_revision };
                    let request = Request { guard, ..by(&bob(), right, command.clone()) };
                    let executed = scene.broker.execute(id(number), request).await;
                    assert_eq!(executed.unwrap_err(), Refusal::NotFound, "{kind:?} of {number} as {right:?}");
                }
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_wrong_with_a_command_is_said_alike_for_every_task() {
    let scene = hidden_from_bob().await;
    let too_large = Command::Complete { result: payload(&"x".repeat(2 << 20)) };
    let no_questions =
        Command::RequireInput { requests: [].into(), message: None, on_spent: OnSpentKey::AskAgain };
    for command in [too_large, no_questions] {
        let said: Vec<_> = {
            let mut said = Vec::new();
            for number in HIDDEN {
                let request = by(&bob(), Right::Creator, command.clone());
                said.push(scene.broker.execute(id(number), request).await.unwrap_err());
            }
            said
        };
        assert!(said.iter().all(|refusal| *refusal == said[0]), "{said:?}");
        assert_ne!(said[0], Refusal::NotFound);
    }
}

#[tokio::test(start_paused = true)]
async fn heads_and_lists_show_nothing_of_others_and_nothing_expired() {
    let scene = hidden_from_bob().await;
    let ids: Vec<_> = HIDDEN.map(id).collect();
    let (heads, _) = scene.broker.heads(&bob(), &ids).await.unwrap();
    assert!(heads.iter().all(Option::is_none), "{heads:?}");
    for whose in [Listed::CreatedBy(subject("bob")), Listed::OwnedBy(subject("bob"))] {
        let query = ListQuery { whose, owner: None, statuses: Vec::new(), after: None, limit: 100 };
        assert!(scene.broker.list(&query).await.unwrap().tasks.is_empty());
    }
    let (heads, _) = scene.broker.heads(&worker(), &ids).await.unwrap();
    let seen: Vec<_> = heads.iter().map(Option::is_some).collect();
    assert_eq!(seen, [true, true, true, false, false, false, false]);
}

#[tokio::test(start_paused = true)]
async fn everybody_sees_with_the_right_that_fits() {
    let scene = hidden_from_bob().await;
    let sees =
        async |caller: &Caller, right| scene.broker.get(caller, right, id(1), View::Snapshot).await.is_ok();
    assert!(sees(&worker(), Right::Creator).await);
    assert!(sees(&worker(), Right::Owner).await, "a creator with a subject has the owner's rights");
    assert!(!sees(&alice(), Right::Creator).await, "an owner is no worker");
    assert!(sees(&alice(), Right::Owner).await);
    for right in [Right::Creator, Right::Owner] {
        assert!(!sees(&Caller::anonymous(), right).await);
        let own = scene.broker.get(&Caller::anonymous(), right, id(5), View::Snapshot).await;
        assert!(own.is_ok(), "what is nobody's is nobody's");
    }
}

#[tokio::test(start_paused = true)]
async fn a_view_brings_the_payloads_that_belong_to_it() {
    let scene = Scene::new().await;
    scene.created(NewTask { meta: Some(payload(r#"{"m":1}"#)), ..new_task(1) }).await;
    scene.carried_out(1, ask("a")).await;
    scene.carried_out(1, answer("a")).await;
    scene.carried_out(1, ask("b")).await;
    let get = async |view| scene.broker.get(&worker(), Right::Creator, id(1), view).await.unwrap();
    let snapshot = get(View::Snapshot).await;
    let task = &snapshot.task;
    let inputs = task.inputs.as_ref().unwrap();
    assert!(snapshot.payloads.get(&task.meta.unwrap()).is_some());
    assert!(snapshot.payloads.get(&inputs.outstanding["b"].payload).is_some());
    assert!(snapshot.payloads.get(&task.arguments).is_none());
    let resume = get(View::Resume).await;
    assert!(resume.payloads.get(&task.arguments).is_some());
    assert!(resume.payloads.get(&inputs.answers["a"]).is_some());
    assert!(resume.payloads.get(&task.meta.unwrap()).is_none());
    scene.carried_out(1, fail()).await;
    let ended = get(View::Snapshot).await;
    let Phase::Failed(error) = ended.task.phase else { unreachable!() };
    assert!(ended.payloads.get(&error).is_some());
    assert_eq!(ended.task.shown_questions().count(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_row_brings_the_meta_of_a_task_that_is_still_there() {
    let scene = Scene::at_rest(limits(), Bent::new);
    let with_meta = scene.created(NewTask { meta: Some(payload("{}")), ..new_task(1) }).await;
    let row = scene.broker.row(&with_meta).await.unwrap().unwrap();
    assert!(row.payloads.get(&row.task.meta.unwrap()).is_some());
    scene.clock.advance(Duration::from_millis(TTL_MS));
    assert!(scene.broker.row(&with_meta).await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn errors_of_the_store_say_nothing_about_a_task() {
    let damaged = StoreError::Damaged { place: "the head of task 1".into() };
    for (error, expected) in [
        (StoreError::Unavailable { retry_after_ms: 7 }, Refusal::Unavailable { retry_after_ms: 7 }),
        (StoreError::OutcomeUnknown, Refusal::Unavailable { retry_after_ms: 1000 }),
        (StoreError::Broken, Refusal::Unavailable { retry_after_ms: 1000 }),
        (StoreError::Full, Refusal::Unavailable { retry_after_ms: 5000 }),
        (damaged, Refusal::Internal),
    ] {
        let scene = Scene::at_rest(limits(), Bent::failing(error));
        scene.created(new_task(1)).await;
        scene.store.fail(usize::MAX);
        for number in [1, 2] {
            let executed = scene.broker.execute(id(number), by_worker(complete())).await;
            assert_eq!(executed.unwrap_err(), expected);
        }
        assert_eq!(scene.broker.create(&worker(), new_task(3)).await.unwrap_err(), expected);
        assert_eq!(scene.broker.heads(&worker(), &[id(1)]).await.unwrap_err(), expected);
        assert!(!expected.to_string().contains("task 1"), "{expected}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_closed_store_is_unavailable() {
    let scene = Scene::new().await;
    scene.created(new_task(1)).await;
    scene.broker.close().await;
    assert_eq!(scene.broker.health(), Health::Closed);
    let read = scene.broker.get(&worker(), Right::Creator, id(1), View::Snapshot).await;
    assert!(matches!(read.unwrap_err(), Refusal::Unavailable { .. }));
}
