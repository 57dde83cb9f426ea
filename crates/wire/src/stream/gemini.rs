//! Chunks of Gemini `streamGenerateContent`.

use super::{cut, failed};
use crate::gemini::{self, Generated};
use crate::object::{RawObject, parse};
use crate::{ModelCall, ModelTurn, Wire, WireError};
use serde_json::value::RawValue;

const WIRE: Wire = Wire::Gemini;

#[derive(Debug, Default)]
pub(super) struct GeminiStream {
    pub(super) id: Option<String>,
    parts: Vec<Box<RawValue>>,
    calls: usize,
    is_over: bool,
}

impl GeminiStream {
    pub(super) fn push(&mut self, data: &str) -> Result<Vec<ModelCall>, WireError> {
        let fields: RawObject = parse(WIRE, data, "chunk")?;
        if let Some(error) = fields.get("error") {
            return Err(failed(WIRE, error.get()));
        }
        let Generated { response_id, candidates, .. } = parse(WIRE, data, "chunk")?;
        self.id = self.id.take().or(response_id);
        let mut candidates = candidates.unwrap_or_default();
        if candidates.len() > 1 {
            return Err(gemini::several(&candidates));
        }
        // A chunk that only counts tokens has no candidate.
        let Some(candidate) = candidates.pop() else { return Ok(Vec::new()) };
        self.is_over |= candidate.finish_reason.is_some();
        let mut calls = Vec::new();
        for part in candidate.content.unwrap_or_default().parts.unwrap_or_default() {
            whole(&part)?;
            let call = gemini::read_part(self.calls, self.parts.len(), part.get())?;
            self.calls += usize::from(call.is_some());
            calls.extend(call);
            self.parts.push(part);
        }
        Ok(calls)
    }

    pub(super) fn finish(self) -> Result<ModelTurn, WireError> {
        if !self.is_over {
            return Err(cut(WIRE));
        }
        gemini::of_parts(self.id, self.parts)
    }
}

/// Calls whose arguments come in pieces must be asked for, and have a format of their own.
fn whole(part: &RawValue) -> Result<(), WireError> {
    let fields: RawObject = parse(WIRE, part.get(), "part")?;
    let call: RawObject = match fields.get("functionCall") {
        Some(call) => parse(WIRE, call.get(), "functionCall")?,
        None => return Ok(()),
    };
    if call.get("partialArgs").is_none() && call.get("willContinue").is_none() {
        return Ok(());
    }
    let what = "arguments of a call come in pieces; leave `streamFunctionCallArguments` off".to_owned();
    Err(WireError::Unsupported { wire: WIRE, what })
}
