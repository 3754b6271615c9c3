//! What goes on behind a store: the stream of events, and the end of tasks' time.

use std::sync::Arc;
use std::time::Duration;

use task_broker_protocol::methods::statuses::{MAX_TASK_IDS, State};
use task_broker_protocol::methods::watch::{Event, EventKind, Message};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::knowledge::Knowledge;
use super::registry::{Due, Seen};
use super::store::Core;
use crate::error::Error;
use crate::retry::{backoff, random};
use crate::watch::Watch;

/// The longest pause between two attempts to open the stream. A cancel made elsewhere reaches nobody meanwhile.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// How long the broker may take to confirm that a task's time is over. Without an answer the last deadline that it
/// gave counts.
const CONFIRMATION: Duration = Duration::from_secs(2);

/// What a bridge needs of an event.
#[derive(Debug, Clone)]
pub(crate) struct Happened {
    pub(crate) kind: EventKind,
    pub(crate) task_id: String,
}

/// Runs until it is aborted.
pub(crate) async fn run(core: Arc<Core>) {
    tokio::join!(follow(&core), expire(&core));
}

/// Keeps one stream of events open, and goes on where the last one ended.
async fn follow(core: &Core) {
    let mut position: Option<String> = None;
    let mut failures = 0_u32;
    loop {
        let opened = core.client.watch(position.clone()).await;
        let error = match opened {
            Ok(mut watch) => match read(core, &mut watch, &mut failures).await {
                Ok(()) => {
                    position = watch.position().map(str::to_owned);
                    None
                }
                // What was missed has not been read again, so the next stream must not go on as if it had.
                Err(Lost::Resync(error)) => {
                    position = None;
                    Some(error)
                }
                Err(Lost::Stream(error)) => {
                    position = watch.position().map(str::to_owned);
                    Some(error)
                }
            },
            Err(error) => Some(error),
        };
        failures = failures.saturating_add(1);
        match error {
            // Once is ordinary: brokers are restarted, proxies close streams.
            Some(error) if failures == 2 => {
                tracing::warn!(%error, "no events from the broker; cancels made elsewhere are not seen");
            }
            Some(error) => tracing::debug!(%error, failures, "the stream of events ended"),
            None => tracing::debug!("the stream of events was closed"),
        }
        sleep(backoff(failures, random()).min(LONGEST_PAUSE)).await;
    }
}

enum Lost {
    Stream(Error),
    Resync(Error),
}

async fn read(core: &Core, watch: &mut Watch, failures: &mut u32) -> Result<(), Lost> {
    while let Some(message) = watch.next().await {
        match message.map_err(Lost::Stream)? {
            Message::Event(event) => take(core, event),
            Message::Synced(synced) if synced.reset => resync(core).await.map_err(Lost::Resync)?,
            Message::Synced(_) | Message::Unknown => {}
        }
        if *failures > 1 {
            tracing::info!("events from the broker again");
        }
        *failures = 0;
    }
    Ok(())
}

fn take(core: &Core, event: Event) {
    let there = !matches!(event.kind, EventKind::Expired | EventKind::Discard);
    let seen = there
        .then(|| Seen::now(Some(event.status), event.revision, event.remaining_ms, event.cancel_requested));
    let shown = there && core.handoff.has(&event.task_id, event.revision);
    core.registry.event(&event.task_id, seen, shown);
    // Nobody may be listening, which is not an error.
    drop(core.events.send(Happened { kind: event.kind, task_id: event.task_id }));
}

/// Events may have been missed: everything that is held is read again.
async fn resync(core: &Core) -> Result<(), Error> {
    let held = core.registry.begin_resync();
    ask(core, &held).await
}

async fn ask(core: &Core, ids: &[String]) -> Result<(), Error> {
    for ids in ids.chunks(MAX_TASK_IDS) {
        for (id, state) in core.client.statuses(ids).await? {
            // The same as for an event: what was not known makes void what was read before.
            core.registry.event(&id, state.map(seen), false);
            if state.is_none() {
                core.handoff.forget(&id);
            }
        }
    }
    Ok(())
}

fn seen(state: State) -> Seen {
    Seen::now(Some(state.status), state.revision, state.remaining_ms, state.cancel_requested)
}

/// Raises the tokens of tasks whose time is over.
///
/// The broker is asked before, because the time may have been changed elsewhere a moment ago, or while the stream
/// was down. When it does not answer, the deadline that it gave last counts: the time of the task is over by all that
/// is known, whether the broker can be reached or not.
async fn expire(core: &Core) {
    loop {
        let next = core.registry.next_check();
        tokio::select! {
            () = core.registry.changed() => continue,
            () = at(next) => {}
        }
        let due = core.registry.due(Instant::now(), MAX_TASK_IDS);
        if due.is_empty() {
            continue;
        }
        let ids: Vec<_> = due.iter().map(|due| due.id.clone()).collect();
        let hurried = timeout(CONFIRMATION, ask(core, &ids)).await;
        if !matches!(hurried, Ok(Ok(()))) {
            unconfirmed(core, due);
        }
    }
}

async fn at(next: Option<Instant>) {
    match next {
        Some(next) => sleep_until(next).await,
        None => std::future::pending().await,
    }
}

fn unconfirmed(core: &Core, due: Vec<Due>) {
    let now = Instant::now();
    for Due { id, deadline } in due {
        if deadline <= now {
            Knowledge::learnt(&id);
            core.gone(&id);
        } else {
            core.registry.look(&id, deadline.min(now + CONFIRMATION));
        }
    }
}
