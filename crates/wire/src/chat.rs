//! OpenAI Chat Completions.

use crate::content::{WireContent, contents, text_only};
use crate::object::{RawObject, parse};
use crate::schema::{self, Strictness};
use crate::{CallReference, CallResult, ModelCall, ModelTurn, ToolOffer, Wire, WireError};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use windlass_core::outcome::ModelAnswer;

const WIRE: Wire = Wire::OpenaiChat;

/// A whole response, or only its message.
#[derive(Deserialize)]
#[serde(expecting = "an object, the response or its message")]
struct ChatCompletion {
    id: Option<String>,
    choices: Option<Vec<Choice>>,
}

#[derive(Deserialize)]
#[serde(expecting = "an object with a message")]
struct Choice {
    message: Box<RawValue>,
}

pub(crate) fn read(response: &str) -> Result<ModelTurn, WireError> {
    let whole: ChatCompletion = parse(WIRE, response, "")?;
    let Some(choices) = whole.choices else {
        return of_message(None, parse(WIRE, response, "")?);
    };
    match <[Choice; 1]>::try_from(choices) {
        Ok([choice]) => of_message(whole.id, choice.message),
        Err(choices) => Err(WireError::Unsupported {
            wire: WIRE,
            what: format!(
                "it has {} choices and must have 1; ask for one, or post its message alone",
                choices.len()
            ),
        }),
    }
}

/// Converts an assistant's message to a turn.
pub(crate) fn of_message(
    response_id: Option<String>,
    message: Box<RawValue>,
) -> Result<ModelTurn, WireError> {
    let fields: RawObject = parse(WIRE, message.get(), "message")?;
    if fields.text("role").is_none_or(|role| role != "assistant") {
        let what = "the message has not the role \"assistant\"".to_owned();
        return Err(WireError::Shape { wire: WIRE, what });
    }
    // Its calls would be overlooked, and the turn be taken for over.
    let content = fields.get("content").map_or("", RawValue::get);
    if fields.get("tool_calls").is_none() && (fields.get("stop_reason").is_some() || has_tool_use(content)) {
        return Err(crate::object::of_another(WIRE, Wire::Anthropic));
    }
    if fields.get("function_call").is_some() {
        let what =
            "`function_call` was replaced by `tool_calls`; offer `tools` instead of `functions`".to_owned();
        return Err(WireError::Unsupported { wire: WIRE, what });
    }
    let calls: Vec<Box<RawValue>> = match fields.get("tool_calls") {
        Some(calls) => parse(WIRE, calls.get(), "tool_calls")?,
        None => Vec::new(),
    };
    let calls = calls.iter().enumerate().map(|(place, call)| read_call(place, call.get()));
    Ok(ModelTurn {
        wire: WIRE,
        response_id: non_empty(response_id),
        calls: calls.collect::<Result<_, _>>()?,
        assistant: vec![message],
        is_paused: false,
    })
}

/// Whether some content has a block of Anthropic's that asks for a call.
fn has_tool_use(content: &str) -> bool {
    let blocks: Vec<RawObject> = serde_json::from_str(content).unwrap_or_default();
    blocks.iter().any(|block| block.text("type").as_deref() == Some("tool_use"))
}

#[derive(Deserialize)]
#[serde(expecting = "an object with name and arguments")]
struct CalledFunction {
    name: String,
    arguments: Option<String>,
}

#[derive(Deserialize)]
#[serde(expecting = "an object with name and input")]
struct CustomInput {
    name: String,
    input: String,
}

pub(crate) fn read_call(place: usize, call: &str) -> Result<ModelCall, WireError> {
    let at = format!("tool_calls[{place}]");
    let fields: RawObject = parse(WIRE, call, &at)?;
    let provider = fields.rest(&["id", "type", "function", "custom", "index"]);
    let id = fields.text("id").unwrap_or_default();
    if let Some(custom) = fields.get("custom") {
        let CustomInput { name, input } = parse(WIRE, custom.get(), &at)?;
        return Ok(ModelCall {
            id: batch_id(&id, &name, place),
            tool: name,
            args: json!({"input": input}).to_string(),
            provider,
            reference: CallReference::CustomId(id),
        });
    }
    let function = fields.get("function").map_or("null", RawValue::get);
    let CalledFunction { name, arguments } = parse(WIRE, function, &format!("{at}.function"))?;
    Ok(ModelCall {
        id: batch_id(&id, &name, place),
        tool: name,
        args: arguments.unwrap_or_default(),
        provider,
        reference: CallReference::Id(id),
    })
}

/// The longest id that a call may have in its batch.
const ID_CHARS_MAX: usize = 128;

/// The id of a call in its batch: the provider's, or one made of the name and the place, since some servers send none.
/// Proxies hide whole thought signatures in their ids; such an id is replaced by its hash, and the result still
/// carries the provider's.
pub(crate) fn batch_id(id: &str, name: &str, place: usize) -> String {
    let fits = |id: &str| id.chars().count() <= ID_CHARS_MAX && id.chars().all(|c| !c.is_control());
    match id {
        "" => format!("{name}#{}", place + 1),
        id if fits(id) => id.to_owned(),
        id => format!("id_{}", &blake3::hash(id.as_bytes()).to_hex()[..32]),
    }
}

/// The provider's id of a response; an empty one says nothing.
pub(crate) fn non_empty(id: Option<String>) -> Option<String> {
    id.filter(|id| !id.is_empty())
}

pub(crate) fn tools(offers: &[ToolOffer]) -> Value {
    offers.iter().map(|offer| json!({"type": "function", "function": function(offer)})).collect()
}

/// A function as both OpenAI wires describe it.
pub(crate) fn function(offer: &ToolOffer) -> Value {
    let (parameters, strictness) = schema::openai(offer.input_schema.as_ref());
    json!({
        "name": offer.name,
        "description": offer.description,
        "parameters": parameters,
        "strict": strictness == Strictness::Strict,
    })
}

/// A tool message per call. Tool messages take text only, so images follow in one user message.
pub(crate) fn results(results: &[CallResult<'_>]) -> Vec<Value> {
    let mut images: Vec<Value> = Vec::new();
    let mut messages: Vec<Value> = Vec::with_capacity(results.len() + 1);
    for CallResult { call, answer } in results {
        let mut shown = 0;
        let text = text_only(answer, |media_type, data| {
            shown += 1;
            let label = format!("image {shown} of the result of {} (call {})", call.tool, call.id);
            images.push(json!({"type": "text", "text": format!("{label}:")}));
            images.push(image(media_type, &data));
            format!("[{label}: in the next user message]")
        });
        let (CallReference::Id(id) | CallReference::CustomId(id)) = &call.reference else { continue };
        messages.push(json!({"role": "tool", "tool_call_id": id, "content": text}));
    }
    if !images.is_empty() {
        messages.push(json!({"role": "user", "content": images}));
    }
    messages
}

pub(crate) fn notice(notice: &ModelAnswer) -> Value {
    let content = contents(notice).map(|content| match content {
        WireContent::Text(text) => json!({"type": "text", "text": text}),
        WireContent::Image { media_type, data } => image(media_type, &data),
    });
    json!({"role": "user", "content": content.collect::<Vec<_>>()})
}

fn image(media_type: &str, data: &str) -> Value {
    json!({"type": "image_url", "image_url": {"url": WireContent::data_url(media_type, data)}})
}
