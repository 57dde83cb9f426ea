//! Anthropic's Messages.

use crate::endpoint::{Endpoint, EndpointConfig};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use windlass::ToolError;
use windlass::model::{
    CompletionFuture, LanguageModel, ModelMessage, ModelReply, ModelRequest, ModelRole, TokenUsage,
};
use windlass_http::{HttpClient, HttpRequest};
use windlass_wire::Wire;

/// The version of the API that is spoken.
const VERSION: &str = "2023-06-01";

/// A language model behind Anthropic's Messages API.
#[derive(Clone, Debug)]
pub struct AnthropicModel {
    endpoint: Endpoint,
}

impl AnthropicModel {
    /// A model at Anthropic's endpoint, or at another if the configuration says so.
    pub fn new(http: HttpClient, config: EndpointConfig) -> AnthropicModel {
        AnthropicModel { endpoint: Endpoint { http, config, wire: Wire::Anthropic } }
    }

    async fn ask(&self, request: &ModelRequest, key: &str) -> Result<ModelReply, ToolError> {
        let endpoint = &self.endpoint;
        let tools = endpoint.tools(&request.tools);
        let mut body = Map::new();
        let model = request.model.as_ref().unwrap_or(&endpoint.config.model);
        body.insert("model".into(), json!(model));
        let output_tokens_max = request.output_tokens_max.unwrap_or(endpoint.config.output_tokens_max);
        body.insert("max_tokens".into(), output_tokens_max.into());
        let instructions: Vec<&str> = request
            .messages
            .iter()
            .filter(|message| message.role == ModelRole::System)
            .map(|message| message.text.as_str())
            .collect();
        if !instructions.is_empty() {
            body.insert("system".into(), instructions.join("\n\n").into());
        }
        body.insert("messages".into(), conversation(&request.messages).into());
        body.extend(tools.list.clone().map(|list| ("tools".to_string(), list)));
        if let Some(schema) = &request.schema {
            body.insert("output_config".into(), json!({"format": {"type": "json_schema", "schema": schema}}));
        }
        let url = format!("{}/v1/messages", endpoint.config.base_url.trim_end_matches('/'));
        let mut post = HttpRequest::post_json(url, Value::Object(body).to_string())
            .header("anthropic-version", VERSION)
            .header("idempotency-key", key);
        if let Some(key) = &endpoint.config.key {
            post = post.header("x-api-key", key.reveal());
        }
        let response = endpoint.post(post, request.timeout_ms).await?;
        let turn = endpoint.turn(&response)?;
        let MessagesAnswer { content, usage } =
            serde_json::from_str(&response).map_err(|error| endpoint.unreadable(&error.to_string()))?;
        let text: String =
            content.into_iter().filter(|block| block.kind == "text").map(|block| block.text).collect();
        let message = ModelMessage { calls: endpoint.calls(&turn, &tools), ..ModelMessage::assistant(text) };
        let cached = [usage.cache_creation_input_tokens, usage.cache_read_input_tokens];
        let input = usage.input_tokens + cached.into_iter().flatten().sum::<u64>();
        Ok(ModelReply { message, usage: TokenUsage { input, output: usage.output_tokens } })
    }
}

impl LanguageModel for AnthropicModel {
    fn complete<'a>(&'a self, request: &'a ModelRequest, key: &'a str) -> CompletionFuture<'a> {
        Box::pin(self.ask(request, key))
    }
}

/// The messages, with results of tools as messages of the user. Neighbours of one role are one message: all results of a turn must
/// be in the one behind it.
fn conversation(messages: &[ModelMessage]) -> Vec<Value> {
    let mut turns: Vec<(&str, Vec<Value>)> = Vec::new();
    for message in messages.iter().filter(|message| message.role != ModelRole::System) {
        let role = if message.role == ModelRole::Assistant { "assistant" } else { "user" };
        let blocks = blocks(message);
        match turns.last_mut() {
            Some((last, known)) if *last == role => known.extend(blocks),
            _ => turns.push((role, blocks)),
        }
    }
    turns.into_iter().map(|(role, content)| json!({"role": role, "content": content})).collect()
}

fn blocks(message: &ModelMessage) -> Vec<Value> {
    let ModelMessage { role, text, calls, call } = message;
    if *role == ModelRole::Tool {
        return vec![json!({"type": "tool_result", "tool_use_id": call, "content": text})];
    }
    let said = (!text.is_empty()).then(|| json!({"type": "text", "text": text}));
    let asked = calls.iter().map(|call| {
        // The API takes objects only; whatever else the model wrote it is told as it was.
        let input = if call.args.is_object() { call.args.clone() } else { json!({"text": call.args}) };
        json!({"type": "tool_use", "id": call.id, "name": call.tool, "input": input})
    });
    said.into_iter().chain(asked).collect()
}

#[derive(Deserialize)]
struct MessagesAnswer {
    content: Vec<ContentBlock>,
    #[serde(default)]
    usage: MessagesUsage,
}

#[derive(Deserialize)]
struct ContentBlock {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    text: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct MessagesUsage {
    input_tokens: u64,
    output_tokens: u64,
    /// Absent or null where nothing is cached.
    cache_creation_input_tokens: Option<u64>,
    cache_read_input_tokens: Option<u64>,
}
