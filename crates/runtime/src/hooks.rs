//! What a host may see and change of every call: before it is allowed, and after its tool returned.

use crate::artifacts::Artifacts;
use crate::held::Held;
use crate::registry::Registered;
use crate::request::Parsed;
use crate::stage::{prepare, result};
use crate::threads;
use crate::tool::{Output, Place, ToolError};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::future::Future;
use std::pin::Pin;
use windlass_core::code::Code;
use windlass_core::failure::{Failure, FailureClass, Source};
use windlass_core::json;
use windlass_core::projection;
use windlass_core::tool::EffectClass;

/// Sees every call: before it is allowed, and after its tool returned. Given to a runtime as
/// [`Config::hooks`](crate::Config); several run in their order, each on what the one before made of the call.
///
/// A hook has no effects of its own: until a call's next commit it may be asked again, after it what it said is
/// fixed. One that fails or panics is an internal failure of the call. It must not block its thread.
///
/// ```
/// use windlass::{Before, BeforeFuture, Hook, HookCx};
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
    /// Looks at a call whose arguments fit, before it is allowed. `None`: it has nothing to say.
    fn before<'a>(&'a self, _cx: &'a HookCx<'a>) -> Option<BeforeFuture<'a>> {
        None
    }

    /// Looks at what a tool returned, or how it failed, before that is recorded; never at what is replayed, nor at an
    /// attempt that was stopped. `None`: it has nothing to say.
    fn after<'a>(
        &'a self,
        _cx: &'a HookCx<'a>,
        _result: Result<&'a Output, &'a Failure>,
    ) -> Option<AfterFuture<'a>> {
        None
    }
}

/// What a hook says of a call before it is allowed. A failure is one of the hook, see [`Hook`].
pub type BeforeFuture<'a> = Pin<Box<dyn Future<Output = Result<Before, ToolError>> + Send + 'a>>;

/// What a hook says of a result. A failure is one of the hook, see [`Hook`].
pub type AfterFuture<'a> = Pin<Box<dyn Future<Output = Result<After, ToolError>> + Send + 'a>>;

/// What is to be done with a call before it is allowed.
#[derive(Clone, Debug, PartialEq)]
pub enum Before {
    /// It goes on.
    Keep,
    /// It goes on with these arguments, which are validated again.
    Rewrite(Value),
    /// It is answered with this, written for the model, and never runs.
    Refuse(String),
}

/// What is to be done with a result.
#[derive(Clone, Debug, PartialEq)]
pub enum After {
    /// It stands.
    Keep,
    /// This takes the place of what the tool returned; it must fit the output schema too. What failed cannot be made
    /// a success: there it is a failure of the hook.
    Replace(Output),
    /// The call fails with this, written for the model, and what the tool returned is kept for operators. Of a call
    /// that failed anyway only the message changes.
    Fail(String),
}

/// What is known of a call that is shown to a hook.
pub struct HookCx<'a> {
    id: &'a str,
    place: &'a Place,
    tool: &'a Registered,
    args: &'a Value,
}

impl<'a> HookCx<'a> {
    fn of(held: &'a Held, tool: &'a Registered, args: &'a Value) -> HookCx<'a> {
        HookCx { id: &held.call.opened.id, place: &held.on.batch.head.place, tool, args }
    }

    /// The model's id of the call.
    pub fn id(&self) -> &'a str {
        self.id
    }

    /// The name of the session.
    pub fn session(&self) -> &'a str {
        &self.place.session
    }

    /// The key of the batch.
    pub fn batch_key(&self) -> &'a str {
        &self.place.batch_key
    }

    /// The tool's name.
    pub fn tool(&self) -> &'a str {
        &self.tool.spec.name
    }

    /// The class in force.
    pub fn class(&self) -> EffectClass {
        self.tool.class
    }

    /// The arguments that run, as far as they are known: those of the hook before.
    pub fn args(&self) -> &'a Value {
        self.args
    }

    /// What the host attached to the batch under this name.
    pub fn input(&self, name: &str) -> Option<&'a Value> {
        self.place.input(name)
    }

    /// The same as a type of yours; an internal failure if it is something else.
    pub fn input_as<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, ToolError> {
        self.place.input_as(name)
    }
}

/// Shows the arguments to the hooks; `true` if they are others now.
pub(crate) async fn before(
    held: &Held,
    tool: &Registered,
    parsed: &mut Parsed,
) -> Result<bool, Box<Failure>> {
    let mut is_rewritten = false;
    for (place, hook) in held.on.rt.hooks.iter().enumerate() {
        let said = {
            let cx = HookCx::of(held, tool, &parsed.value);
            answer(|| hook.before(&cx)).await
        };
        match said {
            Ok(None | Some(Before::Keep)) => {}
            Ok(Some(Before::Rewrite(value))) => {
                let checked = prepare::checked(tool, value, &held.on.rt.limits);
                *parsed = checked.map_err(|unfit| {
                    let why = format!("it rewrote the arguments to what is refused: {}", unfit.message);
                    broken(held, (place, "before"), why)
                })?;
                is_rewritten = true;
            }
            Ok(Some(Before::Refuse(message))) => {
                let refused = refused(held, message);
                return Err(Box::new(Failure { class: FailureClass::InvalidRequest, ..refused }));
            }
            Err(trouble) => return Err(broken(held, (place, "before"), trouble.into_detail())),
        }
    }
    Ok(is_rewritten)
}

/// Shows what a tool returned to the hooks, and gives what they made of it: what is to be checked and recorded.
pub(crate) async fn after(
    held: &mut Held,
    tool: &Registered,
    returned: Result<Output, Box<Failure>>,
) -> Result<Output, Box<Failure>> {
    match prepare::parse(held) {
        Ok(parsed) => shown(held, tool, &parsed.value, returned).await,
        Err(unread) => returned.and(Err(unread)),
    }
}

/// The same, where the arguments are at hand.
pub(crate) async fn shown(
    held: &mut Held,
    tool: &Registered,
    args: &Value,
    mut returned: Result<Output, Box<Failure>>,
) -> Result<Output, Box<Failure>> {
    let on = held.on.clone();
    // What is too large or too deep is refused by whoever checks results; no hook should have to walk it.
    if returned.as_ref().is_ok_and(|output| json::measure_result(&output.value, &on.rt.limits).is_err()) {
        return returned;
    }
    // What the tool itself returned, once a hook has put something in its place.
    let mut raw = None;
    for (place, hook) in on.rt.hooks.iter().enumerate() {
        let said = {
            let cx = HookCx::of(held, tool, args);
            answer(|| hook.after(&cx, returned.as_ref().map_err(|failure| &**failure))).await
        };
        let why = match said {
            Ok(None | Some(After::Keep)) => continue,
            Ok(Some(After::Replace(output))) => match (misfit(held, tool, &output), &mut returned) {
                (None, Ok(returned)) => {
                    let replaced = std::mem::replace(returned, output);
                    raw.get_or_insert(replaced);
                    continue;
                }
                (Some(misfit), _) => {
                    json::dismantle(output.value);
                    format!("it replaced the result by what is refused: {misfit}")
                }
                (None, Err(_)) => "it put a result in the place of a failure".to_string(),
            },
            Ok(Some(After::Fail(message))) => {
                returned = Err(match returned {
                    Ok(output) => {
                        let refused = refused(held, message);
                        with_raw(held, refused, raw.take().unwrap_or(output)).await
                    }
                    Err(failure) => Box::new(reworded(held, *failure, message)),
                });
                continue;
            }
            Err(trouble) => trouble.into_detail(),
        };
        let broken = broken(held, (place, "after"), why);
        return Err(match returned {
            Ok(output) => with_raw(held, *broken, raw.unwrap_or(output)).await,
            Err(failure) => told_too(held, *broken, &failure),
        });
    }
    returned
}

/// What is wrong with a result that a hook made.
fn misfit(held: &Held, tool: &Registered, output: &Output) -> Option<String> {
    match json::measure_result(&output.value, &held.on.rt.limits) {
        Err(problem) => Some(problem.to_string()),
        Ok(_) if output.kept.is_some() => None,
        Ok(size) => result::broken_promise(tool, &output.value, size),
    }
}

/// A hook does not let it pass.
fn refused(held: &Held, message: String) -> Failure {
    Failure {
        class: FailureClass::Execution,
        source: Source::Hook,
        ..Failure::invalid_request(Code::Refused, result::shorten(message, &held.on.rt.limits))
    }
}

/// A hook is broken; which one, and how, is for operators only.
fn broken(held: &Held, (place, stage): (usize, &str), why: String) -> Box<Failure> {
    let detail = format!("hook {} failed in `{stage}`: {why}", place + 1);
    Box::new(Failure { source: Source::Hook, ..result::internal(held, Code::Internal, detail) })
}

/// The failure, told to the model in other words; operators see what it was.
fn reworded(held: &Held, failure: Failure, message: String) -> Failure {
    let message = result::shorten(message, &held.on.rt.limits);
    let was = match &failure.detail {
        Some(detail) => format!("{} ({detail})", failure.message),
        None => failure.message.clone(),
    };
    Failure { message, detail: Some(was), ..failure }
}

/// A hook is broken and the tool had failed: whether something happened is still what the tool said.
fn told_too(held: &Held, broken: Failure, failure: &Failure) -> Box<Failure> {
    let why = broken.detail.unwrap_or_default();
    let detail = format!("{why}; the tool had failed with {}: {}", failure.code, failure.message);
    let detail = Some(result::shorten(detail, &held.on.rt.limits));
    Box::new(Failure { detail, did_not_happen: failure.did_not_happen, ..broken })
}

/// The failure with what the tool returned: in the journal, or beside it if it is long. Only operators are told
/// where, since a hook may have withheld it.
async fn with_raw(held: &mut Held, failure: Failure, output: Output) -> Box<Failure> {
    let artifacts = Artifacts::new(held.on.session.lane.clone());
    let kept = match output.kept {
        Some(kept) => match artifacts.refer(kept.artifact).await {
            Ok(rows) => {
                held.carry(rows);
                kept
            }
            Err(error) => return Box::new(result::failure(held, error.into())),
        },
        None => {
            let text = serde_json::to_string(&output.value).unwrap_or_default();
            if projection::fits(&text, &held.on.rt.limits) {
                return Box::new(Failure { raw: Some(text), ..failure });
            }
            match artifacts.rows(text.as_bytes(), "application/json").await {
                Ok((kept, rows)) => {
                    held.carry(rows);
                    kept
                }
                Err(error) => return Box::new(result::failure(held, error.into())),
            }
        }
    };
    let place = format!("what the tool returned is kept as artifact {}", kept.artifact);
    let detail = match &failure.detail {
        Some(detail) => format!("{detail}; {place}"),
        None => place,
    };
    Box::new(Failure { detail: Some(detail), ..failure })
}

/// Why something that others wrote gave no answer.
pub(crate) enum Trouble {
    Failed(ToolError),
    /// It panicked, saying this.
    Panicked(String),
}

impl Trouble {
    fn into_detail(self) -> String {
        match self {
            Trouble::Failed(error) => error.detail.unwrap_or(error.message),
            Trouble::Panicked(what) => format!("it panicked: {what}"),
        }
    }
}

/// What others wrote, on its way to an answer.
type Asked<'a, T> = Pin<Box<dyn Future<Output = Result<T, ToolError>> + Send + 'a>>;

/// Asks what others wrote, if it has something to say, and catches its panic in the asking and in the answer.
pub(crate) async fn answer<'a, T>(ask: impl FnOnce() -> Option<Asked<'a, T>>) -> Result<Option<T>, Trouble> {
    let Some(asked) = threads::caught(ask).map_err(Trouble::Panicked)? else { return Ok(None) };
    let answered = threads::polled(asked).await.map_err(Trouble::Panicked)?;
    answered.map(Some).map_err(Trouble::Failed)
}
