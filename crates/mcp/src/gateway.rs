//! The gateway: takes the messages of clients, and answers them.

use crate::conversation::{Canceller, Conversation};
use crate::delivery::{DeliveryLines, HeldLine, LineName};
use crate::forms::OpenForms;
use crate::forward;
use crate::hello::{self, signed, with_cache_hints};
use crate::identity;
use crate::list::{CALL_TOOL, CANCEL_TASK, McpToolList, WAIT_TASK};
use crate::listen;
use crate::message::{self, METHOD_NOT_FOUND, Message, RpcError, RpcRequest};
use crate::peer::{self, Era, LEGACY, LegacySession, Peer};
use crate::people::AnsweredQuestions;
use crate::request::{CallIdentity, CallTask, McpCall, RequestState};
use crate::seal::{self, Purpose};
use crate::subscriptions::Subscriptions;
use crate::task;
use crate::upstream::Forwarding;
use serde_json::{Map, Value, json};
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::watch;
use windlass::tool::ToolSource;
use windlass::trace::TraceParent;
use windlass::{EffectClass, Runtime};
use windlass_tools::declared::McpListing;

/// A runtime as an MCP server. Cheap to clone; all clones are one.
#[derive(Clone)]
pub struct Gateway(Arc<GatewayParts>);

struct GatewayParts {
    runtime: Runtime,
    closing: watch::Receiver<bool>,
    lines: Arc<DeliveryLines>,
    /// The requests under way that their clients can cancel by id, each by its conversation with us.
    running: Mutex<HashMap<(String, String), Canceller>>,
    /// When the last request began or ended.
    last_at: Mutex<Instant>,
    /// The forms that clients of the older era show.
    forms: Arc<OpenForms>,
    /// The questions that clients have answered a moment ago.
    answered: AnsweredQuestions,
    /// The tools of which the log says that they cannot be offered.
    told: Mutex<HashSet<String>>,
    /// The servers whose prompts and resources clients get.
    forwarding: OnceLock<Forwarding>,
    /// The resources whose changes clients of the older era hear of.
    subscriptions: Subscriptions,
}

/// The caller of a request, as whoever took the message knows it.
#[derive(Clone, Debug)]
pub struct Visitor {
    /// The session of its calls, which the caller may use.
    pub session: String,
    /// Its principal.
    pub principal: Arc<str>,
    /// Whether a form in its client may approve calls.
    pub may_approve: bool,
    /// Whether a form in its client may answer questions.
    pub may_answer: bool,
    /// The tools that its door lists.
    pub listing: McpListing,
    /// The name of the bridge that speaks for it, if there is one: it sends its requests again when the connection is cut.
    pub bridge: Option<String>,
}

/// The headers that came with a message.
#[derive(Clone, Debug, Default)]
pub struct Headers {
    /// `MCP-Protocol-Version`.
    pub version: Option<String>,
    /// `Mcp-Method`.
    pub method: Option<String>,
    /// `Mcp-Name`.
    pub name: Option<String>,
    /// `Mcp-Session-Id`.
    pub session_id: Option<String>,
    /// `Idempotency-Key`.
    pub key: Option<String>,
    /// `Mcp-Param-*`: the rest of the names in lower case, and the values.
    pub params: Vec<(String, String)>,
    /// Whether modern requests must have them: over pipes there are none.
    pub are_required: bool,
}

/// The answer to a message.
pub enum Exchange {
    /// The message wants none.
    Taken,
    /// One message.
    Answer {
        /// The HTTP status that goes with it.
        status: u16,
        /// The message.
        message: Value,
        /// The id of the session that `initialize` has opened.
        session_id: Option<String>,
    },
    /// Several messages, as they come.
    Stream(Conversation),
}

impl Gateway {
    /// The gateway to a runtime. Once `closing` is true, answers are not held any more.
    pub fn new(runtime: &Runtime, closing: watch::Receiver<bool>) -> Gateway {
        Gateway(Arc::new(GatewayParts {
            runtime: runtime.clone(),
            closing,
            lines: Arc::default(),
            running: Mutex::default(),
            last_at: Mutex::new(Instant::now()),
            forms: Arc::default(),
            answered: AnsweredQuestions::default(),
            told: Mutex::default(),
            forwarding: OnceLock::new(),
            subscriptions: Subscriptions::default(),
        }))
    }

    /// How long no client has asked for anything; none while a client is being answered or listens.
    pub fn quiet_for(&self) -> Option<Duration> {
        let is_busy = !self.lock_running().is_empty();
        (!is_busy).then(|| self.0.last_at.lock().unwrap_or_else(PoisonError::into_inner).elapsed())
    }

    /// Notes that a request begins or ends.
    fn note_request(&self) {
        *self.0.last_at.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    /// Whether a message works on a session, which it then opens.
    pub fn uses_session(message: &Value) -> bool {
        let method = message["method"].as_str().unwrap_or_default();
        method == "tools/call" || method.starts_with("tasks/")
    }

    /// The answer to a message that could not be read.
    pub fn unreadable(told: &str) -> Value {
        RpcError::new(message::PARSE_ERROR, told).answer(&Value::Null)
    }

    /// The answer to a message that was refused before it came here, with a code of the HTTP API; `None`: it wants no answer.
    pub fn refused(message: &Value, code: &str, told: &str, retry_after_ms: u64) -> Option<Value> {
        let id = message.get("id").filter(|_| message.get("method").is_some())?;
        Some(RpcError::refused(code, told, retry_after_ms).answer(id))
    }

    /// The code of the HTTP API that an answer has, if it is an error that has one.
    pub fn refusal(answer: &Value) -> Option<&str> {
        answer["error"]["data"]["code"].as_str()
    }

    /// Takes a message and answers it.
    pub async fn take(&self, visitor: Visitor, headers: &Headers, message: Value) -> Exchange {
        self.note_request();
        let request = match Message::read(message) {
            Ok(Message::Request(request)) => request,
            Ok(Message::Notification { method, params }) => {
                if method == "notifications/cancelled" {
                    self.cancel_request(&visitor, headers, &params);
                }
                return Exchange::Taken;
            }
            Ok(Message::Response { id, result }) => {
                self.forms().take(&visitor.principal, &id, result);
                return Exchange::Taken;
            }
            Err((error, id)) => return refused(&error, &id),
        };
        let id = request.id.clone();
        match self.answer(visitor, headers, request).await {
            Ok(exchange) => exchange,
            Err(error) => refused(&error, &id),
        }
    }

    async fn answer(
        &self,
        visitor: Visitor,
        headers: &Headers,
        request: RpcRequest,
    ) -> Result<Exchange, RpcError> {
        let mut peer = Peer::of(&request, headers).map_err(|error| match headers.are_required {
            true => error,
            false => error.with_status(200),
        })?;
        if peer.era == Era::Legacy && request.method != "initialize" {
            let session = headers.legacy_session(&**self.runtime().store(), &visitor.principal)?;
            peer.shows_forms = session.is_some_and(|session| session.shows_forms);
        }
        let result = match request.method.as_str() {
            "initialize" if peer.era == Era::Legacy => return self.initialize(&visitor, &request),
            "ping" if peer.era == Era::Legacy => json!({}),
            "server/discover" => hello::discovered(self.forwarding().forwards()),
            "tools/list" => self.list(&visitor, &peer, &request).await?,
            "tools/call" => return self.call(visitor, headers, peer, request).await,
            "resources/subscribe" | "resources/unsubscribe" if self.takes_subscriptions(&peer) => {
                self.subscriptions().change(self, headers, &request).await?
            }
            "subscriptions/listen" if peer.era == Era::Modern => {
                return listen::begin(self, visitor, headers, peer, request).await;
            }
            "tasks/get" | "tasks/update" | "tasks/cancel" => {
                peer.must_take_tasks()?;
                self.task(&visitor, &peer, &request).await?
            }
            method => match forward::answer(self, &visitor, &peer, &request).await? {
                Some(result) => result,
                None => {
                    let told = format!("there is no method {method:?} here");
                    let status = if peer.era == Era::Modern { 404 } else { 200 };
                    return Err(RpcError::new(METHOD_NOT_FOUND, told).with_status(status));
                }
            },
        };
        Ok(answered(&request.id, signed(peer.era, result)))
    }

    fn initialize(&self, visitor: &Visitor, request: &RpcRequest) -> Result<Exchange, RpcError> {
        let wanted = request.params.get("protocolVersion").and_then(Value::as_str);
        let wanted = wanted.ok_or_else(|| RpcError::params("initialize must say its protocolVersion"))?;
        let version = LEGACY.into_iter().find(|known| *known == wanted).unwrap_or(LEGACY[0]);
        let nonce = windlass::batch::fresh_key().map_err(|error| RpcError::internal(&error))?;
        let capabilities = request.params.get("capabilities").and_then(Value::as_object);
        let session = LegacySession {
            principal: visitor.principal.to_string(),
            version: version.to_string(),
            shows_forms: capabilities.is_some_and(peer::shows_forms),
            nonce,
        };
        let session_id = seal::seal(&**self.runtime().store(), Purpose::Session, &session);
        let result = hello::initialized(version, self.forwarding().forwards());
        let message = message::answer(&request.id, result);
        Ok(Exchange::Answer { status: 200, message, session_id: Some(session_id) })
    }

    async fn list(&self, visitor: &Visitor, peer: &Peer, request: &RpcRequest) -> Result<Value, RpcError> {
        let after = request.cursor()?;
        let limit = usize::try_from(self.runtime().limits().mcp_tools_page).unwrap_or(usize::MAX).max(1);
        let list = McpToolList::at(self.runtime(), visitor).await?;
        self.tell_left_out(&list);
        let (tools, next) = list.page(after, limit);
        let mut page = json!({"tools": tools});
        if let Some(next) = next {
            page["nextCursor"] = next.into();
        }
        Ok(with_cache_hints(peer, page))
    }

    /// Logs the tools that cannot be offered, each once.
    fn tell_left_out(&self, list: &McpToolList) {
        let mut told = self.0.told.lock().unwrap_or_else(PoisonError::into_inner);
        for (tool, why) in &list.left_out {
            if told.insert(tool.clone()) {
                tracing::warn!(tool, why, "the tool is left out of the MCP list");
            }
        }
    }

    async fn task(&self, visitor: &Visitor, peer: &Peer, request: &RpcRequest) -> Result<Value, RpcError> {
        let id = request.params.get("taskId").and_then(Value::as_str);
        let id = id.ok_or_else(|| RpcError::params("`taskId` must be the id of a task"))?;
        match request.method.as_str() {
            "tasks/get" => task::get(self, visitor, peer, id).await,
            "tasks/cancel" => task::cancel(self, visitor, id).await,
            _ => task::update(self, visitor, id, &answers(&request.params)?).await,
        }
    }

    async fn call(
        &self,
        visitor: Visitor,
        headers: &Headers,
        peer: Peer,
        request: RpcRequest,
    ) -> Result<Exchange, RpcError> {
        let args = match request.params.get("arguments") {
            None | Some(Value::Null) => json!({}),
            Some(args @ Value::Object(_)) => args.clone(),
            Some(_) => return Err(RpcError::params("`arguments` must be an object")),
        };
        // Wrong arguments are for the model to mend.
        let wrong = |told: &str| Ok(answered(&request.id, signed(peer.era, crate::result::text(told, true))));
        let asked = match tool_name(&request) {
            CALL_TOOL if visitor.listing == McpListing::Search => match AskedTool::found(args) {
                Ok(found) => found,
                Err(told) => return wrong(told),
            },
            name => AskedTool { name: name.to_string(), args },
        };
        let call = match asked.name.as_str() {
            WAIT_TASK | CANCEL_TASK if !asked.args["task"].is_string() => {
                return wrong("`task` must be the task that an answer named.");
            }
            WAIT_TASK => self.waited_call(&visitor, &request, &asked.args).await?,
            CANCEL_TASK => {
                task::cancel(self, &visitor, task_of(&asked.args)).await?;
                let told = "The task is asked to stop. Call wait_task to see how it ended.";
                return Ok(answered(&request.id, signed(peer.era, crate::result::text(told, false))));
            }
            _ => self.asked_call(&visitor, headers, &peer, &request, asked).await?,
        };
        let (conversation, voice, listener) = Conversation::begin();
        let running = self.running(&visitor, headers, &request.id, &conversation);
        let task = CallTask { gateway: self.clone(), visitor, peer, id: request.id, call };
        Ok(Exchange::Stream(conversation.made_by(async move {
            task.run(voice, listener).await;
            drop(running);
        })))
    }

    /// A call of a tool.
    async fn asked_call(
        &self,
        visitor: &Visitor,
        headers: &Headers,
        peer: &Peer,
        request: &RpcRequest,
        asked: AskedTool,
    ) -> Result<McpCall, RpcError> {
        let AskedTool { name, args } = asked;
        let Some(tool) = McpToolList::find(self.runtime(), visitor, &name).await? else {
            let table = McpToolList::whole(self.runtime(), &visitor.session).await?;
            let hint =
                table.nearest(&name).map(|near| format!("; did you mean {near:?}?")).unwrap_or_default();
            return Err(RpcError::params(format!("there is no tool {name:?}{hint}")));
        };
        // Of a tool that is called through `call_tool` the client has no schema to read headers from.
        if peer.era == Era::Modern && name == tool_name(request) {
            headers.check_params(tool.spec.input_schema.as_ref(), &args)?;
        }
        let is_read = tool.class == EffectClass::Read;
        let digest = identity::digest(&tool, &args);
        let state = self.state(visitor, request, &digest)?;
        let round = state.as_ref().map_or(0, |state| state.round);
        let identity = match (state, identity::own_key(request, headers.key.as_deref())) {
            (Some(state), _) => CallIdentity::Key(state.key),
            (None, Some(key)) => CallIdentity::Key(format!("mcp-key:{key}")),
            (None, None) if is_read => identity::bridged(&visitor.bridge, request, &digest),
            (None, None) => CallIdentity::Line { client_id: identity::client_id(request) },
        };
        let traceparent = request.meta().and_then(|meta| meta.get("traceparent")).and_then(Value::as_str);
        Ok(McpCall {
            tool: tool.spec.name.clone(),
            args,
            digest,
            is_read,
            stays_direct: tool.spec.flags.stays_direct,
            asks_inside: tool.spec.source == ToolSource::Mcp,
            identity,
            answers: answers(&request.params)?,
            round,
            traceparent: traceparent.and_then(TraceParent::parse),
        })
    }

    /// The call of a task, to be waited for.
    async fn waited_call(
        &self,
        visitor: &Visitor,
        request: &RpcRequest,
        args: &Value,
    ) -> Result<McpCall, RpcError> {
        let id = task_of(args);
        let found = task::find(self.runtime(), visitor, id).await?;
        let digest = format!("{WAIT_TASK}:{id}");
        let state = self.state(visitor, request, &digest)?;
        Ok(McpCall {
            tool: WAIT_TASK.to_string(),
            args: json!({}),
            digest,
            is_read: false,
            stays_direct: false,
            asks_inside: false,
            identity: CallIdentity::Earlier { call: id.to_string(), key: found.batch_key },
            answers: answers(&request.params)?,
            round: state.map_or(0, |state| state.round),
            traceparent: None,
        })
    }

    /// The state that a client kept for us, if the request has one and it is of this call.
    fn state(
        &self,
        visitor: &Visitor,
        request: &RpcRequest,
        digest: &str,
    ) -> Result<Option<RequestState>, RpcError> {
        let Some(sealed) = request.params.get("requestState") else { return Ok(None) };
        let store = self.runtime().store();
        let state = sealed
            .as_str()
            .and_then(|text| seal::open::<RequestState>(&**store, Purpose::RequestState, text));
        let now = self.runtime().clock().now().0;
        let is_ours = |state: &RequestState| {
            state.principal == *visitor.principal
                && state.session == visitor.session
                && state.digest == digest
                && state.until > now
        };
        match state.filter(is_ours) {
            Some(state) => Ok(Some(state)),
            None => Err(RpcError::params(
                "`requestState` is not of this call, or too old; make the call without it",
            )),
        }
    }

    /// Opens the stream of messages that belong to no request, on which a client of the older era hears of changed tools. `None`: there
    /// is none for this client.
    pub async fn listen(&self, visitor: Visitor, headers: &Headers) -> Option<Conversation> {
        let is_legacy = headers.version.as_deref().is_none_or(|version| LEGACY.contains(&version));
        let session = headers.legacy_session(&**self.runtime().store(), &visitor.principal);
        if !is_legacy || !matches!(session, Ok(Some(_))) {
            return None;
        }
        listen::begin_own(self, visitor, headers).await.ok()
    }

    /// Notes that the end of the call in the batch of this key has reached its client.
    pub(crate) async fn delivered(
        &self,
        session: &str,
        key: &str,
        client_id: Option<&str>,
        line: Option<HeldLine>,
    ) {
        let Some((name, number)) = LineName::of_key(session, key) else { return };
        let line = match line {
            Some(line) => line,
            None => self.lines().hold(self.runtime(), name).await,
        };
        if let Err(error) = line.delivered(number, client_id).await {
            tracing::warn!(error = %windlass::error::chain(&error), "a delivery was not noted: an identical call joins it");
        }
    }

    /// Makes a request known to its client's cancels.
    pub(crate) fn running(
        &self,
        visitor: &Visitor,
        headers: &Headers,
        id: &Value,
        conversation: &Conversation,
    ) -> Option<RunningRequest> {
        let name = (conversation_of(visitor, headers), id.to_string());
        self.lock_running().insert(name.clone(), conversation.canceller()?);
        Some(RunningRequest { gateway: self.clone(), name })
    }

    fn cancel_request(&self, visitor: &Visitor, headers: &Headers, params: &Map<String, Value>) {
        let Some(id) = params.get("requestId") else { return };
        let running = self.lock_running().get(&(conversation_of(visitor, headers), id.to_string())).cloned();
        if let Some(running) = running {
            running.cancel();
        }
    }

    fn lock_running(&self) -> std::sync::MutexGuard<'_, HashMap<(String, String), Canceller>> {
        self.0.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forwards prompts and resources of these servers to its clients. The first word stands.
    pub fn forward(&self, forwarding: Forwarding) {
        let _ = self.0.forwarding.set(forwarding);
    }

    pub(crate) fn forwarding(&self) -> Forwarding {
        self.0.forwarding.get().cloned().unwrap_or_default()
    }

    pub(crate) fn subscriptions(&self) -> &Subscriptions {
        &self.0.subscriptions
    }

    /// Whether a client subscribes to resources one by one: in the newer era it listens.
    fn takes_subscriptions(&self, peer: &Peer) -> bool {
        peer.era == Era::Legacy && self.forwarding().forwards().resources
    }

    pub(crate) fn runtime(&self) -> &Runtime {
        &self.0.runtime
    }

    pub(crate) fn forms(&self) -> &Arc<OpenForms> {
        &self.0.forms
    }

    pub(crate) fn answered(&self) -> &AnsweredQuestions {
        &self.0.answered
    }

    pub(crate) fn lines(&self) -> &Arc<DeliveryLines> {
        &self.0.lines
    }

    /// Waits until the server closes.
    pub(crate) async fn closes(&self) {
        if self.0.closing.clone().wait_for(|closing| *closing).await.is_err() {
            // Nobody can close it any more.
            std::future::pending::<()>().await;
        }
    }
}

/// A request that its client can cancel by its id.
pub(crate) struct RunningRequest {
    gateway: Gateway,
    name: (String, String),
}

impl Drop for RunningRequest {
    fn drop(&mut self) {
        self.gateway.lock_running().remove(&self.name);
        self.gateway.note_request();
    }
}

/// The conversation that ids of requests belong to.
fn conversation_of(visitor: &Visitor, headers: &Headers) -> String {
    let session = headers.session_id.as_deref().unwrap_or_default();
    format!("{} {} {session}", visitor.principal, visitor.session)
}

fn answers(params: &Map<String, Value>) -> Result<Map<String, Value>, RpcError> {
    match params.get("inputResponses") {
        None | Some(Value::Null) => Ok(Map::new()),
        Some(Value::Object(answers)) => Ok(answers.clone()),
        Some(_) => Err(RpcError::params("`inputResponses` must be an object")),
    }
}

/// A tool, and the arguments it is called with.
struct AskedTool {
    name: String,
    args: Value,
}

impl AskedTool {
    /// The call that `call_tool` is asked for, or what is wrong with it.
    fn found(mut args: Value) -> Result<AskedTool, &'static str> {
        let Value::String(name) = args["tool"].take() else {
            return Err("`tool` must be the name of a tool that search_tools has found.");
        };
        match args["args"].take() {
            Value::Null => Ok(AskedTool { name, args: json!({}) }),
            args @ Value::Object(_) => Ok(AskedTool { name, args }),
            Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                Err("`args` must be an object with the arguments of the tool.")
            }
        }
    }
}

/// The tool that is called.
fn tool_name(request: &RpcRequest) -> &str {
    request.params.get("name").and_then(Value::as_str).unwrap_or_default()
}

fn task_of(args: &Value) -> &str {
    args["task"].as_str().unwrap_or_default()
}

fn answered(id: &Value, result: Value) -> Exchange {
    Exchange::Answer { status: 200, message: message::answer(id, result), session_id: None }
}

fn refused(error: &RpcError, id: &Value) -> Exchange {
    Exchange::Answer { status: error.status, message: error.answer(id), session_id: None }
}
