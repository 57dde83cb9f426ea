//! Find the tool, parse and validate the arguments, ask the hooks and the tool: all before any effect.

use crate::api::error::Lost;
use crate::api::limits::EnforcedLimits;
use crate::api::output::{Output, Prepared as Attached, ToolError};
use crate::api::polling::poll_once;
use crate::path::background;
use crate::path::grants;
use crate::path::hooks;
use crate::path::stage::result;
use crate::path::stage::settle;
use crate::session::arguments::{self, measured, unfit};
use crate::session::budget;
use crate::session::held::{Held, PlannerKnowledge};
use crate::session::permission::HeldPermit;
use crate::session::same;
use crate::session::turns::{self, Unprepared};
use crate::tools::hooks::{Trouble, answer_caught};
use crate::tools::registry::{Registered, ToolLookup, Unclaimed, Unkeyed};
use crate::tools::request::Parsed;
use crate::tools::tool::PrepareCx;
use serde_json::Value;
use std::pin::pin;
use std::sync::Arc;
use windlass_args::arguments::Arguments;
use windlass_args::json;
use windlass_args::limits::ArgLimits;
use windlass_args::repair::{self, ArgumentContract, Fit, Repair};
use windlass_core::call::{Fact, PreparedCall, PreparedResult, Reason, Same, ToolSearch};
use windlass_core::code::Code;
use windlass_core::dedupe::Dedupe;
use windlass_core::failure::{Failure, FailureClass, Source};
use windlass_core::ids::Mark;
use windlass_core::plan::Wants;
use windlass_core::tool::EffectClass;

/// Notes that the call is prepared, or that it ended because it cannot be. Whoever drives the call may drop this while
/// it waits for a provider, a hook or the tool: nothing is noted before all of them have answered.
pub(crate) async fn note(held: &mut Held) -> Result<(), Lost> {
    let rt = held.on.rt.clone();
    held.seen_generation = rt.registry.generation();
    held.tool_search = ToolSearch::NotMissed;
    if held.call.opened.grant.is_some() && Box::pin(grants::refuse(held)).await? {
        return Ok(());
    }
    let due_us = held.due_us();
    let unknown = Unprepared::of(held);
    let mut waited = false;
    let prepared = {
        let mut preparing = pin!(prepared(held));
        match poll_once(preparing.as_mut()).await {
            Some(prepared) => Some(prepared),
            // Only providers, hooks and tools that wait for something need a deadline, and a place until then.
            None => {
                waited = true;
                if let Some(unknown) = unknown {
                    rt.turns.keep_place(rt.clock.elapsed_us(), unknown);
                }
                let wheel = &rt.wheel;
                // Boxed, as all that is rare, so that most calls need no room for it.
                let in_time = async move {
                    tokio::select! {
                        prepared = preparing => Some(prepared),
                        () = wheel.until(due_us) => None,
                    }
                };
                Box::pin(in_time).await
            }
        }
    };
    // What it claims is found out anew.
    if waited || held.planned != PlannerKnowledge::Nothing {
        held.planned = PlannerKnowledge::Call;
    }
    let Some(prepared) = prepared else {
        held.past.waited = true;
        held.tool_search = ToolSearch::TooSlow;
        return Ok(());
    };
    match prepared {
        Ok(prepared) => {
            let mark = |held: &Held| held.call.dedupe.as_ref().map(|dedupe| dedupe.same.mark);
            let before = mark(held);
            held.note(Fact::Prepared(prepared))?;
            // What was judged before may be another call now.
            held.permit = HeldPermit::default();
            let is_free = held.tool.as_ref().is_some_and(|tool| held.is_permitted(tool));
            if !is_free || held.call.opened.grant.is_some() {
                held.permit = HeldPermit::unjudged();
            }
            if let Some(before) = before.filter(|before| mark(held) != Some(*before)) {
                same::withdraw(held, before);
            }
            Ok(())
        }
        Err(mut failure) => {
            if !failure.parts.is_empty() || failure.side.is_some() {
                failure = Box::pin(result::settled_failure(held, failure)).await;
            }
            // One that is internal is logged where its reference is made.
            if failure.class != FailureClass::Internal
                && let Some(detail) = &failure.detail
            {
                let (reference, tool) = (result::handle(held), &held.call.opened.tool);
                tracing::error!(%reference, %tool, code = %failure.code, detail, "a call could not be prepared");
            }
            if !waited {
                background::refuse_start(held)?;
            }
            settle::refused(held, failure)
        }
    }
}

async fn prepared(held: &mut Held) -> Result<PreparedCall, Box<Failure>> {
    refuse_twins(held)?;
    refuse_loop(held)?;
    refuse_depth(held)?;
    let tool = match held.spare_tool() {
        Some(tool) => tool,
        None => find(held).await?,
    };
    refuse_way(held, &tool)?;
    let (mut parsed, repairs) = fitted(held, &tool)?;
    let mut made = None;
    let said = match held.on.rt.hooks.is_empty() {
        true => hooks::SaidBefore::default(),
        false => Box::pin(hooks::before(held, &tool, &mut parsed)).await?,
    };
    if said.rewritten || !repairs.is_empty() || held.call.edited_args().is_some() {
        let args = Some(parsed.value.to_string().into());
        made = Some(PreparedResult { args, repairs, ..PreparedResult::default() });
    }
    match said.answer {
        Some(answered) => {
            let hooks::HookAnswer { by, output } = *answered;
            let answer = Box::pin(answer(held, &tool, &parsed.value, output)).await?;
            let made = made.get_or_insert_default();
            (made.answer, made.answered_by) = (Some(answer), Some(by));
        }
        None => {
            if let Some(rewritten) = attach(held, &tool, &parsed.value, &mut made).await? {
                parsed = rewritten;
            }
        }
    }
    let prepared = PreparedCall {
        contract: tool.contract,
        class: tool.class,
        rules: match &held.call.opened.grant {
            None => tool.rules_for(held.call.opened.deadlines.as_deref()),
            Some(_) => grants::rules(held, &tool),
        },
        reconciles: tool.reconciles,
        made: made.map(Arc::new),
        same: same(held, &tool, &parsed.value)?,
        answer: budget::chosen(held, Some(&tool)),
        origin: tool.origin,
    };
    held.claims = Some(claims(held, &tool, &parsed.value)?);
    held.tool = Some(tool);
    held.parsed = Some(Ok(parsed));
    Ok(prepared)
}

/// The claims of the call, as its tool declares them.
fn claims(held: &Held, tool: &Registered, args: &Value) -> Result<Wants, Box<Failure>> {
    let args = &*arguments::untagged(held, args);
    match tool.claims(args, &held.on.rt.limits) {
        None => Ok(turns::undeclared(held, tool.class)),
        Some(Ok(claims)) => Ok(Wants::Claims(claims)),
        Some(Err(Unclaimed::Args(problem))) => {
            let what = crate::api::error::chain(&problem);
            Err(Box::new(Failure::invalid_request(Code::InvalidArgs, format!("{what}."))))
        }
        Some(Err(Unclaimed::Failed(error))) => Err(Box::new(result::failure(held, error))),
        Some(Err(Unclaimed::Panicked(what))) => {
            Err(Box::new(result::internal(held, Code::ToolPanicked, what)))
        }
    }
}

/// Which calls are the same as this one, as its tool declares it.
fn same(held: &Held, tool: &Registered, args: &Value) -> Result<Option<Box<Same>>, Box<Failure>> {
    let dedupe = tool.dedupe(&arguments::untagged(held, args)).map_err(|problem| match problem {
        Unkeyed::Args(problem) => {
            Box::new(Failure::invalid_request(Code::InvalidArgs, format!("{problem}.")))
        }
        Unkeyed::Panicked(what) => Box::new(result::internal(held, Code::ToolPanicked, what)),
    })?;
    let session = held.on.session.lane.session();
    let mark = |key: &str| Mark::of(session, tool.spec.stable_id(), key);
    Ok(dedupe.map(|Dedupe { key, for_ms }| Box::new(Same { mark: mark(&key), for_ms })))
}

fn refuse_twins(held: &Held) -> Result<(), Box<Failure>> {
    if !held.on.batch.has_twin(held.id.ordinal) {
        return Ok(());
    }
    let message = format!(
        "Two different calls of this batch have the id {:?}, so neither was run. Give each call its own id.",
        held.call.opened.id
    );
    Err(Box::new(Failure::invalid_request(Code::CallIdConflict, message)))
}

fn refuse_loop(held: &Held) -> Result<(), Box<Failure>> {
    held.goes_on_with.map_or(Ok(()), |found| Err(Box::new(found.failure())))
}

fn refuse_depth(held: &Held) -> Result<(), Box<Failure>> {
    let (parent, most) = (held.on.batch.head.parent, held.on.rt.limits.nesting_max);
    let depth = parent.map_or_else(|| held.call.opened.depth(), |parent| parent.depth);
    if u64::from(depth) <= most {
        return Ok(());
    }
    let message = match parent {
        Some(_) => format!(
            "The call lies inside {depth} others, and may lie inside {most}. Do the work with fewer calls of tools from \
             within tools."
        ),
        None => format!(
            "The call comes at the end of {depth} calls and events of which each started the next, and there may be \
             {most}. Remove a trigger of the circle, or let it take fewer events."
        ),
    };
    Err(Box::new(Failure {
        class: FailureClass::ResourceLimit,
        source: Source::Runtime,
        did_not_happen: true,
        ..Failure::invalid_request(Code::NestedTooDeep, message)
    }))
}

/// Refuses to call a tool in a way that its flags forbid.
fn refuse_way(held: &Held, tool: &Registered) -> Result<(), Box<Failure>> {
    let (flags, name) = (tool.spec.flags, &tool.spec.name);
    if held.call.opened.task.is_some() {
        return background::may_be_task(tool);
    }
    if flags.background_only {
        let message = format!(
            "The tool {name:?} runs only in the background. Start it as a task, with spawn_background."
        );
        return Err(Box::new(Failure::invalid_request(Code::BackgroundOnly, message)));
    }
    if flags.stays_direct && held.on.batch.head.parent.is_some() {
        let message = format!("The tool {name:?} is not called from other tools. Call it directly.");
        return Err(Box::new(Failure::invalid_request(Code::StaysDirect, message)));
    }
    Ok(())
}

/// Prepares a call that was taken over, if its tool is there; it was accepted, so it is not refused for that.
pub(crate) async fn once_there(held: &mut Held) -> Result<(), Lost> {
    held.looked_generation = held.on.rt.registry.generation();
    // A tool that its grant is not for would be waited for in vain.
    if held.call.opened.grant.is_some() && Box::pin(grants::refuse(held)).await? {
        return Ok(());
    }
    if let ToolLookup::Missing { .. } = grants::find_tool(held).await {
        held.tool_search = ToolSearch::Missing(Reason::NoSuchTool);
        return Ok(());
    }
    note(held).await
}

/// The tool that was asked for, or why it cannot be had.
pub(crate) async fn find(held: &Held) -> Result<Arc<Registered>, Box<Failure>> {
    let asked = &held.call.opened.tool;
    match grants::find_tool(held).await {
        ToolLookup::Tool(tool) => Ok(tool),
        ToolLookup::Missing { nearest } => Err(missing(asked, nearest)),
        ToolLookup::Unavailable(error) => Err(unavailable(held, error)),
    }
}

/// There is no such tool among those the caller may use.
pub(crate) fn missing(asked: &str, nearest: Option<String>) -> Box<Failure> {
    let hint = match nearest {
        Some(nearest) => format!("Did you mean {nearest:?}?"),
        None => "Use one of the tools you were given.".to_string(),
    };
    Box::new(Failure {
        class: FailureClass::Unavailable,
        source: Source::Runtime,
        ..Failure::invalid_request(Code::NoSuchTool, format!("There is no tool {asked:?}. {hint}"))
    })
}

/// Its provider does not give it: what the provider says is for the model, unless it is internal.
fn unavailable(held: &Held, error: ToolError) -> Box<Failure> {
    let is_internal = error.class == FailureClass::Internal;
    let told = result::failure(held, error.clone());
    let message =
        if is_internal { told.message } else { format!("The tool cannot be had now. {}", told.message) };
    Box::new(Failure {
        class: FailureClass::Unavailable,
        source: Source::Runtime,
        code: Code::ProviderFailed,
        message,
        retry: error.retry,
        did_not_happen: true,
        ..told
    })
}

/// The arguments as they were submitted. Those of a call that is prepared again are read anew: what is at hand may
/// have been made of them.
fn submitted(held: &mut Held) -> Result<Parsed, Box<Failure>> {
    match held.parsed.take() {
        Some(parsed) if held.call.pin.is_none() => parsed.map_err(unfit),
        Some(_) | None => {
            let limits = &held.on.rt.limits;
            held.call
                .opened
                .args
                .parse(limits.args())
                .and_then(|value| measured(value, limits))
                .map_err(unfit)
        }
    }
}

/// Arguments that did not come from the model, measured and validated like those that do.
pub(crate) fn checked(
    tool: &Registered,
    value: Value,
    limits: &EnforcedLimits,
) -> Result<Parsed, Box<Failure>> {
    let parsed = measured(value, limits).map_err(unfit)?;
    validate(tool, &parsed, limits.args())?;
    Ok(parsed)
}

/// Arguments that fit their tool, with the repairs that made them fit.
type Fitted = Result<(Parsed, Vec<Repair>), Box<Failure>>;

/// The submitted arguments as they fit the tool: as they are, or with what was changed to make them fit.
fn fitted(held: &mut Held, tool: &Registered) -> Fitted {
    if let Some(edited) = held.call.edited_args().cloned() {
        return edited_by_approver(held, tool, &edited).map(|parsed| (parsed, Vec::new()));
    }
    if held.on.rt.secrets.is_used()
        && let Some(fitted) = fitted_with_secrets(held, tool)
    {
        return fitted;
    }
    let submitted = submitted(held);
    made_to_fit(tool, &held.call.opened.args, submitted, held.on.rt.limits.args())
}

/// Arguments that nobody has submitted, as they would run.
pub(crate) fn would_fit(
    tool: &Registered,
    given: &Arguments,
    limits: &EnforcedLimits,
) -> Result<(Value, Vec<Repair>), Box<Failure>> {
    let parsed = given.parse(limits.args()).and_then(|value| measured(value, limits)).map_err(unfit);
    made_to_fit(tool, given, parsed, limits.args()).map(|(parsed, repairs)| (parsed.value, repairs))
}

/// Arguments as they fit the tool: as they were parsed, or repaired from what was given.
fn made_to_fit(
    tool: &Registered,
    given: &Arguments,
    submitted: Result<Parsed, Box<Failure>>,
    limits: &ArgLimits,
) -> Fitted {
    let wanted = contract(tool, limits);
    if let Ok(parsed) = &submitted
        && repair::fits(&parsed.value, parsed.size, &wanted)
    {
        return submitted.map(|parsed| (parsed, Vec::new()));
    }
    if limits.repairs_max > 0
        && let Some(Fit { value, size, repairs }) = repair::repaired(given, &wanted)
    {
        return Ok((Parsed { value, size }, repairs));
    }
    let parsed = submitted?;
    validate(tool, &parsed, limits)?;
    Ok((parsed, Vec::new()))
}

/// The arguments that an approver gave the call. They are not repaired: whoever gave them meant them so.
fn edited_by_approver(held: &Held, tool: &Registered, edited: &str) -> Result<Parsed, Box<Failure>> {
    let limits = &held.on.rt.limits;
    let parsed =
        json::parse(edited, limits.args()).and_then(|value| measured(value, limits)).map_err(unfit)?;
    validate(tool, &parsed, limits.args()).map_err(|mut failure| {
        failure.message =
            format!("A person approved the call with other arguments, which do not fit. {}", failure.message);
        failure
    })?;
    Ok(parsed)
}

/// As [`fitted`], for arguments that refer to secrets; `None` if they do not. What is checked and repaired is what will run; what is kept of it
/// refers to the secrets again.
#[cold]
fn fitted_with_secrets(held: &mut Held, tool: &Registered) -> Option<Fitted> {
    let (vault, limits) = (held.on.session.lane.vault().clone(), held.on.rt.limits.clone());
    let given = held.call.opened.args.given;
    let text = match vault.reveal(held.reference_place(), &held.call.opened.args.text) {
        Ok(revealed) => revealed?,
        Err(error) => return Some(Err(Box::new(result::failure(held, error.into_tool_error())))),
    };
    let revealed = Arguments { given, text: text.into() };
    let parsed = revealed.parse(limits.args()).and_then(|value| measured(value, &limits)).map_err(unfit);
    let wanted = contract(tool, limits.args());
    let fits = parsed.as_ref().is_ok_and(|parsed| repair::fits(&parsed.value, parsed.size, &wanted));
    if fits {
        return Some(submitted(held).map(|parsed| (parsed, Vec::new())));
    }
    let repaired = (limits.args().repairs_max > 0).then(|| repair::repaired(&revealed, &wanted)).flatten();
    let Some(Fit { value, repairs, .. }) = repaired else {
        return Some(
            parsed
                .and_then(|parsed| validate(tool, &parsed, limits.args()))
                .and_then(|()| submitted(held).map(|parsed| (parsed, Vec::new()))),
        );
    };
    let text = value.to_string();
    let concealed = vault.conceal(held.reference_place(), &text).unwrap_or(text);
    let value = json::parse(&concealed, limits.args()).and_then(|value| measured(value, &limits));
    Some(value.map(|parsed| (parsed, repairs)).map_err(unfit))
}

/// The contract that arguments of the tool must fit.
fn contract<'a>(tool: &'a Registered, limits: &'a ArgLimits) -> ArgumentContract<'a> {
    let takes_cut_off = tool.class == EffectClass::Read;
    ArgumentContract { schema: tool.input.as_ref(), takes_cut_off, limits }
}

fn validate(tool: &Registered, parsed: &Parsed, limits: &ArgLimits) -> Result<(), Box<Failure>> {
    let wanted = contract(tool, limits);
    repair::check(&parsed.value, parsed.size, &wanted).map_err(|unfit| {
        let message = format!("The arguments of {:?} are not valid.\n{unfit}", tool.spec.name);
        Box::new(Failure::invalid_request(unfit.code().into(), message))
    })
}

/// Lets the tool look at the call; what it attaches or answers is recorded with what was made of the call before. Returns the
/// arguments, if the tool has rewritten them.
async fn attach(
    held: &mut Held,
    tool: &Registered,
    args: &Value,
    made: &mut Option<PreparedResult>,
) -> Result<Option<Parsed>, Box<Failure>> {
    let said = {
        let cx = PrepareCx { at: held.place() };
        answer_caught(|| tool.tool.prepare(args, &cx)).await
    };
    match said {
        Ok(None) => Ok(None),
        Ok(Some(Attached::Payload(payload))) => {
            attach_payload(held, payload, made)?;
            Ok(None)
        }
        Ok(Some(Attached::Rewrite { args, payload })) => {
            let rewritten = checked(tool, args, &held.on.rt.limits).map_err(|unfit| {
                let why = format!("`prepare` rewrote the arguments to what is refused: {}", unfit.message);
                Box::new(result::internal(held, Code::Internal, why))
            })?;
            made.get_or_insert_default().args = Some(rewritten.value.to_string().into());
            if let Some(payload) = payload {
                attach_payload(held, payload, made)?;
            }
            Ok(Some(rewritten))
        }
        Ok(Some(Attached::Answer(output))) => {
            made.get_or_insert_default().answer = Some(Box::pin(answer(held, tool, args, output)).await?);
            Ok(None)
        }
        Err(Trouble::Failed(error)) => Err(Box::new(result::failure(held, error))),
        Err(Trouble::Panicked(what)) => Err(Box::new(result::internal(held, Code::ToolPanicked, what))),
    }
}

fn attach_payload(
    held: &Held,
    payload: Value,
    made: &mut Option<PreparedResult>,
) -> Result<(), Box<Failure>> {
    let payload = measured(payload, &held.on.rt.limits).map_err(too_much)?;
    made.get_or_insert_default().payload = Some(payload.value.to_string().into());
    Ok(())
}

/// An answer at once is a result like any other: hooks see it, and it must fit the output schema.
async fn answer(
    held: &mut Held,
    tool: &Registered,
    args: &Value,
    output: Output,
) -> Result<windlass_core::outcome::Success, Box<Failure>> {
    if output.pending.is_some() {
        let why = "an answer before the call runs cannot be pending: only an attempt can wait";
        return Err(Box::new(result::internal(held, Code::Internal, why.to_string())));
    }
    let output = hooks::shown(held, tool, args, Ok(output)).await?;
    result::success(held, tool, output).await
}

/// A payload is stored in the journal, so it is bounded like arguments.
fn too_much(problem: json::JsonProblem) -> Box<Failure> {
    Box::new(Failure {
        class: FailureClass::Execution,
        source: Source::Tool,
        ..Failure::invalid_request(
            problem.code.into(),
            format!("What the tool prepared for the call is refused: {problem}"),
        )
    })
}
