//! The command line.

use std::convert::Infallible;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use task_broker_client::{RemoteTaskStore, TokenSource};
use tower_mcp::async_task::{MemoryTaskStore, TaskStore};

/// An MCP server with long-running tools, whose tasks live in this process or in a task-broker
#[derive(Clone, Debug, clap::Parser)]
#[command(version, max_term_width = 110)]
pub(crate) struct Options {
    /// Where to listen; the endpoint is /mcp there. Port 0 takes a free one, which the first log line names
    #[arg(long, default_value = "127.0.0.1:8430")]
    pub(crate) listen: SocketAddr,
    /// Where tasks live: `memory` (they end with this process) or a broker's address, e.g. `http://127.0.0.1:8420`
    #[arg(long, default_value = "memory", value_name = "memory|URL")]
    pub(crate) store: Store,
    /// A file with the token for the broker; without it the broker must run with `--auth off` or `optional`
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
}

/// Where tasks live.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Store {
    Memory,
    Broker(String),
}

/// A store that was opened.
#[derive(Debug)]
pub(crate) enum OpenStore {
    Memory(Arc<MemoryTaskStore>),
    Broker(RemoteTaskStore),
}

impl Options {
    /// The store that `--store` names. A broker is asked at once, so that a wrong address or token is an error at
    /// start and not at the first task.
    pub(crate) async fn open_store(&self) -> Result<OpenStore> {
        match &self.store {
            Store::Memory if self.token_file.is_some() => {
                bail!("--token-file is for a broker, and --store is memory")
            }
            Store::Memory => Ok(OpenStore::Memory(Arc::new(MemoryTaskStore::new()))),
            Store::Broker(url) => {
                let mut builder = RemoteTaskStore::builder(url);
                if let Some(file) = &self.token_file {
                    // Read again when it changes: a token that is rotated needs no restart.
                    builder = builder.token(TokenSource::file(file));
                }
                let store = builder.connect().await.with_context(|| format!("--store {url}"))?;
                Ok(OpenStore::Broker(store))
            }
        }
    }
}

impl OpenStore {
    /// As the router wants it.
    pub(crate) fn task_store(&self) -> Arc<dyn TaskStore> {
        match self {
            Self::Memory(store) => Arc::clone(store) as Arc<dyn TaskStore>,
            Self::Broker(store) => store.clone().into(),
        }
    }
}

impl FromStr for Store {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(if text == "memory" { Self::Memory } else { Self::Broker(text.to_owned()) })
    }
}

impl fmt::Display for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Memory => "memory",
            Self::Broker(url) => url,
        })
    }
}
