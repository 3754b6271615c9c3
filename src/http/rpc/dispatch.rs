//! From a call to its answer: one line for each method.

use bytes::Bytes;
use serde::Serialize;
use task_broker_core::{Caller, Right};
use task_broker_protocol::methods::{Decode, Entry, MethodName, tasks_cancel, tasks_get, tasks_update};
use task_broker_protocol::{Call, ErrorObject, Id, envelope};

use super::context::Context;
use super::failure::Failure;
use super::{reads, worker};
use crate::broker::Refusal;
use crate::http::App;

/// Serves one call and gives its whole answer, or nothing for a notification.
pub(super) async fn serve(
    app: &App,
    caller: &Caller,
    entry: &Entry,
    call: &Call<'_>,
    body: &Bytes,
) -> Result<Vec<u8>, Failure> {
    let context = Context { app, caller, method: entry.name, members: &call.params };
    let id = call.id.as_ref();
    match entry.method {
        MethodName::Info => answer(id, &reads::info(context)),
        MethodName::Create => answer(id, &worker::create(context, params(call, body)?).await?),
        MethodName::Get => answer(id, &reads::get(context, Right::Creator, params(call, body)?).await?),
        MethodName::Wait => answer(id, &reads::wait(context, params(call, body)?).await?),
        MethodName::List => answer(id, &reads::list(context, params(call, body)?).await?),
        MethodName::Statuses => answer(id, &reads::statuses(context, params(call, body)?).await?),
        MethodName::Resume => answer(id, &reads::resume(context, params(call, body)?).await?),
        MethodName::RequireInput => answer(id, &worker::require_input(context, params(call, body)?).await?),
        MethodName::ApplyInput => {
            answer(id, &worker::apply_input(context, Right::Creator, params(call, body)?).await?)
        }
        MethodName::SetStatus => answer(id, &worker::set_status(context, params(call, body)?).await?),
        MethodName::SetTtl => answer(id, &worker::set_ttl(context, params(call, body)?).await?),
        MethodName::SetMeta => answer(id, &worker::set_meta(context, params(call, body)?).await?),
        MethodName::Discard => answer(id, &worker::discard(context, params(call, body)?).await?),
        MethodName::Complete => answer(id, &worker::complete(context, params(call, body)?).await?),
        MethodName::Fail => answer(id, &worker::fail(context, params(call, body)?).await?),
        MethodName::Cancel => answer(id, &worker::cancel(context, params(call, body)?).await?),
        MethodName::TasksGet => {
            let snapshot = reads::get(context, Right::Owner, params(call, body)?).await?;
            answer(id, &tasks_get::DetailedTask::from(snapshot))
        }
        MethodName::TasksUpdate => {
            worker::apply_input(context, Right::Owner, params(call, body)?).await?;
            answer(id, &tasks_update::Acknowledged::default())
        }
        MethodName::TasksCancel => {
            owner_cancel(context, params(call, body)?).await?;
            answer(id, &tasks_update::Acknowledged::default())
        }
        // A stream is not an answer; the handler opens it before it comes here.
        MethodName::Watch => Err(ErrorObject::invalid_request("store/watch is a stream, not a call").into()),
    }
}

async fn owner_cancel(context: Context<'_>, params: tasks_cancel::Params) -> Result<(), Failure> {
    let command = task_broker_core::Command::Cancel { reason: None };
    context.execute(Right::Owner, &params.task_id, &params.guard, command).await.map(drop)
}

fn params<P: Decode>(call: &Call<'_>, body: &Bytes) -> Result<P, Failure> {
    Ok(P::decode(&call.params, body)?)
}

fn answer<R: Serialize>(id: Option<&Id>, result: &R) -> Result<Vec<u8>, Failure> {
    let Some(id) = id else { return Ok(Vec::new()) };
    envelope::success(id, result).map_err(|error| {
        // A stored payload that is not JSON: never spliced into an answer.
        tracing::error!(%error, "an answer could not be written");
        Refusal::Internal.into()
    })
}
