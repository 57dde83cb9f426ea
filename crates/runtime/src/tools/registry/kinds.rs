//! The events that a tool emits, the signals that its calls take and the secrets they use, compiled once.

use super::RegisterError;
use crate::api::limits::EnforcedLimits;
use crate::api::secret::check_secret_name;
use serde_json::Value;
use std::collections::BTreeMap;
use windlass_args::json;
use windlass_args::names::nearest_name;
use windlass_args::schema::{Schema, SchemaRole};
use windlass_args::template::{TemplatePiece, pieces};
use windlass_core::outcome::JsonText;
use windlass_core::tool::{ToolSpec, check_name};

/// The declared events, signals and secrets of a tool.
pub(crate) struct Kinds {
    emits: BTreeMap<String, Schema>,
    signals: BTreeMap<String, Schema>,
    /// The texts of the notices of events that wake the agent.
    wakes: BTreeMap<String, String>,
    /// The names of the secrets that its calls use.
    secrets: Vec<String>,
}

/// Why an event or a signal does not match its declaration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum KindMismatch {
    /// There is no such kind; `nearest` is a suggestion.
    Undeclared { nearest: Option<String> },
    /// Its payload cannot be stored or does not fit the schema.
    Payload(String),
}

impl Kinds {
    /// Compiles the declarations of a tool; `None` if there are none.
    pub(crate) fn compile(spec: &ToolSpec, limits: &EnforcedLimits) -> Result<Option<Kinds>, RegisterError> {
        if spec.wakes.keys().any(|kind| !spec.emits.contains_key(kind)) {
            let what = "lists an event under `wakes` that it does not emit; list it under `emits` too";
            return Err(RegisterError::Flags { name: spec.name.clone(), what });
        }
        if spec.secrets.iter().any(|name| check_secret_name(name).is_err()) {
            let what = "lists a secret whose name is not 1 to 64 of a-z, A-Z, 0-9, _, . and -; rename it";
            return Err(RegisterError::Flags { name: spec.name.clone(), what });
        }
        if spec.emits.is_empty() && spec.signals.is_empty() && spec.secrets.is_empty() {
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
                kinds.insert(
                    kind.clone(),
                    Schema::compile(schema, SchemaRole::Payload, &owner, limits.args())?,
                );
            }
            Ok(kinds)
        };
        let (emits, signals) = (compile("emits", &spec.emits)?, compile("signals", &spec.signals)?);
        Ok(Some(Kinds { emits, signals, wakes: spec.wakes.clone(), secrets: spec.secrets.clone() }))
    }

    /// The payload of an event in stored form, if its kind is declared.
    pub(crate) fn event(
        &self,
        kind: &str,
        payload: &Value,
        limits: &EnforcedLimits,
    ) -> Result<JsonText, KindMismatch> {
        fits(&self.emits, kind, payload, limits)
    }

    /// The payload of a signal in stored form, if its kind is declared.
    pub(crate) fn signal(
        &self,
        name: &str,
        payload: &Value,
        limits: &EnforcedLimits,
    ) -> Result<JsonText, KindMismatch> {
        fits(&self.signals, name, payload, limits)
    }

    /// Whether its calls use this secret.
    pub(crate) fn uses_secret(&self, name: &str) -> bool {
        self.secrets.iter().any(|known| known == name)
    }

    /// Whether it declares this kind of event.
    pub(crate) fn emits(&self, kind: &str) -> bool {
        self.emits.contains_key(kind)
    }

    /// The text of the notice by which an event wakes the agent, if its kind does.
    pub(crate) fn wake_text(&self, kind: &str, payload: &Value) -> Option<String> {
        let shown = |name: &str| match payload.get(name) {
            Some(Value::String(text)) => text.clone(),
            Some(value) => value.to_string(),
            None => format!("{{{name}}}"),
        };
        let text = pieces(self.wakes.get(kind)?);
        Some(
            text.map(|piece| match piece {
                TemplatePiece::Text(text) => text.to_string(),
                TemplatePiece::Property(name) => shown(name),
            })
            .collect(),
        )
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
    limits: &EnforcedLimits,
) -> Result<JsonText, KindMismatch> {
    let Some(schema) = kinds.get(kind) else {
        let nearest = nearest_name(kind, kinds.keys().map(String::as_str)).map(str::to_string);
        return Err(KindMismatch::Undeclared { nearest });
    };
    let size = json::measure_result(payload, limits.args())
        .map_err(|problem| KindMismatch::Payload(problem.to_string()))?;
    schema.validate(payload, size).map_err(|invalid| KindMismatch::Payload(invalid.to_string()))?;
    let text = payload.to_string();
    let (bytes, max) = (text.len() as u64, limits.payload_bytes_max);
    if bytes > max {
        return Err(KindMismatch::Payload(format!(
            "it has {bytes} bytes, and {max} are kept; say where the rest is"
        )));
    }
    Ok(text.into())
}
