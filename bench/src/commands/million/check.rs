//! Whether the tasks are there, or are not.

use std::collections::HashSet;
use std::net::SocketAddr;

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::fill::{Filled, TOOL, arguments};
use crate::connection::{Connection, post};
use crate::rpc::{self, Answer};

/// Rows in one page of a list; the broker's limit.
const PAGE: usize = 1000;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Resume<'a> {
    tool_name: &'a str,
    #[serde(borrow)]
    arguments: &'a RawValue,
}

#[derive(Deserialize)]
struct Row<'a> {
    #[serde(borrow)]
    task: TaskRef<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct TaskRef<'a> {
    task_id: &'a str,
    status: &'a str,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Page<'a> {
    #[serde(borrow)]
    tasks: Vec<Row<'a>>,
    next_cursor: Option<String>,
}

/// Every sample is there, working, with its exact arguments.
pub(super) async fn exact(broker: SocketAddr, filled: &Filled) -> Result<()> {
    let mut connection = Connection::open(broker).await?;
    for (index, task_id) in &filled.samples {
        let context = || format!("task {index} ({task_id})");
        let params = rpc::by_id(task_id);
        let row: Row<'_> = rpc::call_on(&mut connection, "store/get", &params).await.with_context(context)?;
        let shown = row.task;
        ensure!(shown.task_id == task_id && shown.status == "working", "{} is {}", context(), shown.status);
        let resume: Resume<'_> =
            rpc::call_on(&mut connection, "store/resume", &params).await.with_context(context)?;
        ensure!(resume.tool_name == TOOL, "{} has another tool", context());
        ensure!(resume.arguments.get() == arguments(*index), "{} has other arguments", context());
    }
    Ok(())
}

/// No sample is found.
pub(super) async fn absent(broker: SocketAddr, filled: &Filled) -> Result<()> {
    let mut connection = Connection::open(broker).await?;
    for (index, task_id) in &filled.samples {
        let request = post(rpc::PATH, &rpc::call("store/get", &rpc::by_id(task_id)));
        let answer = Answer::read(connection.exchange(&request).await?)?;
        answer.must_be_not_found().with_context(|| format!("task {index} ({task_id})"))?;
    }
    Ok(())
}

/// Walks through the list of all tasks, which must have `count` of them, each once.
pub(super) async fn walk(broker: SocketAddr, count: u64) -> Result<()> {
    let count = usize::try_from(count)?;
    let mut connection = Connection::open(broker).await?;
    let mut seen = HashSet::with_capacity(count);
    let mut params = format!(r#"{{"limit":{PAGE}}}"#);
    loop {
        let page: Page<'_> = rpc::call_on(&mut connection, "store/list", &params).await?;
        ensure!(page.tasks.len() <= PAGE, "a page of {} rows", page.tasks.len());
        for Row { task } in &page.tasks {
            let id = u128::from_str_radix(task.task_id, 16).with_context(|| task.task_id.to_owned())?;
            ensure!(seen.insert(id), "the task {} is listed twice", task.task_id);
        }
        ensure!(seen.len() <= count, "more than {count} tasks are listed");
        let Some(cursor) = page.next_cursor else { break };
        ensure!(!page.tasks.is_empty(), "an empty page with a cursor");
        params = format!(r#"{{"limit":{PAGE},"cursor":{}}}"#, serde_json::to_string(&cursor)?);
    }
    ensure!(seen.len() == count, "{} of {count} tasks are listed", seen.len());
    Ok(())
}
