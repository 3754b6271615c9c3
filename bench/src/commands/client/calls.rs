//! Each method of the store, next to an echo through the same HTTP client.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use task_broker_client::Client;
use tower_mcp::CallToolResult;
use tower_mcp::async_task::TaskStore;
use tower_mcp::error::JsonRpcError;
use tower_mcp::protocol::{InputRequests, InputResponses, TaskStatus};

use crate::clock;
use crate::counting::Counting;
use crate::load::lifecycle::Load;
use crate::rpc::PLACEHOLDER_ID;
use crate::samples::{Samples, Sorted};
use crate::table;

/// What the echo is called in the table.
const ECHO: &str = "(echo)";
/// Longer than a read is kept for the calls that belong to it.
const APART: Duration = Duration::from_millis(60);

/// The samples of each call, in the order in which the calls are made.
#[derive(Debug, Default)]
struct Sheet {
    rows: Vec<(&'static str, Samples)>,
    requests: Vec<(&'static str, Vec<String>)>,
}

impl Sheet {
    fn record(&mut self, call: &'static str, latency: Duration) {
        if let Some((_, samples)) = self.rows.iter_mut().find(|(name, _)| *name == call) {
            samples.record(latency);
        } else {
            let mut samples = Samples::default();
            samples.record(latency);
            self.rows.push((call, samples));
        }
    }
}

/// A payload as the calls want it.
#[derive(Debug)]
struct Payloads {
    arguments: Value,
    result: CallToolResult,
    questions: InputRequests,
    answers: InputResponses,
}

impl Payloads {
    fn new(load: &Load) -> Result<Self> {
        let result =
            json!({"content": [], "structuredContent": serde_json::from_str::<Value>(&load.result)?});
        let question = json!({"method": "elicitation/create", "params": {
            "message": "Go on?", "requestedSchema": {"type": "object", "properties": {}}}});
        Ok(Self {
            arguments: serde_json::from_str(&load.arguments)?,
            result: serde_json::from_value(result)?,
            questions: serde_json::from_value(json!({"go-on": question}))?,
            answers: serde_json::from_value(json!({"go-on": {"action": "accept", "content": {}}}))?,
        })
    }
}

/// Measures and prints. The requests of each call are counted on a store of its own, behind the counting proxy.
pub(crate) async fn run(
    store: &Arc<dyn TaskStore>,
    echo: &Client,
    load: &Load,
    times: u32,
    (counted, counting): (&Arc<dyn TaskStore>, &Counting),
) -> Result<()> {
    let payloads = Payloads::new(load)?;
    let mut counts = Sheet::default();
    counting.take();
    life(&mut Meter { store: counted, sheet: &mut counts, counting: Some(counting) }, &payloads, true)
        .await?;

    let mut sheet = Sheet::default();
    for round in 0..times + times / 10 {
        if round == times / 10 {
            sheet = Sheet::default();
        }
        let started = clock::now();
        echo.tasks_get(PLACEHOLDER_ID).await.context("the echo")?;
        sheet.record(ECHO, started.elapsed());
        life(&mut Meter { store, sheet: &mut sheet, counting: None }, &payloads, false).await?;
    }
    print(sheet, &counts);
    Ok(())
}

/// Makes calls and measures them.
struct Meter<'a> {
    store: &'a Arc<dyn TaskStore>,
    sheet: &'a mut Sheet,
    counting: Option<&'a Counting>,
}

impl Meter<'_> {
    async fn call<T>(
        &mut self,
        name: &'static str,
        call: impl Future<Output = tower_mcp::async_task::Result<T>>,
    ) -> Result<T> {
        let started = clock::now();
        let answer = call.await;
        let latency = started.elapsed();
        let answer = answer.with_context(|| name)?;
        self.sheet.record(name, latency);
        if let Some(counting) = self.counting {
            self.sheet.requests.push((name, counting.take()));
        }
        Ok(answer)
    }
}

/// The life of some tasks, every method of the trait at least once.
async fn life(meter: &mut Meter<'_>, payloads: &Payloads, apart: bool) -> Result<()> {
    // A read is kept for a moment for the calls that the router makes right after it. Counting keeps them apart.
    let pause = async || {
        if apart {
            tokio::time::sleep(APART).await;
        }
    };
    let store = Arc::clone(meter.store);
    let create = || store.create_task("render", payloads.arguments.clone(), None, None);
    let (id, _token) = meter.call("create_task", create()).await?;
    let id = id.as_str();
    must(meter.call("get_task, right after it", store.get_task(id)).await?.is_some())?;
    must(meter.call("task_presence", store.task_presence(id)).await?.owner().is_some())?;
    must(meter.call("get_task_result, right after it", store.get_task_result(id)).await?.is_some())?;
    pause().await;
    must(meter.call("task_owner", store.task_owner(id)).await?.is_some())?;
    must(meter.call("set_status", store.set_status(id, TaskStatus::Working, Some("half"))).await?)?;
    must(meter.call("get_task", store.get_task(id)).await?.is_some())?;
    must(meter.call("set_task_meta", store.set_task_meta(id, json!({"example.com/x": 1}))).await?)?;
    must(meter.call("set_ttl", store.set_ttl(id, 400_000)).await?)?;
    let asked = store.require_input(id, payloads.questions.clone(), None);
    must(meter.call("require_input", asked).await?)?;
    let outstanding = store.outstanding_input_requests(id);
    must(meter.call("outstanding_input_requests", outstanding).await?.is_some_and(|asked| asked.len() == 1))?;
    let answered = store.apply_input_responses(id, payloads.answers.clone());
    must(meter.call("apply_input_responses", answered).await?.is_some_and(|applied| applied.is_complete()))?;
    must(meter.call("input_responses", store.input_responses(id)).await?.is_some())?;
    pause().await;
    must(meter.call("resume_context", store.resume_context(id)).await?.is_some())?;
    must(meter.call("complete_task", store.complete_task(id, payloads.result.clone())).await?)?;
    must(
        meter
            .call("get_task_result", store.get_task_result(id))
            .await?
            .is_some_and(|(_, result, _)| result.is_some()),
    )?;
    pause().await;
    must(meter.call("wait_for_completion, ended", store.wait_for_completion(id)).await?.is_some())?;
    must(!meter.call("list_tasks", store.list_tasks(None)).await?.is_empty())?;
    must(meter.call("discard_task", store.discard_task(id)).await?)?;

    // So few tasks are left that listing them always costs the same.
    let (failing, _token) = create().await?;
    let (cancelled, _token) = create().await?;
    if let Some(counting) = meter.counting {
        counting.take();
    }
    let failed = store.fail_task(&failing, JsonRpcError::internal_error("the worker is gone"));
    must(meter.call("fail_task", failed).await?)?;
    must(meter.call("cancel_task", store.cancel_task(&cancelled, Some("enough"))).await?.is_some())?;
    must(store.discard_task(&failing).await? && store.discard_task(&cancelled).await?)
}

fn must(held: bool) -> Result<()> {
    ensure!(held, "an unexpected answer of the store");
    Ok(())
}

fn print(sheet: Sheet, counts: &Sheet) {
    let mut rows: Vec<(&'static str, Sorted)> =
        sheet.rows.into_iter().map(|(name, samples)| (name, samples.sorted())).collect();
    let Some(echo) = rows.iter().position(|(name, _)| *name == ECHO).map(|at| rows.remove(at).1) else {
        return;
    };
    let micros = |latency: Duration| format!("{:.0}", latency.as_secs_f64() * 1e6);
    let ratio = |of: Duration, to: Duration| format!("{:.2}", of.as_secs_f64() / to.as_secs_f64());
    let line = |name: &str, samples: &Sorted, requests: String| {
        let (p50, p99) = (samples.at(50.0), samples.at(99.0));
        vec![
            name.to_owned(),
            micros(p50),
            micros(p99),
            ratio(p50, echo.at(50.0)),
            ratio(p99, echo.at(99.0)),
            requests,
        ]
    };
    let mut lines = vec![line(ECHO, &echo, "1".to_owned())];
    for (name, samples) in &rows {
        let requests = counts.requests.iter().find(|(counted, _)| counted == name);
        lines.push(line(name, samples, requests.map_or_else(String::new, |(_, all)| all.len().to_string())));
    }
    println!();
    table::print(&["call", "p50 us", "p99 us", "p50 / echo", "p99 / echo", "requests"], &lines);
    println!("(requests: of one call alone; what is read right after another call is handed over by it)");
}
