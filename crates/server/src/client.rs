//! Asking whoever drives calls: the owner of a folder through its socket, or a server at an address.

use crate::events::Follow;
use crate::following::Following;
use crate::problem::Problem;
use crate::socket;
use crate::wire::schedules::{EditSchedule, NewSchedule};
use crate::wire::shown::{Made, Page, Revoked, Session, Token};
use crate::wire::triggers::NewTrigger;
use crate::wire::{
    Acknowledged, Answer, Batch, Cancel, Cancelled, Complete, Completed, Connect, Connecting, List, NewToken,
    Nothing, Paging, Questions, Requeued, Resolve, SaidTo, Say, Signal, Signalled, Take,
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
use serde_json::Value;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use windlass::Target;

/// A page of calls with large answers is still smaller.
const ANSWER_BYTES_MAX: usize = 256 << 20;
/// An owner that answers later has stopped.
const ANSWER_WAIT: Duration = Duration::from_secs(30);
/// A tool that is asked about a call may take its time.
const TOOL_WAIT: Duration = Duration::from_secs(15 * 60);

/// Letters that stand for themselves in a path.
const LITERAL: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Asks whoever drives calls.
pub struct Client {
    whom: Whom,
}

/// Who is asked.
enum Whom {
    /// The owner of this folder.
    Owner(PathBuf),
    /// The server at this address, with this token.
    Server { authority: String, token: Option<String> },
}

/// Why the owner was not asked, or what it answered instead.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// It refused, or there is no such thing.
    #[error(transparent)]
    Problem(#[from] Problem),
    /// It cannot be reached, or went away.
    #[error("{whom}; if it ended by now, try again")]
    Unreachable {
        /// Who does not answer, and where.
        whom: String,
        /// What happened.
        #[source]
        source: Failed,
    },
    /// Something else than Windlass answered, or another version of it.
    #[error("{whom} gave an answer that is not understood: {what}; is it another version?")]
    Garbled {
        /// Who answered.
        whom: String,
        /// What is wrong with it.
        what: String,
    },
    /// There is no asking at such an address.
    #[error("{url:?} is no address of a server: {what}")]
    NoAddress {
        /// What was given.
        url: String,
        /// What is wrong with it.
        what: &'static str,
    },
}

/// Any connection to whoever is asked.
trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

impl Client {
    /// Whoever serves the socket of this folder; `None` if nobody does.
    pub async fn find(folder: &Path) -> Result<Option<Client>, ClientError> {
        let client = Client { whom: Whom::Owner(folder.to_path_buf()) };
        let found = socket::connect(folder).await.map_err(|error| client.unreachable(error))?;
        Ok(found.map(|_| client))
    }

    /// The server at this address, `http://HOST:PORT`. Nobody is asked yet.
    pub fn at(url: &str, token: Option<String>) -> Result<Client, ClientError> {
        let no_address = |what| ClientError::NoAddress { url: url.to_string(), what };
        let uri: Uri = url.parse().map_err(|_| no_address("write it as http://HOST:PORT"))?;
        match uri.scheme_str() {
            Some("http") => {}
            Some("https") => return Err(no_address("this speaks plain http; ask at the proxy's inner side")),
            _ => return Err(no_address("write it as http://HOST:PORT")),
        }
        if !matches!(uri.path_and_query().map(|path| path.as_str()), None | Some("/")) {
            return Err(no_address("leave out what stands behind the port"));
        }
        let host = uri.host().ok_or_else(|| no_address("write it as http://HOST:PORT"))?;
        let authority = format!("{host}:{}", uri.port_u16().unwrap_or(80));
        Ok(Client { whom: Whom::Server { authority, token } })
    }

    /// Submits a batch; answers it as it stands after what it waits for.
    pub async fn submit(&self, session: &str, batch: &Batch) -> Result<Value, ClientError> {
        let wait = Duration::from_millis(batch.timeout_ms.unwrap_or(0)) + ANSWER_WAIT;
        self.post(format!("/v1/sessions/{}/batches", encoded(session)), batch, wait).await
    }

    /// A page of sessions.
    pub async fn sessions(&self, paging: &Paging) -> Result<Page<Session>, ClientError> {
        self.get(format!("/v1/sessions?{}", paged(paging))).await
    }

    /// A page of tools.
    pub async fn tools(&self, paging: &Paging) -> Result<Page<Value>, ClientError> {
        self.get(format!("/v1/tools?{}", paged(paging))).await
    }

    /// A page of tokens.
    pub async fn tokens(&self, paging: &Paging) -> Result<Page<Token>, ClientError> {
        self.get(format!("/v1/tokens?{}", paged(paging))).await
    }

    /// Makes a token.
    pub async fn make_token(&self, wanted: &NewToken) -> Result<Made, ClientError> {
        self.post("/v1/tokens".to_string(), wanted, ANSWER_WAIT).await
    }

    /// Makes a token worthless.
    pub async fn revoke_token(&self, id: &str) -> Result<Revoked, ClientError> {
        let path = format!("/v1/tokens/{}", encoded(id));
        self.ask(self.request(Method::DELETE, path, Bytes::new()), ANSWER_WAIT).await
    }

    /// A page of calls, of one session or of all.
    pub async fn calls(&self, session: Option<&str>, list: &List) -> Result<Value, ClientError> {
        let path = match session {
            Some(session) => format!("/v1/sessions/{}/calls", encoded(session)),
            None => "/v1/calls".to_string(),
        };
        // Taken apart, so that no field is forgotten.
        let List { state, waiting, tool, limit, after } = list;
        let fields = [
            ("state", state.map(|state| state.as_str().to_string())),
            ("waiting", waiting.map(|waiting| waiting.to_string())),
            ("tool", tool.clone()),
            ("limit", limit.map(|limit| limit.to_string())),
            ("after", after.clone()),
        ];
        self.get(format!("{path}?{}", query(fields))).await
    }

    /// One call.
    pub async fn call(&self, call: &str, journal: bool) -> Result<Value, ClientError> {
        self.get(format!("/v1/calls/{}?journal={journal}", encoded(call))).await
    }

    /// Asks calls to stop.
    pub async fn cancel(&self, target: Target<'_>, reason: Option<String>) -> Result<Cancelled, ClientError> {
        let path = match target {
            Target::Call(call) => format!("/v1/calls/{}/cancel", encoded(call)),
            Target::Session(session) => format!("/v1/sessions/{}/cancel", encoded(session)),
            Target::Batch { session, key } => {
                format!("/v1/sessions/{}/batches/{}/cancel", encoded(session), encoded(key))
            }
        };
        self.post(path, &Cancel { reason }, ANSWER_WAIT).await
    }

    /// Says how a call that ended as unknown ended after all; answers the call.
    pub async fn resolve(&self, call: &str, resolve: &Resolve) -> Result<Value, ClientError> {
        let wait = if resolve.ask_tool { TOOL_WAIT } else { ANSWER_WAIT };
        self.post(format!("/v1/calls/{}/resolve", encoded(call)), resolve, wait).await
    }

    /// Lets a call go on although its tool has changed; answers the call.
    pub async fn accept(&self, call: &str) -> Result<Value, ClientError> {
        self.post(format!("/v1/calls/{}/accept", encoded(call)), &Nothing {}, ANSWER_WAIT).await
    }

    /// Answers what a call waits for, by its key.
    pub async fn complete(&self, key: &str, complete: &Complete) -> Result<Completed, ClientError> {
        self.post(format!("/v1/completions/{}", encoded(key)), complete, ANSWER_WAIT).await
    }

    /// Posts the result of a tool that its caller runs, under the call.
    pub async fn client_result(&self, call: &str, result: &Complete) -> Result<Completed, ClientError> {
        self.post(format!("/v1/calls/{}/result", encoded(call)), result, ANSWER_WAIT).await
    }

    /// A page of the questions that wait for an answer.
    pub async fn questions(&self, list: &Questions) -> Result<Value, ClientError> {
        let Questions { session, limit, after } = list;
        let fields = [
            ("session", session.clone()),
            ("limit", limit.map(|limit| limit.to_string())),
            ("after", after.clone()),
        ];
        self.get(format!("/v1/questions?{}", query(fields))).await
    }

    /// Answers a question.
    pub async fn answer(&self, id: &str, answer: Value) -> Result<Completed, ClientError> {
        self.post(format!("/v1/questions/{}", encoded(id)), &Answer { answer }, ANSWER_WAIT).await
    }

    /// A page of a session's tasks.
    pub async fn tasks(&self, session: &str, paging: &Paging) -> Result<Value, ClientError> {
        self.get(format!("/v1/sessions/{}/tasks?{}", encoded(session), paged(paging))).await
    }

    /// A page of what a task has said.
    pub async fn log(&self, (session, task): (&str, &str), paging: &Paging) -> Result<Value, ClientError> {
        let path = format!("/v1/sessions/{}/tasks/{}/log", encoded(session), encoded(task));
        self.get(format!("{path}?{}", paged(paging))).await
    }

    /// What was said to a task and what it said.
    pub async fn messages(&self, (session, task): (&str, &str)) -> Result<Value, ClientError> {
        self.get(format!("/v1/sessions/{}/tasks/{}/messages", encoded(session), encoded(task))).await
    }

    /// Says something to a task.
    pub async fn say(&self, (session, task): (&str, &str), said: &Say) -> Result<SaidTo, ClientError> {
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

    /// A notice was heard.
    pub async fn acknowledge(&self, session: &str, id: &str) -> Result<Acknowledged, ClientError> {
        let path = format!("/v1/sessions/{}/inbox/{}/ack", encoded(session), encoded(id));
        self.post(path, &Nothing {}, ANSWER_WAIT).await
    }

    /// A notice was not heard.
    pub async fn requeue(&self, session: &str, id: &str) -> Result<Requeued, ClientError> {
        let path = format!("/v1/sessions/{}/inbox/{}/requeue", encoded(session), encoded(id));
        self.post(path, &Nothing {}, ANSWER_WAIT).await
    }

    /// A page of a session's schedules.
    pub async fn schedules(&self, session: &str, paging: &Paging) -> Result<Value, ClientError> {
        self.get(format!("{}?{}", schedules(session), paged(paging))).await
    }

    /// Makes a schedule.
    pub async fn make_schedule(&self, session: &str, new: &NewSchedule) -> Result<Value, ClientError> {
        self.post(schedules(session), new, ANSWER_WAIT).await
    }

    /// Changes a schedule.
    pub async fn edit_schedule(
        &self,
        (session, id): (&str, &str),
        edit: &EditSchedule,
    ) -> Result<Value, ClientError> {
        let path = format!("{}/{}", schedules(session), encoded(id));
        self.send((Method::PATCH, path), edit, ANSWER_WAIT).await
    }

    /// Removes a schedule.
    pub async fn remove_schedule(&self, (session, id): (&str, &str)) -> Result<Value, ClientError> {
        let path = format!("{}/{}", schedules(session), encoded(id));
        self.ask(self.request(Method::DELETE, path, Bytes::new()), ANSWER_WAIT).await
    }

    /// A page of a session's triggers.
    pub async fn triggers(&self, session: &str, paging: &Paging) -> Result<Value, ClientError> {
        self.get(format!("{}?{}", triggers(session), paged(paging))).await
    }

    /// Makes a trigger.
    pub async fn make_trigger(&self, session: &str, new: &NewTrigger) -> Result<Value, ClientError> {
        self.post(triggers(session), new, ANSWER_WAIT).await
    }

    /// Removes a trigger.
    pub async fn remove_trigger(&self, (session, id): (&str, &str)) -> Result<Value, ClientError> {
        let path = format!("{}/{}", triggers(session), encoded(id));
        self.ask(self.request(Method::DELETE, path, Bytes::new()), ANSWER_WAIT).await
    }

    /// Sends a signal to a call.
    pub async fn signal(&self, call: &str, signal: &Signal) -> Result<Signalled, ClientError> {
        self.post(format!("/v1/calls/{}/signal", encoded(call)), signal, ANSWER_WAIT).await
    }

    /// Says whether a session is connected to something.
    pub async fn connect(
        &self,
        session: &str,
        provider: &str,
        connected: bool,
    ) -> Result<Connecting, ClientError> {
        let path = format!("/v1/sessions/{}/connections/{}", encoded(session), encoded(provider));
        self.post(path, &Connect { connected }, ANSWER_WAIT).await
    }

    /// Follows what happens in a session, from behind a cursor or from now on.
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
        self.send((Method::POST, path), body, wait).await
    }

    async fn send<T: DeserializeOwned>(
        &self,
        (method, path): (Method, String),
        body: &impl Serialize,
        wait: Duration,
    ) -> Result<T, ClientError> {
        let body = serde_json::to_vec(body).map_err(|error| self.garbled(error.to_string()))?;
        self.ask(self.request(method, path, body.into()), wait).await
    }

    async fn ask<T: DeserializeOwned>(&self, request: Asking, wait: Duration) -> Result<T, ClientError> {
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

    async fn connect_to(&self) -> io::Result<Box<dyn Stream>> {
        match &self.whom {
            Whom::Owner(folder) => {
                let stream = socket::connect(folder).await?;
                Ok(Box::new(stream.ok_or(io::ErrorKind::NotFound)?))
            }
            Whom::Server { authority, .. } => Ok(Box::new(TcpStream::connect(authority).await?)),
        }
    }

    fn request(&self, method: Method, path: String, body: Bytes) -> Asking {
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

    fn unreachable(&self, source: impl Into<Failed>) -> ClientError {
        ClientError::Unreachable { whom: self.silent(), source: source.into() }
    }

    fn garbled(&self, what: String) -> ClientError {
        ClientError::Garbled { whom: self.shown(), what }
    }
}

type Failed = Box<dyn std::error::Error + Send + Sync>;
type Asking = Result<Request<Full<Bytes>>, hyper::http::Error>;

async fn ask(stream: Box<dyn Stream>, request: Request<Full<Bytes>>) -> Result<Response<Incoming>, Failed> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    // It carries the request for us and ends with the answer.
    tokio::spawn(connection);
    Ok(sender.send_request(request).await?)
}

async fn exchange(
    stream: Box<dyn Stream>,
    request: Request<Full<Bytes>>,
) -> Result<(StatusCode, Bytes), Failed> {
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

fn paged(Paging { limit, after }: &Paging) -> String {
    query([("limit", limit.map(|limit| limit.to_string())), ("after", after.clone())])
}

/// What stands behind the question mark.
fn query<const N: usize>(fields: [(&str, Option<String>); N]) -> String {
    let said = fields.into_iter().filter_map(|(name, value)| Some(format!("{name}={}", encoded(&value?))));
    said.collect::<Vec<_>>().join("&")
}

fn encoded(text: &str) -> String {
    utf8_percent_encode(text, LITERAL).to_string()
}
