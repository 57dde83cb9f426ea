//! Sources of tools that are listed cheaply, and loaded at their first use.

use crate::api::output::ToolError;
use crate::tools::hooks::{Trouble, answer_caught};
use crate::tools::registry::{Host, Registered, compile};
use crate::tools::tool::Tool;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use tokio::sync::OnceCell;
use windlass_core::failure::Retry;
use windlass_core::tool::ToolSource;

/// A source of tools: it lists them cheaply, and gives the whole of one when it is first used.
///
/// ```
/// use std::sync::Arc;
/// use windlass::tool::{LoadFuture, Provider, Summary};
/// use windlass::{tool_fn, Tool, ToolSpec};
///
/// struct Mail;
///
/// impl Provider for Mail {
///     fn list(&self) -> Vec<Summary> {
///         vec![Summary { name: "send_mail".into(), description: "Send a mail".into(), ..Summary::default() }]
///     }
///
///     fn tool<'a>(&'a self, name: &'a str) -> LoadFuture<'a> {
///         Box::pin(async move {
///             // Here the other side would be asked for the schema.
///             let spec = ToolSpec { name: name.into(), ..ToolSpec::default() };
///             let tool = tool_fn(spec, |_, _| async { Ok(serde_json::json!("sent").into()) });
///             Ok(Some(Arc::new(tool) as Arc<dyn Tool>))
///         })
///     }
/// }
/// ```
pub trait Provider: Send + Sync + 'static {
    /// The tools; called when the provider is added and refreshed.
    fn list(&self) -> Vec<Summary>;

    /// Loads the tool of this name; `None` if it is gone. Called at its first use, and again after a failure:
    /// a failure answers only the calls that asked for it. It must not block its thread.
    fn tool<'a>(&'a self, name: &'a str) -> LoadFuture<'a>;
}

/// The loading of a tool.
pub type LoadFuture<'a> = Pin<Box<dyn Future<Output = Result<Option<Arc<dyn Tool>>, ToolError>> + Send + 'a>>;

/// The description of a tool before it is loaded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Its name for the model: 1–64 of `[a-zA-Z0-9_-]`.
    pub name: String,
    /// Its title for people; empty means the name.
    pub title: String,
    /// For the model: its purpose and when to use it.
    pub description: String,
    /// Whether its calls may become tasks: then the task tools are available before it is loaded.
    pub background: bool,
}

/// A tool of a provider, and its compiled form once it was used.
pub(crate) struct Provided {
    pub(crate) provider: Arc<dyn Provider>,
    pub(crate) summary: Summary,
    pub(crate) paused: Arc<AtomicBool>,
    loaded: OnceCell<Arc<Registered>>,
}

impl Provided {
    pub(crate) fn new(provider: Arc<dyn Provider>, summary: Summary) -> Provided {
        Provided { provider, summary, paused: Arc::default(), loaded: OnceCell::new() }
    }

    /// The compiled tool, if it was loaded.
    pub(crate) fn loaded(&self) -> Option<&Arc<Registered>> {
        self.loaded.get()
    }

    /// Loads the tool; `None` if the provider no longer has it. Concurrent callers wait for the same load.
    pub(crate) async fn load(&self, host: &Host) -> Result<Option<Arc<Registered>>, ToolError> {
        let loading = self.loaded.get_or_try_init(|| async {
            let tool = self.ask().await.map_err(Some)?.ok_or(None)?;
            self.accept(tool, host).map_err(Some)
        });
        match loading.await {
            Ok(tool) => Ok(Some(tool.clone())),
            Err(None) => Ok(None),
            Err(Some(error)) => Err(error),
        }
    }

    async fn ask(&self) -> Result<Option<Arc<dyn Tool>>, ToolError> {
        let error = match answer_caught(|| Some(self.provider.tool(&self.summary.name))).await {
            Ok(tool) => return Ok(tool.flatten()),
            Err(Trouble::Failed(error)) => error,
            Err(Trouble::Panicked(what)) => ToolError::internal(format!("its provider panicked: {what}")),
        };
        // Nothing ran, so loading again is always safe.
        Err(if error.retry == Retry::Never { error.safe_to_retry() } else { error })
    }

    /// A loaded tool is checked like a registered one; loading again would give the same result.
    fn accept(&self, tool: Arc<dyn Tool>, host: &Host) -> Result<Arc<Registered>, ToolError> {
        let refused =
            |what: String| ToolError::internal(format!("its provider gave what is refused: {what}"));
        let mut registered = compile(tool, host).map_err(|error| refused(error.to_string()))?;
        if registered.spec.name != self.summary.name {
            return Err(refused(format!("a tool named {:?}", registered.spec.name)));
        }
        registered.paused = self.paused.clone();
        registered.spec.source = ToolSource::Provided;
        Ok(Arc::new(registered))
    }
}
