//! `GET /v1/sessions/{s}/events`: the events of a session, as server-sent events.
//!
//! An event has its cursor as `id`, so a browser that reconnects continues by itself. Events that are not recorded (a
//! call runs, its progress) come without one. The stream takes the next page only when the connection has space, so a
//! slow reader costs a page that all readers share, and the connection's patience closes one that reads nothing.

use crate::access::Caller;
use crate::api::Api;
use crate::extract::{PathParams, QueryParams};
use crate::guest::Guest;
use crate::problem::{Problem, ProblemCode};
use crate::pulled::{PulledBody, StreamPiece};
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use hyper::HeaderMap;
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE};
use std::io::Write;
use std::pin::Pin;
use std::time::Duration;
use tokio::time::{Instant, Sleep, sleep};
use windlass::error::EventsError;
use windlass::events::{Events, News, Page};
use windlass_core::ids::EntryNo;
use windlass_core::narration::Locale;

/// Query of the event stream.
#[derive(Clone, Debug, Default, serde::Deserialize, serde::Serialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Follow {
    /// Start after this cursor; 0 is before the first event. Without it and without `Last-Event-ID`: from now on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<u64>,
    /// The locale of sentences for people, such as `de-AT`; default: the session's, or English. Every tag is
    /// accepted; without messages in its language the sentences are English.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub locale: Option<String>,
}

/// Streams the events of a session while the client stays connected.
pub async fn events(
    State(api): State<Api>,
    caller: Caller,
    PathParams(session): PathParams<String>,
    QueryParams(follow): QueryParams<Follow>,
    request: Request,
) -> Result<Response, Problem> {
    api.session(&caller, &session).await?;
    let runtime = api.runtime();
    // A client that reconnects sends its position in the header, whatever URL it kept.
    let after = last_event(request.headers())?.or(follow.after).map(EntryNo);
    let events = runtime.events(&session, after).await?;
    let guest = request.extensions().get::<Guest>().cloned();
    if let Some(guest) = &guest {
        guest.stays();
    }
    let locale = match follow.locale.as_deref() {
        Some(asked) => Locale::of(asked),
        None => api.locale(&session).await?,
    };
    let keepalive = Duration::from_millis(runtime.limits().event_keepalive_ms);
    let quiet = Box::pin(sleep(keepalive));
    let stream =
        EventStream { events, guest, locale, keepalive, quiet, told_at: Instant::now(), begun: false };
    let head = [(CONTENT_TYPE, "text/event-stream"), (CACHE_CONTROL, "no-store")];
    Ok((head, Body::new(PulledBody::new(stream, EventStream::next))).into_response())
}

fn last_event(headers: &HeaderMap) -> Result<Option<u64>, Problem> {
    let Some(given) = headers.get("last-event-id") else { return Ok(None) };
    let cursor = given.to_str().ok().map(str::trim);
    if cursor.is_some_and(str::is_empty) {
        return Ok(None);
    }
    let told = "the header Last-Event-ID takes the id of an event of this session, which is a number";
    cursor
        .and_then(|cursor| cursor.parse().ok())
        .map(Some)
        .ok_or_else(|| Problem::new(ProblemCode::BadQuery, told))
}

impl From<EventsError> for Problem {
    fn from(error: EventsError) -> Problem {
        let told = error.to_string();
        match error {
            EventsError::TooMany { .. } => Problem {
                retry_after_ms: Some(READERS_WAIT_MS),
                ..Problem::new(ProblemCode::Overloaded, told)
            },
            EventsError::PastEnd { .. } => Problem::new(ProblemCode::BadQuery, told),
            EventsError::Session(error) => error.into(),
            // A kind that this server does not know yet.
            _ => Problem::new(ProblemCode::Internal, told),
        }
    }
}

/// When a reader may retry after all reader slots were taken.
const READERS_WAIT_MS: u64 = 5_000;

struct EventStream {
    events: Events,
    guest: Option<Guest>,
    locale: Locale,
    keepalive: Duration,
    /// Keeps running while events come: the quiet time is computed when it fires.
    quiet: Pin<Box<Sleep>>,
    /// The time of the last frame.
    told_at: Instant,
    begun: bool,
}

impl EventStream {
    async fn next(mut self) -> StreamPiece<EventStream> {
        if !std::mem::replace(&mut self.begun, true) {
            // A client that reconnects before the first event continues from here, too.
            return Some((format!("id: {}\n\n", self.events.cursor()).into(), Some(self)));
        }
        let going = async {
            match &self.guest {
                Some(guest) => guest.told_to_go().await,
                None => std::future::pending().await,
            }
        };
        let (quiet, told_at) = (&mut self.quiet, self.told_at);
        let news = tokio::select! {
            biased;
            () = going => return None,
            news = self.events.next() => news?,
            () = been_quiet(quiet, told_at + self.keepalive) => {
                self.told_at = Instant::now();
                return Some((Bytes::from_static(b":\n\n"), Some(self)));
            }
        };
        self.told_at = Instant::now();
        Some(match news {
            Ok(News::Page(page)) => {
                (Bytes::from_owner(page.rendered(self.locale, |page| frames(page, self.locale))), Some(self))
            }
            Ok(News::Words(words)) => {
                let mut text = Vec::new();
                for words in words {
                    frame(&mut text, None, words.kind(), |text| words.write_json(text, self.locale));
                }
                (text.into(), Some(self))
            }
            Ok(News::Notices(notices)) => {
                let mut text = Vec::new();
                // Writing to memory does not fail.
                frame(&mut text, None, "notice", |text| {
                    _ = write!(text, r#"{{"kind":"notice","notices":{notices}}}"#)
                });
                (text.into(), Some(self))
            }
            // A kind of news that this server does not know yet.
            Ok(_) => (Bytes::new(), Some(self)),
            Err(error) => {
                let mut text = Vec::new();
                let problem = Problem::from(windlass::error::AskError::from(error));
                // Writing to memory does not fail, and a problem has only string keys.
                frame(&mut text, None, "problem", |text| _ = serde_json::to_writer(text, &problem));
                (text.into(), None)
            }
        })
    }
}

/// Waits until then. The timer may be set for an earlier time: resetting it with every frame would cost more.
async fn been_quiet(quiet: &mut Pin<Box<Sleep>>, until: Instant) {
    loop {
        quiet.as_mut().await;
        if Instant::now() >= until {
            return;
        }
        quiet.as_mut().reset(until);
    }
}

/// The approximate size of a frame.
const FRAME_BYTES: usize = 640;

fn frames(page: &Page, locale: Locale) -> Vec<u8> {
    let mut text = Vec::with_capacity(page.events.len() * FRAME_BYTES);
    if let Some(upto) = page.expired {
        frame(&mut text, Some(upto), "expired", |text| {
            // Writing to memory does not fail.
            let _ = write!(text, r#"{{"kind":"expired","after":{},"cursor":{upto}}}"#, page.after);
        });
    }
    for event in &page.events {
        frame(&mut text, Some(event.cursor), event.kind.as_str(), |text| event.write_json(text, locale));
    }
    text
}

/// Writes one event. Compact JSON is always one line.
fn frame(text: &mut Vec<u8>, cursor: Option<EntryNo>, kind: &str, data: impl FnOnce(&mut Vec<u8>)) {
    if let Some(cursor) = cursor {
        // Writing to memory does not fail.
        let _ = writeln!(text, "id: {cursor}");
    }
    for piece in ["event: ", kind, "\ndata: "] {
        text.extend_from_slice(piece.as_bytes());
    }
    data(text);
    text.extend_from_slice(b"\n\n");
}
