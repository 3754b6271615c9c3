//! `task-broker export --store`

use std::io::Write;

use task_broker_core::{Rejection, Task, Timestamp};

use super::ToolError;
use super::output::{Output, Sink};
use crate::archive::{Ending, Writer};
use crate::clock::Clock;
use crate::store::sled::{SledOptions, SledStore};
use crate::store::{Reading, Store, StoreError};

/// Exports a store that nobody uses. Its time is the highest that it has kept: a machine with a wrong clock must not leave
/// out tasks that have not expired.
///
/// # Errors
/// [`ToolError`]; there is no export then.
pub async fn export_store(
    options: &SledOptions,
    output: &Output,
    told: &mut dyn Write,
) -> Result<(), ToolError> {
    if output.is_inside(&options.path) {
        return Err(ToolError::OutInside);
    }
    let clock = Clock::manual(Timestamp::default());
    let options = SledOptions { existing_only: true, compact_above: None, ..options.clone() };
    let store = SledStore::open(&options, clock.clone())?;
    let exported = export(&store, &clock, output).await;
    store.close().await;
    report(&exported?, told)
}

async fn export(store: &dyn Store, clock: &Clock, output: &Output) -> Result<Ending, ToolError> {
    let mut sink = Sink::open(output)?;
    let mut writer = Writer::new();
    sink.write(&writer.header(store.store_id(), store.owner_from(), clock.now()))?;
    let everything = |task: &Task, now: Timestamp| {
        if task.is_expired(now) { Err(Rejection::Expired) } else { Ok(task.payloads().copied().collect()) }
    };
    let mut number = 0;
    while let Some(ids) = store.part(number).await? {
        number += 1;
        for id in ids {
            let Some(Ok(Reading { task, payloads, .. })) = store.read(id, &everything).await? else {
                continue;
            };
            let line = writer.task(&task, |payload| payloads.get(payload));
            let missing = || StoreError::Damaged { place: format!("a payload of task {id} was not read") };
            sink.write(&line.ok_or_else(missing)?)?;
        }
    }
    let (line, ending) = writer.end(clock.now());
    sink.write(&line)?;
    sink.finish()?;
    Ok(ending)
}

pub(super) fn report(ending: &Ending, told: &mut dyn Write) -> Result<(), ToolError> {
    let said = writeln!(told, "exported {} tasks, digest {}", ending.tasks, ending.digest);
    said.map_err(ToolError::io("writing the result"))
}
