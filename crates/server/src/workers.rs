//! Any worker takes any request: one that is about a session of another worker is passed on to that worker, as it is.
//!
//! It happens at the edge, once for all routes, after the caller is known. The other worker gets the caller instead of a token, under a
//! [seal](credential) that only workers of the same store can make, and passes nothing on itself. A session that nobody owns is taken by
//! the worker that was asked. Until a session has a reachable owner, which is a moment when a worker leaves and a lease when one
//! dies, requests wait at most `forward_wait_ms`; those that can be left for the owner as messages are taken here meanwhile.

pub(crate) mod credential;
mod link;
mod subject;
pub(crate) mod toolboxes;

pub(crate) use link::{NOT_HERE, WorkerLinks};

use crate::access::Caller;
use crate::api::Api;
use crate::guest::Guest;
use crate::problem::{Problem, ProblemCode};
use crate::routes::mcp;
use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::handler::Handler;
use axum::response::{IntoResponse, Response};
use hyper::http::request::Parts;
use link::{LinkFailure, PassedOn};
use std::time::Duration;
use subject::RequestSubject;
use tokio::time::{Instant, sleep, timeout};
use windlass::error::AskError;
use windlass::workers::{OtherWorker, OwnerPlace};

/// How often a session is looked for that is about to get another owner.
const LOOKS_EVERY: Duration = Duration::from_millis(50);

/// Marks a request that another worker has passed on: it goes no further.
#[derive(Clone)]
pub(crate) struct Forwarded;

/// Marks the answer of a worker that did nothing, because it does not own the session, or is about to leave.
#[derive(Clone)]
pub(crate) struct NotHere;

/// Answers a request here, or by the worker that owns its session.
pub(crate) async fn placed<H: Handler<T, Api>, T: 'static>(
    handler: H,
    path: &'static str,
    request: Request,
    api: Api,
) -> Response {
    let is_passed_on = request.extensions().get::<Forwarded>().is_some();
    if !api.runtime().is_shared() || is_passed_on {
        return handler.call(request, api).await;
    }
    let (mut parts, body) = request.into_parts();
    let subject = match RequestSubject::of_path(path, &mut parts, &api).await {
        Some(subject) => subject,
        None => return handler.call(Request::from_parts(parts, body), api).await,
    };
    // What this worker owns needs nothing more, and that is where most requests go.
    if let RequestSubject::Session(session) = &subject
        && let Ok(OwnerPlace::Here) = api.runtime().owner_of(session).await
    {
        return handler.call(Request::from_parts(parts, body), api).await;
    }
    let body = match PlacedBody::of(&parts, body, &subject, &api).await {
        Ok(body) => body,
        Err(problem) => return problem.into_response(),
    };
    Placing { api, parts, body, subject }.answer(handler).await
}

/// The body of a request: kept if it is short, so that it can be sent again.
enum PlacedBody {
    Kept(Bytes),
    /// It can be sent once.
    Once(Option<Body>),
}

impl PlacedBody {
    async fn of(
        parts: &Parts,
        body: Body,
        subject: &RequestSubject,
        api: &Api,
    ) -> Result<PlacedBody, Problem> {
        let limits = api.runtime().limits();
        let most = match subject {
            RequestSubject::InBody(_) => limits.result_json_bytes_max,
            RequestSubject::Session(_) => limits.forward_kept_bytes_max,
        };
        let announced = hyper::body::Body::size_hint(&body).upper();
        let is_short = announced.is_some_and(|bytes| bytes <= most);
        if !is_short && !parts.method.is_safe() {
            return Ok(PlacedBody::Once(Some(body)));
        }
        let reading = axum::body::to_bytes(body, usize::try_from(most).unwrap_or(usize::MAX));
        let wait = Duration::from_millis(limits.body_wait_ms);
        match timeout(wait, reading).await {
            Ok(Ok(bytes)) => Ok(PlacedBody::Kept(bytes)),
            Ok(Err(_)) => Err(Problem::new(ProblemCode::BadBody, "the body is incomplete; send it again")),
            Err(_) => {
                let told = "the body did not arrive in time; send it without pauses";
                Err(Problem::new(ProblemCode::BadBody, told))
            }
        }
    }

    /// The body, if it was not sent yet or can be sent again.
    fn next(&mut self) -> Option<Body> {
        match self {
            PlacedBody::Kept(bytes) => Some(Body::from(bytes.clone())),
            PlacedBody::Once(body) => body.take(),
        }
    }

    fn can_be_repeated(&self) -> bool {
        matches!(self, PlacedBody::Kept(_))
    }
}

/// Whether a request is a message of an MCP client.
fn is_mcp(parts: &Parts) -> bool {
    let path = parts.uri.path();
    parts.method == hyper::Method::POST && (path == "/mcp" || path.starts_with("/mcp/"))
}

/// A request that may be another worker's.
struct Placing {
    api: Api,
    parts: Parts,
    body: PlacedBody,
    subject: RequestSubject,
}

impl Placing {
    async fn answer<H: Handler<T, Api>, T: 'static>(mut self, handler: H) -> Response {
        let wait = Duration::from_millis(self.api.runtime().limits().forward_wait_ms);
        let until = Instant::now() + wait;
        loop {
            let place = match self.place().await {
                Ok(place) => place,
                Err(problem) => return problem.into_response(),
            };
            let is_late = Instant::now() >= until;
            if let OwnerPlace::Other(other) = &place
                && other.leaving
                && !is_late
            {
                sleep(LOOKS_EVERY).await;
                continue;
            }
            let response = match place {
                OwnerPlace::Other(other) => self.pass_on(&other, &handler).await,
                OwnerPlace::Here | OwnerPlace::Nobody => self.here(&handler).await,
            };
            let is_not_here = response.extensions().get::<NotHere>().is_some();
            if !is_not_here || !self.body.can_be_repeated() || is_late || self.api.is_draining() {
                return response;
            }
            sleep(LOOKS_EVERY).await;
        }
    }

    /// The owner of the session of the request.
    fn place(&self) -> impl Future<Output = Result<OwnerPlace, Problem>> + Send + use<> {
        let (api, caller, subject) = (self.api.clone(), self.caller().cloned(), self.subject.clone());
        let body = match &self.body {
            PlacedBody::Kept(body) => Some(body.clone()),
            PlacedBody::Once(_) => None,
        };
        async move {
            let session = match (subject, body) {
                (RequestSubject::Session(session), _) => Some(session),
                (RequestSubject::InBody(field), Some(body)) => {
                    field.session(&api, caller.as_ref(), &body).await?
                }
                (RequestSubject::InBody(_), None) => None,
            };
            match session {
                Some(session) => {
                    api.runtime().owner_of(&session).await.map_err(|error| AskError::from(error).into())
                }
                None => Ok(OwnerPlace::Here),
            }
        }
    }

    fn caller(&self) -> Option<&Caller> {
        self.parts.extensions.get()
    }

    /// The answer of this worker.
    async fn here<H: Handler<T, Api>, T: 'static>(&mut self, handler: &H) -> Response {
        let Some(body) = self.body.next() else { return self.refused(Problem::moved()) };
        let request = Request::from_parts(self.parts.clone(), body);
        handler.clone().call(request, self.api.clone()).await
    }

    /// The answer of another worker; of this one if that cannot be reached.
    async fn pass_on<H: Handler<T, Api>, T: 'static>(
        &mut self,
        other: &OtherWorker,
        handler: &H,
    ) -> Response {
        let Some(body) = self.body.next() else { return self.refused(Problem::moved()) };
        let guest = self.parts.extensions.get::<Guest>().cloned();
        let last_word = self.message().and_then(|message| mcp::last_word(&message));
        let sent = PassedOn { parts: &self.parts, body, caller: self.caller(), guest, last_word };
        match self.api.links().send(&self.api, other, sent).await {
            Ok(response) => response,
            Err(LinkFailure::NotSent) => {
                tracing::debug!(worker = %other.id, "a worker could not be reached");
                self.here(handler).await
            }
            // It may have been carried out.
            Err(LinkFailure::NoAnswer) if !self.parts.method.is_safe() => self.refused(Problem::moved()),
            Err(LinkFailure::NoAnswer) => self.refused(Problem::elsewhere()),
        }
    }

    /// The answer to a request that was not answered by the owner of its session.
    fn refused(&self, problem: Problem) -> Response {
        match self.message() {
            Some(message) => mcp::for_client(&message, problem),
            None => problem.into_response(),
        }
    }

    /// The message of an MCP client that the request is.
    fn message(&self) -> Option<serde_json::Value> {
        match &self.body {
            PlacedBody::Kept(body) if is_mcp(&self.parts) => serde_json::from_slice(body).ok(),
            PlacedBody::Kept(_) | PlacedBody::Once(_) => None,
        }
    }
}
