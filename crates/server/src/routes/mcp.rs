//! The door for MCP clients: one message per POST, answered with JSON or as server-sent events. The protocol itself is
//! `windlass-mcp`'s; here are its headers, sessions and streams.

use super::HandlerResult;
use crate::access::{Caller, TokenScope};
use crate::api::Api;
use crate::extract::{Body, PathParams, QueryParams};
use crate::guest::Guest;
use crate::own_wakes::own_wakes;
use crate::problem::{Problem, ProblemCode};
use crate::undisturbed::undisturbed;
use crate::watched::WHOLE_BYTES_MAX;
use crate::wire::{McpList, McpQuery};
use crate::workers::NotHere;
use axum::body::Bytes;
use axum::extract::{FromRequest, Request, State};
use axum::response::{IntoResponse, Response};
use hyper::body::{Frame, SizeHint};
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE};
use hyper::{HeaderMap, StatusCode};
use serde_json::Value;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use windlass::sessions::SessionStanding;
use windlass::workers::OwnerPlace;
use windlass_mcp::{Conversation, Exchange, Gateway, Headers, McpListing, Visitor, session_name};

/// The name of a `windlass mcp`: it repeats its requests when the connection is cut.
pub const BRIDGE_HEADER: &str = "windlass-bridge";
/// Sent by `windlass mcp --approve`: forms in its client may approve calls.
pub const APPROVE_HEADER: &str = "windlass-approve";
/// How long the head of a response waits for its first message.
const HEAD_WAIT: Duration = Duration::from_millis(50);
/// Names under which the session of a caller was deleted.
const SESSIONS_MAX: u32 = 1_000;

pub async fn door(
    State(api): State<Api>,
    caller: Caller,
    QueryParams(asked): QueryParams<McpQuery>,
    request: Request,
) -> HandlerResult {
    answer(&api, &caller, McpDoor { session: None, asked }, request).await
}

pub async fn session_door(
    State(api): State<Api>,
    caller: Caller,
    PathParams(session): PathParams<String>,
    QueryParams(asked): QueryParams<McpQuery>,
    request: Request,
) -> HandlerResult {
    answer(&api, &caller, McpDoor { session: Some(session), asked }, request).await
}

/// A door, as its path names it.
struct McpDoor {
    session: Option<String>,
    asked: McpQuery,
}

impl McpDoor {
    /// The tools that it lists.
    fn listing(&self, api: &Api) -> McpListing {
        match self.asked.list {
            Some(McpList::All) => McpListing::All,
            Some(McpList::Search) => McpListing::Search,
            None => api.mcp_listing(),
        }
    }
}

async fn answer(api: &Api, caller: &Caller, door: McpDoor, request: Request) -> HandlerResult {
    let headers = headers(request.headers(), caller);
    let visitor = visitor(request.headers(), caller, door.listing(api));
    let guest = request.extensions().get::<Guest>().cloned();
    let message = match Body::<Value>::from_request(request, api).await {
        Ok(Body(message)) => message,
        Err(problem) if is_unreadable(&problem) => {
            return reply(problem.status, &Gateway::unreadable(&problem.detail), None);
        }
        Err(problem) => return Err(problem),
    };
    let session = match session_of(api, caller, door, &message).await {
        Ok(session) => session,
        Err(problem) => return Ok(for_client(&message, problem)),
    };
    let (gateway, visitor) = (api.mcp().clone(), Visitor { session, ..visitor });
    let taken = undisturbed(async move { Ok::<_, Problem>(gateway.take(visitor, &headers, message).await) });
    match taken.await? {
        Exchange::Taken => Ok(StatusCode::ACCEPTED.into_response()),
        Exchange::Answer { status, message, session_id } => reply(status, &message, session_id),
        Exchange::Stream(mut conversation) => {
            let first = tokio::select! {
                biased;
                first = own_wakes(conversation.next()) => Some(first),
                () = api.runtime().sleep(HEAD_WAIT) => None,
            };
            let is_answered = conversation.is_answered();
            let spoken = ConnectedConversation { conversation, guest };
            // A quick answer needs no stream.
            if let (true, Some(Some(message))) = (is_answered, &first) {
                let text = message.to_string();
                if text.len() as u64 <= WHOLE_BYTES_MAX {
                    return Ok(placed(message, whole(text, spoken)));
                }
            }
            Ok(stream(api, spoken, first))
        }
    }
}

/// The session of a message, which is the caller's from now on if the message makes calls.
async fn session_of(api: &Api, caller: &Caller, door: McpDoor, message: &Value) -> Result<String, Problem> {
    let session = match door.session {
        Some(session) => session,
        None => own_session(api, caller, message).await?,
    };
    if Gateway::uses_session(message) {
        api.takes_work()?;
        api.claim(caller, &session).await?;
        // Before an answer begins as a stream: then the request could wait for the next owner no more.
        if api.runtime().is_shared()
            && let Ok(OwnerPlace::Other(_)) = api.runtime().owner_of(&session).await
        {
            return Err(Problem::elsewhere());
        }
    } else if api.sessions().standing(&session).await? != SessionStanding::Unused {
        api.session(caller, &session).await?;
    }
    Ok(session)
}

/// A problem as the answer to a message: clients read that of a session which has another owner as an error of their request.
pub(crate) fn for_client(message: &Value, problem: Problem) -> Response {
    let Some(retry_after_ms) = problem.code.retry_after_ms() else { return problem.into_response() };
    let refused = Gateway::refused(message, problem.code.as_str(), &problem.detail, retry_after_ms);
    match refused.map(|answer| (reply(StatusCode::OK.as_u16(), &answer, None), answer)) {
        Some((Ok(response), answer)) => placed(&answer, response),
        Some((Err(problem), _)) => problem.into_response(),
        None => problem.into_response(),
    }
}

/// The event that ends an answer which broke off at another worker: clients wait for an answer that has begun.
pub(crate) fn last_word(message: &Value) -> Option<Bytes> {
    let moved = Problem::moved();
    let answer = Gateway::refused(
        message,
        moved.code.as_str(),
        &moved.detail,
        moved.retry_after_ms.unwrap_or_default(),
    )?;
    // It may have broken off in the middle of an event.
    Some([&b"\n\n"[..], &event(&answer)].concat().into())
}

/// Marks an answer if nothing was done because another worker has the session.
fn placed(answer: &Value, mut response: Response) -> Response {
    if Gateway::refusal(answer) == Some(ProblemCode::SessionElsewhere.as_str()) {
        response.extensions_mut().insert(NotHere);
    }
    response
}

pub async fn stream_door(
    State(api): State<Api>,
    caller: Caller,
    QueryParams(asked): QueryParams<McpQuery>,
    sent: HeaderMap,
) -> HandlerResult {
    listen(&api, &caller, McpDoor { session: None, asked }, &sent).await
}

pub async fn session_stream_door(
    State(api): State<Api>,
    caller: Caller,
    PathParams(session): PathParams<String>,
    QueryParams(asked): QueryParams<McpQuery>,
    sent: HeaderMap,
) -> HandlerResult {
    listen(&api, &caller, McpDoor { session: Some(session), asked }, &sent).await
}

/// The stream of messages that belong to no request: clients of the older era hear of changed tools there. All others are told that
/// there is none, as the protocol wants it.
async fn listen(api: &Api, caller: &Caller, door: McpDoor, sent: &HeaderMap) -> HandlerResult {
    let visitor = visitor(sent, caller, door.listing(api));
    let session = match door.session {
        Some(session) => session,
        None => own_session(api, caller, &Value::Null).await?,
    };
    if api.sessions().standing(&session).await? != SessionStanding::Unused {
        api.session(caller, &session).await?;
    }
    let visitor = Visitor { session, ..visitor };
    match api.mcp().listen(visitor, &headers(sent, caller)).await {
        Some(conversation) => Ok(stream(api, ConnectedConversation { conversation, guest: None }, None)),
        None => {
            let told = "this stream is for clients that have sent `initialize` and name its Mcp-Session-Id; others send POST";
            Err(Problem::new(ProblemCode::MethodNotAllowed, told))
        }
    }
}

/// Whether a problem is about the text of the message, and not about who sent it.
fn is_unreadable(problem: &Problem) -> bool {
    use ProblemCode::{BadBody, DuplicateKey, InexactNumber, InvalidJson, TooDeep};
    matches!(problem.code, BadBody | DuplicateKey | InexactNumber | InvalidJson | TooDeep)
}

/// The session of a caller that names none.
pub(crate) async fn own_session(api: &Api, caller: &Caller, message: &Value) -> Result<String, Problem> {
    for count in 1..=SESSIONS_MAX {
        let name = session_name(&caller.principal, message, count);
        if !matches!(api.sessions().standing(&name).await?, SessionStanding::Gone(_)) {
            return Ok(name);
        }
    }
    let told = format!("{SESSIONS_MAX} MCP sessions of this caller were deleted; name one: /mcp/SESSION");
    Err(Problem::new(ProblemCode::Gone, told))
}

fn headers(headers: &HeaderMap, caller: &Caller) -> Headers {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_string);
    Headers {
        version: text("mcp-protocol-version"),
        method: text("mcp-method"),
        name: text("mcp-name"),
        session_id: text("mcp-session-id"),
        key: text("idempotency-key"),
        params: params(headers),
        // The bridge speaks for a client on a pipe, which has no headers.
        are_required: caller.token.is_some(),
    }
}

/// The headers that repeat arguments. A value that is no text agrees with no argument.
fn params(headers: &HeaderMap) -> Vec<(String, String)> {
    let named = |(name, value): (&hyper::header::HeaderName, &hyper::header::HeaderValue)| {
        let name = name.as_str().strip_prefix("mcp-param-")?.to_string();
        Some((name, value.to_str().unwrap_or("=?base64?!?=").to_string()))
    };
    headers.iter().filter_map(named).collect()
}

/// The caller, without its session. Whoever is on the folder's own socket has all scopes, and must ask for that of approving:
/// agents must not approve their own calls.
fn visitor(headers: &HeaderMap, caller: &Caller, listing: McpListing) -> Visitor {
    let is_local = caller.token.is_none();
    Visitor {
        session: String::new(),
        principal: caller.principal.clone(),
        may_approve: caller.has(TokenScope::Approve) && (!is_local || headers.contains_key(APPROVE_HEADER)),
        may_answer: caller.has(TokenScope::Complete),
        listing,
        bridge: headers
            .get(BRIDGE_HEADER)
            .filter(|_| is_local)
            .and_then(|name| name.to_str().ok())
            .map(str::to_string),
    }
}

fn reply(status: u16, message: &Value, session_id: Option<String>) -> HandlerResult {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = (status, [(CONTENT_TYPE, "application/json")], message.to_string()).into_response();
    if let Some(id) = session_id.and_then(|id| id.parse().ok()) {
        response.headers_mut().insert("mcp-session-id", id);
    }
    Ok(response)
}

/// The messages of a conversation, of which the first may have been taken already.
fn stream(api: &Api, spoken: ConnectedConversation, first: Option<Option<Value>>) -> Response {
    let quiet = Duration::from_millis(api.runtime().limits().event_keepalive_ms.max(1));
    let head = [
        ("content-type", "text/event-stream"),
        (CACHE_CONTROL.as_str(), "no-store"),
        ("x-accel-buffering", "no"),
    ];
    let next: Pin<Box<dyn Future<Output = SpokenFrame> + Send>> = match first {
        Some(message) => Box::pin(std::future::ready(message.map(|told| (event(&told), spoken, quiet)))),
        None => Box::pin(frame(spoken, quiet)),
    };
    let body = SpokenBody { next, over: false };
    (head, axum::body::Body::new(body)).into_response()
}

/// An answer in one piece with its head. The connection is done with it before it is written, so a longer one is no such answer: its client
/// may leave in the middle, and a stream is asked for its end only once nearly all is written.
fn whole(text: String, spoken: ConnectedConversation) -> Response {
    let head = [(CONTENT_TYPE, "application/json"), (CACHE_CONTROL, "no-store")];
    let body = WholeAnswer { text: Some(text.into()), spoken };
    (head, axum::body::Body::new(body)).into_response()
}

/// The body of an answer in one piece. The connection drops it once it has taken the text, or because it broke before.
struct WholeAnswer {
    text: Option<Bytes>,
    spoken: ConnectedConversation,
}

impl hyper::body::Body for WholeAnswer {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.text.take().map(|text| Ok(Frame::data(text))))
    }

    fn is_end_stream(&self) -> bool {
        self.text.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.text.as_ref().map_or(0, |text| text.len() as u64))
    }
}

impl Drop for WholeAnswer {
    fn drop(&mut self) {
        let is_sent = self.text.is_none();
        // An answer for a client that has left is not delivered.
        if is_sent && !self.spoken.guest.as_ref().is_some_and(Guest::is_gone) {
            self.spoken.conversation.delivered();
        }
    }
}

/// The next frame, and the rest of the conversation; `None` at its end.
type SpokenFrame = Option<(Bytes, ConnectedConversation, Duration)>;

/// A conversation on a connection.
struct ConnectedConversation {
    conversation: Conversation,
    guest: Option<Guest>,
}

async fn frame(mut spoken: ConnectedConversation, quiet: Duration) -> SpokenFrame {
    // An answer for a client that has left is not delivered: nobody asks for the end of the conversation.
    if spoken.guest.as_ref().is_some_and(Guest::is_gone) {
        return None;
    }
    let frame = match tokio::time::timeout(quiet, spoken.conversation.next()).await {
        Ok(message) => event(&message?),
        Err(_) => Bytes::from_static(b":\n\n"),
    };
    Some((frame, spoken, quiet))
}

fn event(message: &Value) -> Bytes {
    format!("event: message\ndata: {message}\n\n").into()
}

/// A conversation as the body of a response. Its end is asked for once the answer was handed to the connection; a connection
/// that breaks before drops it.
struct SpokenBody {
    next: Pin<Box<dyn Future<Output = SpokenFrame> + Send>>,
    over: bool,
}

impl hyper::body::Body for SpokenBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.over {
            return Poll::Ready(None);
        }
        let Poll::Ready(spoken_frame) = self.next.as_mut().poll(cx) else { return Poll::Pending };
        match spoken_frame {
            Some((bytes, spoken, quiet)) => {
                self.next = Box::pin(frame(spoken, quiet));
                Poll::Ready(Some(Ok(Frame::data(bytes))))
            }
            None => {
                self.over = true;
                Poll::Ready(None)
            }
        }
    }
}
