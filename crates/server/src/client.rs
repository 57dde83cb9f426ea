//! Asking the owner of a folder, through its socket.

use crate::problem::Problem;
use crate::socket;
use crate::wire::{
    Answer, Cancel, Cancelled, Complete, Completed, Connect, Connecting, List, Nothing, Questions, Resolve,
    Signal, Signalled,
};
use axum::body::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1;
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::net::UnixStream;
use windlass::Target;

/// A page of calls with large answers is still smaller.
const ANSWER_BYTES_MAX: usize = 256 << 20;
/// An owner that answers later has stopped.
const ANSWER_WAIT: Duration = Duration::from_secs(30);
/// A tool that is asked about a call may take its time.
const TOOL_WAIT: Duration = Duration::from_secs(15 * 60);

/// Letters that stand for themselves in a path.
const LITERAL: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Asks the owner of a folder.
pub struct Client {
    folder: PathBuf,
}

/// Why the owner was not asked, or what it answered instead.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// It refused, or there is no such thing.
    #[error(transparent)]
    Problem(#[from] Problem),
    /// It cannot be reached, or went away.
    #[error("the owner of {folder} does not answer at control.sock; if it ended by now, try again")]
    Unreachable {
        /// The folder.
        folder: String,
        /// What happened.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Something else than Windlass answered, or another version of it.
    #[error("the owner of {folder} gave an answer that is not understood: {what}; is it another version?")]
    Garbled {
        /// The folder.
        folder: String,
        /// What is wrong with it.
        what: String,
    },
}

impl Client {
    /// Whoever serves the socket of this folder; `None` if nobody does.
    pub async fn find(folder: &Path) -> Result<Option<Client>, ClientError> {
        let client = Client { folder: folder.to_path_buf() };
        let found = socket::connect(folder).await.map_err(|error| client.unreachable(error))?;
        Ok(found.map(|_| client))
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

    async fn get<T: DeserializeOwned>(&self, path: String) -> Result<T, ClientError> {
        self.ask(request(Method::GET, path, Bytes::new()), ANSWER_WAIT).await
    }

    async fn post<T: DeserializeOwned>(
        &self,
        path: String,
        body: &impl Serialize,
        wait: Duration,
    ) -> Result<T, ClientError> {
        let body = serde_json::to_vec(body).map_err(|error| self.garbled(error.to_string()))?;
        self.ask(request(Method::POST, path, body.into()), wait).await
    }

    async fn ask<T: DeserializeOwned>(
        &self,
        request: Result<Request<Full<Bytes>>, hyper::http::Error>,
        wait: Duration,
    ) -> Result<T, ClientError> {
        let request = request.map_err(|error| self.garbled(error.to_string()))?;
        let stream = socket::connect(&self.folder).await.map_err(|error| self.unreachable(error))?;
        let stream =
            stream.ok_or_else(|| self.unreachable(std::io::Error::from(std::io::ErrorKind::NotFound)))?;
        let (status, body) = tokio::time::timeout(wait, exchange(stream, request))
            .await
            .map_err(|late| self.unreachable(late))?
            .map_err(|source| ClientError::Unreachable { folder: self.shown(), source })?;
        if status.is_success() {
            return serde_json::from_slice(&body).map_err(|error| self.garbled(error.to_string()));
        }
        let problem = serde_json::from_slice::<Problem>(&body);
        Err(problem.map_or_else(|_| self.garbled(format!("status {status}")), ClientError::Problem))
    }

    fn shown(&self) -> String {
        self.folder.display().to_string()
    }

    fn unreachable(&self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> ClientError {
        ClientError::Unreachable { folder: self.shown(), source: source.into() }
    }

    fn garbled(&self, what: String) -> ClientError {
        ClientError::Garbled { folder: self.shown(), what }
    }
}

type Failed = Box<dyn std::error::Error + Send + Sync>;

async fn exchange(stream: UnixStream, request: Request<Full<Bytes>>) -> Result<(StatusCode, Bytes), Failed> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    // It carries the request for us and ends with the sender.
    tokio::spawn(connection);
    let response = sender.send_request(request).await?;
    let status = response.status();
    let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await?;
    Ok((status, body.to_bytes()))
}

fn request(method: Method, path: String, body: Bytes) -> Result<Request<Full<Bytes>>, hyper::http::Error> {
    Request::builder().method(method).uri(path).header("host", "windlass").body(Full::new(body))
}

/// What stands behind the question mark.
fn query<const N: usize>(fields: [(&str, Option<String>); N]) -> String {
    let said = fields.into_iter().filter_map(|(name, value)| Some(format!("{name}={}", encoded(&value?))));
    said.collect::<Vec<_>>().join("&")
}

fn encoded(text: &str) -> String {
    utf8_percent_encode(text, LITERAL).to_string()
}
