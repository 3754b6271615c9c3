use super::*;

fn seen(revision: u64, remaining_ms: u64) -> Seen {
    Seen::now(Some(Status::Working), revision, remaining_ms, false)
}

fn held(registry: &Registry, id: &str, remaining_ms: u64) -> CancellationToken {
    registry.place(None).unwrap().fill(id, seen(1, remaining_ms))
}

fn due(registry: &Registry) -> Vec<String> {
    registry.due(Instant::now(), 1000).into_iter().map(|due| due.id).collect()
}

async fn pass(millis: u64) {
    tokio::time::advance(Duration::from_millis(millis)).await;
}

#[tokio::test(start_paused = true)]
async fn one_task_has_one_token_however_often_it_is_handed_out() {
    let registry = Registry::new(10);
    let (first, second) = (held(&registry, "a", 1000), held(&registry, "a", 1000));
    let other = held(&registry, "b", 1000);
    registry.raise("a");
    assert!(first.is_cancelled() && second.is_cancelled() && !other.is_cancelled());
    assert_eq!(registry.len(), 2);
    assert!(held(&registry, "a", 1000).is_cancelled(), "a raised token stays raised");
}

#[tokio::test(start_paused = true)]
async fn a_task_is_due_when_its_time_is_over_and_not_when_it_got_more() {
    let registry = Registry::new(10);
    let token = held(&registry, "a", 1000);
    held(&registry, "b", 1000);
    registry.learn("b", seen(2, 5000));
    pass(999).await;
    assert!(due(&registry).is_empty());
    pass(1).await;
    assert_eq!(due(&registry), ["a"]);
    assert!(!token.is_cancelled(), "the broker is asked first");
    registry.gone("a");
    assert!(token.is_cancelled());
    pass(4000).await;
    assert_eq!(due(&registry), ["b"]);
}

#[tokio::test(start_paused = true)]
async fn an_older_state_moves_no_deadline_but_its_wish_to_cancel_counts() {
    let registry = Registry::new(10);
    let token = held(&registry, "a", 1000);
    registry.learn("a", seen(3, 9000));
    registry.learn("a", seen(2, 10));
    pass(500).await;
    assert!(due(&registry).is_empty());
    assert!(!token.is_cancelled());
    registry.learn("a", Seen::now(Some(Status::Working), 1, 10, true));
    assert!(token.is_cancelled());
    assert_eq!(registry.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn of_several_answers_about_one_revision_the_earliest_end_counts_until_it_has_passed() {
    let registry = Registry::new(10);
    held(&registry, "a", 1000);
    pass(100).await;
    // This answer was 100 ms on its way.
    registry.learn("a", seen(1, 1000));
    pass(900).await;
    assert_eq!(due(&registry), ["a"]);
    // The broker says that there is still time.
    registry.learn("a", seen(1, 50));
    assert!(due(&registry).is_empty());
    pass(50).await;
    assert_eq!(due(&registry), ["a"]);
}

#[tokio::test(start_paused = true)]
async fn no_time_left_is_the_end() {
    let registry = Registry::new(10);
    let token = held(&registry, "a", 0);
    assert!(token.is_cancelled());
    assert_eq!(registry.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_task_that_has_ended_is_let_go_without_asking() {
    let registry = Registry::new(10);
    let token = held(&registry, "a", 1000);
    registry.status("a", 2, Status::Completed);
    pass(1000).await;
    assert!(due(&registry).is_empty());
    assert!(token.is_cancelled());
    assert_eq!((registry.len(), registry.next_check()), (0, None));
}

#[tokio::test(start_paused = true)]
async fn an_end_in_the_far_future_is_looked_at_every_day() {
    let registry = Registry::new(10);
    let token = held(&registry, "a", u64::MAX);
    assert_eq!(registry.next_check(), Some(Instant::now() + LONGEST_UNSEEN));
    tokio::time::advance(LONGEST_UNSEEN).await;
    assert_eq!(due(&registry), ["a"]);
    registry.learn("a", seen(1, u64::MAX));
    assert_eq!(registry.next_check(), Some(Instant::now() + LONGEST_UNSEEN));
    assert!(!token.is_cancelled());
}

#[tokio::test(start_paused = true)]
async fn an_event_that_comes_before_the_answer_to_the_creation_counts() {
    let registry = Registry::new(10);
    let place = registry.place(None).unwrap();
    registry.event("a", Some(Seen::now(Some(Status::Cancelled), 2, 1000, true)), false);
    registry.event("b", None, false);
    assert!(place.fill("a", seen(1, 1000)).is_cancelled());
    assert!(registry.place(None).unwrap().fill("b", seen(1, 1000)).is_cancelled());
}

#[tokio::test(start_paused = true)]
async fn events_of_tasks_that_nobody_expects_are_not_kept() {
    let registry = Registry::new(10);
    registry.event("a", None, false);
    assert!(!held(&registry, "a", 1000).is_cancelled());
    let place = registry.place(None).unwrap();
    for number in 0..2 * MAX_STRANGERS {
        registry.event(&format!("other-{number}"), None, false);
    }
    assert_eq!(registry.lock().strangers.len(), MAX_STRANGERS);
    drop(place);
    registry.event("last", None, false);
    assert!(registry.lock().strangers.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_task_that_was_created_while_everything_was_read_again_is_looked_at_at_once() {
    let registry = Registry::new(10);
    let place = registry.place(None).unwrap();
    assert!(registry.begin_resync().is_empty());
    let token = place.fill("a", seen(1, 1000));
    assert_eq!(due(&registry), ["a"]);
    assert!(!token.is_cancelled());
}

#[tokio::test(start_paused = true)]
async fn a_full_registry_lets_go_of_what_has_ended_and_of_nothing_else() {
    let registry = Registry::new(3);
    let live = held(&registry, "live", 1000);
    held(&registry, "ended", 1000);
    registry.status("ended", 2, Status::Failed);
    held(&registry, "live too", 1000);
    let place = registry.place(None).unwrap();
    assert_eq!(registry.len(), 2);
    assert_eq!(registry.place(None).unwrap_err(), Full { maximum: 3 });
    assert_eq!(registry.place(Some("ended")).unwrap_err(), Full { maximum: 3 });
    registry.place(Some("live")).unwrap();
    drop(place);
    registry.place(None).unwrap();
    assert!(!live.is_cancelled());
}

#[tokio::test(start_paused = true)]
async fn the_age_of_a_task_is_known_once_it_was_told() {
    let registry = Registry::new(3);
    held(&registry, "a", 1000);
    assert_eq!(registry.age("a"), None);
    registry.learn("a", Seen { age: Some(Duration::ZERO), ..seen(1, 1000) });
    pass(300).await;
    assert_eq!(registry.age("a"), Some(Duration::from_millis(300)));
}
