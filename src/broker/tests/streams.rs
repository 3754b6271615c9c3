//! Streams: where they begin, what they say and in which order, and how they end.

use super::*;
use task_broker_core::EventKind;

const HEARTBEAT: Duration = Duration::from_secs(10);

fn watch(scene: &Scene, since: Option<&str>) -> Watch {
    scene.broker.watch(subject("worker"), since.map(str::to_owned)).unwrap()
}

async fn synced(stream: &mut Watch) -> (String, bool) {
    match stream.next().await {
        Some(WatchMessage::Synced { position, reset }) => (position, reset),
        other => panic!("not synced: {other:?}"),
    }
}

/// The next event, in which no heartbeat comes first.
async fn event(stream: &mut Watch) -> (TaskId, EventKind, u64, String) {
    match stream.next().await {
        Some(WatchMessage::Event { change, .. }) => {
            (change.id, change.event.kind, change.event.revision, change.position)
        }
        other => panic!("no event: {other:?}"),
    }
}

/// A call to `next` in the background; it gives the stream back.
async fn listening(mut stream: Watch) -> JoinHandle<(Option<WatchMessage>, Watch)> {
    in_background(async move { (stream.next().await, stream) }).await
}

#[tokio::test(start_paused = true)]
async fn a_stream_says_where_it_stands_and_then_every_event_in_order() {
    let scene = Scene::new().await;
    scene.created(new_task(1)).await;
    let mut stream = watch(&scene, None);
    let (position, reset) = synced(&mut stream).await;
    assert!(reset && !position.is_empty(), "without a position everything has to be read");
    scene.created(new_task(2)).await;
    scene.carried_out(1, ask("a")).await;
    scene.carried_out(2, complete()).await;
    scene.carried_out(1, Command::Discard).await;
    let expected = [
        (id(2), EventKind::Create, 1),
        (id(1), EventKind::RequireInput, 2),
        (id(2), EventKind::Complete, 2),
        (id(1), EventKind::Discard, 3),
    ];
    for expected in expected {
        let (of, kind, revision, _) = event(&mut stream).await;
        assert_eq!((of, kind, revision), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn an_event_wakes_a_stream_that_waits() {
    let scene = Scene::new().await;
    scene.created(new_task(1)).await;
    let mut stream = watch(&scene, None);
    synced(&mut stream).await;
    scene.clock.advance(Duration::from_millis(77));
    let listening = listening(stream).await;
    assert!(!listening.is_finished());
    scene.carried_out(1, complete()).await;
    settle().await;
    assert!(listening.is_finished(), "no time has to pass");
    let Some(WatchMessage::Event { change, now }) = listening.await.unwrap().0 else { panic!("no event") };
    assert_eq!((change.id, change.event.kind, now), (id(1), EventKind::Complete, scene.clock.now()));
}

#[tokio::test(start_paused = true)]
async fn a_stream_tells_only_of_tasks_of_its_creator() {
    let scene = Scene::new().await;
    let mut stream = watch(&scene, None);
    let mut anonymous = scene.broker.watch(None, None).unwrap();
    synced(&mut stream).await;
    synced(&mut anonymous).await;
    scene.broker.create(&bob(), new_task(1)).await.unwrap();
    scene.broker.create(&Caller::anonymous().with_delegation(), new_task(2)).await.unwrap();
    scene.created(new_task(3)).await;
    assert_eq!(event(&mut stream).await.0, id(3));
    assert_eq!(event(&mut anonymous).await.0, id(2));
    // The owner of a task is not its creator.
    let mut by_owner = scene.broker.watch(subject("alice"), None).unwrap();
    synced(&mut by_owner).await;
    scene.carried_out(3, complete()).await;
    assert!(matches!(by_owner.next().await, Some(WatchMessage::Heartbeat)));
}

#[tokio::test(start_paused = true)]
async fn a_stream_goes_on_where_an_earlier_one_stood() {
    let scene = Scene::new().await;
    let mut stream = watch(&scene, None);
    let (mut position, _) = synced(&mut stream).await;
    for number in 1..=5 {
        scene.created(new_task(number)).await;
    }
    drop(stream);
    for number in 1..=5 {
        let mut stream = watch(&scene, Some(&position));
        assert_eq!(synced(&mut stream).await, (position.clone(), false));
        let (of, _, _, behind) = event(&mut stream).await;
        assert_eq!(of, id(number));
        position = behind;
    }
    let mut stream = watch(&scene, Some(&position));
    assert_eq!(synced(&mut stream).await, (position.clone(), false));
    assert!(matches!(stream.next().await, Some(WatchMessage::Heartbeat)), "nothing is told twice");
}

#[tokio::test(start_paused = true)]
async fn an_unknown_position_is_a_reset_from_which_the_stream_goes_on() {
    let scene = Scene::new().await;
    scene.created(new_task(1)).await;
    let mut stream = watch(&scene, Some("another process-17"));
    let (position, reset) = synced(&mut stream).await;
    assert!(reset);
    scene.carried_out(1, complete()).await;
    assert_eq!(event(&mut stream).await.1, EventKind::Complete);
    drop(stream);
    let mut again = watch(&scene, Some(&position));
    assert_eq!(synced(&mut again).await, (position, false), "the position that it was told is good");
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_is_too_slow_is_reset() {
    let scene = Scene::new().await;
    scene.created(new_task(1)).await;
    let mut stream = watch(&scene, None);
    synced(&mut stream).await;
    scene.carried_out(1, set_meta("{}")).await;
    assert_eq!(event(&mut stream).await.2, 2);
    // More than the store keeps for one creator.
    for n in 0..4_200 {
        scene.carried_out(1, set_meta(&n.to_string())).await;
    }
    let (_, reset) = synced(&mut stream).await;
    assert!(reset);
    scene.carried_out(1, complete()).await;
    assert_eq!(event(&mut stream).await.1, EventKind::Complete);
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_has_nothing_to_say_says_that_it_lives() {
    let scene = Scene::new().await;
    let mut stream = watch(&scene, None);
    synced(&mut stream).await;
    for _ in 0..3 {
        let (message, took) = scene.until_it_ends(listening(stream).await).await;
        assert!(matches!(message.0, Some(WatchMessage::Heartbeat)), "{message:?}");
        assert!((HEARTBEAT..=HEARTBEAT + STEP).contains(&took), "{took:?}");
        stream = message.1;
    }
}

#[tokio::test(start_paused = true)]
async fn changes_of_others_do_not_put_off_a_heartbeat() {
    let scene = Scene::new().await;
    let mut stream = watch(&scene, None);
    synced(&mut stream).await;
    scene.broker.create(&bob(), new_task(9)).await.unwrap();
    let start = Instant::now();
    let listening = listening(stream).await;
    while !listening.is_finished() {
        let meta = set_meta(&start.elapsed().as_millis().to_string());
        scene.broker.execute(id(9), by(&bob(), Right::Creator, meta)).await.unwrap();
        scene.pass(Duration::from_millis(500)).await;
    }
    assert!(matches!(listening.await.unwrap().0, Some(WatchMessage::Heartbeat)));
    assert!(start.elapsed() <= HEARTBEAT + Duration::from_millis(500));
}

#[tokio::test(start_paused = true)]
async fn an_expiry_is_an_event() {
    let scene = Scene::new().await;
    scene.created(NewTask { ttl: TtlWish::Millis(2_000), ..new_task(1) }).await;
    let mut stream = watch(&scene, None);
    synced(&mut stream).await;
    let (message, took) = scene.until_it_ends(listening(stream).await).await;
    let Some(WatchMessage::Event { change, .. }) = message.0 else { panic!("{message:?}") };
    assert_eq!((change.id, change.event.kind), (id(1), EventKind::Expired));
    assert!(took <= Duration::from_millis(2_300), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_drain_ends_streams_and_lets_none_begin() {
    let scene = Scene::new().await;
    scene.created(new_task(1)).await;
    let mut stream = watch(&scene, None);
    synced(&mut stream).await;
    let waits = listening(stream).await;
    assert!(!waits.is_finished());
    scene.broker.drain();
    settle().await;
    assert!(waits.is_finished());
    let (message, mut stream) = waits.await.unwrap();
    assert!(message.is_none());
    assert!(stream.next().await.is_none(), "it stays ended");
    assert!(watch(&scene, None).next().await.is_none());
    drop(stream);
    scene.broker.no_long_calls().await;
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_given_up_loses_no_event() {
    let scene = Scene::new().await;
    let mut stream = watch(&scene, None);
    synced(&mut stream).await;
    for number in 1..=3 {
        let given_up = tokio::time::timeout(Duration::from_millis(100), stream.next()).await;
        assert!(given_up.is_err(), "there was nothing");
        scene.created(new_task(number)).await;
        scene.carried_out(number, complete()).await;
        assert_eq!(event(&mut stream).await.0, id(number));
        assert_eq!(event(&mut stream).await.1, EventKind::Complete);
    }
}

#[tokio::test(start_paused = true)]
async fn events_arrive_soon_even_if_every_hint_is_lost() {
    let scene = Scene::with(limits(), Bent::deaf).await;
    let mut stream = watch(&scene, None);
    synced(&mut stream).await;
    let listening = listening(stream).await;
    scene.pass(Duration::from_millis(1_230)).await;
    scene.created(new_task(1)).await;
    settle().await;
    assert!(!listening.is_finished(), "nothing has rung");
    let (message, took) = scene.until_it_ends(listening).await;
    assert!(matches!(message.0, Some(WatchMessage::Event { .. })), "{message:?}");
    assert!(took <= RECHECK, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_store_that_refuses_for_a_while_does_not_end_a_stream() {
    let scene = Scene::at_rest(limits(), Bent::new);
    let mut stream = watch(&scene, None);
    synced(&mut stream).await;
    scene.created(new_task(1)).await;
    scene.store.fail(13);
    let (message, took) = scene.until_it_ends(listening(stream).await).await;
    assert!(matches!(message.0, Some(WatchMessage::Heartbeat)), "it says that it lives: {message:?}");
    assert!(took <= HEARTBEAT + Duration::from_secs(1), "{took:?}");
    let (message, _) = scene.until_it_ends(listening(message.1).await).await;
    assert!(matches!(message.0, Some(WatchMessage::Event { .. })), "{message:?}");
}

#[tokio::test(start_paused = true)]
async fn streams_have_so_many_seats_in_all_and_so_many_for_one_subject() {
    let scene = Scene::new().await;
    let open = |name: &str| scene.broker.watch(subject(name), None);
    let (first, second) = (open("worker").unwrap(), open("worker").unwrap());
    assert_eq!(open("worker").unwrap_err(), Refusal::TooMany);
    let third = open("bob").unwrap();
    assert!(matches!(open("carol").unwrap_err(), Refusal::Busy { .. }));
    drop(first);
    let again = open("worker").unwrap();
    drop((second, third, again));
    scene.broker.no_long_calls().await;
}
