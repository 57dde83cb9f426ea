//! `GET /v1/changes`: which sessions of the caller have changed, as server-sent events, at most four a second.
//!
//! A change is told by the session's name only, recorded or not, and whoever wants more asks for it. So a page follows everything with
//! one connection, and one that reconnects asks anew instead of continuing at a cursor.

use crate::access::Caller;
use crate::api::Api;
use crate::guest::Guest;
use crate::page;
use crate::problem::Problem;
use crate::pulled::{PulledBody, StreamPiece};
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE};
use serde::Serialize;
use std::time::Duration;
use tokio::time::{Instant, sleep_until, timeout};
use windlass::error::{AskError, SessionError};
use windlass::events::{ChangedSessions, Changes};
use windlass::time::wall_time;

/// The minimum time between two events.
const PAUSE: Duration = Duration::from_millis(250);
/// An event names so many sessions; of more it is told that there are.
const NAMES_MAX: usize = 256;

/// The stream has begun.
#[derive(Debug, Serialize)]
struct BegunEvent<'a> {
    /// The time of the server, by which everything is recorded.
    now: String,
    /// Which build of the dashboard the server has: a page of another one is old.
    build: &'a str,
}

/// Sessions that have changed.
#[derive(Debug, Serialize)]
struct ChangedEvent<'a> {
    now: String,
    sessions: &'a [String],
    /// Others have changed, too: everything should be asked for anew.
    more: bool,
}

/// Streams the names of changed sessions while the client stays connected.
pub async fn changes(State(api): State<Api>, caller: Caller, request: Request) -> Result<Response, Problem> {
    let changes = api.runtime().changes()?;
    let guest = request.extensions().get::<Guest>().cloned();
    if let Some(guest) = &guest {
        guest.stays();
    }
    let keepalive = Duration::from_millis(api.runtime().limits().event_keepalive_ms);
    let stream =
        ChangesStream { api, caller, guest, changes, keepalive, next_at: Instant::now(), begun: false };
    let head = [(CONTENT_TYPE, "text/event-stream"), (CACHE_CONTROL, "no-store")];
    Ok((head, Body::new(PulledBody::new(stream, ChangesStream::next))).into_response())
}

struct ChangesStream {
    api: Api,
    caller: Caller,
    guest: Option<Guest>,
    changes: Changes,
    keepalive: Duration,
    /// When the next event may be sent.
    next_at: Instant,
    begun: bool,
}

impl ChangesStream {
    async fn next(mut self) -> StreamPiece<ChangesStream> {
        if !std::mem::replace(&mut self.begun, true) {
            // The client knows that it is connected, and asks for what there is.
            let event = BegunEvent { now: wall_time(self.api.now()), build: page::build() };
            return Some((written("begun", &event), Some(self)));
        }
        let guest = self.guest.clone();
        let going = async {
            match &guest {
                Some(guest) => guest.told_to_go().await,
                None => std::future::pending().await,
            }
        };
        let piece = tokio::select! {
            biased;
            () = going => return None,
            piece = self.piece() => piece,
        };
        match piece {
            Ok(piece) => Some((piece?, Some(self))),
            Err(problem) => {
                // The stream ends by itself: whoever reconnects is told what is wrong.
                tracing::debug!(%problem, "a stream of changes ended");
                None
            }
        }
    }

    /// The next event, or a sign of life. `None`: the runtime has ended.
    async fn piece(&mut self) -> Result<Option<Bytes>, Problem> {
        sleep_until(self.next_at).await;
        loop {
            let Ok(changed) = timeout(self.keepalive, self.changes.next()).await else {
                return Ok(Some(Bytes::from_static(b":\n\n")));
            };
            let Some(changed) = changed else { return Ok(None) };
            let changed = changed.map_err(|error: SessionError| AskError::from(error))?;
            if let Some(event) = self.event(&changed).await? {
                self.next_at = Instant::now() + PAUSE;
                return Ok(Some(event));
            }
        }
    }

    /// The event about those of the sessions that the caller may see; `None` if there are none.
    async fn event(&self, changed: &ChangedSessions) -> Result<Option<Bytes>, Problem> {
        let (mut sessions, mut more) = (Vec::new(), changed.more);
        for name in &changed.sessions {
            if !self.api.sessions().is_shown(&self.caller, name).await? {
                continue;
            }
            more |= sessions.len() >= NAMES_MAX;
            if sessions.len() < NAMES_MAX {
                sessions.push(name.to_string());
            }
        }
        if sessions.is_empty() && !more {
            return Ok(None);
        }
        let event = ChangedEvent { now: wall_time(self.api.now()), sessions: &sessions, more };
        Ok(Some(written("changed", &event)))
    }
}

/// An event as it is sent.
fn written(kind: &str, event: &impl Serialize) -> Bytes {
    let data = serde_json::to_string(event).unwrap_or_default();
    format!("event: {kind}\ndata: {data}\n\n").into()
}
