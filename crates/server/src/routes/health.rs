//! Whether the server is there, takes work, and what it can be asked.

use super::{Answered, json};
use crate::api::Api;
use crate::openapi;
use crate::wire::shown::Health;
use axum::extract::State;
use serde_json::Value;
use std::sync::LazyLock;

pub async fn healthz() -> Answered {
    json(&Health { status: "ok".to_string() })
}

pub async fn readyz(State(api): State<Api>) -> Answered {
    api.takes_work()?;
    json(&Health { status: "ok".to_string() })
}

pub async fn openapi() -> Answered {
    // It is the same for as long as the process is there, and everybody may ask.
    static DOCUMENT: LazyLock<Value> = LazyLock::new(openapi::document);
    json(&*DOCUMENT)
}
