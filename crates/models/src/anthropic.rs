//! Anthropic's Messages.

use crate::endpoint::{Endpoint, EndpointConfig, OfferedTools, raw};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use windlass::ToolError;
use windlass::model::{
    CompletionFuture, LanguageModel, ModelMessage, ModelReply, ModelRequest, ModelRole, TokenUsage,
};
use windlass_http::{HttpClient, HttpRequest};
use windlass_wire::{Wire, anthropic_format};

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
        let mut body = endpoint.config.parameters.clone();
        let model = request.model.as_ref().unwrap_or(&endpoint.config.model);
        body.insert("model".into(), json!(model));
        let output_tokens_max = request.output_tokens_max.unwrap_or(endpoint.config.output_tokens_max);
        body.insert("max_tokens".into(), output_tokens_max.into());
        let mut instructions: Vec<String> = request
            .messages
            .iter()
            .filter(|message| message.role == ModelRole::System)
            .map(|message| message.text.clone())
            .collect();
        if let Some(schema) = &request.schema {
            match anthropic_format(schema) {
                Some(format) => insert_format(&mut body, format),
                None => instructions.push(in_words(schema)),
            }
        }
        if !instructions.is_empty() {
            body.insert("system".into(), instructions.join("\n\n").into());
        }
        body.extend(tools.list.clone().map(|list| ("tools".to_string(), list)));
        let messages = self.conversation(&request.messages, &tools);
        let url = format!("{}/v1/messages", endpoint.config.base_url.trim_end_matches('/'));
        let mut post = HttpRequest::post_json(url, endpoint.body(body, messages)?)
            .header("anthropic-version", VERSION)
            .header("idempotency-key", key);
        if let Some(key) = &endpoint.config.key {
            post = post.header("x-api-key", key.reveal());
        }
        let response = endpoint.post(post, request.timeout_ms).await?;
        let MessagesReport { usage } =
            serde_json::from_str(&response).map_err(|error| endpoint.unreadable(&error.to_string()))?;
        let message = endpoint.message(
            &response,
            &tools,
            said,
            |message| json!({"role": "assistant", "content": blocks(message)}),
        )?;
        let cached = [usage.cache_creation_input_tokens, usage.cache_read_input_tokens];
        let input = usage.input_tokens + cached.into_iter().flatten().sum::<u64>();
        Ok(ModelReply { message, usage: TokenUsage { input, output: usage.output_tokens } })
    }

    /// The messages, with results of tools as messages of the user. Neighbours of one role are one message: all results of a turn
    /// must be in the one behind it.
    fn conversation(&self, messages: &[ModelMessage], tools: &OfferedTools) -> Vec<Box<RawValue>> {
        let mut turns: Vec<RoleTurn> = Vec::new();
        for message in messages.iter().filter(|message| message.role != ModelRole::System) {
            let role = if message.role == ModelRole::Assistant { "assistant" } else { "user" };
            let written = self.endpoint.written(message, tools, said);
            let written = written.and_then(|json| serde_json::from_str::<RawContent>(json).ok());
            let content = match written {
                Some(RawContent { content }) => content,
                None => blocks(message).iter().map(raw).collect(),
            };
            match turns.last_mut() {
                Some(turn) if turn.role == role => turn.content.extend(content),
                _ => turns.push(RoleTurn { role, content }),
            }
        }
        turns.iter().map(raw).collect()
    }
}

impl LanguageModel for AnthropicModel {
    fn complete<'a>(&'a self, request: &'a ModelRequest, key: &'a str) -> CompletionFuture<'a> {
        Box::pin(self.ask(request, key))
    }
}

/// Asks for a format, beside what the host's own parameters say of the output.
fn insert_format(body: &mut Map<String, Value>, format: Value) {
    let output = body.entry("output_config").or_insert_with(|| json!({}));
    match output.as_object_mut() {
        Some(output) => _ = output.insert("format".into(), format),
        None => *output = json!({"format": format}),
    }
}

/// A schema that the API cannot hold the model to.
fn in_words(schema: &Value) -> String {
    format!("Answer with JSON and nothing else. It must fit this JSON schema: {schema}")
}

fn blocks(message: &ModelMessage) -> Vec<Value> {
    let ModelMessage { role, text, calls, call, provider: _ } = message;
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

/// The text of a message or of a whole response.
fn said(message: &str) -> serde_json::Result<String> {
    let SaidContent { content } = serde_json::from_str(message)?;
    Ok(content.into_iter().filter(|block| block.kind == "text").map(|block| block.text).collect())
}

/// Neighbouring messages of one role.
#[derive(Serialize)]
struct RoleTurn {
    role: &'static str,
    content: Vec<Box<RawValue>>,
}

#[derive(Deserialize)]
struct RawContent {
    content: Vec<Box<RawValue>>,
}

#[derive(Deserialize)]
struct SaidContent {
    content: Vec<ContentBlock>,
}

#[derive(Deserialize)]
struct ContentBlock {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    text: String,
}

#[derive(Deserialize)]
struct MessagesReport {
    #[serde(default)]
    usage: MessagesUsage,
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
