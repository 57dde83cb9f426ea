//! External waits of calls, and their answers.

use crate::api::output::Output;
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;

/// The key by which an external system completes a call's wait. Holding it is the only permission needed.
///
/// ```
/// use windlass::wait::Completed;
/// use windlass::{BatchRequest, CallRequest, Config, EffectClass, Output, Runtime, ToolSpec, tool_fn};
/// # use windlass::store::memory::MemoryStore;
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let runtime = Runtime::new(Config::new(MemoryStore::new()?));
/// # let (sent, mut keys) = tokio::sync::mpsc::unbounded_channel();
///
/// let spec = ToolSpec { name: "sign".into(), class: Some(EffectClass::Keyed), ..ToolSpec::default() };
/// runtime.register(tool_fn(spec, move |_, cx| {
///     let (cx, sent) = (cx.clone(), sent.clone());
///     async move {
///         let key = cx.completion("signature").await?;
///         // Here the key would be sent to the person or system that answers.
///         sent.send(key.to_string()).ok();
///         Ok(Output::pending(key))
///     }
/// }))?;
/// let call = CallRequest { id: Some("c1".into()), tool: "sign".into(), ..CallRequest::default() };
/// let submitted = runtime.submit("demo", BatchRequest { calls: vec![call], ..BatchRequest::default() }).await?;
///
/// // Any time later, perhaps in another process:
/// let key = keys.recv().await.ok_or("no key")?;
/// runtime.complete(&key, Completed::Ok(serde_json::json!("signed"))).await?;
/// assert_eq!(submitted.settled().await?.calls[0].model_text(), "signed");
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompletionKey {
    pub(crate) name: Arc<str>,
    pub(crate) text: String,
}

impl CompletionKey {
    pub(crate) fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// The key, as it is passed to the external system.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl std::fmt::Display for CompletionKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

/// An external answer.
#[derive(Clone, Debug, PartialEq)]
pub enum Completed {
    /// It succeeded, with this value.
    Ok(Value),
    /// It failed.
    Error {
        /// The error code of the external system.
        code: String,
        /// Written for the model.
        message: String,
    },
    /// It was cancelled.
    Cancelled,
}

/// A tool's request to wait for an external answer: see [`Output::pending`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pending {
    /// Without a key nobody could answer: the call fails.
    pub(crate) key: Option<CompletionKey>,
    pub(crate) deadline: Option<Duration>,
}

impl Output {
    /// The tool has done its part; the answer to this key is the result of the call. Until then the call is parked and
    /// costs nothing. Without a key of this call nobody could answer: it fails with `pending_without_key`.
    pub fn pending(key: impl Into<Option<CompletionKey>>) -> Output {
        Output { pending: Some(Box::new(Pending { key: key.into(), deadline: None })), ..Output::default() }
    }

    /// Limits the wait.
    pub fn within(self, deadline: Duration) -> Output {
        let pending = self.pending.map(|pending| Box::new(Pending { deadline: Some(deadline), ..*pending }));
        Output { pending, ..self }
    }
}
