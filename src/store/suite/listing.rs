//! Lists: newest first, page by page, without a gap and without a repetition.

use std::time::Duration;

use futures_util::future::join_all;
use task_broker_core::{Command, NewTask, Status, TaskId, TtlWish};

use super::{
    TTL_MS, alice, all_pages, cancel, carried_out, complete, created, created_by, everything, id, ids,
    new_task, page, payload, set_meta, set_ttl, subject, worker,
};
use crate::clock::Clock;
use crate::store::{ListPlace, ListQuery, Listed, Store};

/// Creates tasks `numbers`, so many at the same time, and gives their ids in the order of a list.
async fn tasks(store: &dyn Store, clock: &Clock, numbers: std::ops::Range<u64>, ties: usize) -> Vec<TaskId> {
    let mut places = Vec::new();
    for tie in numbers.collect::<Vec<_>>().chunks(ties) {
        clock.advance(Duration::from_millis(3));
        places.extend(join_all(tie.iter().map(|number| created(store, new_task(*number)))).await);
    }
    let mut places: Vec<_> = places.iter().map(|task| ListPlace::of(task)).collect();
    places.sort_unstable_by(|a, b| b.cmp(a));
    places.iter().map(|place| place.id).collect()
}

fn by_worker() -> ListQuery {
    everything(Listed::CreatedBy(worker()))
}

pub(in crate::store) async fn a_list_is_newest_first_with_ties_in_order_of_their_ids(
    store: &dyn Store,
    clock: &Clock,
) {
    assert!(page(store, &by_worker()).await.tasks.is_empty());
    let expected = tasks(store, clock, 0..12, 4).await;
    // The order is that of creation: what happens to a task later does not move it.
    clock.advance(Duration::from_millis(3));
    carried_out(store, id(0), set_meta("{}")).await;
    let page = page(store, &by_worker()).await;
    assert_eq!((ids(&page), page.more, page.now), (expected, false, clock.now()));
    let changed = page.tasks.iter().find(|task| task.id == id(0)).unwrap();
    assert_eq!(changed.revision, 2, "a list shows the newest state");
}

pub(in crate::store) async fn pages_of_every_size_add_up_to_the_whole(store: &dyn Store, clock: &Clock) {
    let expected = tasks(store, clock, 0..25, 7).await;
    for limit in [1, 2, 5, 7, 24, 25, 26] {
        let query = ListQuery { limit, ..by_worker() };
        assert_eq!(all_pages(store, &query).await, expected, "{limit} at a time");
        let first = page(store, &query).await;
        assert_eq!(first.tasks.len(), limit.min(25));
        assert_eq!(first.more, limit < 25, "{limit} at a time");
    }
    // Behind the last one there is nothing, and nothing more.
    let last = super::head(store, *expected.last().unwrap()).await.unwrap();
    let end = page(store, &ListQuery { after: Some(ListPlace::of(&last)), ..by_worker() }).await;
    assert!(end.tasks.is_empty() && !end.more);
}

pub(in crate::store) async fn a_list_shows_the_tasks_of_its_subject_in_its_role(
    store: &dyn Store,
    _clock: &Clock,
) {
    let people = [worker(), alice(), subject(""), None];
    let mut all = Vec::new();
    for (number, (creator, owner)) in
        (0..).zip(people.iter().flat_map(|creator| people.iter().map(move |owner| (creator, owner))))
    {
        let new = NewTask { owner: owner.clone(), ..new_task(number) };
        all.push(created_by(store, creator, new).await);
    }
    for person in &people {
        for (whose, is_theirs) in [
            (Listed::CreatedBy(person.clone()), all.iter().filter(|task| task.creator == *person).collect()),
            (
                Listed::OwnedBy(person.clone()),
                all.iter().filter(|task| task.owner == *person).collect::<Vec<_>>(),
            ),
        ] {
            let mut expected: Vec<_> = is_theirs.iter().map(|task| ListPlace::of(task)).collect();
            expected.sort_unstable_by(|a, b| b.cmp(a));
            let expected: Vec<_> = expected.iter().map(|place| place.id).collect();
            assert_eq!(expected.len(), 4);
            let query = ListQuery { limit: 3, ..everything(whose.clone()) };
            assert_eq!(all_pages(store, &query).await, expected, "{whose:?}");
        }
    }
    assert!(page(store, &everything(Listed::CreatedBy(subject("stranger")))).await.tasks.is_empty());
}

pub(in crate::store) async fn filters_leave_out_what_they_say_and_count_for_more(
    store: &dyn Store,
    clock: &Clock,
) {
    let order = tasks(store, clock, 0..12, 3).await;
    for number in 12..15 {
        created(store, NewTask { owner: subject("bob"), ..new_task(number) }).await;
    }
    for number in [1, 4, 9] {
        carried_out(store, id(number), complete(&payload("{}"))).await;
    }
    carried_out(store, id(5), cancel()).await;
    let in_order = |numbers: &[u64]| -> Vec<_> {
        let wanted: Vec<_> = numbers.iter().map(|number| id(*number)).collect();
        order.iter().copied().filter(|id| wanted.contains(id)).collect()
    };
    let ended = ListQuery { statuses: vec![Status::Completed], ..by_worker() };
    let either = ListQuery { statuses: vec![Status::Completed, Status::Cancelled], ..by_worker() };
    let none = ListQuery { statuses: vec![Status::Failed], ..by_worker() };
    let alices = ListQuery { owner: Some(alice()), ..by_worker() };
    let working = ListQuery { statuses: vec![Status::Working], owner: Some(alice()), ..by_worker() };
    let nobodys = ListQuery { owner: Some(None), ..by_worker() };
    for (query, expected) in [
        (ended, in_order(&[1, 4, 9])),
        (either, in_order(&[1, 4, 5, 9])),
        (none, Vec::new()),
        (alices, order.clone()),
        (working, in_order(&[0, 2, 3, 6, 7, 8, 10, 11])),
        (nobodys, Vec::new()),
    ] {
        for limit in 1..=expected.len() + 1 {
            let query = ListQuery { limit, ..query.clone() };
            assert_eq!(all_pages(store, &query).await, expected, "{query:?}");
            let first = page(store, &query).await;
            assert_eq!(first.more, limit < expected.len(), "more are only those that pass: {query:?}");
        }
    }
}

pub(in crate::store) async fn expired_tasks_are_left_out_from_their_last_instant(
    store: &dyn Store,
    clock: &Clock,
) {
    for number in 0..6 {
        let ttl = if number % 2 == 0 { TTL_MS } else { 2 * TTL_MS };
        created(store, NewTask { ttl: TtlWish::Millis(ttl), ..new_task(number) }).await;
    }
    clock.advance(Duration::from_millis(TTL_MS - 1));
    assert_eq!(page(store, &by_worker()).await.tasks.len(), 6);
    clock.advance(Duration::from_millis(1));
    for whose in [Listed::CreatedBy(worker()), Listed::OwnedBy(alice())] {
        let query = ListQuery { limit: 3, ..everything(whose) };
        let page = page(store, &query).await;
        assert_eq!((page.tasks.len(), page.more), (3, false), "expired ones are not more either");
        assert!(page.tasks.iter().all(|task| task.ttl_ms == 2 * TTL_MS));
    }
}

pub(in crate::store) async fn changes_while_somebody_pages_neither_double_nor_hide_a_task(
    store: &dyn Store,
    clock: &Clock,
) {
    let order = tasks(store, clock, 0..20, 3).await;
    let number = |place: usize| (0..20).find(|number| id(*number) == order[place]).unwrap();
    let mut query = ListQuery { limit: 5, ..by_worker() };
    let first = page(store, &query).await;
    assert_eq!(ids(&first), order[..5]);
    query.after = first.tasks.last().map(|task| ListPlace::of(task));
    // The task at which the page ended goes, as does one that was seen and one that is to come.
    for place in [4, 2, 7] {
        carried_out(store, id(number(place)), Command::Discard).await;
    }
    // Tasks that change stay where they are; a new one is ahead of the pager.
    carried_out(store, id(number(6)), complete(&payload("{}"))).await;
    carried_out(store, id(number(1)), set_ttl(2 * TTL_MS)).await;
    clock.advance(Duration::from_millis(3));
    created(store, new_task(100)).await;
    let rest = all_pages(store, &query).await;
    let expected: Vec<_> = order[5..].iter().copied().filter(|id| *id != order[7]).collect();
    assert_eq!(rest, expected);
}

pub(in crate::store) async fn a_filter_that_matches_little_still_finds_everything(
    store: &dyn Store,
    clock: &Clock,
) {
    // More than any driver looks at in one step.
    let order = tasks(store, clock, 0..2_100, 700).await;
    let rare: Vec<_> = [0, 1_023, 1_024, 1_025, 2_048, 2_099].map(|place: usize| order[place]).to_vec();
    for id in &rare {
        carried_out(store, *id, cancel()).await;
    }
    let query = ListQuery { statuses: vec![Status::Cancelled], ..by_worker() };
    assert_eq!(all_pages(store, &query).await, rare);
    let query = ListQuery { limit: 5, ..query };
    assert!(page(store, &query).await.more);
    let query = ListQuery { limit: 6, ..query };
    assert!(!page(store, &query).await.more);
    assert_eq!(all_pages(store, &ListQuery { limit: 1_000, ..by_worker() }).await, order);
}

pub(in crate::store) async fn a_list_of_somebody_who_owns_and_creates_is_complete(
    store: &dyn Store,
    clock: &Clock,
) {
    // Alice's own, those that she makes for bob, and those that are made for her, in turn and in ties.
    let bob = subject("bob");
    let makers = [(alice(), alice()), (alice(), bob.clone()), (worker(), alice())];
    let mut all = Vec::new();
    for round in 0..35 {
        clock.advance(Duration::from_millis(1));
        let made = (0..90).map(|n| {
            let number = round * 90 + n;
            let (creator, owner) = &makers[usize::try_from(number % 3).unwrap()];
            created_by(store, creator, NewTask { owner: owner.clone(), ..new_task(number) })
        });
        all.extend(join_all(made).await);
    }
    all.sort_unstable_by_key(|task| std::cmp::Reverse(ListPlace::of(task)));
    for whose in [Listed::OwnedBy(alice()), Listed::CreatedBy(alice()), Listed::OwnedBy(bob)] {
        let query = everything(whose);
        let expected: Vec<_> = all.iter().filter(|task| query.wants(task)).map(|task| task.id).collect();
        assert!(expected.len() >= 1_050);
        for limit in [700, 10_000] {
            let listed = all_pages(store, &ListQuery { limit, ..query.clone() }).await;
            assert!(listed == expected, "{:?}, {limit} at a time", query.whose);
        }
    }
}

pub(in crate::store) async fn the_parts_together_are_all_tasks_once(store: &dyn Store, clock: &Clock) {
    let mut expected = tasks(store, clock, 1..301, 3).await;
    carried_out(store, id(300), Command::Discard).await;
    expected.retain(|task| *task != id(300));
    carried_out(store, id(299), set_ttl(0)).await;
    let (mut found, mut number) = (Vec::new(), 0);
    while let Some(part) = store.part(number).await.unwrap() {
        found.extend(part);
        number += 1;
    }
    assert_eq!(store.part(number + 1).await, Ok(None), "behind the last part there is nothing");
    found.sort();
    expected.sort();
    assert_eq!(found, expected, "each once, one that has expired and is not swept included");
}
