//! The fields of each kind of entry. Keys and numbers here are released: add, never change.

use crate::batch::Opening;
use crate::call::{
    Arguments, Ended, Fact, Given, Kind, Lost, Model, Opened, Prepared, Result as Attempted, Returned, Spent,
    Started,
};
use crate::code::Code;
use crate::failure::{Failure, FailureClass, Retry, Source};
use crate::handle::Handle;
use crate::ids::AttemptNo;
use crate::outcome::{Effect, Form, Kept, ModelAnswer, Outcome, Part, Success, Value};
use crate::tool::{Digest, EffectClass};
use minicbor::{Decode, Encode};
use std::sync::Arc;

pub(super) const BATCH_OPENED: u8 = 1;

pub(super) fn kind_number(kind: Kind) -> u8 {
    match kind {
        Kind::Opened => 2,
        Kind::Prepared => 3,
        Kind::Started => 4,
        Kind::Lost => 5,
        Kind::Returned => 6,
        Kind::Ended => 7,
    }
}

/// Why fields cannot be read.
pub(super) enum Problem {
    /// The kind is not known.
    Kind,
    /// They are not what was written.
    Fields(String),
}

impl From<minicbor::decode::Error> for Problem {
    fn from(error: minicbor::decode::Error) -> Problem {
        Problem::Fields(error.to_string())
    }
}

#[derive(Encode, Decode)]
#[cbor(map)]
struct BatchFields<'a> {
    #[b(0)]
    key: &'a str,
    #[b(1)]
    turn: Option<&'a str>,
}

#[derive(Encode, Decode)]
#[cbor(map)]
struct OpenedFields<'a> {
    #[b(0)]
    id: &'a str,
    #[b(1)]
    tool: &'a str,
    #[b(2)]
    given: &'a str,
    #[b(3)]
    provider: Option<&'a str>,
}

#[derive(Encode, Decode)]
#[cbor(map)]
struct PreparedFields<'a> {
    #[cbor(b(0), with = "minicbor::bytes")]
    contract: &'a [u8],
    #[b(1)]
    class: &'a str,
}

#[derive(Encode, Decode)]
#[cbor(map)]
struct StartedFields {
    #[n(0)]
    attempt: u32,
    #[n(1)]
    redrive: bool,
}

#[derive(Encode, Decode)]
#[cbor(map)]
struct LostFields {
    #[n(0)]
    attempt: u32,
}

#[derive(Encode, Decode)]
#[cbor(map)]
struct ReturnedFields {
    #[n(0)]
    attempt: u32,
    #[n(1)]
    ran_us: u64,
    #[n(2)]
    failure: Option<FailureFields>,
    #[n(3)]
    kept: Option<KeptFields>,
    #[n(4)]
    parts: Option<Vec<PartFields>>,
}

#[derive(Encode, Decode)]
#[cbor(map)]
struct EndedFields {
    #[n(0)]
    outcome: Option<OutcomeFields>,
    /// 0: the value's text, 1: the string it is, 2: its own.
    #[n(1)]
    model: u8,
    #[n(2)]
    model_parts: Option<Vec<PartFields>>,
    #[n(3)]
    is_error: Option<bool>,
    #[n(4)]
    queued_us: u64,
    #[n(5)]
    waited_us: u64,
    #[n(6)]
    ran_us: u64,
}

#[derive(Encode, Decode)]
#[cbor(map)]
struct OutcomeFields {
    #[n(0)]
    name: String,
    #[n(1)]
    failure: Option<FailureFields>,
    #[n(2)]
    reason: Option<String>,
    #[n(3)]
    effect: Option<String>,
    #[n(4)]
    value: Option<String>,
    #[n(5)]
    kept: Option<KeptFields>,
    #[n(6)]
    parts: Option<Vec<PartFields>>,
}

#[derive(Encode, Decode)]
#[cbor(map)]
struct FailureFields {
    #[n(0)]
    class: String,
    #[n(1)]
    source: String,
    #[n(2)]
    code: String,
    #[n(3)]
    tool_code: Option<String>,
    #[n(4)]
    message: String,
    #[n(5)]
    detail: Option<String>,
    #[n(6)]
    retry_safe: Option<bool>,
    #[n(7)]
    retry_after_ms: Option<u64>,
    #[n(8)]
    exhausted: Option<u32>,
    #[n(9)]
    raw: Option<String>,
}

#[derive(Encode, Decode)]
#[cbor(map)]
struct KeptFields {
    #[cbor(n(0), with = "minicbor::bytes")]
    artifact: Vec<u8>,
    #[n(1)]
    bytes: u64,
    #[n(2)]
    form: Option<String>,
}

#[derive(Encode, Decode)]
#[cbor(map)]
struct PartFields {
    #[n(0)]
    text: Option<String>,
    #[n(1)]
    json: Option<String>,
    #[cbor(n(2), with = "minicbor::bytes")]
    image: Option<Vec<u8>>,
    #[n(3)]
    file: Option<KeptFields>,
    #[n(4)]
    media_type: Option<String>,
    #[n(5)]
    name: Option<String>,
}

/// Appends the fields of a batch's own entry.
pub(super) fn write_batch(opening: &Opening, bytes: &mut Vec<u8>) {
    encode(&BatchFields { key: &opening.key, turn: opening.turn.as_deref() }, bytes);
}

/// Appends the fields of a call's first entry.
pub(super) fn write_opened(opened: &Opened, bytes: &mut Vec<u8>) {
    let given = opened.args.given.as_str();
    let provider = opened.provider.as_deref();
    encode(&OpenedFields { id: &opened.id, tool: &opened.tool, given, provider }, bytes);
}

/// Appends the fields of a fact.
pub(super) fn write_fact(fact: &Fact, bytes: &mut Vec<u8>) {
    match fact {
        Fact::Opened(opened) => write_opened(opened, bytes),
        Fact::Prepared(prepared) => {
            let class = prepared.class.as_str();
            encode(&PreparedFields { contract: &prepared.contract.0, class }, bytes);
        }
        Fact::Started(started) => {
            encode(&StartedFields { attempt: started.attempt.0, redrive: started.redrive }, bytes);
        }
        Fact::Lost(lost) => encode(&LostFields { attempt: lost.attempt.0 }, bytes),
        Fact::Returned(returned) => encode(&ReturnedFields::from(returned), bytes),
        Fact::Ended(ended) => encode(&EndedFields::from(&**ended), bytes),
    }
}

fn encode<T: Encode<()>>(fields: &T, bytes: &mut Vec<u8>) {
    if let Err(error) = minicbor::encode(fields, bytes) {
        unreachable!("memory takes every byte, and none of the fields refuses to be written: {error}");
    }
}

/// The bytes that stand behind the fields as they are: arguments, and the value a tool returned.
pub(super) fn payload(fact: &Fact) -> &[u8] {
    match fact {
        Fact::Opened(opened) => opened.args.text.as_bytes(),
        Fact::Returned(returned) => match &returned.result {
            Attempted::Ok(Success { value: Value::Inline(text), .. }) => text.as_bytes(),
            Attempted::Ok(_) | Attempted::Failed(_) => &[],
        },
        Fact::Prepared(_) | Fact::Started(_) | Fact::Lost(_) | Fact::Ended(_) => &[],
    }
}

pub(super) fn read_batch(kind: u8, fields: &[u8]) -> Result<Opening, Problem> {
    if kind != BATCH_OPENED {
        return Err(Problem::Kind);
    }
    let fields: BatchFields<'_> = minicbor::decode(fields)?;
    Ok(Opening { key: fields.key.into(), turn: fields.turn.map(str::to_string) })
}

pub(super) fn read_fact(kind: u8, fields: &[u8], payload: &[u8]) -> Result<Fact, Problem> {
    let known = Kind::ALL.iter().find(|known| kind_number(**known) == kind).ok_or(Problem::Kind)?;
    Ok(match known {
        Kind::Opened => Fact::Opened(read_opened(minicbor::decode(fields)?, payload)?),
        Kind::Prepared => Fact::Prepared(read_prepared(&minicbor::decode(fields)?)?),
        Kind::Started => {
            let fields: StartedFields = minicbor::decode(fields)?;
            Fact::Started(Started { attempt: AttemptNo(fields.attempt), redrive: fields.redrive })
        }
        Kind::Lost => {
            let fields: LostFields = minicbor::decode(fields)?;
            Fact::Lost(Lost { attempt: AttemptNo(fields.attempt) })
        }
        Kind::Returned => Fact::Returned(read_returned(minicbor::decode(fields)?, payload)?),
        Kind::Ended => Fact::Ended(Box::new(read_ended(minicbor::decode(fields)?)?)),
    })
}

fn read_opened(fields: OpenedFields<'_>, payload: &[u8]) -> Result<Opened, Problem> {
    Ok(Opened {
        id: fields.id.into(),
        tool: fields.tool.into(),
        args: Arguments { given: known(Given::parse(fields.given), fields.given)?, text: text(payload)? },
        provider: fields.provider.map(Arc::from),
    })
}

fn read_prepared(fields: &PreparedFields<'_>) -> Result<Prepared, Problem> {
    let contract = fields.contract.try_into().map_err(|_| wrong("a contract digest has 32 bytes"))?;
    let class = known(EffectClass::parse(fields.class), fields.class)?;
    Ok(Prepared { contract: Digest(contract), class })
}

fn read_returned(fields: ReturnedFields, payload: &[u8]) -> Result<Returned, Problem> {
    let result = match (fields.failure, fields.kept) {
        (Some(failure), _) => Attempted::Failed(Box::new(failure.read()?)),
        (None, Some(kept)) => {
            Attempted::Ok(Success { value: kept.read_value()?, parts: read_parts(fields.parts)? })
        }
        (None, None) => {
            Attempted::Ok(Success { value: Value::Inline(text(payload)?), parts: read_parts(fields.parts)? })
        }
    };
    Ok(Returned { attempt: AttemptNo(fields.attempt), ran_us: fields.ran_us, result })
}

fn read_ended(fields: EndedFields) -> Result<Ended, Problem> {
    let model = match fields.model {
        0 => Model::ValueText,
        1 => Model::ValueString,
        2 => Model::Own(ModelAnswer {
            parts: read_parts(fields.model_parts)?,
            is_error: fields.is_error.unwrap_or(false),
        }),
        other => return Err(wrong(&format!("{other} is no way to keep a model's answer"))),
    };
    let spent = Spent { queued_us: fields.queued_us, waited_us: fields.waited_us, ran_us: fields.ran_us };
    Ok(Ended { outcome: fields.outcome.map(OutcomeFields::read).transpose()?, model, spent })
}

impl From<&Returned> for ReturnedFields {
    fn from(returned: &Returned) -> ReturnedFields {
        let (failure, kept, parts) = match &returned.result {
            Attempted::Failed(failure) => (Some((&**failure).into()), None, None),
            Attempted::Ok(Success { value, parts }) => (None, value.into(), write_parts(parts)),
        };
        ReturnedFields { attempt: returned.attempt.0, ran_us: returned.ran_us, failure, kept, parts }
    }
}

impl From<&Ended> for EndedFields {
    fn from(ended: &Ended) -> EndedFields {
        let (model, model_parts, is_error) = match &ended.model {
            Model::ValueText => (0, None, None),
            Model::ValueString => (1, None, None),
            Model::Own(answer) => (2, write_parts(&answer.parts), Some(answer.is_error)),
        };
        let Spent { queued_us, waited_us, ran_us } = ended.spent;
        let outcome = ended.outcome.as_ref().map(OutcomeFields::from);
        EndedFields { outcome, model, model_parts, is_error, queued_us, waited_us, ran_us }
    }
}

impl From<&Outcome> for OutcomeFields {
    fn from(outcome: &Outcome) -> OutcomeFields {
        let mut fields = OutcomeFields {
            name: outcome.name().to_string(),
            failure: None,
            reason: None,
            effect: None,
            value: None,
            kept: None,
            parts: None,
        };
        match outcome {
            Outcome::Succeeded(Success { value, parts }) => {
                fields.kept = value.into();
                fields.parts = write_parts(parts);
                if let Value::Inline(text) = value {
                    fields.value = Some(text.to_string());
                }
            }
            Outcome::Failed(failure) => fields.failure = Some((&**failure).into()),
            Outcome::Denied { reason } => fields.reason = Some(reason.clone()),
            Outcome::Cancelled { effect } => fields.effect = Some(effect.as_str().to_string()),
            Outcome::Unknown => {}
        }
        fields
    }
}

impl OutcomeFields {
    fn read(self) -> Result<Outcome, Problem> {
        let missing = || wrong("an outcome lacks what its name promises");
        Ok(match self.name.as_str() {
            "succeeded" => {
                let value = match (self.kept, self.value) {
                    (Some(kept), _) => kept.read_value()?,
                    (None, Some(text)) => Value::Inline(text.into()),
                    (None, None) => return Err(missing()),
                };
                Outcome::Succeeded(Success { value, parts: read_parts(self.parts)? })
            }
            "failed" => Outcome::Failed(Box::new(self.failure.ok_or_else(missing)?.read()?)),
            "denied" => Outcome::Denied { reason: self.reason.ok_or_else(missing)? },
            "cancelled" => {
                let effect = self.effect.ok_or_else(missing)?;
                Outcome::Cancelled { effect: known(Effect::parse(&effect), &effect)? }
            }
            "unknown" => Outcome::Unknown,
            other => return Err(wrong(&format!("{other:?} is no outcome"))),
        })
    }
}

impl From<&Failure> for FailureFields {
    fn from(failure: &Failure) -> FailureFields {
        let (retry_safe, retry_after_ms, exhausted) = match failure.retry {
            Retry::Never => (None, None, None),
            Retry::Safe { after_ms } => (Some(true), after_ms, None),
            Retry::Exhausted { attempts } => (None, None, Some(attempts)),
        };
        FailureFields {
            class: failure.class.to_string(),
            source: failure.source.to_string(),
            code: failure.code.to_string(),
            tool_code: failure.tool_code.clone(),
            message: failure.message.clone(),
            detail: failure.detail.clone(),
            retry_safe,
            retry_after_ms,
            exhausted,
            raw: failure.raw.clone(),
        }
    }
}

impl FailureFields {
    fn read(self) -> Result<Failure, Problem> {
        let retry = match (self.retry_safe, self.exhausted) {
            (Some(true), _) => Retry::Safe { after_ms: self.retry_after_ms },
            (_, Some(attempts)) => Retry::Exhausted { attempts },
            _ => Retry::Never,
        };
        Ok(Failure {
            class: known(FailureClass::parse(&self.class), &self.class)?,
            source: known(Source::parse(&self.source), &self.source)?,
            code: known(Code::parse(&self.code), &self.code)?,
            tool_code: self.tool_code,
            message: self.message,
            detail: self.detail,
            retry,
            raw: self.raw,
        })
    }
}

impl From<&Value> for Option<KeptFields> {
    fn from(value: &Value) -> Option<KeptFields> {
        match value {
            Value::Inline(_) => None,
            Value::Kept { kept, form } => {
                Some(KeptFields { form: Some(form.to_string()), ..KeptFields::from(*kept) })
            }
        }
    }
}

impl From<Kept> for KeptFields {
    fn from(kept: Kept) -> KeptFields {
        KeptFields { artifact: kept.artifact.0.to_le_bytes().to_vec(), bytes: kept.bytes, form: None }
    }
}

impl KeptFields {
    fn read_value(self) -> Result<Value, Problem> {
        let form = self.form.as_deref().unwrap_or(Form::Json.as_str());
        let form = known(Form::parse(form), form)?;
        Ok(Value::Kept { kept: self.read()?, form })
    }

    fn read(self) -> Result<Kept, Problem> {
        let artifact = self.artifact.try_into().map_err(|_| wrong("an artifact's handle has 16 bytes"))?;
        Ok(Kept { artifact: Handle(u128::from_le_bytes(artifact)), bytes: self.bytes })
    }
}

fn write_parts(parts: &[Part]) -> Option<Vec<PartFields>> {
    (!parts.is_empty()).then(|| parts.iter().map(PartFields::from).collect())
}

fn read_parts(parts: Option<Vec<PartFields>>) -> Result<Vec<Part>, Problem> {
    parts.unwrap_or_default().into_iter().map(PartFields::read).collect()
}

impl From<&Part> for PartFields {
    fn from(part: &Part) -> PartFields {
        let mut fields =
            PartFields { text: None, json: None, image: None, file: None, media_type: None, name: None };
        match part {
            Part::Text(text) => fields.text = Some(text.clone()),
            Part::Json(json) => fields.json = Some(json.to_string()),
            Part::Image { media_type, data } => {
                fields.image = Some(data.to_vec());
                fields.media_type = Some(media_type.clone());
            }
            Part::File { kept, media_type, name } => {
                fields.file = Some((*kept).into());
                fields.media_type = Some(media_type.clone());
                fields.name = Some(name.clone());
            }
        }
        fields
    }
}

impl PartFields {
    fn read(self) -> Result<Part, Problem> {
        let media_type = self.media_type.unwrap_or_default();
        Ok(match (self.text, self.json, self.image, self.file) {
            (Some(text), ..) => Part::Text(text),
            (_, Some(json), ..) => Part::Json(json.into()),
            (_, _, Some(image), _) => Part::Image { media_type, data: image.into() },
            (_, _, _, Some(file)) => {
                Part::File { kept: file.read()?, media_type, name: self.name.unwrap_or_default() }
            }
            (None, None, None, None) => return Err(wrong("a part of an unknown kind")),
        })
    }
}

fn text(payload: &[u8]) -> Result<Arc<str>, Problem> {
    std::str::from_utf8(payload).map(Arc::from).map_err(|_| wrong("a payload is not text"))
}

fn known<T>(parsed: Option<T>, text: &str) -> Result<T, Problem> {
    parsed.ok_or_else(|| wrong(&format!("{text:?} is not known here")))
}

fn wrong(what: &str) -> Problem {
    Problem::Fields(what.to_string())
}
