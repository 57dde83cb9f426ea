//! Opening a child session: once, however often it is requested.

use super::{ChildCount, ChildError, ChildSpec, SetsForChildren};
use crate::api::error::{Lost, SessionError};
use crate::features::removal;
use crate::features::standing;
use crate::session::bounds::Bounds;
use crate::session::inner::Inner;
use crate::session::kin::Child;
use crate::session::owner::Session;
use crate::session::principal::{self, SessionRecords};
use crate::tools::place::BatchPlace;
use crate::tools::request::check_session_name;
use std::collections::BTreeSet;
use std::sync::Arc;
use windlass_core::ids::CallId;

/// The opener of a child session.
pub(crate) struct Opener<'a> {
    pub(crate) parent: &'a str,
    /// The call that does, if it is one.
    pub(crate) call: Option<OpeningCall<'a>>,
}

/// A call that opens a child session.
#[derive(Clone, Copy)]
pub(crate) struct OpeningCall<'a> {
    pub(crate) id: CallId,
    /// How many calls and sessions are around it.
    pub(crate) depth: u32,
    /// Where it finds its tools.
    pub(crate) place: &'a BatchPlace,
}

/// Opens a child session, or finds the one that was opened so. Returns whether it is new.
pub(crate) async fn open(
    rt: &Arc<Inner>,
    opener: Opener<'_>,
    name: &str,
    mut spec: ChildSpec,
) -> Result<(Arc<Session>, bool), ChildError> {
    check_session_name(name)?;
    // The remains of a session that had the name are removed first.
    if removal::is_begun(rt, name).await? {
        return Err(Lost::Removed.into());
    }
    principal::check_not_gone(&*rt.store, name).await?;
    if let Some(sets) = rt.slots.of::<SetsForChildren>().0.get().filter(|_| opener.call.is_some()) {
        spec.settings.extend(sets(opener.parent, name).await?);
    }
    let nothing = async { Ok::<(), SessionError>(()) };
    let (parent, _) = rt.open_session(opener.parent, SessionRecords::local(), nothing).await?;
    // A removal of the parent takes this lock after its mark: then no child is added.
    let count = parent.slots.of::<ChildCount>();
    let mut count = count.0.lock().await;
    parent.check_stays()?;
    let wanted = wanted(rt, &parent, &opener, &spec)?;
    if let Some(there) = Child::of(&*rt.store, name).await? {
        return Ok((found(rt, name, &there, &wanted).await?, false));
    }
    if parent.look_closed(rt).await? {
        return Err(ChildError::Closed { session: opener.parent.to_string() });
    }
    check_tools(rt, &opener, &wanted)?;
    let (known, max) = (counted(rt, &parent, *count).await?, rt.limits.children_max);
    if known >= max {
        return Err(ChildError::TooMany { parent: opener.parent.to_string(), max });
    }
    let opening = SessionRecords {
        principal: parent.principal.clone(),
        bounds: Bounds::new(spec.limits, Some(wanted.clone())),
        settings: spec.settings,
    };
    // Nobody takes it before its specification is durable: otherwise it would have more tools than allowed.
    let (session, is_new) = rt.open_session(name, opening, list(&parent, name)).await?;
    *count = Some(known + u64::from(is_new));
    let kin = session.kin.as_ref().map(|kin| &kin.child);
    match kin.filter(|child| is_same(child, &wanted)) {
        Some(_) => Ok((session, is_new)),
        None => Err(conflict(name, kin)),
    }
}

/// Checks whether it could be opened, as far as possible without reading the store.
pub(crate) fn check(
    rt: &Inner,
    parent: &Session,
    opener: &Opener<'_>,
    spec: &ChildSpec,
) -> Result<(), ChildError> {
    check_tools(rt, opener, &wanted(rt, parent, opener, spec)?)
}

/// The requested relation.
fn wanted(rt: &Inner, parent: &Session, opener: &Opener<'_>, spec: &ChildSpec) -> Result<Child, ChildError> {
    let around = opener.call.map_or_else(|| parent.depth(), |call| call.depth);
    let (depth, max) = (around + 1, rt.limits.nesting_max);
    if u64::from(depth) > max {
        return Err(ChildError::TooDeep { depth, max });
    }
    // In one order, however they were named.
    let tools = spec.tools.as_ref().map(|tools| tools.iter().cloned().collect::<BTreeSet<String>>());
    if tools.as_ref().is_some_and(|tools| tools.len() as u64 > rt.limits.child_tools_max) {
        return Err(ChildError::TooManyTools { max: rt.limits.child_tools_max });
    }
    principal::check_bound(spec.limits, &rt.limits)?;
    Ok(Child {
        parent: opener.parent.to_string(),
        tools: tools.map(|tools| tools.into_iter().collect()),
        call: opener.call.map(|call| call.id.packed()),
        depth,
    })
}

/// The existing child, if it matches the request.
async fn found(
    rt: &Arc<Inner>,
    name: &str,
    there: &Child,
    wanted: &Child,
) -> Result<Arc<Session>, ChildError> {
    match is_same(there, wanted) {
        true => Ok(rt.session(name).await?),
        false => Err(conflict(name, Some(there))),
    }
}

/// Only the writer of its settings knows whether they match.
fn is_same(there: &Child, wanted: &Child) -> bool {
    (&there.parent, there.call, &there.tools) == (&wanted.parent, wanted.call, &wanted.tools)
}

/// Checks that its parent has all the tools it names. Stable ids do not count as names.
fn check_tools(rt: &Inner, opener: &Opener<'_>, wanted: &Child) -> Result<(), ChildError> {
    let Some(tools) = &wanted.tools else { return Ok(()) };
    let of_session;
    let place = match opener.call {
        Some(call) => call.place,
        None => {
            of_session = standing::place(opener.parent);
            &of_session
        }
    };
    match rt.registry.missing(place, tools).into_iter().next() {
        Some(missing) => Err(ChildError::NoSuchTool { parent: opener.parent.to_string(), missing }),
        None => Ok(()),
    }
}

/// The number of the parent's children.
async fn counted(rt: &Inner, parent: &Session, known: Option<u64>) -> Result<u64, SessionError> {
    match known {
        Some(count) => Ok(count),
        None => Ok(Child::all(&*rt.store, &parent.name).await?.len() as u64),
    }
}

/// Lists a child with its parent, before it is opened: so a removal of the parent finds every child. A name
/// that is listed and not opened is no child.
async fn list(parent: &Session, child: &str) -> Result<(), ChildError> {
    Ok(parent.lane.commit_rows(vec![Child::listed(child)]).await?)
}

fn conflict(name: &str, there: Option<&Child>) -> ChildError {
    let stands = match there {
        None => "and is no child of another".to_string(),
        Some(child) => {
            let tools = match &child.tools {
                None => "all tools of that".to_string(),
                Some(tools) => format!("the tools {}", tools.join(", ")),
            };
            let by = if child.call.is_some() { "opened by a call, " } else { "" };
            format!("{by}as a child of {:?} with {tools}", child.parent)
        }
    };
    ChildError::Conflict { session: name.to_string(), stands }
}
