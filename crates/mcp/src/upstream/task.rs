//! Calls that go on as tasks of their server: followed by their id, also by the next process.

use super::connection::{McpConnection, McpRequestError};
use super::questions::InputRequired;
use super::server::ServerLink;
use super::tool::McpTool;
use super::wire::SentRequest;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use windlass::{Cx, ToolError};

/// The step that records a task.
pub(super) const TASK_STEP: &str = "mcp task";
/// Bounds of the pause between two looks at a task.
const POLL_MIN: Duration = Duration::from_millis(100);
const POLL_MAX: Duration = Duration::from_secs(30);
/// The pause if the server names none.
const POLL: Duration = Duration::from_secs(1);
/// How long one look may take.
const LOOK_MAX: Duration = Duration::from_secs(30);

/// How long a task that was asked to stop is still looked at.
pub(super) const CANCEL_WAIT: Duration = Duration::from_secs(5);

/// A task of a server.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct UpstreamTask {
    pub(super) id: String,
}

/// The audience of a task's questions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum QuestionAudience {
    People,
    /// Nobody can be asked here.
    Nobody,
}

impl UpstreamTask {
    pub(super) fn of(result: &Value) -> Option<UpstreamTask> {
        let id = result["taskId"].as_str().filter(|id| !id.is_empty())?;
        Some(UpstreamTask { id: id.to_string() })
    }

    fn request(&self, method: &'static str, mut params: Map<String, Value>) -> SentRequest {
        params.insert("taskId".to_string(), self.id.clone().into());
        SentRequest { name: Some(self.id.clone()), ..SentRequest::new(method, params) }
    }
}

impl McpTool {
    /// Waits for the end of a task and returns its result. A lost connection is made again: the task does not depend on it.
    pub(super) async fn follow(
        &self,
        link: &Arc<ServerLink>,
        task: &UpstreamTask,
        answering: QuestionAudience,
        cx: &Cx,
    ) -> Result<Value, ToolError> {
        let mut answered = BTreeSet::new();
        loop {
            let (connection, mut state) = tokio::select! {
                looked = self.look_at_task(link, task) => looked?,
                () = cx.stopping() => return Err(cancel(link, task)),
            };
            cx.heartbeat();
            match state["status"].as_str().unwrap_or_default() {
                "completed" => return Ok(state["result"].take()),
                "failed" => return Err(self.failed(&McpRequestError::Refused(state["error"].take()))),
                "cancelled" => return Err(ToolError::aborted("The task was cancelled at its server.")),
                "input_required" => {
                    if answering == QuestionAudience::Nobody {
                        return Err(ToolError::new("the task waits for an answer to a question"));
                    }
                    self.answer_task(&connection, task, &mut state, &mut answered, cx).await?;
                }
                _ => {
                    if let Some(told) = state["statusMessage"].as_str() {
                        cx.status(told);
                    }
                }
            }
            let pause = state["pollIntervalMs"].as_u64().map_or(POLL, Duration::from_millis);
            tokio::select! {
                () = tokio::time::sleep(pause.clamp(POLL_MIN, POLL_MAX)) => {}
                () = cx.stopping() => return Err(cancel(link, task)),
            }
        }
    }

    /// One look at a task, as soon as its server can be reached.
    async fn look_at_task(
        &self,
        link: &Arc<ServerLink>,
        task: &UpstreamTask,
    ) -> Result<(Arc<McpConnection>, Value), ToolError> {
        loop {
            let connection = match link.connection().await {
                Ok(connection) => connection,
                Err(unreachable) => {
                    tokio::time::sleep(unreachable.again_in.max(POLL_MIN)).await;
                    continue;
                }
            };
            let asked = connection.request(task.request("tasks/get", Map::new()), LOOK_MAX);
            match tokio::time::timeout(LOOK_MAX, asked).await {
                Ok(Ok(state)) => return Ok((connection, state)),
                Ok(Err(error @ McpRequestError::Refused(_))) => {
                    // It may have run to its end before it was forgotten.
                    return Err(ToolError::aborted(format!(
                        "The MCP server {} does not tell about its task any more: {error}",
                        self.server.name
                    )));
                }
                Ok(Err(McpRequestError::Lost(_))) => tokio::time::sleep(POLL_MIN).await,
                Err(_) => link.look_after(&connection).await,
            }
        }
    }

    /// Puts the open questions of a task to people, and sends the answers.
    async fn answer_task(
        &self,
        connection: &McpConnection,
        task: &UpstreamTask,
        state: &mut Value,
        answered: &mut BTreeSet<String>,
        cx: &Cx,
    ) -> Result<(), ToolError> {
        let mut asked = InputRequired::of(state)?;
        asked.requests.retain(|key, _| !answered.contains(key));
        if asked.requests.is_empty() {
            return Ok(());
        }
        let answers = self.ask_people(&asked, "task", cx).await?;
        let keys: Vec<String> = answers.keys().cloned().collect();
        let told = Map::from_iter([("inputResponses".to_string(), Value::Object(answers))]);
        // Not taken: the server asks again, and the recorded answers are sent again.
        if connection.request(task.request("tasks/update", told), LOOK_MAX).await.is_ok() {
            answered.extend(keys);
        }
        Ok(())
    }
}

/// Asks the server to stop a task that nobody waits for any more; the call has no time left to wait for that.
fn cancel(link: &Arc<ServerLink>, task: &UpstreamTask) -> ToolError {
    link.note_cancelled(&task.id);
    let (link, request) = (link.clone(), task.request("tasks/cancel", Map::new()));
    tokio::spawn(async move {
        if let Ok(connection) = link.connection().await {
            let _ = tokio::time::timeout(LOOK_MAX, connection.request(request, LOOK_MAX)).await;
        }
    });
    ToolError::stopped()
}
