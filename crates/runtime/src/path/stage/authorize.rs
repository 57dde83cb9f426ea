//! Ask the policy whether a call may run, and a person where the policy says so.

use crate::api::error::{Lost, SessionError, chain};
use crate::api::polling::{caught, polled};
use crate::path::background;
use crate::path::grants;
use crate::path::stage::attempt;
use crate::path::stage::prepare;
use crate::path::stage::result;
use crate::path::stage::settle;
use crate::session::arguments;
use crate::session::grants::GrantUnread;
use crate::session::held::Held;
use crate::session::outgoing::WebhookKind;
use crate::session::parking;
use crate::session::permission::{
    ApprovedStart, AskedCall, HeldPermit, PendingAsk, SessionPermission, source_of,
};
use crate::session::policy::CurrentPolicy;
use crate::session::turns::Turns;
use crate::tools::policy::PolicyRuling;
use crate::tools::registry::Registered;
use crate::tools::tool::{BoundContent, PrepareCx};
use serde_json::Value;
use std::sync::Arc;
use windlass_args::canonical;
use windlass_core::call::{
    ApprovalAnswer, ApprovalAnswered, ApprovalAsked, Fact, JudgedCall, Parked, Permit, Reason, State,
};
use windlass_core::code::Code;
use windlass_core::failure::Failure;
use windlass_core::handle::{approval_id, content_hasher};
use windlass_core::policy::{CallFacts, Judgement, Ruling};
use windlass_core::time::Timestamp;
use windlass_core::tool::Digest;

/// Finds out whether the call may run, and notes which rules decided.
pub(crate) async fn note(held: &mut Held) -> Result<(), Lost> {
    match attempt::pin(held).await? {
        attempt::Pinned::Tool(tool) => judge(held, &tool).await,
        attempt::Pinned::Again => prepare::note(held).await,
        attempt::Pinned::Missing if held.call.open_approval().is_some() => {
            go_on_waiting(held);
            Ok(())
        }
        attempt::Pinned::Accepted | attempt::Pinned::Missing => Ok(()),
    }
}

async fn judge(held: &mut Held, tool: &Arc<Registered>) -> Result<(), Lost> {
    let stamp = held.on.rt.policy.stamp();
    let by_grant = held.call.opened.grant.is_some();
    if stamp == 0 && !tool.asks && !by_grant && !matches!(held.call.state, State::AwaitingApproval { .. }) {
        held.permit = HeldPermit::judged(Permit::Granted, stamp);
        return Ok(());
    }
    let args = match arguments::take(held) {
        Ok(args) => args,
        Err(failure) => return settle::refused(held, failure),
    };
    let policy = held.on.rt.policy.current();
    let found = match by_grant {
        false => find(held, tool, &args.value, &policy).await,
        true => Box::pin(find_by_grant(held, tool, &args.value, &policy)).await,
    };
    held.parsed = Some(Ok(args));
    match found {
        Ok(PolicyFinding::Allowed(judged, approved)) => {
            // One that waited for an approval goes on because of this.
            let waits = matches!(held.call.state, State::AwaitingApproval { .. });
            match judged {
                Some(judged) if waits || (!judged.by.is_empty() && !is_known(held, &judged)) => {
                    held.note(Fact::Judged(judged))?;
                }
                None if waits => held.note(Fact::Judged(Arc::new(policy.allowed_by_none())))?,
                Some(_) | None => {}
            }
            held.permit = HeldPermit::judged(Permit::Granted, stamp).approving(approved);
            if waits {
                // Now, since it may wait long for its turn: an answer to a question that nobody asks any more must be refused.
                held.commit().await?;
            }
            Ok(())
        }
        Ok(PolicyFinding::Denied(judged)) => {
            background::refuse_start(held)?;
            held.note(Fact::Judged(Arc::new(judged)))?;
            held.permit = HeldPermit::judged(Permit::Denied, stamp);
            Ok(())
        }
        Ok(PolicyFinding::Asks(ask)) => {
            let asked = held.call.open_approval().is_some_and(|asked| asked.digest == ask.digest);
            let permit = if asked { Permit::Asked } else { Permit::Asks };
            held.permit = HeldPermit::judged(permit, stamp).asking(ask);
            Ok(())
        }
        Err(Unjudged::Lost(lost)) => Err(lost),
        Err(Unjudged::Refused(failure)) => settle::refused(held, failure),
    }
}

/// The call waits for an approval, and its tool is not there: it goes on waiting.
fn go_on_waiting(held: &mut Held) {
    let stamp = held.on.rt.policy.stamp();
    held.permit = HeldPermit::judged(Permit::Asked, stamp);
    held.tool_search = windlass_core::call::ToolSearch::NotMissed;
}

/// The finding of the policy about a call.
enum PolicyFinding {
    /// It may run: for the record by what, maybe because a person approved exactly this start.
    Allowed(Option<Arc<JudgedCall>>, Option<Box<ApprovedStart>>),
    Denied(JudgedCall),
    Asks(Box<PendingAsk>),
}

/// Why a call cannot be judged.
enum Unjudged {
    Lost(Lost),
    Refused(Box<Failure>),
}

/// The finding about a call by grant: the grant must admit it, and the policy applies as to any other.
async fn find_by_grant(
    held: &Held,
    tool: &Arc<Registered>,
    args: &Value,
    policy: &CurrentPolicy,
) -> Result<PolicyFinding, Unjudged> {
    let refusal = match grants::check(held, tool, args).await {
        Ok(Ok(())) => return find(held, tool, args, policy).await,
        Ok(Err(refusal)) => refusal,
        Err(GrantUnread::Lost(lost)) => return Err(Unjudged::Lost(lost)),
        Err(GrantUnread::Store(what)) => {
            return Err(Unjudged::Refused(Box::new(result::internal(held, Code::Internal, what))));
        }
    };
    let (by, reason) = (vec![grants::BY_GRANT.into()], Some(refusal.to_string().into()));
    Ok(PolicyFinding::Denied(JudgedCall { allowed: false, policy: policy.version, by, reason }))
}

async fn find(
    held: &Held,
    tool: &Arc<Registered>,
    args: &Value,
    policy: &CurrentPolicy,
) -> Result<PolicyFinding, Unjudged> {
    let session = &held.on.session;
    let known = session.slots.of::<SessionPermission>();
    let (labels, exposure) =
        session.judged_by(&held.on.rt, &known).await.map_err(|error| unread(held, error))?;
    let place = held.place();
    let principal = place.principal();
    let tool_asks = tool.asks_about(args);
    let call = CallFacts { principal, labels, turn: place.turn(), args, exposure, tool_asks };
    match policy.judge(tool, &call) {
        PolicyRuling::Allows(judged) => Ok(PolicyFinding::Allowed(judged, None)),
        PolicyRuling::Objects(judgement) if judgement.ruling == Ruling::Deny => {
            Ok(PolicyFinding::Denied(policy.judged(&judgement, false)))
        }
        // Boxed, as all that is rare, so that calls that are allowed need no room for it.
        PolicyRuling::Objects(judgement) => Box::pin(find_answer(held, tool, args, policy, judgement)).await,
    }
}

fn unread(held: &Held, error: SessionError) -> Unjudged {
    if let SessionError::Lost(lost) = error {
        return Unjudged::Lost(lost);
    }
    let what = format!("the permission of a call cannot be decided: {}", chain(&error));
    Unjudged::Refused(Box::new(result::internal(held, Code::Internal, what)))
}

/// Rules ask about the call: whether somebody has answered, for this start or for calls of its kind.
async fn find_answer(
    held: &Held,
    tool: &Arc<Registered>,
    args: &Value,
    policy: &CurrentPolicy,
    judgement: Judgement,
) -> Result<PolicyFinding, Unjudged> {
    let (session, place) = (&held.on.session, held.place());
    let principal = place.principal();
    // Where an ask is answered already, the record says by what in place of the rules that ask.
    let answered = |by: Vec<Arc<str>>| Some(Arc::new(JudgedCall { by, ..policy.judged(&judgement, true) }));
    let bound = bound(held, tool, args).await.map_err(Unjudged::Refused)?;
    let frame = frame(held, tool, &judgement, &bound);
    let digest = digest(held, &frame, args, &bound);
    let is_own = judgement.four_eyes
        && held.call.approved_by().is_some_and(|by| Some(&**by) == principal)
        && !windlass_core::mutant::breaks("two-eyes");
    if held.call.covers(&digest, &frame) && !is_own {
        let approved = ApprovedStart { tool: tool.clone(), content: bound.held };
        return Ok(PolicyFinding::Allowed(answered(Vec::new()), Some(Box::new(approved))));
    }
    // A remembered answer is about calls of the session's own tools.
    let by_session = held.call.opened.grant.is_none();
    let asked =
        AskedCall { principal, contract: &tool.contract, judgement: &judgement, args, now: held.now() };
    let remembered = match by_session {
        true => session.remembered_for(&held.on.rt, &asked).await.map_err(|error| unread(held, error))?,
        false => None,
    };
    if let Some(id) = remembered {
        let by = vec![format!("remembered {id}").into()];
        return Ok(PolicyFinding::Allowed(answered(by), None));
    }
    Ok(PolicyFinding::Asks(Box::new(PendingAsk { digest, frame, policy: policy.version, judgement })))
}

/// Whether the record says so already.
fn is_known(held: &Held, judged: &JudgedCall) -> bool {
    held.call.permission.as_deref().and_then(|known| known.judged.as_deref()) == Some(judged)
}

/// The digest of everything that an approval of the call covers. It is keyed, so that nobody can guess arguments by it.
fn digest(held: &Held, frame: &Digest, args: &Value, bound: &BoundContent) -> Digest {
    let mut hasher = content_hasher(held.on.rt.store.secret());
    hasher.update(b"approved arguments");
    hasher.update(&frame.0);
    hasher.update(&(bound.of_args.len() as u64).to_le_bytes());
    hasher.update(&bound.of_args);
    hasher.update(canonical::text(args).as_bytes());
    Digest(*hasher.finalize().as_bytes())
}

/// The content that an approval covers beside the arguments.
async fn bound(held: &Held, tool: &Registered, args: &Value) -> Result<BoundContent, Box<Failure>> {
    let panicked = |panic| Box::new(result::internal(held, Code::ToolPanicked, panic));
    let cx = PrepareCx { at: held.place() };
    match caught(|| tool.tool.bound(args, &cx)).map_err(panicked)? {
        Some(bound) => {
            let said = polled(bound).await.map_err(panicked)?;
            said.map_err(|error| Box::new(result::failure(held, error)))
        }
        None => Ok(BoundContent::default()),
    }
}

/// The digest of all of that but the arguments.
fn frame(held: &Held, tool: &Registered, judgement: &Judgement, bound: &BoundContent) -> Digest {
    let mut hasher = content_hasher(held.on.rt.store.secret());
    let mut field = |bytes: &[u8]| {
        hasher.update(&(bytes.len() as u64).to_le_bytes());
        hasher.update(bytes);
    };
    field(b"approval");
    field(held.on.session.name.as_bytes());
    field(held.place().principal().unwrap_or_default().as_bytes());
    field(&held.id.packed().to_le_bytes());
    field(&tool.contract.0);
    for by in &judgement.by {
        field(source_of(by).as_bytes());
    }
    field(&bound.fixed);
    if let Some(grant) = &held.call.opened.grant {
        field(b"grant");
        field(&grant.0);
    }
    Digest(*hasher.finalize().as_bytes())
}

/// Records that a person is asked, and parks the call until they have answered. It is returned if it must be judged first.
pub(crate) async fn ask(mut held: Box<Held>) -> Result<Option<Box<Held>>, Lost> {
    let rt = held.on.rt.clone();
    let Some(ask) = held.permit.ask.take() else {
        held.permit = HeldPermit::unjudged();
        return Ok(Some(held));
    };
    // Before it is recorded that it waits: whoever comes after it must find it in its place.
    Turns::release_room(&mut held, rt.clock.elapsed_us());
    let PendingAsk { digest, frame, policy, judgement } = *ask;
    let length_us = judgement.expires_ms.unwrap_or(rt.limits.approval_ms).saturating_mul(1_000);
    let wake_at = Timestamp(held.now().0.saturating_add(i64::try_from(length_us).unwrap_or(i64::MAX)));
    let parked = Parked { reason: Reason::Approval, wake_at, length_us };
    // What it waits for next is another wait.
    held.past.clock.parked_us = None;
    let asked = ApprovalAsked {
        number: held.call.next_approval(),
        digest,
        frame,
        policy,
        by: judgement.by.iter().map(|by| by.to_string().into()).collect(),
        sources: judgement.by.iter().map(|by| source_of(by).into()).collect(),
        reason: judgement.reason.as_deref().map(Into::into),
        parked,
        four_eyes: judgement.four_eyes,
        untrusted: judgement.untrusted,
        allows_on_expiry: judgement.on_expiry == Ruling::Allow,
    };
    let id = approval_id(rt.store.secret(), held.id, asked.number);
    let reason = asked.reason.clone().unwrap_or_default();
    held.note(Fact::ApprovalAsked(Box::new(asked)))?;
    held.tell_webhooks(WebhookKind::Approval, &id, &reason, wake_at);
    held.commit().await?;
    // If it is to be judged again because of what changed meanwhile, it is woken at once.
    parking::until(held, parked);
    Ok(None)
}

/// Nobody has answered in time, and the rules that asked let the call run then.
pub(crate) fn approve_by_default(held: &mut Held) -> Result<(), Lost> {
    let Some(asked) = held.call.open_approval() else { return Ok(()) };
    let answer = ApprovalAnswer::Approved { digest: asked.digest, args: None };
    let answered = ApprovalAnswered { number: asked.number, answer, by: None, remembered: None };
    held.note(Fact::ApprovalAnswered(Box::new(answered)))
}
