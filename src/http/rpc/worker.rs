//! The worker's methods that change a task: `store/create` and the commands.

use std::collections::BTreeMap;
use std::sync::Arc;

use task_broker_core::digest::canonical;
use task_broker_core::{
    Ask, Caller, Command, Detail, NewTask, OnSpentKey, Outcome, Payload, Right, Subject, TaskId, TtlWish,
};
use task_broker_protocol::methods::{
    apply_input, cancel, complete, create, discard, fail, require_input, set_meta, set_status, set_ttl,
    tasks_cancel, tasks_update::Acknowledged,
};
use task_broker_protocol::{ErrorObject, Json, shapes};

use super::context::Context;
use super::failure::Failure;
use super::views;
use crate::broker::{Refusal, Snapshot};
use crate::store::Applied;

fn payload(json: Json) -> Payload {
    Payload::new(json.into_bytes())
}

fn outcome(applied: &Applied) -> shapes::Outcome {
    let Outcome { applied: done, status, revision, .. } = &applied.outcome;
    shapes::Outcome {
        applied: *done,
        status: views::status(*status),
        revision: *revision,
        replayed: applied.replayed,
    }
}

fn owner(owner: create::Owner, caller: &Caller) -> Subject {
    match owner {
        create::Owner::Caller => caller.subject.clone(),
        create::Owner::Nobody => None,
        create::Owner::Subject(subject) => Some(Arc::from(subject)),
    }
}

pub(super) async fn create(context: Context<'_>, params: create::Params) -> Result<create::Created, Failure> {
    let mut id = [0; 16];
    if let Err(error) = getrandom::fill(&mut id) {
        // An id that could be guessed is worse than none.
        tracing::error!(%error, "the system gives no random bytes");
        return Err(Refusal::Internal.into());
    }
    let key = context.key(&params.guard)?;
    let new = NewTask {
        id: TaskId::from_bytes(id),
        tool_name: Arc::from(params.tool_name),
        arguments: payload(params.arguments.unwrap_or(Json::empty_object())),
        ttl: match params.ttl {
            create::Ttl::Default => TtlWish::Default,
            create::Ttl::Maximum => TtlWish::Maximum,
            create::Ttl::Millis(millis) => TtlWish::Millis(millis),
        },
        owner: owner(params.owner, context.caller),
        poll_interval_ms: params.poll_interval_ms,
        meta: params.meta.map(payload),
        key,
    };
    let created = context.app.broker.create(context.caller, new).await?;
    Ok(create::Created { snapshot: views::snapshot(&created.snapshot)?, created: created.created })
}

pub(super) async fn require_input(
    context: Context<'_>,
    params: require_input::Params,
) -> Result<shapes::Outcome, Failure> {
    let mut requests = BTreeMap::new();
    for (key, request) in params.input_requests {
        let digest = canonical(request.as_bytes())
            .map_err(|_broken| ErrorObject::invalid_params("inputRequests", "is nested too deep"))?;
        requests.insert(Arc::from(key), Ask { payload: payload(request), digest });
    }
    let on_spent = match params.on_spent_key {
        require_input::OnSpentKey::AskAgain => OnSpentKey::AskAgain,
        require_input::OnSpentKey::Reject => OnSpentKey::Reject,
    };
    let command = Command::RequireInput { requests, message: params.message, on_spent };
    let applied = context.execute(Right::Creator, &params.task_id, &params.guard, command).await?;
    Ok(outcome(&applied))
}

/// Answers open questions; the owner's `tasks/update` does the same.
pub(super) async fn apply_input(
    context: Context<'_>,
    right: Right,
    params: apply_input::Params,
) -> Result<apply_input::Applied, Failure> {
    let responses: BTreeMap<Arc<str>, Payload> = params
        .input_responses
        .into_iter()
        .map(|(key, response)| (Arc::from(key), payload(response)))
        .collect();
    let keys: Vec<_> = responses.keys().cloned().collect();
    let command = Command::ApplyInput { responses };
    let applied = context.execute(right, &params.task_id, &params.guard, command).await?;
    let (accepted, outstanding) = match &applied.outcome.detail {
        Detail::Inputs { accepted, outstanding } => (accepted.as_slice(), outstanding.as_slice()),
        Detail::None | Detail::Ttl { .. } => (&[][..], &[][..]),
    };
    let text = |keys: &[Arc<str>]| keys.iter().map(ToString::to_string).collect::<Vec<_>>();
    // Keys come sorted, and accepted ones are some of them.
    let ignored: Vec<_> = keys.into_iter().filter(|key| accepted.binary_search(key).is_err()).collect();
    Ok(apply_input::Applied {
        outcome: outcome(&applied),
        accepted: text(accepted),
        ignored: text(&ignored),
        still_outstanding: text(outstanding),
    })
}

pub(super) async fn set_status(
    context: Context<'_>,
    params: set_status::Params,
) -> Result<shapes::Outcome, Failure> {
    let status = views::core_status(params.status);
    let command = Command::SetStatus { status, message: params.message };
    let applied = context.execute(Right::Creator, &params.task_id, &params.guard, command).await?;
    Ok(outcome(&applied))
}

pub(super) async fn set_ttl(
    context: Context<'_>,
    params: set_ttl::Params,
) -> Result<set_ttl::TtlOutcome, Failure> {
    let command = Command::SetTtl { ttl_ms: params.ttl_ms };
    let applied = context.execute(Right::Creator, &params.task_id, &params.guard, command).await?;
    let (ttl_ms, remaining_ms) = match applied.outcome.detail {
        Detail::Ttl { ttl_ms, remaining_ms } => (ttl_ms, remaining_ms),
        Detail::None | Detail::Inputs { .. } => (applied.task.ttl_ms, applied.task.remaining_ms(applied.now)),
    };
    Ok(set_ttl::TtlOutcome { outcome: outcome(&applied), ttl_ms, remaining_ms })
}

pub(super) async fn set_meta(
    context: Context<'_>,
    params: set_meta::Params,
) -> Result<shapes::Outcome, Failure> {
    let command = Command::SetMeta { meta: payload(params.meta) };
    let applied = context.execute(Right::Creator, &params.task_id, &params.guard, command).await?;
    Ok(outcome(&applied))
}

pub(super) async fn discard(
    context: Context<'_>,
    params: discard::Params,
) -> Result<shapes::Outcome, Failure> {
    let applied = context.execute(Right::Creator, &params.task_id, &params.guard, Command::Discard).await?;
    Ok(outcome(&applied))
}

pub(super) async fn complete(
    context: Context<'_>,
    params: complete::Params,
) -> Result<shapes::Outcome, Failure> {
    let command = Command::Complete { result: payload(params.result) };
    let applied = context.execute(Right::Creator, &params.task_id, &params.guard, command).await?;
    Ok(outcome(&applied))
}

pub(super) async fn fail(context: Context<'_>, params: fail::Params) -> Result<shapes::Outcome, Failure> {
    let error = Json::of(&params.error).map_err(|_unwritable| Refusal::Internal)?;
    let command = Command::Fail { error: payload(error), message: params.error.message };
    let applied = context.execute(Right::Creator, &params.task_id, &params.guard, command).await?;
    Ok(outcome(&applied))
}

/// The answer, and whether the task is another one since: of one that has ended too, if nobody had asked for it before.
pub(super) async fn cancel(
    context: Context<'_>,
    params: cancel::Params,
) -> Result<(cancel::Cancelled, bool), Failure> {
    let command = Command::Cancel { reason: params.reason };
    let applied = context.execute_and_show(&params.task_id, &params.guard, command).await?;
    let outcome = outcome(&applied);
    let Applied { task, payloads, now, changed, .. } = applied;
    let snapshot = views::snapshot(&Snapshot { task, payloads, now })?;
    Ok((cancel::Cancelled { outcome, snapshot }, changed))
}

/// The owner's answers: the same command in another role, and only an acknowledgement in return.
pub(super) async fn owner_update(
    context: Context<'_>,
    params: apply_input::Params,
) -> Result<Acknowledged, Failure> {
    apply_input(context, Right::Owner, params).await?;
    Ok(Acknowledged::default())
}

/// The owner's cancel, acknowledged for a task that has ended too.
pub(super) async fn owner_cancel(
    context: Context<'_>,
    params: tasks_cancel::Params,
) -> Result<Acknowledged, Failure> {
    let command = Command::Cancel { reason: None };
    context.execute(Right::Owner, &params.task_id, &params.guard, command).await?;
    Ok(Acknowledged::default())
}
