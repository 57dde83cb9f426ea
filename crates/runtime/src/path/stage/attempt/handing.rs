//! Handing an attempt to a toolbox, and going on with one that a toolbox has.

use crate::api::error::Lost;
use crate::api::keys::fresh_key;
use crate::path::drive::note_lost;
use crate::path::stage::attempt;
use crate::session::held::Held;
use crate::session::permission::HeldPermit;
use crate::session::signal::AttemptSignal;
use crate::session::turns::{Turn, Turns};
use crate::tools::registry::{Registered, ToolLookup};
use crate::tools::toolbox::{ComingAttempt, HandedAttempt, ToolboxLink};
use std::sync::Arc;
use windlass_core::call::{Begins, Fact, Intent, LostAttempt, Start, Withheld};
use windlass_core::handle::token_hash;
use windlass_core::ids::AttemptNo;
use windlass_core::operation::{Did, HANDED, Handover, Operation};

/// Notes the start of an attempt, and that it is handed to a toolbox if its tool is of one.
pub(super) fn note_start(
    held: &mut Held,
    tool: &Registered,
    start: Start,
) -> Result<Option<HandedAttempt>, Lost> {
    if let Some(fact) = start.fact(held.on.rt.policy.recorded()) {
        held.note(fact)?;
    }
    match &tool.link {
        Some(link) => hand(held, link, start),
        None => Ok(None),
    }
}

/// Notes that an attempt is handed to a toolbox, under a token of its own. One that goes on keeps the token it has.
fn hand(held: &mut Held, link: &Arc<ToolboxLink>, start: Start) -> Result<Option<HandedAttempt>, Lost> {
    let is_suspect = held.call.is_suspect();
    if start.begins == Begins::Continued {
        let hash = held.call.handover().map(|handover| handover.token.clone());
        let coming = Arc::new(ComingAttempt::default());
        return Ok(hash.map(|hash| HandedAttempt { token: None, hash, is_suspect, coming }));
    }
    // Without randomness nothing can be handed over safely; the tool then says so.
    let Ok(random) = fresh_key() else { return Ok(None) };
    let store = &held.on.rt.store;
    // The handle leads a late report to its call, also under the next owner.
    let token: Arc<str> = format!("{}.{random}", super::result::handle(held)).into();
    let hash: Arc<str> = token_hash(store.secret(), &token).into();
    let (attempt, toolbox) = (start.attempt, link.toolbox.clone());
    let did = Did::Handed(Handover { attempt, toolbox, token: hash.clone() });
    held.note(Fact::Operation(Box::new(Operation { name: HANDED.into(), did })))?;
    let coming = Arc::new(ComingAttempt::new(link));
    Ok(Some(HandedAttempt { token: Some(token), hash, is_suspect, coming }))
}

/// Ends an attempt that its toolbox did not: it was taken back before a process had it, or is lost with its process. `None`: it ended
/// by itself, or was told to stop before; then it has been stopped, whoever ran it.
pub(super) fn end_by_desk(
    held: &mut Held,
    attempt: AttemptNo,
    signal: &AttemptSignal,
    fact: &Fact,
) -> Option<Result<(), Lost>> {
    if signal.is_taken_back() {
        return Some(take_back(held, attempt));
    }
    let is_lost = signal.is_lost() && matches!(fact, Fact::Aborted(_));
    is_lost.then(|| lose(held, attempt))
}

/// Takes a start back that no process has taken: the call is judged anew, and waits for a process.
fn take_back(held: &mut Held, attempt: AttemptNo) -> Result<(), Lost> {
    held.hear()?;
    held.permit = HeldPermit::unjudged();
    held.note(Fact::Withheld(Withheld { attempt }))
}

/// The process that had an attempt is gone: as after the death of an owner, the class decides, and it counts against the call.
fn lose(held: &mut Held, attempt: AttemptNo) -> Result<(), Lost> {
    held.hear()?;
    held.note(Fact::Lost(LostAttempt { attempt, blamed: true }))
}

/// Goes on with an attempt that a toolbox has. If its tool is no longer of that toolbox or is another one, the attempt is lost.
/// `None`: the call is parked until it has its turn.
pub(crate) async fn go_on(mut held: Box<Held>, attempt: AttemptNo) -> Result<Option<Box<Held>>, Lost> {
    let registry = &held.on.rt.registry;
    let generation = registry.generation();
    let toolbox = held.call.handover().map(|handover| handover.toolbox.clone());
    let found = match registry.look_up(&held.on.batch.head.place, &held.call.opened.tool).await {
        ToolLookup::Tool(tool) => Some(tool),
        ToolLookup::Missing { .. } | ToolLookup::Unavailable(_) => None,
    };
    let same = found.filter(|tool| {
        tool.link.as_ref().map(|link| &link.toolbox) == toolbox.as_ref()
            && held.call.pin.is_some_and(|pin| pin.contract == tool.contract)
    });
    let Some(tool) = same else {
        note_lost(&mut held, attempt)?;
        return Ok(Some(held));
    };
    // One that is late cannot wait for its turn: it would be woken for that again and again.
    if held.due_us() <= held.on.rt.clock.elapsed_us() {
        note_lost(&mut held, attempt)?;
        return Ok(Some(held));
    }
    (held.seen_generation, held.tool) = (generation, Some(tool.clone()));
    match Turns::take(held) {
        Turn::Now(mut held, now_us) => {
            let start = Start { attempt, intent: Intent::WithResult, begins: Begins::Continued };
            attempt::run(&mut held, &tool, start, now_us).await?;
            Ok(Some(held))
        }
        Turn::Later => Ok(None),
        Turn::Never(mut held, _) => {
            note_lost(&mut held, attempt)?;
            Ok(Some(held))
        }
    }
}
