//! Gemini `generateContent`.

use crate::chat::{batch_id, non_empty};
use crate::content::{WireContent, contents, text_only};
use crate::object::{self, RawObject, parse};
use crate::{CallReference, CallResult, ModelCall, ModelTurn, ToolOffer, Wire, WireError, names, schema};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use windlass_core::outcome::{ModelAnswer, Part};

const WIRE: Wire = Wire::Gemini;

/// A whole response, or only its content.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", expecting = "an object, the response or its content")]
pub(crate) struct Generated {
    #[serde(alias = "response_id")]
    pub(crate) response_id: Option<String>,
    pub(crate) candidates: Option<Vec<Candidate>>,
    parts: Option<Vec<Box<RawValue>>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Candidate {
    pub(crate) content: Option<CandidateContent>,
    #[serde(alias = "finish_reason")]
    pub(crate) finish_reason: Option<String>,
}

#[derive(Deserialize, Default)]
pub(crate) struct CandidateContent {
    #[serde(default)]
    pub(crate) parts: Option<Vec<Box<RawValue>>>,
}

/// A model's content to append.
#[derive(Serialize)]
struct ModelContent {
    role: &'static str,
    parts: Vec<Box<RawValue>>,
}

pub(crate) fn read(response: &str) -> Result<ModelTurn, WireError> {
    let Generated { response_id, candidates, parts } = parse(WIRE, response, "")?;
    match (candidates, parts) {
        (Some(candidates), _) => {
            let [candidate] =
                <[Candidate; 1]>::try_from(candidates).map_err(|candidates| several(&candidates))?;
            of_parts(response_id, candidate.content.unwrap_or_default().parts.unwrap_or_default())
        }
        (None, Some(parts)) => of_parts(None, parts),
        (None, None) => {
            Err(WireError::Shape { wire: WIRE, what: "it has neither candidates nor parts".to_owned() })
        }
    }
}

pub(crate) fn several(candidates: &[Candidate]) -> WireError {
    let what = format!(
        "it has {} candidates and must have 1; ask for one, or post its content alone",
        candidates.len()
    );
    WireError::Unsupported { wire: WIRE, what }
}

/// Converts the parts of a model's content to a turn.
pub(crate) fn of_parts(
    response_id: Option<String>,
    parts: Vec<Box<RawValue>>,
) -> Result<ModelTurn, WireError> {
    let mut calls = Vec::new();
    for (place, part) in parts.iter().enumerate() {
        calls.extend(read_part(calls.len(), place, part.get())?);
    }
    // Without a part there is nothing to append, and the provider refuses empty content.
    let assistant =
        if parts.is_empty() { Vec::new() } else { vec![object::raw(&ModelContent { role: "model", parts })] };
    Ok(ModelTurn { wire: WIRE, response_id: non_empty(response_id), calls, assistant, is_paused: false })
}

#[derive(Deserialize)]
#[serde(expecting = "an object with name and args")]
struct FunctionCallPart {
    id: Option<String>,
    name: String,
    args: Option<Box<RawValue>>,
}

/// The call in a part, if it is one.
pub(crate) fn read_part(nth: usize, place: usize, part: &str) -> Result<Option<ModelCall>, WireError> {
    let at = format!("parts[{place}]");
    let fields: RawObject = parse(WIRE, part, &at)?;
    let Some(call) = fields.get("functionCall").or_else(|| fields.get("function_call")) else {
        return Ok(None);
    };
    let FunctionCallPart { id, name, args } = parse(WIRE, call.get(), &format!("{at}.functionCall"))?;
    let id = id.filter(|id| !id.is_empty());
    Ok(Some(ModelCall {
        id: batch_id(id.as_deref().unwrap_or_default(), &name, nth),
        tool: name,
        args: args.map(|args| args.get().to_owned()).unwrap_or_default(),
        provider: fields.rest(&["functionCall", "function_call"]),
        reference: id.map_or(CallReference::Place, CallReference::Id),
    }))
}

pub(crate) fn tools(offers: &[ToolOffer]) -> Value {
    let declaration = |offer: &ToolOffer| {
        json!({
            "name": names::offered(WIRE, &offer.name),
            "description": offer.description,
            "parametersJsonSchema": schema::object_at_root(offer.input_schema.as_ref()),
        })
    };
    if offers.is_empty() {
        return json!([]);
    }
    json!([{"functionDeclarations": offers.iter().map(declaration).collect::<Vec<_>>()}])
}

/// The response to a call, with its value as the tool's JSON.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct FunctionResponsePart<'a> {
    function_response: FunctionResponse<'a>,
}

#[derive(Serialize)]
struct FunctionResponse<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
    name: &'a str,
    response: Box<RawValue>,
}

/// One content with a response per call. Images follow the responses as parts of their own, which every model that sees
/// images takes.
pub(crate) fn results(results: &[CallResult<'_>]) -> Vec<Box<RawValue>> {
    let mut parts: Vec<Box<RawValue>> = Vec::with_capacity(results.len());
    let mut images: Vec<Box<RawValue>> = Vec::new();
    for CallResult { call, answer } in results {
        let id = match &call.reference {
            CallReference::Id(id) | CallReference::CustomId(id) => Some(id.as_str()),
            CallReference::Place => None,
        };
        let function_response =
            FunctionResponse { id, name: &call.tool, response: response(call, answer, &mut images) };
        parts.push(object::raw(&FunctionResponsePart { function_response }));
    }
    parts.append(&mut images);
    vec![object::raw(&ModelContent { role: "user", parts })]
}

/// The outcome under the key that the provider documents; JSON stays JSON, so that no number is rounded on its way.
fn response(call: &ModelCall, answer: &ModelAnswer, images: &mut Vec<Box<RawValue>>) -> Box<RawValue> {
    let key = if answer.is_error { "error" } else { "output" };
    if let [Part::Json(json)] = answer.parts.as_slice()
        && let Ok(raw) = RawValue::from_string(format!("{{\"{key}\":{json}}}"))
    {
        return raw;
    }
    let mut shown = 0;
    let text = text_only(answer, |media_type, data| {
        shown += 1;
        let label = format!("image {shown} of the result of {} (call {})", call.tool, call.id);
        images.push(object::raw(&json!({"text": format!("{label}:")})));
        images.push(object::raw(&image(media_type, &data)));
        format!("[{label}: below]")
    });
    object::raw(&json!({key: text}))
}

pub(crate) fn notice(notice: &ModelAnswer) -> Value {
    let part = |content| match content {
        WireContent::Text(text) => json!({"text": text}),
        WireContent::Image { media_type, data } => image(media_type, &data),
    };
    json!({"role": "user", "parts": contents(notice).map(part).collect::<Vec<_>>()})
}

fn image(media_type: &str, data: &str) -> Value {
    json!({"inlineData": {"mimeType": media_type, "data": data}})
}
