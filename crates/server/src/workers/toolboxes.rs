//! Toolboxes of several workers: a process asks any of them, and gets attempts of sessions that any of them owns.
//!
//! A request for work is answered from here, else by the workers that have an attempt, which are asked one after the other; so each of them
//! knows that the process is there. Reports go to the owners of their attempts, whose tokens begin with the handle of their call.

use super::{link, subject};
use crate::access::Caller;
use crate::api::Api;
use crate::problem::{Problem, ProblemCode};
use axum::body::Body;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Method, Request};
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;
use windlass::error::AskError;
use windlass::workers::{OtherWorker, OwnerPlace};

/// The other workers that may have attempts.
pub(crate) async fn others(api: &Api) -> Result<Vec<OtherWorker>, Problem> {
    let others = api.runtime().other_workers().await.map_err(AskError::from)?;
    Ok(others.into_iter().filter(|other| other.address.is_some()).collect())
}

/// Which of these attempts are other workers', by the place in the list.
pub(crate) async fn owners<'a>(
    api: &Api,
    tokens: impl Iterator<Item = &'a str>,
) -> BTreeMap<String, (OtherWorker, Vec<usize>)> {
    let mut owners = BTreeMap::<String, (OtherWorker, Vec<usize>)>::new();
    for (place, token) in tokens.enumerate() {
        let Some(session) = subject::of_attempt(api, token).await else { continue };
        if let Ok(OwnerPlace::Other(other)) = api.runtime().owner_of(&session).await
            && other.address.is_some()
        {
            owners.entry(other.id.clone()).or_insert_with(|| (other, Vec::new())).1.push(place);
        }
    }
    owners
}

/// The items of a worker's answer to this request; none if it cannot be asked now, which a process of a toolbox repeats anyway.
pub(crate) async fn ask(
    api: &Api,
    caller: &Caller,
    other: &OtherWorker,
    path: &str,
    body: &impl Serialize,
) -> Result<Vec<Value>, Problem> {
    let Ok(parts) = head(path) else { return Ok(Vec::new()) };
    let body = serde_json::to_vec(body).unwrap_or_default();
    let (body, caller) = (Body::from(body), Some(caller));
    let sent = link::PassedOn { parts: &parts, body, caller, guest: None, last_word: None };
    let Ok(response) = api.links().send(api, other, sent).await else { return Ok(Vec::new()) };
    let (status, most) = (response.status(), api.runtime().limits().batch_bytes_max);
    let bytes = axum::body::to_bytes(response.into_body(), usize::try_from(most).unwrap_or(usize::MAX)).await;
    let bytes = bytes.unwrap_or_default();
    if status.is_success() {
        let mut answer: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        return Ok(answer["attempts"].as_array_mut().map(std::mem::take).unwrap_or_default());
    }
    // One that has not read the newest manifest yet has no attempt of it.
    match serde_json::from_slice::<Problem>(&bytes) {
        Ok(problem) if problem.code == ProblemCode::InvalidToolbox => Err(problem),
        Ok(_) | Err(_) => Ok(Vec::new()),
    }
}

fn head(path: &str) -> Result<Parts, hyper::http::Error> {
    let request = Request::builder().method(Method::POST).uri(path);
    let request = request.header(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(request.body(())?.into_parts().0)
}
