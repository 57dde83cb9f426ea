//! Health, readiness, and the API's description.

use super::{HandlerResult, json};
use crate::api::Api;
use crate::openapi;
use crate::wire::shown::HealthView;
use axum::extract::State;
use serde_json::Value;
use std::sync::LazyLock;

pub async fn healthz() -> HandlerResult {
    json(&HealthView { status: "ok".to_string() })
}

pub async fn readyz(State(api): State<Api>) -> HandlerResult {
    api.takes_work()?;
    api.can_write()?;
    api.has_lease()?;
    json(&HealthView { status: "ok".to_string() })
}

pub async fn openapi() -> HandlerResult {
    // Made once: it is constant, and every client may request it.
    static DOCUMENT: LazyLock<Value> = LazyLock::new(openapi::document);
    json(&*DOCUMENT)
}
