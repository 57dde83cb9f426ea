//! `typed_fn`: an async function over typed arguments and the borrowed context, as a tool.
//!
//! `tool_fn` cannot take such functions itself: the future of an async function borrows the context, so its type depends on the
//! borrow. A bound that says so no longer tells the compiler the parameters of a closure, and the bound of the standard library
//! that does (`AsyncFn`) cannot require a future that is `Send`.

use crate::api::output::{Output, ToolError};
use crate::session::cx::Cx;
use crate::tools::tool::{Tool, ToolFuture};
use crate::tools::typed::{self, ToolArguments, ToolFailure, ToolValue};
use serde_json::Value;
use std::future::Future;
use std::marker::PhantomData;
use windlass_core::tool::ToolSpec;

/// A tool made of an async function `async fn(Args, &Cx) -> Result<T, E>`. A tool with state is made with
/// [`#[tool]`](macro@crate::tool).
///
/// The arguments are of any type that derives `Deserialize` and `JsonSchema`; where the specification has no input schema, theirs
/// is used. The value is an [`Output`], or of any type that derives `Serialize` and `JsonSchema`; its schema becomes the output
/// schema in the same way. An ordinary error that `?` returns is internal: hidden from the model, and logged whole.
///
/// ```
/// use schemars::JsonSchema;
/// use serde::Deserialize;
/// use windlass::{Cx, EffectClass, ToolError, ToolSpec, typed_fn};
///
/// #[derive(Deserialize, JsonSchema)]
/// struct Length {
///     /// The name of a file of the session.
///     path: String,
/// }
///
/// async fn length(args: Length, cx: &Cx) -> Result<usize, ToolError> {
///     cx.sleep("for the disk", std::time::Duration::from_millis(5)).await?;
///     Ok(cx.files()?.read(&args.path)?.len())
/// }
///
/// let spec = ToolSpec { name: "length".into(), class: Some(EffectClass::Read), ..ToolSpec::default() };
/// let tool = typed_fn(spec, length);
/// # let _: &dyn windlass::Tool = &tool;
/// ```
pub fn typed_fn<A, F, M>(spec: ToolSpec, run: F) -> impl Tool
where
    A: ToolArguments + Send + 'static,
    F: for<'a> ToolBody<'a, A, M> + 'static,
    M: 'static,
{
    let input_schema = spec.input_schema.clone().or_else(|| Some(typed::input_schema::<A>()));
    let output_schema = spec.output_schema.clone().or_else(F::output_schema);
    TypedFn { spec: ToolSpec { input_schema, output_schema, ..spec }, run, types: PhantomData::<fn(A) -> M> }
}

struct TypedFn<A, F, M> {
    spec: ToolSpec,
    run: F,
    types: PhantomData<fn(A) -> M>,
}

impl<A, F, M> Tool for TypedFn<A, F, M>
where
    A: ToolArguments + Send + 'static,
    F: for<'a> ToolBody<'a, A, M> + 'static,
    M: 'static,
{
    fn spec(&self) -> ToolSpec {
        self.spec.clone()
    }

    fn run<'a>(&'a self, args: Value, cx: &'a Cx) -> ToolFuture<'a> {
        match typed::arguments::<A>(args) {
            Ok(args) => self.run.start(args, cx),
            Err(error) => Box::pin(async { Err(error) }),
        }
    }
}

/// A function that [`typed_fn`] takes: all `async fn(A, &Cx) -> Result<T, E>` are. `M` tells an [`Output`] from a value of a type.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no `async fn(Args, &Cx) -> Result<Value, Error>` that can be a tool",
    note = "it takes its arguments as one owned value and the context as `&windlass::Cx`, and returns a `Result`",
    note = "its future must be `Send`: hold no `Rc`, `RefCell` borrow or `std` lock guard across an `.await`",
    note = "a plain closure over JSON goes to `windlass::tool_fn`"
)]
pub trait ToolBody<'a, A, M>: Send + Sync {
    /// Starts one attempt.
    fn start(&self, args: A, cx: &'a Cx) -> ToolFuture<'a>;

    /// The schema of its value, if its type says something.
    fn output_schema() -> Option<Value>;
}

#[diagnostic::do_not_recommend]
impl<'a, A, F, Running, T, E, M> ToolBody<'a, A, M> for F
where
    F: Fn(A, &'a Cx) -> Running + Send + Sync,
    Running: Future<Output = Result<T, E>> + Send + 'a,
    T: ToolReturn<M>,
    E: ToolFailure,
{
    fn start(&self, args: A, cx: &'a Cx) -> ToolFuture<'a> {
        let running = self(args, cx);
        Box::pin(async move { running.await.map_err(typed::failure)?.into_output() })
    }

    fn output_schema() -> Option<Value> {
        T::output_schema()
    }
}

/// A value that a typed tool returns.
pub trait ToolReturn<M> {
    /// The value as the runtime takes it.
    fn into_output(self) -> Result<Output, ToolError>;

    /// The schema of the value, if its type says something.
    fn output_schema() -> Option<Value>;
}

/// Marks a return type that is an [`Output`] itself.
pub enum WholeOutput {}

/// Marks a return type that is turned into JSON.
pub enum TypedValue {}

impl ToolReturn<WholeOutput> for Output {
    fn into_output(self) -> Result<Output, ToolError> {
        Ok(self)
    }

    fn output_schema() -> Option<Value> {
        None
    }
}

impl<T: ToolValue> ToolReturn<TypedValue> for T {
    fn into_output(self) -> Result<Output, ToolError> {
        typed::output(self)
    }

    fn output_schema() -> Option<Value> {
        typed::output_schema::<T>()
    }
}
