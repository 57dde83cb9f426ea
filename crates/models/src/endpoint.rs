//! One exchange with a provider: the request out, the response or a failure in.

use crate::key::ApiKey;
use serde::Deserialize;
use serde_json::Value;
use std::time::Duration;
use windlass::ToolError;
use windlass::error::{FailureClass, chain};
use windlass::model::{OfferedTool, WantedCall};
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

    /// The model's turn in a response.
    pub(crate) fn turn(&self, response: &str) -> Result<ModelTurn, ToolError> {
        self.wire.read(response).map_err(|error| self.unreadable(&error.to_string()))
    }

    /// The calls that a turn asks for, by the names of the tools.
    pub(crate) fn calls(&self, turn: &ModelTurn, tools: &OfferedTools) -> Vec<WantedCall> {
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
    let ms = number("retry-after-ms").or_else(|| number("retry-after").map(|seconds| seconds * 1_000.0))?;
    Some(ms as u64)
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
