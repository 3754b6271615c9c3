//! Groups: what is decided together is shown together, once it is durable; and what a failure of the writer shows.

use std::pin::pin;
use std::sync::mpsc;
use std::task::Poll;

use futures_util::poll;
use task_broker_core::Guard;

use super::*;
use crate::store::suite::{head, position};

/// The outside of a command that holds the writer up while it is being decided.
struct Gate {
    begun: mpsc::Receiver<()>,
    go: mpsc::Sender<()>,
}

/// Such a command, on a task that is there and is left as it is.
fn gate(number: u64) -> (Update, Gate) {
    let (tell, begun) = mpsc::channel();
    let (go, wait) = mpsc::channel();
    let inside = Mutex::new((tell, wait));
    let mut update = suite::update(id(number), cancel(), Guard::default());
    update.decide = Box::new(move |_, _| {
        let inside = inside.lock();
        inside.0.send(()).unwrap();
        inside.1.recv_timeout(Duration::from_secs(20)).unwrap();
        Err(Rejection::Foreign)
    });
    (update, Gate { begun, go })
}

impl Gate {
    fn wait_until_it_is_reached(&self) {
        self.begun.recv_timeout(Duration::from_secs(20)).unwrap();
    }

    fn open(self) {
        self.go.send(()).unwrap();
    }
}

#[tokio::test]
async fn a_group_is_decided_in_turn_and_shown_when_it_is_durable() {
    let clock = new_clock();
    let (store, _directory) = open(&clock);
    created(&store, new_task(0)).await;
    let start = position(&store, &worker()).await;
    let ((hold, before), (hold_again, within)) = (gate(0), gate(0));
    let by_worker = worker();

    // The writer is held up until all of these are waiting: so they are one group.
    let mut first = pin!(store.update(hold));
    assert!(poll!(&mut first).is_pending());
    before.wait_until_it_is_reached();
    let meta = |seed| Command::SetMeta { meta: payload_of(50_000, seed) };
    let mut created_first = pin!(suite::insert(&store, &by_worker, keyed(1, "key")));
    let mut found = pin!(suite::insert(&store, &by_worker, keyed(2, "key")));
    let mut meta_once = pin!(carried_out(&store, id(1), meta(1)));
    let mut meta_twice = pin!(carried_out(&store, id(1), meta(2)));
    let mut replaced = pin!(carried_out(&store, id(0), meta(3)));
    let mut held_up = pin!(store.update(hold_again));
    let mut discarded = pin!(carried_out(&store, id(1), Command::Discard));
    let mut created_again = pin!(suite::insert(&store, &by_worker, keyed(3, "key")));
    assert!(poll!(&mut created_first).is_pending());
    assert!(poll!(&mut found).is_pending());
    assert!(poll!(&mut meta_once).is_pending());
    assert!(poll!(&mut meta_twice).is_pending());
    assert!(poll!(&mut replaced).is_pending());
    assert!(poll!(&mut held_up).is_pending());
    assert!(poll!(&mut discarded).is_pending());
    assert!(poll!(&mut created_again).is_pending());
    before.open();
    within.wait_until_it_is_reached();

    // By now half of the group is decided, none of it is durable, and nobody is shown or told anything.
    assert!(poll!(&mut first).is_pending(), "a rejection waits for the commit too");
    assert!(poll!(&mut created_first).is_pending());
    assert!(poll!(&mut found).is_pending());
    assert!(poll!(&mut replaced).is_pending());
    assert!(head(&store, id(1)).await.is_none());
    assert!(whole(&store, id(1)).await.is_none());
    let old = whole(&store, id(0)).await.unwrap();
    assert_eq!((old.task.revision, old.task.meta), (1, None));
    assert_eq!(all_pages(&store, &everything(Listed::CreatedBy(worker()))).await, [id(0)]);
    assert!(store.changes(&worker(), Some(&start), 10).await.unwrap().events.is_empty());
    within.open();

    assert!(matches!(first.await, Ok(Updated::Rejected(Rejection::Foreign))));
    assert!(matches!(created_first.await, Inserted::Created(_)));
    assert!(matches!(found.await, Inserted::Existing(existing) if existing == id(1)));
    assert_eq!((meta_once.await.task.revision, meta_twice.await.task.revision), (2, 3));
    assert_eq!(replaced.await.task.revision, 2);
    assert!(matches!(held_up.await, Ok(Updated::Rejected(Rejection::Foreign))));
    assert_eq!(discarded.await.task.revision, 3);
    assert!(matches!(created_again.await, Inserted::Created(_)), "the key came free in the same group");
    assert!(whole(&store, id(1)).await.is_none());
    let new = whole(&store, id(0)).await.unwrap();
    suite::assert_holds(&new, &new.task.meta.unwrap(), &payload_of(50_000, 3));
    assert!(whole(&store, id(3)).await.is_some());
    let told = store.changes(&worker(), Some(&start), 100).await.unwrap().events;
    assert_eq!(told.len(), 6, "creation, two metas, the other's meta, the discard, the second creation");
    nothing_is_left(&store).await;
    store.close().await;
}

#[tokio::test]
async fn a_command_whose_caller_went_away_is_carried_out_all_the_same() {
    let clock = new_clock();
    let (store, _directory) = open(&clock);
    created(&store, new_task(1)).await;
    let (hold, gate) = gate(1);
    let mut held_up = pin!(store.update(hold));
    assert!(poll!(&mut held_up).is_pending());
    gate.wait_until_it_is_reached();
    {
        let mut abandoned = pin!(carried_out(&store, id(1), set_meta("{}")));
        assert!(poll!(&mut abandoned).is_pending());
    }
    gate.open();
    assert!(held_up.await.is_ok());
    // Whatever comes next is decided after it.
    assert_eq!(carried_out(&store, id(1), cancel()).await.task.revision, 3);
    store.close().await;
}

#[tokio::test]
async fn an_extension_that_comes_too_late_is_refused() {
    let clock = new_clock();
    let (store, _directory) = open(&clock);
    created(&store, new_task(1)).await;
    clock.advance(Duration::from_millis(suite::TTL_MS - 1));
    // Decided while the task was alive; by the time the writer looks again, it is not.
    let by = clock.clone();
    let mut late = suite::update(id(1), set_ttl(10 * suite::TTL_MS), Guard::default());
    let decide = late.decide;
    late.decide = Box::new(move |task, situation| {
        by.advance(Duration::from_millis(1));
        decide(task, situation)
    });
    assert!(matches!(store.update(late).await, Ok(Updated::Rejected(Rejection::Expired))));
    assert_eq!(head(&store, id(1)).await.unwrap().ttl_ms, suite::TTL_MS);
    assert_eq!(store.sweep(10).await.unwrap().removed, 1);
    store.close().await;
}

#[tokio::test]
async fn a_reader_waits_for_a_deadline_that_is_being_moved() {
    let clock = new_clock();
    let (store, _directory) = open(&clock);
    created(&store, new_task(1)).await;
    created(&store, new_task(2)).await;
    let (hold, gate) = gate(2);
    let mut extended = pin!(carried_out(&store, id(1), set_ttl(10 * suite::TTL_MS)));
    let mut held_up = pin!(store.update(hold));
    // Both in one group, or the extension in one before: then there is nothing to wait for.
    assert!(poll!(&mut extended).is_pending());
    assert!(poll!(&mut held_up).is_pending());
    gate.wait_until_it_is_reached();
    clock.advance(Duration::from_millis(suite::TTL_MS));
    let mut read = pin!(whole(&store, id(1)));
    let early = poll!(&mut read);
    gate.open();
    let reading = match early {
        Poll::Ready(reading) => reading,
        Poll::Pending => read.await,
    };
    let reading = reading.unwrap();
    assert!(!reading.task.is_expired(reading.now), "dead and then alive again is never shown");
    assert_eq!(extended.await.outcome.revision, 2);
    assert!(held_up.await.is_ok());
    store.close().await;
}

#[tokio::test]
async fn a_decision_that_panics_turns_the_store_red_and_loses_nothing() {
    let clock = new_clock();
    let (store, directory) = open(&clock);
    created(&store, new_task(1)).await;
    let mut panics = suite::update(id(1), cancel(), Guard::default());
    panics.decide = Box::new(|_, _| panic!("a test of what happens when a decision panics"));
    assert!(matches!(store.update(panics).await, Err(StoreError::OutcomeUnknown)));
    // The writer ends on a thread of its own.
    for _ in 0..1_000 {
        if store.health() != Health::Ready {
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(matches!(store.health(), Health::Failed(_)), "{:?}", store.health());
    assert!(suite::read_whole(&store, id(1)).await.is_err());
    let refused = store.update(suite::update(id(1), cancel(), Guard::default())).await;
    assert!(matches!(refused, Err(StoreError::Broken | StoreError::OutcomeUnknown)), "{refused:?}");
    store.close().await;
    assert!(matches!(store.health(), Health::Failed(_)), "closing does not make it good");
    let store = open_at(directory.path(), &clock);
    assert_eq!(whole(&store, id(1)).await.unwrap().task.revision, 1);
    store.close().await;
}

#[tokio::test]
async fn what_comes_in_takes_as_much_out_of_what_is_over() {
    let clock = new_clock();
    let (store, _directory) = open(&clock);
    for number in 0..100 {
        created(&store, new_task(number)).await;
    }
    clock.advance(Duration::from_millis(suite::TTL_MS));
    // Nobody sweeps.
    for number in 100..130 {
        created(&store, new_task(number)).await;
    }
    let stats = store.stats().await;
    assert_eq!((stats.tasks.iter().sum::<u64>(), stats.expired), (100, 70));
    assert_eq!(store.sweep(1000).await.unwrap().removed, 70);
    // What is refused takes nothing out.
    clock.advance(Duration::from_millis(suite::TTL_MS));
    let refused = NewTask { meta: Some(payload_of(100_000, 1)), ..new_task(130) };
    assert!(matches!(suite::insert(&store, &worker(), refused).await, Inserted::Rejected(_)));
    assert_eq!(store.stats().await.tasks.iter().sum::<u64>(), 30);
    store.close().await;
}
