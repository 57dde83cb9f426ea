//! The kinds of events that a tool tells of and the signals that its calls take, compiled once.

use super::RegisterError;
use serde_json::Value;
use std::collections::BTreeMap;
use windlass_core::json;
use windlass_core::limits::Limits;
use windlass_core::outcome::JsonText;
use windlass_core::schema::{Role, Schema};
use windlass_core::tool::{ToolSpec, check_name, nearest_name};

/// What a tool declares.
pub(crate) struct Kinds {
    emits: BTreeMap<String, Schema>,
    signals: BTreeMap<String, Schema>,
}

/// Why something is not of a declared kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Unfit {
    /// There is no such kind; it was perhaps meant otherwise.
    Undeclared { nearest: Option<String> },
    /// Its payload cannot be kept or does not fit the schema.
    Payload(String),
}

impl Kinds {
    /// Compiles what a tool declares; `None` if that is nothing.
    pub(crate) fn compile(spec: &ToolSpec, limits: &Limits) -> Result<Option<Kinds>, RegisterError> {
        if spec.emits.is_empty() && spec.signals.is_empty() {
            return Ok(None);
        }
        let compile = |place: &'static str, declared: &BTreeMap<String, Value>| {
            let (count, max) = (declared.len() as u64, limits.declared_kinds_max);
            if count > max {
                let hint = "a tool declares fewer; split it";
                return Err(RegisterError::Rules { name: spec.name.clone(), place, value: count, hint });
            }
            let mut kinds = BTreeMap::new();
            for (kind, schema) in declared {
                check_name(kind)?;
                let owner = format!("{}.{place}.{kind}", spec.name);
                kinds.insert(kind.clone(), Schema::compile(schema, Role::Payload, &owner, limits)?);
            }
            Ok(kinds)
        };
        let (emits, signals) = (compile("emits", &spec.emits)?, compile("signals", &spec.signals)?);
        Ok(Some(Kinds { emits, signals }))
    }

    /// The payload of an event, as it is kept, if it is one of a declared kind.
    pub(crate) fn event(&self, kind: &str, payload: &Value, limits: &Limits) -> Result<JsonText, Unfit> {
        fits(&self.emits, kind, payload, limits)
    }

    /// The payload of a signal, as it is kept, if it is one of a declared kind.
    pub(crate) fn signal(&self, name: &str, payload: &Value, limits: &Limits) -> Result<JsonText, Unfit> {
        fits(&self.signals, name, payload, limits)
    }

    /// Whether calls of the tool take this signal.
    pub(crate) fn takes(&self, signal: &str) -> bool {
        self.signals.contains_key(signal)
    }
}

fn fits(
    kinds: &BTreeMap<String, Schema>,
    kind: &str,
    payload: &Value,
    limits: &Limits,
) -> Result<JsonText, Unfit> {
    let Some(schema) = kinds.get(kind) else {
        let nearest = nearest_name(kind, kinds.keys().map(String::as_str)).map(str::to_string);
        return Err(Unfit::Undeclared { nearest });
    };
    let size =
        json::measure_result(payload, limits).map_err(|problem| Unfit::Payload(problem.to_string()))?;
    schema.validate(payload, size).map_err(|invalid| Unfit::Payload(invalid.to_string()))?;
    let text = payload.to_string();
    let (bytes, max) = (text.len() as u64, limits.payload_bytes_max);
    if bytes > max {
        return Err(Unfit::Payload(format!(
            "it has {bytes} bytes, and {max} are kept; say where the rest is"
        )));
    }
    Ok(text.into())
}
