//! Answers of people to approvals.

use super::ask::{AskError, check_reason, hear, kept};
use crate::api::clock::Clock;
use crate::api::error::{Lost, SessionError};
use crate::api::journal::find_id;
use crate::api::limits::Limits;
use crate::session::inner::Inner;
use crate::session::permission::{Remembered, argument};
use serde_json::Value;
use std::sync::Arc;
use windlass_args::json;
use windlass_core::ask::{Ask, Decide};
use windlass_core::call::{ApprovalAnswer, ApprovalAnswered, ApprovalAsked, Call};
use windlass_core::handle::{completion_name, open_approval_id};
use windlass_core::ids::CallId;
use windlass_core::time::Timestamp;
use windlass_core::tool::Digest;
use windlass_store::{Inbound, Posted, SessionRow, Store};

/// A person's answer to an approval.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ApprovalDecision {
    /// Whether the call may run.
    pub approve: bool,
    /// The digest that the person was shown, in hexadecimal digits.
    pub digest: String,
    /// The arguments with which it runs instead, if they were edited.
    pub args: Option<Value>,
    /// The reason of a denial, for the model.
    pub reason: Option<String>,
    /// Whether the answer is given again from now on, and to which calls.
    pub remember: Option<Remember>,
}

/// The calls of a session for which an approval is given again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Remember {
    /// Which arguments they must have.
    pub args: RememberedArgs,
    /// For how long, in milliseconds; `None` as long as the session is there.
    pub for_ms: Option<u64>,
}

/// The arguments that calls must share with the approved one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum RememberedArgs {
    /// All of them.
    #[default]
    Same,
    /// Those at these JSON pointers.
    At(Vec<String>),
    /// None.
    Any,
}

/// The most pointers of a remembered answer: each is looked up in every call that is asked about.
const POINTERS_MAX: usize = 32;

/// An approver, and what their answer is checked by.
#[derive(Clone, Copy)]
pub struct Approver<'a> {
    /// The principal that answers.
    pub by: &'a str,
    /// The clock.
    pub clock: &'a dyn Clock,
    /// The limits that are configured.
    pub limits: &'a Limits,
}

/// An approval that was found by its id.
struct FoundApproval {
    session: SessionRow,
    id: CallId,
    call: Call,
    asked: ApprovalAsked,
}

/// Posts the answer to an approval for the owner of the session. Durable when this returns. The first one counts, and
/// repeating it is fine.
pub async fn post_decision(
    store: &dyn Store,
    id: &str,
    decision: &ApprovalDecision,
    approver: Approver<'_>,
) -> Result<SessionRow, AskError> {
    let found = find(store, id).await?;
    let decide = checked(&found, decision, approver)?;
    if is_answered(&found, &decide)? {
        return Ok(found.session);
    }
    if approver.clock.now() >= found.asked.parked.wake_at {
        return Err(AskError::Over { what: "its deadline has passed" });
    }
    let ask = Ask::Decide(Box::new(decide));
    let inbound =
        Inbound { session: found.session.no, key: ask.key(found.session.head.0), body: ask.encode() };
    match point!("inbound.post", store.post(inbound).await).map_err(SessionError::from)? {
        Posted::New | Posted::Again => Ok(found.session),
        Posted::NoSession => Err(SessionError::from(Lost::Removed).into()),
        Posted::Differs => Err(AskError::Answered),
    }
}

/// The approval of this id, if the call still has it.
async fn find(store: &dyn Store, id: &str) -> Result<FoundApproval, AskError> {
    let (call_id, sum) = open_approval_id(store.secret(), id).ok_or(AskError::NoApproval)?;
    let (session, call, _) = find_id(store, call_id).await?.ok_or(AskError::NoApproval)?;
    let asked = call.permission.as_deref().and_then(|known| known.asked.clone());
    let asked = *asked.ok_or(AskError::NoApproval)?;
    if completion_name(store.secret(), &asked.number.to_string()) != sum {
        return Err(AskError::Over { what: "the call is asked for anew" });
    }
    Ok(FoundApproval { session, id: call_id, call, asked })
}

/// Whether this very answer is recorded; or why it is refused.
fn is_answered(found: &FoundApproval, decide: &Decide) -> Result<bool, AskError> {
    match found.call.approval_answer() {
        Some(given) if given.answer == decide.answered.answer && given.by == decide.answered.by => Ok(true),
        Some(_) => Err(AskError::Answered),
        None if found.call.end().is_some() => Err(AskError::Over { what: "the call has ended" }),
        None if found.call.open_approval().is_none() => {
            Err(AskError::Over { what: "the call no longer waits for it" })
        }
        None => Ok(false),
    }
}

/// The answer as a message, if it may be given.
fn checked(
    found: &FoundApproval,
    decision: &ApprovalDecision,
    approver: Approver<'_>,
) -> Result<Decide, AskError> {
    let asked = &found.asked;
    if Digest::parse(&decision.digest) != Some(asked.digest) {
        return Err(AskError::StaleDigest { digest: asked.digest.whole() });
    }
    let is_own = found.session.principal.as_deref() == Some(approver.by);
    if asked.four_eyes && is_own && !windlass_core::mutant::breaks("two-eyes") {
        return Err(AskError::FourEyes { principal: approver.by.to_string() });
    }
    check_reason(decision.reason.as_deref())?;
    let answer = if decision.approve {
        approved(found, decision, approver.limits)?
    } else {
        refuse_extras(decision)?;
        ApprovalAnswer::Denied { reason: decision.reason.as_deref().map(Into::into) }
    };
    let remember = match &decision.remember {
        Some(remember) => Some(remembered(found, decision, remember, approver)?),
        None => None,
    };
    let answered =
        ApprovalAnswered { number: asked.number, answer, by: Some(approver.by.into()), remembered: None };
    Ok(Decide { call: found.id, answered, remember: remember.map(|text| text.into()) })
}

/// An approval, maybe with edited arguments. Whether those fit the tool is checked by whoever has the tool.
fn approved(
    found: &FoundApproval,
    decision: &ApprovalDecision,
    limits: &Limits,
) -> Result<ApprovalAnswer, AskError> {
    let invalid = |what: &str| AskError::Invalid { what: what.to_string() };
    if decision.reason.is_some() {
        return Err(invalid("an approval has no reason: it is for a denial; leave it out"));
    }
    let Some(args) = &decision.args else {
        return Ok(ApprovalAnswer::Approved { digest: found.asked.digest, args: None });
    };
    if found.call.attempts > 0 {
        return Err(invalid(
            "the call has started before, so its arguments stay as they are; leave them out",
        ));
    }
    if !args.is_object() {
        return Err(invalid("the edited arguments must be an object, like those that were shown"));
    }
    Ok(ApprovalAnswer::Approved { digest: found.asked.frame, args: Some(kept(args, limits)?) })
}

/// Refuses parts of an answer that a denial does not have.
fn refuse_extras(decision: &ApprovalDecision) -> Result<(), AskError> {
    match (&decision.args, &decision.remember) {
        (None, None) => Ok(()),
        _ => Err(AskError::Invalid {
            what: "a denial has no arguments and is not remembered; leave both out".to_string(),
        }),
    }
}

/// The record by which calls of the same kind are answered from now on, as JSON.
fn remembered(
    found: &FoundApproval,
    decision: &ApprovalDecision,
    remember: &Remember,
    approver: Approver<'_>,
) -> Result<String, AskError> {
    let invalid = |what: String| AskError::Invalid { what };
    let FoundApproval { asked, call, session, id } = found;
    if asked.four_eyes || asked.untrusted {
        let why = if asked.four_eyes { "four eyes are asked for" } else { "it is about untrusted content" };
        return Err(invalid(format!("this approval cannot be remembered: {why}; approve each call")));
    }
    if call.opened.grant.is_some() {
        let why = "the call is made by a grant, which says itself what it covers";
        return Err(invalid(format!("this approval cannot be remembered: {why}; approve each call")));
    }
    let args = match &decision.args {
        Some(edited) => edited.clone(),
        None => ran(call, approver.limits)?,
    };
    let pointers = match &remember.args {
        RememberedArgs::Any => Vec::new(),
        RememberedArgs::Same => vec![String::new()],
        RememberedArgs::At(pointers) => pointers.clone(),
    };
    let is_pointer = |pointer: &&String| !pointer.is_empty() && !pointer.starts_with('/');
    if let Some(wrong) = pointers.iter().find(is_pointer) {
        return Err(invalid(format!(
            "{wrong:?} is no JSON pointer; one begins with a slash, as in \"/path\""
        )));
    }
    if pointers.len() > POINTERS_MAX {
        return Err(invalid(format!("an answer is remembered by at most {POINTERS_MAX} arguments")));
    }
    let now = approver.clock.now();
    let until = |ms: u64| {
        Timestamp(now.0.saturating_add(i64::try_from(ms.saturating_mul(1_000)).unwrap_or(i64::MAX)))
    };
    let pin = call.pin.ok_or(AskError::NoApproval)?;
    let record = Remembered {
        id: format!("{:x}-{}", id.packed(), asked.number),
        principal: session.principal.clone(),
        tool: call.opened.tool.to_string(),
        contract: pin.contract.whole(),
        rules: asked.sources.iter().map(|source| source.to_string()).collect(),
        args: pointers.into_iter().map(|pointer| (pointer.clone(), argument(&args, &pointer))).collect(),
        expires_at: remember.for_ms.map(|ms| until(ms).0),
        by: approver.by.to_string(),
        at: now.0,
    };
    let text = serde_json::to_string(&record).map_err(|error| invalid(error.to_string()))?;
    if text.len() > windlass_store::RECORD_VALUE_BYTES_MAX / 2 {
        return Err(invalid("the arguments are too long to be remembered; name some of them".to_string()));
    }
    Ok(text)
}

/// The arguments that were shown: as they were prepared.
pub(crate) fn ran(call: &Call, limits: &Limits) -> Result<Value, AskError> {
    let made = call.made.as_ref().and_then(|made| made.args.as_deref());
    let parsed = match made {
        Some(args) => json::parse(args, &limits.args()),
        None => call.opened.args.parse(&limits.args()),
    };
    parsed.map_err(|problem| AskError::Invalid { what: problem.to_string() })
}

/// Answers an approval, as a process that may own the session.
pub(crate) async fn decide(
    rt: &Arc<Inner>,
    id: &str,
    decision: &ApprovalDecision,
    by: &str,
) -> Result<SessionRow, AskError> {
    let approver = Approver { by, clock: &*rt.clock, limits: &rt.limits };
    let row = post_decision(&*rt.store, id, decision, approver).await?;
    hear(rt, &row).await?;
    Ok(row)
}
