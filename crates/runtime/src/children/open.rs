//! How a child session is opened: once, whoever asks how often.

use super::{Child, ChildError, ChildSpec};
use crate::error::{BatchError, Lost};
use crate::removal;
use crate::runtime::{Bounds, Inner, check_session_name};
use crate::session::Session;
use crate::standing;
use crate::tool::Place;
use std::collections::BTreeSet;
use std::sync::Arc;
use windlass_core::ids::CallId;
use windlass_store::{Change, Guard, Hold, Refused, Row, STORE, Space};

/// Who opens a child session.
pub(crate) struct Opener<'a> {
    pub(crate) parent: &'a str,
    /// The call that does, how deep it lies, and what it sees of tools.
    pub(crate) call: Option<(CallId, u32, &'a Place)>,
}

/// Opens a child session, or finds the one that was opened so. Whether it is new.
pub(crate) async fn open(
    rt: &Arc<Inner>,
    opener: Opener<'_>,
    (name, mut spec): (&str, ChildSpec),
) -> Result<(Arc<Session>, bool), ChildError> {
    check_session_name(name)?;
    // What is left of a session that had the name is tidied up first.
    if removal::is_begun(rt, name).await?.is_some() {
        return Err(Lost::Removed.into());
    }
    if let Some(sets) = rt.sets_for_children.get().filter(|_| opener.call.is_some()) {
        spec.settings.extend(sets(opener.parent, name).await?);
    }
    let parent = rt.session(opener.parent).await?;
    // Whoever removes the parent takes this after saying so: then no child comes to it.
    let mut count = parent.children.lock().await;
    parent.check_stays()?;
    let wanted = wanted(rt, &parent, &opener, &spec)?;
    if let Some(there) = Child::of(&*rt.store, name).await? {
        return Ok((found(rt, (name, &there), &wanted).await?, false));
    }
    if parent.look_closed(rt).await? {
        return Err(ChildError::Closed { session: opener.parent.to_string() });
    }
    check_tools(rt, &opener, &wanted)?;
    let (known, max) = (counted(rt, &parent, *count).await?, rt.limits.children_max);
    if known >= max {
        return Err(ChildError::TooMany { parent: opener.parent.to_string(), max });
    }
    let bounds = Bounds::new(spec.limits, Some(wanted.clone()));
    let mut is_new = false;
    // Nobody takes it before what it is is durable: or it would have more tools than it may.
    let session = rt
        .session_once(name, async {
            is_new = put(rt, (name, &bounds), spec.settings).await?;
            Ok::<(), ChildError>(())
        })
        .await?;
    *count = Some(known + u64::from(is_new));
    let kin = session.kin.as_ref().map(|kin| &kin.child);
    match kin.filter(|child| is_same(child, &wanted)) {
        Some(_) => Ok((session, is_new)),
        None => Err(conflict(name, kin)),
    }
}

/// Whether it could be opened, as far as that is known without a look at what is there.
pub(crate) fn check(
    rt: &Inner,
    parent: &Session,
    opener: &Opener<'_>,
    spec: &ChildSpec,
) -> Result<(), ChildError> {
    check_tools(rt, opener, &wanted(rt, parent, opener, spec)?)
}

/// What it is to be.
fn wanted(rt: &Inner, parent: &Session, opener: &Opener<'_>, spec: &ChildSpec) -> Result<Child, ChildError> {
    let around = opener.call.map_or_else(|| parent.depth(), |(_, depth, _)| depth);
    let (depth, max) = (around + 1, rt.limits.nesting_max);
    if u64::from(depth) > max {
        return Err(ChildError::TooDeep { depth, max });
    }
    // In one order, however they were named.
    let tools = spec.tools.as_ref().map(|tools| tools.iter().cloned().collect::<BTreeSet<String>>());
    if tools.as_ref().is_some_and(|tools| tools.len() as u64 > rt.limits.child_tools_max) {
        return Err(ChildError::TooManyTools { max: rt.limits.child_tools_max });
    }
    Ok(Child {
        parent: opener.parent.to_string(),
        tools: tools.map(|tools| tools.into_iter().collect()),
        call: opener.call.map(|(call, ..)| call.packed()),
        depth,
        settings: spec.settings.iter().map(|(key, _)| key.clone()).collect(),
    })
}

/// The child that is there, if it is the one that is wanted.
async fn found(
    rt: &Arc<Inner>,
    (name, there): (&str, &Child),
    wanted: &Child,
) -> Result<Arc<Session>, ChildError> {
    match is_same(there, wanted) {
        true => Ok(rt.session(name).await?),
        false => Err(conflict(name, Some(there))),
    }
}

/// Of what was put with it whoever put that knows whether it is the same.
fn is_same(there: &Child, wanted: &Child) -> bool {
    (&there.parent, there.call, &there.tools) == (&wanted.parent, wanted.call, &wanted.tools)
}

/// Its parent has all the tools that it names. What is called by a stable id is not named by that.
fn check_tools(rt: &Inner, opener: &Opener<'_>, wanted: &Child) -> Result<(), ChildError> {
    let Some(tools) = &wanted.tools else { return Ok(()) };
    let of_session;
    let place = match opener.call {
        Some((_, _, place)) => place,
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

/// How many children the parent has.
async fn counted(rt: &Inner, parent: &Session, known: Option<u64>) -> Result<u64, BatchError> {
    match known {
        Some(count) => Ok(count),
        None => Ok(Child::all(&*rt.store, &parent.name).await?.len() as u64),
    }
}

/// Writes what makes it a child, in one change. `false`: another worker did.
async fn put(
    rt: &Inner,
    (name, bounds): (&str, &Bounds),
    settings: Vec<(String, Arc<[u8]>)>,
) -> Result<bool, ChildError> {
    if rt.store.session(name).await.map_err(BatchError::from)?.is_some() {
        return Err(conflict(name, None));
    }
    let space = Space::Setting;
    let keys = std::iter::once(Bounds::key(name)).chain(settings.iter().map(|(key, _)| key.clone()));
    let guards = keys.map(|key| Guard::Generation { space, key, is: 0 }).collect();
    let mut rows = vec![bounds.row(name)];
    rows.extend(bounds.child.as_ref().map(|child| child.listed(name)));
    rows.extend(settings.into_iter().map(|(key, value)| Row::Put { space, key, value }));
    let change = Change { session: STORE, hold: Hold::Store, guards, rows };
    match rt.store.commit(vec![change]).await.map_err(BatchError::from)?.pop() {
        // Whose it is by now is looked at when it is taken.
        Some(Err(Refused::Changed { .. })) => match Child::of(&*rt.store, name).await? {
            Some(_) => Ok(false),
            None => Err(conflict(name, None)),
        },
        Some(Err(refused)) => Err(Lost::Refused(refused).into()),
        Some(Ok(_)) | None => Ok(true),
    }
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
