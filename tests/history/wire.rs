//! The real broker as a place to send calls to.

use std::net::SocketAddr;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use task_broker_core::{Limits, Quota};
use task_broker_protocol::methods::{info, statuses};

use crate::call::{Act, Call, Reply, View, Who};
use crate::harness::link::Link;
use crate::harness::{Answer, token};

/// Where calls go. `None`: the connection is gone, and what became of the call is not known.
pub(crate) trait Port {
    fn perform(&mut self, call: &Call) -> Option<Reply>;
}

/// Two connections of one client: as the worker and as the user.
pub(crate) struct Wire {
    worker: Link,
    user: Link,
}

impl Wire {
    /// Connections to a broker that may be gone.
    pub(crate) fn open(address: SocketAddr) -> Option<Self> {
        let worker = token::scoped(Who::Worker.subject(), token::DELEGATE);
        let user = token::good(Who::User.subject());
        Some(Self {
            worker: Link::try_open(address, Some(&worker)).ok()?,
            user: Link::try_open(address, Some(&user)).ok()?,
        })
    }

    /// The limits in force, for the core.
    pub(crate) fn limits(&mut self) -> Limits {
        let answer = self.worker.call("store/info", "{}").expect("the broker lives");
        let told = result::<info::Description>(&answer).limits;
        Limits {
            default_ttl_ms: told.default_ttl_ms,
            max_ttl_ms: told.max_ttl_ms,
            default_poll_interval_ms: u32::try_from(told.default_poll_interval_ms).unwrap(),
            max_payload_bytes: told.max_payload_bytes,
            quota: Quota {
                tasks_per_owner: told.quota_tasks_per_owner,
                bytes_per_owner: told.quota_bytes_per_owner,
                max_tasks: told.max_tasks,
            },
        }
    }
}

impl Port for Wire {
    fn perform(&mut self, call: &Call) -> Option<Reply> {
        let link = match call.who {
            Who::Worker => &mut self.worker,
            Who::User => &mut self.user,
        };
        let answer = link.call(call.method, &call.params)?;
        Some(read(call, &answer))
    }
}

fn read(call: &Call, answer: &Answer) -> Reply {
    if answer.status == 503 {
        return Reply::Open;
    }
    if answer.is_error() {
        let error = answer.error();
        return match error.kind.as_str() {
            "task_not_found" => Reply::NotFound,
            // Not durable as far as the broker knows; only the next start tells.
            "unavailable" => Reply::Open,
            _ => Reply::Refused(error.kind, error.data["revision"].as_u64()),
        };
    }
    match (&call.act, call.method) {
        (_, "tasks/update" | "tasks/cancel") => {
            assert_eq!(answer.result()["resultType"], "complete", "{answer}");
            Reply::Acknowledged
        }
        (_, "store/applyInput") => Reply::Inputs(result(answer)),
        (_, "store/setTtl") => Reply::Ttl(result(answer)),
        (_, "store/cancel") => Reply::Cancelled(Box::new(result(answer))),
        (Act::Create(_), _) => Reply::Created(Box::new(result(answer))),
        (Act::Command(..), _) => Reply::Outcome(result(answer)),
        (Act::Look(_, View::Get), _) => Reply::Snapshot(Box::new(result(answer))),
        (Act::Look(_, View::Owner), _) => Reply::Owner(Box::new(result(answer))),
        (Act::Look(_, View::Wait(_)), _) => Reply::Waited(Box::new(result(answer))),
        (Act::Look(_, View::Resume), _) => Reply::Resume(Box::new(result(answer))),
        (Act::Statuses(_), _) => Reply::States(result::<statuses::States>(answer).statuses),
        (Act::List(_), _) => Reply::Page(result(answer)),
    }
}

fn result<T: DeserializeOwned>(answer: &Answer) -> T {
    #[derive(Deserialize)]
    struct Body<'a> {
        #[serde(borrow)]
        result: &'a RawValue,
    }
    let body: Body<'_> =
        serde_json::from_slice(&answer.body).unwrap_or_else(|error| panic!("{error}: {answer}"));
    serde_json::from_str(body.result.get()).unwrap_or_else(|error| panic!("{error}: {answer}"))
}
