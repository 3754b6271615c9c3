//! Makes random calls on a store, one after the other, and compares every returned value with the model.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tower_mcp::async_task::{CancellationToken, TaskPresence, TaskSnapshot, TaskStore, TaskStoreError};
use tower_mcp::protocol::TaskStatus;

use crate::faults::{Fault, Kind};
use crate::harness::Client;
use crate::model::Task;
use crate::proxy::Proxy;
use crate::values::{self, as_json};

/// How long a signal may take to arrive; the bound of tower-mcp's own contract suite.
const SIGNAL_DEADLINE: Duration = Duration::from_secs(3);
/// How long one call may take, its retries included.
const CALL_DEADLINE: Duration = Duration::from_secs(20);
/// An id that nobody has.
const UNKNOWN: &str = "00000000000000000000000000000000";

/// The methods of the trait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Method {
    CreateTask,
    TaskOwner,
    GetTask,
    SetTaskMeta,
    DiscardTask,
    GetTaskResult,
    WaitForCompletion,
    ListTasks,
    RequireInput,
    OutstandingInputRequests,
    ApplyInputResponses,
    TaskPresence,
    InputResponses,
    SetStatus,
    ResumeContext,
    SetTtl,
    CompleteTask,
    FailTask,
    CancelTask,
}

impl Method {
    /// tower-mcp 0.25 has nineteen.
    pub(crate) const ALL: [Self; 19] = [
        Self::CreateTask,
        Self::TaskOwner,
        Self::GetTask,
        Self::SetTaskMeta,
        Self::DiscardTask,
        Self::GetTaskResult,
        Self::WaitForCompletion,
        Self::ListTasks,
        Self::RequireInput,
        Self::OutstandingInputRequests,
        Self::ApplyInputResponses,
        Self::TaskPresence,
        Self::InputResponses,
        Self::SetStatus,
        Self::ResumeContext,
        Self::SetTtl,
        Self::CompleteTask,
        Self::FailTask,
        Self::CancelTask,
    ];
}

/// How many faults of each kind have met calls of each method.
pub(crate) type Counts = BTreeMap<(Method, Kind), usize>;

/// One instance of a server at work.
pub(crate) struct Driver {
    pub(crate) store: Arc<dyn TaskStore>,
    /// Where faults come from, if any are wanted.
    pub(crate) proxy: Option<Arc<Proxy>>,
    /// Another instance of the same server, over a good line.
    pub(crate) other: Arc<dyn TaskStore>,
    /// A look at what the broker has, where it can be looked at all the time.
    pub(crate) look: Option<Client>,
    /// The broker may go away at any time, so that any call may have been repeated.
    pub(crate) shaky: bool,
    pub(crate) rng: fastrand::Rng,
    pub(crate) tasks: Vec<Task>,
    pub(crate) counts: Counts,
    /// How many requests the proxy had seen before the call.
    before: usize,
    doing: String,
}

impl Driver {
    pub(crate) fn new(store: Arc<dyn TaskStore>, other: Arc<dyn TaskStore>, seed: u64) -> Self {
        Self {
            store,
            proxy: None,
            other,
            look: None,
            shaky: false,
            rng: fastrand::Rng::with_seed(seed),
            tasks: Vec::new(),
            counts: Counts::new(),
            before: 0,
            doing: String::new(),
        }
    }

    /// One call of each method and some more, in random order.
    pub(crate) async fn round(&mut self) {
        self.round_with(|| {}).await;
    }

    /// The same, and tells of each call that is over.
    pub(crate) async fn round_with(&mut self, mut over: impl FnMut()) {
        // Five methods can end a task, and one makes it: without more of those there would soon be nothing to end.
        let more = [[Method::CreateTask; 4], [Method::RequireInput; 4], [Method::ApplyInputResponses; 4]];
        let mut methods = [Method::ALL.as_slice(), more.as_flattened()].concat();
        self.rng.shuffle(&mut methods);
        for method in methods {
            self.step(method).await;
            over();
        }
    }

    /// One call, perhaps with faults, and a look at what it left behind.
    pub(crate) async fn step(&mut self, method: Method) {
        if let Some(proxy) = &self.proxy
            && self.rng.u8(..8) > 0
        {
            let mut faults = Fault::some(&mut self.rng);
            if method == Method::WaitForCompletion {
                // A wait may be silent for half a minute by right, so a dead line is noticed only after that.
                faults.retain(|fault| *fault != Fault::Stall);
            }
            self.doing = format!("{method:?} under {faults:?}");
            proxy.arm(faults);
        } else {
            self.doing = format!("{method:?}");
        }
        self.before = self.proxy.as_ref().map_or(0, |proxy| proxy.seen_count());
        let performed = tokio::time::timeout(CALL_DEADLINE, self.perform(method)).await;
        assert!(performed.is_ok(), "no answer within {CALL_DEADLINE:?}: {}", self.doing);
        if let Some(proxy) = &self.proxy {
            for fault in proxy.disarm() {
                *self.counts.entry((method, fault.kind())).or_default() += 1;
            }
        }
        self.check_tokens();
    }

    async fn perform(&mut self, method: Method) {
        match method {
            Method::CreateTask => self.create().await,
            Method::ListTasks => self.list().await,
            Method::WaitForCompletion => self.wait().await,
            _ if self.tasks.is_empty() => self.create().await,
            _ => {
                // Mostly a task with which something can happen, and sometimes any.
                let lively: Vec<_> = (0..self.tasks.len()).filter(|at| self.tasks[*at].is_live()).collect();
                let at = if lively.is_empty() || self.rng.u8(..4) == 0 {
                    self.rng.usize(..self.tasks.len())
                } else {
                    lively[self.rng.usize(..lively.len())]
                };
                self.doing = format!("{} on {:?}", self.doing, self.tasks[at]);
                match method {
                    Method::TaskOwner
                    | Method::GetTask
                    | Method::GetTaskResult
                    | Method::OutstandingInputRequests
                    | Method::TaskPresence
                    | Method::InputResponses
                    | Method::ResumeContext => self.read(method, at).await,
                    _ => self.write(method, at).await,
                }
                self.look_at(at).await;
            }
        }
    }

    async fn create(&mut self) {
        let tool = format!("tool-{}", self.rng.u8(..));
        let (arguments, owner) = (values::json(&mut self.rng), values::owner(&mut self.rng));
        let ttl =
            [None, Some(600_000), Some((1 << 31) - 1), Some(0)][self.rng.choice([0, 0, 1, 1, 2, 3]).unwrap()];
        let created = self.store.create_task(&tool, arguments.clone(), ttl, owner.clone()).await;
        let (id, token) = created.unwrap_or_else(|error| panic!("{error}: {}", self.doing));
        assert!(!self.tasks.iter().any(|task| task.id == id), "{id} again: {}", self.doing);
        let task = Task::new(id, token, &tool, arguments, ttl, owner);
        self.expect_signal(&task).await;
        self.tasks.push(task);
        self.look_at(self.tasks.len() - 1).await;
    }

    async fn list(&mut self) {
        let wanted = [None, Some(TaskStatus::Working), Some(TaskStatus::Completed)][self.rng.usize(..3)];
        let listed = self.store.list_tasks(wanted).await;
        let mut listed = listed.unwrap_or_else(|error| panic!("{error}: {}", self.doing));
        let mut expected: Vec<_> = self
            .tasks
            .iter_mut()
            .filter(|task| !task.gone && wanted.is_none_or(|wanted| task.status == wanted))
            .collect();
        expected.sort_by(|a, b| a.id.cmp(&b.id));
        listed.sort_by(|a, b| a.task_id.cmp(&b.task_id));
        let ids = |listed: &[&str]| listed.join(" ");
        assert_eq!(
            ids(&listed.iter().map(|task| task.task_id.as_str()).collect::<Vec<_>>()),
            ids(&expected.iter().map(|task| task.id.as_str()).collect::<Vec<_>>()),
            "the list of {wanted:?}"
        );
        for (task, object) in expected.into_iter().zip(&listed) {
            task.check(object);
        }
    }

    /// Waits for a task that has ended, that is gone, or that another instance ends meanwhile.
    async fn wait(&mut self) {
        let live = self.tasks.iter().position(Task::is_live).filter(|_| self.rng.u8(..3) > 0);
        let Some(at) = live else {
            let at = self.rng.usize(..=self.tasks.len());
            let ended = self.tasks.get(at).filter(|task| !task.is_live()).map(|task| task.id.clone());
            let waited = self.store.wait_for_completion(ended.as_deref().unwrap_or(UNKNOWN)).await;
            let waited = waited.unwrap_or_else(|error| panic!("{error}: {}", self.doing));
            match ended {
                Some(_) => self.check_snapshot(at, waited),
                None => assert!(waited.is_none(), "{waited:?}: {}", self.doing),
            }
            return;
        };
        let id = self.tasks[at].id.clone();
        self.doing = format!("{} on {:?}", self.doing, self.tasks[at]);
        let before = self.proxy.as_ref().map(|proxy| proxy.seen_count());
        let waiter = tokio::spawn({
            let (store, id) = (Arc::clone(&self.store), id.clone());
            async move { store.wait_for_completion(&id).await }
        });
        if let (Some(proxy), Some(before)) = (&self.proxy, before) {
            // Once the question is on its way, the end comes from elsewhere.
            proxy.passes("store/wait", before).await;
        }
        if self.rng.bool() {
            let result = values::result(&mut self.rng);
            assert!(self.other.complete_task(&id, result.clone()).await.unwrap(), "{}", self.doing);
            self.tasks[at].complete(as_json(&result));
        } else {
            let cancelled = self.other.cancel_task(&id, Some("elsewhere")).await.unwrap();
            self.tasks[at].cancel(Some("elsewhere"));
            self.tasks[at].check(&cancelled.unwrap());
            self.expect_signal(&self.tasks[at]).await;
        }
        let heard = waiter.await.unwrap();
        let heard = heard.unwrap_or_else(|error| panic!("{error}: {}", self.doing));
        self.check_snapshot(at, heard);
        self.look_at(at).await;
    }

    async fn read(&mut self, method: Method, at: usize) {
        let store = Arc::clone(&self.store);
        let task = &mut self.tasks[at];
        let (id, gone) = (task.id.clone(), task.gone);
        let doing = self.doing.clone();
        let fine = |error: TaskStoreError| -> ! { panic!("{error}: {doing}") };
        match method {
            Method::TaskOwner => {
                let owner = store.task_owner(&id).await.unwrap_or_else(|error| fine(error));
                assert_eq!(owner, (!gone).then(|| task.owner.clone()), "{doing}");
            }
            Method::TaskPresence => {
                // A task that has expired may be reported as such by a store that still has it.
                match store.task_presence(&id).await.unwrap_or_else(|error| fine(error)) {
                    TaskPresence::Present { owner } if !gone => assert_eq!(owner, task.owner, "{doing}"),
                    TaskPresence::Expired { owner } if gone => assert_eq!(owner, task.owner, "{doing}"),
                    TaskPresence::Missing if gone => {}
                    other => panic!("{other:?}: {doing}"),
                }
            }
            Method::GetTask => {
                let object = store.get_task(&id).await.unwrap_or_else(|error| fine(error));
                assert_eq!(object.is_none(), gone, "{doing}");
                if let Some(object) = object {
                    task.check(&object);
                }
            }
            Method::GetTaskResult => {
                let snapshot = store.get_task_result(&id).await.unwrap_or_else(|error| fine(error));
                self.check_snapshot(at, snapshot);
            }
            Method::OutstandingInputRequests => {
                let asked = store.outstanding_input_requests(&id).await.unwrap_or_else(|error| fine(error));
                assert_eq!(asked.is_none(), gone, "{doing}");
                if let Some(asked) = asked {
                    assert_eq!(as_json(&asked), json!(task.questions), "{doing}");
                }
            }
            Method::InputResponses => {
                let answers = store.input_responses(&id).await.unwrap_or_else(|error| fine(error));
                assert_eq!(answers.is_none(), gone, "{doing}");
                if let Some(answers) = answers {
                    assert_eq!(as_json(&answers), json!(task.answers), "{doing}");
                }
            }
            _ => {
                let resume = store.resume_context(&id).await.unwrap_or_else(|error| fine(error));
                assert_eq!(resume.is_none(), gone, "{doing}");
                if let Some(resume) = resume {
                    assert_eq!(
                        (&resume.tool_name, &resume.arguments),
                        (&task.tool, &task.arguments),
                        "{doing}"
                    );
                    assert_eq!(as_json(&resume.input_responses), json!(task.answers), "{doing}");
                    let token = resume.cancellation_token.expect("a token to stop by");
                    assert_eq!(token.is_cancelled(), task.signalled, "{doing}");
                }
            }
        }
    }

    fn check_snapshot(&mut self, at: usize, snapshot: Option<TaskSnapshot>) {
        let task = &mut self.tasks[at];
        assert_eq!(snapshot.is_none(), task.gone, "{}", self.doing);
        if let Some((object, result, error)) = snapshot {
            task.check(&object);
            assert_eq!(result.as_ref().map(as_json), task.result, "{}", self.doing);
            assert_eq!(error.as_ref().map(as_json), task.error, "{}", self.doing);
        }
    }

    /// Whether the broker may have carried out the call before the attempt that was answered.
    pub(crate) fn may_be_repeated(&self) -> bool {
        self.shaky || self.proxy.as_ref().is_some_and(|proxy| proxy.seen_count() > self.before + 1)
    }

    pub(crate) fn doing(&self) -> &str {
        &self.doing
    }

    /// The broker must have this task as the model has it, and no call may have changed it twice.
    pub(crate) async fn look_at(&mut self, at: usize) {
        let (Some(look), task) = (&self.look, &self.tasks[at]) else { return };
        let answer = look.call("store/get", json!({"taskId": task.id})).await;
        if task.gone {
            assert_eq!(answer.error().kind, "task_not_found", "{}", self.doing);
            return;
        }
        let found = answer.result();
        assert_eq!(found["task"]["status"], as_json(&task.status), "{}", self.doing);
        assert_eq!(found.get("result").cloned(), task.result, "{}", self.doing);
        assert_eq!(found["inputRequests"], json!(task.questions), "{}", self.doing);
        assert_eq!(found["owner"], json!(task.owner), "{}", self.doing);
        // A call that had to be repeated must not count twice.
        assert_eq!(found["revision"], task.revision, "{}", self.doing);
    }

    /// A token is raised exactly when its task was cancelled or has expired.
    fn check_tokens(&self) {
        for task in self.tasks.iter().filter(|task| !task.gone) {
            assert_eq!(task.token.is_cancelled(), task.signalled, "token of {task:?} after {}", self.doing);
        }
    }

    /// A signal that must be on its way arrives.
    pub(crate) async fn expect_signal(&self, task: &Task) {
        if task.signalled {
            raised(&task.token, &self.doing).await;
        }
    }

    /// All that this driver made, as ids and statuses; nothing is missing, and there is nothing more.
    pub(crate) fn kept(&self) -> BTreeMap<String, Value> {
        let kept = self.tasks.iter().filter(|task| !task.gone);
        kept.map(|task| (task.id.clone(), as_json(&task.status))).collect()
    }
}

/// Waits for a signal.
pub(crate) async fn raised(token: &CancellationToken, context: impl fmt::Display) {
    let raised = tokio::time::timeout(SIGNAL_DEADLINE, token.cancelled()).await;
    assert!(raised.is_ok(), "no signal within {SIGNAL_DEADLINE:?}: {context}");
}
