//! Questions of a server to a person: ordinary questions of the call, listed with everything that waits.

use super::tool::McpTool;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::pin::Pin;
use std::task::Poll;
use windlass::{Cx, ToolError};

/// Questions in one result of a server.
const QUESTIONS_MAX: usize = 16;

/// A result that asks for more before the call can go on.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(super) struct InputRequired {
    /// The questions, by the server's names for them.
    pub(super) requests: Map<String, Value>,
    /// The server's own state, which it gets back.
    pub(super) state: Option<Value>,
}

/// The step that records the questions of a round: a person may take longer to answer than this process lives.
pub(super) fn round_step(round: u32) -> String {
    format!("mcp round {round}")
}

impl InputRequired {
    pub(super) fn of(result: &mut Value) -> Result<InputRequired, ToolError> {
        let requests = match result.get_mut("inputRequests").map(Value::take) {
            Some(Value::Object(requests)) => requests,
            Some(_) | None => Map::new(),
        };
        let state = result.get_mut("requestState").map(Value::take).filter(|state| !state.is_null());
        if requests.is_empty() && state.is_none() {
            return Err(ToolError::new("The server asks for more and does not say what. Tell the user."));
        }
        Ok(InputRequired { requests, state })
    }
}

impl McpTool {
    /// Puts the questions to people, and returns the answers as the server wants them. `name` tells these questions from others of the call.
    pub(super) async fn ask_people(
        &self,
        asked: &InputRequired,
        name: &str,
        cx: &Cx,
    ) -> Result<Map<String, Value>, ToolError> {
        if asked.requests.len() > QUESTIONS_MAX {
            return Err(ToolError::new(format!(
                "The server asks more than {QUESTIONS_MAX} questions at once."
            )));
        }
        let asking = asked.requests.iter().map(|(key, request)| {
            // The server's names may have any length.
            let name = format!("mcp {name} {}", &blake3::hash(key.as_bytes()).to_hex()[..16]);
            Box::pin(
                async move { self.ask_person(request, name, cx).await.map(|answer| (key.clone(), answer)) },
            )
        });
        Ok(all(asking.collect()).await?.into_iter().collect())
    }

    pub(super) async fn ask_person(
        &self,
        request: &Value,
        name: String,
        cx: &Cx,
    ) -> Result<Value, ToolError> {
        let params = &request["params"];
        let mode = params["mode"].as_str().unwrap_or("form");
        if request["method"] != "elicitation/create" || mode != "form" {
            return Err(ToolError::new(
                "The server asks for something that only a client of its own could give. Tell the user.",
            ));
        }
        let max = usize::try_from(cx.limits().question_chars_max).unwrap_or(usize::MAX);
        let message = params["message"].as_str().unwrap_or_default();
        let question: String =
            format!("The MCP server {} asks: {message}", self.server.name).chars().take(max).collect();
        let schema = params.get("requestedSchema").cloned().unwrap_or_else(|| json!({"type": "object"}));
        Ok(match cx.ask(&name, &question, Some(schema)).await? {
            Some(content) => json!({"action": "accept", "content": with_defaults(content, params)}),
            None => json!({"action": "cancel"}),
        })
    }
}

/// The answer, with the form's own values of the fields that the person left out.
fn with_defaults(mut content: Value, params: &Value) -> Value {
    let fields = params["requestedSchema"]["properties"].as_object();
    if let Some(given) = content.as_object_mut() {
        for (name, field) in fields.into_iter().flatten() {
            if let Some(default) = field.get("default").filter(|_| !given.contains_key(name)) {
                given.insert(name.clone(), default.clone());
            }
        }
    }
    content
}

/// Waits for all of these together, or for the first that fails.
async fn all<T, E>(mut open: Vec<impl Future<Output = Result<T, E>> + Unpin>) -> Result<Vec<T>, E> {
    let mut done = Vec::with_capacity(open.len());
    std::future::poll_fn(|cx| {
        let mut failed = None;
        open.retain_mut(|future| match Pin::new(future).poll(cx) {
            Poll::Ready(Ok(value)) => {
                done.push(value);
                false
            }
            Poll::Ready(Err(error)) => {
                failed = Some(error);
                false
            }
            Poll::Pending => true,
        });
        match failed {
            Some(error) => Poll::Ready(Err(error)),
            None if open.is_empty() => Poll::Ready(Ok(std::mem::take(&mut done))),
            None => Poll::Pending,
        }
    })
    .await
}
