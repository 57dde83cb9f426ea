//! Tools that the caller runs: recorded, waited for and answered here, executed there.

use crate::api::output::Output;
use crate::session::cx::Cx;
use crate::tools::tool::{Tool, ToolFuture};
use serde_json::Value;
use std::time::Duration;
use windlass_core::operation::CLIENT;
use windlass_core::tool::{EffectClass, ToolSpec};

/// A tool without code: its calls are checked and recorded like all others, wait as `awaiting_client`, and end with the result
/// that the caller posts under the exact call, with [`Runtime::client_result`](crate::Runtime::client_result). A call waits
/// at most `client_ms`. The caller tells calls apart by their handles, so the class is `keyed` unless the spec says otherwise.
///
/// ```
/// # use windlass::error::RegisterError;
/// # use windlass::tool::client_tool;
/// # use windlass::{Runtime, ToolSpec};
/// # fn add(runtime: &Runtime) -> Result<(), RegisterError> {
/// runtime.register(client_tool(ToolSpec { name: "open_tab".into(), ..ToolSpec::default() }))
/// # }
/// ```
pub fn client_tool(spec: ToolSpec) -> impl Tool {
    ClientTool::new(spec, None)
}

/// As [`client_tool`], with a time of its own: a call of it waits at most `within` for its caller.
pub fn client_tool_within(spec: ToolSpec, within: Duration) -> impl Tool {
    ClientTool::new(spec, Some(within))
}

pub(crate) struct ClientTool {
    spec: ToolSpec,
    within: Option<Duration>,
}

impl ClientTool {
    pub(crate) fn new(spec: ToolSpec, within: Option<Duration>) -> ClientTool {
        let has_class = spec.class.is_some() || spec.hints.read_only == Some(true);
        let class = if has_class { spec.class } else { Some(EffectClass::Keyed) };
        ClientTool { spec: ToolSpec { class, ..spec }, within }
    }
}

impl Tool for ClientTool {
    fn spec(&self) -> ToolSpec {
        self.spec.clone()
    }

    fn run<'a>(&'a self, _: Value, cx: &'a Cx) -> ToolFuture<'a> {
        Box::pin(async move {
            let key = cx.completion(CLIENT).await?;
            let within = self.within.unwrap_or(Duration::from_millis(cx.limits().client_ms));
            Ok(Output::pending(key).within(within))
        })
    }
}
