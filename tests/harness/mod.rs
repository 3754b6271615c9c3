//! What a black-box test needs: a broker process, a client over real TCP, tokens, and a reader of event streams.
//!
//! A test binary takes it in with `#[path = "../harness/mod.rs"] mod harness;`. Nothing in here knows the broker's
//! code: it sees the process, its log on stderr, and its sockets.
//!
//! - [`Broker`] starts, stops, kills and restarts one process, and hands out clients for the personas.
//! - [`Client`] makes calls, [`Answer`] is what came back, down to the bytes, and holds every error against the
//!   contract's table on the way.
//! - [`EventStream`] reads `store/watch`.
//! - [`raw`] speaks HTTP by hand, for requests that no well-behaved client would send.
//! - [`token`] mints tokens from raw text, so that odd ones are possible.
//! - [`link`] is a connection that may break off, for brokers that are killed under load; [`attempt`] a start that may
//!   be refused, for data directories that a test has prepared.
#![allow(dead_code, unused_imports, reason = "each test binary uses its own part of the harness")]

mod answer;
pub(crate) mod attempt;
mod broker;
mod client;
pub(crate) mod link;
pub(crate) mod raw;
mod sse;
pub(crate) mod token;

pub(crate) use answer::{Answer, RpcError};
pub(crate) use broker::{Auth, Broker, BrokerOptions, Store};
pub(crate) use client::{Client, Outgoing, accept, id_of, poll_until, question};
pub(crate) use sse::{EventStream, Message};
