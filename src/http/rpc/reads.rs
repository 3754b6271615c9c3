//! The methods that only look.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use task_broker_core::{Limits, Right, Task, TaskId};
use task_broker_protocol::envelope::MAX_BATCH;
use task_broker_protocol::json::MAX_NESTING;
use task_broker_protocol::methods::{TaskOnly, info, list, resume, statuses, tasks_get, wait};
use task_broker_protocol::{ErrorObject, shapes};

use super::context::{Context, task};
use super::dispatch::unwritten;
use super::failure::Failure;
use super::{MAX_ANSWER_BYTES, views};
use crate::broker::{View, Wait};
use crate::http::App;
use crate::store::{ListPlace, ListQuery, Listed};

/// How long `store/wait` waits when nothing is said, in milliseconds.
const DEFAULT_WAIT_MS: u64 = 30_000;
/// How long it waits at most: below the 60 s after which proxies give up, in milliseconds.
const MAX_WAIT_MS: u64 = 50_000;

/// What most answers to `tasks/get` have beside payloads, in bytes.
const BESIDE_PAYLOADS: usize = 512;

/// Rows of a list when nothing is said.
const DEFAULT_ROWS: u64 = 100;
/// Rows of a list at most.
const MAX_ROWS: u64 = 1000;

pub(super) fn info(context: Context<'_>) -> info::Description {
    let app = context.app;
    let limits = app.broker.limits();
    let settings = &app.settings;
    let number = |size: usize| u64::try_from(size).unwrap_or(u64::MAX);
    info::Description {
        name: env!("CARGO_PKG_NAME").to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        api: info::API,
        store_id: app.broker.store_id().to_owned(),
        limits: info::Limits {
            max_payload_bytes: limits.max_payload_bytes,
            max_body_bytes: number(settings.max_body_bytes),
            max_batch_answer_bytes: number(MAX_ANSWER_BYTES),
            max_batch_calls: number(MAX_BATCH),
            max_nesting: number(MAX_NESTING),
            default_ttl_ms: limits.default_ttl_ms,
            max_ttl_ms: limits.max_ttl_ms,
            default_poll_interval_ms: u64::from(limits.default_poll_interval_ms),
            max_wait_ms: MAX_WAIT_MS,
            max_tool_name_bytes: number(Limits::MAX_TOOL_NAME_BYTES),
            max_meta_bytes: limits.max_meta_bytes(),
            max_outstanding_inputs: number(Limits::MAX_OUTSTANDING),
            max_spent_inputs: number(Limits::MAX_SPENT),
            max_waits: number(settings.waits.total),
            max_streams: number(settings.streams.total),
            max_requests: number(settings.max_requests),
            max_waits_per_subject: number(settings.waits.per_subject),
            max_streams_per_subject: number(settings.streams.per_subject),
            quota_tasks_per_owner: limits.quota.tasks_per_owner,
            quota_bytes_per_owner: limits.quota.bytes_per_owner,
            max_tasks: limits.quota.max_tasks,
        },
    }
}

/// `store/get`.
pub(super) async fn get(
    context: Context<'_>,
    right: Right,
    params: TaskOnly,
) -> Result<shapes::Snapshot, Failure> {
    let id = task(&params.task_id)?;
    let snapshot = context.app.broker.get(context.caller, right, id, View::Snapshot).await?;
    Ok(views::snapshot(&snapshot)?)
}

/// `tasks/get`: the same task as its owner sees it, already written.
pub(super) async fn owner_get(context: Context<'_>, params: TaskOnly) -> Result<Bytes, Failure> {
    let id = task(&params.task_id)?;
    let App { broker, shown, .. } = context.app;
    let last = shown.get(id);
    let known = |task: &Task| last.as_ref().is_some_and(|last| last.shows(task));
    let read = broker.get_unless(context.caller, Right::Owner, id, View::Snapshot, known).await?;
    match last {
        Some(last) if last.shows(&read.task) => Ok(last.into_text()),
        _ => {
            let view = tasks_get::DetailedTask::from(views::snapshot(&read)?);
            // A text that grows is copied each time.
            let mut text = Vec::with_capacity(read.payloads.total_bytes() + BESIDE_PAYLOADS);
            serde_json::to_writer(&mut text, &view).map_err(|error| unwritten(&error))?;
            let text = Bytes::from(text);
            shown.keep(&read.task, &text);
            Ok(text)
        }
    }
}

/// How long a wait takes at most: shorter than proxies keep a silent connection (case F13).
fn wait_time(asked_ms: Option<u64>) -> Duration {
    Duration::from_millis(asked_ms.unwrap_or(DEFAULT_WAIT_MS).min(MAX_WAIT_MS))
}

pub(super) async fn wait(context: Context<'_>, params: wait::Params) -> Result<wait::Waited, Failure> {
    let timeout = wait_time(params.timeout_ms);
    let wait = Wait { id: task(&params.task_id)?, timeout, since_revision: params.since_revision };
    let waited = context.app.broker.wait(context.caller, Right::Creator, wait).await?;
    Ok(wait::Waited { snapshot: views::snapshot(&waited.snapshot)?, timed_out: waited.timed_out })
}

pub(super) async fn resume(context: Context<'_>, params: TaskOnly) -> Result<resume::Context, Failure> {
    let id = task(&params.task_id)?;
    let read = context.app.broker.get(context.caller, Right::Creator, id, View::Resume).await?;
    let mut input_responses = BTreeMap::new();
    for (key, answer) in read.task.answers() {
        input_responses.insert(key.to_string(), views::payload(&read.payloads, answer)?);
    }
    Ok(resume::Context {
        tool_name: read.task.tool_name.to_string(),
        arguments: views::payload(&read.payloads, &read.task.arguments)?,
        input_responses,
        revision: read.task.revision,
        remaining_ms: read.task.remaining_ms(read.now),
        cancel_requested: read.task.cancel_requested,
    })
}

pub(super) async fn statuses(
    context: Context<'_>,
    params: statuses::Params,
) -> Result<statuses::States, Failure> {
    let ids: Vec<_> = params.task_ids.iter().map(|id| TaskId::parse(id)).collect();
    let known: Vec<_> = ids.iter().flatten().copied().collect();
    let (heads, now) = context.app.broker.heads(context.caller, &known).await?;
    let mut heads = heads.into_iter();
    let mut statuses = BTreeMap::new();
    for (text, id) in params.task_ids.into_iter().zip(ids) {
        let head = id.and_then(|_| heads.next().flatten());
        let state = head.map(|task| statuses::State {
            status: views::status(task.status()),
            revision: task.revision,
            remaining_ms: task.remaining_ms(now),
            cancel_requested: task.cancel_requested,
        });
        statuses.insert(text, state);
    }
    Ok(statuses::States { statuses })
}

pub(super) async fn list(context: Context<'_>, params: list::Params) -> Result<list::Page, Failure> {
    let query = list_query(context, params)?;
    let page = context.app.broker.list(&query).await?;
    let mut tasks = Vec::new();
    let mut last = None;
    let mut bytes = 0;
    let mut cut = false;
    for head in &page.tasks {
        // A task that ended its life while the page was made is left out, like any other that is gone.
        if let Some(read) = context.app.broker.row(head).await? {
            let row = views::row(&read)?;
            bytes += row.task.meta.as_ref().map_or(0, |meta| meta.as_bytes().len());
            if bytes > MAX_ANSWER_BYTES && !tasks.is_empty() {
                cut = true;
                break;
            }
            tasks.push(row);
        }
        last = Some(ListPlace::of(head));
    }
    let next_cursor = if page.more || cut { last.map(views::cursor) } else { None };
    Ok(list::Page { tasks, next_cursor })
}

fn list_query(context: Context<'_>, params: list::Params) -> Result<ListQuery, Failure> {
    let limit = params.limit.unwrap_or(DEFAULT_ROWS).min(MAX_ROWS);
    if limit == 0 {
        return Err(ErrorObject::invalid_params("limit", "must be at least 1").into());
    }
    let statuses: Option<Vec<_>> =
        params.status.map(|statuses| statuses.into_iter().map(views::core_status).collect());
    if statuses.as_ref().is_some_and(Vec::is_empty) {
        return Err(ErrorObject::invalid_params("status", "must name at least one status").into());
    }
    let unknown =
        || Failure::from(ErrorObject::invalid_params("cursor", "is not one that this service gave"));
    let after = params.cursor.map(|cursor| views::place(&cursor).ok_or_else(unknown)).transpose()?;
    let subject = context.caller.subject.clone();
    Ok(ListQuery {
        whose: match params.role {
            list::Role::Creator => Listed::CreatedBy(subject),
            list::Role::Owner => Listed::OwnedBy(subject),
        },
        owner: match params.owner {
            list::OwnerFilter::Any => None,
            list::OwnerFilter::Nobody => Some(None),
            list::OwnerFilter::Subject(owner) => Some(Some(Arc::from(owner))),
        },
        statuses: statuses.unwrap_or_default(),
        after,
        limit: usize::try_from(limit).unwrap_or(usize::MAX),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_wait_is_longer_than_proxies_are_patient() {
        for (asked, seconds) in [(Some(0), 0), (Some(50_000), 50), (Some(50_001), 50), (Some(u64::MAX), 50)] {
            assert_eq!(wait_time(asked), Duration::from_secs(seconds), "{asked:?}");
        }
        assert!(wait_time(None) <= Duration::from_secs(50));
    }
}
