//! Shows calls to the hooks of the host: before they are allowed, and after their tools returned.

use crate::api::output::{Output, shorten};
use crate::path::stage::prepare;
use crate::path::stage::result;
use crate::session::arguments;
use crate::session::artifacts::Artifacts;
use crate::session::held::Held;
use crate::tools::hooks::{After, Before, Hook, HookCx, answer_caught};
use crate::tools::registry::Registered;
use crate::tools::request::Parsed;
use serde_json::Value;
use std::sync::Arc;
use windlass_args::json;
use windlass_core::code::Code;
use windlass_core::failure::{Failure, FailureClass, Source};
use windlass_core::projection;

fn cx<'a>(held: &'a Held, tool: &'a Registered, args: &'a Value) -> HookCx<'a> {
    HookCx { at: held.place(), tool, args }
}

/// The words of the hooks on a call before it is allowed.
#[derive(Default)]
pub(crate) struct SaidBefore {
    /// Whether the arguments are others now.
    pub(crate) rewritten: bool,
    /// The answer of a hook, if one had it.
    pub(crate) answer: Option<Box<HookAnswer>>,
}

/// An answer of a hook in place of an attempt.
pub(crate) struct HookAnswer {
    /// The hook, as it is recorded.
    pub(crate) by: Arc<str>,
    pub(crate) output: Output,
}

/// A hook's name in a record.
const NAME_CHARS_MAX: usize = 64;

fn name_of(hook: &dyn Hook, place: usize) -> Arc<str> {
    match hook.name() {
        Some(name) => name.chars().take(NAME_CHARS_MAX).collect::<String>().into(),
        None => format!("hook {}", place + 1).into(),
    }
}

/// Shows the arguments to the hooks, which may rewrite them. The first answer counts: hooks behind it are not asked.
pub(crate) async fn before(
    held: &Held,
    tool: &Registered,
    parsed: &mut Parsed,
) -> Result<SaidBefore, Box<Failure>> {
    let mut said_so_far = SaidBefore::default();
    for (place, hook) in held.on.rt.hooks.iter().enumerate() {
        let said = {
            let cx = cx(held, tool, &parsed.value);
            answer_caught(|| hook.before(&cx)).await
        };
        match said {
            Ok(None | Some(Before::Keep)) => {}
            Ok(Some(Before::Rewrite(value))) => {
                let checked = prepare::checked(tool, value, &held.on.rt.limits);
                *parsed = checked.map_err(|unfit| {
                    let why = format!("it rewrote the arguments to what is refused: {}", unfit.message);
                    broken(held, place, "before", why)
                })?;
                said_so_far.rewritten = true;
            }
            Ok(Some(Before::Answer(output))) => {
                let by = name_of(&**hook, place);
                said_so_far.answer = Some(Box::new(HookAnswer { by, output }));
                break;
            }
            Ok(Some(Before::Refuse(message))) => {
                let refused = refused(held, message);
                return Err(Box::new(Failure { class: FailureClass::InvalidRequest, ..refused }));
            }
            Err(trouble) => return Err(broken(held, place, "before", trouble.into_detail())),
        }
    }
    Ok(said_so_far)
}

/// Shows what a tool returned to the hooks, and gives what they made of it: what is to be checked and recorded.
pub(crate) async fn after(
    held: &mut Held,
    tool: &Registered,
    returned: Result<Output, Box<Failure>>,
) -> Result<Output, Box<Failure>> {
    match arguments::parse(held) {
        Ok(parsed) => shown(held, tool, &parsed.value, returned).await,
        Err(unread) => returned.and(Err(unread)),
    }
}

/// Shows a result to the hooks, where the arguments are at hand.
pub(crate) async fn shown(
    held: &mut Held,
    tool: &Registered,
    args: &Value,
    mut returned: Result<Output, Box<Failure>>,
) -> Result<Output, Box<Failure>> {
    let on = held.on.clone();
    // What is too large or too deep is refused by whoever checks results; no hook should have to walk it.
    if returned.as_ref().is_ok_and(|output| json::measure_result(&output.value, on.rt.limits.args()).is_err())
    {
        return returned;
    }
    // What the tool itself returned, once a hook has put something in its place.
    let mut raw = None;
    for (place, hook) in on.rt.hooks.iter().enumerate() {
        let said = {
            let cx = cx(held, tool, args);
            answer_caught(|| hook.after(&cx, returned.as_ref().map_err(|failure| &**failure))).await
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
        let broken = broken(held, place, "after", why);
        return Err(match returned {
            Ok(output) => with_raw(held, *broken, raw.unwrap_or(output)).await,
            Err(failure) => told_too(held, *broken, &failure),
        });
    }
    returned
}

/// The problem of a result that a hook made.
fn misfit(held: &Held, tool: &Registered, output: &Output) -> Option<String> {
    match json::measure_result(&output.value, held.on.rt.limits.args()) {
        Err(problem) => Some(problem.to_string()),
        Ok(_) if let Some(kept) = output.kept => {
            tool.output.as_ref().map(|_| result::uncheckable(kept, &held.on.rt.limits))
        }
        Ok(size) => result::broken_promise(tool, &output.value, size),
    }
}

/// A hook does not let it pass.
fn refused(held: &Held, message: String) -> Failure {
    Failure {
        class: FailureClass::Execution,
        source: Source::Hook,
        ..Failure::invalid_request(Code::Refused, shorten(message, &held.on.rt.limits))
    }
}

/// A hook is broken; which one, and how, is for operators only.
fn broken(held: &Held, place: usize, stage: &str, why: String) -> Box<Failure> {
    let detail = format!("hook {} failed in `{stage}`: {why}", place + 1);
    Box::new(Failure { source: Source::Hook, ..result::internal(held, Code::Internal, detail) })
}

/// The failure, told to the model in other words; operators see what it was.
fn reworded(held: &Held, failure: Failure, message: String) -> Failure {
    let message = shorten(message, &held.on.rt.limits);
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
    let detail = Some(shorten(detail, &held.on.rt.limits));
    Box::new(Failure { detail, did_not_happen: failure.did_not_happen, ..broken })
}

/// The failure with what the tool returned: in the journal, or beside it if it is long. Only operators are told
/// where, since a hook may have withheld it.
async fn with_raw(held: &mut Held, failure: Failure, output: Output) -> Box<Failure> {
    let artifacts = Artifacts::new(held.on.session.lane.clone());
    let kept = match output.kept {
        Some(kept) => match artifacts.refer(held.id.batch, kept.artifact).await {
            Ok(rows) => {
                held.carry(rows);
                kept
            }
            Err(error) => return Box::new(result::failure(held, error.into())),
        },
        None => {
            let text = serde_json::to_string(&output.value).unwrap_or_default();
            if projection::fits(&text, held.on.rt.limits.call()) {
                return Box::new(Failure { raw: Some(text), ..failure });
            }
            match artifacts.rows(held.id.batch, text.as_bytes(), "application/json").await {
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
