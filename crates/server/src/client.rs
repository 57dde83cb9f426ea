//! The API's client: asks the owner of a folder through its socket, or a server at an address.

mod grants;
pub mod mcp;
mod people;
mod toolboxes;
mod webhooks;

use crate::events::Follow;
use crate::following::Following;
use crate::problem::Problem;
use crate::socket;
use crate::wire::background::{EmittedEvent, EventBody, NoticeBody, PostedNotice};
use crate::wire::logins::{LoginCodeBody, LoginCodeView};
use crate::wire::policy::{PolicyBody, PolicyCheckBody};
use crate::wire::schedules::{EditSchedule, ScheduleBody};
use crate::wire::shown::{NewTokenView, PageView, Revoked, SessionView, TokenView};
use crate::wire::triggers::TriggerBody;
use crate::wire::turns::{BatchQuery, TurnAnswer};
use crate::wire::{
    Acknowledged, BatchBody, BatchCancelBody, CallQuery, CancelBody, Cancelled, CompletionBody,
    CompletionReceipt, Connect, ConnectionReach, Deleted, NewSecret, NewToken, Nothing, Paging, Requeued,
    ResolveBody, SaidTo, SayBody, SignalBody, SignalReceipt, Take,
};
use axum::body::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::header::{AUTHORIZATION, HOST};
use hyper::{Method, Request, Response, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use windlass::ask::Target;
use windlass::secrets::SecretEntry;

/// Larger than a page of calls with large answers.
const ANSWER_BYTES_MAX: usize = 256 << 20;
/// An owner that takes longer has stopped.
const ANSWER_WAIT: Duration = Duration::from_secs(30);
/// How long to wait for a change of the policy: all workers of the server confirm it first.
const POLICY_WAIT: Duration = Duration::from_secs(90);
/// A tool that is asked about a call may take long.
const TOOL_WAIT: Duration = Duration::from_secs(15 * 60);

/// Characters that need no escaping in a path.
const LITERAL: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// A client of the process that drives calls.
pub struct Client {
    whom: Whom,
}

/// The peer of a client.
enum Whom {
    /// The owner of this folder.
    Owner(PathBuf),
    /// The server at this address, with this token.
    Server { authority: String, token: Option<String> },
}

/// A request that failed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The peer refused, or the object does not exist.
    #[error(transparent)]
    Problem(#[from] Problem),
    /// The peer is unreachable, or went away.
    #[error("{whom}; if it has exited since, try again")]
    Unreachable {
        /// The peer and its address.
        whom: String,
        /// The cause.
        #[source]
        source: ClientFailure,
    },
    /// The answer is not Windlass's, or another version's.
    #[error("{whom} gave an invalid answer: {what}; is it another version?")]
    Garbled {
        /// The peer.
        whom: String,
        /// The mismatch.
        what: String,
    },
    /// The URL is not a server's address.
    #[error("{url:?} is not the address of a server: {what}")]
    NoAddress {
        /// The URL.
        url: String,
        /// The mistake.
        what: &'static str,
    },
}

/// A connection to the peer.
trait ClientStream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> ClientStream for T {}

impl Client {
    /// A client of the process that serves this folder's socket; `None` if there is none.
    pub async fn find(folder: &Path) -> Result<Option<Client>, ClientError> {
        let client = Client { whom: Whom::Owner(folder.to_path_buf()) };
        let found = socket::connect(folder).await.map_err(|error| client.unreachable(error))?;
        Ok(found.map(|_| client))
    }

    /// A client of the server at `http://HOST:PORT`. Sends nothing yet.
    pub fn at(url: &str, token: Option<String>) -> Result<Client, ClientError> {
        let no_address = |what| ClientError::NoAddress { url: url.to_string(), what };
        let uri: Uri = url.parse().map_err(|_| no_address("write it as http://HOST:PORT"))?;
        match uri.scheme_str() {
            Some("http") => {}
            Some("https") => {
                return Err(no_address("only plain http is supported; use the address behind the TLS proxy"));
            }
            _ => return Err(no_address("write it as http://HOST:PORT")),
        }
        if !matches!(uri.path_and_query().map(|path| path.as_str()), None | Some("/")) {
            return Err(no_address("leave out everything after the port"));
        }
        let host = uri.host().ok_or_else(|| no_address("write it as http://HOST:PORT"))?;
        let authority = format!("{host}:{}", uri.port_u16().unwrap_or(80));
        Ok(Client { whom: Whom::Server { authority, token } })
    }

    /// Submits a batch; returns its state after the wait.
    pub async fn submit(&self, session: &str, batch: &BatchBody) -> Result<Value, ClientError> {
        let wait = Duration::from_millis(batch.timeout_ms.unwrap_or(0)) + ANSWER_WAIT;
        self.post(format!("/v1/sessions/{}/batches", encoded(session)), batch, wait).await
    }

    /// Posts a model provider's response; returns the messages to append after the wait.
    pub async fn submit_response(
        &self,
        session: &str,
        asked: &BatchQuery,
        response: &str,
    ) -> Result<TurnAnswer, ClientError> {
        let wait = Duration::from_millis(asked.timeout_ms.unwrap_or(0)) + ANSWER_WAIT;
        let word = |value: Value| value.as_str().map(str::to_owned);
        let fields = [
            ("wire", asked.wire.map(|wire| json!(wire)).and_then(word)),
            ("turn", asked.turn.clone()),
            ("key", asked.key.clone()),
            ("wait", asked.wait.map(|wait| json!(wait)).and_then(word)),
            ("timeout_ms", asked.timeout_ms.map(|ms| ms.to_string())),
        ];
        let path = format!("/v1/sessions/{}/batches?{}", encoded(session), query(fields));
        self.ask(self.request(Method::POST, path, Bytes::from(response.to_owned())), wait).await
    }

    /// A page of sessions.
    pub async fn sessions(&self, paging: &Paging) -> Result<PageView<SessionView>, ClientError> {
        self.get(format!("/v1/sessions?{}", paged(paging))).await
    }

    /// A page of tools.
    pub async fn tools(&self, paging: &Paging) -> Result<PageView<Value>, ClientError> {
        self.get(format!("/v1/tools?{}", paged(paging))).await
    }

    /// The policy in force.
    pub async fn policy(&self) -> Result<Value, ClientError> {
        self.get("/v1/policy".to_string()).await
    }

    /// Replaces the rules of the policy that were set before. Waits for all workers of the server.
    pub async fn set_policy(&self, wanted: &PolicyBody) -> Result<Value, ClientError> {
        self.send(Method::PUT, "/v1/policy".to_string(), wanted, POLICY_WAIT).await
    }

    /// A page of the versions of the policy, newest first.
    pub async fn policy_versions(&self, paging: &Paging) -> Result<Value, ClientError> {
        self.get(format!("/v1/policy/versions?{}", paged(paging))).await
    }

    /// The ruling of the policy on a call that is not made.
    pub async fn check_policy(&self, asked: &PolicyCheckBody) -> Result<Value, ClientError> {
        self.post("/v1/policy/check".to_string(), asked, ANSWER_WAIT).await
    }

    /// A page of tokens.
    pub async fn tokens(&self, paging: &Paging) -> Result<PageView<TokenView>, ClientError> {
        self.get(format!("/v1/tokens?{}", paged(paging))).await
    }

    /// Creates a token.
    pub async fn make_token(&self, wanted: &NewToken) -> Result<NewTokenView, ClientError> {
        self.post("/v1/tokens".to_string(), wanted, ANSWER_WAIT).await
    }

    /// Creates a code that logs a browser in.
    pub async fn make_login(&self, wanted: &LoginCodeBody) -> Result<LoginCodeView, ClientError> {
        self.post("/v1/logins".to_string(), wanted, ANSWER_WAIT).await
    }

    /// Revokes a token.
    pub async fn revoke_token(&self, id: &str) -> Result<Revoked, ClientError> {
        let path = format!("/v1/tokens/{}", encoded(id));
        self.ask(self.request(Method::DELETE, path, Bytes::new()), ANSWER_WAIT).await
    }

    /// A page of the names of secrets, of one session or of all.
    pub async fn secrets(
        &self,
        session: Option<&str>,
        paging: &Paging,
    ) -> Result<PageView<SecretEntry>, ClientError> {
        self.get(format!("{}?{}", secrets_path(session), paged(paging))).await
    }

    /// Stores a secret.
    pub async fn set_secret(
        &self,
        session: Option<&str>,
        name: &str,
        secret: &NewSecret,
    ) -> Result<SecretEntry, ClientError> {
        let path = format!("{}/{}", secrets_path(session), encoded(name));
        let body = serde_json::to_vec(secret).unwrap_or_default();
        self.ask(self.request(Method::PUT, path, body.into()), ANSWER_WAIT).await
    }

    /// Removes a secret.
    pub async fn remove_secret(&self, session: Option<&str>, name: &str) -> Result<Deleted, ClientError> {
        let path = format!("{}/{}", secrets_path(session), encoded(name));
        self.ask(self.request(Method::DELETE, path, Bytes::new()), ANSWER_WAIT).await
    }

    /// A page of calls, of one session or of all.
    pub async fn calls(&self, session: Option<&str>, list: &CallQuery) -> Result<Value, ClientError> {
        let path = match session {
            Some(session) => format!("/v1/sessions/{}/calls", encoded(session)),
            None => "/v1/calls".to_string(),
        };
        // Destructured, so that no field is forgotten.
        let CallQuery { state, waiting, tool, turn, limit, after } = list;
        let fields = [
            ("state", state.map(|state| state.as_str().to_string())),
            ("waiting", waiting.map(|waiting| waiting.to_string())),
            ("tool", tool.clone()),
            ("turn", turn.clone()),
            ("limit", limit.map(|limit| limit.to_string())),
            ("after", after.clone()),
        ];
        self.get(format!("{path}?{}", query(fields))).await
    }

    /// One call.
    pub async fn call(&self, call: &str, journal: bool) -> Result<Value, ClientError> {
        self.get(format!("/v1/calls/{}?journal={journal}", encoded(call))).await
    }

    /// Cancels calls.
    pub async fn cancel(&self, target: Target<'_>, reason: Option<String>) -> Result<Cancelled, ClientError> {
        let path = match target {
            Target::Call(call) => format!("/v1/calls/{}/cancel", encoded(call)),
            Target::Session(session) => format!("/v1/sessions/{}/cancel", encoded(session)),
            Target::Batch { session, key } => {
                format!("/v1/sessions/{}/batches/{}/cancel", encoded(session), encoded(key))
            }
            Target::CallOf { session, key, id } => {
                let path = format!("/v1/sessions/{}/batches/{}/cancel", encoded(session), encoded(key));
                let body = BatchCancelBody { reason, id: Some(id.to_string()) };
                return self.post(path, &body, ANSWER_WAIT).await;
            }
        };
        self.post(path, &CancelBody { reason }, ANSWER_WAIT).await
    }

    /// Resolves a call that ended as unknown; returns the call.
    pub async fn resolve(&self, call: &str, resolve: &ResolveBody) -> Result<Value, ClientError> {
        let wait = if resolve.ask_tool { TOOL_WAIT } else { ANSWER_WAIT };
        self.post(format!("/v1/calls/{}/resolve", encoded(call)), resolve, wait).await
    }

    /// Lets a call continue although its tool has changed; returns the call.
    pub async fn accept(&self, call: &str) -> Result<Value, ClientError> {
        self.post(format!("/v1/calls/{}/accept", encoded(call)), &Nothing {}, ANSWER_WAIT).await
    }

    /// Completes a wait by its key.
    pub async fn complete(
        &self,
        key: &str,
        complete: &CompletionBody,
    ) -> Result<CompletionReceipt, ClientError> {
        self.post(format!("/v1/completions/{}", encoded(key)), complete, ANSWER_WAIT).await
    }

    /// Posts the result of a tool that its caller runs, under the call's handle.
    pub async fn client_result(
        &self,
        call: &str,
        result: &CompletionBody,
    ) -> Result<CompletionReceipt, ClientError> {
        self.post(format!("/v1/calls/{}/result", encoded(call)), result, ANSWER_WAIT).await
    }

    /// A page of a session's tasks.
    pub async fn tasks(&self, session: &str, paging: &Paging) -> Result<Value, ClientError> {
        self.get(format!("/v1/sessions/{}/tasks?{}", encoded(session), paged(paging))).await
    }

    /// A page of a task's log.
    pub async fn log(&self, session: &str, task: &str, paging: &Paging) -> Result<Value, ClientError> {
        let path = format!("/v1/sessions/{}/tasks/{}/log", encoded(session), encoded(task));
        self.get(format!("{path}?{}", paged(paging))).await
    }

    /// The messages to and from a task.
    pub async fn messages(&self, session: &str, task: &str) -> Result<Value, ClientError> {
        self.get(format!("/v1/sessions/{}/tasks/{}/messages", encoded(session), encoded(task))).await
    }

    /// Sends a message to a task.
    pub async fn say(&self, session: &str, task: &str, said: &SayBody) -> Result<SaidTo, ClientError> {
        let path = format!("/v1/sessions/{}/tasks/{}/messages", encoded(session), encoded(task));
        self.post(path, said, ANSWER_WAIT).await
    }

    /// A page of a session's inbox.
    pub async fn inbox(&self, session: &str, paging: &Paging) -> Result<Value, ClientError> {
        self.get(format!("/v1/sessions/{}/inbox?{}", encoded(session), paged(paging))).await
    }

    /// Takes notices.
    pub async fn take(&self, session: &str, take: &Take) -> Result<Value, ClientError> {
        self.post(format!("/v1/sessions/{}/inbox/take", encoded(session)), take, ANSWER_WAIT).await
    }

    /// Acknowledges a notice.
    pub async fn acknowledge(&self, session: &str, id: &str) -> Result<Acknowledged, ClientError> {
        let path = format!("/v1/sessions/{}/inbox/{}/ack", encoded(session), encoded(id));
        self.post(path, &Nothing {}, ANSWER_WAIT).await
    }

    /// Returns a notice to the inbox.
    pub async fn requeue(&self, session: &str, id: &str) -> Result<Requeued, ClientError> {
        let path = format!("/v1/sessions/{}/inbox/{}/requeue", encoded(session), encoded(id));
        self.post(path, &Nothing {}, ANSWER_WAIT).await
    }

    /// A page of a session's schedules.
    pub async fn schedules(&self, session: &str, paging: &Paging) -> Result<Value, ClientError> {
        self.get(format!("{}?{}", schedules(session), paged(paging))).await
    }

    /// Creates a schedule.
    pub async fn make_schedule(&self, session: &str, new: &ScheduleBody) -> Result<Value, ClientError> {
        self.post(schedules(session), new, ANSWER_WAIT).await
    }

    /// Changes a schedule.
    pub async fn edit_schedule(
        &self,
        session: &str,
        id: &str,
        edit: &EditSchedule,
    ) -> Result<Value, ClientError> {
        let path = format!("{}/{}", schedules(session), encoded(id));
        self.send(Method::PATCH, path, edit, ANSWER_WAIT).await
    }

    /// Removes a schedule.
    pub async fn remove_schedule(&self, session: &str, id: &str) -> Result<Value, ClientError> {
        let path = format!("{}/{}", schedules(session), encoded(id));
        self.ask(self.request(Method::DELETE, path, Bytes::new()), ANSWER_WAIT).await
    }

    /// A page of a session's triggers.
    pub async fn triggers(&self, session: &str, paging: &Paging) -> Result<Value, ClientError> {
        self.get(format!("{}?{}", triggers(session), paged(paging))).await
    }

    /// Creates a trigger.
    pub async fn make_trigger(&self, session: &str, new: &TriggerBody) -> Result<Value, ClientError> {
        self.post(triggers(session), new, ANSWER_WAIT).await
    }

    /// Removes a trigger.
    pub async fn remove_trigger(&self, session: &str, id: &str) -> Result<Value, ClientError> {
        let path = format!("{}/{}", triggers(session), encoded(id));
        self.ask(self.request(Method::DELETE, path, Bytes::new()), ANSWER_WAIT).await
    }

    /// Emits an event.
    pub async fn emit(&self, session: &str, event: &EventBody) -> Result<EmittedEvent, ClientError> {
        self.post(format!("/v1/sessions/{}/events", encoded(session)), event, ANSWER_WAIT).await
    }

    /// Fulfils a named event.
    pub async fn fulfil(
        &self,
        session: &str,
        event: &str,
        answer: &CompletionBody,
    ) -> Result<CompletionReceipt, ClientError> {
        let path = format!("/v1/sessions/{}/awaited/{}", encoded(session), encoded(event));
        self.post(path, answer, ANSWER_WAIT).await
    }

    /// Posts a notice.
    pub async fn post_notice(&self, session: &str, notice: &NoticeBody) -> Result<PostedNotice, ClientError> {
        self.post(format!("/v1/sessions/{}/inbox", encoded(session)), notice, ANSWER_WAIT).await
    }

    /// Sends a signal to a call.
    pub async fn signal(&self, call: &str, signal: &SignalBody) -> Result<SignalReceipt, ClientError> {
        self.post(format!("/v1/calls/{}/signal", encoded(call)), signal, ANSWER_WAIT).await
    }

    /// Reports whether a session is connected to a provider.
    pub async fn connect(
        &self,
        session: &str,
        provider: &str,
        connected: bool,
    ) -> Result<ConnectionReach, ClientError> {
        let path = format!("/v1/sessions/{}/connections/{}", encoded(session), encoded(provider));
        self.post(path, &Connect { connected }, ANSWER_WAIT).await
    }

    /// Follows the events of a session, after a cursor or from now on.
    pub async fn follow(&self, session: &str, follow: &Follow) -> Result<Following, ClientError> {
        let Follow { after, locale } = follow;
        let fields = [("after", after.map(|after| after.to_string())), ("locale", locale.clone())];
        let path = format!("/v1/sessions/{}/events?{}", encoded(session), query(fields));
        let request = self.request(Method::GET, path, Bytes::new());
        let request = request.map_err(|error| self.garbled(error.to_string()))?;
        let stream = self.connect_to().await.map_err(|error| self.unreachable(error))?;
        let response = tokio::time::timeout(ANSWER_WAIT, ask(stream, request)).await;
        let response = response.map_err(|late| self.unreachable(late))?;
        let response = response.map_err(|source| self.unreachable(source))?;
        if response.status().is_success() {
            return Ok(Following::new(response.into_body()));
        }
        let status = response.status();
        let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await;
        let body = body.map_err(|source| self.unreachable(source))?;
        Err(self.refused(status, &body.to_bytes()))
    }

    async fn get<T: DeserializeOwned>(&self, path: String) -> Result<T, ClientError> {
        self.ask(self.request(Method::GET, path, Bytes::new()), ANSWER_WAIT).await
    }

    async fn post<T: DeserializeOwned>(
        &self,
        path: String,
        body: &impl Serialize,
        wait: Duration,
    ) -> Result<T, ClientError> {
        self.send(Method::POST, path, body, wait).await
    }

    async fn send<T: DeserializeOwned>(
        &self,
        method: Method,
        path: String,
        body: &impl Serialize,
        wait: Duration,
    ) -> Result<T, ClientError> {
        let body = serde_json::to_vec(body).map_err(|error| self.garbled(error.to_string()))?;
        self.ask(self.request(method, path, body.into()), wait).await
    }

    async fn ask<T: DeserializeOwned>(
        &self,
        request: RequestResult,
        wait: Duration,
    ) -> Result<T, ClientError> {
        let request = request.map_err(|error| self.garbled(error.to_string()))?;
        let stream = self.connect_to().await.map_err(|error| self.unreachable(error))?;
        let (status, body) = tokio::time::timeout(wait, exchange(stream, request))
            .await
            .map_err(|late| self.unreachable(late))?
            .map_err(|source| ClientError::Unreachable { whom: self.silent(), source })?;
        if status.is_success() {
            return serde_json::from_slice(&body).map_err(|error| self.garbled(error.to_string()));
        }
        Err(self.refused(status, &body))
    }

    fn refused(&self, status: StatusCode, body: &[u8]) -> ClientError {
        let problem = serde_json::from_slice::<Problem>(body);
        problem.map_or_else(|_| self.garbled(format!("status {status}")), ClientError::Problem)
    }

    async fn connect_to(&self) -> io::Result<Box<dyn ClientStream>> {
        match &self.whom {
            Whom::Owner(folder) => {
                let stream = socket::connect(folder).await?;
                Ok(Box::new(stream.ok_or(io::ErrorKind::NotFound)?))
            }
            Whom::Server { authority, .. } => Ok(Box::new(TcpStream::connect(authority).await?)),
        }
    }

    fn request(&self, method: Method, path: String, body: Bytes) -> RequestResult {
        let request = Request::builder().method(method).uri(path);
        let request = match &self.whom {
            Whom::Owner(_) => request.header(HOST, "windlass"),
            Whom::Server { authority, token } => {
                let request = request.header(HOST, authority);
                match token {
                    Some(token) => request.header(AUTHORIZATION, format!("Bearer {token}")),
                    None => request,
                }
            }
        };
        request.body(Full::new(body))
    }

    fn shown(&self) -> String {
        match &self.whom {
            Whom::Owner(folder) => format!("the owner of {}", folder.display()),
            Whom::Server { authority, .. } => format!("the server at {authority}"),
        }
    }

    fn silent(&self) -> String {
        match &self.whom {
            Whom::Owner(_) => format!("{} does not answer at control.sock", self.shown()),
            Whom::Server { .. } => format!("{} does not answer", self.shown()),
        }
    }

    fn unreachable(&self, source: impl Into<ClientFailure>) -> ClientError {
        ClientError::Unreachable { whom: self.silent(), source: source.into() }
    }

    fn garbled(&self, what: String) -> ClientError {
        ClientError::Garbled { whom: self.shown(), what }
    }
}

type ClientFailure = Box<dyn std::error::Error + Send + Sync>;
type RequestResult = Result<Request<Full<Bytes>>, hyper::http::Error>;

async fn ask(
    stream: Box<dyn ClientStream>,
    request: Request<Full<Bytes>>,
) -> Result<Response<Incoming>, ClientFailure> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    // The task carries the request and ends with the answer.
    tokio::spawn(connection);
    Ok(sender.send_request(request).await?)
}

async fn exchange(
    stream: Box<dyn ClientStream>,
    request: Request<Full<Bytes>>,
) -> Result<(StatusCode, Bytes), ClientFailure> {
    let response = ask(stream, request).await?;
    let status = response.status();
    let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await?;
    Ok((status, body.to_bytes()))
}

fn triggers(session: &str) -> String {
    format!("/v1/sessions/{}/triggers", encoded(session))
}

fn schedules(session: &str) -> String {
    format!("/v1/sessions/{}/schedules", encoded(session))
}

/// The path of secrets, of one session or of all.
fn secrets_path(session: Option<&str>) -> String {
    match session {
        Some(session) => format!("/v1/sessions/{}/secrets", encoded(session)),
        None => "/v1/secrets".to_string(),
    }
}

fn paged(Paging { limit, after }: &Paging) -> String {
    query([("limit", limit.map(|limit| limit.to_string())), ("after", after.clone())])
}

/// The query string.
fn query<const N: usize>(fields: [(&str, Option<String>); N]) -> String {
    let said = fields.into_iter().filter_map(|(name, value)| Some(format!("{name}={}", encoded(&value?))));
    said.collect::<Vec<_>>().join("&")
}

fn encoded(text: &str) -> String {
    utf8_percent_encode(text, LITERAL).to_string()
}
