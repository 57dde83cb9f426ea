//! One exchange with a provider: the request out, the response or a failure in.

use crate::key::ApiKey;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::time::{Duration, SystemTime};
use windlass::ToolError;
use windlass::error::{FailureClass, chain};
use windlass::model::{ModelMessage, ModelRole, OfferedTool, ProviderMessage, WantedCall};
use windlass_http::{HttpClient, HttpError, HttpRequest, HttpResponse};
use windlass_wire::{ModelTurn, ToolNames, ToolOffer, Wire};

/// Where a provider is, and which of its models answers.
#[derive(Clone, Debug)]
pub struct EndpointConfig {
    /// The URL before the path of each request, such as `https://models.example.com/v1`.
    pub base_url: String,
    /// The key, if the endpoint needs one.
    pub key: Option<ApiKey>,
    /// The model that answers where the request names none.
    pub model: String,
    /// The maximum number of tokens of an answer, where the request has none.
    pub output_tokens_max: u64,
    /// Further fields of every request, such as `temperature` or `thinking`. Those of the question itself cannot be replaced.
    pub parameters: Map<String, Value>,
}

/// The longest part of a provider's message that is passed on.
const MESSAGE_CHARS_MAX: usize = 500;

/// A client for one endpoint.
#[derive(Clone, Debug)]
pub(crate) struct Endpoint {
    pub(crate) http: HttpClient,
    pub(crate) config: EndpointConfig,
    pub(crate) wire: Wire,
}

/// The tools of a request, as the wire has them.
pub(crate) struct OfferedTools {
    pub(crate) list: Option<Value>,
    names: ToolNames,
}

impl Endpoint {
    /// The tools of a request.
    pub(crate) fn tools(&self, tools: &[OfferedTool]) -> OfferedTools {
        let offer = |tool: &OfferedTool| ToolOffer {
            name: tool.name.clone(),
            description: tool.description.clone(),
            input_schema: Some(tool.input_schema.clone()).filter(|schema| !schema.is_null()),
        };
        let names = ToolNames::new(self.wire, tools.iter().map(|tool| tool.name.as_str()));
        let list = (!tools.is_empty()).then(|| self.wire.tools(&tools.iter().map(offer).collect::<Vec<_>>()));
        OfferedTools { list, names }
    }

    /// Posts a request, and reads the whole response.
    pub(crate) async fn post(
        &self,
        request: HttpRequest,
        within_ms: Option<u64>,
    ) -> Result<String, ToolError> {
        let request = HttpRequest { timeout: within_ms.map(Duration::from_millis), ..request };
        let response = self.http.send(request).await.map_err(|error| unreachable_endpoint(&error))?;
        if !(200..300).contains(&response.status) {
            return Err(self.refused(&response));
        }
        String::from_utf8(response.body).map_err(|_| self.unreadable("it is no text"))
    }

    /// The body of a request: its fields, and the messages, some of which are the provider's own bytes.
    pub(crate) fn body(
        &self,
        mut fields: Map<String, Value>,
        messages: Vec<Box<RawValue>>,
    ) -> Result<String, ToolError> {
        fields.remove("messages");
        let body = RequestBody { messages, fields };
        serde_json::to_string(&body).map_err(|error| ToolError::internal(error.to_string()))
    }

    /// The message of a response. The provider's own form is kept only if our form of it is another.
    pub(crate) fn message(
        &self,
        response: &str,
        tools: &OfferedTools,
        said: fn(&str) -> serde_json::Result<String>,
        ours: fn(&ModelMessage) -> Value,
    ) -> Result<ModelMessage, ToolError> {
        let turn = self.turn(response)?;
        let text = said(response).map_err(|error| self.unreadable(&error.to_string()))?;
        let message = ModelMessage { calls: self.calls(&turn, tools), ..ModelMessage::assistant(text) };
        let provider = match turn.assistant.as_slice() {
            [written] if !says_the_same(written.get(), &ours(&message)) => {
                Some(ProviderMessage { form: self.wire.name().to_string(), json: written.get().to_string() })
            }
            _ => None,
        };
        Ok(ModelMessage { provider, ..message })
    }

    /// The provider's own form of an earlier message, unless the host has changed the message since.
    pub(crate) fn written<'a>(
        &self,
        message: &'a ModelMessage,
        tools: &OfferedTools,
        said: fn(&str) -> serde_json::Result<String>,
    ) -> Option<&'a str> {
        let ProviderMessage { form, json } = message.provider.as_ref()?;
        let is_ours = form == self.wire.name() && message.role == ModelRole::Assistant;
        let turn = is_ours.then(|| self.turn(json).ok()).flatten()?;
        let is_unchanged =
            said(json).is_ok_and(|text| text == message.text) && self.calls(&turn, tools) == message.calls;
        is_unchanged.then_some(json)
    }

    /// The model's turn in a response.
    fn turn(&self, response: &str) -> Result<ModelTurn, ToolError> {
        self.wire.read(response).map_err(|error| self.unreadable(&error.to_string()))
    }

    /// The calls that a turn asks for, by the names of the tools.
    fn calls(&self, turn: &ModelTurn, tools: &OfferedTools) -> Vec<WantedCall> {
        let calls = turn.calls.iter().map(|call| WantedCall {
            id: call.id.clone(),
            tool: tools.names.tool(&call.tool).to_string(),
            // What is no JSON stays the model's text.
            args: serde_json::from_str(&call.args).unwrap_or_else(|_| Value::String(call.args.clone())),
        });
        calls.collect()
    }

    /// A response that is not what the provider documents.
    pub(crate) fn unreadable(&self, what: &str) -> ToolError {
        ToolError::internal(format!(
            "the answer of the language model over {} cannot be read: {what}",
            self.wire
        ))
    }

    /// A response with an error status. The provider's message may help to ask better; of a refused key nothing is passed on.
    fn refused(&self, response: &HttpResponse) -> ToolError {
        let status = response.status;
        let said = self.said(&response.body);
        match status {
            401 | 403 => ToolError::internal(format!("the language model refused the key (status {status})")),
            408 | 409 | 425 | 429 | 500..=599 => {
                let message = format!("The language model is not available (status {status}).{said}");
                let error = ToolError { class: FailureClass::Unavailable, ..ToolError::new(message) };
                match retry_after(response) {
                    Some(after_ms) => error.safe_to_retry_after(after_ms),
                    None => error.safe_to_retry(),
                }
            }
            _ => {
                let message = format!("The language model refused the request (status {status}).{said}");
                ToolError { class: FailureClass::External, ..ToolError::new(message) }
            }
        }
    }

    /// The provider's own words, in front of which a space stands.
    fn said(&self, body: &[u8]) -> String {
        let Ok(ErrorBody { error: ErrorWords { message } }) = serde_json::from_slice(body) else {
            return String::new();
        };
        let message = match &self.config.key {
            Some(key) => key.removed_from(&message),
            None => message,
        };
        format!(" {}", message.chars().take(MESSAGE_CHARS_MAX).collect::<String>())
    }
}

#[derive(Serialize)]
struct RequestBody {
    messages: Vec<Box<RawValue>>,
    #[serde(flatten)]
    fields: Map<String, Value>,
}

/// A message of ours as JSON text.
pub(crate) fn raw(message: &impl Serialize) -> Box<RawValue> {
    // Messages have text keys and no floats that are not numbers, so they can be written.
    serde_json::value::to_raw_value(message).unwrap_or_default()
}

/// Whether the provider's form has nothing that ours has not; fields that are null or an empty list say nothing.
fn says_the_same(written: &str, ours: &Value) -> bool {
    fn is_in(written: &Value, ours: &Value) -> bool {
        match (written, ours) {
            (Value::Object(written), Value::Object(ours)) => written.iter().all(|(name, value)| {
                value.is_null()
                    || value.as_array().is_some_and(Vec::is_empty)
                    || ours.get(name).is_some_and(|ours| is_in(value, ours))
            }),
            (Value::Array(written), Value::Array(ours)) => {
                written.len() == ours.len()
                    && written.iter().zip(ours).all(|(written, ours)| is_in(written, ours))
            }
            _ => written == ours,
        }
    }
    serde_json::from_str(written).is_ok_and(|written| is_in(&written, ours))
}

#[derive(Deserialize)]
struct ErrorBody {
    error: ErrorWords,
}

#[derive(Deserialize)]
struct ErrorWords {
    message: String,
}

/// How long to wait by the provider's own word, in milliseconds.
fn retry_after(response: &HttpResponse) -> Option<u64> {
    let number = |name: &str| response.header(name)?.trim().parse::<f64>().ok().filter(|given| *given >= 0.0);
    let ms = number("retry-after-ms").or_else(|| number("retry-after").map(|seconds| seconds * 1_000.0));
    match ms {
        Some(ms) => Some(ms as u64),
        None => until_date(response.header("retry-after")?, response.header("date")),
    }
}

/// The time until a date, by the clock of whoever named it: the response has its own time in `date`.
fn until_date(date: &str, now: Option<&str>) -> Option<u64> {
    let now = now.and_then(|now| httpdate::parse_http_date(now).ok()).unwrap_or_else(SystemTime::now);
    let date = httpdate::parse_http_date(date).ok()?;
    let wait = date.duration_since(now).unwrap_or_default();
    Some(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX))
}

/// No response: asking again is safe, since an answer that nobody got has no effect but its price.
fn unreachable_endpoint(error: &HttpError) -> ToolError {
    let class = if matches!(error, HttpError::Timeout { .. }) {
        FailureClass::Timeout
    } else if matches!(error, HttpError::Connect { .. } | HttpError::Broken { .. }) {
        FailureClass::Unavailable
    } else {
        // A mistake of the host: the same again the next time.
        return ToolError::internal(chain(error));
    };
    let message = "The language model could not be reached.";
    let detail = Some(chain(error));
    ToolError { class, detail, ..ToolError::new(message) }.safe_to_retry()
}
