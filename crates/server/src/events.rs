//! `GET /v1/sessions/{s}/events`: what happens in a session, as server-sent events.
//!
//! An event has its cursor as `id`, so a browser that reconnects continues by itself. What running calls say comes
//! without one. The stream takes the next page only when the connection has room, so whoever reads slowly costs a page
//! that all share, and whoever reads nothing is closed by the connection's patience.

use crate::access::Caller;
use crate::api::Api;
use crate::extract::{Asked, Named};
use crate::guest::Guest;
use crate::problem::Problem;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use hyper::HeaderMap;
use hyper::body::Frame;
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE};
use std::convert::Infallible;
use std::io::Write;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::{Instant, Sleep, sleep};
use windlass::core::ids::EntryNo;
use windlass::core::narration::Locale;
use windlass::{BatchError, Events, EventsError, News, Page};

/// What is to be told.
#[derive(Clone, Debug, Default, serde::Deserialize, serde::Serialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Follow {
    /// From behind this cursor; 0 is before the first. If it is not said, and `Last-Event-ID` neither, from now on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<u64>,
    /// The language of the sentences for people; that of the session, or English, if it is not said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub locale: Option<String>,
}

/// Follows a session for as long as the other end stays.
pub async fn events(
    (State(api), caller): (State<Api>, Caller),
    Named(session): Named<String>,
    Asked(follow): Asked<Follow>,
    request: Request,
) -> Result<Response, Problem> {
    api.session(&caller, &session).await?;
    let runtime = api.runtime();
    // Whoever reconnects says where it was, in whatever address it keeps.
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
    let stream = Stream { events, guest, locale, keepalive, quiet, told_at: Instant::now(), begun: false };
    let head = [(CONTENT_TYPE, "text/event-stream"), (CACHE_CONTROL, "no-store")];
    Ok((head, Body::new(Pulled { then: Stream::next, next: Box::pin(stream.next()), over: false }))
        .into_response())
}

fn last_event(headers: &HeaderMap) -> Result<Option<u64>, Problem> {
    let Some(given) = headers.get("last-event-id") else { return Ok(None) };
    let cursor = given.to_str().ok().map(str::trim);
    if cursor.is_some_and(str::is_empty) {
        return Ok(None);
    }
    let told = "the header Last-Event-ID takes the id of an event of this session, which is a number";
    cursor.and_then(|cursor| cursor.parse().ok()).map(Some).ok_or_else(|| Problem::new("bad_query", told))
}

impl From<EventsError> for Problem {
    fn from(error: EventsError) -> Problem {
        let told = error.to_string();
        match error {
            EventsError::TooMany { .. } => {
                Problem { retry_after_ms: Some(READERS_WAIT_MS), ..Problem::new("overloaded", told) }
            }
            EventsError::PastEnd { .. } => Problem::new("bad_query", told),
            EventsError::Batch(BatchError::Shape { .. }) => Problem::new("bad_path", told),
            EventsError::Batch(error) => windlass::AskError::from(error).into(),
        }
    }
}

/// When a reader that found no place may come back.
const READERS_WAIT_MS: u64 = 5_000;

struct Stream {
    events: Events,
    guest: Option<Guest>,
    locale: Locale,
    keepalive: Duration,
    /// Runs on while news come: how long it was quiet is found out when it is over.
    quiet: Pin<Box<Sleep>>,
    /// When something was last told.
    told_at: Instant,
    begun: bool,
}

/// The next piece of the stream, and the stream that follows it; `None` at its end.
type Piece = Option<(Bytes, Option<Stream>)>;

impl Stream {
    async fn next(mut self) -> Piece {
        if !std::mem::replace(&mut self.begun, true) {
            // Whoever reconnects before the first event continues from here, too.
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
                    frame(&mut text, (None, "progress"), |text| words.write_json(text, self.locale));
                }
                (text.into(), Some(self))
            }
            Err(error) => {
                let mut text = Vec::new();
                let problem = Problem::from(windlass::AskError::from(error));
                // Writing to memory does not fail, and a problem has text keys only.
                frame(&mut text, (None, "problem"), |text| _ = serde_json::to_writer(text, &problem));
                (text.into(), None)
            }
        })
    }
}

/// Waits until then. The timer may be set for an earlier time: setting it anew with every frame would cost more.
async fn been_quiet(quiet: &mut Pin<Box<Sleep>>, until: Instant) {
    loop {
        quiet.as_mut().await;
        if Instant::now() >= until {
            return;
        }
        quiet.as_mut().reset(until);
    }
}

/// About how long a frame is.
const FRAME_BYTES: usize = 640;

fn frames(page: &Page, locale: Locale) -> Vec<u8> {
    let mut text = Vec::with_capacity(page.events.len() * FRAME_BYTES);
    for event in &page.events {
        let head = (Some(event.cursor), event.kind.as_str());
        frame(&mut text, head, |text| event.write_json(text, locale));
    }
    text
}

/// One event. Compact JSON is one line, whatever it holds.
fn frame(text: &mut Vec<u8>, (cursor, kind): (Option<EntryNo>, &str), data: impl FnOnce(&mut Vec<u8>)) {
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

/// A body that is made piece by piece, when there is room for the next; each in the memory of the one before.
struct Pulled<F, N> {
    then: F,
    next: Pin<Box<N>>,
    over: bool,
}

impl<N: Future<Output = Piece> + Send, F: Fn(Stream) -> N + Unpin> hyper::body::Body for Pulled<F, N> {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.over {
            return Poll::Ready(None);
        }
        let Poll::Ready(piece) = self.next.as_mut().poll(cx) else { return Poll::Pending };
        let (piece, rest) = piece.unzip();
        match rest.flatten() {
            Some(stream) => {
                let next = (self.then)(stream);
                self.next.set(next);
            }
            None => self.over = true,
        }
        Poll::Ready(piece.map(|piece| Ok(Frame::data(piece))))
    }
}
