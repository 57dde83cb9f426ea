//! A tool of a server, as one of ours.

use super::connection::{McpConnection, McpRequestError};
use super::output;
use super::questions::{InputRequired, round_step};
use super::server::{ServerLink, UnreachableServer};
use super::task::{CANCEL_WAIT, QuestionAudience, TASK_STEP, UpstreamTask};
use super::wire::{QUESTIONS_WAITING_MAX, SentRequest};
use crate::message::{INVALID_PARAMS, METHOD_NOT_FOUND};
use crate::param_headers::ParamHeader;
use crate::peer::Era;
use serde_json::{Map, Value, json};
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use windlass::error::{FailureClass, Retry};
use windlass::tool::{
    BoundContent, BoundFuture, PrepareCx, Progress, Reconcile, ReconcileFuture, Reconciled,
};
use windlass::{Cx, Output, Tool, ToolError, ToolFuture, ToolSpec};
use windlass_tools::declared::McpServer;

/// How often a server may ask us to repeat a call.
const ROUNDS_MAX: usize = 100;
/// How often progress is passed on.
/// The longest exchange with a server.
const EXCHANGE_MAX: Duration = Duration::from_secs(24 * 3_600);
const PROGRESS_EVERY: Duration = Duration::from_millis(100);

/// A tool of a server.
pub(super) struct McpTool {
    /// Gone with the owner: the registry must not keep it alive.
    pub(super) link: Weak<ServerLink>,
    pub(super) server: Arc<McpServer>,
    /// Its name at the server.
    pub(super) name: String,
    /// The accepted definition.
    pub(super) definition: Arc<Value>,
    pub(super) spec: ToolSpec,
}

impl Tool for McpTool {
    fn spec(&self) -> ToolSpec {
        self.spec.clone()
    }

    fn run<'a>(&'a self, args: Value, cx: &'a Cx) -> ToolFuture<'a> {
        Box::pin(async move { self.call(args, cx).await })
    }

    fn reconciler(&self) -> Option<&dyn Reconcile> {
        Some(self)
    }

    /// The raw definition and the server's entry.
    fn bound<'a>(&'a self, _args: &'a Value, _cx: &'a PrepareCx<'a>) -> Option<BoundFuture<'a>> {
        Some(Box::pin(async move {
            let fixed = json!({
                "tool": self.name,
                "definition": *self.definition,
                "server": self.server.name,
                "entry": self.server.declared,
            });
            Ok(BoundContent { fixed: fixed.to_string().into_bytes(), ..BoundContent::default() })
        }))
    }
}

/// Of a call that became a task at its server, the task tells whether it took effect.
impl Reconcile for McpTool {
    fn reconcile<'a>(&'a self, _args: Value, cx: &'a Cx) -> ReconcileFuture<'a> {
        Box::pin(async move {
            let (Some(link), Some(task)) =
                (self.link.upgrade(), cx.recorded_step::<UpstreamTask>(TASK_STEP)?)
            else {
                return Ok(Reconciled::Unknown);
            };
            let following = self.follow(&link, &task, QuestionAudience::Nobody, cx);
            let result = match link.take_cancelled(&task.id) {
                // It may not stop, and whoever has cancelled the call waits.
                true => tokio::time::timeout(CANCEL_WAIT, following)
                    .await
                    .map_err(|_| ToolError::new("the task was asked to stop and goes on"))??,
                false => following.await?,
            };
            Ok(match self.result(result, cx).await {
                Ok(output) => Reconciled::Landed(output),
                // The tool itself failed. Whatever was cut off is not known.
                Err(error) if error.aborted => return Err(error),
                Err(error) => Reconciled::Failed(error),
            })
        })
    }
}

impl McpTool {
    async fn call(&self, args: Value, cx: &Cx) -> Result<Output, ToolError> {
        let Some(link) = self.link.upgrade() else {
            return Err(ToolError::internal("the MCP servers are closed").did_not_happen());
        };
        // An earlier attempt has begun it, and it goes on at the server.
        if let Some(task) = cx.recorded_step::<UpstreamTask>(TASK_STEP)? {
            let result = self.follow(&link, &task, QuestionAudience::People, cx).await?;
            return self.result(result, cx).await;
        }
        let connection = tokio::select! {
            connection = link.connection() => connection.map_err(|why| self.unreachable(&why))?,
            () = cx.stopping() => return Err(ToolError::stopped().did_not_happen()),
        };
        self.check(&connection)?;
        let (mut asked, mut round) = self.recorded_round(cx)?;
        for _ in 0..ROUNDS_MAX {
            if cx.is_stopping() && asked.is_none() {
                return Err(ToolError::stopped().did_not_happen());
            }
            let continued = match &asked {
                Some(asked) => Some((asked, self.ask_people(asked, &format!("round {round}"), cx).await?)),
                None => None,
            };
            let request = self.request(&args, continued, cx);
            let mut result = self.exchange(&link, &connection, request, cx).await?;
            match result["resultType"].as_str() {
                Some("task") => {
                    let task = UpstreamTask::of(&result)
                        .ok_or_else(|| ToolError::aborted("The server made a task without an id."))?;
                    // Recorded before it is waited for: after a restart it is found by its id.
                    let task = cx.step(TASK_STEP, (), |()| async { Ok(task) }).await?;
                    let result = self.follow(&link, &task, QuestionAudience::People, cx).await?;
                    return self.result(result, cx).await;
                }
                Some("input_required") => {
                    let mut next = InputRequired::of(&mut result)?;
                    if !next.requests.is_empty() {
                        round += 1;
                        next = cx.step(&round_step(round), (), |()| async { Ok(next) }).await?;
                    }
                    asked = Some(next);
                }
                _ => return self.result(result, cx).await,
            }
        }
        Err(ToolError::aborted("The server asked for the call to be repeated again and again."))
    }

    /// The last questions that an earlier attempt has recorded, and their number.
    fn recorded_round(&self, cx: &Cx) -> Result<(Option<InputRequired>, u32), ToolError> {
        let (mut asked, mut round) = (None, 0);
        while let Some(next) = cx.recorded_step(&round_step(round + 1))? {
            (asked, round) = (Some(next), round + 1);
        }
        Ok((asked, round))
    }

    /// Refuses a tool that is not what was accepted any more.
    fn check(&self, connection: &McpConnection) -> Result<(), ToolError> {
        let accept = format!("`windlass mcp accept {}`", self.server.name);
        let message = match connection.tools().tools.get(&self.name) {
            Some(now) if *now == *self.definition => return Ok(()),
            Some(_) => format!(
                "The server has changed this tool since it was accepted. An operator may look at it with {accept}."
            ),
            None => "The server does not have this tool any more.".to_string(),
        };
        Err(ToolError { did_not_happen: true, retry: Retry::Never, ..ToolError::new(message) })
    }

    fn request(
        &self,
        args: &Value,
        continued: Option<(&InputRequired, Map<String, Value>)>,
        cx: &Cx,
    ) -> SentRequest {
        let key = cx.idempotency_key();
        let mut meta = json!({"io.windlass/key": key});
        if let Some(parent) = cx.traceparent() {
            meta["traceparent"] = parent.to_string().into();
        }
        // Some servers refuse a call without arguments.
        let args = if args.is_object() { args.clone() } else { json!({}) };
        // The definition was checked when it was accepted.
        let repeated = ParamHeader::of_schema(&self.definition["inputSchema"]).unwrap_or_default();
        let headers = repeated.iter().filter_map(|param| Some((param.header.clone(), param.value(&args)?)));
        let headers = headers.collect();
        let mut params = Map::new();
        params.insert("name".to_string(), self.name.clone().into());
        params.insert("arguments".to_string(), args);
        params.insert("_meta".to_string(), meta);
        if let Some((asked, answers)) = continued {
            params.extend(asked.state.clone().map(|state| ("requestState".to_string(), state)));
            if !answers.is_empty() {
                params.insert("inputResponses".to_string(), Value::Object(answers));
            }
        }
        let name = Some(self.name.clone());
        SentRequest { name, key: Some(key), headers, ..SentRequest::new("tools/call", params) }
    }

    async fn exchange(
        &self,
        link: &Arc<ServerLink>,
        connection: &Arc<McpConnection>,
        mut request: SentRequest,
        cx: &Cx,
    ) -> Result<Value, ToolError> {
        let (sender, mut progress) = watch::channel::<Option<Progress>>(None);
        request.progress = Some(sender);
        let (asks, mut questions) = mpsc::channel(QUESTIONS_WAITING_MAX);
        if connection.era == Era::Legacy {
            request.questions = Some(asks);
        }
        let (mut asked_before, mut asking) = (0_u32, None);
        let mut watched =
            WatchedCall { link: link.clone(), connection: connection.clone(), is_answered: false };
        // The runtime stops the attempt when its time is up; while a person is asked, its clock stands still.
        let asked = connection.request(request, EXCHANGE_MAX);
        tokio::pin!(asked);
        let answered = loop {
            tokio::select! {
                biased;
                answered = &mut asked => break answered,
                () = cx.stopping() => return Err(ToolError::stopped()),
                replied = answered(&mut asking), if asking.is_some() => {
                    asking = None;
                    let (id, answer): (Value, Value) = replied?;
                    connection.reply(&id, &answer).await;
                }
                Some(question) = questions.recv(), if asking.is_none() => {
                    asked_before += 1;
                    let name = format!("mcp question {asked_before}");
                    asking = Some(Box::pin(async move {
                        self.ask_person(&question.request, name, cx).await.map(|answer| (question.id, answer))
                    }));
                }
                told = progress.changed() => {
                    if told.is_ok() && let Some(progress) = progress.borrow_and_update().clone() {
                        cx.progress(progress);
                    }
                    tokio::select! {
                        biased;
                        answered = &mut asked => break answered,
                        () = cx.stopping() => return Err(ToolError::stopped()),
                        () = tokio::time::sleep(PROGRESS_EVERY) => {}
                    }
                }
            }
        };
        watched.is_answered = !matches!(&answered, Err(McpRequestError::Lost(_)));
        answered.map_err(|error| self.failed(&error))
    }

    async fn result(&self, result: Value, cx: &Cx) -> Result<Output, ToolError> {
        match result["isError"] == true {
            true => Err(output::error(result)),
            false => output::of(result, self.spec.output_schema.is_some(), cx).await,
        }
    }

    fn unreachable(&self, why: &UnreachableServer) -> ToolError {
        let message = format!("The MCP server {} is not available. Nothing happened.", self.server.name);
        let error = ToolError {
            class: FailureClass::Unavailable,
            detail: Some(why.why.clone()),
            ..ToolError::new(message).did_not_happen()
        };
        error.safe_to_retry_after(u64::try_from(why.again_in.as_millis()).unwrap_or(u64::MAX))
    }

    pub(super) fn failed(&self, error: &McpRequestError) -> ToolError {
        let name = &self.server.name;
        match error {
            McpRequestError::Refused(told) => {
                let code = told["code"].as_i64().unwrap_or_default();
                let failed = ToolError {
                    tool_code: Some(code.to_string()),
                    ..ToolError::new(format!("The MCP server {name} refused the call: {error}"))
                };
                // It was not even begun.
                let is_unused = matches!(code, METHOD_NOT_FOUND | INVALID_PARAMS);
                ToolError { did_not_happen: is_unused, ..failed }
            }
            McpRequestError::Lost(lost) if !lost.was_sent => ToolError {
                class: FailureClass::Unavailable,
                detail: Some(lost.why.clone()),
                ..ToolError::new(format!("The MCP server {name} could not be reached. Nothing happened."))
                    .did_not_happen()
            },
            McpRequestError::Lost(lost) => ToolError {
                class: FailureClass::Unavailable,
                detail: Some(lost.why.clone()),
                ..ToolError::aborted(format!(
                    "The connection to the MCP server {name} was lost after the call was sent."
                ))
            },
        }
    }
}

/// A call that was sent. If nobody waits for its answer any more, the server may hang: then it is looked after.
struct WatchedCall {
    link: Arc<ServerLink>,
    connection: Arc<McpConnection>,
    is_answered: bool,
}

impl Drop for WatchedCall {
    fn drop(&mut self) {
        if self.is_answered || self.connection.ended().is_some() {
            return;
        }
        let (link, connection) = (self.link.clone(), self.connection.clone());
        if let Ok(threads) = tokio::runtime::Handle::try_current() {
            threads.spawn(async move { link.look_after(&connection).await });
        }
    }
}

/// Waits for the answer to a question, if there is one.
async fn answered<T>(asking: &mut Option<Pin<Box<impl Future<Output = T>>>>) -> T {
    match asking {
        Some(asking) => asking.await,
        None => std::future::pending().await,
    }
}
