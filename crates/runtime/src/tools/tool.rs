//! The trait of a tool, and the types of its methods.

use crate::api::output::{Output, Prepared, Reconciled, ToolError};
use crate::session::cx::{CallPlace, Cx};
use crate::tools::registry::Listed;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::any::Any;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use windlass_core::claim::Claims;
use windlass_core::dedupe::Dedupe;
use windlass_core::handle::Handle;
use windlass_core::tool::ToolSpec;

/// A tool that a model can call.
///
/// `run` only ever gets arguments that fit the input schema. Its [effect
/// class](windlass_core::tool::EffectClass) promises whether it may run again after a crash.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a tool",
    note = "call the function that `#[tool]` made: `register(add())`, not `register(add)`",
    note = "or implement `windlass::Tool` for it, or use `windlass::tool_fn`"
)]
pub trait Tool: Send + Sync + 'static {
    /// The declaration of the tool; called once, at registration.
    fn spec(&self) -> ToolSpec;

    /// Runs one attempt.
    fn run<'a>(&'a self, args: Value, cx: &'a Cx) -> ToolFuture<'a>;

    /// Looks at a call before it is allowed: attaches a value for its attempts, or answers at once. It has no
    /// effects of its own, does not block its thread, and may be called again until the call's next commit.
    /// `None`: nothing to do.
    fn prepare<'a>(&'a self, _args: &'a Value, _cx: &'a PrepareCx<'a>) -> Option<PrepareFuture<'a>> {
        None
    }

    /// The claims of a call with these arguments, for tools that cannot express them as [`ToolSpec::claims`].
    /// It has no effects and does not block. `None`: the spec's claims apply.
    fn claims(&self, _args: &Value) -> Option<Result<Claims, ToolError>> {
        None
    }

    /// The dedupe key of a call with these arguments, for tools that cannot express it as
    /// [`ToolSpec::dedupe`]: the key itself, not a template. It has no effects and does not block. `None`:
    /// the spec's key applies.
    fn dedupe(&self, _args: &Value) -> Option<Dedupe> {
        None
    }

    /// Whether a person must be asked about a call with these arguments. Asked only of tools whose
    /// [`ToolSpec::approval`] is `ByArgs`. It has no effects and does not block.
    fn asks(&self, _args: &Value) -> bool {
        true
    }

    /// The content that an approval of a call with these arguments covers beside them: the bytes of a script, the request that
    /// would be sent. If it differs at a start, the call does not run and a person is asked again. Asked for only where a person
    /// is; it may read files, and has no effects. `None`: nothing.
    fn bound<'a>(&'a self, _args: &'a Value, _cx: &'a PrepareCx<'a>) -> Option<BoundFuture<'a>> {
        None
    }

    /// Determines whether an attempt that did not return took effect, if the tool can. Used after a crash, a
    /// timeout or a cancel of a `once` call, and when an operator asks.
    fn reconciler(&self) -> Option<&dyn Reconcile> {
        None
    }
}

/// Determines whether an attempt that did not return took effect, without any effect of its own.
pub trait Reconcile: Send + Sync {
    /// Asks the other side, by [`Cx::idempotency_key`] or by the arguments.
    fn reconcile<'a>(&'a self, args: Value, cx: &'a Cx) -> ReconcileFuture<'a>;
}

/// Whether an attempt took effect. An error means that it cannot be determined now.
pub type ReconcileFuture<'a> = Pin<Box<dyn Future<Output = Result<Reconciled, ToolError>> + Send + 'a>>;

/// A look at a call before it is allowed.
pub type PrepareFuture<'a> = Pin<Box<dyn Future<Output = Result<Prepared, ToolError>> + Send + 'a>>;

/// The content that an approval covers beside the arguments. An error means that it cannot be determined, and the call is refused.
pub type BoundFuture<'a> = Pin<Box<dyn Future<Output = Result<BoundContent, ToolError>> + Send + 'a>>;

/// The content that an approval covers beside the arguments. Both texts are hashed.
#[derive(Clone, Default)]
pub struct BoundContent {
    /// The part that does not depend on the arguments. An approval with edited arguments covers it too.
    pub fixed: Vec<u8>,
    /// The part that does.
    pub of_args: Vec<u8>,
    /// A hold on the content, so that the attempt runs exactly this: it gets it back by [`Cx::approved`].
    pub held: Option<Arc<dyn Any + Send + Sync>>,
}

/// The facts of a call while it is prepared.
pub struct PrepareCx<'a> {
    pub(crate) at: CallPlace<'a>,
}

impl<'a> PrepareCx<'a> {
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

    /// The host's input of the batch under this name.
    pub fn input(&self, name: &str) -> Option<&'a Value> {
        self.at.on.batch.head.place.input(name)
    }

    /// The host's input as a type of yours; an internal failure if it does not fit.
    pub fn input_as<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, ToolError> {
        self.at.on.batch.head.place.input_as(name)
    }
}

/// A running attempt.
pub type ToolFuture<'a> = Pin<Box<dyn Future<Output = Result<Output, ToolError>> + Send + 'a>>;

/// A tool made of a description and a closure.
///
/// ```
/// use windlass::{ToolSpec, tool_fn};
/// use serde_json::json;
///
/// let greet = tool_fn(ToolSpec { name: "greet".into(), ..ToolSpec::default() }, |args, _cx| {
///     let name = args["name"].as_str().unwrap_or("you").to_string();
///     async move { Ok(json!(format!("Hello, {name}!")).into()) }
/// });
/// ```
pub fn tool_fn<F, Fut>(spec: ToolSpec, run: F) -> impl Tool
where
    F: Fn(Value, &Cx) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Output, ToolError>> + Send + 'static,
{
    FnTool { spec, run }
}

struct FnTool<F> {
    spec: ToolSpec,
    run: F,
}

impl<F, Fut> Tool for FnTool<F>
where
    F: Fn(Value, &Cx) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Output, ToolError>> + Send + 'static,
{
    fn spec(&self) -> ToolSpec {
        self.spec.clone()
    }

    fn run<'a>(&'a self, args: Value, cx: &'a Cx) -> ToolFuture<'a> {
        Box::pin((self.run)(args, cx))
    }
}

/// The tool, with a closure that determines whether an attempt that did not return took effect.
pub fn with_reconcile<T, F, Fut>(tool: T, reconcile: F) -> impl Tool
where
    T: Tool,
    F: Fn(Value, &Cx) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Reconciled, ToolError>> + Send + 'static,
{
    WithReconcile { tool, reconciler: FnReconcile(reconcile) }
}

struct WithReconcile<T, F> {
    tool: T,
    reconciler: FnReconcile<F>,
}

struct FnReconcile<F>(F);

impl<T, F, Fut> Tool for WithReconcile<T, F>
where
    T: Tool,
    F: Fn(Value, &Cx) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Reconciled, ToolError>> + Send + 'static,
{
    fn spec(&self) -> ToolSpec {
        self.tool.spec()
    }

    fn run<'a>(&'a self, args: Value, cx: &'a Cx) -> ToolFuture<'a> {
        self.tool.run(args, cx)
    }

    fn prepare<'a>(&'a self, args: &'a Value, cx: &'a PrepareCx<'a>) -> Option<PrepareFuture<'a>> {
        self.tool.prepare(args, cx)
    }

    fn claims(&self, args: &Value) -> Option<Result<Claims, ToolError>> {
        self.tool.claims(args)
    }

    fn dedupe(&self, args: &Value) -> Option<Dedupe> {
        self.tool.dedupe(args)
    }

    fn asks(&self, args: &Value) -> bool {
        self.tool.asks(args)
    }

    fn bound<'a>(&'a self, args: &'a Value, cx: &'a PrepareCx<'a>) -> Option<BoundFuture<'a>> {
        self.tool.bound(args, cx)
    }

    fn reconciler(&self) -> Option<&dyn Reconcile> {
        Some(&self.reconciler)
    }
}

impl<F, Fut> Reconcile for FnReconcile<F>
where
    F: Fn(Value, &Cx) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Reconciled, ToolError>> + Send + 'static,
{
    fn reconcile<'a>(&'a self, args: Value, cx: &'a Cx) -> ReconcileFuture<'a> {
        Box::pin((self.0)(args, cx))
    }
}
