//! Endpoints that speak OpenAI's Chat Completions.

use crate::endpoint::{Endpoint, EndpointConfig, OfferedTools, raw};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use windlass::ToolError;
use windlass::model::{
    CompletionFuture, LanguageModel, ModelMessage, ModelReply, ModelRequest, ModelRole, TokenUsage,
};
use windlass_http::{HttpClient, HttpRequest};
use windlass_wire::{Wire, openai_chat_format};

/// A language model behind an endpoint that speaks OpenAI's Chat Completions: OpenAI itself, or one of the many servers that are
/// compatible with it.
#[derive(Clone, Debug)]
pub struct OpenAiModel {
    endpoint: Endpoint,
    /// The name of the field with the maximum number of tokens. Older servers know only `max_tokens`.
    output_tokens_field: &'static str,
}

impl OpenAiModel {
    /// A model at OpenAI's own endpoint, or at another if the configuration says so.
    pub fn new(http: HttpClient, config: EndpointConfig) -> OpenAiModel {
        let endpoint = Endpoint { http, config, wire: Wire::OpenaiChat };
        OpenAiModel { endpoint, output_tokens_field: "max_completion_tokens" }
    }

    /// For servers that know `max_tokens` and not `max_completion_tokens`.
    #[must_use]
    pub fn with_max_tokens(self) -> OpenAiModel {
        OpenAiModel { output_tokens_field: "max_tokens", ..self }
    }

    async fn ask(&self, request: &ModelRequest, key: &str) -> Result<ModelReply, ToolError> {
        let endpoint = &self.endpoint;
        let tools = endpoint.tools(&request.tools);
        let mut body = endpoint.config.parameters.clone();
        let model = request.model.as_ref().unwrap_or(&endpoint.config.model);
        body.insert("model".into(), json!(model));
        let output_tokens_max = request.output_tokens_max.unwrap_or(endpoint.config.output_tokens_max);
        body.insert(self.output_tokens_field.into(), output_tokens_max.into());
        body.extend(tools.list.clone().map(|list| ("tools".to_string(), list)));
        if let Some(schema) = &request.schema {
            body.insert("response_format".into(), openai_chat_format(schema));
        }
        let messages = request.messages.iter().map(|message| self.written(message, &tools)).collect();
        let url = format!("{}/chat/completions", endpoint.config.base_url.trim_end_matches('/'));
        let mut post =
            HttpRequest::post_json(url, endpoint.body(body, messages)?).header("idempotency-key", key);
        if let Some(key) = &endpoint.config.key {
            post = post.header("authorization", format!("Bearer {}", key.reveal()));
        }
        let response = endpoint.post(post, request.timeout_ms).await?;
        let ChatReport { usage } =
            serde_json::from_str(&response).map_err(|error| endpoint.unreadable(&error.to_string()))?;
        let message = endpoint.message(&response, &tools, said, message)?;
        let ChatUsage { prompt_tokens, completion_tokens } = usage.unwrap_or_default();
        Ok(ModelReply { message, usage: TokenUsage { input: prompt_tokens, output: completion_tokens } })
    }

    fn written(&self, said_before: &ModelMessage, tools: &OfferedTools) -> Box<RawValue> {
        let written = self.endpoint.written(said_before, tools, said);
        let written = written.and_then(|json| RawValue::from_string(json.to_string()).ok());
        written.unwrap_or_else(|| raw(&message(said_before)))
    }
}

impl LanguageModel for OpenAiModel {
    fn complete<'a>(&'a self, request: &'a ModelRequest, key: &'a str) -> CompletionFuture<'a> {
        Box::pin(self.ask(request, key))
    }
}

fn message(message: &ModelMessage) -> Value {
    let ModelMessage { role, text, calls, call, provider: _ } = message;
    let calls: Vec<Value> = calls
        .iter()
        .map(|call| {
            let function = json!({"name": call.tool, "arguments": call.args.to_string()});
            json!({"id": call.id, "type": "function", "function": function})
        })
        .collect();
    if *role == ModelRole::Tool {
        return json!({"role": "tool", "tool_call_id": call, "content": text});
    }
    let named = [(ModelRole::Assistant, "assistant"), (ModelRole::System, "system")];
    let name = named.into_iter().find(|(known, _)| known == role).map_or("user", |(_, name)| name);
    if calls.is_empty() {
        return json!({"role": name, "content": text});
    }
    let content = if text.is_empty() { Value::Null } else { json!(text) };
    json!({"role": name, "content": content, "tool_calls": calls})
}

/// The text of a whole response, or of a message alone.
fn said(response: &str) -> serde_json::Result<String> {
    let ChatSaid { choices, message } = serde_json::from_str(response)?;
    let message = choices.into_iter().next().map_or(message, |choice| choice.message);
    Ok(message.content.or(message.refusal).unwrap_or_default())
}

#[derive(Deserialize)]
struct ChatSaid {
    #[serde(default)]
    choices: Vec<ChatChoice>,
    #[serde(flatten)]
    message: ChatWords,
}

#[derive(Deserialize)]
struct ChatChoice {
    message: ChatWords,
}

#[derive(Default, Deserialize)]
struct ChatWords {
    content: Option<String>,
    refusal: Option<String>,
}

#[derive(Deserialize)]
struct ChatReport {
    usage: Option<ChatUsage>,
}

#[derive(Default, Deserialize)]
struct ChatUsage {
    #[serde(default)]
    prompt_tokens: u64,
    #[serde(default)]
    completion_tokens: u64,
}
