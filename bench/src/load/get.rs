//! The operation of `get`: one `tasks/get`, or one echo.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};

use super::Client;
use crate::connection::{Connection, excerpt};

/// A ready-made request and the one answer that is right.
#[derive(Debug)]
pub(crate) struct Exchange {
    pub(crate) request: Vec<u8>,
    pub(crate) answer: Vec<u8>,
}

/// Goes round and round through the same exchanges, each client from a place of its own.
#[derive(Debug)]
pub(crate) struct GetClient {
    connection: Connection,
    exchanges: Arc<[Exchange]>,
    at: usize,
}

impl GetClient {
    /// `count` clients of one server.
    pub(crate) async fn connect(
        address: SocketAddr,
        exchanges: &Arc<[Exchange]>,
        count: usize,
    ) -> Result<Vec<Self>> {
        ensure!(!exchanges.is_empty(), "nothing to ask for");
        let mut clients = Vec::with_capacity(count);
        for client in 0..count {
            let connection = Connection::open(address).await?;
            let at = client * exchanges.len() / count;
            clients.push(Self { connection, exchanges: Arc::clone(exchanges), at });
        }
        Ok(clients)
    }
}

impl Client for GetClient {
    async fn run(&mut self) -> Result<()> {
        let exchange = self.exchanges.get(self.at).context("no exchange")?;
        self.at = (self.at + 1) % self.exchanges.len();
        let body = self.connection.exchange(&exchange.request).await?;
        ensure!(body == exchange.answer, "another answer than before: {}", excerpt(body));
        Ok(())
    }
}
