//! Calls by grant: whether the grant admits the call, which tool it is for, and the use that the call takes.

use crate::api::error::{Lost, SessionError};
use crate::api::output::ToolError;
use crate::path::background;
use crate::path::stage::result;
use crate::path::stage::settle;
use crate::session::grants::{GrantRefusal, GrantUnread, HeldGrant, SessionGrants};
use crate::session::held::Held;
use crate::session::inner::Inner;
use crate::session::owner::Session;
use crate::tools::place::BatchPlace;
use crate::tools::registry::{Registered, ToolLookup};
use crate::tools::request::RecordedRequest;
use serde_json::Value;
use std::pin::Pin;
use std::sync::Arc;
use windlass_core::attempt::Rules;
use windlass_core::call::Opened;
use windlass_core::code::Code;
use windlass_core::grant::GrantMismatch;

/// The source of a denial in the record of a call: its grant, and no rule.
pub(crate) const BY_GRANT: &str = "the grant";

/// Names the tools of calls that have only a grant: it is for one tool. `true`: some were named. The name is what identifies such a
/// call and what rules and people see, so it is found before anything else is. A grant that is not there names nothing, and its call is denied.
pub(crate) async fn name_tools(
    rt: &Inner,
    session: &Session,
    calls: &mut [RecordedRequest],
) -> Result<bool, SessionError> {
    let is_unnamed = |asked: &RecordedRequest| asked.opened.tool.is_empty() && asked.opened.grant.is_some();
    if !calls.iter().any(is_unnamed) {
        return Ok(false);
    }
    let name = async {
        for asked in calls.iter_mut().filter(|asked| is_unnamed(asked)) {
            let Some(id) = asked.opened.grant.as_deref() else { continue };
            if let Some(grant) = session.grant(rt, id).await? {
                asked.opened.tool = grant.check.terms().tool.as_str().into();
            }
        }
        Ok(true)
    };
    // Boxed, as all that is rare, so that most calls need no room for it.
    Box::pin(name).await
}

/// The tool of a call in somebody's hands.
#[inline]
pub(crate) async fn find_tool(held: &Held) -> ToolLookup {
    look_up(&held.on.rt, &held.on.session, &held.on.batch.head.place, &held.call.opened).await
}

/// The tool of a call: as its session has it, or the one that its grant is for, whether or not the session has it.
pub(crate) async fn look_up(
    rt: &Inner,
    session: &Session,
    place: &BatchPlace,
    opened: &Opened,
) -> ToolLookup {
    let Some(id) = &opened.grant else { return rt.registry.look_up(place, &opened.tool).await };
    let granted = async {
        match session.grant(rt, id).await {
            Ok(Some(held)) => granted(rt, place, &opened.tool, &held).await.unwrap_or(MISSING),
            Ok(None) => MISSING,
            Err(error) => ToolLookup::Unavailable(ToolError::internal(error.to_string())),
        }
    };
    // Boxed, as all that is rare, so that most calls need no room for it.
    Box::pin(granted).await
}

/// The tool of a recorded call of this session.
pub(crate) async fn look_up_recorded(
    rt: &Arc<Inner>,
    session: &str,
    place: &BatchPlace,
    opened: &Opened,
) -> Result<ToolLookup, SessionError> {
    if opened.grant.is_none() {
        return Ok(rt.registry.look_up(place, &opened.tool).await);
    }
    let session = rt.session(session).await?;
    Ok(look_up(rt, &session, place, opened).await)
}

const MISSING: ToolLookup = ToolLookup::Missing { nearest: None };

/// The tool of this name or id that a grant is for.
async fn granted(
    rt: &Inner,
    place: &BatchPlace,
    asked: &str,
    held: &HeldGrant,
) -> Result<ToolLookup, GrantMismatch> {
    let mut mismatch = None;
    for entry in rt.registry.unhidden(place, asked) {
        match rt.registry.loaded(entry).await {
            ToolLookup::Tool(tool) => match held.check.covers(&tool.granted()) {
                Ok(()) => return Ok(ToolLookup::Tool(tool)),
                Err(why) => mismatch = mismatch.filter(|why| *why == GrantMismatch::Changed).or(Some(why)),
            },
            ToolLookup::Missing { .. } => {}
            unavailable @ ToolLookup::Unavailable(_) => return Ok(unavailable),
        }
    }
    match mismatch {
        Some(why) => Err(why),
        // Whether another tool of that name exists is nobody's business.
        None if held.check.terms().tool != asked => Err(GrantMismatch::Tool),
        None => Ok(MISSING),
    }
}

/// Ends the call if its grant does not admit it, before anything else is looked at. `true`: it is over.
pub(crate) async fn refuse(held: &mut Held) -> Result<bool, Lost> {
    let refused = match find(held).await {
        Ok(grant) => {
            let rt = held.on.rt.clone();
            granted(&rt, &held.on.batch.head.place, &held.call.opened.tool, &grant)
                .await
                .err()
                .map(Into::into)
        }
        Err(Unadmitted::Refused(refusal)) => Some(refusal),
        Err(Unadmitted::Lost(lost)) => return Err(lost),
        Err(Unadmitted::Unread(what)) => {
            let failure = result::internal(held, Code::Internal, what);
            return settle::refused(held, Box::new(failure)).map(|()| true);
        }
    };
    let Some(refusal) = refused else { return Ok(false) };
    background::refuse_start(held)?;
    settle::denied(held, refusal.to_string()).map(|()| true)
}

/// Whether there is a tool of this name, and the grant of a call that has not started is for another: that is refused, and not waited
/// for. Boxed, as all that is rare, so that most calls need no room for it.
pub(crate) fn is_for_another(held: &Held) -> Pin<Box<dyn Future<Output = bool> + Send + '_>> {
    Box::pin(async move {
        let Some(grant) = known(held).filter(|_| held.call.attempts == 0) else { return false };
        granted(&held.on.rt, &held.on.batch.head.place, &held.call.opened.tool, &grant).await.is_err()
    })
}

/// Whether the call may run by its grant with this tool and these arguments; otherwise the reason, for the model.
pub(crate) async fn check(
    held: &Held,
    tool: &Registered,
    args: &Value,
) -> Result<Result<(), GrantRefusal>, GrantUnread> {
    match find(held).await {
        Ok(grant) => Ok(grant.check.permits(&tool.granted(), args).map_err(GrantRefusal::from)),
        Err(Unadmitted::Refused(refusal)) => Ok(Err(refusal)),
        Err(Unadmitted::Lost(lost)) => Err(GrantUnread::Lost(lost)),
        Err(Unadmitted::Unread(what)) => Err(GrantUnread::Store(what)),
    }
}

/// Takes a use of the grant for a call that starts, unless it has started before: the claim of the use travels with the start.
/// `false`: the grant admits it no longer.
#[cold]
pub(crate) fn take_use(held: &mut Held) -> bool {
    let Some(grant) = known(held) else { return false };
    let has_started = held.call.attempts > 0;
    let place = held.place();
    if grant.admits(place.principal(), has_started, held.now()).is_err() {
        return false;
    }
    if has_started && !windlass_core::mutant::breaks("grant-per-attempt") {
        return true;
    }
    match grant.take_use() {
        Ok(claim) => {
            held.carry(claim.into_iter().collect());
            true
        }
        Err(_) => false,
    }
}

/// Whether the grant of a call whose start is recorded was not revoked meanwhile: whoever revoked it may have been told by now that
/// nothing starts by it. Also for calls without one.
#[inline]
pub(crate) fn still_stands(held: &Held) -> bool {
    held.call.opened.grant.is_none() || known(held).is_some_and(|grant| !grant.is_revoked())
}

/// The rules of the call's attempts, where its grant may have a retry rule of its own, in recorded form.
pub(crate) fn rules(held: &Held, tool: &Registered) -> Option<Arc<Rules>> {
    let asked = held.call.opened.deadlines.as_deref();
    match known(held).filter(|grant| grant.check.terms().retry.is_some()) {
        Some(grant) => tool.rules_with(asked, |of_tool| grant.check.rules(of_tool)),
        None => tool.rules_for(asked),
    }
}

/// The grant of the call, if it was read.
fn known(held: &Held) -> Option<Arc<HeldGrant>> {
    let id = held.call.opened.grant.as_deref()?;
    held.on.session.slots.of::<SessionGrants>().known(id)
}

/// Why a call may not run by its grant.
enum Unadmitted {
    Refused(GrantRefusal),
    Lost(Lost),
    Unread(String),
}

impl From<SessionError> for Unadmitted {
    fn from(error: SessionError) -> Unadmitted {
        match GrantUnread::from(error) {
            GrantUnread::Lost(lost) => Unadmitted::Lost(lost),
            GrantUnread::Store(what) => Unadmitted::Unread(what),
        }
    }
}

/// The grant of the call, if it admits calls of its principal now.
async fn find(held: &Held) -> Result<Arc<HeldGrant>, Unadmitted> {
    let unknown = || Unadmitted::Refused(GrantRefusal::Unknown);
    let id = held.call.opened.grant.as_deref().ok_or_else(unknown)?;
    let grant = held.on.session.grant(&held.on.rt, id).await?.ok_or_else(unknown)?;
    let place = held.place();
    let admitted = grant.admits(place.principal(), held.call.attempts > 0, held.now());
    admitted.map_err(Unadmitted::Refused)?;
    Ok(grant)
}
