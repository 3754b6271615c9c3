//! The subcommands that measure.

pub(crate) mod client;
pub(crate) mod expiry;
pub(crate) mod get;
pub(crate) mod lifecycle;
pub(crate) mod million;
pub(crate) mod neighbours;
pub(crate) mod open_loop;
pub(crate) mod overload;
pub(crate) mod status;
pub(crate) mod turnover;
pub(crate) mod waits;
