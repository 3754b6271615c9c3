//! The HTTP set-up of the baseline: the one place that depends on the broker's code.

use axum::Router;
use task_broker::http::observe::Connections;
use task_broker::http::serve::{ConnectionLimits, serve};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// Serves behind the broker's own connection loop, with its limits, until the process is told to end.
pub(super) async fn run(listener: TcpListener, app: Router) {
    let limits = ConnectionLimits::default();
    serve(listener, None, app, CancellationToken::new(), limits, Connections::default()).await;
}
