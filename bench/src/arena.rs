//! A broker and baselines side by side, with the same answers.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use serde_json::value::RawValue;
use tempfile::TempDir;

use crate::baseline::{self, log::Mode};
use crate::connection::{Connection, post};
use crate::load::lifecycle::{Load, Paths};
use crate::options::Target;
use crate::process::Server;
use crate::rpc::{self, Created, Flat, Outcome};

/// The least that a broker writes beside the payload for each command: the head of the task.
const HEAD_BYTES: usize = 400;

/// Where the broker takes everything.
pub(crate) const BROKER_PATHS: Paths = Paths { command: rpc::PATH, get: rpc::PATH };

/// Where the baseline takes the same requests.
pub(crate) const BASELINE_PATHS: Paths = Paths { command: "/log", get: "/echo" };

/// Where the servers of a comparison keep their files, and what they answer.
#[derive(Debug)]
pub(crate) struct Arena {
    directory: TempDir,
    specimen: Specimen,
    record_bytes: usize,
}

/// The broker's results in the life of one task.
#[derive(Debug)]
pub(crate) struct Specimen {
    results: BTreeMap<&'static str, Box<RawValue>>,
}

impl Specimen {
    async fn take(broker: &Server, load: &Load) -> Result<Self> {
        let mut connection = Connection::open(broker.address()).await?;
        let mut results = BTreeMap::new();

        let created = answer(&mut connection, &load.create()).await.context("store/create")?;
        let task_id = serde_json::from_str::<Created<'_>>(created.get())?.task_id()?.to_owned();
        let completed = answer(&mut connection, &load.complete(&task_id)).await.context("store/complete")?;
        serde_json::from_str::<Outcome<'_>>(completed.get())?.must_have_left("completed")?;
        let got = answer(&mut connection, &Load::get(&task_id)).await.context("tasks/get")?;
        serde_json::from_str::<Flat<'_>>(got.get())?.must_be_completed_with(&load.result)?;

        results.insert("store/create", created);
        results.insert("store/complete", completed);
        results.insert("tasks/get", got);
        Ok(Self { results })
    }

    /// The result that both servers give for `method`.
    pub(crate) fn result(&self, method: &str) -> Result<&RawValue> {
        self.results.get(method).map(Box::as_ref).with_context(|| format!("no specimen of {method}"))
    }

    /// Method and size of each result, for the report.
    pub(crate) fn sizes(&self) -> String {
        let sizes = self.results.iter().map(|(method, result)| format!("{method} {} B", result.get().len()));
        sizes.collect::<Vec<_>>().join(", ")
    }
}

async fn answer(connection: &mut Connection, call: &str) -> Result<Box<RawValue>> {
    let body = connection.exchange(&post(rpc::PATH, call)).await?;
    let result: &RawValue = rpc::result(body)?;
    Ok(result.to_owned())
}

impl Arena {
    /// Starts a broker on a fresh store and takes specimens of its answers.
    pub(crate) async fn open(target: &Target, load: &Load) -> Result<(Self, Server)> {
        let directory = target.directory()?;
        let (broker, _ready) = target.start(&directory.path().join("data")).await?;
        let specimen = Specimen::take(&broker, load).await.context("a first lifecycle")?;
        std::fs::write(directory.path().join("answers.json"), serde_json::to_vec(&specimen.results)?)?;
        let record_bytes = load.arguments.len().max(load.result.len()) + HEAD_BYTES;
        Ok((Self { directory, specimen, record_bytes }, broker))
    }

    /// Starts a baseline server.
    pub(crate) async fn baseline(&self, mode: Mode) -> Result<Server> {
        let log: PathBuf = self.directory.path().join(mode.name()).with_extension("log");
        let answers = self.directory.path().join("answers.json");
        Server::start(baseline::command(&answers, &log, mode, self.record_bytes)?).await
    }

    /// The broker's answers, which are the baseline's too.
    pub(crate) const fn specimen(&self) -> &Specimen {
        &self.specimen
    }

    /// How many bytes a baseline appends for each command.
    pub(crate) const fn record_bytes(&self) -> usize {
        self.record_bytes
    }
}
