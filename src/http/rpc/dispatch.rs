//! From a call to its answer: one line for each method.

use std::future::ready;
use std::pin::Pin;

use bytes::Bytes;
use serde::Serialize;
use task_broker_core::{Caller, Right};
use task_broker_protocol::methods::{Decode, Entry, MethodName};
use task_broker_protocol::{Call, ErrorObject, Id, envelope};

use super::context::Context;
use super::failure::Failure;
use super::{reads, worker};
use crate::broker::Refusal;
use crate::http::App;
use crate::http::answer::Answer;

/// The answer to a call.
type Answering<'a> = Pin<Box<dyn Future<Output = Result<Answer, Failure>> + Send + 'a>>;

/// Serves one call.
///
/// Each method's future is boxed: the one that holds them all would be as large as the largest of them, and it is
/// moved several times on its way into the runtime.
///
/// # Errors
/// What is wrong with the params; nothing has been done then.
pub(super) fn serve<'a>(
    app: &'a App,
    caller: &'a Caller,
    entry: &'a Entry,
    call: &'a Call<'_>,
    body: &Bytes,
) -> Result<Answering<'a>, Failure> {
    let context = Context { app, caller, method: entry.name, members: &call.params };
    let id = call.id.as_ref();
    Ok(match entry.method {
        MethodName::Info => read(id, ready(Ok(reads::info(context)))),
        MethodName::Create => change(id, worker::create(context, params(call, body)?), |made| made.created),
        MethodName::Get => read(id, reads::get(context, Right::Creator, params(call, body)?)),
        MethodName::Wait => read(id, reads::wait(context, params(call, body)?)),
        MethodName::List => read(id, reads::list(context, params(call, body)?)),
        MethodName::Statuses => read(id, reads::statuses(context, params(call, body)?)),
        MethodName::Resume => read(id, reads::resume(context, params(call, body)?)),
        MethodName::RequireInput => change(id, worker::require_input(context, params(call, body)?), |_| true),
        MethodName::ApplyInput => {
            change(id, worker::apply_input(context, Right::Creator, params(call, body)?), |_| true)
        }
        MethodName::SetStatus => change(id, worker::set_status(context, params(call, body)?), |_| true),
        MethodName::SetTtl => change(id, worker::set_ttl(context, params(call, body)?), |_| true),
        MethodName::SetMeta => change(id, worker::set_meta(context, params(call, body)?), |_| true),
        MethodName::Discard => change(id, worker::discard(context, params(call, body)?), |_| true),
        MethodName::Complete => change(id, worker::complete(context, params(call, body)?), |_| true),
        MethodName::Fail => change(id, worker::fail(context, params(call, body)?), |_| true),
        MethodName::Cancel => {
            let params = params(call, body)?;
            Box::pin(async move {
                let (result, changed) = worker::cancel(context, params).await?;
                Ok(Answer { text: answer(id, &result)?, changed })
            })
        }
        MethodName::TasksGet => {
            let params = params(call, body)?;
            Box::pin(async move {
                let result = reads::owner_get(context, params).await?;
                let text = id.map(|id| envelope::success_text(id, &result)).unwrap_or_default();
                Ok(Answer { text, changed: false })
            })
        }
        MethodName::TasksUpdate => change(id, worker::owner_update(context, params(call, body)?), |_| true),
        MethodName::TasksCancel => change(id, worker::owner_cancel(context, params(call, body)?), |_| true),
        // A stream is not an answer; the handler opens it before it comes here.
        MethodName::Watch => {
            return Err(ErrorObject::invalid_request("store/watch is a stream, not a call").into());
        }
    })
}

/// What only reads.
fn read<'a, R: Serialize + Send + 'a>(
    id: Option<&'a Id>,
    served: impl Future<Output = Result<R, Failure>> + Send + 'a,
) -> Answering<'a> {
    change(id, served, |_| false)
}

/// What may change something; `changed` says whether it did. Where that cannot be large it need not be exact.
fn change<'a, R: Serialize + Send + 'a>(
    id: Option<&'a Id>,
    served: impl Future<Output = Result<R, Failure>> + Send + 'a,
    changed: fn(&R) -> bool,
) -> Answering<'a> {
    Box::pin(async move {
        let result = served.await?;
        Ok(Answer { text: answer(id, &result)?, changed: changed(&result) })
    })
}

fn params<P: Decode>(call: &Call<'_>, body: &Bytes) -> Result<P, Failure> {
    Ok(P::decode(&call.params, body)?)
}

fn answer<R: Serialize>(id: Option<&Id>, result: &R) -> Result<Vec<u8>, Failure> {
    let Some(id) = id else { return Ok(Vec::new()) };
    envelope::success(id, result).map_err(|error| unwritten(&error))
}

/// A stored payload is not JSON: never spliced into an answer.
pub(super) fn unwritten(error: &serde_json::Error) -> Failure {
    tracing::error!(%error, "an answer could not be written");
    Refusal::Internal.into()
}
