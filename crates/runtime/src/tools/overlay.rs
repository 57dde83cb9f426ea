//! The tools that a session is opened with: recorded with it, so that every owner of the session finds them.

use crate::api::limits::Limits;
use crate::tools::client::ClientTool;
use crate::tools::registry::Host;
use crate::tools::scope::Overlay;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use windlass_core::tool::{ToolSource, ToolSpec};

/// The overlay that a session is opened with: tools that it hides, and tools that its callers run. It is recorded with the
/// session and never changes, unlike an [`Overlay`], which a host attaches for a time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SessionOverlay {
    /// The names of tools that the session does not have.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hide: Vec<String>,
    /// Tools that the session's callers run: a call of one waits as `awaiting_client` for its result. A tool of a similar name
    /// is shadowed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub add: Vec<ClientToolSpec>,
}

/// The declaration of a tool that the callers of one session run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ClientToolSpec {
    /// Its name for the model: 1 to 64 of `[a-zA-Z0-9_-]`.
    pub name: String,
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
    /// The claims of a call, as in `write tab:{id}`; an empty list collides with nothing. By default a call writes the session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claims: Option<Vec<String>>,
    /// How long a call waits for its result, in milliseconds; by default `client_ms`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub client_ms: Option<u64>,
}

impl SessionOverlay {
    /// Whether it changes nothing.
    pub fn is_empty(&self) -> bool {
        self.hide.is_empty() && self.add.is_empty()
    }

    /// In one order, however it was written: so two that mean the same are equal.
    pub fn sorted(mut self) -> SessionOverlay {
        self.hide.sort();
        self.hide.dedup();
        self.add.sort_by(|one, other| one.name.cmp(&other.name));
        self
    }

    /// Checks it as tools are checked at registration. The error is a sentence for its author.
    pub(crate) fn check(&self, host: &Arc<Host>, limits: &Limits) -> Result<(), String> {
        let (count, max) = (self.hide.len() + self.add.len(), limits.session_tools_max);
        if count as u64 > max {
            return Err(format!("an overlay hides and adds at most {max} tools; leave some out"));
        }
        let bytes_max = limits.session_tools_bytes_max;
        if serde_json::to_vec(self).map_or(u64::MAX, |text| text.len() as u64) > bytes_max {
            return Err(format!("an overlay has at most {bytes_max} bytes; shorten its schemas"));
        }
        let mut overlay = Overlay::new(host.clone());
        for tool in &self.add {
            if tool.client_ms.is_some_and(|ms| ms == 0 || ms > limits.client_ms_max) {
                let max = limits.client_ms_max;
                return Err(format!("the tool {:?}: `client_ms` is 1 to {max}", tool.name));
            }
            overlay.add_shared(tool.tool()).map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    /// Its tools, compiled. One that a newer version refuses is left out, and its calls wait for a tool of its name.
    pub(crate) fn compiled(&self, host: &Arc<Host>) -> Overlay {
        let mut overlay = Overlay::new(host.clone());
        self.hide.iter().for_each(|name| overlay.hide(name));
        for tool in &self.add {
            if let Err(error) = overlay.add_shared(tool.tool()) {
                tracing::warn!(tool = tool.name, %error, "a tool of a session's overlay is refused");
            }
        }
        overlay
    }
}

impl ClientToolSpec {
    fn tool(&self) -> Arc<ClientTool> {
        let spec = ToolSpec {
            name: self.name.clone(),
            title: self.title.clone(),
            description: self.description.clone(),
            input_schema: self.input.clone(),
            output_schema: self.output.clone(),
            claims: self.claims.clone(),
            source: ToolSource::Client,
            ..ToolSpec::default()
        };
        Arc::new(ClientTool::new(spec, self.client_ms.map(Duration::from_millis)))
    }
}
