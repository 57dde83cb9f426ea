//! Outcomes, failures and parts as fields.

use super::{FieldProblem, known, wrong};
use crate::code::Code;
use crate::failure::{Failure, FailureClass, Retry, Source};
use crate::handle::Handle;
use crate::operation::AnswerExtras;
use crate::outcome::{Effect, Form, JsonText, KeptBytes, Outcome, Part, SideOutput, Success, Value};
use minicbor::{Decode, Encode};

#[derive(Encode, Decode)]
#[cbor(map)]
pub(super) struct OutcomeFields {
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
    #[n(7)]
    side: Option<SideFields>,
}

/// Output that is not for the model.
#[derive(Encode, Decode)]
#[cbor(map)]
pub(super) struct SideFields {
    #[n(0)]
    raw: Option<KeptFields>,
    #[n(1)]
    control: Option<String>,
}

pub(super) fn write_side(side: Option<&SideOutput>) -> Option<SideFields> {
    side.map(|side| SideFields {
        raw: side.raw.map(KeptFields::from),
        control: side.control.as_deref().map(str::to_string),
    })
}

pub(super) fn read_side(fields: Option<SideFields>) -> Result<Option<Box<SideOutput>>, FieldProblem> {
    let Some(fields) = fields else { return Ok(None) };
    let raw = fields.raw.map(KeptFields::read).transpose()?;
    Ok(Some(Box::new(SideOutput { raw, control: fields.control.map(Into::into) })))
}

#[derive(Encode, Decode)]
#[cbor(map)]
pub(super) struct FailureFields {
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
    #[n(10)]
    did_not_happen: Option<bool>,
    #[n(11)]
    parts: Option<Vec<PartFields>>,
    #[n(12)]
    side: Option<SideFields>,
}

#[derive(Encode, Decode)]
#[cbor(map)]
pub(super) struct KeptFields {
    #[cbor(n(0), with = "minicbor::bytes")]
    artifact: Vec<u8>,
    #[n(1)]
    bytes: u64,
    #[n(2)]
    form: Option<String>,
}

#[derive(Encode, Decode)]
#[cbor(map)]
pub(crate) struct PartFields {
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
    #[n(6)]
    kept_image: Option<KeptFields>,
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
            side: None,
        };
        match outcome {
            Outcome::Succeeded(Success { value, parts, side }) => {
                fields.kept = value.into();
                fields.parts = write_parts(parts);
                fields.side = write_side(side.as_deref());
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
    pub(super) fn read(self) -> Result<Outcome, FieldProblem> {
        let missing = || wrong("an outcome lacks what its name promises");
        Ok(match self.name.as_str() {
            "succeeded" => {
                let value = match (self.kept, self.value) {
                    (Some(kept), _) => kept.read_value()?,
                    (None, Some(text)) => Value::Inline(text.into()),
                    (None, None) => return Err(missing()),
                };
                let (parts, side) = (read_parts(self.parts)?, read_side(self.side)?);
                Outcome::Succeeded(Success { value, parts, side })
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
            did_not_happen: failure.did_not_happen.then_some(true),
            parts: write_parts(&failure.parts),
            side: write_side(failure.side.as_deref()),
        }
    }
}

impl FailureFields {
    pub(super) fn read(self) -> Result<Failure, FieldProblem> {
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
            did_not_happen: self.did_not_happen.unwrap_or(false),
            raw: self.raw,
            parts: read_parts(self.parts)?,
            side: read_side(self.side)?,
        })
    }
}

/// A value stored whole in fields.
#[derive(Encode, Decode)]
#[cbor(map)]
pub(super) struct SuccessFields {
    #[n(0)]
    value: Option<String>,
    #[n(1)]
    kept: Option<KeptFields>,
    #[n(2)]
    parts: Option<Vec<PartFields>>,
    #[n(3)]
    side: Option<SideFields>,
}

impl From<&Success> for SuccessFields {
    fn from(success: &Success) -> SuccessFields {
        let value = match &success.value {
            Value::Inline(text) => Some(text.to_string()),
            Value::Kept { .. } => None,
        };
        let (parts, side) = (write_parts(&success.parts), write_side(success.side.as_deref()));
        SuccessFields { value, kept: (&success.value).into(), parts, side }
    }
}

impl SuccessFields {
    pub(super) fn read(self) -> Result<Success, FieldProblem> {
        let value = match (self.kept, self.value) {
            (Some(kept), _) => kept.read_value()?,
            (None, Some(text)) => Value::Inline(text.into()),
            (None, None) => return Err(wrong("a value is neither here nor kept")),
        };
        Ok(Success { value, parts: read_parts(self.parts)?, side: read_side(self.side)? })
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

impl From<KeptBytes> for KeptFields {
    fn from(kept: KeptBytes) -> KeptFields {
        KeptFields { artifact: kept.artifact.0.to_le_bytes().to_vec(), bytes: kept.bytes, form: None }
    }
}

impl KeptFields {
    pub(super) fn read_value(self) -> Result<Value, FieldProblem> {
        let form = self.form.as_deref().unwrap_or(Form::Json.as_str());
        let form = known(Form::parse(form), form)?;
        Ok(Value::Kept { kept: self.read()?, form })
    }

    pub(super) fn read(self) -> Result<KeptBytes, FieldProblem> {
        let artifact = self.artifact.try_into().map_err(|_| wrong("an artifact's handle has 16 bytes"))?;
        Ok(KeptBytes { artifact: Handle(u128::from_le_bytes(artifact)), bytes: self.bytes })
    }
}

/// Parts and raw output of an external answer.
#[derive(Encode, Decode)]
#[cbor(map)]
pub(crate) struct ExtraFields {
    #[n(0)]
    parts: Option<Vec<PartFields>>,
    #[n(1)]
    raw: Option<String>,
    #[n(2)]
    control: Option<String>,
}

impl From<&AnswerExtras> for ExtraFields {
    fn from(extras: &AnswerExtras) -> ExtraFields {
        let AnswerExtras { parts, raw, control } = extras;
        let text = |text: &Option<JsonText>| text.as_deref().map(str::to_string);
        ExtraFields { parts: write_parts(parts), raw: text(raw), control: text(control) }
    }
}

impl ExtraFields {
    pub(crate) fn read(self) -> Result<AnswerExtras, FieldProblem> {
        let ExtraFields { parts, raw, control } = self;
        let (raw, control) = (raw.map(Into::into), control.map(Into::into));
        Ok(AnswerExtras { parts: read_parts(parts)?, raw, control })
    }
}

pub(super) fn write_parts(parts: &[Part]) -> Option<Vec<PartFields>> {
    (!parts.is_empty()).then(|| parts.iter().map(PartFields::from).collect())
}

pub(super) fn read_parts(parts: Option<Vec<PartFields>>) -> Result<Vec<Part>, FieldProblem> {
    parts.unwrap_or_default().into_iter().map(PartFields::read).collect()
}

impl From<&Part> for PartFields {
    fn from(part: &Part) -> PartFields {
        let mut fields = PartFields {
            text: None,
            json: None,
            image: None,
            file: None,
            media_type: None,
            name: None,
            kept_image: None,
        };
        match part {
            Part::Text(text) => fields.text = Some(text.clone()),
            Part::Json(json) => fields.json = Some(json.to_string()),
            Part::Image { media_type, data } => {
                fields.image = Some(data.to_vec());
                fields.media_type = Some(media_type.clone());
            }
            Part::KeptImage { kept, media_type } => {
                fields.kept_image = Some((*kept).into());
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
    pub(super) fn read(self) -> Result<Part, FieldProblem> {
        let media_type = self.media_type.unwrap_or_default();
        if let Some(kept) = self.kept_image {
            return Ok(Part::KeptImage { kept: kept.read()?, media_type });
        }
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
