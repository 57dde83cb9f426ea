//! Connections to other workers, over which requests are passed on and answers streamed back.

use super::{NotHere, credential};
use crate::access::{Caller, PAGE_KEY};
use crate::api::Api;
use crate::guest::Guest;
use crate::pulled::{PulledBody, StreamPiece};
use axum::body::{Body, Bytes};
use axum::response::Response;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::header::{
    AUTHORIZATION, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, COOKIE, HOST, HeaderName, HeaderValue, ORIGIN,
    TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
};
use hyper::http::request::Parts;
use hyper::{HeaderMap, Request};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use std::time::Duration;
use tokio::time::{sleep, timeout};
use windlass::workers::OtherWorker;

/// A worker on the same network that is not connected to by then is not there.
const CONNECT_WAIT: Duration = Duration::from_secs(2);
/// Connections to one worker that are kept for the next request.
const IDLE_MAX: usize = 64;
/// An idle connection is closed after so long: before the other side would.
const IDLE_TIME: Duration = Duration::from_secs(20);
/// A silent connection is tested so often.
const KEEPALIVE: Duration = Duration::from_secs(10);
/// An answer that stops arriving for so many times the interval of signs of life is given up.
const SILENT_TIMES: u32 = 4;

/// Headers that belong to one connection, or to the way in which the caller has shown who it is.
const LEFT_OUT: [HeaderName; 10] = [
    AUTHORIZATION,
    CONNECTION,
    COOKIE,
    HOST,
    HeaderName::from_static("keep-alive"),
    ORIGIN,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
];
/// Headers of an answer that belong to one connection.
const LEFT_OUT_OF_ANSWERS: [HeaderName; 3] =
    [CONNECTION, HeaderName::from_static("keep-alive"), TRANSFER_ENCODING];

/// The connections to other workers.
pub(crate) struct WorkerLinks(Client<HttpConnector, Body>);

/// A request to pass on.
pub(super) struct PassedOn<'a> {
    pub(super) parts: &'a Parts,
    pub(super) body: Body,
    pub(super) caller: Option<&'a Caller>,
    pub(super) guest: Option<Guest>,
    /// The last event of its answer, if that is a stream and breaks off.
    pub(super) last_word: Option<Bytes>,
}

/// Why a request was not answered by another worker.
pub(super) enum LinkFailure {
    /// It did not reach that worker.
    NotSent,
    /// That worker may have carried it out.
    NoAnswer,
}

impl Default for WorkerLinks {
    fn default() -> WorkerLinks {
        let mut connector = HttpConnector::new();
        connector.set_connect_timeout(Some(CONNECT_WAIT));
        connector.set_keepalive(Some(KEEPALIVE));
        connector.set_nodelay(true);
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_TIME)
            .pool_max_idle_per_host(IDLE_MAX)
            .build(connector);
        WorkerLinks(client)
    }
}

impl WorkerLinks {
    /// Sends a request to another worker, and returns its answer, whose body goes on to arrive.
    pub(super) async fn send(
        &self,
        api: &Api,
        other: &OtherWorker,
        sent: PassedOn<'_>,
    ) -> Result<Response, LinkFailure> {
        let ends = StreamEnds { guest: sent.guest.clone(), last_word: sent.last_word.clone() };
        let request = request(api, other, sent).ok_or(LinkFailure::NotSent)?;
        let answer = tokio::select! {
            answer = self.0.request(request) => answer,
            () = is_gone(api, &other.id) => return Err(LinkFailure::NoAnswer),
        };
        match answer {
            Ok(answer) => Ok(passed_back(api, answer, ends)),
            Err(error) if error.is_connect() => Err(LinkFailure::NotSent),
            Err(error) => {
                tracing::debug!(worker = %other.id, %error, "a worker did not answer");
                Err(LinkFailure::NoAnswer)
            }
        }
    }
}

/// The request for another worker. `None`: it has no address.
fn request(api: &Api, other: &OtherWorker, sent: PassedOn<'_>) -> Option<Request<Body>> {
    let target = sent.parts.uri.path_and_query().map_or("/", |target| target.as_str());
    let seal = credential::sealed(api.secret(), &other.id, sent.caller, &sent.parts.method, target);
    let uri = format!("{}{target}", other.address.as_ref()?);
    let mut request = Request::builder().method(sent.parts.method.clone()).uri(uri).body(sent.body).ok()?;
    let kept = |name: &HeaderName| !LEFT_OUT.contains(name) && name != PAGE_KEY && name != CONTENT_LENGTH;
    let headers = sent.parts.headers.iter().filter(|(name, _)| kept(name));
    request.headers_mut().extend(headers.map(|(name, value)| (name.clone(), value.clone())));
    request.headers_mut().insert(credential::HEADER, HeaderValue::try_from(seal).ok()?);
    Some(request)
}

/// Waits until a worker that was alive is no longer.
async fn is_gone(api: &Api, worker: &str) {
    let every = Duration::from_millis(api.runtime().limits().heartbeat_ms);
    // It may have begun after this one looked.
    let mut was_alive = false;
    loop {
        sleep(every).await;
        let is_alive = api.runtime().is_worker_alive(worker);
        if was_alive && !is_alive {
            return;
        }
        was_alive |= is_alive;
    }
}

/// The answer of another worker as this one's.
fn passed_back(api: &Api, answer: hyper::Response<Incoming>, ends: StreamEnds) -> Response {
    let (mut head, body) = answer.into_parts();
    let is_not_here = head.headers.remove(NOT_HERE).is_some();
    for name in LEFT_OUT_OF_ANSWERS {
        head.headers.remove(name);
    }
    let is_stream = is_event_stream(&head.headers);
    let body = if is_stream {
        if let Some(guest) = &ends.guest {
            guest.stays();
        }
        let keepalive = Duration::from_millis(api.runtime().limits().event_keepalive_ms);
        let stream = PassedStream { body, ends, silence: keepalive * SILENT_TIMES };
        Body::new(PulledBody::new(stream, PassedStream::next))
    } else {
        Body::new(body)
    };
    let mut response = Response::from_parts(head, body);
    if is_not_here {
        response.extensions_mut().insert(NotHere);
    }
    response
}

/// The header by which a worker tells another that it did nothing, and should ask elsewhere.
pub(crate) const NOT_HERE: &str = "x-windlass-not-here";

fn is_event_stream(headers: &HeaderMap) -> bool {
    headers.get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"))
}

/// An event stream of another worker. It ends with this server, and when nothing comes of it any more.
struct PassedStream {
    body: Incoming,
    ends: StreamEnds,
    silence: Duration,
}

/// How the event stream of another worker ends.
struct StreamEnds {
    /// The client, which may be told to go.
    guest: Option<Guest>,
    /// Sent if it breaks off.
    last_word: Option<Bytes>,
}

impl PassedStream {
    async fn next(mut self) -> StreamPiece<PassedStream> {
        let guest = self.ends.guest.clone();
        let going = async {
            match &guest {
                Some(guest) => guest.told_to_go().await,
                None => std::future::pending().await,
            }
        };
        let frame = tokio::select! {
            biased;
            () = going => return None,
            frame = timeout(self.silence, self.body.frame()) => frame,
        };
        let frame = match frame {
            Ok(Some(Ok(frame))) => frame,
            Ok(None) => return None,
            Ok(Some(Err(_))) | Err(_) => return self.ends.last_word.map(|word| (word, None)),
        };
        let piece = frame.into_data().unwrap_or_else(|_| Bytes::new());
        Some((piece, Some(self)))
    }
}
