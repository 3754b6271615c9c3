//! What operators and probes ask: no token, no internals.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderValue, Response, StatusCode};

use super::App;
use crate::store::Health;

const OPENAPI: &str = include_str!("../../openapi.yaml");

fn text(status: StatusCode, kind: &'static str, body: impl Into<Body>) -> Response<Body> {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

/// The process lives. It does not depend on the store: a restart heals no disk (case F03).
pub(super) async fn livez() -> Response<Body> {
    text(StatusCode::OK, "text/plain; charset=utf-8", "ok\n")
}

/// It can take and keep a command, or says why not.
pub(super) async fn readyz(State(app): State<Arc<App>>) -> Response<Body> {
    let plain = "text/plain; charset=utf-8";
    if app.is_draining() {
        return text(StatusCode::SERVICE_UNAVAILABLE, plain, "stopping\n");
    }
    if !app.auth.keyring().is_complete() {
        return text(StatusCode::SERVICE_UNAVAILABLE, plain, "the key server has not given its keys yet\n");
    }
    match app.broker.health() {
        Health::Ready => text(StatusCode::OK, plain, "ok\n"),
        Health::Unavailable(why) => {
            text(StatusCode::SERVICE_UNAVAILABLE, plain, format!("the store is unavailable: {why}\n"))
        }
        Health::Failed(_) | Health::Closed => {
            text(StatusCode::SERVICE_UNAVAILABLE, plain, "the store has failed\n")
        }
    }
}

/// The wire contract.
pub(super) async fn openapi() -> Response<Body> {
    text(StatusCode::OK, "application/yaml", OPENAPI)
}
