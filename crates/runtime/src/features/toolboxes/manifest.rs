//! The manifest of a toolbox: the tools that its processes run, as data.

use super::ToolboxError;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use windlass_core::attempt::{Deadlines, RetryRule};
use windlass_core::tool::{ApprovalRule, Deferral, Digest, EffectClass, Flags, Hints, ToolSource, ToolSpec};

/// One tool of a toolbox. The words are those of every other tool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ToolManifest {
    /// Its name for the model: 1 to 64 of `[a-zA-Z0-9_-]`.
    pub name: String,
    /// A stable id, kept when the name changes; by default its name.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub id: String,
    /// Its title for people; by default its name.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub title: String,
    /// For the model: its purpose and when to use it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// JSON Schema 2020-12 of the arguments; by default any object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<Value>,
    /// JSON Schema 2020-12 of the result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Value>,
    /// The effect class: `read`, `keyed`, `stepped` or `once`; by default the one that the hints imply, else `once`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// Descriptive hints, such as `read_only` or `sends_out`; one that is not given is unknown.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub hints: BTreeMap<String, bool>,
    /// Whether its calls may continue without a caller. It must declare its claims then.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub background: bool,
    /// Whether it is called only from outside: never from another tool, and never as a task.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stays_direct: bool,
    /// The claims of a call, as in `write ticket:{id}`; an empty list collides with nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claims: Option<Vec<String>>,
    /// The deadlines of its calls in milliseconds.
    #[serde(default, skip_serializing_if = "ManifestDeadlines::is_empty")]
    pub deadlines: ManifestDeadlines,
    /// How long an attempt may continue after it was asked to stop, in milliseconds; by default 2,000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace_ms: Option<u64>,
    /// How often it may be tried.
    #[serde(default, skip_serializing_if = "ManifestRetry::is_empty")]
    pub retry: ManifestRetry,
    /// How many of its calls run at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running_max: Option<u32>,
    /// Whether a person is asked before its calls run: `never` or `ask`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<String>,
    /// Whether the model sees it at once in a session with many tools: `auto`, `never` or `always`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deferral: Option<String>,
    /// The names of the secrets that its calls read. The operator must allow them to the toolbox.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<String>,
    /// The author's version of its behaviour; a change makes it another contract.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub version: String,
    /// The category under which lists show it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub category: String,
    /// Words by which programs and people find it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
}

/// The deadlines of a tool's calls, in milliseconds; absent ones have the default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ManifestDeadlines {
    /// From being recorded to the first start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue_ms: Option<u64>,
    /// One attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempt_ms: Option<u64>,
    /// Since the last progress, output or heartbeat of the tool itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub silence_ms: Option<u64>,
    /// From being recorded to the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total_ms: Option<u64>,
}

impl ManifestDeadlines {
    fn is_empty(&self) -> bool {
        *self == ManifestDeadlines::default()
    }
}

/// How often a tool may be tried; absent fields have the default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ManifestRetry {
    /// The maximum number of attempts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempts: Option<u32>,
    /// The longest wait before the second attempt, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base_ms: Option<u64>,
    /// The longest wait overall, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cap_ms: Option<u64>,
}

impl ManifestRetry {
    fn is_empty(&self) -> bool {
        *self == ManifestRetry::default()
    }
}

/// A stop reaches a process with its next heartbeat, up to a second later, so that the usual grace would always be over.
const GRACE_MS: u64 = 2_000;

impl ToolManifest {
    /// The declaration of the tool.
    pub(super) fn spec(&self, toolbox: &str) -> Result<ToolSpec, ToolboxError> {
        let wrong =
            |what: String| ToolboxError::Invalid { what: format!("the tool {:?}: {what}", self.name) };
        let one_of = |field: &str, given: &str, known: &[&str]| {
            wrong(format!("`{field}` is {given:?}; it is one of {}", known.join(", ")))
        };
        let class = match self.class.as_deref() {
            Some(given) => Some(
                EffectClass::parse(given)
                    .ok_or_else(|| one_of("class", given, &["read", "keyed", "stepped", "once"]))?,
            ),
            None => None,
        };
        let approval = match self.approval.as_deref() {
            None | Some("never") => ApprovalRule::Never,
            Some("ask") => ApprovalRule::Ask,
            Some(given) => return Err(one_of("approval", given, &["never", "ask"])),
        };
        let deferral = match self.deferral.as_deref() {
            Some(given) => Deferral::parse(given)
                .ok_or_else(|| one_of("deferral", given, &["auto", "never", "always"]))?,
            None => Deferral::Auto,
        };
        let ManifestDeadlines { queue_ms, attempt_ms, silence_ms, total_ms } = self.deadlines;
        let ManifestRetry { attempts, base_ms, cap_ms } = self.retry;
        let hints = self.read_hints().map_err(wrong)?;
        let spec = ToolSpec {
            name: self.name.clone(),
            id: self.id.clone(),
            title: self.title.clone(),
            description: self.description.clone(),
            input_schema: self.input.clone(),
            output_schema: self.output.clone(),
            class,
            hints,
            deadlines: Deadlines { queue_ms, attempt_ms, silence_ms, total_ms },
            grace_ms: Some(self.grace_ms.unwrap_or(GRACE_MS)),
            retry: RetryRule { attempts, base_ms, cap_ms },
            claims: self.claims.clone(),
            running_max: self.running_max,
            groups: vec![group(toolbox)],
            approval,
            deferral,
            secrets: self.secrets.clone(),
            version: self.version.clone(),
            category: self.category.clone(),
            tags: self.tags.clone(),
            source: ToolSource::Toolbox,
            ..ToolSpec::default()
        };
        let flags = Flags {
            // The tool here only hands its attempt over, which blocks nothing.
            quick: spec.effect_class() != EffectClass::Stepped,
            background: self.background,
            stays_direct: self.stays_direct,
            ..Flags::default()
        };
        Ok(ToolSpec { flags, ..spec })
    }

    fn read_hints(&self) -> Result<Hints, String> {
        let mut hints = Hints::default();
        for (name, value) in &self.hints {
            let hint = match name.as_str() {
                "read_only" => &mut hints.read_only,
                "destructive" => &mut hints.destructive,
                "idempotent" => &mut hints.idempotent,
                "open_world" => &mut hints.open_world,
                "requires_secrets" => &mut hints.requires_secrets,
                "long_running" => &mut hints.long_running,
                "reads_private" => &mut hints.reads_private,
                "ingests_untrusted" => &mut hints.ingests_untrusted,
                "sends_out" => &mut hints.sends_out,
                _ => {
                    let known = Hints::default().table().map(|(name, _)| name).join(", ");
                    return Err(format!("there is no hint {name:?}; the hints are {known}"));
                }
            };
            *hint = Some(*value);
        }
        Ok(hints)
    }
}

/// The group of tools whose calls share the slots of a toolbox's processes.
pub(super) fn group(toolbox: &str) -> String {
    format!("toolbox:{toolbox}")
}

/// The digest of a manifest: calls run in processes that have the same.
pub(super) fn digest(text: &[u8]) -> Digest {
    Digest(*blake3::hash(text).as_bytes())
}
