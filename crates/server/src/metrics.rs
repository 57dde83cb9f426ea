//! `GET /metrics`: metrics in Prometheus text format.

use crate::api::Api;
use axum::extract::State;
use axum::response::IntoResponse;
use hyper::header::CONTENT_TYPE;

/// All metrics of the runtime; `docs/metrics.md` lists them.
pub async fn metrics(State(api): State<Api>) -> impl IntoResponse {
    ([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], api.runtime().metrics())
}
