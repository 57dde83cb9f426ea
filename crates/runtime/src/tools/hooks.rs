//! Hooks: host code that sees and changes every call, before it is allowed and after its tool returned.

use crate::api::output::{Output, ToolError};
use crate::api::polling;
use crate::session::cx::CallPlace;
use crate::tools::registry::{Listed, Registered};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::future::Future;
use std::pin::Pin;
use windlass_core::failure::Failure;
use windlass_core::handle::Handle;
use windlass_core::tool::EffectClass;

/// Sees every call: before it is allowed, and after its tool returned. Given to a runtime as
/// [`Config::hooks`](crate::Config); several run in their order, each on what the one before made of the call.
///
/// A hook has no effects of its own: until a call's next commit it may be asked again, after it what it said is
/// fixed. One that fails or panics is an internal failure of the call. It must not block its thread.
///
/// ```
/// use windlass::tool::{Before, BeforeFuture, Hook, HookCx};
///
/// /// Nobody writes outside the workspace of the user.
/// struct InWorkspace;
///
/// impl Hook for InWorkspace {
///     fn before<'a>(&'a self, cx: &'a HookCx<'a>) -> Option<BeforeFuture<'a>> {
///         let path = cx.args().get("path")?.as_str()?;
///         Some(Box::pin(async move {
///             let workspace: String = cx.input_as("workspace")?.unwrap_or_default();
///             if path.starts_with(&workspace) {
///                 return Ok(Before::Keep);
///             }
///             Ok(Before::Refuse(format!("{path} lies outside the workspace; use a path below {workspace}.")))
///         }))
///     }
/// }
/// ```
pub trait Hook: Send + Sync + 'static {
    /// The hook's name in records of calls that it answered; by default its place, as `hook 2`.
    fn name(&self) -> Option<&str> {
        None
    }

    /// Called with a call whose arguments fit, before it is allowed. `None`: no opinion.
    fn before<'a>(&'a self, _cx: &'a HookCx<'a>) -> Option<BeforeFuture<'a>> {
        None
    }

    /// Called with the result or the failure of a tool, before it is recorded; never for a replay, nor for a
    /// stopped attempt. `None`: no opinion.
    fn after<'a>(
        &'a self,
        _cx: &'a HookCx<'a>,
        _result: Result<&'a Output, &'a Failure>,
    ) -> Option<AfterFuture<'a>> {
        None
    }
}

/// A hook's decision on a call before it is allowed. An error is a failure of the hook, see [`Hook`].
pub type BeforeFuture<'a> = Pin<Box<dyn Future<Output = Result<Before, ToolError>> + Send + 'a>>;

/// A hook's decision on a result. An error is a failure of the hook, see [`Hook`].
pub type AfterFuture<'a> = Pin<Box<dyn Future<Output = Result<After, ToolError>> + Send + 'a>>;

/// A decision on a call before it is allowed.
#[derive(Clone, Debug, PartialEq)]
pub enum Before {
    /// The call continues.
    Keep,
    /// The call continues with these arguments, which are validated again.
    Rewrite(Value),
    /// The call is answered with this text for the model, and never runs.
    Refuse(String),
    /// The call is answered with this result, as by a cache or a test double, and never runs. The record names the hook;
    /// hooks behind it are not asked before, and all hooks see the answer after.
    Answer(Output),
}

/// A decision on a result.
#[derive(Clone, Debug, PartialEq)]
pub enum After {
    /// The result stands.
    Keep,
    /// Replaces the tool's result; must fit the output schema too. A failure cannot become a success: that is
    /// a failure of the hook.
    Replace(Output),
    /// The call fails with this text for the model, and the tool's result is kept for operators. If the call
    /// failed anyway, only the message changes.
    Fail(String),
}

/// The facts of a call for a hook.
pub struct HookCx<'a> {
    pub(crate) at: CallPlace<'a>,
    pub(crate) tool: &'a Registered,
    pub(crate) args: &'a Value,
}

impl<'a> HookCx<'a> {
    /// The model's id of the call.
    pub fn id(&self) -> &'a str {
        self.at.id
    }

    /// The name of the session.
    pub fn session(&self) -> &'a str {
        &self.at.on.batch.head.place.session
    }

    /// The key of the batch.
    pub fn batch_key(&self) -> &'a str {
        &self.at.on.batch.head.place.batch_key
    }

    /// The model's turn that the batch belongs to, if its caller named one.
    pub fn turn(&self) -> Option<&'a str> {
        self.at.turn()
    }

    /// The principal of the session, if it has one.
    pub fn principal(&self) -> Option<&'a str> {
        self.at.principal()
    }

    /// The handle of the call.
    pub fn handle(&self) -> Handle {
        self.at.handle()
    }

    /// The id of the task, if the call is one: its own handle.
    pub fn task(&self) -> Option<Handle> {
        self.at.task()
    }

    /// The call that made this one, or started it as a task.
    pub fn parent(&self) -> Option<Handle> {
        self.at.parent()
    }

    /// The number of attempts started so far.
    pub fn attempts(&self) -> u32 {
        self.at.attempts
    }

    /// The tools that the calls of this batch may use now, by name.
    pub fn catalog(&self) -> Vec<Listed> {
        self.at.catalog()
    }

    /// The tool's name.
    pub fn tool(&self) -> &'a str {
        &self.tool.spec.name
    }

    /// The effective class.
    pub fn class(&self) -> EffectClass {
        self.tool.class
    }

    /// The arguments that will run, as far as they are known: those after the previous hook.
    pub fn args(&self) -> &'a Value {
        self.args
    }

    /// The host's input of the batch under this name.
    pub fn input(&self, name: &str) -> Option<&'a Value> {
        self.at.on.batch.head.place.input(name)
    }

    /// The host's input as a type of yours; an internal failure if it does not fit.
    pub fn input_as<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, ToolError> {
        self.at.on.batch.head.place.input_as(name)
    }
}

/// A failure of foreign code.
pub(crate) enum Trouble {
    Failed(ToolError),
    /// It panicked, with this message.
    Panicked(String),
}

impl Trouble {
    pub(crate) fn into_detail(self) -> String {
        match self {
            Trouble::Failed(error) => error.detail.unwrap_or(error.message),
            Trouble::Panicked(what) => format!("it panicked: {what}"),
        }
    }
}

/// A future of foreign code.
type HookFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, ToolError>> + Send + 'a>>;

/// Runs foreign code, if it has an opinion, and catches its panic in the call and in the future.
pub(crate) async fn answer_caught<'a, T>(
    ask: impl FnOnce() -> Option<HookFuture<'a, T>>,
) -> Result<Option<T>, Trouble> {
    let Some(asked) = polling::caught(ask).map_err(Trouble::Panicked)? else { return Ok(None) };
    let answered = polling::polled(asked).await.map_err(Trouble::Panicked)?;
    answered.map(Some).map_err(Trouble::Failed)
}
